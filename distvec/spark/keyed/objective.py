"""Objectives over keys: features that nobody numbered, steps by minibatches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
)

from distvec.keyed.array import KeyedArray
from distvec.keyed.space import KeyedSpace
from distvec.losses.classification import Logistic
from distvec.losses.labels import rule
from distvec.losses.loss import (
    MARGINS,
    PREDICTIONS,
    PROBABILITIES,
    Loss,
    check_loss,
    warn_renamed,
)
from distvec.losses.row_losses import RowLoss
from distvec.rows.api import rows as row_functions
from distvec.rows.optimizers import RowOptimizer
from distvec.spark.context import PSContext
from distvec.spark.data.columns import check_data, find_column
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.keyed.task import INTERCEPT, SCHEMA, Pass, PassStatistics, Reading, Score
from distvec.spark.rounds.contribute import KeyedContributor


@dataclass(frozen=True)
class TrainingProgress:
    """How an objective over keys is doing, after some rows."""

    rows: int
    """In all, with those that came again."""
    keys: int
    """In the space, the intercept's among them."""
    loss: float
    """The mean over the latest rows, each before it was learned from."""
    auc: float
    """Of the same rows; NaN where there are no two classes."""
    seconds: float
    """For these rows."""

    def __str__(self) -> str:
        auc = "" if math.isnan(self.auc) else f"  AUC {self.auc:.4f}"
        return (
            f"{self.rows:>10,} rows  {self.keys:>10,} keys  loss {self.loss:.4f}{auc}  "
            f"{self.seconds:.1f} s"
        )


class KeyedObjective:
    """A loss of rows whose features are keys: it trains without a dimension, by minibatches.

        model = KeyedObjective(clicks, loss=Logistic(), features=["site", "ad"], label="click")
        model.train(progress=print)
        model.probabilities(others).show()

    ``loss``: one of one margin a row, as Logistic(), Hinge(), Huber(), Poisson(), or your own with
    ``@row_loss``. ``LogisticLoss(..., keys=True)`` is one with the first of them.

    ``features``: a column of lists of integers, which are keys, or of texts, which are hashed; or
    several columns, of whatever type: "site=a.com" is the text that is hashed. ``values``: a column
    of lists, one number a key; else all are 1. ``label``: as the loss takes them; of two classes 0
    or -1, and 1, or ``positive_label`` and others. ``weight``: a column of numbers, 0 or more.

    ``weights`` is a vector over keys; those that come for the first time are inserted, as ``space``
    (one of ``ps.keys(admit=, most_bytes=)``, or a new one) lets them. ``intercept``: the weight of
    a key of its own.

    Tasks take ``batch_size`` rows at a time: they pull the weights of their keys, and step by the
    gradient of the sum of their losses. ``optimizer``: ``dv.rows.ftrl()`` unless said otherwise.
    Two messages to each server a minibatch. Steps count at once, and at least once where Spark
    repeats a task. With ``exactly_once`` they wait for the end of the pass over the rows, in a
    round (``PSContext.round``): all gradients are then of the weights before it, and the bits are
    the same in each run; so make the passes small, as those of a stream.
    """

    def __init__(
        self,
        data: DataFrame | None = None,
        *,
        loss: RowLoss | None = None,
        features: str | Sequence[str] = "features",
        values: str | None = None,
        label: str = "label",
        weight: str | None = None,
        positive_label: float | None = None,
        intercept: bool = True,
        optimizer: RowOptimizer | None = None,
        batch_size: int = 256,
        exactly_once: bool = False,
        space: KeyedSpace | None = None,
        ps: PSContext | None = None,
    ) -> None:
        """``data``: what ``train`` takes unless it is given others; ``loss``: ``Logistic()`` unless
        given. Some messages a server. TypeError for losses with more than a margin a row."""
        self.loss = Logistic() if loss is None else loss
        check_loss(self.loss)
        if not isinstance(self.loss, RowLoss) or self.loss.order:
            raise TypeError(
                f"{self.loss} is no loss of one margin a row, which keys can be trained with; take "
                "one such as Logistic(), Hinge(), Huber(), Poisson(), or your own with @row_loss"
            )
        labels = rule(self.loss.labels, positive_label)
        names = (features,) if isinstance(features, str) else tuple(features)
        if not names:
            raise ValueError("features names no column")
        if values is not None and len(names) > 1:
            raise ValueError(f"values={values!r} goes with one column of lists, not with {names}")
        if not batch_size >= 1:
            raise ValueError(f"batch_size={batch_size!r}: must be 1 or more")
        self.ps = PSContext.active() if ps is None else ps
        self.data = data
        self.exactly_once = exactly_once
        self.space = self.ps.keys() if space is None else space
        self.weights: KeyedArray = self.space.zeros()
        """A float64 vector over the keys."""
        self.weights.optimizer(row_functions.ftrl() if optimizer is None else optimizer)
        self.rows = 0
        """How many were learned from, with those that came again."""
        self._reading = Reading(names, values, label, weight, labels, intercept, batch_size)

    @property
    def intercept(self) -> float:
        """The weight that all rows have. One message."""
        return float(self.weights.pull([INTERCEPT])[0])

    def train(
        self,
        data: DataFrame | None = None,
        *,
        epochs: int = 1,
        progress: Callable[[TrainingProgress], Any] | None = None,
    ) -> TrainingProgress:
        """Go over the rows ``epochs`` times, one Spark job each; returns how the last pass went.

        ``data``: in place of that of the constructor, as ``foreachBatch`` gives it. ``progress`` is
        called after each pass, as ``print``. Raises ``OutOfBudget`` if there is no room for new
        keys, and Spark's ``PythonException`` for rows that cannot be used.
        """
        rows = self._given(data)
        if not epochs >= 1:
            raise ValueError(f"epochs={epochs!r}: must be 1 or more")
        for _ in range(epochs):
            began = time.monotonic()
            opened: Any = self.ps.round if self.exactly_once else self.ps.share
            with opened(self.weights) as steps:
                seen = self._over(rows, steps)
            self.rows += seen.rows
            done = self._progress(seen, began)
            if progress is not None:
                progress(done)
        return done

    def evaluate(self, data: DataFrame | None = None) -> TrainingProgress:
        """How well rows are predicted; nothing is learned, and no key inserted. One Spark job."""
        began = time.monotonic()
        return self._progress(self._over(self._given(data), None), began)

    def margins(self, data: DataFrame, *, output: str = "margin") -> DataFrame:
        """``data`` with a column ``output``: the margin of each row. Lazy."""
        return self._with_answers(data, MARGINS, output)

    def probabilities(self, data: DataFrame, *, output: str = "probability") -> DataFrame:
        """``data`` with a column ``output``: the probabilities of the negative and of the positive
        class, an array. Lazy. ``NotImplementedError`` if the loss has none."""
        self.loss.probabilities(np.zeros(0))
        return self._with_answers(data, PROBABILITIES, output)

    def scores(self, data: DataFrame, *, output: str = "score") -> DataFrame:
        """Deprecated: use ``probabilities`` or ``margins``.

        Adds the probability of the positive class if the loss has probabilities, else the margin.
        """
        warn_renamed(f"{type(self).__name__}.scores()", "probabilities() or margins()")
        if type(self.loss).probabilities is Loss.probabilities:
            return self.margins(data, output=output)
        found = self.probabilities(data, output=output)
        return found.withColumn(output, find_column(found, output, "output")[0][1])

    def predict(self, data: DataFrame, *, output: str = "prediction") -> DataFrame:
        """``data`` with a column ``output``: the label that is expected, a class or a mean; lazy.

        ``NotImplementedError`` if the loss has none.
        """
        self.loss.predictions(np.zeros(0))
        return self._with_answers(data, PREDICTIONS, output)

    def _with_answers(self, data: DataFrame, what: str, output: str) -> DataFrame:
        if output in data.columns:
            raise ValueError(f"output={output!r} is a column of the data; name another one")
        for name in self._reading.keys:
            self._key_column(data, name)
        kind = ArrayType(DoubleType()) if what == PROBABILITIES else DoubleType()
        kept = StructType([*data.schema.fields, StructField(output, kind)])
        score = Score(self._reading, self.loss, self.weights, what, output)
        return data.mapInArrow(score, kept)

    def _over(self, rows: DataFrame, steps: KeyedArray | KeyedContributor | None) -> PassStatistics:
        task = Pass(self._reading, self.loss, self.weights, steps)
        seen = PassStatistics.zero()
        for row in rows.mapInArrow(task, SCHEMA).collect():
            seen += PassStatistics.of_row(row)
        return seen

    def _progress(self, seen: PassStatistics, began: float) -> TrainingProgress:
        keys, seconds = len(self.space), time.monotonic() - began
        return TrainingProgress(self.rows, keys, seen.mean_loss, seen.auc, seconds)

    def _given(self, data: DataFrame | None) -> DataFrame:
        """The columns that are read, of ``data`` or of what the constructor was given."""
        chosen = self.data if data is None else data
        if chosen is None:
            raise TypeError("there are no rows: give train(data) a DataFrame, or the constructor")
        check_data(chosen, self.ps)
        self.ps.release_slots()
        use_driver_python(chosen)
        reading = self._reading
        for key in reading.keys:
            self._key_column(chosen, key)
        used = dict.fromkeys(reading.keys, "features") | {reading.label: "label"}
        for name, argument in ((reading.values, "values"), (reading.weight, "weight")):
            if name is not None:
                used[name] = argument
        return chosen.select(*(find_column(chosen, *one)[0].alias(one[0]) for one in used.items()))

    def _key_column(self, data: DataFrame, name: str) -> None:
        """TypeError for a column that has no keys."""
        _, kind = find_column(data, name, "features")
        refused = isinstance(kind, UserDefinedType | StructType | MapType)
        if isinstance(kind, ArrayType):
            is_key = isinstance(kind.elementType, IntegralType | StringType)
            refused = not is_key or len(self._reading.keys) > 1
        if refused:
            raise TypeError(
                f"features={name!r} is a column of {kind.simpleString()}; with keys=True give one "
                "column of lists of integers or texts, values= for their numbers, or columns with "
                "one value a row; of vectors and arrays of numbers leave keys=True out"
            )

    def __repr__(self) -> str:
        features = ", ".join(self._reading.keys)
        return f"<{type(self).__name__}: {self.loss} of {features}, {self.rows:,} rows seen>"
