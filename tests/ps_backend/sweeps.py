"""Sweeps of linear algebra, and kernels run against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps_backend import ops
from ps_backend.kernels.numba_engine import NumbaKernel
from ps_backend.program import Reduction, Step, Sweep, ValueType, verify_sweep

FLOAT, BOOL = ValueType("float64"), ValueType("bool")
BLOCK = 1024


class Builder:
    """A sweep under construction over float64 inputs and scalars."""

    def __init__(self, inputs: int, scalars: int) -> None:
        self.inputs, self.scalars = inputs, scalars
        self.steps: list[Step] = []

    def step(self, op: str, *args: int, type: ValueType = FLOAT) -> int:
        self.steps.append(Step(op, args, type))
        return self.inputs + self.scalars + len(self.steps) - 1

    def sweep(self, outputs: Any = (), reductions: Any = ()) -> Sweep:
        made = Sweep(
            (FLOAT,) * self.inputs,
            (FLOAT,) * self.scalars,
            tuple(self.steps),
            tuple(outputs),
            tuple(Reduction(op, arg) for op, arg in reductions),
        )
        verify_sweep(made)
        return made


def two_loop(history: int) -> Sweep:
    """The direction of L-BFGS as one sweep: ``d = -(gamma*(g - sum a*y) + sum c*s)``, ``x + d``."""
    count = 2 * history + 2
    build = Builder(count, 2 * history + 1)
    running = 0
    for k in range(history):
        running = build.step("subtract", running, build.step("multiply", count + k, 1 + k))
    running = build.step("multiply", 2 * count - 2, running)
    for k in range(history, 2 * history):
        running = build.step("add", running, build.step("multiply", 1 + k, count + k))
    direction = build.step("negative", running)
    moved = build.step("add", direction, count - 1)
    slope = build.step("multiply", direction, 0)
    return build.sweep([direction, moved], [("sum", slope), ("max", build.step("abs", direction))])


def gram(count: int, pairs: list[tuple[int, int]]) -> Sweep:
    build = Builder(count, 0)
    return build.sweep(
        reductions=[
            ("sum", build.step("square", i) if i == j else build.step("multiply", i, j))
            for i, j in pairs
        ]
    )


def numpy_values(sweep: Sweep, inputs: list[np.ndarray], scalars: list[float]) -> list[Any]:
    values: list[Any] = [*inputs, *scalars]
    with np.errstate(all="ignore"):
        for step in sweep.steps:
            values.append(ops.TABLE[step.op].numpy(*(values[arg] for arg in step.args)))
    return values


def run(kernel: Any, inputs: Any, scalars: Any, low: int, high: int) -> list[np.ndarray]:
    """Outputs, then partial results, of the elements from ``low`` to ``high``."""
    sweep = kernel.sweep
    outputs = [np.empty(high - low, sweep.types[value].dtype) for value in sweep.outputs]
    partials = kernel([a[low:high] for a in inputs], scalars, outputs, low, high - low, BLOCK)
    return [*outputs, *partials]


def kernel_of(sweep: Sweep, engine: Any = NumbaKernel) -> Any:
    kernel = engine(sweep)
    kernel.sweep = sweep
    return kernel


def vectors(count: int, length: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(length) * 10.0 ** rng.integers(-3, 4, length) for _ in range(count)]


def assert_numpy(sweep: Sweep, inputs: list[np.ndarray], scalars: list[float]) -> None:
    """Outputs to the last bit; sums within what a sum of their absolute terms can lose."""
    got = iter(run(kernel_of(sweep), inputs, scalars, 0, len(inputs[0])))
    values = numpy_values(sweep, inputs, scalars)
    for value in sweep.outputs:
        result = next(got)
        expected = np.broadcast_to(values[value], result.shape)
        assert np.array_equal(result, expected, equal_nan=True)
        finite = ~np.isnan(result)
        assert np.array_equal(np.signbit(result[finite]), np.signbit(expected[finite]))
    for reduction in sweep.reductions:
        for number, partial in enumerate(next(got)):
            block = values[reduction.arg][number * BLOCK : (number + 1) * BLOCK]
            if reduction.op == "sum" and np.isfinite(scale := np.abs(block).sum()):
                assert abs(partial - block.sum()) <= 1e-13 * scale
            elif reduction.op != "sum":
                assert np.array_equal(partial, getattr(np, reduction.op)(block), equal_nan=True)
