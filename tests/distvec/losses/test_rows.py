"""The two passes over dense rows, which have loops of their own, beside those over sparse ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

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
