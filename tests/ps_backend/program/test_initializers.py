"""Initial values: what they are, the same bits compiled, and which distribution they have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from ps_backend.kernels.keyed.rows import initial_rows
from ps_backend.program import initializers as initial
from ps_backend.program import philox
from ps_backend.program.initializers import Constant, Normal, Uniform

KEYS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20)
SEEDS = st.integers(-(1 << 63), (1 << 64) - 1)
RULES = st.one_of(
    st.builds(Constant, st.integers(0, 100)),
    st.builds(Uniform, st.just(-0.05), st.just(0.25), SEEDS),
    st.builds(Normal, st.just(1.5), st.just(0.3), SEEDS),
)


@settings(max_examples=60)
@given(
    RULES,
    KEYS,
    st.sampled_from([(), (1,), (5,), (2, 3), (0,)]),
    st.sampled_from(["float64", "float32", "float16", "int8", "bool"]),
)
def test_the_same_bits_compiled(rule, keys, row, dtype):
    given = np.array(keys, np.int64)
    expected, found = (f(rule, given, row, dtype) for f in (initial.evaluate, initial_rows))
    assert found.dtype == dtype and found.shape == (len(keys), *row)
    assert found.tobytes() == expected.tobytes()
    for k, key in enumerate(keys):
        alone = initial_rows(rule, np.array([key]), row, dtype)
        assert alone[0].tobytes() == found[k].tobytes()


def test_philox_gives_them():
    key, seed, column = -12345678901234, 77, 5
    words = philox.words((key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF, column // 2, 0), (seed, 0))
    bits = (int(words[2]) << 21) ^ (int(words[3]) >> 11)
    found = initial_rows(Uniform(0.0, 1.0, seed), np.array([key]), (8,), "float64")
    assert found[0, column] == bits * 2.0**-53


def test_the_normal_distribution():
    u = np.concatenate([np.random.default_rng(0).random(1000), [0.0, 0.5, 1e-300, 1 - 2.0**-53]])
    found = initial.normal_of(u)
    np.testing.assert_allclose(found, ndtri(np.maximum(u, 2.0**-54)), rtol=0, atol=1e-11)
    drawn = initial_rows(Normal(2.0, 3.0, 1), np.arange(5000), (4,), "float64")
    assert abs(drawn.mean() - 2.0) < 0.1 and abs(drawn.std() - 3.0) < 0.1


def test_integers_are_exact():
    assert (
        initial_rows(Constant((1 << 62) + 1), np.arange(2), (), "int64").tolist()
        == [(1 << 62) + 1] * 2
    )


def test_what_no_integer_is_becomes_what_numpy_makes_of_it():
    initial_rows(Constant(np.nan), np.arange(2), (), "int64")  # and says nothing of it


@pytest.mark.parametrize("column", [0, 3])
def test_columns_do_not_depend_on_how_many_there_are(column):
    few, many = (initial_rows(Uniform(0, 1), np.arange(9), (k,), "float32") for k in (4, 7))
    assert few[:, column].tobytes() == many[:, column].tobytes()
