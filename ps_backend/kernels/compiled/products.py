"""Inner products of values of one dtype, by the compiled loops of ``linear``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.addresses import addresses_of
from ps_backend.kernels.compiled.machine_code import linear_loops
from ps_backend.kernels.compiled.tables import DotTable
from ps_backend.program.sweep import Sweep
from ps_backend.program.types import FLOATS

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
