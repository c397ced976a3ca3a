"""The driver's side of an evaluation: asks tasks of jobs, or those that stay."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from distvec import DistArray
from distvec.graph.node import Buffer
from distvec.losses.errors import LossError, NotFinite
from distvec.losses.loss import PhasedLoss
from distvec.spark.context import PSContext
from distvec.spark.data.dataset import Dataset
from distvec.spark.objectives.evaluate import (
    PRODUCTS,
    SUMMARY,
    SUMS,
    Evaluation,
    PartitionResult,
    Told,
    Work,
    evaluate,
)
from distvec.spark.objectives.partition import Part
from distvec.spark.objectives.resident import Residents
from distvec.spark.rounds.round import abandon
from ps_backend import errors
from ps_backend.client import StoredArray, Total, Winner


class Found(NamedTuple):
    """Sums over rows: the value, the weights that a mean divides by, the gradients."""

    value: float
    weight: float
    gradients: tuple[DistArray, ...]


@dataclass(frozen=True)
class Evaluator:
    """Rows in Spark, what is computed of them, and where."""

    ps: PSContext
    data: Dataset
    work: Work
    residents: Residents | None
    """Those who stay; None: each evaluation is a Spark job."""

    def sums(
        self, arrays: Sequence[DistArray], kept: DistArray | None, part: Part | None = None
    ) -> Found:
        """Of the loss at ``arrays``, which are evaluated first; ``kept``: the coordinates that
        their spaces consist of, or None. Costs a Spark job and a message, or the message alone."""
        return self.data.until_found(lambda: self._sums(_held(self.ps, *arrays), kept, part))

    def products(
        self, arrays: Sequence[DistArray], directions: Sequence[DistArray], kept: DistArray | None
    ) -> Found:
        """The Hessian of the sum at ``arrays`` times ``directions``. Costs as ``sums``."""

        def attempt() -> Found:
            held = _held(self.ps, *arrays, *directions)
            count = len(arrays)
            request = self._request(held[:count], kept, asked=PRODUCTS)
            request = replace(request, directions=_stored(held[count:]))
            return self._found(self._after_phases(request))

        return self.data.until_found(attempt)

    def close(self) -> None:
        """End resident tasks, and remove the rows; twice is harmless."""
        if self.residents is not None:
            self.residents.close()
        self.data.close()

    def _sums(self, held: Sequence[DistArray], kept: DistArray | None, part: Part | None) -> Found:
        """Raises BlockMissing."""
        return self._found(self._after_phases(self._request(held, kept, part=part)))

    def _request(
        self,
        held: Sequence[DistArray],
        kept: DistArray | None,
        *,
        asked: str = SUMS,
        part: Part | None = None,
    ) -> Evaluation:
        coordinates = None if kept is None else StoredArray(kept.buffer_id, kept.type)
        return Evaluation(_stored(held), asked, coordinates=coordinates, part=part)

    def _after_phases(self, request: Evaluation) -> Evaluation:
        """With what each partition is told, by phase: an evaluation without gradients each."""
        loss, told = self.work.loss, dict[int, Told]()
        if not isinstance(loss, PhasedLoss):
            return request
        for phase in range(loss.phases):
            asked = replace(request, asked=SUMMARY, told=told)
            results, _ = self._run(asked)
            summaries = [np.array(one.summary) for one in results]
            for one, heard in zip(results, loss.merge(phase, summaries), strict=True):
                told[one.partition] = (*told.get(one.partition, ()), tuple(heard.tolist()))
        return replace(request, told=told)

    def _found(self, request: Evaluation) -> Found:
        results, buffers = self._run(request)
        gradients = (DistArray(self.ps, self.ps.graph.leaf(buffer)) for buffer in buffers)
        # In the order of the partitions, and rounded once.
        value = _total([one.value for one in results])
        return Found(value, math.fsum(one.weight for one in results), tuple(gradients))

    def _run(self, request: Evaluation) -> tuple[list[PartitionResult], tuple[Buffer, ...]]:
        """What tasks say, in the order of the partitions, and the sums of their contributions."""
        if self.residents is not None and len(request.changes) <= 1:
            results, gradient = self.residents.run(request)
            _raise_error_of(results)
            return results, () if gradient is None else (gradient,)
        client = self.ps.client
        request = replace(request, round=str(client.new_id()))
        try:
            if self.residents is None:
                results = self._run_job(request)
            else:
                results, _ = self.residents.run(request)
            _raise_error_of(results)
            buffers = self._commit(request, results)
        except BaseException as error:
            abandon(client, request.round, error)
            raise
        return results, buffers

    def _run_job(self, request: Evaluation) -> list[PartitionResult]:
        self.data.settle(self.ps.generations)
        return self.data.run_on_blocks(
            functools.partial(evaluate, self.work, request, self.ps.access)
        )

    def _commit(
        self, request: Evaluation, results: Sequence[PartitionResult]
    ) -> tuple[Buffer, ...]:
        """Sum what the tasks staged, in the order of the partitions. One message a server."""
        winners = [Winner(one.partition, one.attempt) for one in results]
        buffers = tuple(self.ps.new_buffer(one.type) for one in request.changes)
        totals = [
            Total(buffer.id, buffer.type, winners, slot=slot) for slot, buffer in enumerate(buffers)
        ]
        self.ps.client.commit_totals(request.round, totals)
        return buffers


def _held(ps: PSContext, *arrays: DistArray) -> list[DistArray]:
    """Evaluated, in common messages; as long as tasks read them, whatever becomes of ``arrays``."""
    ps.evaluate(*arrays)
    return [array.copy() for array in arrays]


def _stored(arrays: Sequence[DistArray]) -> tuple[StoredArray, ...]:
    return tuple(StoredArray(array.buffer_id, array.type) for array in arrays)


def _total(values: Sequence[float]) -> float:
    """Their sum, rounded once, also where some are not finite."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return sum(values)


def _raise_error_of(results: Sequence[PartitionResult]) -> None:
    """Raise a task's failure on the driver, as its own class."""
    for one in results:
        for loss_error in (LossError, NotFinite):
            if one.error == loss_error.__name__:
                raise loss_error(*one.details)
        if one.error:
            kind: type[errors.PSError] = getattr(errors, one.error, errors.PSError)
            raise kind(f"in the task of partition {one.partition}: {' '.join(one.details)}")
