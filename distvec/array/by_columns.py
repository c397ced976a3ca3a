"""A table that is split by columns: what it is, its values, and its rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from distvec.array import printing
from distvec.array.exchanged import flipped
from distvec.array.indexing import as_indices
from distvec.array.values import numpy
from ps_backend.program.types import array_type


class ByColumns(NDArrayOperatorsMixin):
    """Each server has all rows of some columns of ``(n, k)``, as a table of shape ``(k, n)``."""

    __slots__ = ("table",)
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1001
    __iter__ = None
    ndim = 2
    device = "servers"

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

    def copy(self) -> Self:
        """Another handle on the same value: nothing is copied."""
        return type(self)(self.table.copy())

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def astype(self, dtype: Any, copy: bool = True) -> Self:
        """The array in another dtype; lazy."""
        return type(self)(self.table.astype(dtype))

    # --- values -------------------------------------------------------------------------------

    def numpy(self) -> Any:
        """The values, pulled to the client."""
        return numpy(self.table).T

    def tolist(self) -> Any:
        """The values as lists of Python scalars; they are pulled as by ``numpy``."""
        return self.numpy().tolist()

    def item(self) -> Any:
        """The value of an array with one element as a Python scalar."""
        return self.table.item()

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

    def __bool__(self) -> bool:
        return bool(self.table)

    def __str__(self) -> str:
        return printing.as_text(self)

    def __repr__(self) -> str:
        return printing.as_code(self)

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
        table = self.table
        with table.session.holders.lock:
            graph, type = table.session.graph, table.type
            places = graph.client_value(wanted, wanted.dtype)
            row = array_type(type.space, type.dtype, wanted.shape)
            found = table.like(graph.make("take_columns", (table.node, places), row))
        return np.ascontiguousarray(numpy(found).T)

    def push(self, indices: Any, values: Any) -> Self:
        """With None: add ``values`` at all, as ``x += values``. Not at indices of rows."""
        if indices is not None:
            raise TypeError(
                "push: every server has a part of each row of a table that is split by columns; "
                "add to all rows by x += values, or make it by session.space(n), split by rows"
            )
        added = flipped(np.asarray(values))
        if np.ndim(added) and len(added) == len(self.table):
            added = self.session.array(added)
        self.table += added
        return self

    def __getitem__(self, key: Any) -> Any:
        return self if _is_all(key) else self._refuse(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not _is_all(key):
            self._refuse(key)
        self.table[...] = flipped(value)

    def _refuse(self, key: Any) -> Any:
        raise TypeError(
            "indexing of a table that is split by columns is not available; pull rows by "
            "x.pull([3, 5]), or index the table of its columns: x.T[columns], as x.T[3:5].T"
        )


def _is_all(key: Any) -> bool:
    keys = key if isinstance(key, tuple) else (key,)
    return all(one is Ellipsis or (isinstance(one, slice) and one == slice(None)) for one in keys)
