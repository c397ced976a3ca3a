"""The task side of an evaluation: pull what the rows touch, compute, contribute the gradient."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import TaskContext

from distvec.spark.access import Access, join
from distvec.spark.data.build import Descriptor
from distvec.spark.kept import kept
from distvec.spark.objectives.kernels import logistic
from distvec.spark.objectives.partition import Partition, WholeVectors
from ps_backend.client import Change, Client
from ps_backend.errors import PSError
from ps_backend.program.types import ArrayType


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, as plain data: where the weights are, and what of."""

    weights: int
    type: ArrayType
    """Of the weights and of their gradient."""
    intercept: bool
    coordinates: tuple[int, ArrayType] | None = None
    """The array with the coordinates that the space consists of; None if it has all."""


class PartitionResult(NamedTuple):
    """What a task says of a partition, besides its part of the gradient.

    ``error`` is the name of a class of ``ps_backend.errors``, or BLOCK_MISSING, and then
    ``message`` says more; they travel as values, for Spark would repeat a raised error and bury it
    in a Java trace.
    """

    partition: int
    attempt: int
    loss: float
    error: str = ""
    message: str = ""


Contribute = Callable[[PartitionResult, Change], None]
"""Sends a partition's part of the gradient, with what is said of it."""


class LoadedPartitions:
    """The mapped rows that a process has, and its memory for vectors."""

    def __init__(self) -> None:
        self.vectors = WholeVectors()
        self._by_path: dict[str, Partition] = {}

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
    request: Evaluation, access: Access, round: str, descriptor: Descriptor
) -> PartitionResult:
    """For ``Dataset.run_on_blocks``: the gradient is staged under (round, partition, attempt)."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("evaluate runs inside a Spark task; call the loss on the driver")
    client = join(access)

    def stage(result: PartitionResult, change: Change) -> None:
        client.stage(round, result.partition, result.attempt, request.type.space, *change)

    return result_of(client, request, descriptor, context.taskAttemptId(), stage)


def result_of(
    client: Client,
    request: Evaluation,
    descriptor: Descriptor,
    attempt: int,
    contribute: Contribute,
) -> PartitionResult:
    """Evaluate one partition, which has rows, in a task attempt. Two messages a server.

    Raises BlockMissing.
    """
    partition = descriptor.partition
    rows = kept(LoadedPartitions).get(descriptor.path)
    try:
        loss, change = _evaluate(client, request, rows)
        result = PartitionResult(partition, attempt, loss)
        contribute(result, change)
        return result
    except PSError as error:
        return PartitionResult(partition, attempt, 0.0, type(error).__name__, str(error))


def _evaluate(client: Client, request: Evaluation, rows: Partition) -> tuple[float, Change]:
    """The partition's loss, and its part of the gradient."""
    vectors, block = kept(LoadedPartitions).vectors, rows.block
    coordinates = rows.coordinates(
        client, request.type.space, intercept=request.intercept, kept=request.coordinates
    )
    weights = vectors.pull(client, request.weights, request.type, coordinates)
    result = logistic(
        block.matrix,
        block.labels,
        block.weights,
        weights.astype(block.matrix.dtype, copy=False),
        intercept=request.intercept,
    )
    gradient = result.gradient.astype(request.type.dtype, copy=False)
    return result.loss, vectors.contribution(request.type.space, coordinates, gradient)
