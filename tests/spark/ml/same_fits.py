"""Fits whose parameters are compared: between numbers of servers and partitions, and after faults.

``test_same_bits`` runs them, and ``test_lost_processes`` in a driver of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from distvec.losses import Quantile
from distvec.spark.ml.classification import (
    FMClassifier,
    GBTClassifier,
    LinearSVC,
    LogisticRegression,
)
from distvec.spark.ml.clustering import LDA, KMeans
from distvec.spark.ml.losses import LossEstimator
from distvec.spark.ml.online import FTRLClassifier
from distvec.spark.ml.regression import (
    AFTSurvivalRegression,
    GeneralizedLinearRegression,
    LinearRegression,
)

_WEIGHTED = {"weightCol": "weight", "regParam": 0.1}


def _network(**options: Any) -> Any:
    """By PyTorch, which not all tests need."""
    from torch.nn.functional import binary_cross_entropy_with_logits

    from distvec.spark.torch import TorchEstimator
    from tests.spark.ml.torch_networks import two_layers

    return TorchEstimator(
        model=two_layers,
        loss=binary_cross_entropy_with_logits,
        featuresCols=["time", "censor", "weight"],
        **options,
    )


ESTIMATORS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: LogisticRegression(**_WEIGHTED),
    "l1": lambda: LogisticRegression(**_WEIGHTED, elasticNetParam=0.5),
    "multinomial": lambda: LogisticRegression(**_WEIGHTED, family="multinomial"),
    "support vectors": lambda: LinearSVC(**_WEIGHTED),
    "normal": lambda: LinearRegression(**_WEIGHTED, labelCol="time"),
    "rows": lambda: LinearRegression(**_WEIGHTED, labelCol="time", solver="l-bfgs"),
    "huber": lambda: LinearRegression(**_WEIGHTED, labelCol="time", loss="huber"),
    "poisson": lambda: GeneralizedLinearRegression(**_WEIGHTED, family="poisson", labelCol="time"),
    "survival": lambda: AFTSurvivalRegression(labelCol="time"),
    "trees": lambda: GBTClassifier(weightCol="weight", maxIter=5),
    "machine": lambda: FMClassifier(factorSize=2, seed=1, maxIter=5),
    "clusters": lambda: KMeans(k=3, seed=1, weightCol="weight"),
    "topics": lambda: LDA(
        k=2, seed=1, featuresCol=["time", "censor", "weight"], maxIter=6, subsamplingRate=0.4
    ),
    "sampled topics": lambda: LDA(
        k=2, seed=1, featuresCol=["label", "censor"], maxIter=6, optimizer="sampling"
    ),
    "keys": lambda: FTRLClassifier(
        featuresCol="keys", valuesCol="values", exactlyOnce=True, maxIter=2, batchSize=4
    ),
    "quantile": lambda: LossEstimator(
        loss=Quantile(quantile=0.7, smoothing=0.01), labelCol="time", **_WEIGHTED
    ),
    "network": lambda: _network(batchSize=0, maxIter=8, weightCol="weight"),
    "batches": lambda: _network(batchSize=10, epochs=3),
}
"""By a name; those of ``keys`` are fitted to keys with values."""

DEPENDENT = ("keys", "batches", "sampled topics")
"""Of partitions: each takes steps or draws of its own, or batches are of its rows."""

LOOSE = {"support vectors": 2e-3}
"""How far fits to other partitions may be: a hinge has kinks, near which solvers stop."""


def rows(spark: SparkSession, partitions: int) -> DataFrame:
    """The same 42 rows in the same order, in so many partitions."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(42, 4)).round(2)
    y = (x[:, 0] - x[:, 1] + rng.normal(size=42) > 0).astype(float)
    time = np.exp(0.3 * x[:, 2] + 0.5 * rng.normal(size=42)).round(3)
    censor, weight = (rng.random(42) < 0.8).astype(float), rng.random(42).round(2) + 0.5
    columns = (y, time, censor, weight)
    data = [
        (*map(float, numbers), Vectors.dense(row), list(range(4)), row.tolist())
        for *numbers, row in zip(*columns, x, strict=True)
    ]
    names = ["label", "time", "censor", "weight", "features", "keys", "values"]
    rdd = spark.sparkContext.parallelize(data, partitions)
    return spark.createDataFrame(rdd, names).withColumn("keys", F.col("keys").cast("array<long>"))


def parameters(model: Any) -> np.ndarray:
    """All of a model as one vector."""
    if hasattr(model, "weights"):  # over keys
        keys, values = model.nonZeros()
        return np.append(values[np.argsort(keys)], model.intercept)
    return np.concatenate([np.asarray(one, np.float64).ravel() for one in model.fitted.arrays])


def fit(frame: DataFrame, name: str) -> np.ndarray:
    """The parameters that an estimator finds."""
    return parameters(ESTIMATORS[name]().fit(frame))


def digest(array: np.ndarray) -> str:
    """Of the bits."""
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]
