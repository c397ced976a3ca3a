"""The task side of one evaluation: pull what the rows touch, compute, stage what they touch.

The mapped rows, and memory for vectors, live as long as a Python worker of Spark does, which later
jobs use again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark import TaskContext

from distvec.spark.access import Access, join
from distvec.spark.data.build import Descriptor
from distvec.spark.objectives.kernels import logistic
from distvec.spark.objectives.partition import Partition, WholeVectors
from ps_backend.errors import PSError
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type

BLOCK_MISSING = "BlockMissing"

_partitions: dict[str, Partition] = {}
_vectors = WholeVectors()


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, as plain data in the task's closure: the round and where the weights are."""

    access: Access
    round: str
    weights: int
    length: int
    dtype: str
    intercept: bool
    coordinates: int | None = None
    """The buffer with the coordinates that the space consists of; None if it has all."""


class Outcome(NamedTuple):
    """A partition's answer. ``error`` is the name of a class of ``ps_backend.errors``, or
    BLOCK_MISSING, and then ``message`` says more; they travel as values, for Spark would repeat a
    raised error and bury it in a Java trace."""

    partition: int
    attempt: int
    loss: float
    error: str = ""
    message: str = ""


def evaluate(request: Evaluation, descriptors: Iterable[Any]) -> Iterator[Outcome]:
    """For ``mapPartitions`` over the descriptors: one Outcome for each partition with rows."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("evaluate runs inside a Spark task; call the loss on the driver")
    attempt = context.taskAttemptId()
    for row in descriptors:
        descriptor = Descriptor(*row)
        if descriptor.rows:
            yield outcome_of(request, descriptor, attempt)


def outcome_of(request: Evaluation, descriptor: Descriptor, attempt: int) -> Outcome:
    """Evaluate one partition, which has rows, in a task attempt. Two messages a server."""
    partition = descriptor.partition
    try:
        rows = _rows(descriptor.path)
    except FileNotFoundError:
        return Outcome(partition, attempt, 0.0, BLOCK_MISSING, descriptor.path)
    try:
        return Outcome(partition, attempt, _contribute(request, rows, partition, attempt))
    except PSError as error:
        return Outcome(partition, attempt, 0.0, type(error).__name__, str(error))


def _contribute(request: Evaluation, rows: Partition, partition: int, attempt: int) -> float:
    """Stage the partition's gradient under (round, partition, attempt); its loss is returned."""
    client, space = join(request.access), DenseSpace(request.length)
    coordinates = rows.coordinates(
        client, request.length, intercept=request.intercept, kept=request.coordinates
    )
    weights = _vectors.pull(client, request.weights, array_type(space, request.dtype), coordinates)
    block = rows.block
    result = logistic(
        block.matrix,
        block.labels,
        block.weights,
        weights.astype(block.matrix.dtype, copy=False),
        intercept=request.intercept,
    )
    gradient = result.gradient.astype(request.dtype, copy=False)
    where, values = _vectors.contribution(space, coordinates, gradient)
    client.stage(request.round, partition, attempt, space, where, values)
    return result.loss


def _rows(path: str) -> Partition:
    """The mapped rows; others whose files are gone are let go, or their disk stays taken."""
    if path not in _partitions:
        for other in [known for known in _partitions if not os.path.isdir(known)]:
            del _partitions[other]
        _partitions[path] = Partition(path)
    return _partitions[path]
