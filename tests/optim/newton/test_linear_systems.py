"""Linear conjugate gradients: against NumPy's solution, and the trust region."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import LinearOutcome, conjugate_gradient

INDEFINITE = np.array([[4.0, -3.0], [-3.0, 2.0]])


def symmetric(seed, n, lowest):
    """A random matrix with eigenvalues from `lowest` to lowest + 10, and a right-hand side."""
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return q @ np.diag(lowest + rng.uniform(0.0, 10.0, n)) @ q.T, rng.normal(size=n)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 20), start=st.booleans(), scaled=st.booleans())
def test_solves(seed, n, start, scaled):
    matrix, b = symmetric(seed, n, 0.5)
    x0 = np.ones(n) if start else None
    options = {"preconditioner": lambda r: r / np.diag(matrix)} if scaled else {}
    solved = conjugate_gradient(lambda v: matrix @ v, b, x0, rtol=1e-11, **options)
    assert solved.outcome is LinearOutcome.CONVERGED
    assert solved.success
    assert solved.iterations <= 2 * n + 2
    assert not solved.negative_curvature
    np.testing.assert_allclose(solved.x, np.linalg.solve(matrix, b), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(solved.residual, b - matrix @ solved.x, atol=1e-9)
    assert solved.residual_norm == pytest.approx(np.linalg.norm(solved.residual))


def test_breeze_indefinite_system():
    """Without a bound CG goes on to the solution, which is a saddle, and says so."""
    solved = conjugate_gradient(lambda v: INDEFINITE @ v, np.array([10.0, 7.0]))
    np.testing.assert_allclose(solved.x, [-41.0, -58.0], atol=1e-4)
    assert solved.success
    assert solved.negative_curvature


def test_breeze_bounded():
    solved = conjugate_gradient(lambda v: INDEFINITE @ v, np.array([10.0, 7.0]), max_norm=10.0)
    assert np.linalg.norm(solved.x) == pytest.approx(10.0)
    assert solved.outcome is LinearOutcome.BOUNDARY
    assert not solved.success


def model(matrix, b, x):
    return 0.5 * x @ matrix @ x - b @ x


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), lowest=st.floats(-5.0, 1.0))
def test_trust_region(seed, n, lowest):
    """Inside; at least as low as the best point along the gradient; the model's value is known."""
    matrix, b = symmetric(seed, n, lowest)
    radius = 0.3
    solved = conjugate_gradient(lambda v: matrix @ v, b, rtol=1e-9, max_norm=radius)
    assert np.linalg.norm(solved.x) <= radius * (1.0 + 1e-12)
    bend, length = b @ matrix @ b, np.linalg.norm(b)
    part = min(b @ b / bend, radius / length) if bend > 0.0 else radius / length
    assert model(matrix, b, solved.x) <= model(matrix, b, part * b) + 1e-12
    value = -0.5 * solved.x @ (b + solved.residual)
    assert value == pytest.approx(model(matrix, b, solved.x), abs=1e-12)
    if solved.outcome is LinearOutcome.BOUNDARY:
        assert np.linalg.norm(solved.x) == pytest.approx(radius)
    if np.linalg.eigvalsh(matrix)[0] > 0.0:
        assert not solved.negative_curvature


def test_from_a_start_inside_the_region():
    matrix, b = symmetric(1, 5, 0.5)
    solution = np.linalg.solve(matrix, b)
    radius = 0.9 * np.linalg.norm(solution)
    x0 = -0.5 * solution
    solved = conjugate_gradient(lambda v: matrix @ v, b, x0, max_norm=radius)
    assert np.linalg.norm(solved.x) == pytest.approx(radius)
    assert model(matrix, b, solved.x) < model(matrix, b, x0)
    with pytest.raises(ValueError, match=r"x0 has norm .* beyond max_norm"):
        conjugate_gradient(lambda v: matrix @ v, b, 2.0 * solution, max_norm=radius)


def test_what_cannot_be_solved():
    b = np.array([1.0, 2.0])
    singular = conjugate_gradient(lambda v: 0.0 * v, b)
    assert singular.outcome is LinearOutcome.BREAKDOWN
    broken = conjugate_gradient(lambda v: np.nan * v, b, max_norm=1.0)
    assert broken.outcome is LinearOutcome.BREAKDOWN
    useless = conjugate_gradient(lambda v: v, b, preconditioner=lambda r: 0.0 * r)
    assert useless.outcome is LinearOutcome.BREAKDOWN
    for solved in (singular, broken, useless):
        np.testing.assert_array_equal(solved.x, 0.0)
    matrix, b = symmetric(0, 9, 1e-3)
    few = conjugate_gradient(lambda v: matrix @ v, b, max_iterations=2)
    assert (few.outcome, few.iterations) == (LinearOutcome.LIMIT_ITERATIONS, 2)
    assert few.residual_norm < np.linalg.norm(b)
    with pytest.raises(ValueError, match=r"max_norm=0"):
        conjugate_gradient(lambda v: v, b, max_norm=0)


def test_zero_needs_no_product():
    solved = conjugate_gradient(lambda v: v, np.zeros(3))
    assert (solved.outcome, solved.iterations) == (LinearOutcome.CONVERGED, 0)


def test_inputs_are_not_written_to():
    matrix, b = symmetric(3, 4, 1.0)
    x0, given_b = np.ones(4), b.copy()
    conjugate_gradient(lambda v: matrix @ v, b, x0)
    np.testing.assert_array_equal(x0, 1.0)
    np.testing.assert_array_equal(b, given_b)
