"""Statistics of tables along each axis: NumPy is the oracle, and cost is counted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from tests.distvec.conftest import SERVER_COUNTS
from tests.distvec.oracle import outcome, vectors

Call = Callable[..., Any]

# Of a table, and what names an axis.
ALONG: dict[str, Call] = {
    "var": np.var,
    "var where": lambda x, **axis: np.var(x, where=x > 0, ddof=1, **axis),
    "std": lambda x, **axis: np.std(x, correction=1, **axis),
    "ptp": np.ptp,
    "average": np.average,
    "average weights": lambda x, **axis: np.average(x, weights=x * x + 1, **axis),
    "sum where": lambda x, **axis: np.sum(x, where=x > 0, initial=2.5, **axis),
    "max where": lambda x, **axis: np.max(x, where=x > 0, initial=-2, **axis),
    "mean where": lambda x, **axis: np.mean(x, where=x < 5, dtype=np.float32, **axis),
    "any where": lambda x, **axis: np.any(x, where=x < 0, **axis),
    "nansum": np.nansum,
    "nanmean": np.nanmean,
    "nanvar": np.nanvar,
    "nanstd": lambda x, **axis: np.nanstd(x, ddof=2, **axis),
    "nanmin": np.nanmin,
    "nanmax": lambda x, **axis: np.nanmax(x, initial=1, **axis),
    "nanargmin": np.nanargmin,
}
SHAPES = ((0, 3), (1, 1), (2, 5), (1023, 1), (1025, 3), (3000, 2))


def tables(shape: tuple[int, int], dtype: str) -> st.SearchStrategy[Any]:
    """Tables of ``shape``, some with a column, a row or single elements that are NaN."""

    def missing(values: np.ndarray, where: Any) -> np.ndarray:
        table = values.reshape(shape).copy()
        if table.dtype.kind == "f" and table.size:
            table[where] = np.nan
        return table

    values = vectors(shape[0] * shape[1], dtype, special=False, scale=50)
    places = st.sampled_from((slice(0), (0, 0), 0, (slice(None), 0), slice(None, None, 2)))
    return st.builds(missing, values, places)


@settings(max_examples=10)
@pytest.mark.parametrize("call", ALONG.values(), ids=ALONG)
@given(
    data=st.data(),
    count=st.sampled_from(SERVER_COUNTS),
    axis=st.sampled_from((None, 0, 1, -1)),
    keepdims=st.booleans(),
    is_transposed=st.booleans(),
)
def test_along_an_axis(
    sessions: dict[int, dv.Session], call: Call, data: st.DataObject, count: int, axis: Any,
    keepdims: bool, is_transposed: bool,
) -> None:  # fmt: skip
    shape, dtype = data.draw(st.sampled_from(SHAPES)), data.draw(st.sampled_from(("f8", "i8")))
    host = data.draw(tables(shape, np.dtype(dtype).name))
    x = sessions[count].array(host)
    host, x = (host.T, x.T) if is_transposed else (host, x)

    def reduced(x: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return call(x, axis=axis, keepdims=keepdims)

    theirs, their_error = outcome(reduced, host)
    ours, error = outcome(reduced, x)
    if their_error is ZeroDivisionError and not host.size:
        return  # NumPy's average divides by the number of results
    assert (error is None) == (their_error is None)
    if error is None:
        got, expected = ours.numpy(), np.asarray(theirs)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        tolerance = 1e-4 if got.dtype == np.float32 else 1e-9
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_the_place_in_a_whole_transpose_is_that_of_its_rows(ps: dv.Session) -> None:
    host = np.array([[1.0, 5.0, 0.0], [7.0, 0.0, 7.0], [2.0, np.nan, 3.0]])
    for values in (host, host[:2], np.full((3, 2), np.inf), host[:2].astype(bool)):
        table = ps.array(values)
        for function in (np.argmin, np.argmax, np.nanargmin, np.nanargmax):
            assert int(function(table.T)) == function(values.T)
    assert np.argmax(table.T, keepdims=True).shape == (1, 1)
    np.testing.assert_allclose(np.vecdot(table.T, 2 * table.T), np.vecdot(values.T, 2 * values.T))


# Of a table with many rows, one with few, and two vectors as long as the many.
COVARIANCES: dict[str, Call] = {
    "vector": lambda t, s, x, y: np.cov(x),
    "two vectors": lambda t, s, x, y: np.cov(x, y, bias=True),
    "columns": lambda t, s, x, y: np.cov(t, rowvar=False),
    "transpose": lambda t, s, x, y: np.cov(t.T, ddof=0),
    "columns and a vector": lambda t, s, x, y: np.cov(t, x, rowvar=False),
    "a vector and columns": lambda t, s, x, y: np.cov(x, t.T),
    "columns of two": lambda t, s, x, y: np.cov(t.T, (2 * t + 1).T),
    "rows": lambda t, s, x, y: np.cov(s),
    "a product": lambda t, s, x, y: np.cov(t.T @ t),
    "dtype": lambda t, s, x, y: np.cov(x.astype(np.float32), dtype=np.float64),
    "correlation of a vector": lambda t, s, x, y: np.corrcoef(x),
    "correlation of vectors": lambda t, s, x, y: np.corrcoef(x, y),
    "correlation of columns": lambda t, s, x, y: np.corrcoef(t, rowvar=False),
    "correlation of rows": lambda t, s, x, y: np.corrcoef(s),
    "correlation of a column that is constant": lambda t, s, x, y: np.corrcoef(0 * x, y),
}


@pytest.mark.parametrize("call", COVARIANCES.values(), ids=COVARIANCES)
@pytest.mark.parametrize("count", SERVER_COUNTS)
def test_covariance(sessions: dict[int, dv.Session], call: Call, count: int) -> None:
    rng = np.random.default_rng(count)
    host = [rng.standard_normal(shape) + 3 for shape in ((2500, 4), (6, 5), 2500, 2500)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = call(*host)
    got = call(*map(sessions[count].array, host))
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_covariance_of_a_selection(ps: dv.Session) -> None:
    host = np.random.default_rng(0).standard_normal((2, 3000))
    x, y = map(ps.array, host)
    few = host[0] > 0.5
    np.testing.assert_allclose(
        np.cov(x[x > 0.5], y[x > 0.5]).numpy(), np.cov(host[0][few], host[1][few]), rtol=1e-10
    )


def test_what_covariance_refuses(ps: dv.Session) -> None:
    x, rows = ps.array(np.arange(4.0)), ps.array(np.arange(12.0).reshape(3, 4))
    with pytest.raises(ValueError, match="aweights cannot be negative"):
        np.cov(x, aweights=x - x.max() - 1)
    with pytest.raises(TypeError, match="fweights must be integer"):
        np.cov(x, fweights=x * 0 + 0.5)
    with pytest.raises(RuntimeError, match="incompatible numbers of samples"):
        np.cov(x, fweights=[1, 2])
    with pytest.raises(NotImplementedError, match="join their columns first"):
        np.cov(x, x, aweights=x * 0 + 1)
    with pytest.raises(NotImplementedError, match="rowvar=False"):
        np.cov(rows, x)
    with pytest.raises(ValueError, match="ddof must be integer"):
        np.cov(x, ddof=0.5)
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        np.cov(ps.ones(1))


@pytest.mark.parametrize(
    ("call", "cost"),
    {
        "var of columns": (lambda t: np.var(t, axis=0), (2, 2, 2, 0)),
        "var of rows": (lambda t: np.var(t, axis=1), (1, 1, 1, 1)),
        "nanmean of columns": (lambda t: np.nanmean(t, axis=0), (1, 1, 1, 0)),
        "cov": (lambda t: np.cov(t, rowvar=False), (2, 2, 2, 0)),
        "corrcoef": (lambda t: np.corrcoef(t.T), (2, 2, 2, 0)),
        "standardised": (lambda t: (t - t.mean(0)) / t.std(0), (3, 3, 3, 1)),
    }.values(),
)
def test_cost(ps: dv.Session, call: Call, cost: tuple[int, ...]) -> None:
    table = ps.array(np.random.default_rng(0).standard_normal((3000, 4)))
    ps.counters.reset()
    result = call(table)
    assert ps.counters.messages == 0
    result.persist()
    counted = ps.counters.snapshot()
    names = ("messages", "sweeps", "vectors_read", "vectors_written")
    assert tuple(counted[name] for name in names) == cost


@pytest.mark.parametrize(
    "function", [np.add, np.subtract, np.maximum, np.greater, np.hypot, np.float_power]
)
def test_outer(ps: dv.Session, function: np.ufunc) -> None:
    a, b = np.arange(1, 2001) / 7, np.array([1.0, 2.5, 3.0])
    expected = function.outer(a, b)
    x = ps.array(a)
    for second in (ps.array(b), b, ps.array(b[:1])):
        got = function.outer(x, second).numpy()
        np.testing.assert_array_equal(got, expected[:, : got.shape[1]])
    np.testing.assert_array_equal(function.outer(ps.array(b), x), function.outer(b, a))
    np.testing.assert_array_equal(function.outer(x, 2.0).numpy(), function.outer(a, 2.0))
    with pytest.raises(NotImplementedError, match="use vectors"):
        function.outer(function.outer(x, b), x)


def test_what_stands_beside_a_table(ps: dv.Session) -> None:
    host, weights = np.arange(12.0).reshape(4, 3), np.array([1.0, 2.0, 4.0])
    table, row = ps.array(host), weights > 1
    column = (table.sum(1) > 3).reshape(-1, 1)
    for where, mine in ((row, row), (row, ps.array(row)), (column.numpy(), column)):
        np.testing.assert_array_equal(table.sum(0, where=mine), host.sum(0, where=where))
    ours = np.average(table, 1, weights, returned=True)
    for got, expected in zip(ours, np.average(host, 1, weights, returned=True), strict=True):
        np.testing.assert_allclose(got.numpy(), expected)
    np.testing.assert_allclose(np.average(table, 0, ps.array(host[:, 1])), host.T @ host[:, 1] / 22)
    with pytest.raises(ValueError, match="Shape of weights"):
        np.average(table, 0, ps.array(weights))
    with pytest.raises(TypeError, match="Axis must be specified"):
        np.average(table, weights=ps.array(weights))


def test_reductions_of_tables_go_where_out_says(ps: dv.Session) -> None:
    host = np.arange(12.0).reshape(4, 3)
    table, rows, kept = ps.array(host), ps.zeros(4), ps.zeros((4, 1), np.int64)
    assert np.sum(table, axis=1, out=rows) is rows
    assert np.max(table, axis=1, keepdims=True, out=kept) is kept
    np.testing.assert_array_equal(rows.numpy(), host.sum(1))
    np.testing.assert_array_equal(kept.numpy(), host.max(1, keepdims=True))
    np.testing.assert_array_equal(np.add.reduce(table).numpy(), np.add.reduce(host))
    with pytest.raises(ValueError, match="wrong shape"):
        np.sum(table, axis=0, out=rows)


def test_comparisons_of_tables(ps: dv.Session) -> None:
    host = np.arange(12.0).reshape(4, 3)
    table = ps.array(host)
    assert np.array_equal(table, table + 0) and np.array_equal(table.T, table.T + 0)
    assert not np.array_equal(table, table.T) and not np.array_equal(table, ps.zeros(4))
    assert np.allclose(table, host[0]) is False and np.allclose(0 * table + host[0], host[0])
    assert np.array_equiv(ps.ones((4, 1)), ps.ones((4, 2)))
    assert not np.array_equiv(table, ps.ones((4, 2)))
    np.testing.assert_array_equal(np.isclose(table.T, 3.0).numpy(), np.isclose(host.T, 3.0))
    np.testing.assert_array_equal(np.isin(table.T, [3, 5]).numpy(), np.isin(host.T, [3, 5]))


@pytest.mark.parametrize("ddof", [None, 0, 2])
@pytest.mark.parametrize("names", [["fweights"], ["aweights"], ["fweights", "aweights"]])
def test_covariances_of_weighted_observations(
    ps: dv.Session, names: list[str], ddof: int | None
) -> None:
    rng = np.random.default_rng(4)
    x = rng.random((40, 3))
    known = {"fweights": rng.integers(1, 4, 40), "aweights": rng.random(40)}
    weights = {name: known[name] for name in names}
    there = {name: ps.array(value) for name, value in weights.items()}
    for host, ours, rowvar in (
        (x[:, 0], ps.array(x[:, 0]), True),
        (x, ps.array(x), False),
        (x.T, ps.array(x.T), True),
        (x.T, ps.array(x).T, True),
    ):
        expected = np.cov(host, rowvar=rowvar, ddof=ddof, **weights)
        for kind in (weights, there):
            found = np.cov(ours, rowvar=rowvar, ddof=ddof, **kind)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
