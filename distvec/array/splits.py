"""Where tables are made whose rows, or whose columns, are split over the servers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from distvec.array.array import DistArray
from distvec.array.core.handle import SessionBase
from distvec.array.core.shapes import length_of, reshape, shape_of
from distvec.array.exchanged import flipped
from distvec.array.random import Random
from distvec.array.transposed import transpose


class RowSplit:
    """Tables of ``rows`` rows, and vectors, as the session makes them: split by rows."""

    _axis = "rows"

    def __init__(self, session: SessionBase, rows: int) -> None:
        self.session = session
        self.rows = length_of(rows, "space")
        """How many rows all its tables have."""

    def __repr__(self) -> str:
        return f"<space of {self.rows} rows, split by {self._axis}>"

    @cached_property
    def random(self) -> Random:
        """Random tables, with the same values however they are split."""
        return Random(self.session)

    def array(self, values: Any, dtype: Any = None) -> Any:
        """A copy of ``values`` on the servers. One message per server, at once."""
        self._check(np.shape(values))
        return self.session.array(values, dtype)

    def full(self, shape: Any, fill_value: Any, dtype: Any = None) -> Any:
        """``fill_value`` everywhere; lazy."""
        return self._full(self._check(shape), fill_value, dtype)

    def zeros(self, shape: Any, dtype: Any = None) -> Any:
        """Zeros; lazy."""
        return self.full(shape, 0, np.float64 if dtype is None else dtype)

    def ones(self, shape: Any, dtype: Any = None) -> Any:
        """Ones; lazy."""
        return self.full(shape, 1, np.float64 if dtype is None else dtype)

    def empty(self, shape: Any, dtype: Any = None) -> Any:
        """Zeros: lazily made, they cost no more than memory without values."""
        return self.zeros(shape, dtype)

    def _check(self, shape: Any) -> tuple[int, ...]:
        extents = shape_of(shape)
        if extents[:1] != (self.rows,):
            raise ValueError(f"arrays of a space of {self.rows} rows have others than {extents}")
        return extents

    def _full(self, shape: tuple[int, ...], fill_value: Any, dtype: Any) -> Any:
        return self.session.namespace.full(shape, fill_value, dtype=dtype)


class ColumnSplit(RowSplit):
    """Tables of ``rows`` rows whose columns are split over the servers.

    They are transposes of tables of a row for each column: blocks of at least 1024 columns, which
    depend on their number alone, so the bits do not depend on the servers. Vectors with an element
    for each column, ``session.zeros(k)``, are aligned with them.
    """

    _axis = "columns"

    @cached_property
    def random(self) -> Random:
        """Random tables, with the same values however they are split."""
        return _RandomColumns(self.session)

    def array(self, values: Any, dtype: Any = None) -> Any:
        """A copy of ``values`` on the servers. One message per server, at once."""
        self._check(np.shape(values))
        return transpose(self.session.array(flipped(values), dtype))

    def _check(self, shape: Any) -> tuple[int, ...]:
        extents = super()._check(shape)
        if len(extents) != 2:
            raise ValueError(f"tables alone are split by columns: give ({self.rows}, k)")
        return extents

    def _full(self, shape: tuple[int, ...], fill_value: Any, dtype: Any) -> Any:
        return transpose(super()._full(shape[::-1], fill_value, dtype))


class _RandomColumns(Random):
    """The elements are counted row by row, though columns are drawn."""

    def _unit(self, size: Any, key: int) -> Any:
        shape = shape_of(size)
        if len(shape) != 2:
            raise ValueError(f"tables alone are split by columns: give a size (n, k), not {size}")
        return transpose(super()._unit(shape[::-1], key))

    def _index(self, shape: tuple[int, ...]) -> DistArray:
        columns, rows = shape
        within = super()._index((columns,))
        return reshape(within, (columns, 1)) + np.arange(rows) * columns
