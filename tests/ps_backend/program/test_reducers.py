"""Reductions along axis 0, of one table and of several."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.program.reducers import REDUCERS

NAMES = st.sampled_from(["sum", "prod", "min", "max", "nanmin", "any", "all"])
DTYPES = st.sampled_from(["float64", "float32", "int32", "bool"])


@given(NAMES, DTYPES, st.integers(1, 5), st.integers(1, 3000), st.integers(1, 40), st.booleans())
def test_several_tables_are_reduced_as_if_each_was_alone(
    name: str, dtype: str, tables: int, count: int, width: int, is_view: bool
) -> None:
    rng = np.random.default_rng(count)
    x = rng.integers(-2, 3, (tables, count, width + is_view)).astype(dtype)
    x = x[..., is_view:]
    reducer = REDUCERS[name]
    found = reducer.below(x)
    assert found.tobytes() == np.array([reducer.below(table) for table in x]).tobytes()
    wide = None if reducer.picks or reducer.truth else reducer.accumulators(dtype)[0]
    np.testing.assert_array_equal(found, reducer.numpy.reduce(x, axis=1, dtype=wide))


@given(st.integers(1, 4), st.integers(1, 3000), st.integers(1, 40))
def test_sums_have_the_same_bits_beside_others(tables: int, count: int, width: int) -> None:
    x = np.random.default_rng(width).standard_normal((tables, count, width)) * 1e3
    found = REDUCERS["sum"].below(x)
    assert found.tobytes() == np.array([REDUCERS["sum"].below(table) for table in x]).tobytes()
    np.testing.assert_allclose(found, x.sum(axis=1), rtol=1e-12, atol=1e-8)
