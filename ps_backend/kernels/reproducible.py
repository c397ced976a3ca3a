"""The same bits from every engine and every server: which sweeps have them, and digests of them.

Two servers with the same digests give the same bits. ``bits`` is of what is the same on every
processor, ``functions`` of the ops that ``ops.VARYING`` names: there are several versions of these,
which differ in last bits, and the processor decides which one is run. Which NaN a result is does
not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.kernel import Kernel
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.kernels.numpy_loops import has_loop
from ps_backend.program import ops
from ps_backend.program.reducers import PUBLIC, REDUCERS
from ps_backend.program.sweep import Combination, Reduction, Step, Sweep
from ps_backend.program.types import FLOATS, ValueType


def has_same_bits(sweep: Sweep) -> bool:
    """Whether another engine may run ``sweep`` from one call to the next, unseen.

    That is what consists of steps whose text has NumPy's bits, or that are NumPy's own loop
    everywhere, and of reductions whose order is fixed, or does not matter.
    """
    first = len(sweep.inputs) + len(sweep.scalars)
    return all(
        isinstance(step, Combination) or _is_exact(sweep, value, step)
        for value, step in enumerate(sweep.steps, first)
    ) and all(_has_one_order(sweep, reduction) for reduction in sweep.reductions)


def _has_one_order(sweep: Sweep, reduction: Reduction) -> bool:
    reducer = REDUCERS[reduction.op]
    wide = reducer.accumulators(sweep.types[reduction.args[0]].dtype)[0]
    is_found = reducer.picks or reducer.locates or reducer.truth  # among the values: not rounded
    return wide.kind != "f" or is_found or reducer.in_order is not None


def _is_exact(sweep: Sweep, value: int, step: Step) -> bool:
    row = ops.TABLE[step.op]
    taken = [sweep.types[arg].dtype for arg in step.args]
    if row.converts:  # of floats out of range C leaves it open what an integer is
        return step.type.dtype in (*FLOATS, "bool") or not {*taken} & {*FLOATS}
    if step.type.dtype not in FLOATS or (row.numba and not (row.loop or row.ulps)):
        return True
    if value in sweep.constants:
        return False
    if step.op == "sigmoid":  # ``lower`` makes an exponential and a text of it
        return has_loop("exp", (step.type.dtype,) * 2)
    return row.loop and has_loop(step.op, (*taken, step.type.dtype))


_LENGTH, _BLOCK = 2500, 1024
_EXPONENT = 1.5
_BYTES = 8

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Digests:
    """Eight bytes each, as hexadecimal digits."""

    bits: str
    functions: str


@cache
def digests() -> Digests:
    """Of this process, by the engine that needs no compiler: some ten milliseconds, once."""
    return digests_of(NumpyKernel)


def digests_of(engine: Callable[[Sweep], Kernel]) -> Digests:
    """What ``engine`` makes of it all."""
    found = list(results(engine))
    return Digests(
        _digest(one for name, one in found if name.split()[0] not in ops.VARYING),
        _digest(one for name, one in found if name.split()[0] in ops.VARYING),
    )


def results(engine: Callable[[Sweep], Kernel]) -> Iterator[tuple[str, Array]]:
    """What comes out of each op and each reduction, under its name and the dtype."""
    for dtype in FLOATS:
        x, y = _values(dtype)
        steps, names = _steps(dtype)
        kind = ValueType(dtype)
        reductions = [Reduction(name, (0,)) for name in PUBLIC]
        reductions += [Reduction("dot", (0, 0)), Reduction("dot", (0, 1))]
        outputs = [np.empty(len(x), step.type.dtype) for step in steps]
        places = tuple(range(3, 3 + len(steps)))
        yield from zip(names, _run(engine, kind, steps, places, (), (x, y), outputs), strict=True)
        finite = [np.where(np.isfinite(one), one, 1) for one in (x, y)]
        partials = _run(engine, kind, (), (), reductions, finite, [])
        yield from ((f"reduction {dtype}", one) for one in partials)


def _run(
    engine: Callable[[Sweep], Kernel],
    kind: ValueType,
    steps: Sequence[Step],
    places: tuple[int, ...],
    reductions: Sequence[Reduction],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
) -> list[Array]:
    sweep = Sweep((kind, kind), (kind,), tuple(steps), places, tuple(reductions))
    partials = engine(sweep)(inputs, [_EXPONENT], outputs, 0, len(inputs[0]), _BLOCK)
    return [*outputs, *partials]


def _steps(dtype: str) -> tuple[list[Step], list[str]]:
    """Every op of floats with one argument or two, and a power by a number."""
    steps, names = [], []
    for name, op in ops.PUBLIC.items():
        kind = np.dtype(dtype)
        if op.arity not in (1, 2) or not op.has_loops:
            continue
        try:
            *taken, result = op.loop_for((kind,) * op.arity)
        except TypeError:
            continue
        if all(one == kind for one in taken):
            steps.append(Step(name, (0, 1)[: op.arity], ValueType(result.name)))
            names.append(f"{name} {dtype}")
    return [*steps, Step("pow", (0, 2), ValueType(dtype))], [*names, f"pow {dtype}"]


def _values(dtype: str) -> tuple[Array, Array]:
    """Ordinary numbers of both signs and of many sizes, then special ones, beside each other.

    They are made by arithmetic that rounds nowhere.
    """
    index = np.arange(_LENGTH)
    mixed = index * 40503 % 65536 / 65536 - 0.5
    x = np.ldexp(mixed, index % 17 - 6)
    special = np.array([0.0, -0.0, 1, -1, 0.5, -2.5, np.inf, -np.inf, np.nan, 3e38, 1e-30, 40])
    first, second = np.meshgrid(special, special)
    y = np.ldexp(mixed[::-1], index % 13 - 5)
    x[-first.size :], y[-first.size :] = first.ravel(), second.ravel()
    return x.astype(dtype), y.astype(dtype)


def _digest(arrays: Iterator[Array]) -> str:
    found = hashlib.blake2b(digest_size=_BYTES)
    for array in arrays:
        found.update(canonical(array).tobytes())
    return found.hexdigest()


def canonical(array: Array) -> Array:
    """The same with one NaN for all."""
    return np.where(np.isnan(array), np.nan, array) if array.dtype.kind == "f" else array
