"""Logistic regression over 1e8 sparse features: does it train, and in how much memory?

Estimators that fit, score and save, with servers of 1 GB each: ``LossEstimator`` over the features
that occur, and ``FTRLClassifier`` over the same features as keys, in one pass. Beside them an
objective over all features in float32, and in float64 over those that occur; and MLlib with a
driver of ``--driver-memory``, in a Spark of its own. Memory is the peak of all processes together
(driver, JVM, Python workers, servers), shared pages counted once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.ml.classification import LogisticRegression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import Report, Table, main
from benchmarks.logistic import SERVERS, SLOTS
from benchmarks.logistic_fits import PENALTY
from benchmarks.processes import peak_memory
from benchmarks.spark import start_spark
from benchmarks.sparse_rows import NONZEROS, synthetic
from distvec.losses import Logistic
from distvec.spark import LogisticLoss, PSContext
from distvec.spark.ml.losses import LossEstimator
from distvec.spark.ml.online import FTRLClassifier
from optim import LBFGS

_GB = 1e9


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=100_000_000)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--driver-memory", default="18g", help="of MLlib; ours has 2g")
    parser.add_argument("--without-mllib", action="store_true")
    parser.add_argument("--estimators", action="store_true", help="measure estimators only")
    parser.add_argument("--only", nargs="+", choices=_ESTIMATORS, default=list(_ESTIMATORS))


def measure(options: argparse.Namespace) -> Report:
    """Each in turn, in a Spark of its own."""
    rows, features = options.rows, options.features
    if options.quick:
        rows, features = 2000, 300_000
    results: dict[str, list[float | None]] = {}
    facts: dict[str, object] = {"driver memory of MLlib": options.driver_memory}
    for name, dtype, compact in (
        ("distvec, float64, features that occur", "float64", True),
        ("distvec, float32, all features", "float32", False),
    ):
        if options.estimators:
            continue
        with peak_memory() as peaks, spark_of("2g") as spark:
            results[name] = ours(spark, rows, features, dtype, compact, options.iterations)
        results[name] += [peaks[-1].total / _GB, peaks[-1].own / _GB]
    used = {}
    for name, use in _ESTIMATORS.items():
        if name in options.only:
            with peak_memory() as peaks, spark_of("1g") as spark:
                used[name] = estimated(spark, use, rows, features, options.iterations)
            used[name] += [size / _GB for size in peaks[-1]]
    if not (options.without_mllib or options.estimators):
        with peak_memory() as peaks, spark_of(options.driver_memory) as spark:
            try:
                results["MLlib"] = mllib(spark, rows, features, options.iterations)
            except Exception as error:  # noqa: BLE001 - Spark's many ways to run out of memory
                results["MLlib"] = [None, None, None]
                lines = str(error).strip().splitlines()
                facts["MLlib failed"] = next((one for one in lines if "Memory" in one), lines[0])
        results["MLlib"] += [peaks[-1].total / _GB, peaks[-1].own / _GB]
    columns = ["whole fit, s", "objective", "per iteration, s", "peak memory, GB", "driver, GB"]
    title = (
        f"{options.iterations} iterations of L-BFGS, {rows:,} rows x {NONZEROS} non-zeros, "
        f"{features:,} features"
    )
    names = ["fit, s", "score, s", "save, s", "load, s", "accuracy", "weights", *columns[-2:]]
    names += ["JVM, GB", "a server, GB", "a worker, GB"]
    tables = [Table("each", columns, results), Table("estimators", names, used)]
    return Report(title, [], [], facts, tables)


def estimated(
    spark: SparkSession, use: Callable[..., Any], rows: int, features: int, iterations: int
) -> list[float | None]:
    """Seconds of each step, the share of rows with the right prediction, and how many weights.

    The model is on the servers, so that no step needs it as a whole in the driver.
    """
    PSContext.get_or_create(spark, servers=SERVERS, memory="1g")
    data, times = synthetic(spark, rows, features), [time.perf_counter()]

    def done() -> None:
        times.append(time.perf_counter())

    estimator, frame = use(data, iterations)
    model = estimator.fit(frame)
    done()
    hit = (F.col("prediction") == F.col("label")).cast("double")
    accuracy = float(model.transform(frame).select(F.avg(hit)).collect()[0][0])
    done()
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        done()
        loaded = type(model).load(f"{folder}/model")
        weights = len(loaded.nonZeros()[0])
        done()
    return [*(later - earlier for earlier, later in pairwise(times)), accuracy, float(weights)]


def by_loss(data: DataFrame, iterations: int) -> tuple[Any, DataFrame]:
    """Parameters for features that occur."""
    estimator = LossEstimator(
        loss=Logistic(), regParam=PENALTY, fitIntercept=False, standardization=False,
        maxIter=iterations, tol=0.0, compact=True, rawPredictionCol="",
    )  # fmt: skip
    return estimator, data


def by_ftrl(data: DataFrame, iterations: int) -> tuple[Any, DataFrame]:
    """Indices of vectors as keys, with their values."""

    def as_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            vectors = batch.column("features")
            names = ("indices", "values")
            lists = [vectors.field(vectors.type.get_field_index(name)) for name in names]
            yield pa.RecordBatch.from_arrays([batch.column("label"), *lists], ["label", *names])

    schema = "label double, indices array<int>, values array<double>"
    frame = data.mapInArrow(as_keys, schema)
    return FTRLClassifier(featuresCol="indices", valuesCol="values", fitIntercept=False), frame


_ESTIMATORS = {"LossEstimator, compact": by_loss, "FTRLClassifier": by_ftrl}


def ours(
    spark: SparkSession, rows: int, features: int, dtype: str, compact: bool, iterations: int
) -> list[float | None]:
    """Seconds, the objective, seconds of an iteration."""
    data = synthetic(spark, rows, features)
    with PSContext.get_or_create(spark, servers=SERVERS) as ps:
        began = time.perf_counter()
        options: dict[str, Any] = {"dtype": dtype, "compact": compact, "mode": "resident"}
        with LogisticLoss(data, l2=PENALTY, **options) as loss:
            solver = LBFGS(
                history=10, max_iterations=iterations, gradient_tolerance=0.0, value_tolerance=0.0
            )
            result = solver.minimize(loss, ps.zeros(loss.dimension, dtype))
            loss.expand(result.x).persist()
            seconds = time.perf_counter() - began
        times = [record.seconds for record in result.history]
        steps = max(len(times) - 2, 1)
        return [seconds, float(result.fun), (times[-1] - times[1]) / steps]


def mllib(spark: SparkSession, rows: int, features: int, iterations: int) -> list[float | None]:
    """The same of MLlib."""
    data = synthetic(spark, rows, features).cache()
    data.count()
    began = time.perf_counter()
    model = LogisticRegression(
        maxIter=iterations, regParam=PENALTY, standardization=False, fitIntercept=False, tol=0.0
    ).fit(data)
    seconds = time.perf_counter() - began
    history = model.summary.objectiveHistory
    return [seconds, history[-1], seconds / max(len(history) - 1, 1)]


@contextmanager
def spark_of(driver_memory: str) -> Iterator[SparkSession]:
    """A Spark whose JVM ends with it: its memory is to be measured."""
    spark = start_spark(SLOTS, driver_memory=driver_memory)
    gateway = spark.sparkContext._gateway
    try:
        yield spark
    finally:
        with suppress(Py4JError, OSError):  # a JVM that ran out of memory has ended
            spark.stop()
            gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        type(spark.sparkContext)._gateway = type(spark.sparkContext)._jvm = None


if __name__ == "__main__":
    main(__doc__, measure, configure)
