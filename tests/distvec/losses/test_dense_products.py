"""Products of dense rows, where they are not those of BLAS."""

from __future__ import annotations

import numpy as np
import pytest

from distvec.losses import matrix_products
from distvec.losses.rows import BLOCK_ROWS, Rows


@pytest.mark.parametrize("columns", [3, 16, 100])
@pytest.mark.parametrize("k", [(), (1,), (2,), (4,), (5,)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_they_are_the_products(columns, k, dtype):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(BLOCK_ROWS + 7, columns)).astype(dtype)
    rows = Rows(matrix, np.zeros(len(matrix)))
    v, s = rng.normal(size=(columns, *k)), rng.normal(size=(len(matrix), *k))
    assert matrix_products.dense_pays(matrix, v) == (columns >= 16 and k != (5,))
    margins, gradient = rows.margins(v, intercept=False), rows.gradient(s, intercept=False)
    slack = 1e-12 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(margins, matrix @ v, atol=slack)
    np.testing.assert_allclose(gradient, matrix.T @ s, atol=100 * slack)
    assert margins.shape == (len(matrix), *k) and margins.dtype == np.float64
    assert gradient.shape == (columns, *k) and gradient.dtype == dtype
    assert gradient.flags.c_contiguous


def test_no_rows():
    rows = Rows(np.zeros((0, 20)), np.zeros(0))
    assert rows.margins(np.zeros((20, 2)), intercept=False).shape == (0, 2)
    assert rows.gradient(np.zeros((0, 2)), intercept=False).tolist() == [[0.0, 0.0]] * 20
