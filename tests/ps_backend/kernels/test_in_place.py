"""Outputs that lie where inputs were, and outputs stored past the caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ps_backend.kernels.compiled.mixed_engine import MixedKernel
from ps_backend.kernels.compiled.numba_engine import NumbaKernel
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.program.sweep import Step, Sweep
from ps_backend.program.types import ValueType
from ps_backend.server.state.memory import Memory
from tests.ps_backend.sweeps import BLOCK, BOOL, Builder, kernel_of, two_loop, vectors

LENGTHS = (1, 511, 512, 513, 5000)


def mixed() -> Sweep:
    """Loops around a call, inner products of what is overwritten, and four outputs."""
    build = Builder(4, 1)
    total = build.step("add", 0, build.step("multiply", 4, 1))
    grown = build.step("exp", build.step("negative", build.step("abs", total)))
    mask = build.step("greater", grown, 2, type=BOOL)
    chosen = build.step("where", mask, grown, 3)
    shifted = build.step("subtract", chosen, 0)
    products = [build.step("multiply", shifted, 0), build.step("square", total)]
    return build.sweep(
        [total, grown, chosen, shifted],
        [*(("sum", product) for product in products), ("max", 1), ("any", mask)],
    )


def aligned(values: list[np.ndarray]) -> list[np.ndarray]:
    """Copies in memory as servers hold it: beginning at a cache line."""
    blocks = Memory(1 << 24).allocate([value.nbytes for value in values], "test")
    copies = [block.array(v.dtype, v.shape) for block, v in zip(blocks, values, strict=True)]
    for copy, value in zip(copies, values, strict=True):
        copy[:] = value
    return copies


@pytest.mark.parametrize("engine", [NumbaKernel, MixedKernel, NumpyKernel])
@pytest.mark.parametrize("sweep", [mixed(), two_loop(4)], ids=["mixed", "two-loop"])
@pytest.mark.parametrize("length", LENGTHS)
def test_an_output_may_lie_where_an_input_was(engine: Any, sweep: Sweep, length: int) -> None:
    kernel = kernel_of(sweep, engine)
    host = vectors(len(sweep.inputs), length)
    scalars = [0.25 * (k + 1) for k in range(len(sweep.scalars))]
    outputs = [np.empty(length) for _ in sweep.outputs]
    expected = kernel(aligned(host), scalars, outputs, 0, length, BLOCK)
    for first in range(len(sweep.inputs) - len(outputs) + 1):
        inputs = aligned(host)
        places = inputs[first : first + len(outputs)]
        partials = kernel(inputs, scalars, places, 0, length, BLOCK)
        for got, wanted in zip([*places, *partials], [*outputs, *expected], strict=True):
            assert np.array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "bool"])
@pytest.mark.parametrize("length", LENGTHS)
def test_every_dtype_is_stored_whole(dtype: str, length: int) -> None:
    kind = ValueType(dtype)
    sweep = Sweep(
        (kind,), (), (Step("maximum" if dtype != "bool" else "logical_or", (0, 0), kind),), (1,), ()
    )
    values = (np.arange(length) % 3).astype(dtype)
    kernel = kernel_of(sweep)
    (there,) = aligned([np.zeros(length, dtype)])
    beyond = np.zeros(length + 1, dtype)[1:]  # begins at no cache line
    for target in (there, beyond):
        kernel(aligned([values]), [], [target], 0, length, BLOCK)
        assert np.array_equal(target, values)
