"""Whole fits of the estimators of ``distvec.spark.ml`` beside those of ``pyspark.ml``.

Each fit starts from a DataFrame in Spark's cache, with the same Params for both. ``judge`` shows
how good the model is. A new estimator is a new row of ``ESTIMATORS``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.ml import classification, clustering, tuning
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness import Ratio, Report, Table, main
from benchmarks.spark import start_spark
from distvec.spark import PSContext
from distvec.spark.ml import classification as our_classification
from distvec.spark.ml import clustering as our_clustering
from distvec.spark.ml import tuning as our_tuning

SLOTS = 2


@dataclass(frozen=True)
class Row:
    """An estimator: how both make it, the rows that it is fitted to, and how models are judged."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    data: str
    """A key of ``DATA``."""
    judge: Callable[[Any], float]
    params: Mapping[str, Any] = field(default_factory=dict)


def _cost(model: Any) -> float:
    return float(model.summary.trainingCost)


def _value(model: Any) -> float:
    summary = model.summary
    return float((summary() if callable(summary) else summary).objectiveHistory[-1])


def _validator(module: Any, logistic: Any, **params: Any) -> Any:
    estimator = logistic(maxIter=100)
    grid = tuning.ParamGridBuilder().addGrid(estimator.regParam, [0.001, 0.01, 0.1])
    maps = grid.addGrid(estimator.elasticNetParam, [0.0, 0.5]).build()
    metric = BinaryClassificationEvaluator()
    given = {"estimator": estimator, "estimatorParamMaps": maps, "evaluator": metric}
    return module.CrossValidator(numFolds=3, seed=1, **given, **params)


def _kmeans(k: int) -> Row:
    params = {"k": k, "seed": 1, "maxIter": 20}
    return Row(our_clustering.KMeans, clustering.KMeans, "blobs", _cost, params)


ESTIMATORS: dict[str, Row] = {
    "LogisticRegression": Row(
        our_classification.LogisticRegression,
        classification.LogisticRegression,
        "two classes",
        _value,
        {"regParam": 0.001},
    ),
    "LinearSVC": Row(
        our_classification.LinearSVC,
        classification.LinearSVC,
        "two classes",
        _value,
        {"regParam": 0.001},
    ),
    "KMeans, k=10": _kmeans(10),
    "KMeans, k=100": _kmeans(100),
    "CrossValidator, 3 folds, 6 maps": Row(
        partial(_validator, our_tuning, our_classification.LogisticRegression),
        partial(_validator, tuning, classification.LogisticRegression),
        "two classes",
        lambda model: float(max(model.avgMetrics)),
    ),
}


def _two_classes(rng: np.random.Generator, rows: int, features: int) -> tuple[Any, Any]:
    x = rng.normal(size=(rows, features))
    margins = x @ np.random.default_rng(0).normal(size=features) / np.sqrt(features)
    return x, (margins + rng.logistic(size=rows) > 0.0).astype(np.float64)


def _blobs(rng: np.random.Generator, rows: int, features: int) -> tuple[Any, Any]:
    """Clusters that overlap, so that Lloyd's algorithm takes many steps."""
    places = np.random.default_rng(0).normal(size=(50, features))
    which = rng.integers(50, size=rows)
    return places[which] + rng.normal(size=(rows, features)), which.astype(np.float64)


DATA: dict[str, Callable[[np.random.Generator, int, int], tuple[Any, Any]]] = {
    "two classes": _two_classes,
    "blobs": _blobs,
}


def cached(spark: SparkSession, kind: str, rows: int, features: int) -> DataFrame:
    """The rows with the columns label and features, in Spark's cache."""
    each = rows // (2 * SLOTS)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                x, y = DATA[kind](np.random.default_rng(seed + 1), each, features)
                for start in range(0, each, 4096):
                    part = x[start : start + 4096]
                    ends = np.arange(len(part) + 1, dtype=np.int32) * features
                    lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(part.ravel()))
                    columns = {"label": pa.array(y[start : start + 4096]), "x": lists}
                    yield pa.RecordBatch.from_pydict(columns)

    numbers = spark.range(0, 2 * SLOTS, 1, 2 * SLOTS)
    found = numbers.mapInArrow(make, "label double, x array<double>")
    frame = found.select("label", array_to_vector("x").alias("features")).cache()
    frame.count()
    return frame


def measure(options: argparse.Namespace) -> Report:
    """Time every estimator on every size, ours and theirs in turn."""
    sizes = ["2000x10"] if options.quick else options.sizes
    spark = start_spark(SLOTS, driver_memory="4g", parallelism=2 * SLOTS)
    spark.conf.set("spark.sql.shuffle.partitions", str(2 * SLOTS))
    columns = ("ours, s", "pyspark.ml, s", "times", "ours, value", "pyspark.ml, value")
    table: dict[str, list[float | None]] = {}
    ratios = []
    with PSContext.get_or_create(spark, servers=SLOTS):
        for size in sizes:
            rows, features = map(int, size.split("x"))
            frames: dict[str, DataFrame] = {}
            for name in options.estimators:
                row = ESTIMATORS[name]
                if row.data not in frames:
                    frames[row.data] = cached(spark, row.data, rows, features)
                ours, theirs = _in_turns(row, frames[row.data], options.repeat)
                times = theirs[0] / ours[0]
                table[f"{name}, {size}"] = [ours[0], theirs[0], times, ours[1], theirs[1]]
                ratios.append(Ratio(f"{name}, {size}, pyspark.ml / ours", times))
            for frame in frames.values():
                frame.unpersist()
    spark.stop()
    return Report("fits from a cached DataFrame", (), ratios, {}, [Table("fits", columns, table)])


def _in_turns(row: Row, data: DataFrame, repeat: int) -> list[tuple[float, float]]:
    """The median seconds and the value of the model, ours and theirs; after a fit of each."""
    seconds: tuple[list[float], list[float]] = ([], [])
    values = [0.0, 0.0]
    for number in range(repeat + 1):
        for k, make in enumerate((row.ours, row.theirs)):
            began = time.perf_counter()
            model = make(**row.params).fit(data)
            if number:
                seconds[k].append(time.perf_counter() - began)
            values[k] = row.judge(model)
    return [(float(np.median(one)), value) for one, value in zip(seconds, values, strict=True)]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=list(ESTIMATORS))
    parser.add_argument(
        "--sizes", nargs="+", default=["10000x20", "100000x20", "1000000x100"], metavar="ROWSxN"
    )
    parser.add_argument("--repeat", type=int, default=3)


if __name__ == "__main__":
    main(__doc__, measure, _configure)
