"""The Spark job of a loop, in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark import RDD, InheritableThread, SparkContext

from distvec.spark.application import active_tasks, free_slots, has_stopped

_STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.05

Task = Callable[[int, Any], Any]


class Job:
    """One task a partition of ``rdd``, each of which yields (rank, result)."""

    def __init__(self, rdd: RDD[Any], task: Task, group: str, description: str) -> None:
        """Start the job; returns at once."""
        self.failure: Exception | None = None
        """What ended it, if it failed."""
        self.results: list[tuple[int, Any]] = []
        """What the tasks yielded, once it has ended."""
        self._context: SparkContext = rdd.context
        self._group, self._description = group, description
        self._free = free_slots(self._context)
        self._thread = InheritableThread(
            target=self._run, args=(rdd, task), name="distvec-loop", daemon=True
        )
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Does it still run?"""
        return self._thread.is_alive()

    @property
    def active(self) -> int:
        """How many of its tasks have a slot, as Spark knew some seconds ago."""
        return active_tasks(self._context, self._group)

    def stop(self) -> None:
        """End it and wait until its slots are free again, some seconds at most; idempotent."""
        if has_stopped(self._context):
            return
        deadline = time.monotonic() + _STOP_SECONDS
        with suppress(Py4JError, OSError, AttributeError):  # Spark is ending just now
            self._context.cancelJobGroup(self._group)
            self._thread.join(_STOP_SECONDS)
            # A job that failed does not wait for its other tasks.
            while free_slots(self._context) < self._free and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)

    def _run(self, rdd: RDD[Any], task: Task) -> None:
        self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
        try:
            self.results = rdd.mapPartitionsWithIndex(task).collect()
        except Exception as error:  # noqa: BLE001 - raised by who waits: nobody else hears of it
            self.failure = error
