"""The task side of a round: send contributions, and report how many.

Spark applies what a task added to an accumulator when the task has succeeded, and never from an
attempt that failed, was killed or came second. So the report of an attempt goes into one.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark import Accumulator, AccumulatorParam, TaskContext

from distvec.array.handle import broadcasts
from distvec.array.indexing import as_given, as_indices
from distvec.spark.access import Access, join
from ps_backend.client import Client, Key
from ps_backend.program.types import ArrayType

_RUN_BITS = 63


class Report(NamedTuple):
    """What one run of a task staged: ``counts[k]`` contributions to slot ``k``."""

    closure: int
    stage: int
    partition: int
    attempt: int
    run: int
    counts: list[int]


Reports = dict[str, list[Report]]
"""By round; one whose tasks had nothing to contribute has none."""


class CollectReports(AccumulatorParam[Reports]):
    """The accumulator's rule: all reports, in the order in which they come."""

    def zero(self, value: Reports) -> Reports:
        """Nothing reported."""
        return {}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:
        """``value1`` with the reports of ``value2`` at the end."""
        for name, reports in value2.items():
            value1.setdefault(name, []).extend(reports)
        return value1


class Contributor:
    """What a task uses to contribute to one array of a round; it travels in closures.

    A contribution is kept on the servers until the round ends: one message to each server, so
    gather what the rows of a partition add, and send it once. Raises ``RoundClosed`` in a task that
    comes too late to count.
    """

    def __init__(self, sender: Sender, slot: int, type: ArrayType) -> None:
        self._sender, self._slot, self._type = sender, slot, type

    def push(self, indices: npt.ArrayLike | None, values: npt.ArrayLike) -> None:
        """Contribute ``values`` at ``indices``; None: at all.

        A number an index, to a table a row; or one number or row for all. Indices may come in any
        order and repeatedly, and count from the end if negative.
        """
        type, sender = self._type, self._sender
        where = None if indices is None else as_indices(indices, type.space.length)
        given = as_values(values, type, where)

        def stage(client: Client, key: Key) -> None:
            client.stage(
                sender.name,
                key.partition,
                key.attempt,
                type.space,
                where,
                given,
                slot=key.slot,
                number=key.number,
            )

        sender.send(self._slot, stage)


class Sender:
    """Sends the contributions of one run of a task, and counts them in its report.

    Pickling gives each copy the number of the closure that it is in: a partition of one closure
    counts once, two actions count each. A copy in a task finds out by itself which attempt it is.
    """

    def __init__(
        self,
        access: Access,
        name: str,
        slots: int,
        reports: Accumulator[Reports],
        closure: int | None = None,
    ) -> None:
        """``slots``: how many the round has."""
        self.name, self._slots = name, slots
        self.is_over = False
        """Set on the driver at the end of the round."""
        self._access, self._reports = access, reports
        self._closure = closure
        self._closures = itertools.count()
        self._report: Report | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., Sender], tuple[Any, ...]]:
        if self.is_over:
            raise RuntimeError("the round is over; run the tasks inside of 'with ps.round(...)'")
        closure = next(self._closures) if self._closure is None else self._closure
        return _unpickled, (self._access, self.name, self._slots, self._reports, closure)

    def send(self, slot: int, stage: Callable[[Client, Key], None]) -> None:
        """Let ``stage`` send one contribution, under the key that it is told."""
        context, closure = self.check_in_task()
        with self._lock:
            report = self._report_of(context, closure)
            key = Key(report.partition, report.run, slot, report.counts[slot])
            stage(join(self._access), key)
            report.counts[slot] += 1

    def check_in_task(self) -> tuple[TaskContext, int]:
        """This task, and the number of its closure; ``RuntimeError`` on the driver."""
        context = TaskContext.get()
        if context is None or self._closure is None:
            raise RuntimeError(
                "a round takes contributions from Spark tasks, as in rdd.foreachPartition(lambda "
                "rows: r.push(...)); on the driver add to the array itself: g.push(indices, values)"
            )
        return context, self._closure

    def _report_of(self, context: TaskContext, closure: int) -> Report:
        """This run's report; Spark reads it when the task has ended, with the counts of then."""
        attempt = context.taskAttemptId()
        if self._report is None or self._report.attempt != attempt:
            self._report = Report(
                closure,
                context.stageId(),
                context.partitionId(),
                attempt,
                # Not the attempt's own id: after coalesce() one attempt runs a closure repeatedly.
                secrets.randbits(_RUN_BITS),
                [0] * self._slots,
            )
            self._reports.add({self.name: [self._report]})
        return self._report


def _unpickled(
    access: Access,
    name: str,
    slots: int,
    reports: Accumulator[Reports],
    closure: int,
) -> Sender:
    """The copy of a sender in a task; it lets the driver know that a task had one."""
    if TaskContext.get() is not None:
        reports.add({name: []})
    return Sender(access, name, slots, reports, closure)


def as_values(
    values: npt.ArrayLike, type: ArrayType, where: npt.NDArray[np.int64] | None
) -> npt.NDArray[Any]:
    """``values`` as what is added to an array of ``type`` at the indices ``where``, or at all.

    Stretched as NumPy does. ValueError, TypeError or OverflowError where they do not fit.
    """
    dtype = type.dtype
    given = as_given(values, dtype)
    shape = type.shape if where is None else (len(where), *type.row)
    if not broadcasts(given.shape, shape):
        allowed = f"{shape}, one row of shape {type.row}" if type.row else f"{shape}"
        raise ValueError(f"values have shape {given.shape}; allowed are {allowed} and one number")
    if not np.can_cast(given.dtype, dtype, "same_kind"):
        raise TypeError(
            f"values are {given.dtype}, the array is {dtype}; convert them first: "
            f"values.astype({dtype.name!r})"
        )
    return np.ascontiguousarray(np.broadcast_to(given, shape), dtype)
