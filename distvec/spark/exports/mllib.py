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

from distvec.losses import Logistic, Loss, RowLoss, Softmax
from distvec.spark.objectives.model import model_of

_CLASSIFICATION = "org.apache.spark.ml.classification"
_REGRESSION = "org.apache.spark.ml.regression"


def mllib_model(
    weights: Any, *, loss: Loss | None = None, intercept: bool | None = None
) -> JavaMLWritable:
    """The model of MLlib that says what ``weights`` say; ``model.save(path)`` writes its layout.

        mllib_model(objective.model(result.x)).save("model")

    ``Logistic``, the default, makes a ``LogisticRegressionModel``, ``Softmax`` one of several
    classes; hinges and other losses of two classes a ``LinearSVCModel``; losses of real labels a
    ``LinearRegressionModel``. ``weights`` is a ``Model``, or what a solver found for an objective:
    then loss, intercept and compaction are known. Of other arrays, on the servers or NumPy's, over
    all features, ``loss`` and ``intercept`` (whether the last row is one) say what they are. MLlib
    keeps them on the driver. ValueError where they are known to be something else than is said;
    ``NotImplementedError`` for losses of which MLlib has no model; ``RuntimeError`` without a
    SparkSession.
    """
    if loss is not None:
        _check_loss(loss)
    model = model_of(weights, loss, intercept)
    loss = model.loss
    _check_loss(loss)
    local = model.whole().numpy()
    coefficients = np.asarray(local.coefficients, np.float64)
    rest = np.asarray(local.intercept, np.float64)
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


def _check_loss(loss: Loss) -> None:
    if not _has_model(loss):
        raise NotImplementedError(
            f"MLlib has no model of {loss}; those of Logistic, Softmax, hinges and losses of real "
            "labels can be made; any other is saved by model.save(path), or distvec.save"
        )


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
