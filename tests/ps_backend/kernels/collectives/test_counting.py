"""Sums of weights by number: NumPy and compiled loops, in the order of the blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.kernels.collectives.counting import Weights, bin_numbers


@np.errstate(all="ignore")
@settings(max_examples=30)
@given(
    level=st.integers(0, 4),
    size=st.sampled_from((1, 4, 32)),
    missing=st.integers(0, 31),
    bins=st.sampled_from((1, 3, 40, 1000)),
    special=st.booleans(),
)
def test_both_loops_add_blocks_in_their_tree(
    level: int, size: int, missing: int, bins: int, special: bool
) -> None:
    count = (size << level) - missing % size
    rng = np.random.default_rng(count)
    numbers, weights = rng.integers(-1, bins + 1, count), rng.standard_normal(count)
    if special:
        weights[::3] = rng.choice([np.inf, -np.inf, np.nan, -0.0, 1e308], len(weights[::3]))
    nodes = []
    for low in range(0, count, size):
        sums = np.zeros(bins)
        for k in range(low, min(low + size, count)):
            if 0 <= numbers[k] < bins:
                sums[numbers[k]] += weights[k]
        nodes.append(sums)
    while len(nodes) > 1:
        nodes = [a + b for a, b in zip(nodes[::2], nodes[1::2], strict=True)]
    for compiled in (False, True):
        loops = Weights(bins, size, compiled=compiled)
        for _ in range(2):
            found = loops.node(numbers, weights, level)
            np.testing.assert_array_equal(found, nodes[0])
            assert not np.signbit(found[found == 0]).any()


EDGES = [(0.0, 1.0), (-1.0, 0.0, 0.5, 0.5, 3.0), (0, 1, 1), (0.0, 1e300, np.inf)]
EDGES += [tuple(np.linspace(-2, 2, 21).tolist())]


@settings(max_examples=40)
@given(
    edges=st.sampled_from(EDGES),
    dtype=st.sampled_from(("f8", "f4", "i8", "u1")),
    seed=st.integers(0, 5),
)
def test_bins_are_numpys(edges: tuple[float, ...], dtype: str, seed: int) -> None:
    rng, limits = np.random.default_rng(seed), np.array(edges)
    special = [np.inf, -np.inf, np.nan, -0.0] if dtype[0] == "f" else [7]
    values = rng.choice([*range(4), 0.25, 0.75, 1.5, *special], 200).astype(dtype)
    expected = np.histogram(values, limits)[0]
    for compiled in (False, True):
        numbers = bin_numbers(values, limits, compiled=compiled)
        counts = np.bincount(numbers[numbers >= 0], minlength=len(limits) - 1)
        assert counts.tolist() == expected.tolist()
