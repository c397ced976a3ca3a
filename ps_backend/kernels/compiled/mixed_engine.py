"""The numexpr engine, with compiled loops for linear combinations and inner products.

Those loops serve every sweep, so for arrays of middle length, where a kernel of their own does not
pay, sweeps need no other compilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.machine_code import linear_loops
from ps_backend.kernels.compiled.tables import DotTable, LinkTable
from ps_backend.kernels.numexpr_engine import Instruction, NumexprKernel
from ps_backend.program.combination import Combination
from ps_backend.program.sweep import Sweep
from ps_backend.program.types import FLOATS

Pair = tuple[int, ...]


class MixedKernel(NumexprKernel):
    """See ``kernels.Kernel`` for the call.

    The loops are compiled here, by running them once: a sweep must not fail when it has begun.
    """

    def __init__(self, sweep: Sweep) -> None:
        first = len(sweep.inputs) + len(sweep.scalars)
        combined = {
            value: _instruction(value, step)
            for value, step in enumerate(sweep.steps, first)
            if isinstance(step, Combination)
        }
        pairs: dict[str, dict[int, Pair]] = {dtype: {} for dtype in FLOATS}
        for number, reduction in enumerate(sweep.reductions):
            if reduction.op == "dot":
                pairs[sweep.types[reduction.args[0]].dtype][number] = reduction.args
        self._groups = [_Products(some, np.dtype(name)) for name, some in pairs.items() if some]
        self._prepare(sweep, combined)

    def _products(
        self, values: Sequence[Any], length: int, block_size: int
    ) -> dict[int, npt.NDArray[np.float64]]:
        found: dict[int, npt.NDArray[np.float64]] = {}
        for group in self._groups:
            found |= group.of(values, length, block_size)
        return found


class _Products:
    """Inner products of values of one dtype."""

    def __init__(self, pairs: Mapping[int, Pair], dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._values = sorted({value for pair in pairs.values() for value in pair})
        place = {value: k for k, value in enumerate(self._values)}
        self._table = DotTable([(place[a], place[b]) for a, b in pairs.values()])
        self._reductions = list(pairs)
        self.of({value: np.ones(1, dtype) for value in self._values}, 1, 1)  # this compiles

    def of(
        self, values: Sequence[Any] | Mapping[int, Any], length: int, block_size: int
    ) -> dict[int, npt.NDArray[np.float64]]:
        """By reduction, one partial result a block."""
        arrays = [_whole(values[value], length) for value in self._values]
        products = np.empty((self._table.length, -(-length // block_size)))
        tables = self._table.arguments(_addresses(arrays))
        linear_loops().multi_dot_over(self._dtype.type, *tables, products, block_size, length)
        return dict(zip(self._reductions, products[self._table.rows], strict=True))


def _instruction(value: int, combination: Combination) -> Instruction:
    """Run it on a chunk. Its arguments: vectors, then scalars."""
    links, dtype = combination.links, np.dtype(combination.type.dtype)
    vectors = sorted({link.vector for link in links if link.vector is not None})
    scalars = sorted({link.scalar for link in links if link.scalar is not None})
    place = (
        {None: -1} | {v: k for k, v in enumerate(vectors)} | {s: k for k, s in enumerate(scalars)}
    )
    run = partial(_run, LinkTable(links, place, dtype.name), len(vectors), dtype)
    # This compiles.
    run(*(np.ones(1, dtype) for _ in vectors), *(dtype.type(1) for _ in scalars))
    return Instruction(value, (*vectors, *scalars), run, dtype)


def _run(table: LinkTable, vectors: int, dtype: np.dtype[Any], *args: Any) -> Any:
    length = max((len(one) for one in args[:vectors] if one.ndim), default=1)
    arrays = [_whole(one, length) for one in args[:vectors]]
    coefficients = np.array([*args[vectors:], 1.0], np.float64)
    y = np.empty(length, dtype)
    linear_loops().combine_over(*table.arguments(_addresses(arrays), coefficients), y)
    return y if any(one.ndim for one in args[:vectors]) else y[0]


def _addresses(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Where the arrays lie; one entry more, of no meaning."""
    return np.array([*(a.__array_interface__["data"][0] for a in arrays), 0], np.int64)


def _whole(value: Any, length: int) -> npt.NDArray[Any]:
    """The value as an array: what depends on scalars alone is one number."""
    return value if value.ndim else np.full(length, value)
