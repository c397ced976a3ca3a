"""The numexpr engine, with compiled loops for linear combinations and inner products.

Those loops serve every sweep, so for arrays of middle length, where a kernel of their own does not
pay, sweeps need no other compilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.machine_code import linear_loops
from ps_backend.kernels.compiled.tables import ChainTable, DotTable
from ps_backend.kernels.lowering.chains import NONE, Chain, chains_of
from ps_backend.kernels.numexpr_engine import Instruction, NumexprKernel
from ps_backend.program.sweep import Sweep
from ps_backend.program.types import ValueType

_LEAST_LINKS = 2
_DOUBLE, _SINGLE = ValueType("float64"), ValueType("float32")

Pair = tuple[int, int]


class MixedKernel(NumexprKernel):
    """See ``kernels.Kernel`` for the call.

    The loops are compiled here, by running them once: a sweep must not fail when it has begun.
    """

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep, LinearShortcuts(sweep))


class LinearShortcuts:
    """Chains, and inner products of any two values that are not alone scalars."""

    def __init__(self, sweep: Sweep) -> None:
        self.instructions: Mapping[int, Instruction] = {
            value: _instruction(sweep, value, chain)
            for value, chain in chains_of(sweep).items()
            if _pays(chain)
        }
        by_dtype = {kind: _dots(sweep, kind) for kind in (_DOUBLE, _SINGLE)}
        self.factors: Mapping[int, Pair] = by_dtype[_DOUBLE] | by_dtype[_SINGLE]
        self._groups = [
            _Products(pairs, np.dtype(kind.dtype)) for kind, pairs in by_dtype.items() if pairs
        ]

    def products(
        self, values: Sequence[Any], length: int, block_size: int
    ) -> dict[int, npt.NDArray[np.float64]]:
        """The partial results of inner products, by reduction."""
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


def _dots(sweep: Sweep, kind: ValueType) -> dict[int, Pair]:
    """Reductions that sum the products, in float64, of two values of dtype ``kind``."""
    first = len(sweep.inputs) + len(sweep.scalars)
    found = {}
    for k, reduction in enumerate(sweep.reductions):
        step = sweep.steps[reduction.arg - first] if reduction.arg >= first else None
        if step is None or reduction.op != "sum" or step.type != _DOUBLE:
            continue
        if step.op in ("multiply", "square"):
            factors = step.args if step.op == "multiply" else step.args * 2
            a, b = (_unwidened(sweep, factor) for factor in factors)
            if sweep.types[a] == sweep.types[b] == kind:
                found[k] = (a, b)
    return found


def _unwidened(sweep: Sweep, value: int) -> int:
    """The float32 value that a float64 one was made of, else the value itself."""
    first = len(sweep.inputs) + len(sweep.scalars)
    step = sweep.steps[value - first] if value >= first else None
    if step is None or step.op != "cast" or step.type != _DOUBLE:
        return value
    return step.args[0] if sweep.types[step.args[0]] == _SINGLE else value


def _pays(chain: Chain) -> bool:
    links = len(chain.links) + (chain.start is not None)
    return links >= _LEAST_LINKS and any(link.vector != NONE for link in chain.links)


def _instruction(sweep: Sweep, value: int, chain: Chain) -> Instruction:
    """Run the chain on a chunk. Its arguments: vectors, scalars, and the start if there is one."""
    count, dtype = len(sweep.inputs), np.dtype(sweep.types[value].dtype)
    vectors = sorted({link.vector for link in chain.links} - {NONE})
    scalars = sorted({link.scalar for link in chain.links} - {NONE})
    links = [
        replace(
            link,
            vector=vectors.index(link.vector) if link.vector != NONE else NONE,
            scalar=scalars.index(link.scalar) if link.scalar != NONE else NONE,
        )
        for link in chain.links
    ]
    args = (*vectors, *(count + k for k in scalars))
    args += () if chain.start is None else (chain.start,)
    run = partial(_run, ChainTable(links, dtype.name), len(vectors), len(scalars), dtype)
    # This compiles.
    run(*(np.ones(1, dtype) for _ in vectors), *(dtype.type(1) for _ in args[len(vectors) :]))
    return Instruction(value, args, run, dtype)


def _run(
    table: ChainTable, vectors: int, scalars: int, dtype: np.dtype[Any], *args: Any
) -> npt.NDArray[Any]:
    arrays, factors, start = args[:vectors], args[vectors : vectors + scalars], args[-1]
    y = np.empty(arrays[0].shape, dtype)
    if len(args) > vectors + scalars:
        np.copyto(y, start)
    coefficients = np.array([*factors, 1.0], np.float64)
    linear_loops().chain_over(*table.arguments(_addresses(arrays), coefficients), y)
    return y


def _addresses(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Where the arrays lie; one entry more, of no meaning."""
    return np.array([*(a.__array_interface__["data"][0] for a in arrays), 0], np.int64)


def _whole(value: Any, length: int) -> npt.NDArray[Any]:
    """The value as an array: what depends on scalars alone is one number."""
    return value if value.ndim else np.full(length, value)
