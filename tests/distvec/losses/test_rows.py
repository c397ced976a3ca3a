"""The two passes over dense rows and over strips of columns, beside those over sparse rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses.rows import BLOCK_ROWS, Rows
from distvec.losses.strips import strips_of


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(deadline=None, max_examples=25)
@given(
    count=st.integers(0, 40) | st.sampled_from([BLOCK_ROWS, 2 * BLOCK_ROWS + 1]),
    columns=st.integers(0, 40) | st.sampled_from([2048, 2049]),
    intercept=st.booleans(),
    several=st.booleans(),
    seed=st.integers(0, 999),
)
def test_dense_rows_give_what_sparse_ones_do(dtype, count, columns, intercept, several, seed):
    if columns > 2000:
        count = min(count, 40)
    rng, tail = np.random.default_rng(seed), (3,) * several
    matrix = rng.integers(-9, 10, (count, columns)).astype(dtype)
    offsets = rng.standard_normal(count)
    dense, sparse = (Rows(one, offsets, offsets=offsets) for one in (matrix, sp.csr_array(matrix)))
    # Whole numbers: no order of the sums makes a difference.
    weights = rng.integers(-9, 10, (columns + intercept, *tail)).astype(float)
    slopes = rng.integers(-9, 10, (count, *tail)).astype(float)
    found = dense.margins(weights, intercept=intercept)
    np.testing.assert_array_equal(found, sparse.margins(weights, intercept=intercept), strict=True)
    found = dense.gradient(slopes, intercept=intercept)
    np.testing.assert_array_equal(found, sparse.gradient(slopes, intercept=intercept), strict=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(deadline=None, max_examples=50)
@given(
    count=st.integers(1, 20),
    columns=st.integers(1, 60),
    width=st.integers(1, 9),
    intercept=st.booleans(),
    seed=st.integers(0, 999),
)
def test_strips_give_what_rows_do(dtype, count, columns, width, intercept, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-9, 10, (count, columns)) * (rng.random((count, columns)) < 0.5)
    plain = Rows(sp.csr_array(matrix.astype(dtype)), np.ones(count))
    cut = replace(plain, strips=strips_of(plain.matrix, width))
    assert (cut.strips is None) == (min(columns // width, plain.matrix.nnz // count) < 2)
    weights = rng.integers(-9, 10, columns + intercept).astype(float)
    slopes = rng.integers(-9, 10, count).astype(float)
    for rows, other in ((cut, plain), (cut[1:], plain[1:])):
        np.testing.assert_array_equal(
            rows.margins(weights, intercept=intercept), other.margins(weights, intercept=intercept)
        )
    np.testing.assert_array_equal(
        cut.gradient(slopes, intercept=intercept),
        plain.gradient(slopes, intercept=intercept),
        strict=True,
    )


def test_strips_of_another_matrix_are_ignored():
    rows = Rows(sp.csr_array(np.ones((3, 8))), np.ones(3))
    cut = replace(rows, strips=strips_of(rows.matrix, 2))
    assert cut.strips is not None
    twice = replace(cut, matrix=2.0 * cut.matrix)
    np.testing.assert_array_equal(twice.margins(np.ones(8), intercept=False), [16.0] * 3)
    np.testing.assert_array_equal(twice.gradient(np.ones(3), intercept=False), [6.0] * 8)
