"""Indices grouped by the server that holds what they name, and what is at random places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.kernels.collectives import partition


@pytest.fixture(params=["NumPy", "compiled"])
def few_are_compiled(request, monkeypatch):
    monkeypatch.setattr(partition, "COMPILED_FROM", 1 if request.param == "compiled" else 1 << 60)


def grouped(indices, starts, length):
    places, wanted = np.empty(len(indices), np.int32), np.empty(len(indices), np.int64)
    bounds = partition.group_by_owner(indices, np.array(starts, np.int64), length, places, wanted)
    return bounds, places, wanted


@pytest.mark.usefixtures("few_are_compiled")
def test_groups_keep_their_order():
    @settings(max_examples=40)
    @given(
        st.integers(1, 50).flatmap(
            lambda length: st.tuples(
                st.just(length),
                st.lists(st.integers(0, length), max_size=6).map(sorted),
                st.lists(st.integers(-length, length - 1), max_size=30),
            )
        )
    )
    def check(case):
        length, starts, given = case
        indices = np.array(given, np.int64)
        bounds, places, wanted = grouped(indices, starts, length)
        assert len(bounds) == len(starts) + 2
        found = []
        for k, (low, high) in enumerate(zip([0, *starts], [*starts, length], strict=True)):
            group = slice(bounds[k], bounds[k + 1])
            expected = [p for p, index in enumerate(given) if low <= index % length < high]
            assert places[group].tolist() == expected
            assert wanted[group].tolist() == [given[p] % length for p in expected]
            found += expected
        assert sorted(found) == list(range(len(given)))

    check()


@pytest.mark.usefixtures("few_are_compiled")
@pytest.mark.parametrize("bad", [-11, 10, 2**62])
def test_the_first_index_out_of_range_is_named(bad):
    partition.verify_range(np.array([-10, 9, 0]), 10)
    partition.verify_range(np.array([], np.int64), 0)
    with pytest.raises(IndexError, match=f"index {bad} is out of range for length 10"):
        partition.verify_range(np.array([3, bad, 99]), 10)


@pytest.mark.usefixtures("few_are_compiled")
@pytest.mark.parametrize("dtype", ["bool", "float16", "int32", "float64"])
@pytest.mark.parametrize("row", [(), (3,)])
def test_what_is_scattered_is_copied(dtype, row):
    values = np.arange(5 * (3 if row else 1)).reshape(5, *row).astype(dtype)
    out, expected = np.zeros((9, *row), dtype), np.zeros((9, *row), dtype)
    places = np.array([8, 0, 3, 4, 1], np.int32)
    expected[places] = values
    partition.scatter(values, places, out)
    assert out.tobytes() == expected.tobytes()


@pytest.mark.usefixtures("few_are_compiled")
@pytest.mark.parametrize("dtype", ["bool", "float16", "int32", "float64", "int64"])
@pytest.mark.parametrize("count", [0, 1, 127, 128, 500])
def test_random_places(dtype, count, monkeypatch):
    rng = np.random.default_rng(count)
    source, where = rng.integers(0, 9, 40).astype(dtype), rng.integers(100, 140, count)
    out = np.empty(count, dtype)
    partition.take(source, 100, where, out)
    assert out.tobytes() == source[where - 100].tobytes()
    for near in (0, 1 << 20):  # bytes of what is near
        monkeypatch.setattr(partition, "_NEAR_BYTES", near)
        partition.take(source, 0, where % 80 - 40, out, 40)
        assert out.tobytes() == source[where % 80 - 40].tobytes()
    values = rng.integers(0, 9, count).astype(dtype)
    for ufunc in (None, np.add, np.maximum):
        for new in (values, np.array(3, dtype)):
            changed, expected = source.copy(), source.copy()
            partition.put(changed, 100, where, new, ufunc)
            if ufunc is None:
                expected[where - 100] = new
            else:
                ufunc.at(expected, where - 100, new)
            assert changed.tobytes() == expected.tobytes()
