"""Spark work in a thread and a job group of its own, and whether its tasks lack slots."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext

from distvec.spark.jobs.application import active_tasks, free_slots, has_stopped
from ps_backend.client import defer_signals

T = TypeVar("T")

_ENDING = (Py4JError, OSError, AttributeError)
"""What calls of Spark raise that is ending just now."""

_STOP_SECONDS = 5.0
_CANCEL_SECONDS = 1.0
_LOOK_SECONDS = 0.05


class BackgroundJob(Generic[T]):
    """Begins at once; ``cancel`` or ``stop`` ends it."""

    def __init__(
        self, context: SparkContext, work: Callable[[], T], group: str, description: str
    ) -> None:
        """``work`` runs Spark jobs, which Spark's web interface shows under ``description``."""
        self.result: T | None = None
        """What ``work`` returned, once it has ended."""
        self.failure: Exception | None = None
        """What ended it, if it failed."""
        self._context, self._work = context, work
        self._group, self._description = group, description
        self._free = 0
        with suppress(*_ENDING):
            self._free = free_slots(context)
        self._thread = InheritableThread(target=self._run, name=group, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Does it still run?"""
        return self._thread.is_alive()

    @property
    def active(self) -> int:
        """How many of its tasks have a slot, as Spark knew some seconds ago."""
        return active_tasks(self._context, self._group)

    def join(self, seconds: float) -> None:
        """Wait for its end, but no longer."""
        self._thread.join(max(0.0, seconds))

    def cancel(self, seconds: float) -> None:
        """Kill its tasks, and wait for its end as ``join`` does. Idempotent."""
        deadline = time.monotonic() + seconds
        while self.is_alive and not has_stopped(self._context) and time.monotonic() < deadline:
            try:
                self._context.cancelJobGroup(self._group)  # in vain before its job has begun
            except _ENDING:
                return
            self.join(min(_CANCEL_SECONDS, deadline - time.monotonic()))

    def stop(self, grace: float = 0.0) -> None:
        """End it, by force after so many seconds, and wait until its slots are free; idempotent.

        That takes some seconds at most.
        """
        self.join(grace)
        self.cancel(_STOP_SECONDS)
        deadline = time.monotonic() + _STOP_SECONDS
        with suppress(*_ENDING):
            # A job that failed does not wait for its other tasks.
            while not has_stopped(self._context) and free_slots(self._context) < self._free:
                if time.monotonic() > deadline:
                    return
                time.sleep(_LOOK_SECONDS)

    def _run(self) -> None:
        self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
        try:
            self.result = self._work()
        except Exception as error:  # noqa: BLE001 - raised by who waits: nobody else hears of it
            self.failure = error


class SlotWatch:
    """Whether the tasks of a job, which must run at the same time, wait in vain for slots."""

    def __init__(self, job: BackgroundJob[T], patience: float) -> None:
        """``patience``: so many seconds without slots enough, and without progress, are in vain.

        Spark's count of tasks that have a slot is old by ten seconds at most.
        """
        self._job, self._patience = job, patience
        self._since, self._progress = time.monotonic(), object()
        self.active = 0
        """How many had a slot as of the last look."""

    def lacks(self, needed: int, progress: object = None) -> bool:
        """Are there too few for too long? ``progress`` differs where something went on."""
        with defer_signals():  # Ctrl-C in the middle of Py4J's own code comes out as its error
            self.active = self._job.active
        now = time.monotonic()
        if self.active >= needed or progress != self._progress:
            self._since, self._progress = now, progress
        return now - self._since > self._patience
