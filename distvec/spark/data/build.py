"""The task that reads partitions once: Arrow batches in, files and one small row each out.

Only a ``Descriptor`` of some hundred bytes stays in Spark's cache; each evaluation ships that
instead of the data, and a partition lost with its executor is built again from Spark's lineage.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
from pyspark import TaskContext

from distvec.losses.labels import LabelRule
from distvec.losses.rows import Floats, Ints, Matrix, Rows
from distvec.spark.data.blocks import Block, held_out_path, local_columns, save, scratch_directory
from distvec.spark.data.rows import (
    BadRow,
    DenseRows,
    Digests,
    SparseRows,
    read_features,
    read_numbers,
    read_weights,
    row_digests,
    sizes_differ,
    values_of,
)

T = TypeVar("T")

DESCRIPTOR_SCHEMA = "descriptor string"
"""Of a row that ``encode`` made."""


class Descriptor(NamedTuple):
    """What the driver and later tasks know of a partition; ``error`` says why it has no files.

    ``digest`` is of its rows, in any order: equal for equal rows, and, but for one chance in 2**64,
    for no others. Those of several partitions add up, modulo 2**64. ``layout`` is that of ``Rows``.
    """

    partition: int
    path: str
    rows: int
    nnz: int
    columns: int
    features: int
    weight_sum: float
    labels: list[float]
    error: str | None
    digest: int = 0
    layout: str = ""
    task: int = 0
    """The number of the task that read it, with others perhaps."""
    weight_squares: float = 0.0
    """The sum of the squares of the row weights."""
    label_mean: float = 0.0
    label_squares: float = 0.0
    """The weighted sum of the squares of the labels' differences from their mean."""
    held_out: int = 0
    """How many of the rows do not train. ``weight_sum`` and the moments are those of the others."""

    def encode(self) -> pa.RecordBatch:
        """As one row."""
        text = json.dumps(self).encode()
        # Not by ``pa.array``: it loads pandas, half a second in each new Python worker.
        ends = pa.py_buffer(np.array([0, len(text)], np.int32))
        column = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(text)])
        return pa.RecordBatch.from_arrays([column], names=["descriptor"])

    @classmethod
    def decode(cls, text: str) -> Descriptor:
        """The one that ``encode`` wrote."""
        return cls(*json.loads(text))


Prepare: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Makes the columns of a data set of all rows of a partition, and reads them to the end."""


@dataclass(frozen=True)
class BuildRequest:
    """What a building task must know."""

    dataset: str
    """Its unique name."""
    rule: LabelRule
    dtype: str = "float64"
    """Of the feature values that are kept."""
    order: str = ""
    """How rows lie together: "" in no order, "group" by groups, "time" by labels, ascending."""
    compact: bool = False
    """Whether it is asked later which features occur."""
    names: tuple[str, ...] = ()
    """Of the columns that the features come from, if they are several."""
    with_missing: bool = False
    """Whether features may be NaN."""
    as_table: bool = False
    """Whether the matrix is a table with all features."""
    prepare: Prepare | None = None
    """Whether rows come in other columns, of which it makes those of a data set."""


def _offsets(column: pa.Array) -> Floats:
    return read_numbers(column, "offset")


def _groups(column: pa.Array) -> Ints:
    return read_numbers(column, "group")


def _events(column: pa.Array) -> Floats:
    flags = read_numbers(column, "event")
    return _flags(flags, "the event is {:g}; allowed are 1 (observed) and 0 (censored)")


def _held_out(column: pa.Array) -> Floats:
    flags = read_numbers(column, "held_out")
    return _flags(flags, "held_out is {:g}; allowed are 1 (does not train) and 0 (trains)")


def _flags(flags: Floats, reason: str) -> Floats:
    bad = np.flatnonzero((flags != 0.0) & (flags != 1.0))
    if bad.size:
        raise BadRow(int(bad[0]), reason.format(flags[bad[0]]))
    return flags


_READERS: dict[str, Callable[[pa.Array], npt.NDArray[Any]]] = {
    "weight": read_weights,
    "offset": _offsets,
    "group": _groups,
    "event": _events,
    "held_out": _held_out,
}
"""Of columns that may be there, beside features and label."""

_DENSE_FROM = 0.5
"""Where so much of the matrix is not zero, all of it is kept: products are BLAS's then, and CSR
would take more memory."""

_ALL_FROM = 0.75
"""Of all features: where so many occur, a partition has a column for each. Of a table with many
columns a third more goes over the wire then, at most."""


class Collector:
    """Gathers a partition's batches, checking each row; ``error`` holds the first bad row's."""

    def __init__(
        self,
        partition: int,
        rule: LabelRule,
        order: str = "",
        names: Sequence[str] = (),
        *,
        with_missing: bool = False,
        as_table: bool = False,
    ) -> None:
        self.partition = partition
        self.rule = rule
        self.order = order
        self.names = names
        self.with_missing, self.as_table = with_missing, as_table
        self.error: str | None = None
        self.count = 0
        self.batches: list[SparseRows | DenseRows] = []
        self.labels: list[Floats] = []
        self.along: dict[str, list[Any]] = {}
        self.digests: list[Digests] = []
        self.seen: set[float] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of one batch; after an error the rest is read and ignored."""
        if self.error is not None or batch.num_rows == 0:
            return
        try:
            self._add(batch)
        except BadRow as bad:
            place = f"partition {self.partition}, row {self.count + bad.row}"
            self.error = f"{place}: {bad.reason}"
        self.count += batch.num_rows

    def _add(self, batch: pa.RecordBatch) -> None:
        rows = read_features(batch.column("features"), self.names, with_missing=self.with_missing)
        if self.batches and rows.size != self.batches[0].size:
            raise BadRow(0, sizes_differ(rows.size, self.batches[0].size))
        has_labels = "label" in batch.schema.names
        places = np.arange(self.count, self.count + batch.num_rows, dtype=np.float64)
        labels = read_numbers(batch.column("label"), "label") if has_labels else places
        if (bad := self.rule.first_bad(labels)) is not None:
            raise BadRow(*bad)
        if self.rule.gathers:
            self._learn(labels)
        encoded = self.rule.encode(labels)
        along = {
            name: read(batch.column(name))
            for name, read in _READERS.items()
            if name in batch.schema.names
        }
        self.batches.append(rows)
        self.labels.append(encoded)
        for name, values in along.items():
            self.along.setdefault(name, []).append(values)
        known = (encoded, *along.values()) if has_labels else along.values()
        self.digests.append(row_digests(rows, *known))

    def _learn(self, labels: Floats) -> None:
        values, first = np.unique(labels, return_index=True)
        for value, row in sorted(zip(values.tolist(), first.tolist(), strict=True), key=_second):
            reason = self.rule.unusable(value, self.seen)
            if reason is not None:
                raise BadRow(row, reason)
            self.seen.add(value)

    def blocks(self, dtype: str = "float64", *, compact: bool = True) -> tuple[Block, Block | None]:
        """All rows over the coordinates they touch, and those that are held out, if there is such a
        column; ``dtype`` of the matrix's values.

        Unless ``compact`` they are over all where they touch most: arrays are then pulled and
        pushed as they are, without picking coordinates out.

        The rows are in the order of their digests: Spark may give them in another one when it
        computes the partition again, and sums are to have the same bits. Where they have to lie
        together, their digests say the order among equals.
        """
        labels = np.concatenate(self.labels)
        along = {name: np.concatenate(parts) for name, parts in self.along.items()}
        keys: list[npt.NDArray[Any]] = [np.concatenate(self.digests)]  # the last one counts first
        if self.order:
            keys.append(along["group"] if self.order == "group" else labels)
        held_out = along.pop("held_out", None)
        if held_out is not None:
            keys.append(held_out)
        order = np.lexsort(keys)
        ordered: dict[str, Any] = {f"{name}s": values[order] for name, values in along.items()}
        columns, matrix = self._dense(dtype, compact, order) or self._matrix(dtype, compact, order)
        rows = Rows(matrix, labels[order], **ordered)
        held = None
        if held_out is not None:
            count = len(rows) - int(held_out.sum())
            rows, held = rows[:count], Block(columns, rows[count:])
        return Block(columns, rows if self._has_entries else rows.for_many_products()), held

    @property
    def nnz(self) -> int:
        """How many elements are not zero."""
        return sum(rows.nnz for rows in self.batches)

    @property
    def _has_entries(self) -> bool:
        """Whether zeros and repetitions count, so that the matrix stays as it is."""
        first = self.batches[0]
        return isinstance(first, SparseRows) and first.are_entries

    def _dense(self, dtype: str, compact: bool, order: Ints) -> tuple[Ints, Matrix] | None:
        """The coordinates, and the rows over them in that order; None if CSR is to be made."""
        tables = [rows.matrix for rows in self.batches if isinstance(rows, DenseRows)]
        if len(tables) < len(self.batches):
            return None
        size, nnz = tables[0].shape[1], self.nnz
        touched = np.ones(size, bool)
        if nnz < self.count * size and not self.as_table:
            touched = np.any([(table != 0.0).any(axis=0) for table in tables], axis=0)
        width = np.count_nonzero(touched)
        if not self.as_table and (not nnz or nnz < _DENSE_FROM * self.count * width):
            return None
        columns = np.flatnonzero(touched)
        if not compact and width >= _ALL_FROM * size:
            columns = np.arange(size)
        matrix, place, start = np.empty((self.count, columns.size), dtype), np.argsort(order), 0
        for table in tables:
            chosen = table if columns.size == size else table[:, columns]
            matrix[place[start : start + len(table)]] = chosen
            start += len(table)
        return columns, matrix

    def _matrix(self, dtype: str, compact: bool, order: Ints) -> tuple[Ints, Matrix]:
        """The same of rows that are sparse, or some of which are."""
        batches = [rows.as_sparse() for rows in self.batches]
        lengths = np.concatenate([rows.lengths for rows in batches])
        indices = np.concatenate([rows.indices for rows in batches])
        values = np.concatenate([rows.values for rows in batches], dtype=dtype)
        size = batches[0].size
        columns, local = local_columns(indices, size)
        if self.as_table or (not compact and columns.size >= _ALL_FROM * size):
            columns, local = np.arange(size), indices
        # SciPy wants one index type for both arrays and would copy otherwise.
        index_type = np.int32 if values.size < np.iinfo(np.int32).max else np.int64
        indptr = np.concatenate(([0], np.cumsum(lengths))).astype(index_type)
        matrix = sp.csr_array(
            (values, local.astype(index_type, copy=False), indptr),
            shape=(self.count, columns.size),
        )
        is_dense = values.size and values.size >= _DENSE_FROM * self.count * columns.size
        if self.as_table or (is_dense and not self._has_entries):
            return columns, matrix.toarray()[order]
        return columns, matrix[order]

    @property
    def digest(self) -> int:
        """That of all rows, as int64."""
        total = np.sum([batch.sum(dtype=np.uint64) for batch in self.digests], dtype=np.uint64)
        return int(total.astype(np.int64))


def build(request: BuildRequest, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task for ``mapInArrow``: write the files of each partition, yield its Descriptor.

    Bad rows do not raise here: Spark would retry them and bury the reason in a Java trace. The
    input is read to its end in any case, or Spark would throw the Python worker away.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("build runs inside a Spark task; use Objective on the driver")
    known = request.rule, request.order, request.names
    parts = chain.from_iterable(map(_by_partition, batches))
    for partition, pairs in groupby(parts, key=itemgetter(0)):
        collector = Collector(
            partition, *known, with_missing=request.with_missing, as_table=request.as_table
        )
        rows = map(_second, pairs)
        for batch in rows if request.prepare is None else request.prepare(rows):
            collector.add(batch)
        yield _finish(collector, request, context).encode()


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each partition in turn, which lie together."""
    if not batch.num_rows:
        return
    numbers = values_of(batch.column("partition"))
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), numbers.size]
    for start, end in pairwise(starts):
        yield int(numbers[start]), batch.slice(start, end - start)


def _finish(collector: Collector, request: BuildRequest, context: TaskContext) -> Descriptor:
    partition, task = collector.partition, context.partitionId()
    if collector.error is not None:
        return Descriptor(partition, "", 0, 0, 0, 0, 0.0, [], collector.error, task=task)
    block, held_out = collector.blocks(request.dtype, compact=request.compact)
    # Two copies of one task must not write the same files.
    name = f"{partition}-{context.taskAttemptId()}-{uuid.uuid4().hex}"
    path = os.path.join(scratch_directory(), request.dataset, name)
    save(block, path)
    if held_out is not None:
        save(held_out, held_out_path(path))
    return Descriptor(
        partition,
        path,
        rows=collector.count,
        nnz=collector.nnz,
        columns=block.columns.size,
        features=collector.batches[0].size,
        weight_sum=block.rows.weight_sum,
        labels=sorted(collector.seen),
        error=None,
        digest=collector.digest,
        layout=block.rows.layout,
        task=task,
        **_label_moments(block.rows),
        held_out=0 if held_out is None else len(held_out.rows),
    )


def _label_moments(rows: Rows) -> dict[str, float]:
    """The fields of a ``Descriptor`` about labels and weights."""
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    total = float(weights.sum())
    with np.errstate(over="ignore"):  # of huge labels, whose moments are infinite
        mean = float(weights @ rows.labels) / total if total > 0.0 else 0.0
        squares = float(weights @ np.square(rows.labels - mean))
    return {
        "weight_squares": float(weights @ weights),
        "label_mean": mean,
        "label_squares": squares,
    }


def _second(pair: tuple[Any, T]) -> T:
    return pair[1]
