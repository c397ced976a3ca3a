"""Logistic regression's objective: rows in Spark, weights and gradient on parameter servers."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any, Self

import numpy as np
from pyspark.sql import DataFrame

import distvec
from distvec import DistArray
from distvec.graph.expr import Buffer
from distvec.spark.context import PSContext
from distvec.spark.data.dataset import Dataset
from distvec.spark.data.labels import one_class
from distvec.spark.interpreter import adopt
from distvec.spark.objectives.evaluate import Evaluation, PartitionResult, evaluate
from distvec.spark.objectives.resident import Residents
from distvec.spark.objectives.touched import spread, touched_coordinates
from distvec.spark.rounds.round import abandon
from ps_backend import errors

_MODES = ("job", "resident")
_DTYPES = ("float64", "float32")


class LogisticLoss:
    """``loss(w) -> (value, gradient)``: the mean logistic loss of a DataFrame's rows.

    ``value = sum c ln(1 + exp(-y m)) / sum c + 0.5 l2 ||w||^2`` with ``m = <x, w>``, labels ``y``
    +1 or -1 and row weights ``c`` (column ``weight``, else 1). With ``intercept`` the last of
    ``dimension`` coordinates is added to every margin and not penalised. ``features`` is a column
    of ml vectors or arrays, ``label`` holds {0, 1} or {-1, 1}, or two values of which
    ``positive_label`` is +1.

    Making one reads the data once (one Spark job) and keeps it as CSR blocks on the executors'
    disks; ``close`` removes them, or, soon after it, the end of the last reference to the loss. Bad
    rows raise ValueError with their place. In an evaluation the tasks pull the coordinates that
    their rows touch and push those of the gradient, and a repeated task counts once. To the driver
    come one number and one id a partition.

    ``mode`` says which tasks, and changes no bit of the result. "job": those of a Spark job for
    each evaluation, which costs some 40 ms more. "resident": tasks that stay between evaluations.
    They hold a slot for each partition, or all that are free, so other Spark jobs may have to wait:
    until ``close``, until another loss is made, or until there was no evaluation for three seconds.

    ``dtype`` "float32" keeps the feature values so: they are rounded, and half the bytes.

    With ``compact`` the space has only the features that occur in some row, in their order, and
    ``expand`` makes a vector over all features of one over these. Of a sparse space of 1e8 features
    1e5 rows of 50 touch 5 %, and an optimizer's vectors shrink as much. The features left out have
    the weight 0, as the optimum has under a penalty. Costs two Spark jobs.
    """

    def __init__(
        self,
        data: DataFrame,
        *,
        features: str = "features",
        label: str = "label",
        weight: str | None = None,
        l2: float = 0.0,
        intercept: bool = False,
        positive_label: float | None = None,
        mode: str = "job",
        dtype: str = "float64",
        compact: bool = False,
        ps: PSContext | None = None,
    ) -> None:
        _check_choice(mode, _MODES, "mode")
        _check_choice(dtype, _DTYPES, "dtype")
        self.l2 = _penalty_factor(l2, "l2")
        self.intercept = intercept
        self.ps = PSContext.active() if ps is None else ps
        if not hasattr(data, "sparkSession"):
            raise TypeError(
                f"data is {type(data).__name__}; it must be a Spark DataFrame: "
                "spark.createDataFrame(...)"
            )
        if data.sparkSession.sparkContext is not self.ps.spark_context:
            raise ValueError("the data belongs to another SparkContext than the PSContext")
        # If this is a notebook's cell that runs again, the tasks of its last run hold the slots.
        self.ps.make_way()
        adopt(data)
        self.data = Dataset(data, features, label, weight, positive_label, dtype)
        if len(self.data.labels) == 1:
            warnings.warn(one_class(label, self.data.labels[0], self.data.rows), stacklevel=2)
        self.coordinates: DistArray | None = None
        """The features that occur, int64, if the space has no others; else None."""
        self._residents = Residents(self.ps, self.data) if mode == "resident" else None
        if self._residents is not None:
            self.ps.residents.add(self._residents)
        self._hold = self.ps.finalizers.hold(functools.partial(_close, self._residents, self.data))
        if compact:
            try:
                self.coordinates = touched_coordinates(self.ps, self.data)
            except BaseException:
                self.close()
                raise

    @property
    def dimension(self) -> int:
        """Length of the weights: the number of features, and one more with an intercept."""
        kept = self.data.size if self.coordinates is None else len(self.coordinates)
        return kept + self.intercept

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.data.rows

    @property
    def weight_sum(self) -> float:
        """Sum of the row weights; the number of rows if there are none."""
        return self.data.weight_sum

    def with_l2(self, l2: float) -> LogisticLoss:
        """The same rows (and the same blocks: closing one closes both) under another penalty."""
        other = object.__new__(type(self))
        other.l2 = _penalty_factor(l2, "l2")
        other.intercept, other.ps, other.data = self.intercept, self.ps, self.data
        other._residents, other.coordinates = self._residents, self.coordinates
        other._hold = self._hold
        return other

    def penalty(self, l1: float) -> float | DistArray:
        """``l1`` for ``OWLQN(l1=...)``: with an intercept, an array that is 0 there."""
        l1 = _penalty_factor(l1, "l1")
        return distvec.where(self._is_weight(), l1, 0.0).persist() if self.intercept else l1

    def expand(self, w: DistArray) -> DistArray:
        """``w`` over all features (and the intercept): 0 where ``compact`` left a feature out.

        One Spark job, where there is something to do; resident tasks end to make way for it.
        """
        self._check_weights(w)
        if self.coordinates is None:
            return w
        self.ps.make_way()
        return spread(self.ps, w, self.coordinates, self.data.size + self.intercept)

    def __call__(self, w: DistArray) -> tuple[DistArray, DistArray]:
        """Value (rank 0) and gradient at ``w``, both lazy over the summed buffer.

        Costs one Spark job and one message, or the message alone where tasks are resident; ``w`` is
        materialised first.
        """
        self._check_weights(w)
        w.persist()
        loss, total = self.data.until_found(functools.partial(self._evaluate, w))
        value, gradient = loss / self.weight_sum, total / self.weight_sum
        if self.l2 == 0.0:
            return self.ps.full((), value), gradient
        penalised = distvec.where(self._is_weight(), w, 0.0) if self.intercept else w
        return value + 0.5 * self.l2 * (penalised @ penalised), gradient + self.l2 * penalised

    def close(self) -> None:
        """End resident tasks, and remove the blocks: a later evaluation raises ValueError.

        Twice is harmless.
        """
        _close(self._residents, self.data)

    def __repr__(self) -> str:
        mode = "job" if self._residents is None else "resident"
        return (
            f"<{type(self).__name__}: {self.rows:,} rows of {self.data.size:,} features in "
            f"{self.data.filled} partitions, dimension={self.dimension}, l2={self.l2:g}, "
            f"intercept={self.intercept}, mode={mode!r}{', closed' * self.data.is_closed}>"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            f"a {type(self).__name__} is evaluated on the driver, where it starts its own tasks, "
            "and cannot be pickled; call loss(w) outside of Spark tasks"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_weight(self) -> DistArray:
        return self.ps.arange(self.dimension) < self.dimension - self.intercept

    def _check_weights(self, w: object) -> None:
        if self.ps.is_stopped:
            raise RuntimeError(
                "the PSContext of this loss was stopped; start one again by "
                "PSContext.get_or_create(spark), and make a new LogisticLoss"
            )
        if not isinstance(w, DistArray):
            raise TypeError(f"w is {type(w).__name__}; make a DistArray: ps.array(w)")
        if w.session is not self.ps:
            raise ValueError("w belongs to another session than this loss")
        if w.shape != (self.dimension,):
            raise ValueError(f"w has shape {w.shape}, this loss needs ({self.dimension},)")
        if w.dtype.name not in _DTYPES:
            raise TypeError(f"w has dtype {w.dtype}; allowed are float64 and float32")

    def _evaluate(self, w: DistArray) -> tuple[float, DistArray]:
        """The sum over all rows of the loss, and of its gradient; raises BlockMissing."""
        held = w.copy()  # as long as tasks read it, whatever becomes of w
        weights, kept = held.buffer, self.coordinates
        request = Evaluation(
            weights.id,
            weights.type,
            self.intercept,
            None if kept is None else (kept.buffer_id, kept.type),
        )
        if self._residents is not None:
            results, gradient = self._residents.run(request, weights)
            _raise_error_of(results)
        else:
            results, gradient = self._run_job(request, weights)
        value = math.fsum(one.loss for one in results)
        return value, DistArray(self.ps, self.ps.graph.leaf(gradient))

    def _run_job(
        self, request: Evaluation, weights: Buffer
    ) -> tuple[list[PartitionResult], Buffer]:
        """What the tasks of one Spark job say, and the gradient. One message for the commit."""
        client, round_name = self.ps.client, str(self.ps.client.new_id())
        self.data.settle(self.ps.generations)
        try:
            results = self.data.run_on_blocks(
                functools.partial(evaluate, request, self.ps.access, round_name)
            )
            _raise_error_of(results)
            gradient = self.ps.new_buffer(weights.type)
            winners = [(one.partition, one.attempt) for one in results]
            client.commit(round_name, winners, weights.type, gradient.id)
        except BaseException as error:
            abandon(client, round_name, error)
            raise
        return results, gradient


def _close(residents: Residents | None, data: Dataset) -> None:
    if residents is not None:
        residents.close()
    data.close()


def _raise_error_of(results: list[PartitionResult]) -> None:
    """Raise a task's failure on the driver, as its own class."""
    for one in results:
        if one.error:
            kind: type[errors.PSError] = getattr(errors, one.error, errors.PSError)
            raise kind(f"in the task of partition {one.partition}: {one.message}")


def _check_choice(given: str, allowed: tuple[str, ...], name: str) -> None:
    if given not in allowed:
        raise ValueError(f"{name}={given!r}; allowed are {', '.join(map(repr, allowed))}")


def _penalty_factor(value: float, name: str) -> float:
    if not (np.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name}={value}; it must be finite and 0 or more")
    return float(value)
