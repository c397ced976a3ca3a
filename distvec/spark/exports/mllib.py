"""Models of MLlib with the parameters that were fitted here, where MLlib has such a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark import SparkContext
from pyspark.ml.classification import LinearSVCModel, LogisticRegressionModel
from pyspark.ml.common import _py2java
from pyspark.ml.linalg import DenseMatrix, DenseVector
from pyspark.ml.regression import LinearRegressionModel
from pyspark.ml.util import JavaMLWritable
from pyspark.sql import SparkSession

from distvec import DistArray
from distvec.losses import Logistic, Loss, RowLoss, Softmax

_CLASSIFICATION = "org.apache.spark.ml.classification"
_REGRESSION = "org.apache.spark.ml.regression"


def mllib_model(
    weights: Any, *, loss: Loss | None = None, intercept: bool = False
) -> JavaMLWritable:
    """The model of MLlib that says what ``weights`` say; ``model.save(path)`` writes its layout.

        mllib_model(objective.expand(result.x), loss=objective.loss, intercept=True).save("model")

    ``Logistic``, the default, makes a ``LogisticRegressionModel``, ``Softmax`` one of several
    classes; hinges and other losses of two classes a ``LinearSVCModel``; losses of real labels a
    ``LinearRegressionModel``. With ``intercept`` the last row of ``weights`` is it. They are over
    all features, a DistArray or NumPy's; MLlib keeps them on the driver. ``NotImplementedError``
    for losses of which MLlib has no model; ``RuntimeError`` without a SparkSession.
    """
    loss = Logistic() if loss is None else loss
    if not _has_model(loss):
        raise NotImplementedError(
            f"MLlib has no model of {loss}; those of Logistic, Softmax, hinges and losses of real "
            "labels can be made; any other is saved by distvec.save"
        )
    if hasattr(weights, "keys"):
        raise TypeError(
            f"weights is a dict of {sorted(weights.keys())}, and a model of {loss} has one array; "
            "give the loss that they were fitted by, loss=objective.loss: distvec.save takes the "
            "parameters of any"
        )
    values = np.asarray(weights.numpy() if isinstance(weights, DistArray) else weights, np.float64)
    if values.ndim != 1 + isinstance(loss, Softmax) or len(values) < intercept:
        raise ValueError(f"{loss}: weights have the shape {values.shape}")
    rest = values[-1] if intercept else np.zeros(values.shape[1:])
    coefficients = values[: len(values) - intercept]
    if isinstance(loss, Softmax):
        return _softmax(coefficients, rest)
    if isinstance(loss, Logistic):
        made = _java(f"{_CLASSIFICATION}.LogisticRegressionModel", coefficients, rest)
        return LogisticRegressionModel._from_java(made)
    if loss.labels == "signs":
        made = _java(f"{_CLASSIFICATION}.LinearSVCModel", coefficients, rest)
        return LinearSVCModel._from_java(made)
    made = _java(f"{_REGRESSION}.LinearRegressionModel", coefficients, rest)
    return LinearRegressionModel._from_java(made)


def _has_model(loss: Loss) -> bool:
    known = isinstance(loss, RowLoss) and loss.labels in ("signs", "real")
    return known or isinstance(loss, Softmax)


def _softmax(table: np.ndarray, intercepts: np.ndarray) -> LogisticRegressionModel:
    classes = table.shape[1]
    matrix = DenseMatrix(classes, len(table), np.ascontiguousarray(table).ravel())
    context = _context()
    args = (_py2java(context, matrix), _py2java(context, DenseVector(intercepts)), classes, True)
    made = _class(f"{_CLASSIFICATION}.LogisticRegressionModel")(_uid("logreg"), *args)
    return LogisticRegressionModel._from_java(made)


def _java(name: str, coefficients: np.ndarray, intercept: Any) -> Any:
    vector = _py2java(_context(), DenseVector(coefficients))
    return _class(name)(_uid(name.rpartition(".")[2]), vector, float(intercept))


def _class(name: str) -> Any:
    found = _context()._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _uid(prefix: str) -> str:
    return str(_class("org.apache.spark.ml.util.Identifiable").randomUID(prefix))


def _context() -> SparkContext:
    session = SparkSession.getActiveSession()
    if session is None:
        raise RuntimeError("models of MLlib live in Spark: start a SparkSession first")
    return session.sparkContext
