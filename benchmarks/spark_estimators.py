"""Whole fits of the estimators of ``distvec.spark.ml`` beside those of ``pyspark.ml``.

Each fit starts from a DataFrame in Spark's cache, or in Parquet files, with the same Params for
both; then the models transform the rows. Beside seconds there is the processor time of all
processes, which other users of the machine change less. A new estimator is a new row of
``ESTIMATORS``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.ml import classification, clustering, regression, tuning
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import Ratio, Report, Table, main
from benchmarks.processes import processor_seconds
from benchmarks.spark import start_spark
from benchmarks.sparse_rows import texts
from distvec.losses import Logistic
from distvec.spark import PSContext
from distvec.spark.ml import classification as our_classification
from distvec.spark.ml import clustering as our_clustering
from distvec.spark.ml import regression as our_regression
from distvec.spark.ml import tuning as our_tuning
from distvec.spark.ml.losses import LossEstimator

SLOTS = 2
PARTITIONS = 2 * SLOTS
_BATCH = 4096
_SPARSE_FROM = 10_000
"""Rows of so many features are sparse, such as texts have."""

_LARGE = 10_000_000
"""Fits to so many elements are measured once, as smaller sizes have warmed up all processes."""


@dataclass(frozen=True)
class Row:
    """An estimator: how both make it, the rows that it is fitted to, and how models are judged."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    data: str
    """A key of ``DATA``."""
    judge: Callable[[Any, DataFrame], float]
    params: Mapping[str, Any] = field(default_factory=dict)
    is_wide: bool = False
    """Whether it is fitted to sparse rows, too: to their labels 0 and 1."""


def _history(model: Any, _: DataFrame) -> float:
    summary = model.summary
    return float((summary() if callable(summary) else summary).objectiveHistory[-1])


def _cost(model: Any, _: DataFrame) -> float:
    return float(model.summary.trainingCost)


def _best(model: Any, _: DataFrame) -> float:
    return float(max(model.avgMetrics))


def _deviance(model: Any, _: DataFrame) -> float:
    return float(model.summary.deviance)


def _scale(model: Any, _: DataFrame) -> float:
    return float(model.scale)


def _squares(model: Any, data: DataFrame) -> float:
    error = F.pow(F.col("prediction") - F.col("label"), 2)
    return float(model.transform(data).select(F.avg(error)).collect()[0][0])


def _classifier(name: str, data: str, judge: Any, **params: Any) -> Row:
    ours, theirs = getattr(our_classification, name), getattr(classification, name)
    return Row(ours, theirs, data, judge, params, name == "LinearSVC")


def _regression(name: str, data: str, judge: Any, **params: Any) -> Row:
    ours, theirs = getattr(our_regression, name), getattr(regression, name)
    return Row(ours, theirs, data, judge, params, params.get("solver") == "l-bfgs")


def _kmeans(k: int) -> Row:
    params = {"k": k, "seed": 1, "maxIter": 20}
    return Row(our_clustering.KMeans, clustering.KMeans, "blobs", _cost, params)


def _validator(module: Any, logistic: Any, **params: Any) -> Any:
    estimator = logistic(maxIter=100)
    grid = tuning.ParamGridBuilder().addGrid(estimator.regParam, [0.001, 0.01, 0.1])
    maps = grid.addGrid(estimator.elasticNetParam, [0.0, 0.5]).build()
    metric = BinaryClassificationEvaluator()
    given = {"estimator": estimator, "estimatorParamMaps": maps, "evaluator": metric}
    return module.CrossValidator(numFolds=3, seed=1, **given, **params)


_LOGISTIC = Row(
    our_classification.LogisticRegression,
    classification.LogisticRegression,
    "two classes",
    _history,
    {"regParam": 0.001},
    is_wide=True,
)

ESTIMATORS: dict[str, Row] = {
    "LogisticRegression": _LOGISTIC,
    "LogisticRegression, 10 classes": _classifier(
        "LogisticRegression", "ten classes", _history, regParam=0.001
    ),
    "LinearSVC": _classifier("LinearSVC", "two classes", _history, regParam=0.001),
    "FMClassifier": _classifier("FMClassifier", "two classes", _history, seed=1, stepSize=0.1),
    "LinearRegression, normal": _regression(
        "LinearRegression", "amounts", _squares, solver="normal", regParam=0.001
    ),
    "LinearRegression, l-bfgs": _regression(
        "LinearRegression", "amounts", _squares, solver="l-bfgs", regParam=0.001
    ),
    "LinearRegression, huber": _regression(
        "LinearRegression", "amounts", _scale, loss="huber", regParam=0.001
    ),
    "GeneralizedLinearRegression, poisson": _regression(
        "GeneralizedLinearRegression", "counts", _deviance, family="poisson", regParam=0.001
    ),
    "AFTSurvivalRegression": _regression("AFTSurvivalRegression", "times", _scale),
    "FMRegressor": _regression("FMRegressor", "amounts", _squares, seed=1, stepSize=0.1),
    "KMeans, k=10": _kmeans(10),
    "KMeans, k=100": _kmeans(100),
    "CrossValidator, 3 folds, 6 maps": Row(
        partial(_validator, our_tuning, our_classification.LogisticRegression),
        partial(_validator, tuning, classification.LogisticRegression),
        "two classes",
        _best,
    ),
    "LossEstimator beside LogisticRegression": Row(
        partial(LossEstimator, loss=Logistic()),
        classification.LogisticRegression,
        "two classes",
        _history,
        {"regParam": 0.001},
        is_wide=True,
    ),
}

Columns = dict[str, Any]
"""The features as a table ``x``, and other columns by name."""


def _linear(rng: np.random.Generator, rows: int, features: int) -> tuple[Any, Any]:
    x = rng.normal(size=(rows, features))
    return x, x @ np.random.default_rng(0).normal(size=features) / np.sqrt(features)


def _two_classes(rng: np.random.Generator, rows: int, features: int) -> Columns:
    x, margins = _linear(rng, rows, features)
    return {"x": x, "label": (margins + rng.logistic(size=rows) > 0.0).astype(np.float64)}


def _ten_classes(rng: np.random.Generator, rows: int, features: int) -> Columns:
    x = rng.normal(size=(rows, features))
    scores = x @ np.random.default_rng(0).normal(size=(features, 10)) * 2.0 / np.sqrt(features)
    return {"x": x, "label": (scores + rng.gumbel(size=scores.shape)).argmax(1).astype(float)}


def _amounts(rng: np.random.Generator, rows: int, features: int) -> Columns:
    x, margins = _linear(rng, rows, features)
    return {"x": x, "label": 3.0 + margins + rng.standard_t(3.0, size=rows)}


def _counts(rng: np.random.Generator, rows: int, features: int) -> Columns:
    x, margins = _linear(rng, rows, features)
    return {"x": x, "label": rng.poisson(np.exp(0.5 + 0.5 * margins)).astype(np.float64)}


def _times(rng: np.random.Generator, rows: int, features: int) -> Columns:
    """Weibull times; those after some random time are not observed."""
    x, margins = _linear(rng, rows, features)
    times = np.exp(1.0 + margins - 0.5 * rng.gumbel(size=rows))
    ends = rng.exponential(20.0, size=rows)
    label = np.maximum(np.minimum(times, ends), 1e-9)
    return {"x": x, "label": label, "censor": (times <= ends).astype(np.float64)}


def _blobs(rng: np.random.Generator, rows: int, features: int) -> Columns:
    """Clusters that overlap, so that Lloyd's algorithm takes many steps."""
    places = np.random.default_rng(0).normal(size=(50, features))
    which = rng.integers(50, size=rows)
    x = places[which] + rng.normal(size=(rows, features))
    return {"x": x, "label": which.astype(np.float64)}


DATA: dict[str, Callable[[np.random.Generator, int, int], Columns]] = {
    "two classes": _two_classes,
    "ten classes": _ten_classes,
    "amounts": _amounts,
    "counts": _counts,
    "times": _times,
    "blobs": _blobs,
}


def made(spark: SparkSession, kind: str, rows: int, features: int) -> DataFrame:
    """The rows with the columns label, features and perhaps censor: computed when they are read."""
    if features >= _SPARSE_FROM:
        return texts(spark, rows, features)
    each = rows // PARTITIONS

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                columns = DATA[kind](np.random.default_rng(seed + 1), each, features)
                for start in range(0, each, _BATCH):
                    part = {name: one[start : start + _BATCH] for name, one in columns.items()}
                    x = part.pop("x")
                    ends = np.arange(len(x) + 1, dtype=np.int32) * features
                    lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(x.ravel()))
                    yield pa.RecordBatch.from_pydict({"x": lists, **part})

    others = [name for name in DATA[kind](np.random.default_rng(0), 1, 1) if name != "x"]
    schema = "x array<double>" + "".join(f", {name} double" for name in others)
    frame = spark.range(0, PARTITIONS, 1, PARTITIONS).mapInArrow(make, schema)
    return frame.select(*others, array_to_vector("x").alias("features"))


def stored(made: DataFrame, source: str, folder: str) -> DataFrame:
    """The rows in Spark's cache, or in files."""
    if source == "cached":
        frame = made.cache()
        frame.count()
        return frame
    made.write.mode("overwrite").parquet(folder)
    return made.sparkSession.read.parquet(folder)


class Cost(NamedTuple):
    """Seconds, and processor seconds of all processes."""

    elapsed: float
    processor: float


class Found(NamedTuple):
    """Medians of repetitions, and the value of the model."""

    fit: Cost
    transform: Cost
    value: float


def cost_of(run: Callable[[], Any]) -> tuple[Any, Cost]:
    """What ``run`` returns, and its cost."""
    used, began = processor_seconds(), time.perf_counter()
    found = run()
    return found, Cost(time.perf_counter() - began, processor_seconds() - used)


def in_turns(row: Row, data: DataFrame, repeat: int, warm_up: int) -> list[Found]:
    """Ours and theirs in turn."""
    costs: list[list[tuple[Cost, Cost]]] = [[], []]
    values = [0.0, 0.0]
    for number in range(repeat + warm_up):
        for k, make in enumerate((row.ours, row.theirs)):
            model, fit = cost_of(partial(make(**row.params).fit, data))
            writer = model.transform(data).write.format("noop").mode("overwrite")
            _, transform = cost_of(writer.save)
            if number >= warm_up:
                costs[k].append((fit, transform))
            if number == repeat + warm_up - 1:
                values[k] = row.judge(model, data)
    return [
        Found(_median([fit for fit, _ in one]), _median([other for _, other in one]), value)
        for one, value in zip(costs, values, strict=True)
    ]


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*np.median(np.array(costs), axis=0).tolist())


def measure(options: argparse.Namespace) -> Report:
    """Every estimator on every size and source, ours and theirs in turn."""
    sizes = ["2000x10", "500x20000"] if options.quick else options.sizes
    spark = start_spark(SLOTS, driver_memory=options.driver_memory, parallelism=PARTITIONS)
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    fits: dict[str, list[float | None]] = {}
    transforms: dict[str, list[float | None]] = {}
    ratios = []
    with PSContext.get_or_create(spark, servers=SLOTS), tempfile.TemporaryDirectory() as folder:
        for name, size, data in _problems(spark, sizes, options, folder):
            rows, features = map(int, size.split("x"))
            is_large = rows * features > _LARGE
            counts = (1, 0) if is_large else (options.repeat, options.warm_up)
            ours, theirs = in_turns(ESTIMATORS[name.split(":")[0]], data, *counts)
            title = f"{name}, {size}"
            fits[title] = [*_compared(ours.fit, theirs.fit), ours.value, theirs.value]
            per_row = [Cost(*(1e6 * x / rows for x in one.transform)) for one in (ours, theirs)]
            transforms[title] = _compared(*per_row)
            ratios.append(Ratio(f"{title}, pyspark.ml / ours", theirs.fit[0] / ours.fit[0]))
            print(title, [f"{x:.3g}" for x in fits[title] + transforms[title] if x], flush=True)
    spark.stop()
    tables = [
        Table("fits", (*_columns("s"), "ours, value", "pyspark.ml, value"), fits),
        Table("transform, a row", _columns("us"), transforms),
    ]
    return Report("estimators beside pyspark.ml", (), ratios, {}, tables)


def _problems(
    spark: SparkSession, sizes: Sequence[str], options: argparse.Namespace, folder: str
) -> Iterator[tuple[str, str, DataFrame]]:
    """The name of the estimator and the source, the size, and the rows: stored once for all."""
    for size in sizes:
        rows, features = map(int, size.split("x"))
        is_sparse = features >= _SPARSE_FROM
        names = [one for one in options.estimators if ESTIMATORS[one].is_wide or not is_sparse]
        for source in options.source:
            for kind in dict.fromkeys("" if is_sparse else ESTIMATORS[one].data for one in names):
                data = stored(made(spark, kind, rows, features), source, f"{folder}/rows")
                for name in names:
                    if kind in ("", ESTIMATORS[name].data):
                        yield f"{name}: {source}", size, data
                data.unpersist()


def _columns(unit: str) -> tuple[str, ...]:
    each = (f"ours, {unit}", f"pyspark.ml, {unit}", "times")
    return (*each, *(f"{name}, processor" for name in each))


def _compared(ours: Cost, theirs: Cost) -> list[float | None]:
    pairs = zip(ours, theirs, strict=True)
    return [x for mine, other in pairs for x in (mine, other, other / max(mine, 1e-9))]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=list(ESTIMATORS))
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=["10000x20", "1000000x100", "100000x1000000"],
        metavar="ROWSxN",
        help=f"from {_SPARSE_FROM:,} features on, rows are sparse",
    )
    parser.add_argument(
        "--source", nargs="+", choices=("cached", "parquet"), default=["cached", "parquet"]
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=1, help="fits of each before")
    parser.add_argument("--driver-memory", default="4g")


if __name__ == "__main__":
    main(__doc__, measure, _configure)
