"""Sparse logistic regression to the same objective, against MLlib's LogisticRegression.

Both get the same cached DataFrame. MLlib trains first, without intercept and standardization; ours
(L-BFGS over resident tasks) then stops at the first iterate that is not above MLlib's final
objective. One neutral function, neither's own, evaluates both results. Where the rows cannot touch
most of the features, ours leaves out those that they do not (``compact``); the result has all.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

from benchmarks.harness import Ratio, Report, Timing, main, speed_up
from benchmarks.spark import start_spark
from distvec.spark import LogisticLoss, PSContext
from optim import LBFGS

PENALTY = 1e-4
NONZEROS = 50
SERVERS = SLOTS = 2
STEADY = 20
_BATCH = 2500
_SCHEMA = StructType([StructField("label", DoubleType()), StructField("features", VectorUDT())])


@dataclass(frozen=True)
class Fit:
    """One training: seconds as a whole and of one iteration, and where it ended."""

    seconds: float
    per_iteration: float
    iterations: int
    evaluations: int | None
    weights: np.ndarray


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark alone."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3, help="trainings of each")
    parser.add_argument("--dtype", default="float64", help="of our rows and vectors")
    parser.add_argument("--driver-memory", default="8g", help="MLlib's vectors are in the driver")


def measure(options: argparse.Namespace) -> Report:
    """MLlib and ours in turn, in the same Spark."""
    rows, features, repeat = options.rows, options.features, options.repeat
    if options.quick:
        rows, features, repeat = min(rows, 5000), min(features, 20_000), 1
    compact = rows * NONZEROS < features
    spark = start_spark(SLOTS, driver_memory=options.driver_memory)
    try:
        with PSContext.get_or_create(spark, servers=SERVERS) as ps:
            data = synthetic(spark, rows, features).cache()
            data.count()
            mllib, ours, target = [], [], np.inf
            for _ in range(repeat):
                mllib.append(fit_mllib(data))
                target = objective(data, mllib[-1].weights)
                gc.collect()
                ours.append(fit_ours(data, ps, target, dtype=options.dtype, compact=compact))
            reached = objective(data, ours[-1].weights)
    finally:
        spark.stop()
    title = f"logistic regression, {rows:,} rows x {NONZEROS} non-zeros, {features:,} features"
    return report(title, mllib, ours, target, reached)


def report(
    title: str, mllib: Sequence[Fit], ours: Sequence[Fit], target: float, reached: float
) -> Report:
    """Whole fits and iterations side by side."""
    timings = {
        f"{name}, {what}": Timing(f"{name}, {what}", seconds)
        for name, fits in (("distvec", ours), ("MLlib", mllib))
        for what, seconds in (
            ("whole fit", [fit.seconds for fit in fits]),
            ("per iteration", [fit.per_iteration for fit in fits]),
        )
    }
    ratios = [
        Ratio(
            f"speed over MLlib, {what}",
            speed_up(timings[f"distvec, {what}"], timings[f"MLlib, {what}"]),
            goal,
        )
        for what, goal in (("whole fit", "at least 20"), ("per iteration", "at least 10"))
    ]
    facts = {
        "objective, distvec": f"{reached:.10f}",
        "objective, MLlib": f"{target:.10f}",
        "iterations, distvec": f"{ours[-1].iterations} ({ours[-1].evaluations} evaluations)",
        "iterations, MLlib": mllib[-1].iterations,
        "first fit, distvec (MLlib's first is not timed)": f"{ours[0].seconds:.2f} s",
    }
    return Report(title, list(timings.values()), ratios, facts)


def fit_mllib(data: DataFrame) -> Fit:
    """MLlib's L-BFGS; an iteration is what a longer run takes more than one of a single one."""
    single, _ = _fit_mllib(data, max_iterations=1)
    seconds, model = _fit_mllib(data, max_iterations=100)
    iterations = model.summary.totalIterations
    return Fit(
        seconds,
        (seconds - single) / max(iterations - 1, 1),
        iterations,
        None,
        model.coefficients.toArray(),
    )


def _fit_mllib(data: DataFrame, max_iterations: int) -> tuple[float, Any]:
    began = time.perf_counter()
    model = LogisticRegression(
        maxIter=max_iterations,
        regParam=PENALTY,
        elasticNetParam=0.0,
        standardization=False,
        fitIntercept=False,
        tol=1e-6,
    ).fit(data)
    return time.perf_counter() - began, model


def fit_ours(data: DataFrame, ps: PSContext, target: float, *, dtype: str, compact: bool) -> Fit:
    """L-BFGS on the servers until the objective is at most ``target``.

    It may get there in one or two iterations, which says little of an iteration: so that is timed
    over ``STEADY`` others from the start, of which the first is not counted.
    """
    began = time.perf_counter()
    options: dict[str, Any] = {"dtype": dtype, "compact": compact, "mode": "resident"}
    with LogisticLoss(data, l2=PENALTY, **options) as loss:
        start = ps.zeros(loss.dimension, dtype)
        solver = LBFGS(history=10, max_iterations=1000, gradient_tolerance=1e-10)
        result = solver.minimize(loss, start, callback=lambda state: bool(state.value <= target))
        if result.fun > target:
            raise RuntimeError(f"stopped above the target: {result.message} {result.fun}")
        weights = loss.expand(result.x).persist()
        seconds = time.perf_counter() - began
        solver = LBFGS(
            history=10, max_iterations=STEADY, gradient_tolerance=0.0, value_tolerance=0.0
        )
        times = [record.seconds for record in solver.minimize(loss, start).history]
        per_iteration = (times[-1] - times[1]) / max(len(times) - 2, 1)
        return Fit(seconds, per_iteration, result.nit, result.nfev, weights.numpy().astype(float))


def synthetic(spark: SparkSession, rows: int, features: int) -> DataFrame:
    """Rows made in Spark tasks, the same every time: see ``rows_of_batch``."""
    partitions = spark.sparkContext.defaultParallelism
    batches = -(-rows // _BATCH)

    def make(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            for batch in part.column(0).to_pylist():
                yield rows_of_batch(batch, min(_BATCH, rows - batch * _BATCH), features)

    return spark.range(0, batches, 1, partitions).mapInArrow(make, _SCHEMA)


def rows_of_batch(batch: int, count: int, features: int) -> pa.RecordBatch:
    """Normal values in ``NONZEROS`` places spread evenly; labels drawn from a model of normal
    weights, of which there are 2^20, used again and again where there are more features.

    One place is drawn in each of as many strata: no row has a place twice, every feature is as
    likely as any other, and indices come sorted.
    """
    rng = np.random.default_rng([1, batch])
    shape = (count, NONZEROS)
    width = features / NONZEROS
    truth = np.random.default_rng(0).standard_normal(1 << 20)
    places = ((np.arange(NONZEROS) + rng.random(shape)) * width).astype(np.int32)
    values = rng.standard_normal(shape)
    margins = (values * truth[places % truth.size]).sum(axis=1) / np.sqrt(NONZEROS)
    labels = (rng.random(count) < 1 / (1 + np.exp(-3.0 * margins))).astype(np.float64)
    starts = pa.array(np.arange(count + 1, dtype=np.int32) * NONZEROS)
    vectors = {
        "type": pa.array(np.zeros(count, dtype=np.int8)),
        "size": pa.array(np.full(count, features, dtype=np.int32)),
        "indices": pa.ListArray.from_arrays(starts, pa.array(places.ravel())),
        "values": pa.ListArray.from_arrays(starts, pa.array(values.ravel())),
    }
    column = pa.StructArray.from_arrays(list(vectors.values()), names=list(vectors))
    return pa.RecordBatch.from_arrays([pa.array(labels), column], names=["label", "features"])


def objective(data: DataFrame, weights: np.ndarray) -> float:
    """The mean logistic loss and its penalty, by NumPy in Spark tasks: neither one's code."""
    shipped = data.sparkSession.sparkContext.broadcast(weights)

    def sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total, count = 0.0, 0
        for batch in batches:
            signs = 2.0 * batch.column("label").to_numpy() - 1.0
            vectors = batch.column("features")
            indices = vectors.field("indices").flatten().to_numpy().reshape(-1, NONZEROS)
            values = vectors.field("values").flatten().to_numpy().reshape(-1, NONZEROS)
            margins = (values * shipped.value[indices]).sum(axis=1)
            total += float(np.logaddexp(0.0, -signs * margins).sum())
            count += signs.size
        yield pa.RecordBatch.from_pydict({"total": [total], "count": [count]})

    parts = data.mapInArrow(sums, "total double, count long").collect()
    shipped.destroy()
    loss = sum(part["total"] for part in parts) / sum(part["count"] for part in parts)
    return float(loss + 0.5 * PENALTY * (weights @ weights))


if __name__ == "__main__":
    main(__doc__, measure, configure)
