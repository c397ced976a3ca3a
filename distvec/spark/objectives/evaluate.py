"""The task side of an evaluation: pull what the rows touch, compute, contribute the gradient."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from pyspark import TaskContext

from distvec.losses.errors import LossError, loss_error
from distvec.losses.loss import Arrays, Loss, PhasedLoss
from distvec.spark.access import Access, join
from distvec.spark.data.build import Descriptor
from distvec.spark.kept import kept
from distvec.spark.objectives.partition import Part, Partition, Selection
from distvec.spark.objectives.vectors import Values, WholeVectors
from ps_backend.client import Change, Client, StoredArray
from ps_backend.errors import PSError

SUMS, SUMMARY, PRODUCTS = "sums", "summary", "products"
"""What may be asked of a partition: value and gradients; what it tells in a phase of a
``PhasedLoss``; the Hessian of its value times directions."""

Told = tuple[tuple[float, ...], ...]
"""What a partition was told, by phase."""


@dataclass(frozen=True)
class Work:
    """What is evaluated. It travels in closures, as a loss may be a user's function."""

    loss: Loss
    intercept: bool


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, as plain data: what of, where its parameters are."""

    parameters: tuple[StoredArray, ...]
    asked: str = SUMS
    directions: tuple[StoredArray, ...] = ()
    coordinates: StoredArray | None = None
    """The array with the coordinates that the spaces consist of; None if they have all."""
    part: Part | None = None
    """Of each partition's rows; None: all."""
    round: str = ""
    """Where gradients are staged; empty where they go with the answer to a mailbox."""
    told: Mapping[int, Told] = field(default_factory=dict)
    """By partition."""

    @property
    def changes(self) -> tuple[StoredArray, ...]:
        """The arrays like which the sums of contributions are."""
        return () if self.asked == SUMMARY else self.parameters


class PartitionResult(NamedTuple):
    """What a task says of a partition, besides its part of the gradient.

    ``error`` is the name of an exception, and ``details`` are its arguments; they travel as values,
    for Spark would repeat a raised error and bury it in a Java trace.
    """

    partition: int
    attempt: int
    value: float = 0.0
    weight: float = 0.0
    summary: Sequence[float] = ()
    error: str = ""
    details: Sequence[str] = ()


Contribute = Callable[[PartitionResult, Sequence[Change]], None]
"""Sends a partition's parts of the gradients, with what is said of it."""


class LoadedPartitions:
    """The mapped rows that a process has, and its memory for arrays."""

    def __init__(self) -> None:
        self._vectors: dict[int, WholeVectors] = {}
        self._by_path: dict[str, Partition] = {}

    def vectors(self, slot: int = 0) -> WholeVectors:
        """The memory for one of the arrays that an evaluation needs."""
        return self._vectors.setdefault(slot, WholeVectors())

    def get(self, path: str) -> Partition:
        """Those of ``path``, or BlockMissing; others whose files are gone are let go, or their disk
        stays taken."""
        if path not in self._by_path:
            for other in [known for known in self._by_path if not os.path.isdir(known)]:
                del self._by_path[other]
            self._by_path[path] = Partition(path)
        return self._by_path[path]

    def clear(self) -> None:
        """Forget them all."""
        self._by_path.clear()


def evaluate(
    work: Work, request: Evaluation, access: Access, descriptor: Descriptor
) -> PartitionResult:
    """For ``Dataset.run_on_blocks``: gradients are staged under (round, partition, attempt)."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("evaluate runs inside a Spark task; call the objective on the driver")
    client = join(access)
    contribute = stager(client, request)
    return result_of(client, work, request, descriptor, context.taskAttemptId(), contribute)


def stager(client: Client, request: Evaluation) -> Contribute:
    """Stages what is contributed, a message a server for each array."""

    def stage(result: PartitionResult, changes: Sequence[Change]) -> None:
        for slot, change in enumerate(changes):
            space = request.changes[slot].type.space
            place = (request.round, result.partition, result.attempt)
            client.stage(*place, space, *change, slot=slot)

    return stage


def result_of(
    client: Client,
    work: Work,
    request: Evaluation,
    descriptor: Descriptor,
    attempt: int,
    contribute: Contribute,
) -> PartitionResult:
    """Evaluate one partition, which has rows, in a task attempt. Two messages a server and array.

    Raises BlockMissing.
    """
    partition = descriptor.partition
    loaded = kept(LoadedPartitions).get(descriptor.path)
    try:
        task = _Task(client, work, request, loaded.selection(request.part, partition))
        found, gradients = task.run(request.told.get(partition, ()))
        result = found._replace(partition=partition, attempt=attempt)
        contribute(result, task.changes(gradients))
        return result
    except PSError as error:
        return PartitionResult(
            partition, attempt, error=type(error).__name__, details=(str(error),)
        )
    except LossError as error:
        details = error.within(f"partition {partition}").args
        return PartitionResult(partition, attempt, error=type(error).__name__, details=details)


_NOBODY = PartitionResult(-1, -1)


class _Task:
    """One evaluation of some rows."""

    def __init__(
        self, client: Client, work: Work, request: Evaluation, selection: Selection
    ) -> None:
        self.client, self.work, self.request, self.selection = client, work, request, selection

    def run(self, told: Told) -> tuple[PartitionResult, Arrays]:
        """What is asked, by nobody yet, and the gradients."""
        loss, rows = self.work.loss, self.selection.rows
        try:
            if isinstance(loss, PhasedLoss):
                return self._run_phase(loss, [np.array(phase) for phase in told])
            arrays, directions = self._pulled()
            if self.request.asked == PRODUCTS:
                products = loss.products(rows, arrays, directions, intercept=self.work.intercept)
                return _NOBODY._replace(weight=loss.weight(rows)), products
            sums = loss.sums(rows, arrays, intercept=self.work.intercept)
        except (LossError, PSError):
            raise
        except Exception as error:
            raise loss_error(str(loss), f"its {len(rows):,} rows", error) from error
        return _NOBODY._replace(value=sums.value, weight=sums.weight), sums.gradients

    def _run_phase(
        self, loss: PhasedLoss, told: Sequence[np.ndarray]
    ) -> tuple[PartitionResult, Arrays]:
        rows, intercept = self.selection.rows, self.work.intercept
        prepared = self._prepared(loss, first=not told)
        if self.request.asked == SUMMARY:
            summary = loss.summary(len(told), rows, prepared, told)
            return _NOBODY._replace(summary=summary.tolist()), ()
        if self.request.asked == PRODUCTS:
            products = loss.products_told(rows, prepared, told, intercept=intercept)
            return _NOBODY._replace(weight=loss.weight(rows)), products
        sums = loss.sums_told(rows, prepared, told, intercept=intercept)
        return _NOBODY._replace(value=sums.value, weight=sums.weight), sums.gradients

    def _prepared(self, loss: PhasedLoss, *, first: bool) -> Values:
        """Kept from the first phase on; made anew where that was in another process."""
        request, selection = self.request, self.selection
        key = (loss, request.parameters, request.directions, request.coordinates)
        if first or selection.prepared is None or selection.prepared[0] != key:
            arrays, directions = self._pulled()
            made = loss.prepare(selection.rows, arrays, directions, intercept=self.work.intercept)
            selection.prepared = (key, made)
        return selection.prepared[1]

    def changes(self, gradients: Arrays) -> list[Change]:
        """What to add to the sums of the gradients."""
        loaded, changes = kept(LoadedPartitions), []
        for slot, gradient in enumerate(gradients):
            type = self.request.parameters[slot].type
            values = gradient.astype(type.dtype, copy=False)
            where = self._coordinates(slot)
            changes.append(loaded.vectors(slot).contribution(type, where, values))
        return changes

    def _pulled(self) -> tuple[Arrays, Arrays]:
        """Parameters and directions, as far as the rows touch them."""
        count = len(self.request.parameters)
        wanted = (*self.request.parameters, *self.request.directions)
        pulled = tuple(self._pull(slot, slot % count, one) for slot, one in enumerate(wanted))
        return pulled[:count], pulled[count:]

    def _pull(self, slot: int, parameter: int, stored: StoredArray) -> Values:
        vectors = kept(LoadedPartitions).vectors(slot)
        return vectors.pull(self.client, *stored, self._coordinates(parameter))

    def _coordinates(self, parameter: int) -> np.ndarray:
        takes = self.work.loss.parameters[parameter].takes_intercept
        return self.selection.coordinates(
            self.client,
            self.request.parameters[parameter].type.space,
            intercept=self.work.intercept and takes,
            kept=self.request.coordinates,
        )
