"""``repeat``, ``tile``, ``resize`` and ``pad``: as NumPy's, and what they cost."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from tests.distvec.alike import arrays, assert_alike
from tests.distvec.conftest import SERVER_COUNTS

SHAPES = ((0,), (1,), (5,), (1025,), (3000,), (1, 1), (5, 3), (1030, 3))
TIMES = st.sampled_from((0, 1, 2, 3, 5, 30))


@st.composite
def _repetition(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    kind = draw(st.sampled_from(("repeat", "repeat", "counts", "tile", "resize")))
    times, axis = draw(TIMES), draw(st.sampled_from((None, 0, 1, -1)))
    if kind == "repeat":
        return lambda a: np.repeat(a, times, axis)
    if kind == "counts":
        length = int(np.prod(shape)) if axis is None else shape[axis % len(shape)]
        counts = np.resize(draw(st.lists(st.integers(0, 4), min_size=1, max_size=5)), length)
        return lambda a: np.repeat(a, counts, axis)
    if kind == "tile":
        reps = draw(st.one_of(TIMES, st.tuples(TIMES), st.tuples(TIMES, TIMES)))
        return lambda a: np.tile(a, reps)
    lengths = st.sampled_from((1, 2, 7, 1024))
    wanted = draw(st.one_of(st.just(0), lengths, st.tuples(lengths, st.sampled_from((1, 3)))))
    return lambda a: np.resize(a, wanted)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_repeated(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    x = data.draw(arrays(SHAPES))
    function = data.draw(_repetition(x.shape))
    assert_alike(sessions[servers], function, x)


@pytest.mark.parametrize("servers", SERVER_COUNTS)
def test_repeated_as_often_as_servers_say(sessions: dict[int, dv.Session], servers: int) -> None:
    x, times = np.arange(3000.0), np.arange(3000) % 4
    table = np.stack([x, -x], axis=1)
    ps = sessions[servers]
    assert np.array_equal(np.repeat(ps.array(x), ps.array(times)).numpy(), np.repeat(x, times))
    found = np.repeat(ps.array(table), ps.array(times), axis=0)
    assert np.array_equal(found.numpy(), np.repeat(table, times, axis=0))


WIDTHS = st.sampled_from((0, 1, 2, 4, 5, 7, 1100))
MODES = ("constant", "edge", "reflect", "symmetric", "wrap", "empty", "linear_ramp")


@st.composite
def _padding(draw: st.DrawFn, rank: int) -> tuple[Any, dict[str, Any]]:
    wide = st.tuples(WIDTHS, WIDTHS)
    width = draw(st.one_of(WIDTHS, wide, st.tuples(*[wide] * rank)))
    mode = draw(st.sampled_from((*MODES, "mean", "maximum", "minimum", "edge", "wrap", "odd")))
    if mode == "constant" and draw(st.booleans()):
        return width, {"mode": mode, "constant_values": draw(st.sampled_from((3, (1, 2))))}
    if mode == "linear_ramp" and draw(st.booleans()):
        return width, {"mode": mode, "end_values": draw(st.sampled_from((3, (1, 2))))}
    if mode in ("mean", "maximum", "minimum") and draw(st.booleans()):
        return width, {"mode": mode, "stat_length": draw(st.sampled_from((1, (2, 3))))}
    if mode == "odd":
        return width, {"mode": "reflect", "reflect_type": "odd"}
    return width, {"mode": mode}


@settings(max_examples=70, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_padded(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    mode: Any
    x = data.draw(arrays(SHAPES))
    width, keywords = data.draw(_padding(x.ndim))
    mode = keywords["mode"]
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        x = np.nan_to_num(x.astype(np.float64), posinf=1.0, neginf=2.0) % 100
        if data.draw(st.booleans()):
            x = x.astype(np.int64)
    if mode == "empty":
        assert np.pad(sessions[servers].array(x), width, "empty").shape == np.pad(x, width).shape
        return
    near = 64 if mode in ("mean", "linear_ramp") else 0
    odd = "reflect_type" in keywords
    if x.dtype == bool and odd:
        x = x.astype(np.int8)
    if odd and np.max(width) > min(x.shape) - 1:
        return
    assert_alike(sessions[servers], lambda a: np.pad(a, width, **keywords), x, ulps=near)


@pytest.mark.parametrize("servers", [2, 3])
def test_what_it_costs(sessions: dict[int, dv.Session], servers: int) -> None:
    ps = sessions[servers]
    x = ps.array(np.arange(30_000.0))

    def messages(array: Any) -> int:
        ps.counters.reset()
        array.persist()
        return ps.counters.messages

    assert messages(np.pad(x, 3)) == 1
    assert messages(np.pad(x, 1, "edge") * 2) == 1
    assert messages(np.pad(x, 3, "reflect")) == 1
    assert messages(np.pad(x, 3, "wrap")) == 1
    assert messages(np.pad(x, 9, "edge")) == 2
    assert messages(np.tile(x, 3)) == 1
    assert messages(np.repeat(x, 3)) == 2
    assert ps.counters.peer_bytes <= servers * 8 * 3 * 1024, "the borders"


def test_refused(ps: dv.Session) -> None:
    x = ps.array(np.arange(5.0))
    with pytest.raises(NotImplementedError, match="a function as mode"):
        np.pad(x, 1, lambda *_: None)
    with pytest.raises(ValueError, match="unsupported keyword"):
        np.pad(x, 1, "edge", constant_values=3)
    with pytest.raises(NotImplementedError, match="pad in several steps"):
        np.pad(x, 9, "reflect", reflect_type="odd")
    with pytest.raises(NotImplementedError, match="at most 2 axes"):
        np.tile(x, (2, 2, 2))
