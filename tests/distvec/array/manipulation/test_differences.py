"""Differences, slopes, areas and convolutions: as NumPy's, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from distvec.testing import assert_plan
from tests.distvec.alike import SHAPES, arrays, assert_alike
from tests.distvec.conftest import SERVER_COUNTS

ENDS = st.sampled_from((None, 0, 1.5, "rows"))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_diff(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    x = data.draw(arrays(SHAPES))
    n, axis = data.draw(st.integers(0, 3)), data.draw(st.sampled_from((0, -1)))
    keywords: dict[str, Any] = {}
    for name in ("prepend", "append"):
        end = data.draw(ENDS)
        if end is not None:
            keywords[name] = (
                np.ones_like(x[:1] if axis == 0 else x[..., :1]) if end == "rows" else end
            )
    if x.dtype == np.bool_ and keywords:
        x = x.astype(np.int8)
    if axis == -1 and x.ndim == 2:
        n = min(n, x.shape[1] - 1)
    assert_alike(sessions[servers], lambda a: np.diff(a, n, axis, **keywords), x)
    if not keywords and x.dtype != np.bool_:
        assert_alike(sessions[servers], lambda a: np.ediff1d(a, to_begin=[1, 2]), x)


def _places(length: int, kind: str) -> Any:
    steps = np.resize([1.0, 0.5, 2.0, 0.25], length)
    return {"even": np.arange(length) * 0.5, "uneven": np.cumsum(steps), "one": 0.25}[kind]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_gradient(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    dtype = data.draw(st.sampled_from(("float64", "int64", "float32")))
    x = data.draw(arrays(((1,), (2,), (3,), (1025,), (5, 3), (1030, 4)), dtype))
    x = np.nan_to_num(x, posinf=1.0, neginf=2.0) % 1000 if x.dtype.kind == "f" else x % 1000
    axis = data.draw(st.sampled_from((None, 0, -1, (0,))))
    order = data.draw(st.sampled_from((1, 2)))
    kind = data.draw(st.sampled_from((None, "one", "even", "uneven")))
    axes = range(x.ndim) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
    spacings = [] if kind is None or len(x) == 1 else [_places(x.shape[k], kind) for k in axes]
    function = lambda a: np.gradient(a, *spacings, axis=axis, edge_order=order)  # noqa: E731
    assert_alike(sessions[servers], function, x)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_convolve(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    length = data.draw(st.sampled_from((1, 5, 1025, 3000)))
    count = data.draw(st.sampled_from((1, 2, 3, 8, 11, 40)))
    mode = data.draw(st.sampled_from(("full", "same", "valid", None)))
    kernel = data.draw(st.sampled_from((np.arange(count) - 1, np.ones(count, np.float32))))
    function = data.draw(st.sampled_from((np.convolve, np.correlate)))
    keywords = {} if mode is None else {"mode": mode}
    x = np.resize(np.arange(17) % 5 - 1, length)
    ps = sessions[servers]  # exact, but for the signs of zeros
    assert_alike(ps, lambda a: function(a, kernel, **keywords), x, ulps=1)
    assert_alike(
        ps, lambda a: function(1 + a * a, kernel, **keywords), x.astype(np.float64), ulps=1
    )
    assert_alike(ps, lambda a: function(kernel, a, **keywords), x.astype(np.float32), ulps=1)
    assert_alike(ps, lambda a, v: function(a, v, **keywords), x, kernel, ulps=1)


OTHERS: dict[str, Callable[[Any], Any]] = {
    "area": np.trapezoid,
    "area by distance": lambda a: np.trapezoid(a, dx=0.5),
    "area of columns": lambda a: np.trapezoid(a, axis=0),
    "area at places": lambda a: np.trapezoid(a, _places(len(a), "uneven"), axis=0),
    "area over places": lambda a: np.trapezoid(a[:, 1], a[:, 0]),
    "ends": lambda a: np.ediff1d(a, to_begin=a[0, 0], to_end=[3, 4]),
    "unwrap": lambda a: np.unwrap(a * 3, axis=1),
    "unwrap down": lambda a: np.unwrap(a[:, 0] * 3),
    "unwrap degrees": lambda a: np.unwrap(a * 90, discont=200.0, axis=0, period=360),
    "slopes over places": lambda a: np.gradient(a[:, 0] + 1, a[:, 1].cumsum() + 1, edge_order=2),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("servers", SERVER_COUNTS)
def test_others(sessions: dict[int, dv.Session], servers: int, name: str) -> None:
    x = np.random.default_rng(0).uniform(0.5, 4.0, (2050, 3))
    expected = OTHERS[name](x)
    found = OTHERS[name](sessions[servers].array(x))
    assert (found.shape, found.dtype) == (np.shape(expected), expected.dtype)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("servers", [2, 3])
def test_what_they_cost(sessions: dict[int, dv.Session], servers: int) -> None:
    ps = sessions[servers]
    x = ps.array(np.random.default_rng(0).standard_normal(30_000))

    def cost(array: Any) -> tuple[int, int]:
        ps.counters.reset()
        array.persist()
        return ps.counters.messages, ps.counters.peer_bytes

    borders = servers - 1
    assert cost(np.gradient(2 * x)) == (1, borders * 16)
    assert cost(np.convolve(x, [1.0, 2.0, 1.0], "same")) == (1, borders * 16)
    assert cost(np.convolve(2 * x, [1.0, 2.0, 1.0], "same")) == (1, borders * 16)
    assert cost(np.diff(x, prepend=0.0))[0] == 1
    assert_plan(np.trapezoid(x * x), messages=1, sweeps=1, vectors_read=1, vectors_written=0)
    assert_plan(np.convolve(x, np.ones(100), "same"), messages=1, sweeps=1, vectors_read=1)
    assert_plan(np.correlate(x + 1, np.ones(100)), messages=1, sweeps=1, vectors_read=1)
    assert_plan(np.gradient(x, edge_order=2), messages=1, sweeps=1, vectors_read=1)


def test_refused(ps: dv.Session) -> None:
    x = ps.zeros(5000)
    with pytest.raises(NotImplementedError, match="the kernel has 5000 elements"):
        np.convolve(x, x)
    with pytest.raises(ValueError, match="take vectors"):
        np.convolve(ps.zeros((3, 2)), [1.0])
    with pytest.raises(ValueError, match="cannot be empty"):
        np.convolve(x, [])
