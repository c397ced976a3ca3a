"""The task side of a round: send contributions, and report how many.

Spark applies what a task added to an accumulator when the task has succeeded, and never from an
attempt that failed, was killed or came second. So the report of an attempt goes into one. What
would change rows of keyed arrays waits on the servers for the commit.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from pyspark import TaskContext

from distvec.array.core.handle import is_broadcastable
from distvec.array.indexing.pull_push import as_added, as_indices
from distvec.keyed.array import KeyedArray
from distvec.keyed.row_call import ChosenKeys
from distvec.rows.api import Plugin, RowFunction
from distvec.spark.task_session import Report, ReportCollector, SessionTicket, join
from ps_backend.client import Client, Key, KeyBatch, KeySpace, KeyView
from ps_backend.program.row_program import RowProgram
from ps_backend.program.sweep import Scalar
from ps_backend.program.types import ArrayType

_RUN_BITS = 63


class Contributor:
    """Contribute to one array of a round from Spark tasks.

    ``PSContext.round`` yields it. It is pickled with the functions that use it. A contribution
    waits on the servers until the round ends.
    """

    def __init__(self, sender: Sender, slot: int, type: ArrayType) -> None:
        self._sender, self._slot, self._type = sender, slot, type

    def push(self, indices: npt.ArrayLike | None, values: npt.ArrayLike) -> None:
        """Contribute values at some indices.

        Parameters
        ----------
        indices : array_like of int or None
            The indices, in any order, possibly repeated; negative ones count from the end. None
            means all elements.
        values : array_like
            One number for each index, or a row for a table; or a single number or row for all.

        Raises
        ------
        RoundClosed
            If the round has ended.

        Notes
        -----
        Each call costs one request to each server, so collect the contribution of a partition and
        send it with one call.
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
        access: SessionTicket,
        name: str,
        slots: int,
        reports: ReportCollector,
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
                "a round takes contributions from Spark tasks: rdd.foreachPartition(lambda rows: "
                "r.push(...)); on the driver push to the array itself: g.push(indices, values)"
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
    access: SessionTicket,
    name: str,
    slots: int,
    reports: ReportCollector,
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
    given = as_added(values, dtype)
    shape = type.shape if where is None else (len(where), *type.row)
    if not is_broadcastable(given.shape, shape):
        allowed = f"{shape}, one row of shape {type.row}" if type.row else f"{shape}"
        raise ValueError(
            f"values have shape {given.shape}; allowed are {allowed} and a single number"
        )
    if not np.can_cast(given.dtype, dtype, "same_kind"):
        raise TypeError(
            f"values are {given.dtype}, the array is {dtype}; convert them first: "
            f"values.astype({dtype.name!r})"
        )
    return np.ascontiguousarray(np.broadcast_to(given, shape), dtype)


class KeyedContributor:
    """Change rows of a keyed array from Spark tasks, in a round.

    ``PSContext.round`` yields it. Changes wait on the servers until the round ends. They are then
    made by partition, and within a partition in the order of the calls. So neither values nor the
    order of new keys depend on the order of tasks or on the number of servers. Rows that ``wire=``
    narrows are rounded by the partition and the number of the call, so a repeated task sends
    bitwise identical data. Each call costs one request to each server. It raises ``RoundClosed``
    if the round has ended.
    """

    def __init__(self, sender: Sender, slot: int, array: KeyedArray, op: str) -> None:
        """``slot``: of the space; ``op``: what ``push`` does, "add", "min" or "max"."""
        self._sender, self._slot, self._array, self._op = sender, slot, array, op

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_staged"}

    def push(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """Combine rows with values, as ``KeyedArray.push`` does, or with the ``op`` of the round.

        Parameters
        ----------
        keys : array_like
            The keys.
        values : array_like
            A number or a row for each key.
        wire : str, optional
            The transfer dtype, as for ``KeyedArray.push``.
        """
        match self._op:
            case "add":
                self._staged.push(keys, values, wire=wire)
            case "min":
                self._staged.minimum(keys, values, wire=wire)
            case "max":
                self._staged.maximum(keys, values, wire=wire)

    def assign(self, keys: Any, values: Any, *, wire: str | None = None) -> None:
        """Set rows, as ``KeyedArray.assign`` does.

        Parameters
        ----------
        keys : array_like
            The keys.
        values : array_like
            A number or a row for each key.
        wire : str, optional
            The transfer dtype.
        """
        self._staged.assign(keys, values, wire=wire)

    def step(
        self,
        keys: Any,
        gradients: Any,
        *,
        step_size: float | None = None,
        wire: str | None = None,
    ) -> None:
        """Take a step of the array's optimizer, as ``KeyedArray.step`` does.

        Parameters
        ----------
        keys : array_like
            The keys.
        gradients : array_like
            A number or a row for each key.
        step_size : float, optional
            The step size. By default the one of the optimizer.
        wire : str, optional
            The transfer dtype.
        """
        self._staged.step(keys, gradients, step_size=step_size, wire=wire)

    def apply(
        self,
        function: RowFunction,
        keys: Any,
        *args: Any,
        combine: str = "add",
        wire: str | None = None,
        **named: Any,
    ) -> None:
        """Run a row function at the end of the round, as ``KeyedSpace.apply`` does.

        Parameters
        ----------
        function : RowFunction
            A function with ``@dv.rows`` that returns no values.
        keys : array_like
            The keys.
        *args
            The arguments of the function: arrays of this space, and values for each key.
        combine : str, default "add"
            The operation for repeated keys.
        wire : str, optional
            The transfer dtype.
        **named
            More arguments of the function.

        Raises
        ------
        TypeError
            If ``function`` is a plug-in: it may fail, and a round takes effect completely or not
            at all.
        """
        if isinstance(function, Plugin):
            raise TypeError(
                f"{function!r} cannot be part of a round, which takes effect completely or not at "
                "all when it ends: a plug-in may fail then; write it as @dv.rows, or call "
                "space.apply(...) in the task, which runs it immediately"
            )
        chosen = ChosenKeys.of(self._staged.space, keys)
        chosen.apply(function, args, named, combine=combine, wire=wire)

    @cached_property
    def _staged(self) -> KeyedArray:
        """The array, of which row programs are staged."""
        self._sender.check_in_task()
        return self._array.with_remote(
            cast(KeySpace, _Staging(self._array, self._sender, self._slot))
        )


class _Staging:
    """A keyed space whose row programs are staged in a round."""

    def __init__(self, array: KeyedArray, sender: Sender, slot: int) -> None:
        self._remote: KeySpace = array.space.remote
        self.partition = self._remote.partition
        self._sender, self._slot = sender, slot

    def run(
        self,
        program: RowProgram,
        arrays: Sequence[int],
        keys: KeyBatch,
        given: Sequence[npt.NDArray[Any]] = (),
        scalars: Sequence[Scalar] = (),
        *,
        find: bool = False,
        view: KeyView | None = None,
        wire: str = "",
        spaces: Sequence[int] = (),
    ) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.bool_] | None]:
        """Stage it. ``TypeError`` if it returns something, which nobody knows before the end."""
        if program.returned or find or view is not None:
            raise TypeError(
                "in a round a row function must not return values, because it runs when the round "
                "ends; use space.apply to run it immediately"
            )
        name = self._sender.name

        def stage(_: Client, key: Key) -> None:
            self._remote.stage(name, key, program, arrays, keys, given, scalars, wire, spaces)

        self._sender.send(self._slot, stage)
        return [], None
