"""A Spark application: its slots, and jobs in the background, whose tasks may lack them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext

from ps_backend.client import defer_signals

_LOCAL = re.compile(r"local(\[.*\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,.*\]")

YOUNG_SECONDS = 15.0
"""An application of this age has the executors that a standalone cluster had for it."""


def is_local(master: str | None) -> bool:
    """Do tasks run on the driver's machine (``local``, ``local[2]``; not ``local-cluster``)?"""
    return master is not None and _LOCAL.fullmatch(master) is not None


def has_stopped(spark_context: SparkContext) -> bool:
    """Did this SparkContext stop? Asked of Python's side alone, so it cannot hang on the JVM."""
    return spark_context._jsc is None


def is_connect(spark: Any) -> bool:
    """Is this a session of Spark Connect? It has no SparkContext in this process."""
    return not isinstance(getattr(spark, "_sc", None), SparkContext)


def classic_context(spark: Any) -> SparkContext:
    """The running SparkContext of a session or of itself; errors that say what else is needed."""
    if spark is None:
        raise TypeError("spark is None; pass a session: SparkSession.builder.getOrCreate()")
    context: Any = spark if isinstance(spark, SparkContext) else getattr(spark, "_sc", None)
    if not isinstance(context, SparkContext):
        raise NotImplementedError(
            f"{type(spark).__module__}.{type(spark).__name__} has no SparkContext (Spark Connect?);"
            " PSContext needs a classic SparkSession, estimators of distvec.spark.ml do not"
        )
    if has_stopped(context):
        raise RuntimeError("this SparkContext was stopped; make a new SparkSession first")
    return context


def slots(context: SparkContext) -> dict[str, int]:
    """How many tasks of the default profile each executor of now, by its id, can run at once."""
    found = context._jsc.sc().statusStore().executorList(True)
    executors = [found.apply(k) for k in range(found.size())]
    return {one.id(): one.maxTasks() for one in executors if one.maxTasks() > 0}


def executor_ids(context: SparkContext) -> str:
    """Those of the executors of now, on a cluster."""
    return str(context._jsc.sc().getExecutorIds().mkString(" "))


def all_slots(context: SparkContext) -> int:
    """How many tasks of the default profile the executors of now can run at once.

    Spark's scheduler is asked, which forgets a lost executor before it repeats the tasks.
    """
    jvm = context._jsc.sc()
    return int(jvm.maxNumConcurrentTasks(jvm.resourceProfileManager().defaultResourceProfile()))


def most_slots(context: SparkContext) -> int | None:
    """``all_slots``, or None if executors may still come."""
    grows = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
    if not is_local(context.master) and (grows or awaits_executors(context)):
        return None
    return max(1, all_slots(context))


def awaits_executors(context: SparkContext) -> bool:
    """Are executors on their way that the application was promised, as far as can be known?"""
    conf, have, master = context.getConf(), len(slots(context)), context.master or ""
    if promised := _LOCAL_CLUSTER.fullmatch(master):
        return have < int(promised[1])
    if master.startswith("spark://"):  # asked for at the start, of all workers
        return seconds_since_start(context) < YOUNG_SECONDS
    return have < int(conf.get("spark.executor.instances") or 2)


def seconds_since_start(context: SparkContext) -> float:
    """The age of the application."""
    return time.time() - context.startTime / 1000.0


def free_slots(context: SparkContext) -> int:
    """How many tasks of the default profile could begin at once."""
    return sum(free_slots_by_executor(context).values())


def free_slots_by_executor(context: SparkContext) -> dict[str, int]:
    """How many could begin on each executor.

    The scheduler is asked: what Spark shows of running tasks may be ten seconds old.
    """
    free = slots(context)
    running = context._jsc.sc().taskScheduler().runningTasksByExecutors().iterator()
    while running.hasNext():
        pair = running.next()
        if pair._1() in free:
            free[pair._1()] -= pair._2()
    return free


def active_tasks(context: SparkContext, group: str) -> int:
    """How many tasks of the jobs of ``group`` have a slot, as Spark knew some seconds ago."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numActiveTasks for stage in stages if stage)


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
