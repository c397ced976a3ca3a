"""What was seen of rows: how many, how well they were predicted before they were learned from."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]

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
