"""NumPy's smaller functions, each composed of others: as NumPy's, on 1, 2, 3 and 7 servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from distvec.testing import assert_close
from tests.distvec.alike import arrays, assert_alike
from tests.distvec.conftest import SERVER_COUNTS

VECTORS = ((0,), (1,), (5,), (1025,), (3000,))
TABLES = ((1, 1), (5, 3), (3, 5), (1030, 3))
COUNTS = st.sampled_from(SERVER_COUNTS)
Function = Callable[[Any], Any]

# Of a vector or a table of any dtype.
OF_EITHER: dict[str, Function] = {
    "argwhere": np.argwhere,
    "nonzero": np.nonzero,
    "extract": lambda x: np.extract(x > 0, x),
    "compress": lambda x: np.compress([True, False], x[:2], axis=0),
    "compress all": lambda x: np.compress([False, True, True], x),
    "choose": lambda x: np.choose((x > 0).astype(np.int64) + (x > 1), [x, 3, -1.5]),
    "choose wraps": lambda x: np.choose((x > 0) * 7, [x, x * 2, x - x], mode="wrap"),
    "choose of too few": lambda x: np.choose((x > 0) * 2, [x, x]),
    "packbits": lambda x: np.packbits(x > 0),
    "packbits little": lambda x: np.packbits(x.astype(np.int64), bitorder="little"),
    "unpackbits": lambda x: np.unpackbits((x > 0).astype(np.uint8) * np.uint8(77)),
    "unpackbits some": lambda x: np.unpackbits((x > 0).astype(np.uint8), count=-3),
    "unpackbits more": lambda x: np.unpackbits(
        (x > 0).astype(np.uint8), count=8 * x.size + 1 if x.size else 0
    ),
    "round to tens": lambda x: np.round(x, -1),
    "conjugates": lambda x: x.conj() + x.conjugate(),
    "size": lambda x: np.size(x, 0),
    "size of both": lambda x: np.size(x, (0, 1)),
    "flat": lambda x: x.flat[2:9],
    "flat at": lambda x: x.flat[[0, -1]],
    "sum over axes": lambda x: np.apply_over_axes(np.sum, x, [0]),
    "unravel": lambda x: np.unravel_index((x > 0) * 5, (2, 3)),
    "unravel too far": lambda x: np.unravel_index((x > 0) * 6, (2, 3)),
    "ravel_multi_index": lambda x: np.ravel_multi_index(((x > 0) * 1, (x > 1) * 2), (2, 3)),
    "clipped": lambda x: np.ravel_multi_index(((x > 0) * 9,), (4,), mode="clip"),
    "of Fortran": lambda x: np.ravel_multi_index(((x > 0) * 1, (x > 1) * 2), (2, 3), order="F"),
    "common type": lambda x: np.zeros(1, np.common_type(x, x)),
    "by NumPy's names": lambda x: [np.mean(a=x > 0), np.sum(a=x > 0, axis=0), np.size(a=x)],
    "reshaped by columns": lambda x: np.reshape(x, (-1, 1), order="F"),
    "ravelled by columns": lambda x: x.ravel(order="F"),
    "flattened by columns": lambda x: np.ravel(x, "F"),
    "reshaped by no order": lambda x: np.reshape(x, (-1, 1), order="X"),
    "can cast": lambda x: [np.can_cast(x.dtype, one) for one in ("float64", "int8")],
    "text": lambda x: len(np.array2string(x)) + len(np.array_str(x, precision=3)),
}

OF_VECTORS: dict[str, Function] = {
    "diag": lambda x: np.diag(x[:9]),
    "diag above": lambda x: np.diag(x[:9], 2),
    "diag below": lambda x: np.diag(x[:9], -1),
    "diagflat": lambda x: np.diagflat(x[:4], 1),
    "vander": lambda x: np.vander(x, 3),
    "vander of one column": lambda x: np.vander(x, 1),
    "vander increasing": lambda x: np.vander(x, 4, increasing=True),
    "take along": lambda x: np.take_along_axis(x, np.arange(len(x))[::-1], axis=0),
    "kron": lambda x: np.kron(x[:30], x[1:4]),
    "kron beside NumPy's": lambda x: np.kron(np.array([2, 3]), x[:5]),
    "kron of nothing": lambda x: np.kron(x[:0], np.array([2, 3])),
    "item": lambda x: np.array(x.item(0)),
}

OF_TABLES: dict[str, Function] = {
    "tril": np.tril,
    "tril above": lambda t: np.tril(t, 1),
    "triu": np.triu,
    "triu below": lambda t: np.triu(t, -2),
    "diagonal": lambda t: np.diagonal(t),
    "diagonal above": lambda t: np.diagonal(t, 2),
    "diagonal below": lambda t: np.diagonal(t, -3),
    "diag of axes": lambda t: np.diagonal(t, 1, 1, 0),
    "trace": lambda t: np.trace(t.astype(np.int64), 1),
    "linalg trace": lambda t: np.linalg.trace((t > 0) * 1),
    "indices of the triangle": lambda t: np.tril_indices_from(t[:5], 1),
    "largest of each row": lambda t: np.take_along_axis(
        t, np.argmax(t, axis=1, keepdims=True), axis=1
    ),
    "ranks of rows": lambda t: np.take_along_axis(t, np.argsort(t, axis=1)[:, ::-1], axis=1),
    "none there": lambda t: np.take_along_axis(t, np.argsort(t, axis=1) + 7, axis=1).copy(),
    "of NumPy's": lambda t: np.take_along_axis(
        np.arange(float(t.size)).reshape(t.shape), np.argsort(t, axis=1), axis=1
    ),
    "columns taken along": lambda t: np.take_along_axis(t, (t > 0) * 1 - 1, axis=0),
    "flat item": lambda t: np.array(t.item(t.size - 1)),
    "item of two": lambda t: np.array(t.item(0, -1)),
    "kron": lambda t: np.kron(t[:3], t[:2]),
    "kron beside NumPy's": lambda t: np.kron(t, np.array([[1, 2], [3, 4]])),
    "kron of NumPy's": lambda t: np.kron(np.array([1, 2]), t),
    "into other columns": lambda t: np.reshape(np.vstack([t, t]), (2, -1), order="F"),
    "by columns into more": lambda t: t.reshape(-1, 1, order="F"),
    "of few": lambda t: np.dot(a=t[:2].T * 1, b=t[:2] * 1)[:1],
    "cross": lambda t: np.cross(t[:, :3] * 1, np.array([0, 0, 2])),
    "cross of rows": lambda t: np.cross(t[0] * 1, t[-1] * 1),
    "chain": lambda t: np.linalg.multi_dot([(t > 0) * 1, (t[:2].T > 0) * 1, np.ones((2, 3), int)]),
    "compress columns": lambda t: np.compress([True], t, axis=1),
}


def run(session: dv.Session, function: Function, x: Any) -> None:
    assert_alike(session, lambda one: _evaluated(function(one)), x)


def _evaluated(found: Any) -> Any:
    """What has come out, so that a refusal that is found on the servers shows."""
    several = found if isinstance(found, list | tuple) else (found,)
    return [one.numpy() if hasattr(one, "numpy") else np.asarray(one) for one in several]


@settings(max_examples=60)
@given(data=st.data(), count=COUNTS, name=st.sampled_from(sorted(OF_EITHER)))
def test_of_either(sessions: dict[int, dv.Session], data: Any, count: int, name: str) -> None:
    run(sessions[count], OF_EITHER[name], data.draw(arrays(VECTORS + TABLES)))


@settings(max_examples=30)
@given(data=st.data(), count=COUNTS, name=st.sampled_from(sorted(OF_VECTORS)))
def test_of_vectors(sessions: dict[int, dv.Session], data: Any, count: int, name: str) -> None:
    run(sessions[count], OF_VECTORS[name], data.draw(arrays(VECTORS[1:])))


@settings(max_examples=60)
@given(data=st.data(), count=COUNTS, name=st.sampled_from(sorted(OF_TABLES)))
def test_of_tables(sessions: dict[int, dv.Session], data: Any, count: int, name: str) -> None:
    run(sessions[count], OF_TABLES[name], data.draw(arrays(TABLES)))


@pytest.mark.parametrize("name", [*OF_EITHER, *OF_TABLES])
def test_each_of_a_table(ps: dv.Session, name: str) -> None:
    table = np.arange(-6.0, 9.0).reshape(5, 3)
    run(ps, (OF_EITHER | OF_TABLES)[name], table)


@pytest.mark.parametrize("name", [*OF_EITHER, *OF_VECTORS])
def test_each_of_a_vector(ps: dv.Session, name: str) -> None:
    run(ps, (OF_EITHER | OF_VECTORS)[name], np.arange(-3.0, 9.0))


# --- in place -------------------------------------------------------------------------------------


def _fill(t: Any) -> Any:
    np.fill_diagonal(t, 7)
    return t


def _fill_wrapping(t: Any) -> Any:
    np.fill_diagonal(t, -1, wrap=True)
    return t


def _put_rows(t: Any) -> Any:
    np.put_along_axis(t, np.argmin(t, axis=1, keepdims=True), 9, axis=1)
    return t


def _put_row_of_numbers(t: Any) -> Any:
    np.put_along_axis(t, np.argsort(t, axis=1)[:, :2], np.array([[7.0, 8.0]]), axis=1)
    return t


def _put_columns(t: Any) -> Any:
    np.put_along_axis(t, np.argmax(t, axis=0, keepdims=True), 9, axis=0)
    return t


def _put_anywhere(t: Any) -> Any:
    np.put_along_axis(t, np.array([0, 4]), [7, 8], axis=None)
    return t


def _put_flat(t: Any) -> Any:
    np.put(t, [0, -1], [5, 6])
    return t


def _set_flat(t: Any) -> Any:
    t.flat[1:3] = 4
    return t


IN_PLACE = (
    _fill,
    _fill_wrapping,
    _put_rows,
    _put_row_of_numbers,
    _put_columns,
    _put_anywhere,
    _put_flat,
    _set_flat,
)


@pytest.mark.parametrize("function", IN_PLACE, ids=lambda function: function.__name__)
@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (1030, 3)])
def test_in_place(
    sessions: dict[int, dv.Session], function: Function, shape: tuple[int, int]
) -> None:
    table = np.arange(float(shape[0] * shape[1])).reshape(shape)
    for count in (1, 3):
        assert_alike(sessions[count], lambda one: function(one.copy()), table)


# --- made beside others ---------------------------------------------------------------------------

MADE: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: np.zeros((5, 2), "int8", like=x),
    "ones": lambda x: np.ones(1030, like=x),
    "full": lambda x: np.full((3, 2), 2.5, like=x),
    "arange": lambda x: np.arange(1030, like=x),
    "arange of three": lambda x: np.arange(1.0, 3.0, 0.25, like=x),
    "eye": lambda x: np.eye(4, 3, 1, like=x),
    "identity": lambda x: np.identity(3, like=x),
    "tri": lambda x: np.tri(5, 3, -1, like=x),
    "array": lambda x: np.array([1, 2, 3], like=x),
    "array of two axes": lambda x: np.array([1.0, 2.0], ndmin=2, like=x),
    "asarray": lambda x: np.asarray(x, "float32", like=x),
    "require": lambda x: np.require([1.0, 2.0], "float32", like=x),
    "fromfunction": lambda x: np.fromfunction(lambda i: i * 2, (7,), dtype=int, like=x),
    "fromfunction of two": lambda x: np.fromfunction(lambda i, j: 3 * i + j, (7, 2), like=x),
    "fromiter": lambda x: np.fromiter((k * k for k in range(5)), int, like=x),
    "frombuffer": lambda x: np.frombuffer(b"abcdefgh", "uint8", like=x),
    "loadtxt": lambda x: np.loadtxt(["1 2", "3 4"], like=x),
    "linspace": lambda x: np.linspace(x.min(), x.max(), 7),
    "linspace without the end": lambda x: np.linspace(x.min(), 3, 6, endpoint=False),
    "linspace with the step": lambda x: np.linspace(x.min(), x.max(), 5, retstep=True),
    "linspace of one": lambda x: np.linspace(x.min(), x.max(), 1),
    "linspace of integers": lambda x: np.linspace(x.min(), 7, 5, dtype="int64"),
    "linspace of nothing": lambda x: np.linspace(x.min(), x.min(), 4),
}


@pytest.mark.parametrize("name", MADE)
def test_made(ps: dv.Session, name: str) -> None:
    found = assert_alike(ps, MADE[name], np.array([0.5, 4.0, 2.0]))
    assert all(
        isinstance(one, dv.DistArray) for one in (found if isinstance(found, tuple) else (found,))
    )


@pytest.mark.parametrize("function", [np.logspace, np.geomspace])
def test_spaced_by_factors(ps: dv.Session, function: Callable[..., Any]) -> None:
    low, high = np.array([0.5, 2.0])
    ours = function(ps.array(low), ps.array(high), 9)
    np.testing.assert_allclose(ours.numpy(), function(low, high, 9), rtol=1e-14)
    ours = function(ps.array(low), 3, 5, endpoint=False)
    np.testing.assert_allclose(ours.numpy(), function(low, 3, 5, endpoint=False), rtol=1e-14)
    ours = getattr(ps, function.__name__)(1, 3, 7, dtype="float32")
    assert_close(ours.numpy(), function(1, 3, 7, dtype="float32"), ulps=1)


def test_what_is_made_costs_nothing_until_it_is_used(ps: dv.Session) -> None:
    x = ps.ones(3000)
    before = ps.counters.messages
    y = np.arange(3000, like=x) + np.zeros(3000, like=x) + np.linspace(0.0, x.sum(), 3000)
    assert ps.counters.messages == before
    assert float(y.sum()) == pytest.approx(2 * np.arange(3000).sum() + 3000 * 0.5 * 3000, rel=1)


# --- what an array says of itself -----------------------------------------------------------------


def test_what_it_says_of_itself(ps: dv.Session) -> None:
    x = ps.ones(3000)
    before = ps.counters.messages
    assert np.iterable(x) and not np.isscalar(x) and x.itemsize == 8
    assert np.shares_memory(x, x) and not np.may_share_memory(x, x.copy())
    assert np.einsum_path("ij,j->i", ps.ones((9, 3)), np.ones(3))[0] == ["einsum_path", (0, 1)]
    assert ps.counters.messages == before and ps.implicit_transfers == 0
    with pytest.raises(AttributeError, match=r"x\.astype\(dtype\)"):
        x.view("int64")
    with pytest.raises(TypeError, match="leave out casting="):
        x.astype("int64", casting="safe")
    with pytest.raises(TypeError, match="write it for the whole table"):
        np.apply_along_axis(np.sum, 1, ps.ones((9, 3)))
    for function in (np.vectorize(abs), np.frompyfunc(abs, 1, 1)):
        with pytest.raises(TypeError, match="is called for each element"):
            function(x)
    with pytest.raises(TypeError, match="dates are not available on the servers"):
        np.is_busday(x)


def test_flat_is_read_and_written(ps: dv.Session) -> None:
    table = ps.array(np.arange(6.0).reshape(3, 2))
    assert len(table.flat) == 6 and list(table.flat) == [0, 1, 2, 3, 4, 5]
    table.flat[[0, 5]] = [7.0, 8.0]
    assert table.numpy().tolist() == [[7, 1], [2, 3], [4, 8]]
    table.flat = 1.0
    assert np.asarray(table.flat).tolist() == [1.0] * 6


def test_places_along_rows_move_nothing(ps: dv.Session) -> None:
    table = ps.random.normal((3000, 4), seed=1).persist()
    ps.counters.reset()
    np.take_along_axis(table, np.argsort(table, axis=1), axis=1).persist()
    counted = ps.counters.snapshot()
    assert (counted["messages"], counted["sweeps"], counted["peer_bytes"]) == (1, 1, 0)
    assert counted["bytes_received"] < 200
