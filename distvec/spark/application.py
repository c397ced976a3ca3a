"""Questions about a Spark application that Python answers without asking the JVM."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from pyspark import SparkContext

_LOCAL = re.compile(r"local(\[.*\])?")


def is_local(master: str | None) -> bool:
    """Do tasks run on the driver's machine (``local``, ``local[2]``; not ``local-cluster``)?"""
    return master is not None and _LOCAL.fullmatch(master) is not None


def use_this_python(context: SparkContext) -> None:
    """Let local tasks run in the driver's Python unless the user chose one (PYSPARK_PYTHON).

    Spark's own choice is the first ``python3`` on the path, which may know nothing of distvec.
    """
    if is_local(context.master) and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def has_stopped(spark_context: SparkContext) -> bool:
    """Did this SparkContext stop? Asked of Python's side alone, so it cannot hang on the JVM."""
    return spark_context._jsc is None


def context_of(spark: Any) -> SparkContext:
    """The running SparkContext of a session or of itself; errors that say what else is needed."""
    context = spark if isinstance(spark, SparkContext) else getattr(spark, "_sc", None)
    if not isinstance(context, SparkContext):
        raise NotImplementedError(
            f"{type(spark).__module__}.{type(spark).__name__} has no SparkContext (Spark Connect?);"
            " PSContext needs a classic SparkSession"
        )
    if has_stopped(context):
        raise RuntimeError("this SparkContext was stopped; make a new SparkSession first")
    return context
