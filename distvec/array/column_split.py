"""Tables that are split over the servers by columns: ``T.T``, and ``ps.space(n, "columns")``.

Servers and planner know one split, by axis 0. A table of shape ``(n, k)`` that is split by columns
stands for its transpose on the servers, ``x.table`` of shape ``(k, n)``. Three rules make it an
array like any other:

1. An elementwise operation runs on the transpose, with the axes of the other operands exchanged.
2. A function along an axis runs on the transpose, along the other axis
   (``supports_column_split``).
3. Everything else reads ``x.node``, the same elements redistributed by rows, and changes the array
   by ``x.assign``, which takes them back.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from distvec.array.array import DistArray
from distvec.array.core import shapes
from distvec.array.core.handle import is_split_by_columns
from distvec.array.core.operators import elementwise
from distvec.array.error_hints import refuse_shuffle
from distvec.array.indexing.getitem import as_numpy_key
from distvec.array.indexing.parse_key import At, Mask, Take, parse
from distvec.array.indexing.pull_push import as_indices, check_addable, join_rows
from distvec.array.random import Random
from distvec.array.transposed import redistribute, transpose, transpose_operand
from distvec.graph.node import Node


class Transposed(DistArray):
    """Represent a table of shape ``(n, k)`` whose columns are split over the servers.

    ``T.T`` gives one, and ``x.T`` is the table again; ``session.space(n, split="columns")`` creates
    others. Each server has all rows of some columns. Elementwise operations and sums of columns run
    on the servers; sums of rows, ``x.sum(axis=1)`` and ``x @ v``, are stored on the client.
    """

    __slots__ = ("table",)
    __hash__ = None
    is_split_by_columns = True
    _defers = True
    ndim = 2

    table: DistArray
    """The transpose, split by rows, as servers have it."""

    def __init__(self, table: DistArray) -> None:
        self.session = table.session
        self.table = table

    # --- properties ---------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """``(n, k)``."""
        return self.table.shape[::-1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return self.table.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.table.size

    @property
    def is_readonly_slice(self) -> bool:  # type: ignore[override]
        """Whether a slice gave it."""
        return self.table.is_readonly_slice

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The same elements split by rows; lazy. They go from server to server."""
        return self.materialized().node  # type: ignore[no-any-return]

    @property
    def write_lock(self) -> Any:
        """Return the lock of the table."""
        return self.table.write_lock

    def __len__(self) -> int:
        return self.table.shape[1]

    def like(self, node: Node) -> Any:
        """Another array of this session: ``node``."""
        return self.table.like(node)

    def materialized(self) -> Any:
        """The array split by rows."""
        return redistribute(self.table)

    def copy(self, order: Any = "C") -> Any:
        """Return a new array with the same value; no memory is copied."""
        return Transposed(self.table.copy(order))

    __copy__ = copy

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True,
        copy: bool = True,
    ) -> Any:  # fmt: skip
        """Return the array in another dtype; lazy. ``TypeError`` if ``casting`` forbids it."""
        return Transposed(self.table.astype(dtype, order, casting))

    def rebind(self, node: Node) -> Self:
        """Let it have the elements of ``node``, which is split by rows."""
        return self.assign(self.like(node))

    def assign(self, value: Any, name: str = "assign") -> Self:
        """Let it stand for ``value`` cast to its own dtype; errors as of any array."""
        self.table.assign(transpose_operand(value), name)
        return self

    # --- rows ---------------------------------------------------------------------------------

    def pull(self, indices: npt.ArrayLike | None = None) -> npt.NDArray[Any]:
        """Pull rows to the client: those at ``indices``, of shape ``(m, k)``, or all.

        Takes one request per server, since each has a part of every row.
        """
        if indices is None:
            return np.ascontiguousarray(self.numpy())
        wanted = as_indices(indices, len(self))
        if not len(wanted):
            return np.empty((0, self.shape[1]), self.dtype)
        return np.ascontiguousarray(self[wanted].numpy())

    def push(self, indices: npt.ArrayLike | None, values: Any) -> Self:
        """Add ``values`` to the rows at ``indices``; None adds to all rows. Return the table.

        Values are one row per index, one row, or a number; on the client or on the servers, as in
        ``A.push(i, g[:, None] * B[j])``. Lazy; values of repeated indices add up.
        """
        if indices is not None:
            join_rows("add", self, as_indices(indices, len(self)), values)
            return self
        added = transpose_operand(check_addable(self, None, values))
        if np.ndim(added) and len(added) == len(self.table):
            added = self.session._put(added)
        self.table += added
        return self

    def __iter__(self) -> Iterator[Any]:
        """The rows as vectors on the servers, the columns of the table; lazy."""
        return map(self.copy().__getitem__, range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        exchanged, rank = _exchanged_key(key, self.shape)
        found = self.table[exchanged]
        return Transposed(found) if rank == 2 else found

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is int:
            refuse_shuffle(value)
        if is_split_by_columns(key) and np.ndim(value) == 0:
            self.table[key.table] = value
            return
        exchanged, rank = _exchanged_key(key, self.shape)
        self.table[exchanged] = transpose_operand(value) if rank == 2 else value

    # --- operations ---------------------------------------------------------------------------

    def apply_op(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Apply the op ``name`` to the table and the transposes of the other ``operands``."""
        return transpose(elementwise(self.table, name, *map(transpose_operand, operands)))


# --- indices --------------------------------------------------------------------------------------


def _exchanged_key(key: Any, shape: tuple[int, ...]) -> tuple[tuple[Any, Any], int]:
    """Return the key of the table for a key of its transpose, and the rank of the result.

    ``IndexError`` as NumPy's, ``TypeError`` for a key that makes new axes.
    """
    if any(one is None or np.ndim(one) > 1 for one in (key if isinstance(key, tuple) else (key,))):
        raise TypeError(
            "a table split by columns supports a number, a slice, an index vector or a mask for "
            "its rows, and one for its columns; for a mask of its shape use distvec.where"
        )
    rows, columns = parts = parse(shape, key)
    if isinstance(rows, Mask):
        rows = Take(np.flatnonzero(np.asarray(rows.mask)))
    numbers = sum(isinstance(part, At) for part in parts)
    vectors = sum(isinstance(part, Take | Mask) for part in parts)
    return (_plain(columns), _plain(rows)), 2 - numbers - (vectors == 2)


def _plain(part: Any) -> Any:
    """A part as a key has it; arrays on the servers as they are."""
    if isinstance(part, Take | Mask):
        return part.indices if isinstance(part, Take) else part.mask
    return as_numpy_key(part)


# --- spaces that create them ----------------------------------------------------------------------


class RowSplit:
    """Create tables of a fixed number of rows, and vectors, split by rows."""

    _axis = "rows"

    def __init__(self, session: Any, rows: int) -> None:
        self.session = session
        self.rows = shapes.length_of(rows, "space")
        """How many rows all its tables have."""

    def __repr__(self) -> str:
        return f"<space of {self.rows} rows, split by {self._axis}>"

    @functools.cached_property
    def random(self) -> Random:
        """Return a source of random tables, whose values do not depend on the split."""
        return Random(self.session)

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Any:
        """Copy values to the servers; eager, one request per server."""
        self._check(np.shape(values))
        return self.session._put(values, dtype)

    def full(
        self, shape: int | tuple[int, ...], fill_value: float, dtype: npt.DTypeLike | None = None
    ) -> Any:
        """Create an array that is filled with one value; lazy."""
        return self._full(self._check(shape), fill_value, dtype)

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike | None = None) -> Any:
        """Create an array of zeros; lazy."""
        return self.full(shape, 0, np.float64 if dtype is None else dtype)

    def ones(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike | None = None) -> Any:
        """Create an array of ones; lazy."""
        return self.full(shape, 1, np.float64 if dtype is None else dtype)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike | None = None) -> Any:
        """Create an array of zeros, which cost no more than uninitialised memory; lazy."""
        return self.zeros(shape, dtype)

    def _check(self, shape: Any) -> tuple[int, ...]:
        extents = shapes.shape_of(shape)
        if extents[:1] != (self.rows,):
            raise ValueError(
                f"arrays of a space of {self.rows} rows must have that many rows, got shape "
                f"{extents}"
            )
        return extents

    def _full(self, shape: tuple[int, ...], fill_value: Any, dtype: Any) -> Any:
        return DistArray(self.session, shapes.filled(self.session.graph, shape, fill_value, dtype))


class ColumnSplit(RowSplit):
    """Create tables of a fixed number of rows, split by columns.

    They are transposes of tables with one row for each column. Servers get blocks of at least 1024
    columns; the blocks depend only on the number of columns, so results are bitwise identical for
    any number of servers. Vectors with one element for each column, ``session.zeros(k)``, are
    aligned with these tables.
    """

    _axis = "columns"

    @functools.cached_property
    def random(self) -> Random:
        """Return a source of random tables, whose values do not depend on the split."""
        return _RandomColumns(self.session)

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Any:
        """Copy values to the servers; eager, one request per server."""
        self._check(np.shape(values))
        return transpose(self.session._put(transpose_operand(values), dtype))

    def _check(self, shape: Any) -> tuple[int, ...]:
        extents = super()._check(shape)
        if len(extents) != 2:
            raise ValueError(
                f"a space split by columns has only tables; give shape ({self.rows}, k), got "
                f"{extents}"
            )
        return extents

    def _full(self, shape: tuple[int, ...], fill_value: Any, dtype: Any) -> Any:
        return transpose(super()._full(shape[::-1], fill_value, dtype))


class _RandomColumns(Random):
    """The elements are counted row by row, though columns are drawn."""

    def _unit(self, size: Any, *keys: int, op: str = "uniform") -> Any:
        shape = shapes.shape_of(size)
        if len(shape) != 2:
            raise ValueError(
                f"a space split by columns has only tables; give size=(n, k), got {size}"
            )
        return transpose(super()._unit(shape[::-1], *keys, op=op))

    def _index(self, shape: tuple[int, ...]) -> DistArray:
        columns, rows = shape
        within = super()._index((columns,))
        return shapes.reshape(within, (columns, 1)) + np.arange(rows) * columns
