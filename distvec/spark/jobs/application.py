"""Questions about a Spark application; few of them ask the JVM."""

from __future__ import annotations

import re
import time
from typing import Any

from pyspark import SparkContext

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


def classic_context(spark: Any) -> SparkContext:
    """The running SparkContext of a session or of itself; errors that say what else is needed."""
    if spark is None:
        raise TypeError("spark is None; pass a session: SparkSession.builder.getOrCreate()")
    context = spark if isinstance(spark, SparkContext) else getattr(spark, "_sc", None)
    if not isinstance(context, SparkContext):
        raise NotImplementedError(
            f"{type(spark).__module__}.{type(spark).__name__} has no SparkContext (Spark Connect?);"
            " PSContext needs a classic SparkSession"
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
