"""Which Python runs the tasks, and that it finds distvec."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame

import distvec
from distvec.spark.jobs.application import is_connect

_ON_THIS_MACHINE = re.compile(r"local(-cluster)?(\[.*\])?")

Function = Any
"""Java's record of a function of Python's: what to run, and by which Python."""


def use_this_python(context: SparkContext) -> None:
    """Let tasks on this machine run in the driver's Python unless PYSPARK_PYTHON names another.

    Spark's own choice is the first ``python3`` on the path, which may know nothing of distvec.
    """
    if _may_choose_python(context):
        context.pythonExec = sys.executable


def send_wheel(context: SparkContext) -> None:
    """Let tasks find distvec if the driver has it from a wheel, as after ``--py-files x.whl``.

    Spark puts a wheel on the path of the driver, and sends it to the executors, whose path takes
    archives named ``.zip`` only. A wheel is one: it goes there once more under such a name.
    """
    wheel = Path(distvec.__file__).parents[1]
    if wheel.suffix != ".whl" or not wheel.is_file():
        return
    name = f"{wheel.stem}.zip"
    if any(one.rpartition("/")[2] == name for one in context.listFiles):
        return
    folder = tempfile.mkdtemp(prefix="distvec-wheel-")  # executors fetch it from there at any time
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    context.addPyFile(str(shutil.copy(wheel, f"{folder}/{name}")))


def use_driver_python(data: DataFrame | RDD[Any]) -> None:
    """``use_this_python`` for what ``data`` has noted already.

    A DataFrame of Python's rows, and a UDF, note Spark's choice for good when they are made, which
    may have been before the PSContext. Spark offers no way to change that, so it is done by
    reflection in Java; where that fails the data stays as it is, and Spark says what is wrong.
    """
    if not isinstance(data, RDD) and is_connect(data.sparkSession):
        return
    context = data.context if isinstance(data, RDD) else data.sparkSession.sparkContext
    if not _may_choose_python(context):
        return
    with suppress(Py4JError, LookupError):
        if isinstance(data, RDD):
            noted = _functions_in_lineage(data._jrdd.rdd())
        else:
            noted = _functions_in_plan(data._jdf.queryExecution().analyzed())
        for function in noted:
            _field(function, "pythonExec").set(function, sys.executable)


_OF_SQL = "SPARK_SIMPLIFIED_TRACEBACK"
"""Spark's SQL sets this in the environment of its Python workers, unless told otherwise."""

_CHANGES_ENVIRONMENT = threading.Lock()
"""All threads of the driver have the same environment of workers."""


def use_workers_of_sql(rdd: RDD[Any]) -> None:
    """Let the functions of ``rdd`` run in the Python workers that SQL has already.

    A worker runs functions of one environment, and another one takes a second to load distvec.
    """
    context = rdd.context
    with _CHANGES_ENVIRONMENT:
        before = context.environment
        # Not changed in place: jobs of other threads may just read it.
        context.environment = {**before, _OF_SQL: "1"}
        try:
            _ = rdd._jrdd  # the functions go to Java, with the environment
        finally:
            context.environment = before


def _may_choose_python(context: SparkContext) -> bool:
    """May the tasks run in another Python than Spark chose?"""
    here = context.master is not None and _ON_THIS_MACHINE.fullmatch(context.master) is not None
    return here and "PYSPARK_PYTHON" not in os.environ


def _functions_in_plan(plan: Any) -> Iterator[Function]:
    """The functions in a logical plan: of its UDFs, and of the RDDs that it reads."""
    for node in _tree(plan):
        if _kind(node) == "LogicalRDD":
            yield from _functions_in_lineage(node.rdd())
        for expression in _items(node.expressions()):
            for part in _tree(expression):
                if _kind(part) == "PythonUDF":
                    yield part.func()


def _functions_in_lineage(rdd: Any) -> Iterator[Function]:
    """The functions of an RDD and of those that it is made of."""
    seen, waiting = set(), [rdd]
    while waiting:
        one = waiting.pop()
        if one.id() not in seen:
            seen.add(one.id())
            if _kind(one) == "PythonRDD":
                yield _field(one, "func").get(one)
            waiting += [each.rdd() for each in _items(one.dependencies())]


def _tree(root: Any) -> Iterator[Any]:
    waiting = [root]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += _items(one.children())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(k) for k in range(sequence.size())]


def _kind(value: Any) -> str:
    return str(value.getClass().getSimpleName())


def _field(value: Any, name: str) -> Any:
    """A private field, by its name without the class that Scala puts before some."""
    fields = value.getClass().getDeclaredFields()
    for field in fields:
        if field.getName().split("$$")[-1] == name:
            field.setAccessible(True)
            return field
    raise LookupError(name)
