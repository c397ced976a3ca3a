"""Sweeps of linear algebra, and kernels run against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps_backend.kernels.compiled.numba_engine import NumbaKernel
from ps_backend.program import ops
from ps_backend.program.sweep import Reduction, Step, Sweep, verify_sweep
from ps_backend.program.types import ValueType

FLOAT, SINGLE, BOOL = ValueType("float64"), ValueType("float32"), ValueType("bool")
BLOCK = 1024


class Builder:
    """A sweep under construction over inputs and scalars of one type, that of most steps too."""

    def __init__(self, inputs: int, scalars: int, kind: ValueType = FLOAT) -> None:
        self.inputs, self.scalars, self.kind = inputs, scalars, kind
        self.steps: list[Step] = []

    def step(self, op: str, *args: int, type: ValueType | None = None) -> int:
        self.steps.append(Step(op, args, type or self.kind))
        return self.inputs + self.scalars + len(self.steps) - 1

    def inner(self, a: int, b: int) -> int:
        """The products of two values in float64, as the planner writes them."""
        factors = list(dict.fromkeys((a, b)))
        if self.kind != FLOAT:
            factors = [self.step("cast", value, type=FLOAT) for value in factors]
        return self.step("square" if a == b else "multiply", *factors, type=FLOAT)

    def sweep(self, outputs: Any = (), reductions: Any = ()) -> Sweep:
        made = Sweep(
            (self.kind,) * self.inputs,
            (self.kind,) * self.scalars,
            tuple(self.steps),
            tuple(outputs),
            tuple(Reduction(op, arg) for op, arg in reductions),
        )
        verify_sweep(made)
        return made


def two_loop(history: int, kind: ValueType = FLOAT) -> Sweep:
    """The direction of L-BFGS as one sweep: ``d = -(gamma*(g - sum a*y) + sum c*s)``, ``x + d``."""
    count = 2 * history + 2
    build = Builder(count, 2 * history + 1, kind)
    running = 0
    for k in range(history):
        running = build.step("subtract", running, build.step("multiply", count + k, 1 + k))
    running = build.step("multiply", 2 * count - 2, running)
    for k in range(history, 2 * history):
        running = build.step("add", running, build.step("multiply", 1 + k, count + k))
    direction = build.step("negative", running)
    moved = build.step("add", direction, count - 1)
    slope = build.inner(direction, 0)
    return build.sweep([direction, moved], [("sum", slope), ("max", build.step("abs", direction))])


def gram(count: int, pairs: list[tuple[int, int]], kind: ValueType = FLOAT) -> Sweep:
    build = Builder(count, 0, kind)
    return build.sweep(reductions=[("sum", build.inner(i, j)) for i, j in pairs])


def numpy_values(sweep: Sweep, inputs: list[np.ndarray], scalars: list[float]) -> list[Any]:
    values: list[Any] = [*inputs]
    values += [np.dtype(t.dtype).type(s) for t, s in zip(sweep.scalars, scalars, strict=True)]
    with np.errstate(all="ignore"):
        for step in sweep.steps:
            args = [values[arg] for arg in step.args]
            if step.op == "cast":
                values.append(args[0].astype(step.type.dtype))
            else:
                values.append(ops.TABLE[step.op].numpy(*args))
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


def vectors(count: int, length: int, seed: int = 0, kind: ValueType = FLOAT) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = [rng.standard_normal(length) * 10.0 ** rng.integers(-3, 4, length) for _ in range(count)]
    return [vector.astype(kind.dtype) for vector in made]


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
            block = values[reduction.arg][number * BLOCK : (number + 1) * BLOCK].astype(np.float64)
            if reduction.op == "sum" and np.isfinite(scale := np.abs(block).sum()):
                assert abs(partial - block.sum()) <= 1e-13 * scale
            elif reduction.op != "sum":
                assert np.array_equal(partial, getattr(np, reduction.op)(block), equal_nan=True)
