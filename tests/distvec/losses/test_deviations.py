"""Standard deviations of features, of weighted rows, dense and sparse."""

from fractions import Fraction
from math import sqrt
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses.rows import Floats, Rows, standard_deviations


def exact(matrix: Floats, weights: Floats) -> list[float]:
    """The definition in whole numbers."""
    c = [Fraction(one) for one in weights]
    total = sum(c)
    freedom = total - sum(one * one for one in c) / total
    found = []
    for column in matrix.T:
        x = [Fraction(one) for one in column]
        mean = sum(a * b for a, b in zip(c, x, strict=True)) / total
        spread = sum(a * (b - mean) ** 2 for a, b in zip(c, x, strict=True))
        found.append(sqrt(spread / freedom) if freedom > 0 else 0.0)
    return found


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.0, 1e6]))
@settings(max_examples=30)
def test_they_are_what_the_definition_says(seed: int, sparse: bool, shift: float) -> None:
    rng = np.random.default_rng(seed)
    matrix = shift + rng.normal(size=(rng.integers(2, 20), 4))
    if not shift:
        matrix *= rng.random(matrix.shape) < 0.5
    weights = rng.random(len(matrix)) * (rng.random(len(matrix)) < 0.8)
    weights[0] = 1.0
    rows = Rows(sp.csr_array(matrix) if sparse else matrix, np.zeros(len(matrix)), weights)
    np.testing.assert_allclose(
        standard_deviations(rows), exact(matrix, weights), rtol=1e-9, atol=1e-300
    )


@pytest.mark.parametrize("make", [sp.csr_array, np.asarray], ids=["sparse", "dense"])
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_a_column_of_one_value_has_none_whatever_the_weights(make: Any, seed: int) -> None:
    """Rounding of sums of weights, or of the mean, makes no deviation."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 3000))
    matrix = np.full((count, 3), [0.1, 1e9 / 3.0, 0.0])
    rows = Rows(make(matrix), np.zeros(count), rng.random(count))
    assert standard_deviations(rows).tolist() == [0.0, 0.0, 0.0]
