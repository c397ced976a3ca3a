"""Sweeps of linear algebra, and kernels run against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ps_backend.kernels.compiled.numba_engine import NumbaKernel
from ps_backend.program import ops
from ps_backend.program.rules import verify_sweep
from ps_backend.program.sweep import Combination, Link, Reduction, Step, Sweep
from ps_backend.program.types import ValueType

FLOAT, SINGLE, BOOL = ValueType("float64"), ValueType("float32"), ValueType("bool")
BLOCK = 1024


class Builder:
    """A sweep under construction over inputs and scalars of one type, that of most steps too."""

    def __init__(self, inputs: int, scalars: int, kind: ValueType = FLOAT) -> None:
        self.inputs, self.scalars, self.kind = inputs, scalars, kind
        self.steps: list[Step | Combination] = []

    def step(self, op: str, *args: int, type: ValueType | None = None) -> int:
        self.steps.append(Step(op, args, type or self.kind))
        return self.inputs + self.scalars + len(self.steps) - 1

    def combine(self, *links: Link) -> int:
        self.steps.append(Combination(links, self.kind))
        return self.inputs + self.scalars + len(self.steps) - 1

    def sweep(self, outputs: Any = (), reductions: Any = ()) -> Sweep:
        made = Sweep(
            (self.kind,) * self.inputs,
            (self.kind,) * self.scalars,
            tuple(self.steps),
            tuple(outputs),
            tuple(Reduction(op, tuple(args)) for op, *args in reductions),
        )
        verify_sweep(made)
        return made


def two_loop(history: int, kind: ValueType = FLOAT) -> Sweep:
    """The direction of L-BFGS as one sweep: ``d = -(gamma*(g - sum a*y) + sum c*s)``, ``x + d``."""
    count = 2 * history + 2
    build = Builder(count, 2 * history + 1, kind)
    direction = build.combine(
        Link("start", 0),
        *(Link("add", 1 + k, count + k, negative=True) for k in range(history)),
        Link("scale", scalar=2 * count - 2),
        *(Link("add", 1 + k, count + k) for k in range(history, 2 * history)),
        Link("negate"),
    )
    moved = build.combine(Link("start", direction), Link("add", count - 1))
    size = build.step("abs", direction)
    return build.sweep([direction, moved], [("dot", direction, 0), ("max", size)])


def gram(count: int, pairs: list[tuple[int, int]], kind: ValueType = FLOAT) -> Sweep:
    return Builder(count, 0, kind).sweep(reductions=[("dot", i, j) for i, j in pairs])


def numpy_values(sweep: Sweep, inputs: list[np.ndarray], scalars: list[float]) -> list[Any]:
    values: list[Any] = [*inputs]
    values += [np.dtype(t.dtype).type(s) for t, s in zip(sweep.scalars, scalars, strict=True)]
    with np.errstate(all="ignore"):
        for step in sweep.steps:
            if isinstance(step, Combination):
                values.append(combined(step, values))
                continue
            args = [values[arg] for arg in step.args]
            if step.op == "cast":
                values.append(args[0].astype(step.type.dtype))
            else:
                values.append(ops.TABLE[step.op].numpy(*args))
    return values


def combined(combination: Combination, values: list[Any]) -> Any:
    """Link by link, each rounded."""
    running: Any = None
    for link in combination.links:
        operands = [values[k] for k in (link.vector, link.scalar) if k is not None]
        value = math.prod(operands[1:], start=operands[0]) if operands else None
        if link.negative:
            value = -value
        if link.op == "negate":
            running = -running
        elif link.op == "start":
            running = value
        else:
            running = _LINKS[link.op](running, value)
    return running


_LINKS = {"add": np.add, "shift": np.add, "scale": np.multiply, "divide": np.divide}


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


def assert_numpy(
    sweep: Sweep, inputs: list[np.ndarray], scalars: list[float], engine: Any = NumbaKernel
) -> None:
    """Outputs to the last bit; sums within what a sum of their absolute terms can lose."""
    got = iter(run(kernel_of(sweep, engine), inputs, scalars, 0, len(inputs[0])))
    values = numpy_values(sweep, inputs, scalars)
    for value in sweep.outputs:
        result = next(got)
        expected = np.broadcast_to(values[value], result.shape)
        assert np.array_equal(result, expected, equal_nan=True)
        finite = ~np.isnan(result)
        assert np.array_equal(np.signbit(result[finite]), np.signbit(expected[finite]))
    for reduction in sweep.reductions:
        for number, partial in enumerate(next(got)):
            here = slice(number * BLOCK, (number + 1) * BLOCK)
            block = math.prod(values[arg][here].astype(np.float64) for arg in reduction.args)
            if reduction.op in ("sum", "dot") and np.isfinite(scale := np.abs(block).sum()):
                assert abs(partial - block.sum()) <= 1e-13 * scale
            elif reduction.op not in ("sum", "dot"):
                assert np.array_equal(partial, getattr(np, reduction.op)(block), equal_nan=True)
