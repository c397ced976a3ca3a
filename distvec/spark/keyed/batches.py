"""Arrow columns with keys as rows in NumPy, without one Python object a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ps_backend.program.keys import hash_texts

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyedRows:
    """Rows with a key for each of their non-zeros: ``lengths`` of them a row."""

    lengths: Ints
    keys: Ints
    values: Floats | None
    """None: all are 1."""

    def __len__(self) -> int:
        return len(self.lengths)

    def pieces(self, size: int) -> Iterator[tuple[slice, KeyedRows]]:
        """At most ``size`` rows at a time, and which these are."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        for low in range(0, len(self), size):
            rows = slice(low, min(low + size, len(self)))
            some = slice(ends[rows.start], ends[rows.stop])
            values = None if self.values is None else self.values[some]
            yield rows, KeyedRows(self.lengths[rows], self.keys[some], values)

    def with_key(self, key: int) -> KeyedRows:
        """The rows with one more non-zero each, 1 at ``key``, before the others."""
        starts = np.cumsum(self.lengths) - self.lengths
        values = None if self.values is None else np.insert(self.values, starts, 1.0)
        return KeyedRows(self.lengths + 1, np.insert(self.keys, starts, key), values)


def keyed_rows(batch: pa.RecordBatch, names: tuple[str, ...], values: str | None) -> KeyedRows:
    """The rows of a batch. ``names``: one column of lists, of integers or texts; or several columns
    with a key in each row, the text "name=value". ``ValueError`` for nulls, and values that do not
    go with the keys.
    """
    if len(names) > 1 or not _is_list(batch.column(names[0]).type):
        return _named(batch, names)
    lists = batch.column(names[0])
    _refuse_null(lists, names[0])
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = lists.flatten()
    _refuse_null(flat, names[0])
    is_number = pa.types.is_integer(flat.type)
    keys = _int64(flat) if is_number else hash_texts(flat.cast(pa.string()).to_pylist())
    if values is None:
        return KeyedRows(lengths, keys, None)
    column = batch.column(values)
    _refuse_null(column, values)
    numbers = column.flatten()
    _refuse_null(numbers, values)
    if not np.array_equal(pc.list_value_length(column).to_numpy(zero_copy_only=False), lengths):
        raise ValueError(f"rows have other numbers of {values} than of {names[0]}; give one a key")
    return KeyedRows(lengths, keys, numbers.cast(pa.float64()).to_numpy(zero_copy_only=False))


def _named(batch: pa.RecordBatch, names: tuple[str, ...]) -> KeyedRows:
    texts = []
    for name in names:
        column = batch.column(name)
        _refuse_null(column, name)
        texts.append(pc.binary_join_element_wise(name, column.cast(pa.string()), "="))
    keys = np.empty((batch.num_rows, len(names)), np.int64)
    for k, column in enumerate(texts):
        keys[:, k] = hash_texts(column.to_pylist())
    return KeyedRows(np.full(batch.num_rows, len(names)), keys.ravel(), None)


def numbers(batch: pa.RecordBatch, name: str) -> Floats:
    """A column of finite numbers; ``ValueError`` for others."""
    column = batch.column(name)
    _refuse_null(column, name)
    found: Any = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if not np.isfinite(found).all():
        raise ValueError(f"the column {name} has values that are not finite")
    return np.asarray(found, np.float64)


def _int64(flat: pa.Array) -> Ints:
    return np.asarray(flat.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _is_list(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type))


def _refuse_null(column: pa.Array, name: str) -> None:
    if column.null_count:
        raise ValueError(f"the column {name} has nulls; drop such rows: data.dropna()")
