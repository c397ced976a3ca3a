"""Elements taken out and put in, diagonals, grids: as NumPy's, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from tests.distvec.alike import arrays, assert_alike
from tests.distvec.conftest import SERVER_COUNTS

SHAPES = ((1,), (5,), (1025,), (3000,), (5, 3), (1030, 3))
AXES = st.sampled_from((None, 0, 1, -1))


@st.composite
def _indices(draw: st.DrawFn, length: int) -> Any:
    """A number, a slice, some indices or a mask."""
    numbers = st.integers(-length, length - 1)
    kind = draw(st.sampled_from(("number", "slice", "few", "many", "mask")))
    if kind == "number":
        return draw(numbers)
    if kind == "slice":
        return slice(draw(numbers), draw(numbers), draw(st.sampled_from((1, 2, -1, 7))))
    if kind == "mask":
        return np.resize(draw(st.lists(st.booleans(), min_size=1, max_size=9)), length)
    few = draw(st.lists(numbers, max_size=5))
    return few if kind == "few" else np.unique(np.arange(0, length, 7) % length)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_delete(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    x, axis = data.draw(arrays(SHAPES)), data.draw(AXES)
    length = x.size if axis is None else x.shape[min(axis, x.ndim - 1)]
    obj = data.draw(_indices(length))
    if axis is not None and axis % 2 and x.ndim == 2 and np.delete(x, obj, axis).shape[1] == 0:
        return
    assert_alike(sessions[servers], lambda a: np.delete(a, obj, axis), x)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS))
def test_insert(data: st.DataObject, servers: int, sessions: dict[int, dv.Session]) -> None:
    x, axis = data.draw(arrays(SHAPES)), data.draw(AXES)
    length = x.size if axis is None else x.shape[min(axis, x.ndim - 1)]
    places = st.integers(-length, length)
    obj = data.draw(places | st.lists(places, min_size=1, max_size=4) | st.just([0, 0, length]))
    count = len(obj) if isinstance(obj, list) and len(obj) > 1 else 2
    row = x.shape[1:] if axis == 0 else ()
    values = data.draw(st.sampled_from((0, 1.5, "some", "rows")))
    if values == "some":
        values = np.arange(count)
    elif values == "rows":
        values = np.ones((count, *row), np.float32)
    assert_alike(sessions[servers], lambda a: np.insert(a, obj, values, axis), x)


FUNCTIONS: dict[str, Callable[[Any, int], Any]] = {
    "tril": np.tril,
    "triu": np.triu,
    "diag": np.diag,
    "diagonal": np.diagonal,
    "trace": lambda a, k: np.trace(np.sign(np.nan_to_num(a)), k),
    "diagflat of few": lambda a, k: np.diagflat(a[:4, :1], k),
    "atleast": lambda a, k: [*np.atleast_1d(a, a[0, 0]), *np.atleast_2d(a, a[:, 0])],
    "cross": lambda a, k: np.cross(a[:, :3], a[:, ::-1][:, :3]),
    "cross with one": lambda a, k: np.cross(a, [1.0, 2.0, k]),
    "trim": lambda a, k: np.trim_zeros(a[:, 0]),
    "trim front": lambda a, k: np.trim_zeros(a[:, 0], "f"),
    "vander": lambda a, k: np.vander(a[:, 0] % 3, abs(k) + 1, increasing=k > 1),
    "kron columns": lambda a, k: np.kron(a, np.arange(2.0)[:, None]),
    "kron table": lambda a, k: np.kron(a, [[1, 2], [3, k]]),
    "kron of few": lambda a, k: np.kron(np.arange(3) + k, a[:, 0]),
    "kron by few": lambda a, k: np.kron(a[:, 0], np.arange(3) + k),
    "meshgrid": lambda a, k: np.meshgrid(np.arange(3) + k, a[:, 0]),
    "meshgrid ij": lambda a, k: np.meshgrid(a[:, 0], [2.0, k], indexing="ij"),
    "meshgrid sparse": lambda a, k: np.meshgrid(np.arange(3), a[:, 0], sparse=True),
    "outer": lambda a, k: np.outer(np.arange(3) + k, a[:, 0]),
    "multiply.outer": lambda a, k: np.multiply.outer(np.arange(3) + k, a[:, 0]),
    "subtract.outer": lambda a, k: np.subtract.outer(a[:, 0] * 1, np.arange(3) + k),
    "unstack": lambda a, k: np.unstack(a, axis=1),
    "array_split": lambda a, k: np.array_split(a, abs(k) + 1),
    "split": lambda a, k: np.split(a, [1, 4, 3, k]),
    "hsplit": lambda a, k: np.hsplit(a, [1]),
    "vsplit": lambda a, k: np.vsplit(a, [k, 2]),
}


@settings(max_examples=70, deadline=None)
@given(data=st.data(), servers=st.sampled_from(SERVER_COUNTS), name=st.sampled_from([*FUNCTIONS]))
def test_tables(
    data: st.DataObject, servers: int, name: str, sessions: dict[int, dv.Session]
) -> None:
    x = data.draw(arrays(((5, 3), (1030, 3), (1, 2), (3, 4)), dtype="float64"))
    if "cross" in name or "kron" in name or "outer" in name:
        x = np.nan_to_num(x, posinf=1.0, neginf=-1.0)
    k = data.draw(st.integers(-3, 4))
    if name in ("array_split", "split", "vsplit"):
        x = x[:, :2]
    assert_alike(sessions[servers], lambda a: FUNCTIONS[name](a, k), x)


def test_fill_diagonal(ps: dv.Session) -> None:
    for shape in ((5, 3), (3, 5), (1030, 2)):
        for wrap in (False, True):
            values = np.arange(np.prod(shape)).reshape(shape)
            ours = ps.array(values)
            np.fill_diagonal(ours, 7.5, wrap)
            np.fill_diagonal(values, 7.5, wrap)
            assert np.array_equal(ours.numpy(), values)
    np.fill_diagonal(ours, [1, 2])
    np.fill_diagonal(values, [1, 2])
    assert np.array_equal(ours.numpy(), values)


def test_what_it_costs(ps: dv.Session) -> None:
    x = ps.array(np.arange(30_000.0))

    def messages(array: Any) -> int:
        ps.counters.reset()
        array.persist()
        return ps.counters.messages

    assert messages(np.delete(x, 5) + 1) == 1
    assert ps.counters.peer_bytes <= 2 * 8
    assert messages(np.delete(x, [5, 7, 9, 10])) == 1
    assert messages(np.insert(x, 5, [1.0, 2.0])) == 1
    assert messages(np.insert(x, [5, 900], 3.0)) == 1
    assert messages(np.outer(np.arange(3), x)) == 1
    assert ps.counters.peer_bytes == 0
    x[:100] = 0
    x.persist()
    ps.counters.reset()
    assert np.trim_zeros(x).shape == (29_900,)
    assert ps.counters.messages == 1


def test_refused(ps: dv.Session) -> None:
    x = ps.zeros(5000)
    with pytest.raises(NotImplementedError, match=r"v\[:, None\] \* T"):
        np.diag(x)
    with pytest.raises(NotImplementedError, match="at most 2 are supported"):
        np.meshgrid(x, x, x)
    with pytest.raises(IndexError, match="out of bounds"):
        np.delete(x, 5000)
    with pytest.raises(IndexError, match="out of bounds"):
        np.insert(x, 5001, 0)
    with pytest.raises(NotImplementedError, match="column indices must be on the client"):
        np.delete(ps.zeros((3, 2)), ps.array([1]), axis=1)
