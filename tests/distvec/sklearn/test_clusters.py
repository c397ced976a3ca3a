"""KMeans of ``distvec.sklearn``: the centers that rows belong to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distvec.sklearn import clusters

WHOLE = st.integers(-3, 3).map(float)  # sums of their products are exact, so ties are ties


@pytest.mark.parametrize("find_least", [clusters._find_least, clusters._find_least_by_numpy])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(
    rows=arrays(float, st.tuples(st.integers(1, 40), st.just(3)), elements=WHOLE),
    centers=arrays(float, st.tuples(st.integers(1, 9), st.just(3)), elements=WHOLE),
)
def test_a_row_belongs_to_the_first_of_the_nearest_centers(
    find_least: Any, kind: Any, dtype: Any, rows: Any, centers: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "_find_least", find_least)
        patch.setattr(clusters, "_FEWEST_ROWS", 7)
        patch.setattr(clusters, "_AT_ONCE", 1)
        matrix = kind(rows.astype(dtype))
        labels, distances = clusters._nearest(matrix, clusters._squares(matrix), centers)
    squares = np.square(rows[:, None] - centers).sum(axis=2)
    np.testing.assert_array_equal(labels, squares.argmin(axis=1))
    np.testing.assert_array_equal(distances, squares.min(axis=1))
