"""A small call that comes again is not looked at again, and means what it means anyway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client
from ps_backend.errors import BufferLost, InvalidProgram, PSError
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.program.types import array_type
from ps_backend.server.state.call_cache import MOST_ELEMENTS
from tests.ps_backend.helpers import AXPY, DOT, axpy, dot, in_process, put
from tests.ps_backend.sweeps import Builder

SPACE = DenseSpace(3000)
FLOATS = array_type(SPACE, float)
X = np.random.default_rng(0).standard_normal(SPACE.length)
Y = X[::-1].copy()


@contextmanager
def warm(servers: int = 2) -> Iterator[tuple[Client, int, int, list]]:
    """A client of servers that know AXPY and DOT over SPACE; two vectors; the servers' sessions."""
    transports = in_process(servers)
    with Client(transports) as client:
        x, y = put(client, SPACE, X), put(client, SPACE, Y)
        client.run(axpy(SPACE, 2.0, x, y, client.new_id()))
        client.run(dot(SPACE, x, y))
        yield client, x, y, [one.service.sessions.all()[0] for one in transports]


@given(a=st.floats(-1e3, 1e3), servers=st.integers(1, 3))
def test_it_gives_the_same(a, servers):
    with warm(servers) as (client, x, y, sessions):
        for short in (True, False):
            out = client.new_id()
            if not short:
                for session in sessions:
                    session.call_cache.clear()
            both = Program(
                (
                    SweepCall(AXPY, SPACE, (x, y), (a,), (out,)),
                    SweepCall(DOT, SPACE, (out, y), (), ()),
                )
            )
            ((), (partials,)) = client.run(both)
            values = client.read(out, FLOATS)
            np.testing.assert_array_equal(values, a * X + Y)
            if short:
                expected = partials
            np.testing.assert_array_equal(partials, expected)


def test_only_what_was_verified_runs_so():
    with warm() as (client, x, _, sessions):
        assert all(len(session.call_cache) == 2 for session in sessions)
        other = DenseSpace(3000, 7)
        z = put(client, other, X)
        with pytest.raises(PSError):
            client.run(dot(SPACE, x, z))
        with pytest.raises(PSError):
            client.run(Program((SweepCall(DOT, SPACE, (x,), (), ()),)))
        long = DenseSpace(2 * MOST_ELEMENTS)
        w = put(client, long, np.ones(long.length))
        client.run(dot(long, w, w))
        assert all(len(session.call_cache) == 2 for session in sessions), "that one is not small"


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
@pytest.mark.parametrize(
    ("outputs", "second", "error"),
    [
        pytest.param((7, 7), (1, 2), InvalidProgram, id="written twice"),
        pytest.param((1, 8), (1, 2), InvalidProgram, id="taken"),
        pytest.param((7, 8), (1, 99), BufferLost, id="not here"),
        pytest.param((7, 8), (1, 8), BufferLost, id="read before it is written"),
    ],
)
def test_it_refuses_the_same(known, outputs, second, error):
    """Ids 1 and 2 stand for the vectors, 7 and 8 for new ones."""
    with warm(1) as (client, x, y, sessions):
        if not known:
            sessions[0].call_cache.clear()
        base = client.new_id()
        number = {1: x, 2: y, 7: base, 8: client.new_id(), 99: client.new_id()}
        calls = [
            SweepCall(AXPY, SPACE, tuple(number[k] for k in inputs), (1.0,), (number[output],))
            for inputs, output in zip([(1, 2), second], outputs, strict=True)
        ]
        with pytest.raises(error):
            client.run(Program(tuple(calls)))
        assert len(sessions[0].store) == 3, "nothing was made"


def test_what_ends_with_a_session_ends_it_too():
    with warm(1) as (client, x, y, sessions):
        session = sessions[0]
        session.closed = True
        with pytest.raises(PSError):
            client.run(dot(SPACE, x, y))
        session.closed = False
        client.run(dot(SPACE, x, y))


def test_what_takes_memory_meanwhile_is_counted_each_time():
    """Six values at once, of 32,000 elements each."""
    build = Builder(1, 0)
    values = [build.step("add", 0, 0)]
    for _ in range(5):
        values.append(build.step("multiply", values[-1], 0))
    total = values[0]
    for value in values[1:]:
        total = build.step("add", total, value)
    space = DenseSpace(32_000)
    with warm(1) as (client, _, _, sessions):
        x = put(client, space, np.ones(space.length))
        y = client.new_id()
        client.run(Program((SweepCall(build.sweep([total]), space, (x,), (), (y,)),)))
        assert (client.read(y, array_type(space, float)) == 12.0).all()
        assert len(sessions[0].call_cache) == 2
