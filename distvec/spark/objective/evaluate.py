"""The task side of one evaluation: pull what the rows touch, compute, stage what they touch.

The mapped blocks live as long as a Python worker of Spark does; it is reused by later jobs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from pyspark import TaskContext

from distvec.spark.access import Access, join
from distvec.spark.data.blocks import Block, Floats, Ints, load
from distvec.spark.data.build import Descriptor
from distvec.spark.objective.kernels import logistic
from ps_backend.client import Client
from ps_backend.errors import PSError
from ps_backend.space import DenseSpace

BLOCK_MISSING = "BlockMissing"

_blocks: dict[str, Block] = {}


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, as plain data in the task's closure: the round and where the weights are."""

    access: Access
    round: str
    weights: int
    length: int
    dtype: str
    intercept: bool


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
        block = _block(descriptor.path)
    except FileNotFoundError:
        return Outcome(partition, attempt, 0.0, BLOCK_MISSING, descriptor.path)
    try:
        return Outcome(partition, attempt, _contribute(request, block, partition, attempt))
    except PSError as error:
        return Outcome(partition, attempt, 0.0, type(error).__name__, str(error))


def _contribute(request: Evaluation, block: Block, partition: int, attempt: int) -> float:
    """Stage the partition's gradient under (round, partition, attempt); its loss is returned."""
    client = join(request.access)
    space = DenseSpace(request.length)
    coordinates = block.columns
    if request.intercept:
        coordinates = np.append(coordinates, request.length - 1)
    weights = pull(client, request.weights, space, request.dtype, coordinates)
    result = logistic(
        block.matrix,
        block.labels,
        block.weights,
        weights,
        intercept=request.intercept,
    )
    gradient = result.gradient.astype(request.dtype, copy=False)
    client.stage(request.round, partition, attempt, space, coordinates, gradient)
    return result.loss


def pull(client: Client, buffer: int, space: DenseSpace, dtype: str, coordinates: Ints) -> Floats:
    """The values of ``buffer`` at sorted ``coordinates``, as float64. One message a server."""
    # Asking for a coordinate costs as many bytes as its value: above one half, all are fewer.
    if 2 * coordinates.size >= space.length:
        found = client.read(buffer, space, np.dtype(dtype))[coordinates]
    else:
        found = client.gather(buffer, space, np.dtype(dtype), coordinates)
    return np.asarray(found, dtype=np.float64)


def _block(path: str) -> Block:
    """The mapped block; others whose files are gone are let go, or their disk stays taken."""
    if path not in _blocks:
        for other in [known for known in _blocks if not os.path.isdir(known)]:
            del _blocks[other]
        _blocks[path] = load(path)
    return _blocks[path]
