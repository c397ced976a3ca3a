"""The table of reductions: one row each, the only place that lists them.

A row says what a reduction means (NumPy's ufunc), in what its partial results are accumulated, and
how compiled kernels fold a chunk of values and join it to the chunks before. To add a reduction,
add a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_FLOAT, _INT = np.dtype(np.float64), np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Reducer:
    """One reduction. Floats accumulate in float64, everything else in int64."""

    name: str
    numpy: Callable[..., Any]
    """The ufunc that it is the ``reduce`` of; or, of those that ``locate``, the function."""
    fold: str
    """Text of a chunk of floats reduced; the names are helpers of ``kernels/scalar_math.py``."""
    fold_ints: str
    """The same of integers."""
    join: str = ""
    """Text of two results joined, ``{a}`` of the chunks before and ``{b}`` of the next one."""
    join_ints: str = ""
    """The same of integers, where it is another."""
    identity: int | None = None
    """What nothing reduces to; None where the first chunk starts."""
    truth: bool = False
    """Reduces whether values are true, and accumulates in int64."""
    locates: bool = False
    """Gives the place of a value: each partial result is a value and its global index."""
    better: str = ""
    """Of those that locate: the comparison by which a value replaces the one found before."""

    def accumulators(self, dtype: str) -> tuple[np.dtype[Any], ...]:
        """Dtypes of the arrays of partial results, one element a block, of values of ``dtype``."""
        wide = _FLOAT if dtype.startswith("float") and not self.truth else _INT
        return (wide, _INT) if self.locates else (wide,)

    def over_rows(self, rows: np.ndarray) -> np.ndarray:
        """Each row of a matrix reduced: to a value, or to the place of one in its row."""
        reduce = self.numpy if self.locates else self.numpy.reduce  # type: ignore[attr-defined]
        result: np.ndarray = reduce(rows, axis=1)
        return result

    def combine(self, partials: np.ndarray, where: np.ndarray | None = None) -> Any:
        """The result from its partial results, one per block, in the order of blocks.

        The order is that of the blocks, whoever computed them, so the bits do not depend on the
        number of servers. An empty array gives the identity.
        """
        with np.errstate(all="ignore"):
            if where is not None:
                return where[self.numpy(partials)]
            return self.numpy.reduce(partials)  # type: ignore[attr-defined]


_ROWS = (
    Reducer("sum", np.add, "_sum({})", "_int_sum({})", "{a} + {b}", identity=0),
    Reducer("prod", np.multiply, "_prod({})", "_prod({})", "{a} * {b}", identity=1),
    Reducer("min", np.minimum, "_min({})", "_smallest({})", "_minimum({a}, {b})", "min({a}, {b})"),
    Reducer("max", np.maximum, "_max({})", "_largest({})", "_maximum({a}, {b})", "max({a}, {b})"),
    Reducer("any", np.logical_or, "", "_largest({})", "{a} | {b}", identity=0, truth=True),
    Reducer("all", np.logical_and, "", "_smallest({})", "{a} & {b}", identity=1, truth=True),
    Reducer("argmin", np.argmin, "_argmin({})", "_argmin({})", locates=True, better="<"),
    Reducer("argmax", np.argmax, "_argmax({})", "_argmax({})", locates=True, better=">"),
)

REDUCERS: dict[str, Reducer] = {row.name: row for row in _ROWS}
