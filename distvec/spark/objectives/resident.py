"""The driver's side of resident evaluation: Spark tasks that stay, and wait for questions.

A Spark job takes some 40 ms, a question to tasks that run already a few. So one long Spark job has
a task for each partition, or for several where slots are few, which waits on the session's board.
Spark repeats a task that is lost, and the new one answers the question under way.
"""

from __future__ import annotations

import functools
import threading
import time
from contextlib import suppress
from dataclasses import replace

from distvec.spark.access import Access
from distvec.spark.context import PSContext
from distvec.spark.data.dataset import Dataset
from distvec.spark.jobs.application import free_slots, reason_of, tasks_were_lost
from distvec.spark.jobs.background import BackgroundJob
from distvec.spark.objectives.evaluate import BLOCK_MISSING, Evaluation, Outcome
from distvec.spark.objectives.resident_task import (
    READY,
    Orders,
    decode_outcomes,
    encode_request,
    serve,
)
from ps_backend.errors import PSError, ServerLost, TopicClosed

_POLL_SECONDS = 0.5
"""The driver looks up so often while it waits for answers: for Ctrl-C, and for a job that ended."""

_START_SECONDS = 30.0
_STALL_SECONDS = 15.0
"""Tasks that have no slot for so long, while nothing is answered, are not waited for: at the start
and during an evaluation. Spark's count of those that have one is old by ten seconds at most.
"""

_IDLE_SECONDS = 3.0
_STOP_SECONDS = 5.0
_TRIES = 3
_FIRST_PAUSE_SECONDS = 0.5
"""Before a job is started again whose tasks were lost too often; then twice as long, and so on."""


class Residents:
    """The resident tasks of one data set: started by the first evaluation, ended by ``close``.

    They hold as many slots as there are partitions, or all that are free if these are fewer. After
    three seconds without an evaluation they end, so that other jobs get on; the next evaluation
    starts them again. Thread-safe: one evaluation at a time.
    """

    def __init__(self, ps: PSContext, data: Dataset) -> None:
        self._ps, self._data = ps, data
        self._job: ResidentJob | None = None
        self._idle: threading.Timer | None = None
        self._used = 0.0
        self._lock = threading.RLock()

    def run(self, request: Evaluation) -> list[Outcome]:
        """What the tasks answer, in the order of the partitions. Two messages of the driver.

        ``RuntimeError`` if tasks get no slot or their job fails, ``ServerLost``.
        """
        with self._lock:
            self._stop_timer()
            try:
                outcomes = self._run(encode_request(request))
            except BaseException:
                self.close()
                raise
            if any(one.error == BLOCK_MISSING for one in outcomes):
                self.close()  # to read the data again takes the slots
            else:
                self._start_timer()
            return outcomes

    def close(self) -> None:
        """End the tasks, which frees their slots; idempotent. ``run`` starts others."""
        with self._lock:
            self._stop_timer()
            job, self._job = self._job, None
            if job is not None:
                job.stop()

    def _run(self, question: bytes) -> list[Outcome]:
        reason = ""
        for attempt in range(_TRIES):
            if reason:
                time.sleep(_FIRST_PAUSE_SECONDS * 2**attempt)
            job = self._job
            try:
                if job is None or not job.is_alive:
                    self.close()
                    job = self._job = self._start()
                outcomes = job.ask(question, _STALL_SECONDS)
            except TasksLost as error:
                outcomes, reason = None, str(error)
            if outcomes is not None:
                return outcomes
            self.close()  # the job lost its tasks, some of its slots for good, or its topic
        raise RuntimeError(
            f"the resident tasks ended {_TRIES} times during an evaluation; executors or their "
            f"Python workers seem to come and go; use mode='job'. {reason}"
        )

    def _start(self) -> ResidentJob:
        self._data.check_usable()
        self._data.settle(self._ps.generations)
        free = free_slots(self._data.spark.sparkContext)
        tasks = min(self._data.partitions, max(1, free))
        job = ResidentJob(self._ps, self._data, tasks)
        self._job = job  # so that it is stopped whatever happens
        if job.ask(READY, _START_SECONDS) is None:
            raise RuntimeError(
                f"mode='resident' needs {job.tasks} free slots for its tasks, and {job.active} of "
                f"them got one within {_START_SECONDS:g} s; end other Spark jobs, give the "
                "application more executors, or use mode='job'"
            )
        return job

    def _start_timer(self) -> None:
        self._used = time.monotonic()
        self._idle = threading.Timer(_IDLE_SECONDS, self._close_if_idle)
        self._idle.daemon = True
        self._idle.start()

    def _stop_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _close_if_idle(self) -> None:
        with self._lock:
            if time.monotonic() - self._used >= _IDLE_SECONDS:
                self.close()


class TasksLost(Exception):
    """Spark gave a job up, as one of its tasks was lost several times; no fault of the task."""


class ResidentJob:
    """One Spark job of resident tasks, in a thread of its own, and the topic they wait on."""

    def __init__(self, ps: PSContext, data: Dataset, tasks: int) -> None:
        """Start the job with so many ``tasks`` at most; returns at once."""
        self.tasks = tasks
        """How many tasks stay, once it is known which of them have rows."""
        self._partitions = data.filled
        name = f"resident-{ps.client.new_id()}"
        self._topic = ps.client.topic(name)
        self._needed = 1  # while data is read again; then all tasks must have a slot
        self._has_slots = False
        self._topic.post(READY)  # a task must find the topic when it starts
        self._job = BackgroundJob(
            data.spark.sparkContext,
            functools.partial(self._run, data, replace(ps.access, pipe=True)),
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

    def ask(self, question: bytes, patience: float) -> list[Outcome] | None:
        """The answers for all partitions; None if the tasks ended, or lack slots for too long.

        Too long are ``patience`` seconds without another answer. Raises what ended the job,
        ``TasksLost`` if that was no exception, ``ServerLost`` if the topic went with its server.
        """
        try:
            return self._collect(self._topic.post(question), patience)
        except TopicClosed as error:
            raise ServerLost(
                f"the server that held what the resident tasks wait for was lost: {error}"
            ) from error

    def stop(self) -> None:
        """End the tasks and wait for them, some seconds at most; idempotent."""
        with suppress(PSError):  # the server is gone, and the topic with it
            self._topic.close()
        # Tasks that wait for a slot hear nothing.
        self._job.join(_STOP_SECONDS if self._has_slots else 0.0)
        self._job.cancel(_STOP_SECONDS)

    def _collect(self, version: int, patience: float) -> list[Outcome] | None:
        progress, since = (0, 0), 0.0
        while True:
            answers = self._topic.answers(version, self._partitions, _POLL_SECONDS)
            if len(answers) == self._partitions:
                self._has_slots = True
                return decode_outcomes(answers.values())
            if (failure := self._job.failure) is not None:
                if tasks_were_lost(failure):
                    raise TasksLost(f"The last time: {reason_of(failure)}") from failure
                raise failure
            if not self.is_alive:
                return None
            if progress != (len(answers), self._needed):
                progress, since = (len(answers), self._needed), time.monotonic()
            elif time.monotonic() - since > patience and self.active < self._needed:
                self._has_slots = False
                return None

    def _run(self, data: Dataset, access: Access) -> None:
        groups = data.group(self.tasks)
        self.tasks = self._needed = sum(map(bool, groups.members))  # the others end at once
        orders = Orders(access, self._topic.name, groups.members)
        groups.run(functools.partial(serve, orders))
