"""Sums that metrics of several models need, in one pass over the rows of a DataFrame."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from distvec.losses.rows import Floats, Rows
from distvec.spark.data.columns import Columns, select_columns
from distvec.spark.data.rows import BadRow, read_features, read_numbers, read_weights
from distvec.spark.jobs.interpreter import use_driver_python

CURVE, CLASSES, NUMBERS = "curve", "classes", "numbers"
"""Sums of weights by score, for labels above 1/2 and for others; by label and prediction; and
moments of labels, predictions and errors."""

_MOST_SCORES = 1 << 15
"""Of a partition; of more distinct ones, neighbors are joined."""


@dataclass(frozen=True)
class Decision:
    """How the margins of a model become predictions.

    With a ``threshold``, margins above it are of class 1. With ``factors``, the class is that of
    the largest probability times its factor; they are empty if the largest margin decides. Without
    both, the margin is the prediction.
    """

    threshold: float | None = None
    factors: tuple[float, ...] | None = None

    def predictions(self, margins: Floats) -> Floats:
        """Of margins, ``(rows,)``, or ``(rows, classes)`` with factors."""
        if self.threshold is not None:
            return np.asarray(margins > self.threshold, np.float64)
        if self.factors is None:
            return margins
        if self.factors:
            terms = np.exp(margins - margins.max(axis=1, keepdims=True))
            margins = terms / terms.sum(axis=1, keepdims=True) * np.array(self.factors)
        return np.asarray(margins.argmax(axis=1), np.float64)


@dataclass(frozen=True)
class Candidates:
    """Models over the same features: a table with their coefficients side by side."""

    table: Floats
    """``(features + 1, columns)``; the last row has intercepts."""
    widths: tuple[int, ...]
    """How many columns each model has; 0 stands for one, with margins ``(rows,)``."""
    decisions: tuple[Decision, ...]


def collect_sums(data: DataFrame, columns: Columns, models: Candidates, kind: str) -> list[Floats]:
    """For each model a table of sums of that kind. One Spark job; ``ValueError`` for a bad row."""
    rows = select_columns(data, columns)
    use_driver_python(data)
    task = partial(_sums_of_rows, models, kind, columns.feature_names)
    found = [pickle.loads(row[0]) for row in rows.mapInArrow(task, "sums binary").collect()]
    for one in found:
        if isinstance(one, str):
            raise ValueError(one)
    return [_merged(kind, [one[k] for one in found if one]) for k in range(len(models.decisions))]


def _sums_of_rows(
    models: Candidates, kind: str, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The task: a row with a table for each model, or with the reason why it failed."""
    parts: list[list[tuple[Floats, Floats, Floats]]] = [[] for _ in models.decisions]
    said: Any = []
    for batch in batches:  # to the end, or Spark would throw the Python worker away
        if batch.num_rows and not isinstance(said, str):
            try:
                _add(models, kind, names, batch, parts)
            except BadRow as bad:
                said = f"row {bad.row} of a batch of validation rows: {bad.reason}"
    if not isinstance(said, str) and parts[0]:
        said = [_SUMS[kind](*map(np.concatenate, zip(*one, strict=True))) for one in parts]
    yield pa.RecordBatch.from_pydict({"sums": [pickle.dumps(said)]})


def _add(
    models: Candidates,
    kind: str,
    names: Sequence[str],
    batch: pa.RecordBatch,
    parts: list[list[tuple[Floats, Floats, Floats]]],
) -> None:
    features = read_features(batch.column("features"), names)
    if features.size != len(models.table) - 1:
        raise BadRow(0, f"it has {features.size} features, the models {len(models.table) - 1}")
    labels = read_numbers(batch.column("label"), "label")
    has_weights = "weight" in batch.schema.names
    weights = read_weights(batch.column("weight")) if has_weights else np.ones(labels.size)
    margins = Rows(features.as_sparse().matrix, labels).margins(models.table, intercept=True)
    start = 0
    for part, width, decision in zip(parts, models.widths, models.decisions, strict=True):
        own = margins[:, start : start + width] if width else margins[:, start]
        start += max(1, width)
        part.append((labels, own if kind == CURVE else decision.predictions(own), weights))


def _curve(labels: Floats, scores: Floats, weights: Floats) -> Floats:
    """A row for each score: it, and the weights of both classes."""
    distinct, places = np.unique(scores, return_inverse=True)
    step = math.ceil(distinct.size / _MOST_SCORES)
    places, distinct = places // step, distinct[::step]
    is_positive = labels > 0.5
    above = np.bincount(places, weights * is_positive, distinct.size)
    return np.column_stack([distinct, above, np.bincount(places, weights * ~is_positive)])


def _classes(labels: Floats, predictions: Floats, weights: Floats) -> Floats:
    """A row for each pair of label and prediction: both, and the weight."""
    pairs, places = np.unique(np.column_stack([labels, predictions]), axis=0, return_inverse=True)
    return np.column_stack([pairs, np.bincount(places.ravel(), weights)])


def _numbers(labels: Floats, predictions: Floats, weights: Floats) -> Floats:
    """A row: sums of weights and of their squares; mean and squares of labels, of predictions;
    squares and absolute values of errors."""
    total = weights.sum()
    errors = labels - predictions
    found = [total, weights @ weights]
    for values in (labels, predictions):
        mean = weights @ values / total if total else 0.0
        found += [mean, weights @ np.square(values - mean)]
    return np.array([[*found, weights @ np.square(errors), weights @ np.abs(errors)]])


_SUMS = {CURVE: _curve, CLASSES: _classes, NUMBERS: _numbers}


def _merged(kind: str, tables: Sequence[Floats]) -> Floats:
    """The table of all partitions."""
    if not tables:
        return np.zeros((0, 8 if kind == NUMBERS else 3))
    table = np.concatenate(tables)
    if kind == NUMBERS:
        return _merged_numbers(table)
    keys, places = np.unique(table[:, : 1 + (kind == CLASSES)], axis=0, return_inverse=True)
    sums = [np.bincount(places.ravel(), one) for one in table[:, keys.shape[1] :].T]
    return np.column_stack([keys, *sums])


def _merged_numbers(table: Floats) -> Floats:
    """Means weighted, and squares about the common mean (Chan, Golub, LeVeque, 1983)."""
    table = table[table[:, 0] > 0.0]
    found: Floats = table.sum(axis=0)
    for place in (2, 4):
        means = table[:, place]
        mean = table[:, 0] @ means / found[0]
        found[place] = mean
        found[place + 1] += table[:, 0] @ np.square(means - mean)
    return found[None]
