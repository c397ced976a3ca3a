"""Reflections of a few rows, and triangles of pieces joined."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.program import householder
from ps_backend.program.householder import Reflections

MATRICES = st.builds(
    lambda m, k, seed, rank: (
        np.random.default_rng(seed).standard_normal((m, rank))
        @ np.random.default_rng(seed).standard_normal((rank, k))
    ),
    *(st.integers(1, 12), st.integers(1, 12), st.integers(0, 99), st.integers(0, 12)),
)


@given(rows=MATRICES, columns=st.integers(1, 5))
@settings(max_examples=40)
def test_q_and_r(rows: np.ndarray, columns: int) -> None:
    m, k = rows.shape
    r = min(m, k)
    memory = np.full(Reflections.size_of(m, k), np.nan)
    upper = Reflections(memory, m, k).find(rows)
    again = Reflections(memory, m, k)  # what was found is all in the memory
    q = again.times(np.eye(r))
    scale = np.abs(rows).max() + 1e-300
    assert upper.shape == (r, k) and np.array_equal(upper, np.triu(upper))
    assert np.abs(q @ upper - rows).max() < 1e-13 * scale
    assert np.abs(q.T @ q - np.eye(r)).max() < 1e-13
    right = np.ones((r, columns))
    np.testing.assert_allclose(again.times(right), q @ right, atol=1e-13)


@given(rows=MATRICES, count=st.integers(1, 4), columns=st.integers(1, 5))
@settings(max_examples=40)
def test_each_piece_of_several_has_the_bits_that_it_has_alone(
    rows: np.ndarray, count: int, columns: int
) -> None:
    m, k = rows.shape
    pieces = np.stack([rows * scale for scale in range(count)])  # the first one is all zeros
    memory = np.full((count, Reflections.size_of(m, k)), np.nan)
    right = np.cos(np.arange(count * min(m, k) * columns)).reshape(count, -1, columns)
    together = Reflections(memory, m, k)
    uppers, products = together.find(pieces), together.times(right)
    for number, piece in enumerate(pieces):
        alone = Reflections(np.empty(memory.shape[1]), m, k)
        assert alone.find(piece).tobytes() == uppers[number].tobytes()
        assert alone.times(right[number]).tobytes() == products[number].tobytes()


@given(rows=MATRICES, cut=st.integers(0, 12))
@settings(max_examples=40)
def test_triangles_joined_have_the_products_of_all_rows(rows: np.ndarray, cut: int) -> None:
    k, parts = rows.shape[1], (rows[:cut], rows[cut:])
    first, second = (householder.padded(householder.triangle(part)) for part in parts)
    upper = householder.join_triangles(first, second)
    assert upper.shape == (k, k)
    assert not upper[len(rows) :].any()
    assert (np.diagonal(householder.upright(upper)) >= 0).all()
    products = rows.T @ rows
    np.testing.assert_allclose(upper.T @ upper, products, atol=1e-12 * np.abs(products).max())
