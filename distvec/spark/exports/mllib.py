"""Models of MLlib with the parameters that were fitted here, where MLlib has such a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import SparkContext
from pyspark.sql import SparkSession

from distvec.losses import Logistic, Loss, Model, RowLoss, Softmax

if TYPE_CHECKING:
    from pyspark.ml.classification import LogisticRegressionModel
    from pyspark.ml.util import JavaMLWritable

_CLASSIFICATION = "org.apache.spark.ml.classification"
_REGRESSION = "org.apache.spark.ml.regression"


def model_in_mllib(model: Model) -> JavaMLWritable:
    """The model of MLlib that says what ``model`` says, its parameters on the driver.

    ``NotImplementedError`` as ``check_loss``; ``RuntimeError`` without a SparkSession.
    """
    from pyspark.ml.classification import LinearSVCModel, LogisticRegressionModel
    from pyspark.ml.regression import LinearRegressionModel

    loss = model.loss
    check_loss(loss)
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


def check_loss(loss: Loss) -> None:
    """``NotImplementedError`` for losses of which MLlib has no model."""
    known = isinstance(loss, RowLoss) and loss.labels in ("signs", "real")
    if not known and not isinstance(loss, Softmax):
        raise NotImplementedError(
            f"MLlib has no model of {loss}; those of Logistic, Softmax, hinges and losses of real "
            "labels can be made; any other is saved by model.save(path), or distvec.save"
        )


def _softmax(table: np.ndarray, intercepts: np.ndarray) -> LogisticRegressionModel:
    from pyspark.ml.classification import LogisticRegressionModel
    from pyspark.ml.common import _py2java
    from pyspark.ml.linalg import DenseMatrix, DenseVector

    classes = table.shape[1]
    matrix = DenseMatrix(classes, len(table), np.ascontiguousarray(table).ravel())
    context = _context()
    args = (_py2java(context, matrix), _py2java(context, DenseVector(intercepts)), classes, True)
    made = _class(f"{_CLASSIFICATION}.LogisticRegressionModel")(_uid("logreg"), *args)
    return LogisticRegressionModel._from_java(made)


def _java(name: str, coefficients: np.ndarray, intercept: Any) -> Any:
    from pyspark.ml.common import _py2java
    from pyspark.ml.linalg import DenseVector

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
