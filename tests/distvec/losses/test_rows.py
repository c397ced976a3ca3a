"""The two passes over dense rows and by columns, beside those over sparse rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses.by_columns import by_columns
from distvec.losses.rows import BLOCK_ROWS, Rows


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
    count=st.integers(0, 30),
    columns=st.integers(1, 40),
    block=st.integers(1, 30),
    intercept=st.booleans(),
    several=st.booleans(),
    seed=st.integers(0, 999),
)
def test_elements_by_columns_give_what_rows_do(
    dtype, count, columns, block, intercept, several, seed
):
    rng, tail = np.random.default_rng(seed), (3,) * several
    matrix = rng.integers(-9, 10, (count, columns)) * (rng.random((count, columns)) < 0.5)
    plain = Rows(sp.csr_array(matrix.astype(dtype)), np.ones(count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distvec.losses.by_columns.BLOCK_ROWS", block)
        fast = replace(plain, by_columns=by_columns(plain.matrix, wide=1))
        weights = rng.integers(-9, 10, (columns + intercept, *tail)).astype(float)
        slopes = rng.integers(-9, 10, (count, *tail)).astype(float)
        for rows, other in ((fast, plain), (fast[1:], plain[1:])):
            found = rows.margins(weights, intercept=intercept)
            expected = other.margins(weights, intercept=intercept)
            np.testing.assert_array_equal(found, expected, strict=True)
        found = fast.gradient(slopes, intercept=intercept)
    expected = plain.gradient(slopes, intercept=intercept)
    np.testing.assert_array_equal(found, expected, strict=True)


def test_only_wide_matrices_are_kept_by_columns_too():
    matrix = sp.csr_array((np.ones(3), [0, 4, 9], [0, 1, 3]), shape=(2, 10))
    assert by_columns(matrix, wide=10) is not None
    assert by_columns(matrix, wide=11) is None
    assert by_columns(sp.csr_array(np.ones((17, 10))), wide=10) is None  # long columns


def test_elements_of_another_matrix_are_ignored():
    rows = Rows(sp.csr_array(np.ones((3, 8))), np.ones(3))
    rows = replace(rows, by_columns=by_columns(rows.matrix, wide=1))
    assert rows.by_columns is not None
    twice = replace(rows, matrix=2.0 * rows.matrix)
    np.testing.assert_array_equal(twice.margins(np.ones(8), intercept=False), [16.0] * 3)
    np.testing.assert_array_equal(twice.gradient(np.ones(3), intercept=False), [6.0] * 8)
