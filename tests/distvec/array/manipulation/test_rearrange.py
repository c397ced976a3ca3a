"""``roll``, ``flip``, ``rot90`` and their kin: as NumPy's, and what they cost."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from distvec.testing import assert_plan
from tests.distvec.alike import arrays, assert_alike
from tests.distvec.conftest import SERVER_COUNTS

AXES = st.sampled_from((None, 0, 1, -1, (0, 1), (0, 0), 2))
SHIFTS = st.sampled_from((0, 1, -1, 3, -3, 1023, 1024, 4000, -5000))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_roll(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    x, axis = data.draw(arrays()), data.draw(AXES)
    several = st.tuples(SHIFTS, SHIFTS) if isinstance(axis, tuple) else st.nothing()
    shift = data.draw(SHIFTS | several)
    assert_alike(sessions[servers], lambda a: np.roll(a, shift, axis), x)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_flip_and_turn(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    x, axis = data.draw(arrays()), data.draw(AXES)
    k = data.draw(st.integers(-3, 4))
    function = data.draw(
        st.sampled_from(
            (
                lambda a: np.flip(a, axis),
                np.fliplr,
                np.flipud,
                lambda a: np.rot90(a, k),
                lambda a: np.rot90(a, k, (1, 0)),
                lambda a: np.swapaxes(a, 0, k),
                lambda a: np.moveaxis(a, 0, k),
                lambda a: np.rollaxis(a, k),
                lambda a: np.roll(np.flip(a, 0), 2, 0)[1:] + np.flip(a, 0)[1:],
            )
        )
    )
    assert_alike(sessions[servers], function, x)


def _cost(session: dv.Session, x: Any) -> tuple[int, int]:
    """Messages to each server, and bytes between servers."""
    session.counters.reset()
    x.persist()
    return session.counters.messages, session.counters.peer_bytes


@pytest.mark.parametrize("servers", [2, 3])
def test_what_a_roll_moves(sessions: dict[int, dv.Session], servers: int) -> None:
    ps = sessions[servers]
    x = ps.array(np.arange(30_000.0))
    t = ps.array(np.ones((30_000, 4), np.float32))
    assert _cost(ps, np.roll(x, 3)) == (1, servers * 24)
    assert _cost(ps, np.roll(x, -1) - 2 * x + np.roll(x, 1)) == (1, servers * 16)
    assert _cost(ps, np.roll(x + 1, 3) * x) == (1, servers * 24), "the sum is not stored"
    assert _cost(ps, np.roll(t, 1, axis=0)) == (1, servers * 16)
    assert _cost(ps, np.roll(t, 1, axis=1)) == (1, 0)
    assert _cost(ps, np.roll(t, 3)) == (1, servers * 16), "a whole row"
    assert _cost(ps, np.flip(t, 1)) == (1, 0)
    assert_plan(np.roll(x, 3) - x, messages=1, sweeps=1, vectors_read=1, vectors_written=1)


def test_what_is_turned_round_on_the_way_is_not_stored(ps: dv.Session) -> None:
    x, y = ps.array(np.arange(3000.0)), ps.array(np.arange(2000.0))
    around = np.concatenate([x[::-1], 2 * y[5:]])[::-1] + np.flip(np.append(y[3:], x))[2:]
    assert_plan(around, messages=1, sweeps=1, vectors_read=2)
    a, b = x.numpy(), y.numpy()
    expected = np.concatenate([a[::-1], 2 * b[5:]])[::-1] + np.flip(np.append(b[3:], a))[2:]
    assert np.array_equal(around.numpy(), expected)
