"""Spark work in a thread and a job group of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext

from distvec.spark.jobs.application import active_tasks, has_stopped


class BackgroundJob:
    """Begins at once; ``cancel`` ends it."""

    def __init__(
        self, context: SparkContext, work: Callable[[], None], group: str, description: str
    ) -> None:
        """``work`` runs Spark jobs, which Spark's web interface shows under ``description``."""
        self.failure: Exception | None = None
        """What ended it, if it failed."""
        self._context, self._work = context, work
        self._group, self._description = group, description
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
        self._thread.join(seconds)

    def cancel(self, seconds: float) -> None:
        """Kill its tasks, and wait for its end as ``join`` does. Idempotent."""
        if self.is_alive and not has_stopped(self._context):
            with suppress(Py4JError, OSError, AttributeError):  # Spark is ending just now
                self._context.cancelJobGroup(self._group)
            self.join(seconds)

    def _run(self) -> None:
        self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - raised by who waits: nobody else hears of it
            self.failure = error
