"""Questions about a Spark application; few of them ask the JVM."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PythonException

_LOCAL = re.compile(r"local(\[.*\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,.*\]")

_LOST = re.compile(r"ExecutorLostFailure|Python worker exited unexpectedly")
YOUNG_SECONDS = 15.0
"""An application of this age has the executors that a standalone cluster had for it."""


def is_local(master: str | None) -> bool:
    """Do tasks run on the driver's machine (``local``, ``local[2]``; not ``local-cluster``)?"""
    return master is not None and _LOCAL.fullmatch(master) is not None


def has_stopped(spark_context: SparkContext) -> bool:
    """Did this SparkContext stop? Asked of Python's side alone, so it cannot hang on the JVM."""
    return spark_context._jsc is None


def context_of(spark: Any) -> SparkContext:
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


def tasks_were_lost(error: BaseException) -> bool:
    """Did a job fail because processes were lost, and not by an exception of what they ran?"""
    cause = error if error.__cause__ is None else error.__cause__
    return not isinstance(cause, PythonException) and _LOST.search(str(cause)) is not None


def reason_of(error: Exception) -> str:
    """Why a Spark job failed, in a line: what a worker raised last, or what Java said and why."""
    text = str(error).strip().partition("\n\nJVM stacktrace:")[0]
    reason = _raised(text) if isinstance(error, PythonException) else _said(str(error).strip())
    if "No module named" in reason or "cannot import name" in reason:
        reason += (
            "; the workers' Python is another: start Spark with PYSPARK_PYTHON set to one that has "
            f"what the driver has{_of_wheels()}"
        )
    if "PYTHON_VERSION_MISMATCH" in reason:
        reason += (
            f" Set PYSPARK_PYTHON to a Python {sys.version_info[0]}.{sys.version_info[1]} on the "
            "workers before Spark starts; it is "
            f"{os.environ.get('PYSPARK_PYTHON', 'not set, which means python3 on their PATH')}"
        )
    return reason or type(error).__name__


def _of_wheels() -> str:
    """What is said of wheels among the files that were sent along."""
    context = SparkContext._active_spark_context
    sent = "" if context is None else context.getConf().get("spark.submit.pyFiles") or ""
    wheels = [Path(one).name for one in sent.split(",") if one.endswith(".whl")]
    if not wheels:
        return ""
    return (
        ". Of --py-files they find archives named .zip and .egg, and no wheels "
        f"({', '.join(wheels)}): give a copy that is named .zip, or install it for the workers"
    )


def _raised(text: str) -> str:
    """The exception at the end of a traceback."""
    lines = text.rpartition("Traceback (most recent call last):\n")[2].splitlines()
    return _one_line(itertools.dropwhile(lambda line: line.startswith(" "), lines))


def _said(text: str) -> str:
    """The message of a Java exception, and of the one that caused all others."""
    lines = text.splitlines()
    if lines and lines[0].startswith("An error occurred while calling"):
        lines = lines[1:]
    reason = _one_line(itertools.takewhile(lambda line: not line.startswith("\tat "), lines))
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    more = f"; caused by {causes[-1]}" if causes and causes[-1] not in reason else ""
    return reason.removeprefix(": ") + more


def _one_line(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
