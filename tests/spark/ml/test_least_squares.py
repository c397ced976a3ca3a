"""Weighted least squares by products, in NumPy's and SciPy's terms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.spark.ml.least_squares import LeastSquares, _merged, weighted_products


def rows_of(seed, *, rows=40, columns=5, density=1.0, mean=0.0):
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(rows, columns)) + mean) * (rng.random((rows, columns)) < density)
    return x, x @ rng.normal(size=columns) + rng.normal(size=rows) + 3.0, rng.random(rows)


def products(x, y, c=None, parts=1):
    """The products of rows that are in several parts."""
    each = np.array_split(np.arange(len(y)), parts)
    found = [weighted_products(x[k], y[k], None if c is None else c[k]) for k in each]
    return _merged([one.totals for one in found], np.sum([one.table for one in found], axis=0))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 99),
    density=st.sampled_from([1.0, 0.5, 0.02]),
    mean=st.sampled_from([0.0, 1e6]),
    parts=st.integers(1, 4),
    weighted=st.booleans(),
    columns=st.sampled_from([0, 1, 60]),
)
def test_products_are_those_of_numpy(seed, density, mean, parts, weighted, columns):
    x, y, c = rows_of(seed, columns=columns, density=density, mean=mean)
    x[:, :1] = 0.1  # constant, also in a sparse matrix
    weights = c if weighted else np.ones(len(y))
    whole = np.column_stack([x, y])
    means = weights @ whole / weights.sum()
    far = (whole - means) * np.sqrt(weights)[:, None]
    expected = far.T @ far
    tolerance = 1e-13 * max(1.0, expected.max())
    # The means of each part are rounded.
    tolerance += np.finfo(float).eps * abs(means).max() * np.sqrt(len(y) * expected.max())
    for matrix in (x, sp.csr_array(x)):
        found = products(matrix, y, c if weighted else None, parts)
        assert found.totals.weight == pytest.approx(weights.sum())
        assert np.allclose(found.totals.means, means, rtol=1e-12, atol=1e-12)
        assert np.allclose(found.table, expected, rtol=1e-9, atol=tolerance)
        assert not found.deviations[:-1][:1].any()


def objective(x, y, c, u, b, *, strength, share, standardize, label):
    """The value that ``LeastSquares`` minimizes, in units of the data."""
    deviations = np.sqrt(np.cov(x.T, aweights=c, ddof=0).diagonal())
    unit = np.sqrt(np.cov(y, aweights=c, ddof=0))
    scaled = u * deviations if standardize else u
    ridge = strength * (1 - share) / (unit if label else 1.0)
    residuals = x @ u + b - y
    value = 0.5 * c @ residuals**2 / c.sum()
    return value + strength * share * abs(scaled).sum() + 0.5 * ridge * scaled @ scaled


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l1_share", [0.0, 0.8])
@pytest.mark.parametrize(
    ("strength", "standardize", "label"),
    [(0.0, True, True), (0.3, True, True), (0.3, False, True), (0.3, False, False)],
)
def test_solutions_are_optimal(intercept, strength, l1_share, standardize, label):
    x, y, c = rows_of(1, mean=2.0)
    x *= [1.0, 10.0, 0.1, 1.0, 1.0]
    problem = LeastSquares(
        intercept=intercept,
        strength=strength,
        l1_share=l1_share,
        standardize_features=standardize,
        standardize_response=label,
        max_iterations=1000,
        tolerance=1e-12,
    )
    found = problem.solve(products(x, y, c))
    options = {"strength": strength, "share": l1_share, "standardize": standardize, "label": label}
    best = objective(x, y, c, found.coefficients, found.intercept, **options)
    rng = np.random.default_rng(0)
    for size in (1e-6, 1e-4, 1e-2):
        for _ in range(20):
            u = found.coefficients + size * rng.normal(size=5)
            b = found.intercept + size * rng.normal() * intercept
            assert objective(x, y, c, u, b, **options) >= best - 1e-14
    assert (found.inverse_diagonal is None) == (strength * l1_share > 0.0)
    if not strength:
        design = np.column_stack([x, np.ones(len(y))]) if intercept else x
        roots = np.sqrt(c)
        expected, *_ = np.linalg.lstsq(design * roots[:, None], y * roots, rcond=None)
        assert np.allclose(np.append(found.coefficients, [found.intercept] * intercept), expected)
        inverse = np.linalg.inv(design.T @ (design * c[:, None])).diagonal()
        assert np.allclose(found.inverse_diagonal, inverse)


def test_constant_and_repeated_columns_have_no_say():
    """A constant feature gets 0; of columns that are equal each gets the same."""
    x, y, _ = rows_of(2)
    best = LeastSquares().solve(products(x, y))
    wide = np.column_stack([x, np.full(len(y), 0.1), x[:, 0]])
    for matrix in (wide, sp.csr_array(wide)):
        for parts in (1, 3):
            found = LeastSquares(tolerance=1e-12).solve(products(matrix, y, parts=parts))
            assert found.inverse_diagonal is None and found.coefficients[5] == 0.0
            assert found.coefficients[0] == pytest.approx(found.coefficients[6])
            both = found.coefficients[0] + found.coefficients[6]
            assert np.allclose([both, *found.coefficients[1:5]], best.coefficients, atol=1e-9)


def test_constant_labels():
    x, y, _ = rows_of(3)
    same = products(x, np.full(len(y), 2.5))
    found = LeastSquares(strength=1.0).solve(same)
    assert not found.coefficients.any() and found.intercept == 2.5 and found.history == [0.0]
    with pytest.raises(ValueError, match="Model cannot be regularized"):
        LeastSquares(strength=1.0, intercept=False).solve(same)
    found = LeastSquares(intercept=False).solve(same)
    expected, *_ = np.linalg.lstsq(x, np.full(len(y), 2.5), rcond=None)
    assert np.allclose(found.coefficients, expected)


def test_rows_of_little_weight_cost_no_digits():
    """Where a mean is cut off, iteratively reweighted least squares has such rows."""
    x, y, c = rows_of(4)
    response, weights = np.append(y, 1e32), np.append(c, 1e-32)
    wide = np.vstack([x, x[:1]])
    for matrix in (wide, sp.csr_array(wide)):
        found = LeastSquares().solve(products(matrix, response, weights))
        design = np.column_stack([wide, np.ones(len(wide))])
        moments = design.T @ np.column_stack([design * weights[:, None], weights * response])
        expected = np.linalg.solve(moments[:, :-1], moments[:, -1])
        assert np.allclose(np.append(found.coefficients, found.intercept), expected)
