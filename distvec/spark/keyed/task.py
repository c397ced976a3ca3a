"""The task side of a logistic loss over keys: pull what a minibatch needs, and step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distvec.keyed.array import KeyedArray
from distvec.spark.keyed.batches import Floats, KeyedRows, keyed_rows, numbers
from distvec.spark.keyed.progress import Seen
from distvec.spark.rounds.keyed import KeyedContributor
from ps_backend.program.keys import hash_texts

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
