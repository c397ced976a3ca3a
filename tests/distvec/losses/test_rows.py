"""The two passes over dense rows and by columns, beside those over sparse rows."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses.matrix_products import Seconds, choose_order, column_order_copy
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
def test_elements_by_columns_give_the_bits_that_rows_do(
    dtype, count, columns, block, intercept, several, seed
):
    rng, tail = np.random.default_rng(seed), (3,) * several
    matrix = rng.standard_normal((count, columns)) * (rng.random((count, columns)) < 0.5)
    plain = Rows(sp.csr_array(matrix.astype(dtype)), np.ones(count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distvec.losses.matrix_products.BLOCK_ROWS", block)
        fast = replace(plain, by_columns=column_order_copy(plain.matrix))
        weights = rng.standard_normal((columns + intercept, *tail))
        slopes = rng.standard_normal((count, *tail))
        for rows, other in ((fast, plain), (fast[1:], plain[1:])):
            found = rows.margins(weights, intercept=intercept)
            expected = other.margins(weights, intercept=intercept)
            np.testing.assert_array_equal(found, expected, strict=True)
        found = fast.gradient(slopes, intercept=intercept)
        expected = plain.gradient(slopes, intercept=intercept)
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.fixture
def all_count(monkeypatch):
    """No matrix is too small for a choice; two rows of 10 columns are timed first."""
    for name, value in (("_FEW", 1), ("_NARROW", 10), ("_SAMPLE", 5)):
        monkeypatch.setattr(f"distvec.losses.matrix_products.{name}", value)
    indices, ends = np.int32([0, 4, 9, 1, 2, 3]), np.int32([0, 3, 5, 6])
    return sp.csr_array((np.arange(1.0, 7.0), indices, ends))


def test_the_order_that_was_faster_on_the_first_rows_is_taken(all_count):
    seen = []

    def measured(rows, columns):
        def measure(copy):
            seen.append(copy.matrix.shape)
            return Seconds(rows, columns)

        return choose_order(all_count, measure=measure)

    found = measured(0.002, 0.001)
    assert found.reason == "by columns: 2.0 ms by rows, 1.0 by columns, for 2 rows"
    assert found.copy.matrix is all_count
    assert measured(0.001, 0.002).copy is None
    assert measured(0.001, 0.00095).copy is None, "not worth the memory"
    assert seen == [(2, 10)] * 3


def test_both_orders_are_timed(all_count):
    choice = choose_order(all_count)
    assert re.fullmatch(r"by \w+: [\d.]+ ms by rows, [\d.]+ by columns, for 2 rows", choice.reason)


def test_no_copy_is_made_beyond_the_memory_for_it(all_count):
    def measure(copy):
        raise AssertionError("nothing is measured")

    choice = choose_order(all_count, measure=measure, memory=6 * 16 - 1)
    assert choice.copy is None
    assert choice.reason.startswith("by rows: it would take")
    assert (
        choose_order(all_count, measure=lambda _: Seconds(2.0, 1.0), memory=6 * 16).copy is not None
    )


def test_small_and_narrow_matrices_stay_as_they_are():
    rows = Rows(sp.csr_array(np.eye(3)), np.ones(3)).for_many_products()
    assert (rows.by_columns, rows.layout) == (None, "by rows: a small matrix")
    assert rows[1:].layout == ""
    assert Rows(np.eye(3), np.ones(3)).for_many_products().layout == "dense rows"


def test_elements_of_another_matrix_are_ignored():
    rows = Rows(sp.csr_array(np.ones((3, 8))), np.ones(3))
    rows = replace(rows, by_columns=column_order_copy(rows.matrix))
    assert rows.by_columns is not None
    twice = replace(rows, matrix=2.0 * rows.matrix)
    np.testing.assert_array_equal(twice.margins(np.ones(8), intercept=False), [16.0] * 3)
    np.testing.assert_array_equal(twice.gradient(np.ones(3), intercept=False), [6.0] * 8)
