"""The Spark job of a loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext

from distvec.spark.jobs.application import free_slots, has_stopped
from distvec.spark.jobs.background import BackgroundJob

_STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.05

Task = Callable[[int, Any], Any]


class Job(BackgroundJob):
    """One task a partition of ``rdd``, each of which yields (rank, result)."""

    def __init__(self, rdd: RDD[Any], task: Task, group: str, description: str) -> None:
        """Start the job; returns at once."""
        self.results: list[tuple[int, Any]] = []
        """What the tasks yielded, once it has ended."""
        context: SparkContext = rdd.context
        self._free = free_slots(context)
        super().__init__(context, partial(self._collect, rdd, task), group, description)

    def stop(self) -> None:
        """End it and wait until its slots are free again, some seconds at most; idempotent."""
        deadline = time.monotonic() + _STOP_SECONDS
        self.cancel(_STOP_SECONDS)
        with suppress(Py4JError, OSError, AttributeError):  # Spark is ending just now
            # A job that failed does not wait for its other tasks.
            while not has_stopped(self._context) and free_slots(self._context) < self._free:
                if time.monotonic() > deadline:
                    return
                time.sleep(_LOOK_SECONDS)

    def _collect(self, rdd: RDD[Any], task: Task) -> None:
        self.results = rdd.mapPartitionsWithIndex(task).collect()
