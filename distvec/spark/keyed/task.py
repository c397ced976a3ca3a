"""The task side of a loss over keys: read rows, pull what a minibatch needs, and step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from distvec.keyed.array import KeyedArray
from distvec.spark.rounds.contribute import KeyedContributor
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


BINS = 512
"""Of scores, for the area under the curve: margins from -8 to 8, and what is beyond."""
_MOST_MARGIN = 8.0

SCHEMA = "rows long, weight double, loss double, negative array<double>, positive array<double>"
"""Of ``Seen`` as a DataFrame's row."""


@dataclass(frozen=True)
class Seen:
    """Of some rows: sums, and the histograms of the margins of the two classes."""

    rows: int
    weight: float
    loss: float
    negative: Floats
    positive: Floats

    @classmethod
    def nothing(cls) -> Seen:
        """Of no rows."""
        return cls(0, 0.0, 0.0, np.zeros(BINS), np.zeros(BINS))

    @classmethod
    def of(cls, margins: Floats, labels: Floats, weights: Floats) -> Seen:
        """Of rows with labels 1 and 0, before they were learned from."""
        losses = np.logaddexp(0.0, np.where(labels > 0, -margins, margins))
        place = (margins / _MOST_MARGIN + 1) * (BINS / 2)
        bins = np.clip(place, 0, BINS - 1).astype(np.int64)
        negative, positive = (
            np.bincount(bins, weights * (labels == k), BINS).astype(np.float64) for k in (0, 1)
        )
        sums = float(weights.sum()), float(weights @ losses)
        return cls(len(margins), *sums, negative, positive)

    def __add__(self, other: Seen) -> Seen:
        return Seen(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def mean_loss(self) -> float:
        """The weighted mean of the logistic loss; NaN of no rows."""
        return self.loss / self.weight if self.weight else float("nan")

    @property
    def auc(self) -> float:
        """The area under the ROC curve, scores counted as equal within 1/32; NaN of one class."""
        pairs = self.positive.sum() * self.negative.sum()
        below = np.cumsum(self.negative) - self.negative / 2
        return float(self.positive @ below / pairs) if pairs else float("nan")

    def as_arrow(self) -> pa.RecordBatch:
        """A row of ``SCHEMA``."""
        values = {one.name: [getattr(self, one.name)] for one in fields(self)}
        lists = {"negative", "positive"}
        arrays = {
            name: pa.array([value[0].tolist()], pa.list_(pa.float64()))
            if name in lists
            else pa.array(value)
            for name, value in values.items()
        }
        return pa.RecordBatch.from_pydict(arrays)

    @classmethod
    def of_row(cls, row: Any) -> Seen:
        """Of a row of ``SCHEMA``."""
        return cls(row.rows, row.weight, row.loss, np.array(row.negative), np.array(row.positive))


@dataclass(frozen=True)
class Progress:
    """How a loss over keys is doing, after some rows."""

    rows: int
    """In all, with those that came again."""
    keys: int
    """In the space, the intercept's among them."""
    loss: float
    """The mean over the latest rows, each before it was learned from."""
    auc: float
    """Of the same rows."""
    seconds: float
    """For these rows."""

    def __str__(self) -> str:
        return (
            f"{self.rows:>10,} rows  {self.keys:>10,} keys  loss {self.loss:.4f}  "
            f"AUC {self.auc:.4f}  {self.seconds:.1f} s"
        )


INTERCEPT = int(hash_texts(["distvec: intercept"])[0])
"""The key of the intercept, as of a feature that all rows have."""


@dataclass(frozen=True)
class Reading:
    """Which columns are what, and how rows are taken."""

    keys: tuple[str, ...]
    values: str | None
    label: str
    weight: str | None
    positive: float | None
    intercept: bool
    batch_size: int

    def rows(self, batch: pa.RecordBatch) -> KeyedRows:
        """The rows of an Arrow batch."""
        found = keyed_rows(batch, self.keys, self.values)
        return found.with_key(INTERCEPT) if self.intercept else found

    def labels(self, batch: pa.RecordBatch) -> Floats:
        """1 for what is positive, else 0. ``ValueError`` for labels that are of neither kind."""
        found = numbers(batch, self.label)
        if self.positive is not None:
            return np.where(found == self.positive, 1.0, 0.0)
        known = (found == 1) | (found == 0) | (found == -1)
        if not known.all():
            raise ValueError(
                f"the label {found[~known][0]} is none of 0, 1 and -1; say which is positive: "
                "positive_label="
            )
        return np.where(found > 0, 1.0, 0.0)

    def weights(self, batch: pa.RecordBatch) -> Floats:
        """The weights of the rows."""
        return np.ones(batch.num_rows) if self.weight is None else numbers(batch, self.weight)


@dataclass(frozen=True)
class Pass:
    """A task: once over the rows of a partition, in minibatches.

    Each row is scored before it is learned from. ``steps``: where to these go, the array itself, or
    its contributor in a round; None: nothing is learned.
    """

    reading: Reading
    weights: KeyedArray
    steps: KeyedArray | KeyedContributor | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``: a row with what was seen."""
        seen = Seen.nothing()
        for batch in batches:
            if batch.num_rows:
                seen += self._learn(batch)
        yield seen.as_arrow()

    def _learn(self, batch: pa.RecordBatch) -> Seen:
        reading = self.reading
        labels, weights = reading.labels(batch), reading.weights(batch)
        seen = Seen.nothing()
        for where, rows in reading.rows(batch).pieces(reading.batch_size):
            keys, inverse = np.unique(rows.keys, return_inverse=True)
            row = np.repeat(np.arange(len(rows)), rows.lengths)
            margins = _margins(self.weights.pull(keys), rows, inverse, row)
            seen += Seen.of(margins, labels[where], weights[where])
            if self.steps is not None:
                residual = (probability(margins) - labels[where]) * weights[where]
                each = residual[row] if rows.values is None else residual[row] * rows.values
                self.steps.step(keys, np.bincount(inverse, each, len(keys)))
        return seen


@dataclass(frozen=True)
class Score:
    """A task: adds a column with the probability that a row is positive."""

    reading: Reading
    weights: KeyedArray
    output: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        for batch in batches:
            found = np.empty(batch.num_rows)
            for where, rows in self.reading.rows(batch).pieces(self.reading.batch_size):
                keys, inverse = np.unique(rows.keys, return_inverse=True)
                row = np.repeat(np.arange(len(rows)), rows.lengths)
                found[where] = probability(_margins(self.weights.pull(keys), rows, inverse, row))
            yield batch.append_column(self.output, pa.array(found))


def probability(margins: Floats) -> Floats:
    """``1 / (1 + exp(-m))``, without overflow."""
    return np.exp(-np.logaddexp(0.0, -margins))


def _margins(
    weights: npt.NDArray[Any], rows: KeyedRows, inverse: npt.NDArray[np.intp], row: Any
) -> Floats:
    each = weights[inverse] if rows.values is None else weights[inverse] * rows.values
    return np.asarray(np.bincount(row, each, len(rows)), np.float64)
