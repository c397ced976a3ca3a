"""Rows that fits cannot use, or hardly: what MLlib 4.3 does with them, or a better error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from distvec.losses import Huber
from distvec.spark.ml.classification import FMClassifier, LinearSVC, LogisticRegression
from distvec.spark.ml.clustering import KMeans
from distvec.spark.ml.losses import LossEstimator
from distvec.spark.ml.online import FTRLClassifier
from distvec.spark.ml.regression import (
    AFTSurvivalRegression,
    FMRegressor,
    GeneralizedLinearRegression,
    LinearRegression,
)

ROWS = [
    (1.0, [0.0, 5.0], 1.0),
    (0.0, [1.0, 2.0], 2.0),
    (1.0, [2.0, 1.0], 3.0),
    (0.0, [3.0, 3.0], 4.0),
]
SCHEMA = StructType(
    [
        StructField("label", DoubleType()),
        StructField("features", VectorUDT()),
        StructField("weight", DoubleType()),
    ]
)
ALL = (LogisticRegression, LinearSVC, LinearRegression)
PENALISED = {"regParam": 0.1, "weightCol": "weight", "tol": 1e-8}
PARAMS = {
    AFTSurvivalRegression: {"censorCol": "weight"},
    FMClassifier: {"factorSize": 2},
    FMRegressor: {"factorSize": 2},
    FTRLClassifier: {"featuresCol": "keys", "valuesCol": "values", "weightCol": "weight"},
    KMeans: {"weightCol": "weight"},
    LossEstimator: PENALISED | {"loss": Huber()},
}
"""Of those that do not take the others' Params."""


def rows_with(label=1.0, features=(2.0, 1.0), weight=3.0):
    """The rows, the third one changed."""
    return [*ROWS[:2], (label, features, weight), ROWS[3]]


def fit(spark, kind, rows, partitions=1):
    """A fit of these rows; other partitions are empty."""
    rows = [(y, None if x is None else Vectors.dense(x), c) for y, x, c in rows]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    if kind is FTRLClassifier:
        values, keys = vector_to_array("features"), F.array(F.lit(7), F.lit(9)).cast("array<long>")
        frame = frame.select("label", "weight", keys.alias("keys"), values.alias("values"))
    if partitions > 1:
        frame = frame.repartition(partitions)
    return kind(**PARAMS.get(kind, PENALISED)).fit(frame)


# MLlib raises an error in all of these cases, which names no row.
REFUSED = [
    (ALL, [], "the data has no rows"),
    (ALL, [(y, x, 0.0) for y, x, _ in ROWS], "the weights sum to 0"),
    (ALL[:1], rows_with(features=[math.nan, 1.0]), "row 2: feature 0 is nan"),
    (ALL[1:2], rows_with(features=[math.inf, 1.0]), "row 2: feature 0 is inf"),
    (ALL[2:], rows_with(features=None), "row 2: the features are null"),
    (ALL[:1], rows_with(features=[1.0]), "row 2: it has 1 features where rows before it have 2"),
    (ALL[1:2], rows_with(label=None), "row 2: the label is null"),
    (ALL[2:], rows_with(label=math.nan), "row 2: the label is nan"),
    (ALL[:1], rows_with(label=math.inf), "row 2: the label is inf"),
    (ALL[:2], rows_with(label=-1.0), "row 2: the label is -1"),
    (ALL[:2], rows_with(label=0.5), "row 2: the label is 0.5"),
    (ALL[:1], rows_with(label=3e9), "row 2: the label is 3e"),
    (ALL[1:2], rows_with(label=2.0), "only supports binary classification"),
    (ALL[:1], rows_with(weight=None), "row 2: the weight is null"),
    (ALL[1:2], rows_with(weight=math.nan), "row 2: the weight is nan"),
    (ALL[2:], rows_with(weight=-1.0), "row 2: the weight is -1.0"),
    ((GeneralizedLinearRegression,), rows_with(label=None), "row 2: the label is null; "),
    ((AFTSurvivalRegression,), ROWS, "row 1: the label is 0"),
    (
        (AFTSurvivalRegression,),
        [(1.0, x, 1.0) for _, x, _ in ROWS[:2]] + [(1.0, [2.0, 1.0], 0.5)],
        "row 2: the event is 0.5",
    ),
    ((FMClassifier,), rows_with(label=0.5), "row 2: the label is 0.5; allowed are"),
    ((FMRegressor,), rows_with(features=[2.0, math.nan]), "row 2: feature 1 is nan"),
    ((KMeans,), rows_with(features=None), "row 2: the features are null; "),
    ((KMeans,), [(y, x, 0.0) for y, x, _ in ROWS], "the weights sum to 0; "),
    ((LossEstimator,), rows_with(label=math.nan), "row 2: the label is nan; "),
    ((FTRLClassifier,), rows_with(features=[math.nan, 1.0]), "row 2: values has nan"),
    ((FTRLClassifier,), rows_with(label=0.5), r"row 2: the label is 0\.5"),
    ((FTRLClassifier,), rows_with(weight=-1.0), r"row 2: the weight is -1\.0; "),
]


@pytest.mark.parametrize(("kinds", "rows", "text"), REFUSED, ids=[one[2] for one in REFUSED])
def test_rows_are_refused(spark, ps, kinds, rows, text):
    for kind in kinds:
        with pytest.raises(ValueError, match=text):
            fit(spark, kind, rows)


# Coefficients and intercept of MLlib.
FITTED = [
    ("1 row", ROWS[:1], LogisticRegression, [0.0, 0.0], math.inf),
    ("1 row", ROWS[:1], LinearRegression, [0.0, 0.0], 1.0),
    ("2 rows", ROWS[:2], LogisticRegression, [-1.5845, 0.5282], -1.4753),
    ("2 rows", ROWS[:2], LinearRegression, [-0.4521, 0.1507], 0.1826),
    ("empty partitions", ROWS, LogisticRegression, [-0.5902, -0.3503], 1.5642),
    ("empty partitions", ROWS, LinearRegression, [-0.185, -0.1136], 1.0426),
    ("label 0", [(0.0, *rest) for _, *rest in ROWS], LogisticRegression, [0.0, 0.0], -math.inf),
    ("label 1", [(1.0, *rest) for _, *rest in ROWS], LinearRegression, [0.0, 0.0], 1.0),
    ("weight 0", rows_with(weight=0.0), LogisticRegression, [-0.4975, 0.8603], -3.8222),
    (
        "a constant column",
        [(y, [x[0], 7.0], c) for y, x, c in ROWS],
        LogisticRegression,
        [-0.5286, 0.0],
        0.6307,
    ),
    (
        "constant columns",
        [(y, [3.0, 7.0], c) for y, _, c in ROWS],
        LogisticRegression,
        [0.0, 0.0],
        -0.4055,
    ),
]


@pytest.mark.parametrize(
    ("name", "rows", "kind", "coefficients", "intercept"),
    FITTED,
    ids=[f"{one[0]}, {one[2].__name__}" for one in FITTED],
)
def test_fits_are_those_of_mllib(spark, ps, name, rows, kind, coefficients, intercept):
    model = fit(spark, kind, rows, partitions=7 if name == "empty partitions" else 1)
    assert np.allclose(model.coefficients.toArray(), coefficients, atol=1e-4)
    assert np.isclose(model.intercept, intercept, atol=1e-4)


def test_support_vectors_of_one_label(spark, ps):
    """MLlib stops at a kink for the label 1, and refuses the label 0."""
    for label, sign in ((0.0, -1.0), (1.0, 1.0)):
        model = fit(spark, LinearSVC, [(label, *rest) for _, *rest in ROWS])
        assert not model.coefficients.toArray().any() and model.intercept * sign >= 1.0 - 1e-4
