"""A small call that comes again is not looked at again, and means what it means anyway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distvec as dv
from ps_backend.client import Client
from ps_backend.errors import BufferLost, InvalidProgram, PSError
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.program.types import array_type
from ps_backend.server import service
from ps_backend.server.commands.programs import run_small
from ps_backend.server.state.call_cache import MOST_ELEMENTS
from tests.ps_backend.helpers import AXPY, DOT, Faulty, axpy, dot, in_process, put
from tests.ps_backend.sweeps import Builder

SPACE = DenseSpace(3000)
FLOATS = array_type(SPACE, float)
X = np.random.default_rng(0).standard_normal(SPACE.length)
Y = X[::-1].copy()


@contextmanager
def warm(servers: int = 2, messages: bool = False) -> Iterator[tuple[Client, int, int, list]]:
    """A client of servers that know AXPY and DOT over SPACE; two vectors; the servers' sessions.

    ``messages``: nothing runs without one, as if the servers were elsewhere.
    """
    transports = in_process(servers)
    with Client([*map(Faulty, transports)] if messages else transports) as client:
        x, y = put(client, SPACE, X), put(client, SPACE, Y)
        client.run(axpy(SPACE, 2.0, x, y, client.new_id()))
        client.run(dot(SPACE, x, y))
        yield client, x, y, [one.service.sessions.all()[0] for one in transports]


@given(a=st.floats(-1e3, 1e3), servers=st.integers(1, 3), messages=st.booleans())
def test_it_gives_the_same(a, servers, messages):
    with warm(servers, messages) as (client, x, y, sessions):
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


@pytest.mark.parametrize("messages", [True, False], ids=["messages", "here"])
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
def test_it_refuses_the_same(known, messages, outputs, second, error):
    """Ids 1 and 2 stand for the vectors, 7 and 8 for new ones."""
    with warm(1, messages) as (client, x, y, sessions):
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


def test_nothing_is_encoded_in_the_process_of_the_servers(monkeypatch):
    """And it counts as the messages that it saves, which free what is noted."""
    counts = []
    for messages in (True, False):
        with warm(2, messages) as (client, x, y, sessions):
            client.run(dot(SPACE, x, y))
            client.counters.reset()
            client.free([x])
            with monkeypatch.context() as patched:
                if not messages:
                    for module in ("ps_backend.client.programs", "ps_backend.client.fan_out"):
                        patched.setattr(f"{module}.pb", None)
                client.run(dot(SPACE, y, y))
                client.run(axpy(SPACE, 2.0, y, y, client.new_id()), wait=False)
            client.wait()
            assert [len(session.store) for session in sessions] == [3, 3]
            counts.append(client.counters.snapshot())
    sizes = [counted.pop("bytes_sent") + counted.pop("bytes_received") for counted in counts]
    assert counts[0] == counts[1]
    assert abs(sizes[0] - sizes[1]) < 0.1 * sizes[0], "but for the digits of the numbers"


def test_what_one_server_refuses_no_server_keeps():
    with warm(2) as (client, x, y, sessions):
        sessions[1].store.free([y])
        out = client.new_id()
        with pytest.raises(BufferLost):
            client.run(axpy(SPACE, 2.0, x, y, out))
        client.run(dot(SPACE, x, x))
        assert out not in sessions[0].store.find([out])
        assert [len(session.store) for session in sessions] == [3, 2]


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


@pytest.mark.parametrize("servers", [1, 3])
def test_what_takes_arrays_along_or_leaves_rows_runs_so_here(servers, monkeypatch):
    """Sums along axis 0, products with small tables, extremes, listed rows: the same bits."""
    with dv.local(servers, in_process=True) as ps:
        values = np.random.default_rng(1).standard_normal((3000, 4))
        table, x = ps.array(values), ps.array(values[:, 0])

        def results(k: int) -> list[np.ndarray]:
            small = values[k : k + 4] + 1.0
            made = table @ small
            found = [made.sum(axis=0), table.T @ made, made.argmin(axis=0), x @ table]
            found += [made.argmin(axis=1), made - values[k], table[[5, 2999, k]]]
            dv.evaluate(*found)
            return [one.numpy() for one in found]

        expected, ran = [results(k) for k in (3, 4)], []
        monkeypatch.setattr(service, "run_small", lambda *one: ran.append(1) or run_small(*one))
        for first, second in zip(expected, [results(k) for k in (3, 4)], strict=True):
            for one, other in zip(first, second, strict=True):
                np.testing.assert_array_equal(one, other)
        assert len(ran) >= 2 * servers


def test_views_on_the_only_server_run_so(monkeypatch):
    """Slices, assigned slices, indices: NumPy's values, and errors that come with a message."""
    values = np.random.default_rng(1).standard_normal(3000)
    with dv.local(1, in_process=True) as ps:
        x, index = ps.array(values), np.arange(3000)[::-1]
        assert x.shape == values.shape

        def results(a, k: int) -> list:
            chosen = ps.array(index // k) if isinstance(a, dv.DistArray) else index // k
            made = a + 0.0
            made[k::2] = -a[k::2]
            total = (a[k:] * a[:-k]).sum() if isinstance(a, dv.DistArray) else None
            return [made[::-1] * 2, a[k:] - a[:-k], a[chosen] + a, total]

        ran = []
        monkeypatch.setattr(service, "run_small", lambda *one: ran.append(1) or run_small(*one))
        sums = []
        for k in (1, 2, 2, 1):
            ran.clear()
            *found, total = results(x, k)
            dv.evaluate(*found, total)
            *expected, _ = results(values, k)
            for mine, theirs in zip(found, expected, strict=True):
                np.testing.assert_array_equal(mine.numpy(), theirs)
            sums.append(float(total))
        assert sums[:2] == sums[:1:-1] and len(ran) >= 2
        with pytest.raises(IndexError):
            (x[ps.array(index + 1)] + x).numpy()
