"""The driver's side of an evaluation: Spark tasks that stay, and wait for questions; or jobs.

A Spark job takes some 40 ms, a question to tasks that run already a few. So one long Spark job has
a task for each partition, or for several where slots are few, which waits at a mailbox. Spark
repeats a task that is lost, and the new one answers the question under way.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from distvec import DistArray
from distvec.graph.node import Buffer
from distvec.losses.loss import LossError, NotFinite, PhasedLoss
from distvec.spark.context import PSContext
from distvec.spark.data.blocks import BlockMissing
from distvec.spark.data.dataset import Dataset, PartitionedRows
from distvec.spark.jobs.application import BackgroundJob, SlotWatch, free_slots
from distvec.spark.jobs.failures import describe_failure, tasks_were_lost
from distvec.spark.objectives.evaluation_task import (
    BLOCK_MISSING,
    PRODUCTS,
    READY,
    SUMMARY,
    SUMS,
    Evaluation,
    LossSpec,
    PartitionResult,
    PhaseInput,
    TaskSpec,
    decode_results,
    encode_request,
    evaluate,
    serve,
    weights_come_along,
)
from distvec.spark.objectives.partition import RowSubset
from distvec.spark.rounds.round import abandon
from distvec.spark.task_session import SessionTicket
from ps_backend import errors
from ps_backend.client import Mailbox, StoredArray, Total, Winner
from ps_backend.errors import MailboxClosed, PSError, ServerLost
from ps_backend.program.types import ArrayType

_POLL_SECONDS = 0.5
"""The driver looks up so often while it waits for answers: for Ctrl-C, and for a job that ended."""

_START_SECONDS = 30.0
_STALL_SECONDS = 15.0
"""Tasks that have no slot for so long, while nothing is answered, are not waited for: at the start
and during an evaluation."""

_IDLE_SECONDS = 3.0
_STOP_SECONDS = 5.0
_TRIES = 3
_FIRST_PAUSE_SECONDS = 0.5
"""Before a job is started again whose tasks were lost too often; then twice as long, and so on."""


Answers = tuple[list[PartitionResult], Buffer | None]
"""What tasks say, and the gradient made of what they answered, if one was to be made."""


class WaitingTasks(Protocol):
    """Tasks that stay between evaluations of one loss."""

    def run(self, request: Evaluation) -> Answers:
        """What the tasks say, in the order of the partitions, and the gradient."""

    def close(self) -> None:
        """End the tasks, if they are of this loss alone; twice is harmless."""


class StandingTasks:
    """The resident tasks of one data set: started by the first evaluation, ended by ``close``.

    They hold as many slots as there are partitions, or all that are free if these are fewer. After
    three seconds without an evaluation they end, so that other jobs get on; the next evaluation
    starts them again. Thread-safe: one evaluation at a time.
    """

    def __init__(self, ps: PSContext, data: Dataset, work: LossSpec) -> None:
        self._ps, self._data, self._work = ps, data, work
        self._job: StandingTasksJob | None = None
        self._ended = threading.Event()  # of that job, for who watches whether it idles
        self._used = 0.0
        self._lock = threading.RLock()

    def run(self, request: Evaluation) -> Answers:
        """What the tasks say, in the order of the partitions, and the gradient. One message.

        The gradient is made of the answers unless the request has a round to stage it in.

        ``RuntimeError`` if tasks get no slot or their job fails, ``ServerLost``, ``BlockMissing``.
        """
        with self._lock:
            try:
                results, gradient = self._run(request)
                for one in results:
                    if one.error == BLOCK_MISSING:  # to read the data again takes the slots
                        raise BlockMissing(*one.details)
            except BaseException:
                self.close()
                raise
            self._used = time.monotonic()
            return results, gradient

    def close(self) -> None:
        """End the tasks, which frees their slots; idempotent. ``run`` starts others."""
        with self._lock:
            self._ended.set()
            job, self._job = self._job, None
            if job is not None:
                job.stop()

    def _run(self, request: Evaluation) -> Answers:
        reason = ""
        for attempt in range(_TRIES):
            if reason:
                time.sleep(_FIRST_PAUSE_SECONDS * 2**attempt)
            job = self._job
            try:
                if job is None or not job.is_alive:
                    self.close()
                    job = self._start()
                found = job.evaluate(request)
            except TasksLost as error:
                found, reason = None, str(error)
            if found is not None:
                return found
            self.close()  # the job lost its tasks, some of its slots for good, or its mailbox
        raise RuntimeError(
            f"the resident tasks ended {_TRIES} times during an evaluation; executors or their "
            f"Python workers seem to restart; use mode='job'. {reason}"
        )

    def _start(self) -> StandingTasksJob:
        self._data.check_usable()
        self._data.settle(self._ps.generations)
        free = free_slots(self._data.spark.sparkContext)
        tasks = min(self._data.tasks, max(1, free))
        job = StandingTasksJob(self._ps, self._data, self._work, tasks)
        self._job = job  # so that it is stopped whatever happens
        if not job.is_ready():
            raise RuntimeError(
                f"mode='resident' needs {job.tasks} free slots for its tasks, and {job.active} of "
                f"them got one within {_START_SECONDS:g} s; end other Spark jobs, give the "
                "application more executors, or use mode='job'"
            )
        self._ended, self._used = threading.Event(), time.monotonic()
        watch = (job, self._ended)
        threading.Thread(
            target=self._watch, args=watch, name="idle-standing-tasks", daemon=True
        ).start()
        return job

    def _watch(self, job: StandingTasksJob, ended: threading.Event) -> None:
        """End ``job`` once it idles: one thread for as long as it runs, as to start one for each
        evaluation, a timer, would take longer than to evaluate a few rows."""
        left = _IDLE_SECONDS
        while not ended.wait(left):
            with self._lock:  # not while it evaluates
                left = self._used + _IDLE_SECONDS - time.monotonic()
                if self._job is job and left <= 0.0:
                    self.close()


def standing_tasks(ps: PSContext, data: PartitionedRows, work: LossSpec) -> WaitingTasks:
    """Tasks for evaluations: those that keep the rows, or some that the first evaluation starts."""
    if not isinstance(data, Dataset):
        found: WaitingTasks = data.waiting_tasks(work)
        return found
    started = StandingTasks(ps, data, work)
    ps.standing_tasks.add(started)
    return started


class TasksLost(Exception):
    """Spark gave a job up, as one of its tasks was lost several times; no fault of the task."""


class Questions(ABC):
    """Evaluations that are asked at a mailbox, and answered by the tasks of all partitions."""

    def __init__(self, ps: PSContext, mailbox: Mailbox) -> None:
        self._ps, self._mailbox = ps, mailbox

    def evaluate(self, request: Evaluation) -> Answers | None:
        """The results of all partitions, and the sum of what they contributed.

        None if the tasks ended, or lack slots for too long while nothing is answered. Raises what
        ended the job, ``TasksLost`` if that was no exception, ``ServerLost`` if the mailbox went
        with its server.
        """
        question = encode_request(request)
        about = request.parameters[0] if weights_come_along(request) else None
        while True:
            gradient = total = None
            if request.changes and not request.round:
                gradient = self._ps.new_buffer(request.changes[0].type)
                total = StoredArray(gradient.id, gradient.type)
            answers = self._ask(question, _STALL_SECONDS, about, total)
            if answers is None:
                return None
            found = [decode_results(one) for one in answers]
            for results in found:
                if any(one.error for one in results):
                    return results, gradient
            # Else a task was lost between two servers, and another answered the second one.
            if all(one == answers[0] for one in answers):
                return found[0], gradient

    @abstractmethod
    def _ask(
        self,
        question: bytes,
        patience: float,
        about: StoredArray | None = None,
        total: StoredArray | None = None,
    ) -> Sequence[Mapping[int, bytes]] | None:
        """The answers on each server that was asked, as ``evaluate`` says."""


class StandingTasksJob(Questions):
    """One Spark job of resident tasks, in a thread of its own, and the mailbox they wait at."""

    def __init__(self, ps: PSContext, data: Dataset, work: LossSpec, tasks: int) -> None:
        """Start the job with so many ``tasks`` at most; returns at once."""
        self.tasks = tasks
        """How many tasks stay, once it is known which of them have rows."""
        name = f"resident-{ps.client.new_id()}"
        super().__init__(ps, ps.client.mailbox(name))
        self._work, self._partitions = work, data.filled
        self._needed = 1  # while data is read again; then all tasks must have a slot
        self._has_slots = False
        self._mailbox.open()  # a task must find it when it starts
        self._job = BackgroundJob(
            data.spark.sparkContext,
            functools.partial(self._run, data, replace(ps.access, eager=True)),
            group=f"distvec-{name}-{ps.client.session}",
            description=f"distvec: {tasks} resident tasks",
        )

    @property
    def is_alive(self) -> bool:
        """Does the job still run?"""
        return self._job.is_alive

    @property
    def active(self) -> int:
        """How many of its tasks have a slot, as Spark knew some seconds ago."""
        return self._job.active

    def is_ready(self) -> bool:
        """Do all partitions have a task, or get one in time? Raises as ``evaluate``."""
        return self._ask(READY, _START_SECONDS) is not None

    def stop(self) -> None:
        """End the tasks and wait for them, some seconds at most; idempotent."""
        with suppress(PSError):  # the server is gone, and the mailbox with it
            self._mailbox.close()
        # Tasks that wait for a slot hear nothing.
        self._job.stop(_STOP_SECONDS if self._has_slots else 0.0)

    def _ask(
        self,
        question: bytes,
        patience: float,
        about: StoredArray | None = None,
        total: StoredArray | None = None,
    ) -> Sequence[Mapping[int, bytes]] | None:
        """The answers on each server that was asked, as ``evaluate`` says."""
        asked, slots = self._mailbox.ask(question, about, total), SlotWatch(self._job, patience)
        try:
            while (answers := asked.answers(self._partitions, _POLL_SECONDS)) is None:
                if (failure := self._job.failure) is not None:
                    if tasks_were_lost(failure):
                        raise TasksLost(f"The last time: {describe_failure(failure)}") from failure
                    raise failure
                if not self.is_alive:
                    return None
                if slots.lacks(self._needed, (asked.count, self._needed)):
                    self._has_slots = False
                    return None
        except MailboxClosed as error:
            raise ServerLost(
                f"a server that the resident tasks wait for was lost: {error}"
            ) from error
        self._has_slots = True
        return answers

    def _run(self, data: Dataset, access: SessionTicket) -> None:
        groups = data.group(self.tasks)
        self.tasks = self._needed = sum(map(bool, groups.members))  # the others end at once
        orders = TaskSpec(access, self._mailbox.name, groups.members, self._work)
        groups.run(functools.partial(serve, orders))


class LossSums(NamedTuple):
    """Sums over rows: the value, the weights that a mean divides by, the gradients."""

    value: float
    weight: float
    gradients: tuple[DistArray, ...]


@dataclass(frozen=True)
class Evaluator:
    """Rows in Spark, what is computed of them, and where."""

    ps: PSContext
    data: PartitionedRows
    work: LossSpec
    standing_tasks: WaitingTasks | None
    """Those who stay; None: each evaluation is a Spark job."""
    options: Mapping[str, float] = field(default_factory=dict)
    """Other values of fields of the loss than in the tasks."""

    def with_options(self, options: Mapping[str, float]) -> Evaluator:
        """The same rows and tasks, and other values of some fields of the loss."""
        return replace(self, work=self.work.with_options(options), options=options)

    def sums(
        self,
        arrays: Sequence[DistArray],
        kept: DistArray | None,
        part: RowSubset | None = None,
    ) -> LossSums:
        """Of the loss at ``arrays``, which are evaluated first; ``kept``: the coordinates that
        their spaces consist of, or None. Costs a Spark job and a message, or the message alone."""
        return self.data.retry_missing(
            lambda: self._sums(_evaluate_all(self.ps, *arrays), kept, part)
        )

    def products(
        self, arrays: Sequence[DistArray], directions: Sequence[DistArray], kept: DistArray | None
    ) -> LossSums:
        """The Hessian of the sum at ``arrays`` times ``directions``. Costs as ``sums``."""

        def attempt() -> LossSums:
            held = _evaluate_all(self.ps, *arrays, *directions)
            count = len(arrays)
            request = self._request(held[:count], kept, asked=PRODUCTS)
            request = replace(request, directions=_as_stored(held[count:]))
            return self._found(self._run_phases(request))

        return self.data.retry_missing(attempt)

    def advance(self, arrays: Sequence[DistArray], type: ArrayType) -> DistArray:
        """The sums of a ``StatefulLoss``, an array of ``type``. Costs as ``sums``."""

        def attempt() -> DistArray:
            held = _evaluate_all(self.ps, *arrays)
            request = replace(self._request(held, None), like=StoredArray(0, type))
            return self._found(request).gradients[0]

        return self.data.retry_missing(attempt)

    def columns(
        self, asked: str, like: DistArray, kept: DistArray | None
    ) -> tuple[list[PartitionResult], tuple[DistArray, ...]]:
        """Two sums of each feature, and what partitions say, in their order. Costs as ``sums``.

        ``like``: an array over the features, with their means if these are needed. Raises
        BlockMissing.
        """
        held = _evaluate_all(self.ps, like)
        results, buffers = self._run(self._request(held * 2, kept, asked=asked))
        return results, self._as_arrays(buffers)

    def close(self) -> None:
        """End resident tasks, and remove the rows; twice is harmless."""
        if self.standing_tasks is not None:
            self.standing_tasks.close()
        self.data.close()

    def _sums(
        self, held: Sequence[DistArray], kept: DistArray | None, part: RowSubset | None
    ) -> LossSums:
        """Raises BlockMissing."""
        return self._found(self._run_phases(self._request(held, kept, part=part)))

    def _request(
        self,
        held: Sequence[DistArray],
        kept: DistArray | None,
        *,
        asked: str = SUMS,
        part: RowSubset | None = None,
    ) -> Evaluation:
        coordinates = None if kept is None else StoredArray(kept.buffer_id, kept.type)
        return Evaluation(
            _as_stored(held), asked, coordinates=coordinates, part=part, options=self.options
        )

    def _run_phases(self, request: Evaluation) -> Evaluation:
        """With what each partition is told, by phase: an evaluation without gradients each."""
        loss, told = self.work.loss, dict[int, PhaseInput]()
        if not isinstance(loss, PhasedLoss):
            return request
        for phase in range(loss.phases):
            asked = replace(request, asked=SUMMARY, told=told)
            results, _ = self._run(asked)
            summaries = [np.array(one.summary) for one in results]
            for one, heard in zip(results, loss.merge(phase, summaries), strict=True):
                told[one.partition] = (*told.get(one.partition, ()), tuple(heard.tolist()))
        return replace(request, told=told)

    def _found(self, request: Evaluation) -> LossSums:
        results, buffers = self._run(request)
        # In the order of the partitions, and rounded once.
        value = _total([one.value for one in results])
        weight = math.fsum(one.weight for one in results)
        return LossSums(value, weight, self._as_arrays(buffers))

    def _as_arrays(self, buffers: Sequence[Buffer]) -> tuple[DistArray, ...]:
        return tuple(DistArray(self.ps, self.ps.graph.leaf(buffer)) for buffer in buffers)

    def _run(self, request: Evaluation) -> tuple[list[PartitionResult], tuple[Buffer, ...]]:
        """What tasks say, in the order of the partitions, and the sums of their contributions."""
        if self.standing_tasks is not None and len(request.changes) <= 1:
            results, gradient = self.standing_tasks.run(request)
            _raise_error_of(results)
            return results, () if gradient is None else (gradient,)
        client = self.ps.client
        request = replace(request, round=str(client.new_id()))
        try:
            if self.standing_tasks is None:
                results = self._run_job(request)
            else:
                results, _ = self.standing_tasks.run(request)
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


def _evaluate_all(ps: PSContext, *arrays: DistArray) -> list[DistArray]:
    """Evaluated, in common messages; as long as tasks read them, whatever becomes of ``arrays``."""
    ps.evaluate(*arrays)
    return [array.copy() for array in arrays]


def _as_stored(arrays: Sequence[DistArray]) -> tuple[StoredArray, ...]:
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
