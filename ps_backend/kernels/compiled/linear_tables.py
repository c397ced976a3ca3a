"""The tables that drive the compiled loops of ``linear``, and inner products computed by them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiled.llvm_loops import TOGETHER
from ps_backend.kernels.compiled.machine_code import linear_loops
from ps_backend.kernels.numpy_loops import addresses_of
from ps_backend.program.sweep import Link, Sweep
from ps_backend.program.types import FLOATS

Table = npt.NDArray[np.int64]

START, ADD, SCALE, DIVIDE, SHIFT = range(5)
"""What a link does to its running value: begin as, or add, a vector times the coefficient; multiply
by, divide by or add the coefficient."""

_KINDS = {
    "start": START,
    "add": ADD,
    "scale": SCALE,
    "negate": SCALE,
    "divide": DIVIDE,
    "shift": SHIFT,
}


class DotTable:
    """Pairs of vectors in groups that have one vector in common.

    The vectors in most pairs are the second ones: they stay in the innermost cache while the others
    pass by.
    """

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        degree = Counter(vector for pair in pairs for vector in pair)
        passing = defaultdict(list)
        for number, pair in enumerate(pairs):
            second, first = sorted(pair, key=lambda vector: (-degree[vector], vector))
            passing[first].append((second, number))
        groups = [
            (first, group)
            for first, seconds in passing.items()
            for group in (seconds[k : k + TOGETHER] for k in range(0, len(seconds), TOGETHER))
        ]
        self._firsts = np.array([first for first, _ in groups], np.int64)
        self._counts = np.array([len(group) for _, group in groups], np.int64)
        self._seconds = np.zeros(len(groups) * TOGETHER, np.int64)
        self.rows = [0] * len(pairs)
        """Where each pair's product is in a table of products."""
        for at, (_, group) in enumerate(groups):
            for k, (second, number) in enumerate(group, at * TOGETHER):
                self._seconds[k] = second
                self.rows[number] = k
        self.length = len(self._seconds)
        """Rows of a table of products."""

    def arguments(self, addresses: Table) -> tuple[Table, Table, Table]:
        """What ``multi_dot`` takes after the dtype, for vectors at these addresses."""
        return addresses[self._firsts], self._counts, addresses[self._seconds]


class LinkTable:
    """The links of one combination of vectors of ``dtype``."""

    def __init__(self, links: Sequence[Link], place: Mapping[int | None, int], dtype: str) -> None:
        """``place`` says where a vector or a scalar is among those of a call; of None, at -1."""
        self._dtype = dtype
        self._kinds = np.array([_KINDS[link.op] for link in links], np.int64)
        # The index -1 takes the last entry, which is there for links that need none.
        self._vectors = np.array([place[link.vector] for link in links], np.int64)
        self._scalars = np.array([place[link.scalar] for link in links], np.int64)
        signs = [-1.0 if link.negative or link.op == "negate" else 1.0 for link in links]
        self._signs = np.array(signs)

    def arguments(self, addresses: Table, scalars: npt.NDArray[np.float64]) -> tuple[Any, ...]:
        """The first three arguments of ``combine``.

        ``addresses`` is followed by one entry of no meaning, ``scalars`` by a one.
        """
        coefficients = self._signs * scalars[self._scalars]
        return self._kinds, addresses[self._vectors], coefficients.astype(self._dtype, copy=False)


Pair = tuple[int, ...]


class Products:
    """Inner products of pairs of values, by number of the reduction."""

    def __init__(self, pairs: Mapping[int, Pair], dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._values = sorted({value for pair in pairs.values() for value in pair})
        place = {value: k for k, value in enumerate(self._values)}
        self._table = DotTable([(place[a], place[b]) for a, b in pairs.values()])
        self._reductions = list(pairs)
        self.of({value: np.ones(1, dtype) for value in self._values}, 1, 1)  # this compiles

    def of(
        self, values: Mapping[int, Any], length: int, block_size: int
    ) -> dict[int, npt.NDArray[np.float64]]:
        """By reduction, one partial result a block of arrays of ``length``."""
        arrays = [whole(values[value], length) for value in self._values]
        products = np.empty((self._table.length, -(-length // block_size)))
        tables = self._table.arguments(addresses_of(arrays))
        linear_loops().multi_dot_over(self._dtype.type, *tables, products, block_size, length)
        return dict(zip(self._reductions, products[self._table.rows], strict=True))


def products_of(sweep: Sweep) -> list[Products]:
    """Those of ``sweep``, by dtype."""
    pairs: dict[str, dict[int, Pair]] = {dtype: {} for dtype in FLOATS}
    for number, reduction in enumerate(sweep.reductions):
        if reduction.op == "dot":
            pairs[sweep.types[reduction.args[0]].dtype][number] = reduction.args
    return [Products(some, np.dtype(name)) for name, some in pairs.items() if some]


def whole(value: Any, length: int) -> npt.NDArray[Any]:
    """The value as an array: what depends on scalars alone is one number."""
    return value if value.ndim else np.full(length, value)
