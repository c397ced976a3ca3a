"""Permutations that are computed place by place: each index once, and all orders as frequent."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.kernels.compiled.machine_code import scalar_functions
from ps_backend.program.philox import permuted

_permuted = scalar_functions()._permuted
KEYS = st.integers(0, 2**63 - 1)


@given(key=KEYS, length=st.integers(1, 3000) | st.sampled_from((4096, 65_536, 65_537, 70_001)))
def test_each_index_comes_once(key: int, length: int) -> None:
    found = permuted(key, length, np.arange(length))
    assert (np.bincount(found, minlength=length) == 1).all()
    middle = slice(length // 3, length // 2)
    assert (permuted(key, length, np.arange(length)[middle]) == found[middle]).all()


@given(key=KEYS, length=st.integers(1, 2**62), place=st.integers(0, 2**62))
def test_the_compiled_function_is_the_same(key: int, length: int, place: int) -> None:
    inside = place % length
    found = permuted(key, length, inside)
    assert 0 <= found < length
    assert _permuted(key, length, inside) == found


@pytest.mark.parametrize("place", [-1, 7, 2**62, -(2**63)])
def test_places_that_are_not_there_stay(place: int) -> None:
    assert permuted(1, 7, place) == _permuted(1, 7, place) == place
    assert permuted(1, 0, place) == _permuted(1, -5, place) == place


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_all_orders_are_equally_frequent(length: int) -> None:
    keys = np.random.default_rng(0).integers(0, 2**62, 20_000)
    drawn = np.stack([permuted(keys, length, np.full(len(keys), k)) for k in range(length)], 1)
    counts = Counter(map(tuple, drawn.tolist()))
    orders = math.factorial(length)
    assert len(counts) == orders
    expected = len(keys) / orders
    off = sum((count - expected) ** 2 / expected for count in counts.values())
    assert off < orders + 5 * math.sqrt(2 * orders), "of a sum with mean and variance such"


def test_neighbours_and_keys_are_unrelated() -> None:
    length = 1 << 17
    place = np.arange(length)
    one, other = permuted(1, length - 5, place[:-5]), permuted(2, length - 5, place[:-5])
    for a, b in ((one, place[:-5]), (one, other), (one[1:], one[:-1])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(length)
