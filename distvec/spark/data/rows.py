"""Arrow columns of a DataFrame to NumPy rows, without one Python object a row; and their digests.

Spark 4.3 sends ``VectorUDT`` as ``struct<type: int8, size: int32, indices: list<int32>, values:
list<double>>``, type 0 sparse and 1 dense, and ``array<double>`` as ``list<double>``. Both become a
table if all rows are dense, else CSR rows in global coordinates. Entries, such as ratings, have a
struct without ``type``; zeros and repetitions count among them. What cannot be used raises
``BadRow`` with the row's number in its batch.

Spark promises the rows of a partition, not their order, and not always which partition they are in:
by their digests rows get an order, and a partition that was computed again is known again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp

from distvec.losses.rows import Floats, Ints, Matrix
from ps_backend.program.keys import hash_texts


class BadRow(ValueError):
    """A row that cannot be used: ``row`` counts from the start of the batch."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


class SparseRows(NamedTuple):
    """Rows of one batch: ``lengths`` non-zeros a row, global ``indices`` and ``values`` of all."""

    size: int
    lengths: Ints
    indices: npt.NDArray[np.int32]
    values: Floats
    are_entries: bool = False
    """Whether zeros and repetitions count."""

    @property
    def nnz(self) -> int:
        """How many elements are not zero."""
        return self.values.size

    @property
    def matrix(self) -> Matrix:
        """The rows over all features."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        parts = (self.values, self.indices, ends)
        return sp.csr_array(parts, shape=(self.lengths.size, self.size))

    def as_sparse(self) -> SparseRows:
        """These rows."""
        return self


class DenseRows(NamedTuple):
    """Rows of one batch as a table, which has zeros, too."""

    matrix: Floats

    @property
    def size(self) -> int:
        """The number of features."""
        return int(self.matrix.shape[1])

    @property
    def nnz(self) -> int:
        """How many elements are not zero."""
        return int(np.count_nonzero(self.matrix))

    def as_sparse(self) -> SparseRows:
        """The same rows without zeros."""
        count, size = self.matrix.shape
        lengths = np.full(count, size, np.int64)
        indices = np.tile(np.arange(size, dtype=np.int32), count)
        return _without_zeros(SparseRows(size, lengths, indices, self.matrix.ravel()))


def values_of(column: pa.Array) -> npt.NDArray[Any]:
    """The numbers of a column; for nulls any numbers.

    Not ``column.to_numpy()``, which loads pandas: half a second in each new Python worker.
    """
    if not len(column):
        return np.empty(0, column.type.to_pandas_dtype())
    parts = [None, column.buffers()[1]]
    plain = pa.Array.from_buffers(column.type, len(column), parts, offset=column.offset)
    return np.from_dlpack(plain)


def entry_rows(
    labels: Ints, starts: Ints, size: int, indices: Ints, values: Floats
) -> pa.RecordBatch:
    """A batch of rows whose zeros and repetitions count, such as those of ratings.

    Row ``k`` has the entries from ``starts[k]`` to ``starts[k + 1]``, of ``size`` features.
    """
    ends = pa.array(starts.astype(np.int32))
    each = pa.array(np.full(labels.size, size, np.int32))
    lists = (
        pa.ListArray.from_arrays(ends, pa.array(one)) for one in (indices.astype(np.int32), values)
    )
    features = pa.StructArray.from_arrays([each, *lists], ["size", "indices", "values"])
    numbers = pa.array(labels.astype(np.float64))
    return pa.RecordBatch.from_arrays([numbers, features], ["label", "features"])


def read_features(
    column: pa.Array, names: Sequence[str] = (), *, with_missing: bool = False
) -> SparseRows | DenseRows:
    """The rows of a feature column: a table if all are dense, else CSR rows without zeros.

    Entries keep their zeros. A batch must have a row. ``names``: of the columns that the features
    come from, for messages. ``with_missing`` allows NaN, and null, which becomes NaN.
    """
    _refuse_null(column, "the features are null; drop such rows: data.dropna()")
    is_struct = pa.types.is_struct(column.type)
    if is_struct and column.type.get_field_index("type") < 0:
        size, indices, values = column.flatten()
        parts = _lengths(values), values_of(indices.flatten()), values_of(values.flatten())
        return SparseRows(size[0].as_py(), *parts, are_entries=True)
    if is_struct:
        kind, size, indices, values = column.flatten()
        sparse = values_of(kind) == 0
        lengths = _lengths(values)
        sizes = np.where(sparse, values_of(size), lengths)
    else:
        indices, values = None, column
        lengths = sizes = _lengths(values)
        sparse = np.zeros(lengths.size, dtype=bool)
    flat = values.flatten()
    if with_missing and flat.null_count:
        flat = flat.fill_null(math.nan)
    else:
        _refuse_null_elements(flat, lengths, names)
    numbers = values_of(flat)
    _refuse_other_sizes(sizes)
    is_bad = np.isinf(numbers) if with_missing else ~np.isfinite(numbers)
    if not sparse.any() and not is_bad.any():
        return DenseRows(numbers.reshape(sizes.size, int(sizes[0])))
    coordinates = _coordinates(sparse, lengths, indices)
    _refuse_not_finite(numbers, is_bad, lengths, coordinates, names)
    return _without_zeros(SparseRows(int(sizes[0]), lengths, coordinates, numbers))


class KeyedRows(NamedTuple):
    """Rows of one batch with a key for each of their non-zeros: ``lengths`` of them a row."""

    lengths: Ints
    keys: Ints
    values: Floats

    def with_key(self, key: int) -> KeyedRows:
        """The rows with one more non-zero each, 1 at ``key``, before the others."""
        starts = np.cumsum(self.lengths) - self.lengths
        keys, values = np.insert(self.keys, starts, key), np.insert(self.values, starts, 1.0)
        return KeyedRows(self.lengths + 1, keys, values)


def keyed_rows(batch: pa.RecordBatch, names: Sequence[str], values: str | None) -> KeyedRows:
    """The rows of a batch whose features are keys.

    ``names``: one column of lists, of integers or texts, which are hashed, with ``values`` in
    another one, or all 1; or several columns with a key in each row, the text "name=value".
    """
    first = batch.column(names[0])
    if len(names) > 1 or not (pa.types.is_list(first.type) or pa.types.is_large_list(first.type)):
        return _keys_of_columns(batch, names)
    lengths, flat = _flatten(first, names[0])
    is_number = pa.types.is_integer(flat.type)
    keys = _int64(flat) if is_number else hash_texts(flat.cast(pa.string()).to_pylist())
    if values is None:
        return KeyedRows(lengths, keys, np.ones(keys.size))
    counts, numbers = _flatten(batch.column(values), values)
    other = np.flatnonzero(counts != lengths)
    if other.size:
        reason = f"rows have other numbers of {values} than of {names[0]}; give one a key"
        raise BadRow(int(other[0]), reason)
    found: Floats = numbers.cast(pa.float64()).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~np.isfinite(found))
    if bad.size:
        reason = f"{values} has {found[bad[0]]}; values are finite: drop such rows, or fill them"
        raise BadRow(_row_of(int(bad[0]), lengths), reason)
    return KeyedRows(lengths, keys, found)


def _keys_of_columns(batch: pa.RecordBatch, names: Sequence[str]) -> KeyedRows:
    keys = np.empty((batch.num_rows, len(names)), np.int64)
    for k, name in enumerate(names):
        column = batch.column(name)
        _refuse_null(column, f"the column {name} has nulls; drop such rows: data.dropna()")
        texts = pc.binary_join_element_wise(name, column.cast(pa.string()), "=")
        keys[:, k] = hash_texts(texts.to_pylist())
    return KeyedRows(np.full(batch.num_rows, len(names)), keys.ravel(), np.ones(keys.size))


def _flatten(lists: pa.Array, name: str) -> tuple[Ints, pa.Array]:
    """The lengths of lists, and what is in them."""
    reason = f"the column {name} has nulls; drop such rows: data.dropna()"
    _refuse_null(lists, reason)
    flat, lengths = lists.flatten(), _lengths(lists)
    if flat.null_count:
        place = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False)))
        raise BadRow(_row_of(place, lengths), reason)
    return lengths, flat


def _int64(flat: pa.Array) -> Ints:
    return np.asarray(flat.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def read_numbers(column: pa.Array, name: str) -> npt.NDArray[Any]:
    """A column of numbers as they are, such as labels; null and NaN are refused."""
    _refuse_null(column, f"the {name} is null; drop such rows: data.dropna()")
    numbers = values_of(column)
    _refuse_where(np.isnan(numbers), numbers, f"the {name} is nan; drop such rows: data.dropna()")
    reason = (
        f"the {name} is {{}}; it must be finite: mend such rows, or keep the others by "
        f"data.where(abs({name}) < float('inf')), abs of pyspark.sql.functions"
    )
    _refuse_where(np.isinf(numbers), numbers, reason)
    return numbers


def read_weights(column: pa.Array) -> Floats:
    """Row weights: finite and not negative."""
    _refuse_null(column, "the weight is null; drop such rows, or give them one: data.fillna(1.0)")
    weights: Floats = values_of(column)
    _refuse_where(
        ~((weights >= 0.0) & np.isfinite(weights)),
        weights,
        "the weight is {}; weights are finite and 0 or more",
    )
    return weights


def _lengths(lists: pa.ListArray) -> Ints:
    lengths = pc.list_value_length(lists)
    return np.asarray(values_of(lengths.fill_null(0) if lengths.null_count else lengths), np.int64)


def _coordinates(
    sparse: npt.NDArray[np.bool_], lengths: Ints, indices: pa.ListArray | None
) -> npt.NDArray[np.int32]:
    """The stored indices of sparse rows; 0, 1, 2, ... for dense ones, which store none."""
    if indices is not None and sparse.all():
        stored: npt.NDArray[np.int32] = values_of(indices.flatten())
        return stored
    starts = np.cumsum(lengths) - lengths
    coordinates = np.arange(lengths.sum(), dtype=np.int64) - np.repeat(starts, lengths)
    result = coordinates.astype(np.int32)
    if indices is not None:
        result[np.repeat(sparse, lengths)] = values_of(indices.flatten())
    return result


def _without_zeros(rows: SparseRows) -> SparseRows:
    """A stored zero adds nothing to a margin or a gradient but would be pulled and pushed."""
    keep = rows.values != 0.0
    if keep.all():
        return rows
    ends = np.concatenate(([0], np.cumsum(keep)))[np.cumsum(rows.lengths)]
    lengths = np.diff(ends, prepend=0)
    return SparseRows(rows.size, lengths, rows.indices[keep], rows.values[keep])


def _row_of(position: int, lengths: Ints) -> int:
    return int(np.searchsorted(np.cumsum(lengths), position, side="right"))


def _refuse_null(column: pa.Array, reason: str) -> None:
    if column.null_count:
        raise BadRow(int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))), reason)


def _refuse_null_elements(flat: pa.Array, lengths: Ints, names: Sequence[str]) -> None:
    if flat.null_count:
        position = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False)))
        row = _row_of(position, lengths)
        feature = _feature_name(position - int(lengths[:row].sum()), names)
        how = ": data.dropna(), data.fillna(0.0)" if names else " before they are put together"
        raise BadRow(row, f"{feature} is null; drop such rows, or fill them{how}")


def _feature_name(feature: int, names: Sequence[str]) -> str:
    return f"feature {feature}" + (f", the column {names[feature]!r}," if names else "")


def _refuse_where(bad: npt.NDArray[np.bool_], numbers: Floats, reason: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise BadRow(row, reason.format(float(numbers[row])))


def _refuse_other_sizes(sizes: Ints) -> None:
    other = sizes != sizes[0]
    if other.any():
        row = int(np.argmax(other))
        raise BadRow(row, sizes_differ(int(sizes[row]), int(sizes[0])))


def _refuse_not_finite(
    numbers: Floats,
    bad: npt.NDArray[np.bool_],
    lengths: Ints,
    coordinates: npt.NDArray[np.int32],
    names: Sequence[str],
) -> None:
    if bad.any():
        position = int(np.argmax(bad))
        feature, value = _feature_name(int(coordinates[position]), names), numbers[position]
        how = "such rows, or fill them (pyspark.ml.feature.Imputer)"
        reason = f"{feature} is {value}; features are finite: drop {how}"
        raise BadRow(_row_of(position, lengths), reason)


def sizes_differ(size: int, other: int) -> str:
    """The sentence for two rows of different length; the driver says it of two partitions."""
    return f"it has {size} features where rows before it have {other}; all must agree"


Digests = npt.NDArray[np.uint64]

# Of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

_CACHED_ELEMENTS = 1 << 14


def row_digests(rows: SparseRows | DenseRows, *columns: npt.NDArray[Any]) -> Digests:
    """Shape ``(rows,)``: of each row's features in any order, and of its number in each column."""
    found = _dense_sums(rows.matrix) if isinstance(rows, DenseRows) else _sparse_sums(rows)
    for column in columns:
        found = _mix(found * _GOLDEN + _bits(column))
    return found


def _sparse_sums(rows: SparseRows) -> Digests:
    places = np.add(rows.indices, 1, dtype=np.int64).view(np.uint64)
    elements = _element_digests(places * _GOLDEN, _bits(rows.values))
    found, filled = np.zeros(rows.lengths.size, np.uint64), rows.lengths > 0
    if filled.any():
        starts = np.cumsum(rows.lengths) - rows.lengths
        found[filled] = np.add.reduceat(elements, starts[filled])
    return found


def _dense_sums(table: Floats) -> Digests:
    """The same as of sparse rows; some rows at a time, which the cache holds."""
    count, size = table.shape
    places = np.arange(1, size + 1, dtype=np.uint64) * _GOLDEN
    found = np.empty(count, np.uint64)
    step = max(1, _CACHED_ELEMENTS // max(1, size))
    for start in range(0, count, step):
        part = table[start : start + step]
        elements = _element_digests(places, _bits(part))
        if not part.all():
            elements[part == 0.0] = 0
        elements.sum(axis=1, out=found[start : start + step])
    return found


def _element_digests(places: Digests, values: Digests) -> Digests:
    elements = places + values
    elements ^= elements >> np.uint64(32)
    elements *= _FIRST
    elements ^= elements >> np.uint64(29)
    return elements


def _bits(values: npt.NDArray[Any]) -> Digests:
    """Of numbers of 8 bytes."""
    return np.ascontiguousarray(values).view(np.uint64)


def _mix(numbers: Digests) -> Digests:
    """A bijection in which each bit of a number depends on all; overwrites its argument."""
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= factor
    numbers ^= numbers >> np.uint64(31)
    return numbers
