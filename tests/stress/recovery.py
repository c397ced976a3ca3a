"""Fits before and after an executor is killed with the server that it ran: what do they cost?

A cluster of two executors on this machine, ``local-cluster[2,2,1024]``, with two servers: a slot on
each is left for the rows. A failure: an evaluation after the recovery takes more than three times
as long as one before, or longer than Spark waits for a slot beside the cached rows.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pyspark.sql.functions as F
from pyspark.sql import SparkSession

from distvec.spark import LogisticLoss, PSContext
from ps_backend.errors import PSError
from tests.quick_start import QUICK_START
from tests.spark.cluster.test_executors import executor_of
from tests.stress.row import Row

_EVALUATIONS = 12
_LOCALITY_SECONDS = 3.0
_RECOVERY_SECONDS = 120.0


def run(scale: float) -> list[Row]:
    """A row for each mode; ``scale`` is of the number of executors killed, 4 at 1."""
    kills = max(1, round(4 * scale))
    with cluster() as spark:
        return [_recoveries(spark, mode, kills) for mode in ("job", "resident")]


@contextmanager
def cluster() -> Iterator[SparkSession]:
    """A cluster of two executors with two slots each."""
    with tempfile.TemporaryDirectory() as home:  # Spark as installed; workers write here
        for entry in Path(pyspark.__file__).parent.iterdir():
            if entry.name != "work":
                Path(home, entry.name).symlink_to(entry)
        before = os.environ.get("SPARK_HOME")
        os.environ["SPARK_HOME"] = home
        try:
            with spark_here("local-cluster[2,2,1024]") as spark:
                yield spark
        finally:  # schedules after this one start Sparks, too
            del os.environ["SPARK_HOME"]
            if before is not None:
                os.environ["SPARK_HOME"] = before


@contextmanager
def spark_here(master: str) -> Iterator[SparkSession]:
    """Spark, without a word."""
    builder = SparkSession.builder.master(master)
    builder = builder.config("spark.ui.enabled", "false").config(*QUICK_START)
    builder = builder.config("spark.log.level", "OFF")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _recoveries(spark: SparkSession, mode: str, kills: int) -> Row:
    column = F.col("id")
    features = F.array(*[(column * k % 97 / 97.0).alias("x") for k in range(1, 33)])
    frame = spark.range(20_000).repartition(4).select(features.alias("features"), column % 2)
    frame = frame.withColumnRenamed("(id % 2)", "label")
    failures, told = 0, []
    with (
        PSContext.get_or_create(spark, servers=2, memory="256m", timeout=120) as ps,
        LogisticLoss(frame, mode=mode, ps=ps) as loss,
    ):
        _fit(ps, loss)
        before = statistics.median(_fit(ps, loss))
        told.append(f"before {before:.2f} s each")
        for _ in range(kills):
            lost = ps.server_pids[1]
            os.kill(executor_of(lost), signal.SIGKILL)
            seconds = _recover(ps, loss, lost)
            fits = [_fit(ps, loss) for _ in range(2)]
            after = statistics.median(fits[1])
            told.append(
                f"again after {seconds:.1f} s; fits {sum(fits[0]):.1f}, {sum(fits[1]):.1f} s: "
                f"{after:.2f} s each"
            )
            failures += after > max(3.0 * before, 0.5) or after > _LOCALITY_SECONDS
    what = f"executors killed with a server, {_EVALUATIONS} evaluations a fit, mode={mode!r}"
    return Row(what, kills, failures, "; ".join(told))


def _fit(ps: PSContext, loss: LogisticLoss) -> list[float]:
    """Gradient descent; seconds of each evaluation."""
    w, took = ps.zeros(loss.dimension), []
    for _ in range(_EVALUATIONS):
        began = time.monotonic()
        value, gradient = loss(w)
        float(value)
        w = (w - 0.1 * gradient).persist()
        took.append(time.monotonic() - began)
    return took


def _recover(ps: PSContext, loss: LogisticLoss, lost: int) -> float:
    """Seconds until another server took the place of that process, and an evaluation succeeds."""
    began = time.monotonic()
    while time.monotonic() - began < _RECOVERY_SECONDS:
        try:
            float(loss(ps.zeros(loss.dimension))[0])
        except PSError as error:
            warnings.warn(f"after {time.monotonic() - began:.1f} s: {error}", stacklevel=2)
        else:
            if ps.server_pids[1] not in (0, lost):
                break
    return time.monotonic() - began
