"""A table that is split by columns: what it is, its values, and its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from distvec.array.core.conversion import numpy
from distvec.array.error_hints import refuse_shuffle
from distvec.array.exchanged import exchanged_key, flipped
from distvec.array.indexing.pull_push import addable, as_indices
from distvec.array.joined_columns import join_rows
from distvec.array.repr import as_bundle, as_code, as_html, as_text


class ByColumns(NDArrayOperatorsMixin):
    """Each server has all rows of some columns of ``(n, k)``, as a table of shape ``(k, n)``."""

    __slots__ = ("table",)
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1001
    ndim = 2
    device = "servers"
    is_split_by_columns = True

    def __init__(self, table: Any) -> None:
        self.table = table
        """The table that the servers have, a row for each of our columns."""

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, k)``."""
        rows, columns = self.table.shape
        return columns, rows

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        dtype: np.dtype[Any] = self.table.dtype
        return dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        size: int = self.table.size
        return size

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take on all servers together."""
        nbytes: int = self.table.nbytes
        return nbytes

    @property
    def session(self) -> Any:
        """The session that it belongs to."""
        return self.table.session

    def __len__(self) -> int:
        return self.shape[0]

    def copy(self, order: Any = "C") -> Self:
        """Another handle on the same value: nothing is copied."""
        return type(self)(self.table.copy(order))

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True,
        copy: bool = True,
    ) -> Self:  # fmt: skip
        """The array in another dtype; lazy. ``TypeError`` where ``casting`` forbids it."""
        return type(self)(self.table.astype(dtype, order, casting))

    # --- values -------------------------------------------------------------------------------

    def numpy(self) -> Any:
        """The values, pulled to the client."""
        return numpy(self.table).T

    def tolist(self) -> Any:
        """The values as lists of Python scalars; they are pulled as by ``numpy``."""
        return self.numpy().tolist()

    def item(self, *args: Any) -> Any:
        """One element as a Python scalar: that at an index, or at two; or the only one."""
        index = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if len(index) == 1:
            index = divmod(range(self.size)[index[0]], self.shape[1])
        return self.table.item(*index[::-1])

    def persist(self) -> Self:
        """As of the table."""
        self.table.persist()
        return self

    def explain(self, format: str = "text") -> str:
        """As of the table."""
        text: str = self.table.explain(format)
        return text

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.table.__array__(dtype, copy).T

    def __bytes__(self) -> bytes:
        return bytes(self.__array__())

    def __bool__(self) -> bool:
        return bool(self.table)

    def _repr_html_(self) -> str:
        return as_html(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return as_bundle(self)

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return as_code(self)

    # --- rows ---------------------------------------------------------------------------------

    def pull(self, indices: Any = None) -> npt.NDArray[Any]:
        """The rows at ``indices`` (any order, repeats allowed), of shape ``(m, k)``, or all.

        A program, and one message to each server, of which each has a part of every row.
        """
        if indices is None:
            return np.ascontiguousarray(self.numpy())
        wanted = as_indices(indices, len(self))
        if not len(wanted):
            return np.empty((0, self.shape[1]), self.dtype)
        return np.ascontiguousarray(self[wanted].numpy())

    def push(self, indices: Any, values: Any) -> Self:
        """Add ``values`` to the rows at ``indices``; repeated ones add up. None: to all rows.

        A row for each, or one, or a number: on the client, or of the servers, as in
        ``A.push(i, g[:, None] * B[j])``. Returns the table. Lazy: computed where the columns are.
        """
        where = None if indices is None else as_indices(indices, len(self))
        if where is None:
            added = flipped(addable(self, where, values))
            if np.ndim(added) and len(added) == len(self.table):
                added = self.session.array(added)
            self.table += added
        else:
            join_rows("add", self, where, values)
        return self

    def __iter__(self) -> Iterator[Any]:
        """The rows as vectors on the servers, the columns of the table; lazy."""
        return map(self.copy().__getitem__, range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        exchanged, rank = exchanged_key(key, self.shape)
        found = self.table[exchanged]
        return type(self)(found) if rank == 2 else found

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is int:
            refuse_shuffle(value)
        if isinstance(key, ByColumns) and np.ndim(value) == 0:
            self.table[key.table] = value
            return
        exchanged, rank = exchanged_key(key, self.shape)
        self.table[exchanged] = flipped(value) if rank == 2 else value
