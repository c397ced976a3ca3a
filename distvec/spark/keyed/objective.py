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
from distvec.objectives.keyed_machine import INTERCEPT, KeyedMachine
from distvec.rows.api import rows as row_functions
from distvec.rows.optimizers import RowOptimizer
from distvec.spark.context import PSContext
from distvec.spark.data.columns import check_data, find_column
from distvec.spark.jobs.failures import Failure
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.keyed.task import (
    SCHEMA,
    KeyedWeights,
    Parameters,
    Pass,
    PassStatistics,
    Reading,
    Score,
)
from distvec.spark.rounds.contribute import KeyedContributor


@dataclass(frozen=True)
class TrainingProgress:
    """Loss and AUC of an objective over keys after a pass over some rows.

    Attributes
    ----------
    rows : int
        The number of rows trained on so far, with repeated rows.
    keys : int
        The number of keys in the space, including the key of the intercept.
    loss : float
        The mean loss over the latest rows, each before it was learned from.
    auc : float
        The area under the ROC curve of the same rows; NaN unless there are two classes.
    seconds : float
        The time for these rows.
    """

    rows: int
    keys: int
    loss: float
    auc: float
    seconds: float

    def __str__(self) -> str:
        auc = "" if math.isnan(self.auc) else f"  AUC {self.auc:.4f}"
        return (
            f"{self.rows:>10,} rows  {self.keys:>10,} keys  loss {self.loss:.4f}{auc}  "
            f"{self.seconds:.1f} s"
        )


class KeyedObjective:
    """Train a loss over features that are keys, without a dense index, by minibatches.

    Features are integers or strings, such as user IDs. The number of features need not be known.
    ``LogisticLoss(..., keys=True)`` makes one for logistic regression.

    Parameters
    ----------
    data : DataFrame, optional
        The rows that ``train`` uses by default.
    loss : RowLoss, optional
        A loss of one margin for each row, such as ``Hinge()``, ``Huber()``, ``Poisson()``, or a
        function with ``row_loss``. By default ``Logistic()``.
    features : str or list of str, default "features"
        A column of lists of integers, which are keys, or of strings, which are hashed. Or several
        columns of any type: the string ``"site=a.com"`` is hashed then.
    values : str, optional
        A column of lists with a number for each key. By default all numbers are 1.
    label : str, default "label"
        The column of labels, as the loss takes them. Two classes are 0 or -1, and 1.
    weight : str, optional
        The column of row weights, 0 or more.
    positive_label : float, optional
        For losses of two classes, the label of the positive class.
    intercept : bool, default True
        Whether all rows have one more weight, stored under a key of its own.
    optimizer : RowOptimizer, optional
        The optimizer of the weights. By default ``dv.rows.ftrl()``.
    batch_size : int, default 256
        The number of rows of a minibatch.
    exactly_once : bool, default False
        Whether each row counts exactly once. Steps then wait for the end of the pass, in a round:
        gradients are of the weights before it, and each run gives bitwise identical results. Use
        small passes, such as those over a stream. With False a step takes effect immediately, and
        may count twice if Spark repeats a task.
    space : KeyedSpace, optional
        The keyed space for the weights, such as ``ps.keys(admit=3)``. By default a new one.
    weights : KeyedArray, optional
        Weights to continue with, for instance from a file, with their space and optimizer. By
        default zeros.
    machine : KeyedMachine, optional
        A factorization machine over keys, in the place of loss, optimizer, space and weights.
    ps : PSContext, optional
        The servers. By default the running ``PSContext``.

    Attributes
    ----------
    weights : KeyedArray
        The weights, a float64 vector over the keys. New keys are inserted as ``space`` allows.
    space : KeyedSpace
        The keyed space.
    rows : int
        The number of rows trained on, with repeated rows.

    Raises
    ------
    TypeError
        If the loss has more than one margin for each row.
    ValueError
        If an argument is out of range.

    See Also
    --------
    Objective : For features with a dense index, and full-batch solvers.

    Notes
    -----
    A minibatch costs two requests to each server: tasks pull the weights of its keys, and step by
    the gradient of the sum of its losses.

    Examples
    --------
    >>> from distvec.spark import KeyedObjective
    >>> model = KeyedObjective(clicks, features=["site", "ad"], label="click", ps=ps)
    >>> last = model.train(epochs=2)
    >>> last.rows, last.keys
    (8, 5)
    >>> model.probabilities(clicks).select("probability").first().probability
    [0.47..., 0.52...]
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
        weights: KeyedArray | None = None,
        machine: KeyedMachine | None = None,
        ps: PSContext | None = None,
    ) -> None:
        own_loss = Logistic() if loss is None else loss
        check_loss(own_loss)
        if not isinstance(own_loss, RowLoss) or own_loss.order:
            raise TypeError(
                f"{own_loss} is not a loss of one margin for each row, as keys need; use "
                "Logistic(), Hinge(), Huber(), Poisson(), or your own with @row_loss"
            )
        self.machine = machine
        if machine is not None:
            if any(one is not None for one in (loss, optimizer, space, weights)):
                raise ValueError(
                    "machine= has its own loss, optimizers and spaces; leave out others"
                )
            weights, intercept = machine.weights, machine.has_intercept
        self.loss: Loss = own_loss if machine is None else machine.loss
        labels = rule(self.loss.labels, positive_label)
        names = (features,) if isinstance(features, str) else tuple(features)
        if not names:
            raise ValueError("features names no column; give one or more names")
        if values is not None and len(names) > 1:
            raise ValueError(f"values={values!r} needs one column of lists, got features={names}")
        if not batch_size >= 1:
            raise ValueError(f"batch_size={batch_size!r}: must be 1 or more")
        self.ps = PSContext.active() if ps is None else ps
        self.data = data
        self.exactly_once = exactly_once
        if weights is not None and space is not None:
            raise ValueError("weights= have their own space; leave space= out")
        own: Any = space if weights is None else weights.space
        self.space: KeyedSpace = self.ps.keys() if own is None else own
        self.weights: KeyedArray = self.space.zeros() if weights is None else weights
        """A float64 vector over the keys."""
        self._parameters: Parameters = KeyedWeights(self.weights) if machine is None else machine
        if optimizer is not None or self.weights.trained is None:
            self.weights.optimizer(row_functions.ftrl() if optimizer is None else optimizer)
        self.rows = 0
        """How many were learned from, with those that came again."""
        self._reading = Reading(names, values, label, weight, labels, intercept, batch_size)

    @property
    def intercept(self) -> float:
        """The weight that all rows share. Reading it takes one request."""
        return float(self.weights.pull([INTERCEPT])[0])

    def train(
        self,
        data: DataFrame | None = None,
        *,
        epochs: int = 1,
        progress: Callable[[TrainingProgress], Any] | None = None,
    ) -> TrainingProgress:
        """Train on all rows, with one Spark job for each epoch.

        Parameters
        ----------
        data : DataFrame, optional
            The rows, as ``foreachBatch`` gives them. By default the rows of the constructor.
        epochs : int, default 1
            The number of passes over the rows.
        progress : callable, optional
            Called with a ``TrainingProgress`` after each pass, such as ``print``.

        Returns
        -------
        TrainingProgress
            Loss and AUC of the last pass. Each row is scored before it is learned from.

        Raises
        ------
        OutOfBudget
            If there is no room for new keys.
        ServerLost
            If a server was lost: the keys and weights that it had are gone.
        ValueError
            For a row that cannot be used; it names the row. Without ``exactly_once``, rows before
            it have been learned.
        """
        rows = self._given(data)
        if not epochs >= 1:
            raise ValueError(f"epochs={epochs!r}: must be 1 or more")
        for _ in range(epochs):
            began = time.monotonic()
            opened: Any = self.ps.round if self.exactly_once else self.ps.share
            with opened(self.weights) as steps:
                seen = self._over(rows, steps if self.exactly_once else None, learns=True)
            self.rows += seen.rows
            done = self._progress(seen, began)
            if progress is not None:
                progress(done)
        return done

    def evaluate(self, data: DataFrame | None = None) -> TrainingProgress:
        """Measure how well rows are predicted, with one Spark job.

        Parameters
        ----------
        data : DataFrame, optional
            The rows. By default the rows of the constructor.

        Returns
        -------
        TrainingProgress
            Loss and AUC. No weight changes, and no key is inserted.

        Raises
        ------
        ValueError
            For a row that cannot be used; it names the row.
        """
        began = time.monotonic()
        return self._progress(self._over(self._given(data), None, learns=False), began)

    def margins(self, data: DataFrame, *, output: str = "margin") -> DataFrame:
        """Add a column with the margin of each row.

        Parameters
        ----------
        data : DataFrame
            The rows.
        output : str, default "margin"
            The name of the new column.

        Returns
        -------
        DataFrame
            ``data`` with the column. Lazy.
        """
        return self._with_answers(data, MARGINS, output)

    def probabilities(self, data: DataFrame, *, output: str = "probability") -> DataFrame:
        """Add an array column with the probabilities of the negative and of the positive class.

        Parameters
        ----------
        data : DataFrame
            The rows.
        output : str, default "probability"
            The name of the new column.

        Returns
        -------
        DataFrame
            ``data`` with the column. Lazy.

        Raises
        ------
        NotImplementedError
            If the loss has no probabilities. ``Logistic`` has.
        """
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
        """Add a column with the predicted labels: a class, or a mean.

        Parameters
        ----------
        data : DataFrame
            The rows.
        output : str, default "prediction"
            The name of the new column.

        Returns
        -------
        DataFrame
            ``data`` with the column. Lazy.

        Raises
        ------
        NotImplementedError
            If the loss does not predict labels.
        """
        self.loss.predictions(np.zeros(0))
        return self._with_answers(data, PREDICTIONS, output)

    def _with_answers(self, data: DataFrame, what: str, output: str) -> DataFrame:
        if output in data.columns:
            raise ValueError(f"output={output!r} is a column of the data; pass another name")
        for name in self._reading.keys:
            self._key_column(data, name)
        kind = ArrayType(DoubleType()) if what == PROBABILITIES else DoubleType()
        kept = StructType([*data.schema.fields, StructField(output, kind)])
        score = Score(self._reading, self.loss, self._parameters, what, output)
        return data.mapInArrow(score, kept)

    def _over(
        self, rows: DataFrame, steps: KeyedContributor | None, *, learns: bool
    ) -> PassStatistics:
        task = Pass(self._reading, self.loss, self._parameters, steps, learns)
        seen = PassStatistics.zero()
        for row in rows.mapInArrow(task, SCHEMA).collect():
            seen += PassStatistics.of_row(row)
        if seen.failure:
            failure = Failure.from_text(seen.failure)
            failure.throw(f"in the task of partition {failure.partition}", "the trace is its own")
        if seen.error:
            raise ValueError(seen.error)
        return seen

    def _progress(self, seen: PassStatistics, began: float) -> TrainingProgress:
        keys, seconds = len(self.space), time.monotonic() - began
        return TrainingProgress(self.rows, keys, seen.mean_loss, seen.auc, seconds)

    def _given(self, data: DataFrame | None) -> DataFrame:
        """The columns that are read, of ``data`` or of what the constructor was given."""
        chosen = self.data if data is None else data
        if chosen is None:
            raise TypeError(
                "there are no rows; pass a DataFrame to train(data), or to the constructor"
            )
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
                "column of lists of integers or strings, with values= for their numbers, or "
                "columns of single values; for vectors and arrays of numbers leave keys=True out"
            )

    def __repr__(self) -> str:
        features = ", ".join(self._reading.keys)
        return f"<{type(self).__name__}: {self.loss} of {features}, {self.rows:,} rows seen>"
