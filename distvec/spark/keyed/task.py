"""The task side of an objective over keys: pull what a minibatch needs, and step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyspark import TaskContext

from distvec.keyed.array import KeyedArray
from distvec.losses.labels import LabelRule, classes
from distvec.losses.loss import PROBABILITIES, Arrays, Loss, predict
from distvec.losses.rows import Floats, Ints, Rows
from distvec.objectives.keyed_machine import INTERCEPT
from distvec.spark.data.rows import BadRow, keyed_rows, read_numbers, read_weights
from distvec.spark.jobs.failures import Failure
from distvec.spark.rounds.contribute import KeyedContributor
from ps_backend.errors import ServerLost

_BINS = 512
"""Of margins, for the area under the curve: from -8 to 8, and those beyond."""
_MOST_MARGIN = 8.0

SCHEMA = (
    "rows long, weight double, loss double, negative array<double>, positive array<double>, "
    "error string, failure string"
)
"""Of ``PassStatistics`` as a DataFrame's row."""


@dataclass(frozen=True)
class PassStatistics:
    """Of some rows: sums, and the histograms of the margins of the two classes, if so many."""

    rows: int
    weight: float
    loss: float
    negative: Floats
    positive: Floats
    error: str = ""
    """The place of a row that cannot be used, and why."""
    failure: str = ""
    """The loss of a server, as ``Failure`` writes it."""

    @classmethod
    def zero(cls) -> PassStatistics:
        """Of no rows."""
        return cls(0, 0.0, 0.0, np.zeros(_BINS), np.zeros(_BINS))

    @classmethod
    def of(cls, rows: Rows, loss: float, margins: Floats, *, signs: bool) -> PassStatistics:
        """Of rows with that sum of losses; ``signs``: their labels are 1 and -1."""
        negative = positive = np.zeros(_BINS)
        if signs:
            place = (margins / _MOST_MARGIN + 1) * (_BINS / 2)
            bins = np.clip(place, 0, _BINS - 1).astype(np.int64)
            weights = np.ones(len(rows)) if rows.weights is None else rows.weights
            negative, positive = (
                np.bincount(bins, weights * (rows.labels == k), _BINS).astype(np.float64)
                for k in (-1, 1)
            )
        return cls(len(rows), rows.weight_sum, loss, negative, positive)

    def __add__(self, other: PassStatistics) -> PassStatistics:
        return PassStatistics(
            self.rows + other.rows,
            self.weight + other.weight,
            self.loss + other.loss,
            self.negative + other.negative,
            self.positive + other.positive,
            self.error or other.error,
            self.failure or other.failure,
        )

    @property
    def mean_loss(self) -> float:
        """The weighted mean of the losses; NaN of no rows."""
        return self.loss / self.weight if self.weight else float("nan")

    @property
    def auc(self) -> float:
        """The area under the ROC curve, margins counted as equal within 1/32; NaN of one class."""
        pairs = self.positive.sum() * self.negative.sum()
        below = np.cumsum(self.negative) - self.negative / 2
        return float(self.positive @ below / pairs) if pairs else float("nan")

    def as_arrow(self) -> pa.RecordBatch:
        """A row of ``SCHEMA``."""
        sums = {name: pa.array([getattr(self, name)]) for name in ("rows", "weight", "loss")}
        bins = {
            name: pa.array([getattr(self, name).tolist()], pa.list_(pa.float64()))
            for name in ("negative", "positive")
        }
        texts = {name: pa.array([getattr(self, name)]) for name in ("error", "failure")}
        return pa.RecordBatch.from_pydict(sums | bins | texts)

    @classmethod
    def of_row(cls, row: Any) -> PassStatistics:
        """Of a row of ``SCHEMA``."""
        histograms = np.array(row.negative), np.array(row.positive)
        return cls(row.rows, row.weight, row.loss, *histograms, row.error, row.failure)


@dataclass(frozen=True)
class Reading:
    """Which columns are what, and how rows are taken."""

    keys: tuple[str, ...]
    values: str | None
    label: str
    weight: str | None
    rule: LabelRule
    intercept: bool
    batch_size: int

    def minibatches(
        self, batch: pa.RecordBatch, *, labelled: bool = True
    ) -> Iterator[tuple[Ints, Rows]]:
        """The different keys of some rows, ascending, and the rows, with a column for each key."""
        rows = keyed_rows(batch, self.keys, self.values)
        if self.intercept:
            rows = rows.with_key(INTERCEPT)
        labels = self.labels(batch) if labelled else np.zeros(batch.num_rows)
        weights = None
        if labelled and self.weight is not None:
            weights = read_weights(batch.column(self.weight).cast(pa.float64()))
        ends = np.concatenate([[0], np.cumsum(rows.lengths)])
        for low in range(0, batch.num_rows, self.batch_size):
            part = slice(low, min(low + self.batch_size, batch.num_rows))
            some = slice(ends[part.start], ends[part.stop])
            keys, columns = np.unique(rows.keys[some], return_inverse=True)
            parts = (rows.values[some], columns, ends[low : part.stop + 1] - ends[low])
            matrix = sp.csr_array(parts, shape=(part.stop - low, keys.size))
            yield keys, Rows(matrix, labels[part], None if weights is None else weights[part])

    def labels(self, batch: pa.RecordBatch) -> Floats:
        """As the loss sees them. ``BadRow`` for a label that it does not take."""
        labels = read_numbers(batch.column(self.label).cast(pa.float64()), "label")
        if (bad := self.rule.first_bad(labels)) is not None:
            raise BadRow(*bad)
        if self.rule.gathers:  # in a stream another label may come at any time: each by itself
            values, first = np.unique(labels, return_index=True)
            for value, row in zip(values.tolist(), first.tolist(), strict=True):
                if (reason := self.rule.unusable(value, ())) is not None:
                    raise BadRow(row, reason)
        return self.rule.encode(labels)


class Parameters(Protocol):
    """The arrays over keys that a loss depends on, such as a ``KeyedMachine``."""

    def pull(self, keys: Ints) -> Arrays:
        """The rows of keys."""

    def step(self, keys: Ints, rows: Rows, gradients: Arrays, to: Any = None) -> None:
        """Take a step, immediately or by a contributor ``to`` a round."""


@dataclass(frozen=True)
class KeyedWeights:
    """``Parameters`` that are one vector with an optimizer."""

    weights: KeyedArray

    def pull(self, keys: Ints) -> Arrays:
        """The weights of keys."""
        return (self.weights.pull(keys),)

    def step(self, keys: Ints, rows: Rows, gradients: Arrays, to: Any = None) -> None:
        """A step of the optimizer."""
        (self.weights if to is None else to).step(keys, gradients[0])


@dataclass(frozen=True)
class Pass:
    """A task: once over the rows of a partition, in minibatches.

    Each row is scored before it is learned from. ``round``: whose end the steps wait for, by its
    contributor; None: they are taken immediately. Without ``learns`` there are none.
    """

    reading: Reading
    loss: Loss
    parameters: Parameters
    round: KeyedContributor | None
    learns: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``: a row with the statistics.

        After a row that cannot be used, or the loss of a server, which Spark would bury in a Java
        trace, the rest is read and ignored.
        """
        found, count = PassStatistics.zero(), 0
        for batch in batches:
            try:
                if not (found.error or found.failure):
                    found += self._learn(batch)
            except BadRow as bad:
                place = f"partition {_partition()}, row {count + bad.row}"
                found = replace(found, error=f"{place}: {bad.reason}")
            except ServerLost as lost:
                found = replace(found, failure=Failure.of(_partition(), lost).as_text())
            count += batch.num_rows
        yield found.as_arrow()

    def _learn(self, batch: pa.RecordBatch) -> PassStatistics:
        found, signs = PassStatistics.zero(), self.loss.labels == "signs"
        for keys, rows in self.reading.minibatches(batch):
            arrays = self.parameters.pull(keys)
            margins = np.zeros(len(rows))
            if signs:
                margins = self.loss.scores(rows, arrays, intercept=False)
            sums = self.loss.sums(rows, arrays, intercept=False)
            found += PassStatistics.of(rows, sums.value, margins, signs=signs)
            if self.learns:
                self.parameters.step(keys, rows, sums.gradients, self.round)
        return found


def _partition() -> int:
    """The number of that whose task this is."""
    context: Any = TaskContext.get()
    return int(context.partitionId())


@dataclass(frozen=True)
class Score:
    """A task: adds a column with the answers of the model to ``what``."""

    reading: Reading
    loss: Loss
    parameters: Parameters
    what: str
    output: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``."""
        labels = classes(self.reading.rule, ()) or (-1.0, 1.0)
        for batch in batches:
            found = []
            for keys, rows in self.reading.minibatches(batch, labelled=False):
                arrays = self.parameters.pull(keys)
                scores = self.loss.scores(rows, arrays, intercept=False)
                found.append(predict(self.what, self.loss, labels, scores))
            values = np.concatenate(found) if found else np.zeros(0)
            column = pa.array(values.ravel())
            if self.what == PROBABILITIES:  # two numbers a row
                ends = pa.array(np.arange(batch.num_rows + 1, dtype=np.int32) * 2)
                column = pa.ListArray.from_arrays(ends, column)
            yield batch.append_column(self.output, column)
