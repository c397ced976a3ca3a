"""Keys in the order of the elements, and sorted runs of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.testing.strategies import dtypes, vectors
from ps_backend.kernels.collectives import sorting
from ps_backend.kernels.collectives.sorting import SortedRun
from tests.samples import marked


@pytest.fixture(params=["NumPy", "compiled"])
def engine(request, monkeypatch):
    few = 1 if request.param == "compiled" else 1 << 60
    monkeypatch.setattr(sorting, "COMPILED_FROM", few)
    monkeypatch.setattr(sorting, "_BLOCK", 7)


def encoded(x, **how):
    keys = np.empty(len(x), sorting.key_dtype(x.dtype))
    sorting.encode_keys(x, keys, **how)
    return keys


def room(dtype):
    return lambda name, length: SortedRun(np.empty(length, dtype), np.empty(length, np.int64))


ARRAYS = st.tuples(st.integers(0, 40), dtypes()).flatmap(lambda drawn: vectors(*drawn))


@pytest.mark.usefixtures("engine")
def test_keys_are_in_the_order_of_the_elements_and_give_them_back():
    @settings(max_examples=60)
    @given(ARRAYS, st.booleans())
    def check(x, descending):
        keys = encoded(x, descending=descending)
        back = np.empty_like(x)
        sorting.decode_keys(keys, back, descending=descending)
        np.testing.assert_array_equal(back, x)
        if x.dtype.kind == "f":
            numbers = ~np.isnan(x)
            assert np.signbit(back)[numbers].tolist() == np.signbit(x)[numbers].tolist()
        order = np.argsort(encoded(x, descending=descending, equal_zeros=True), kind="stable")
        expected = np.argsort(x[::-1] if descending else x, stable=True)
        assert order.tolist() == (len(x) - 1 - expected[::-1] if descending else expected).tolist()

    check()


@settings(max_examples=60)
@given(ARRAYS, st.booleans())
def test_elements_sorted_in_place_have_the_bits_of_sorted_keys(x, equal_zeros):
    keys, expected, found = encoded(x, equal_zeros=equal_zeros), np.empty_like(x), np.empty_like(x)
    sorting.sort(keys)
    sorting.decode_keys(keys, expected)
    sorting.sort_into(x, found, equal_zeros=equal_zeros)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_every_nan_has_the_bits_of_numpys(kind):
    x = np.array([np.nan, -np.nan, np.inf - np.inf], kind)
    back = np.empty_like(x)
    sorting.decode_keys(encoded(x), back)
    assert back.tobytes() == np.full(3, np.nan, kind).tobytes()


@pytest.mark.usefixtures("engine")
def test_a_column_of_a_table_has_keys_and_gets_elements():
    table = np.random.default_rng(0).standard_normal((50, 3))
    keys, back = encoded(table[:, 1]), np.empty((50, 2))
    sorting.decode_keys(keys, back[:, 1])
    assert back[:, 1].tolist() == table[:, 1].tolist()


def test_negative_zeros_come_first():
    keys = encoded(np.array([0.0, -0.0, 1e-300, -1e-300]))
    assert np.argsort(keys).tolist() == [3, 1, 0, 2]


RUNS = st.lists(st.lists(st.integers(0, 9), max_size=25), max_size=7)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("dtype", marked(["u1", "u4"], long=["u1"]))
def test_runs_are_sorted_and_merged_and_equal_keys_stay_in_order(dtype):
    @settings(max_examples=60)
    @given(RUNS)
    def check(drawn):
        everything = np.array([key for one in drawn for key in one], dtype)
        runs, plain, low = [], [], 0
        for one in drawn:
            keys = np.array(one, dtype)
            order = np.empty(len(one), np.uint64)
            sorting.find_order(keys, order)
            runs.append(SortedRun(keys[order], order.astype(np.int64) + low))
            sorting.sort(keys)
            plain.append(SortedRun(keys))
            low += len(one)
        blocks = [(run.keys.copy(), run.indices.copy()) for run in sorting.merge(runs, room(dtype))]
        expected = np.argsort(everything, kind="stable")
        assert [k for _, indices in blocks for k in indices] == expected.tolist()
        assert [key for keys, _ in blocks for key in keys] == everything[expected].tolist()
        alone = sorting.merge(plain, lambda name, length: SortedRun(np.empty(length, dtype)))
        assert [key for run in alone for key in run.keys] == everything[expected].tolist()

    check()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_the_order_is_stable(dtype):
    width = 8 * np.dtype(dtype).itemsize
    key = st.one_of(
        st.integers(0, 2**width - 1),
        st.integers(0, 9),
        st.builds(lambda high, low: high << width - 3 | low, st.integers(0, 7), st.integers(0, 3)),
    )

    @given(st.lists(key, max_size=60))
    def check(drawn):
        keys, order = np.array(drawn, dtype), np.empty(len(drawn), np.uint64)
        sorting.find_order(keys, order)
        assert order.tolist() == np.argsort(keys, kind="stable").tolist()

    check()


@pytest.mark.parametrize("count", [1 << 10, 1 << 15])
@pytest.mark.parametrize("low_bits", [2, 7, 20, 30])
def test_the_order_of_keys_that_differ_in_their_last_bits_alone_is_stable(count, low_bits):
    """At most so many bits are left where many others are equal, and two keys are far from them."""
    rng = np.random.default_rng(count + low_bits)
    keys = rng.integers(0, 1 << low_bits, count).astype(np.uint64) + np.uint64(1 << 40)
    keys += rng.integers(0, 5, count).astype(np.uint64) << np.uint64(55)
    keys[[3, 5]] = 0, (1 << 64) - 1
    order = np.empty(count, np.uint64)
    sorting.find_order(keys, order)
    assert (order == np.argsort(keys, kind="stable")).all()


@given(st.tuples(st.integers(1, 40), dtypes()).flatmap(lambda one: vectors(*one)), st.data())
def test_what_is_at_ranks_has_the_bits_of_a_sort_of_keys(x, data):
    ranks = np.array(data.draw(st.lists(st.integers(0, len(x) - 1), max_size=12)), np.int64)
    keys, expected = np.sort(encoded(x)), np.empty_like(x)
    sorting.decode_keys(keys, expected)
    found = sorting.at_ranks(x, ranks, np.empty_like(x))
    assert found.tobytes() == expected[ranks].tobytes()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.data())
def test_the_least_are_the_first_of_equal_ones(drawn, data):
    count = data.draw(st.integers(1, len(drawn)))
    keys = np.array(drawn, np.uint16)
    expected = np.sort(np.argsort(keys, kind="stable")[:count])
    assert sorting.least_keys(keys, count, np.empty_like(keys)).tolist() == expected.tolist()
