"""``np.median``, ``np.quantile``, ``np.percentile``, and those of what is not NaN."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.array.collectives.quantile import METHODS
from distvec.testing.strategies import lengths, vectors

SERVERS = st.sampled_from((1, 2, 3, 7))
DTYPES = st.sampled_from(("float64", "float32", "int64", "uint8"))
"""NumPy 2.4 sorts float16 wrongly on some processors."""
VECTORS = st.tuples(lengths(1), DTYPES).flatmap(lambda drawn: vectors(*drawn))
FRACTIONS = st.sampled_from(
    (0.3, 0.5, 1, np.float32(0.25), np.array([0.0, 0.1, 0.5, 0.9, 1.0]), [0, 1], [0.7])
)

rng = np.random.default_rng(6)


def assert_as_numpy(function: Any, ours: Any, host: Any, *args: Any, **kwargs: Any) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = np.asarray(function(host, *args, **kwargs))
    found = function(ours, *args, **kwargs)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found.numpy(), expected)
    if not np.isnan(expected).any():  # of nothing but NaN, NumPy's dtype depends on the values
        assert found.dtype == expected.dtype


@settings(max_examples=40)
@given(SERVERS, VECTORS, FRACTIONS, st.sampled_from(METHODS))
def test_vectors(
    sessions: dict[int, dv.Session], servers: int, x: np.ndarray, q: Any, method: str
) -> None:
    there = sessions[servers].array(x)
    for function in (np.quantile, np.nanquantile):
        assert_as_numpy(function, there, x, q, method=method)
    percent = q * 100 if type(q) in (int, float) else np.multiply(q, 100)
    assert_as_numpy(np.percentile, there, x, percent, method=method)
    for function in (np.median, np.nanmedian):
        assert_as_numpy(function, there, x)
        assert_as_numpy(function, there, x, keepdims=True)


@settings(max_examples=20)
@given(
    SERVERS, lengths(1), DTYPES, st.sampled_from((None, 0, 1, -1, (0, 1))), st.booleans(), st.data()
)
def test_tables(
    sessions: dict[int, dv.Session], servers: int, rows: int, dtype: str, axis: Any,
    keepdims: bool, data: Any,
) -> None:  # fmt: skip
    x = np.stack([data.draw(vectors(rows, dtype)) for _ in range(3)], axis=1)
    there = sessions[servers].array(x)
    for function in (np.median, np.nanmedian):
        assert_as_numpy(function, there, x, axis=axis, keepdims=keepdims)
        assert_as_numpy(function, there.T, x.T, axis=axis, keepdims=keepdims)
    for function in (np.quantile, np.nanquantile):
        assert_as_numpy(function, there, x, 0.3, axis=axis, keepdims=keepdims)
        if not isinstance(axis, tuple):
            assert_as_numpy(function, there, x, [0.2, 0.7], axis=axis)
            assert_as_numpy(function, there.T, x.T, [0.2, 0.7], axis=axis)


def test_halves(ps: dv.Session) -> None:
    x = rng.standard_normal(2000).astype(np.float16)
    low, high = np.sort(x.astype(np.float32))[999:1001]
    found = np.median(ps.array(x))
    assert found.dtype == np.float16
    assert found.numpy() == np.float16((low + high) / 2)


def test_many_quantiles_are_found_at_once(ps: dv.Session) -> None:
    x, q = rng.standard_normal(20_000), np.linspace(0, 1, 301)
    there = ps.array(x)
    ps.counters.reset()
    found = np.quantile(there, q)
    assert found.numpy().tolist() == np.quantile(x, q).tolist()
    assert ps.counters.messages_per_server == [2, 2]


def test_small_arrays_that_the_client_keeps(ps: dv.Session) -> None:
    x = rng.standard_normal((3000, 4))
    sums = ps.array(x).max(axis=0)
    assert sums.node.on_client
    assert_as_numpy(np.median, sums, x.max(axis=0))
    assert_as_numpy(np.nanquantile, sums, x.max(axis=0), [0.1, 0.6], method="hazen")


def test_nothing(ps: dv.Session) -> None:
    nothing = ps.array(np.empty(0))
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert np.isnan(np.median(nothing).numpy())
    with pytest.raises(IndexError):
        np.quantile(nothing, 0.5)


def test_the_result_goes_where_out_says(ps: dv.Session) -> None:
    x = rng.standard_normal((3000, 4))
    there, out = ps.array(x), ps.array(x).max(axis=0)
    assert np.median(there, axis=0, out=out) is out
    assert out.numpy().tolist() == np.median(x, axis=0).tolist()


def test_errors_as_numpy(ps: dv.Session) -> None:
    x = ps.ones(5)
    with pytest.raises(ValueError, match=r"Quantiles must be in the range \[0, 1\]"):
        np.quantile(x, 1.5)
    with pytest.raises(ValueError, match=r"Percentiles must be in the range \[0, 100\]"):
        np.percentile(x, [50, -1])
    with pytest.raises(ValueError, match="'middle' is not a valid method"):
        np.quantile(x, 0.5, method="middle")
    with pytest.raises(np.exceptions.AxisError):
        np.median(x, axis=1)
    with pytest.raises(ValueError, match="Only method 'inverted_cdf' supports weights"):
        np.quantile(x, 0.5, weights=ps.ones(5))
    with pytest.raises(ValueError, match="Weights must be non-negative"):
        np.quantile(x, 0.5, weights=-x, method="inverted_cdf")
    with pytest.raises(ValueError, match="were all zero"):
        np.quantile(x, 0.5, weights=0 * x, method="inverted_cdf")
    with pytest.raises(NotImplementedError, match="select the values that are not NaN"):
        np.nanquantile(x, 0.5, weights=x, method="inverted_cdf")
    with pytest.raises(NotImplementedError, match="leave out keepdims"):
        np.quantile(ps.ones((5, 2)), [0.5, 0.6], axis=0, keepdims=True)


@pytest.mark.parametrize("q", [0.3, 0, 1, [0.2, 0.8]])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_weights(ps: dv.Session, axis: int | None, q: Any) -> None:
    x, w = rng.integers(0, 9, (30, 5)).astype(float), rng.integers(0, 4, (30, 5)).astype(float)
    w[:, 1] += 1  # so that no row is without any
    x[3, 2] = np.nan
    for weights in (w, w[:, 0] + 1)[: 2 if axis == 0 else 1]:
        given = {"axis": axis, "method": "inverted_cdf"}
        expected = np.quantile(x, q, weights=weights, **given)
        for there in (weights, ps.array(weights)):
            found = np.quantile(ps.array(x), q, weights=there, **given)
            np.testing.assert_array_equal(found.numpy(), expected)
        if axis is not None and weights is w:
            turned = {"axis": 1 - axis, "method": "inverted_cdf", "weights": ps.array(w).T}
            found = np.quantile(ps.array(x).T, q, **turned)
            np.testing.assert_array_equal(found.numpy(), expected)


def test_weights_into_out(ps: dv.Session) -> None:
    x, w, out = rng.random((9, 5)), rng.random((9, 5)), ps.zeros(9)
    given = {"axis": 1, "method": "inverted_cdf"}
    assert np.percentile(ps.array(x), 40, weights=ps.array(w), out=out, **given) is out
    np.testing.assert_array_equal(out.numpy(), np.percentile(x, 40, weights=w, **given))


def test_a_median_is_two_messages_and_few_bytes(ps: dv.Session) -> None:
    x = ps.array(rng.standard_normal(1 << 16))
    ps.counters.reset()
    centred = x - np.median(x)
    assert float(np.median(abs(centred))) > 0
    assert ps.counters.messages_per_server == [4, 4]  # the differences come along with the second
    assert ps.counters.peer_messages == 2 * 2  # samples and windows, for the first server alone
    assert ps.counters.peer_bytes < 0.1 * 8 * (1 << 16)


def test_what_is_not_nan_is_counted_in_one_more_message(ps: dv.Session) -> None:
    x = ps.array(np.where(np.arange(5000) % 3, np.arange(5000.0), np.nan))
    ps.counters.reset()
    assert float(np.nanmedian(x)) == 2500
    assert ps.counters.messages_per_server == [3, 3]
