"""Steps that NumPy has no inner loop for, each a function that fills an array of one chunk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.addresses import addresses_of
from ps_backend.kernels.compiled.machine_code import linear_loops
from ps_backend.kernels.compiled.tables import LinkTable
from ps_backend.program import ops
from ps_backend.program.sweep import Combination, Step

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Filling:
    """Computes one value of a sweep: ``fill(out, index, *args)``.

    ``index`` is the global index of the first element; constants among ``args`` are numbers.
    """

    value: int
    args: tuple[int, ...]
    fill: Callable[..., None]


def filling_of(value: int, step: Step | Combination) -> Filling:
    """How ``step`` is computed. What has to be compiled for it is compiled here."""
    if isinstance(step, Combination):
        return _combination(value, step)
    row = ops.TABLE[step.op]
    if step.op == "iota":
        return Filling(value, (), _iota)
    if step.op == "where":
        return Filling(value, step.args, _where)
    if row.converts:
        return Filling(value, step.args, _converted)
    return Filling(value, step.args, partial(_applied, row.numpy))


def _iota(out: Array, index: int) -> None:
    out[:] = np.arange(index, index + len(out), dtype=np.int64)


def _where(out: Array, _: int, condition: Any, first: Any, second: Any) -> None:
    np.copyto(out, second, casting="unsafe")
    np.copyto(out, first, casting="unsafe", where=condition)


def _converted(out: Array, _: int, value: Any) -> None:
    np.copyto(out, value, casting="unsafe")


def _applied(function: Callable[..., Any], out: Array, _: int, *args: Any) -> None:
    out[:] = function(*args)


def _combination(value: int, combination: Combination) -> Filling:
    """Its arguments: vectors, then scalars."""
    links, dtype = combination.links, np.dtype(combination.type.dtype)
    vectors = sorted({link.vector for link in links if link.vector is not None})
    scalars = sorted({link.scalar for link in links if link.scalar is not None})
    place = (
        {None: -1} | {v: k for k, v in enumerate(vectors)} | {s: k for k, s in enumerate(scalars)}
    )
    table, count = LinkTable(links, place, dtype.name), len(vectors)
    compiled = linear_loops().combine_over

    def fill(out: Array, _: int, *args: Any) -> None:
        arrays = [one if one.ndim else np.full(len(out), one) for one in args[:count]]
        coefficients = np.array([*args[count:], 1.0], np.float64)
        compiled(*table.arguments(addresses_of(arrays), coefficients), out)

    ones = [np.ones(1, dtype)] * count + [dtype.type(1)] * len(scalars)
    fill(np.empty(1, dtype), 0, *ones)  # this compiles
    return Filling(value, (*vectors, *scalars), fill)
