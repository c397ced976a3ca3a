"""Rows of a factorization: the solutions of their normal equations, and of those alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from distvec.losses import ratings
from distvec.losses.ratings import Factorization, solve_rows

PROBLEMS = st.builds(
    Factorization,
    st.sampled_from([0.01, 0.5]),
    is_implicit=st.booleans(),
    alpha=st.sampled_from([0.5, 3.0]),
    is_nonnegative=st.booleans(),
)


def draw_ratings(rng, rows, columns):
    """At least one rating a row, some of them 0, some of one pair."""
    lengths = rng.integers(1, 12, rows)
    indices = rng.integers(0, columns, lengths.sum())
    values = rng.integers(-1, 5, lengths.sum()).astype(float)
    return sp.csr_array((values, indices, np.append(0, np.cumsum(lengths))), shape=(rows, columns))


def solve_one(values, vectors, problem, gram):
    """The solution of a row, and its value, by the formulas of the papers."""
    if problem.is_implicit:
        confidences = problem.alpha * np.abs(values)
        count = (values > 0.0).sum()
        matrix = gram + (vectors.T * confidences) @ vectors
        side = vectors.T @ np.where(values > 0.0, 1.0 + confidences, 0.0)
    else:
        count, matrix, side = values.size, vectors.T @ vectors, vectors.T @ values
    matrix = matrix + problem.regularization * count * np.eye(len(matrix))
    if problem.is_nonnegative:
        root = np.linalg.cholesky(matrix).T
        return nnls(root, np.linalg.solve(root.T, side))[0]
    return np.linalg.solve(matrix, side)


def value_of(values, columns, factors, problem, x):
    """What a row's solution minimizes."""
    errors = values - factors[columns] @ x
    count = values.size
    value = errors @ errors
    if problem.is_implicit:
        liked, count = values > 0.0, (values > 0.0).sum()
        products = factors @ x
        extra = problem.alpha * np.abs(values) * (liked - products[columns]) ** 2
        value = products @ products + (1.0 - 2.0 * products[columns])[liked].sum() + extra.sum()
    return value + problem.regularization * count * (x @ x)


@given(st.integers(0, 2**32), PROBLEMS, st.integers(1, 6))
def test_rows_are_solved_as_by_the_formula(seed, problem, rank):
    rng = np.random.default_rng(seed)
    rows, factors = draw_ratings(rng, 9, 7), rng.normal(size=(7, rank))
    gram = factors.T @ factors
    found = solve_rows(rows, factors, problem, gram)
    total = penalty = 0.0
    for row, x in enumerate(found.factors):
        part = slice(*rows.indptr[row : row + 2])
        values, columns = rows.data[part], rows.indices[part]
        expected = solve_one(values, factors[columns], problem, gram)
        assert np.allclose(x, expected, rtol=1e-6, atol=1e-7)
        total += value_of(values, columns, factors, problem, x)
        count = (values > 0.0).sum() if problem.is_implicit else values.size
        penalty += problem.regularization * count * (x @ x)
    assert found.value == pytest.approx(total, rel=1e-9, abs=1e-9)
    assert found.penalty == pytest.approx(penalty)


@given(st.integers(0, 2**32), PROBLEMS)
def test_the_bits_of_a_row_depend_on_its_own_ratings(seed, problem):
    rng = np.random.default_rng(seed)
    rows, factors = draw_ratings(rng, 12, 6), rng.normal(size=(6, 4))
    gram = factors.T @ factors
    together = solve_rows(rows, factors, problem, gram).factors
    for part in (slice(3, 4), slice(5, 12)):
        assert (solve_rows(rows[part], factors, problem, gram).factors == together[part]).all()


def test_long_rows_are_added_up_in_pieces(monkeypatch):
    rng = np.random.default_rng(1)
    rows, factors = (
        sp.csr_array(rng.integers(1, 5, (2, 50)).astype(float)),
        rng.normal(size=(50, 3)),
    )
    problem, gram = Factorization(0.1), np.zeros((3, 3))
    whole = solve_rows(rows, factors, problem, gram)
    monkeypatch.setattr(ratings, "_PIECE", 8)
    monkeypatch.setattr(ratings, "_WIDTHS", [4, 8])
    pieces = solve_rows(rows, factors, problem, gram)
    assert np.allclose(pieces.factors, whole.factors)
    assert pieces.value == pytest.approx(whole.value)


def test_rows_without_a_penalty_get_the_shortest_solution():
    factors = np.array([[1.0, 2.0], [3.0, 1.0]])
    rows = sp.csr_array(np.array([[5.0, 0.0], [5.0, 5.0]]))
    found = solve_rows(rows, factors, Factorization(0.0), np.zeros((2, 2))).factors
    assert np.allclose(found, [[1.0, 2.0], [1.0, 2.0]])
