"""Reductions by running results, polynomials, values repeated over places: as NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv
from distvec.testing import outcome
from tests.distvec.alike import assert_alike

Function = Callable[[Any], Any]

# --- reductions by ufuncs that have none of their own ---------------------------------------------

REDUCED: dict[str, Callable[[Any], Any]] = {
    "of integers": lambda t: np.bitwise_or.reduce(t.astype(np.int64), axis=None),
    "along columns": lambda t: np.bitwise_xor.reduce(t.astype(np.int64)),
    "along rows": lambda t: np.bitwise_and.reduce(t.astype(np.uint8), axis=-1, keepdims=True),
    "with one more": lambda t: np.bitwise_or.reduce((t > 0).ravel() * 1, initial=8, keepdims=True),
    "where": lambda t: np.logical_xor.reduce(t > 0, axis=1, where=t < 5),
    "parity": lambda t: np.logical_xor.reduce(t),
    "of nothing": lambda t: np.bitwise_or.reduce(t[:0].astype(np.int64)),
    "of no axis": lambda t: np.bitwise_or.reduce(t > 0, axis=()),
}


@pytest.mark.parametrize("name", REDUCED)
def test_reduced_by_other_ufuncs(ps: dv.Session, name: str) -> None:
    assert_alike(ps, REDUCED[name], np.arange(-6.0, 9.0).reshape(5, 3))


def test_logarithms_of_sums(ps: dv.Session) -> None:
    values = np.linspace(-800.0, 700.0, 3000)
    for ufunc in (np.logaddexp, np.logaddexp2):
        assert float(ufunc.reduce(ps.array(values))) == pytest.approx(
            ufunc.reduce(values), rel=1e-14
        )


# --- polynomials, and values repeated over places -------------------------------------------------

POLYNOMIALS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda p, q: np.polyadd(p, q),
    "sum with NumPy's": lambda p, q: np.polyadd(np.arange(3.0), p),
    "difference": lambda p, q: np.polysub(q, p),
    "product": lambda p, q: np.polymul(p, q),
    "derivative": lambda p, q: np.polyder(p),
    "third derivative": lambda p, q: np.polyder(p, 3),
    "of a number": lambda p, q: np.polyder(q[:1]),
    "integral": lambda p, q: np.polyint(p),
    "second integral": lambda p, q: np.polyint(p, 2, k=[1.0, 2.0]),
    "values": lambda p, q: np.polyval(p, q),
    "values of NumPy's": lambda p, q: np.polyval([1.0, 2.0], q),
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(ps: dv.Session, name: str) -> None:
    table = np.array([[1.0, -2.0, 0.5], [3.0, 1.0, 2.0]])
    p, q = np.array([2.0, -1.0, 0.5, 3.0]), np.array([1.0, 4.0])
    assert_alike(ps, POLYNOMIALS[name], p, q)
    given = ps.array(table)
    small, of_numpy = given.T @ given, table.T @ table
    found = POLYNOMIALS[name](small[0], small[1][:2])
    np.testing.assert_allclose(found.numpy(), POLYNOMIALS[name](of_numpy[0], of_numpy[1][:2]))


def _putmask(x: Any) -> Any:
    np.putmask(x, x > 0, [7.0, 8.0, 9.0])
    return x


def _place(x: Any) -> Any:
    np.place(x, x > 0, [7.0, 8.0, 9.0])
    return x


def _place_one(x: Any) -> Any:
    np.place(x, x > 0, 4.0)
    return x


def _place_none(x: Any) -> Any:
    np.place(x, x > 0, [])
    return x


@pytest.mark.parametrize("function", [_putmask, _place, _place_one, _place_none])
@pytest.mark.parametrize("shape", [(3000,), (1030, 3), (1,)])
def test_values_repeated(sessions: dict[int, dv.Session], function: Function, shape: Any) -> None:
    values = np.random.default_rng(3).standard_normal(shape)
    for count in (1, 3):
        assert_alike(sessions[count], lambda one: function(one.copy()), values)


# --- fits -----------------------------------------------------------------------------------------

FITS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "line": lambda x, y, w: np.polyfit(x, y, 1),
    "constant": lambda x, y, w: np.polyfit(x, y, 0),
    "cubic": lambda x, y, w: np.polyfit(x, y, 3),
    "weighted": lambda x, y, w: np.polyfit(x, y, 2, w=w),
    "all that is known": lambda x, y, w: np.polyfit(x, y, 2, full=True)[:4],
    "with covariance": lambda x, y, w: np.polyfit(x, y, 2, w=w, cov=True),
    "with that of weights": lambda x, y, w: np.polyfit(x, y, 2, w=w, cov="unscaled"),
    "several": lambda x, y, w: np.polyfit(x, np.column_stack([y, w]), 2),
    "weights too short": lambda x, y, w: np.polyfit(x, y, 2, w=w[1:]),
    "too few values": lambda x, y, w: np.polyfit(x, y[1:], 2),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("length", [9, 3000])
def test_fits(ps: dv.Session, name: str, length: int) -> None:
    x = np.linspace(-1.0, 2.0, length)
    y, w = np.cos(x), 1.0 + x**2
    theirs, their_error = outcome(FITS[name], x, y, w)
    ours, error = outcome(FITS[name], *map(ps.array, (x, y, w)))
    assert error == their_error
    if error is None:
        pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
        for mine, expected in pairs:
            assert mine.dtype == np.asarray(expected).dtype
            np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_what_a_fit_costs(ps: dv.Session) -> None:
    x = ps.random.uniform(3000, seed=1).persist()
    y = np.exp(x).persist()
    ps.counters.reset()
    found = np.polyfit(x, y, 2)
    counted = ps.counters.snapshot()
    assert counted["messages"] <= 4 and counted["bytes_received"] < 2000
    np.testing.assert_allclose(found.numpy(), np.polyfit(x.numpy(), y.numpy(), 2), rtol=1e-9)


# --- histograms of pairs --------------------------------------------------------------------------

PAIRS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "so many bins": lambda x, y, w: np.histogram2d(x, y, 5)[0],
    "their edges": lambda x, y, w: np.histogram2d(x, y, (3, 4))[1:],
    "edges given": lambda x, y, w: np.histogram2d(x, y, [-1.0, 0.0, 0.5])[0],
    "of each": lambda x, y, w: np.histogram2d(x, y, [[-1.0, 0.0, 0.5], 3])[0],
    "weights": lambda x, y, w: np.histogram2d(x, y, 3, weights=w)[0],
    "density": lambda x, y, w: np.histogram2d(x, y, [3, [-9.0, 0.0, 1.0]], density=True)[0],
    "range": lambda x, y, w: np.histogram2d(x, y, 4, range=[[-1, 1], [0, 2]])[0],
    "of one": lambda x, y, w: np.histogramdd([x], 4)[0],
    "of a table": lambda x, y, w: np.histogramdd(np.column_stack([x, y]), 4)[0],
    "too many bins": lambda x, y, w: np.histogramdd([x, y], [3, 4, 5]),
    "unlike lengths": lambda x, y, w: np.histogram2d(x, y[1:], 3),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("length", [1, 3000])
def test_histograms_of_pairs(ps: dv.Session, name: str, length: int) -> None:
    draw = np.random.default_rng(5)
    assert_alike(ps, PAIRS[name], *(draw.integers(-16, 17, length) / 8 for _ in range(3)))


def test_booleans_are_in_bins_of_numbers(ps: dv.Session) -> None:
    edges = np.histogram_bin_edges(ps.array([True, False, True]), 2)
    assert edges.numpy().tolist() == [0.0, 0.5, 1.0]


def test_histograms_of_three_are_refused(ps: dv.Session) -> None:
    with pytest.raises(NotImplementedError, match="take two at a time"):
        np.histogramdd(ps.ones((9, 3)))
    assert float(np.linalg.tensorsolve(ps.array([[2.0]]), ps.array([4.0]))[0]) == 2.0
    with pytest.raises(NotImplementedError, match="ind must be 1"):
        np.linalg.tensorinv(ps.array([[2.0]]))
