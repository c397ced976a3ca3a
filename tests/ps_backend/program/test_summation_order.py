"""Floats are added up and multiplied in one order, whichever engine does it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from ps_backend.kernels.compiled import numba_engine
from ps_backend.kernels.compiled.mixed_engine import MixedKernel
from ps_backend.kernels.compiled.numba_engine import NumbaKernel
from ps_backend.kernels.numexpr_engine import NumexprKernel
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.program import summation_order as order
from ps_backend.program.summation_order import CHUNK, LANES, LEAF, WIDE
from ps_backend.program.sweep import Reduction, Sweep
from ps_backend.program.types import ValueType

ENGINES = (NumpyKernel, NumexprKernel, MixedKernel, NumbaKernel)


def values(length: int, dtype: str = "float64") -> np.ndarray:
    rng = np.random.default_rng(length)
    return (rng.standard_normal(length) * 10.0 ** rng.integers(-4, 4, length)).astype(dtype)


def in_tree(leaves: Sequence[float], join: np.ufunc) -> float:
    """As the docstring of ``order`` has it, one number after the other."""
    level = list(leaves)
    while len(level) > 1:
        pairs = [float(join(a, b)) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


def leaf_sum(x: Sequence[float]) -> float:
    lanes, whole = [0.0] * LANES, len(x) // LANES * LANES
    for i, value in enumerate(x[:whole]):
        lanes[i % LANES] += value
    total = in_tree(lanes, np.add)
    for value in x[whole:]:
        total += value
    return total


def leaf_product(x: Sequence[float]) -> float:
    lanes = [1.0] * WIDE
    for i, value in enumerate(x):
        lanes[i % WIDE] *= value
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [a * b for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


@given(length=st.integers(1, 3 * CHUNK), pieces=st.lists(st.integers(0, 1200), max_size=3))
def test_the_order_is_the_one_that_is_written_down(length: int, pieces: list[int]) -> None:
    x = values(length)
    factors = 1 + x / 1e6
    cuts = list(itertools.accumulate([0, *pieces]))
    for of_rows, join, leaf, size, given_values in (
        (order.sums, np.add, leaf_sum, LEAF, x),
        (order.products, np.multiply, leaf_product, CHUNK, factors),
    ):
        parts = [given_values[low : low + size].tolist() for low in range(0, length, size)]
        expected = in_tree([leaf(part) for part in parts], join)
        assert of_rows(given_values[None, :])[0] == expected
        block = order.OfBlock(of_rows, join)
        for low, high in itertools.pairwise([*cuts, length]):
            block.add(given_values[low : max(low, high)])
        if cuts[-1] <= length:
            assert block.end() == expected


@pytest.mark.parametrize("level", range(5))
def test_sums_of_whole_blocks_have_the_bits_of_numpy(level: int) -> None:
    rows = values(3 * 1024 << level).reshape(3, -1)
    assert order.sums(rows).tobytes() == np.array([np.sum(row) for row in rows]).tobytes()


REDUCTIONS = {"float64": ("sum", "prod", "min", "nanmax", "argmin"), "float32": ("sum",)}


@pytest.fixture(scope="module", params=REDUCTIONS)
def sweeps(request: pytest.FixtureRequest) -> tuple[str, list[list]]:
    """Kernels of every engine, of each sweep: of some reductions, and of many inner products."""
    kind = ValueType(request.param)
    pairs = list(itertools.combinations_with_replacement(range(3), 2))
    reductions = [Reduction(name, (0,)) for name in REDUCTIONS[request.param]]
    reductions += [Reduction("dot", (0, 0)), Reduction("dot", (0, 1))]
    made = [
        Sweep((kind,) * 3, (), (), (), tuple(some))
        for some in (reductions, [Reduction("dot", pair) for pair in pairs])
    ]
    return request.param, [[engine(sweep) for engine in ENGINES] for sweep in made]


@settings(max_examples=30)
@given(
    length=st.integers(0, 9000),
    block=st.sampled_from([1, 1000, 1024, 3072, 4096]),
    zeros=st.booleans(),
)
def test_every_engine_has_the_same_partial_results(sweeps, length, block, zeros) -> None:
    dtype, made = sweeps
    length = min(length, 300 * block)
    arrays = [np.ascontiguousarray(values(length + k, dtype)[k:]) for k in range(3)]
    if zeros:
        arrays[0] *= 0  # of both signs
    for engines in made:
        first, *others = [
            [one.tobytes() for one in kernel(arrays, [], [], 0, length, block)]
            for kernel in engines
        ]
        assert all(other == first for other in others)


def test_a_pause_within_a_block_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in pieces of one chunk, on two threads: each goes on from its own tree."""
    kind, x = ValueType("float64"), values(40_000)
    for count in (1, 3):
        pairs = itertools.combinations_with_replacement(range(count), 2)
        reductions = [Reduction("dot", pair) for pair in pairs]
        sweep = Sweep((kind,) * count, (), (), (), (*reductions, Reduction("sum", (0,))))
        kernel = NumbaKernel(sweep)
        arrays = [x[k : 30_000 + k].copy() for k in range(count)]
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        whole = kernel(arrays, [], [], 0, 30_000, 8192)
        with monkeypatch.context() as patch:
            patch.setattr(numba_engine, "_PIECE_WORK", 1)
            pieces = kernel(arrays, [], [], 0, 30_000, 8192)
        assert [a.tobytes() for a in pieces] == [a.tobytes() for a in whole]


@given(length=st.integers(1, 200_000))
def test_sums_are_as_exact_as_pairwise_ones(length: int) -> None:
    x = values(length)
    roundings = LEAF // LANES + LANES + max(0, math.ceil(math.log2(length / LEAF)))
    error = abs(order.sums(x[None, :])[0] - math.fsum(x))
    assert error <= roundings * 2.0**-53 * np.abs(x).sum() * (1 + 1e-10)
