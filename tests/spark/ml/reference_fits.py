"""Fits to the data sets of shared/data, beside MLlib's and beside the known optima."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from pyspark.ml import classification as their_classification
from pyspark.ml import regression as their_regression
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from scipy.special import logsumexp

from distvec.losses import SquaredHinge
from distvec.spark.ml import classification, regression
from distvec.spark.ml.losses import LossEstimator
from tests.optim.reference_data import load, load_classes, optimum, read_json

TIGHT = {"tol": 1e-10, "maxIter": 5000}
SIGNS, CLASSES, NUMBERS, POSITIVES = "signs", "classes", "numbers", "positive numbers"

_PLAIN = {"fitIntercept": False, "standardization": False}

BINARY = {
    "l2": ("LogisticRegression", {"regParam": 0.01}),
    "l1": ("LogisticRegression", {"regParam": 0.01, "elasticNetParam": 1.0}),
    "net": (
        "LogisticRegression",
        {"regParam": 0.001, "elasticNetParam": 0.5, "standardization": False},
    ),
    "svc": ("LinearSVC", {"regParam": 0.01}),
}
MULTICLASS = {
    "l2": ("LogisticRegression", {"regParam": 0.01}),
    "l1": ("LogisticRegression", {"regParam": 0.01, "elasticNetParam": 1.0}),
}
REGRESSION = {
    "normal net": ("LinearRegression", {"regParam": 0.3, "elasticNetParam": 0.8}),
    "rows l2": ("LinearRegression", {"regParam": 0.1, "solver": "l-bfgs"}),
    "rows net": (
        "LinearRegression",
        {"regParam": 0.3, "elasticNetParam": 0.8, "solver": "l-bfgs"},
    ),
    "huber": ("LinearRegression", {"regParam": 0.01, "loss": "huber"}),
    "gaussian": ("GeneralizedLinearRegression", {"regParam": 0.1}),
    "poisson": ("GeneralizedLinearRegression", {"regParam": 0.01, "family": "poisson"}),
    "gamma": (
        "GeneralizedLinearRegression",
        {"regParam": 0.01, "family": "gamma", "link": "log"},
    ),
}
TASKS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "binary": BINARY,
    "multiclass": MULTICLASS,
    "regression": REGRESSION,
}


def labels_of(task: str, fit: str) -> str:
    """The labels that a fit takes."""
    if fit in ("poisson", "gamma"):
        return POSITIVES
    return {"binary": SIGNS, "multiclass": CLASSES, "regression": NUMBERS}[task]


class Comparison(NamedTuple):
    """Of a fit of ours with MLlib's."""

    most: float
    """The largest difference of a coefficient or an intercept."""
    scaled: float
    """The same of coefficients times the deviations of their features."""
    margins: float
    """The largest difference of a margin of a row."""
    ours: float
    theirs: float
    """The values of the objective."""

    @property
    def excess(self) -> float:
        """How much higher ours is, relatively."""
        return (self.ours - self.theirs) / abs(self.theirs)


class Data(NamedTuple):
    """A data set with labels of a kind."""

    x: Any
    y: np.ndarray
    frame: DataFrame

    @property
    def deviations(self) -> np.ndarray:
        """Sample deviations of the features."""
        count, dense = len(self.y), self.x
        mean = np.asarray(dense.mean(axis=0)).ravel()
        squares = np.asarray(dense.multiply(dense).sum(axis=0)).ravel()
        return np.sqrt(np.maximum(0.0, (squares - count * mean**2) / (count - 1)))


def read(spark: SparkSession, name: str, labels: str) -> Data:
    """A set whose labels are 0 and 1, 0 to k-1, or numbers as they are."""
    x, y = (load if labels == SIGNS else load_classes)(name)
    if labels == POSITIVES:
        y = np.abs(y) + 0.5
    elif labels != NUMBERS:
        y = np.unique(y, return_inverse=True)[1].astype(float)
    rows = [
        (Vectors.sparse(x.shape[1], x.indices[a:b].tolist(), x.data[a:b].tolist()), float(label))
        for a, b, label in zip(x.indptr, x.indptr[1:], y, strict=False)
    ]
    rdd = spark.sparkContext.parallelize(rows, 1)  # partitions change roundings only
    return Data(x, y, spark.createDataFrame(rdd, ["features", "label"]).cache())


def compare(data: Data, kind: str, params: Mapping[str, Any]) -> Comparison:
    """A fit of ours beside MLlib's, both at a tolerance of 1e-10."""
    given = TIGHT | dict(params)
    is_class = kind in ("LogisticRegression", "LinearSVC")
    ours_in, theirs_in = (
        (classification, their_classification) if is_class else (regression, their_regression)
    )
    ours = getattr(ours_in, kind)(**given).fit(data.frame)
    theirs = getattr(theirs_in, kind)(**given).fit(data.frame)
    found, expected = (parameters(one) for one in (ours, theirs))
    values = []
    for model, (w, b) in ((ours, found), (theirs, expected)):
        values.append(objective(data, kind, params, model, w, b))
    far = found[0] - expected[0]
    return Comparison(
        max(float(np.abs(far).max()), float(np.abs(found[1] - expected[1]).max())),
        float(np.abs(far * data.deviations[:, None]).max()),
        float(np.abs(data.x @ far + (found[1] - expected[1])).max()),
        *values,
    )


def parameters(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients, a column for each class, and intercepts."""
    if hasattr(model, "coefficientMatrix"):
        return model.coefficientMatrix.toArray().T, model.interceptVector.toArray()
    return model.coefficients.toArray()[:, None], np.array([model.intercept])


def objective(
    data: Data, kind: str, params: Mapping[str, Any], model: Any, w: np.ndarray, b: np.ndarray
) -> float:
    """The value that MLlib says it minimizes, by the formulas of its documentation."""
    strength, share = params.get("regParam", 0.0), params.get("elasticNetParam", 0.0)
    margins, y, rows = data.x @ w + b, data.y, np.arange(len(data.y))
    deviations = data.deviations
    scale = deviations[:, None] if params.get("standardization", True) else 1.0
    if kind == "LogisticRegression":
        if margins.shape[1] == 1:
            losses = np.logaddexp(0.0, np.where(y == 1.0, -1.0, 1.0) * margins[:, 0])
        else:
            losses = logsumexp(margins, axis=1) - margins[rows, y.astype(int)]
    elif kind == "LinearSVC":
        losses = np.maximum(0.0, 1.0 - (2.0 * y - 1.0) * margins[:, 0])
    elif kind == "GeneralizedLinearRegression":
        return float(_score(data, params, margins[:, 0], w))
    elif params.get("loss") == "huber":
        far = np.abs(y - margins[:, 0]) / model.scale
        inner = far <= 1.35
        losses = model.scale * (1.0 + np.where(inner, far**2, 2 * 1.35 * far - 1.35**2))
    else:
        unit = y.std(ddof=1 if params.get("solver") == "l-bfgs" else 0)
        if params.get("solver") != "l-bfgs" and not np.isscalar(scale):
            scale = scale * math.sqrt((len(y) - 1) / len(y))
        losses = 0.5 * (y - margins[:, 0]) ** 2 / unit**2
        w = w / unit
    penalty = share * np.abs(scale * w).sum() + (1.0 - share) * 0.5 * ((scale * w) ** 2).sum()
    if params.get("loss") == "huber":
        losses, penalty = 0.5 * losses, 0.5 * ((scale * w) ** 2).sum()
    return float(losses.mean() + strength * penalty)


def _score(data: Data, params: Mapping[str, Any], margins: np.ndarray, w: np.ndarray) -> float:
    """1 plus how far IRLS is from its fixed point: these steps minimize nothing."""
    family, y = params.get("family", "gaussian"), data.y
    if family == "gaussian":
        scale = data.x.toarray().std(axis=0)[:, None]
        loss = 0.5 * np.mean((y - margins) ** 2) / y.var()
        return float(loss + 0.5 * params["regParam"] * ((scale * w / y.std()) ** 2).sum())
    mean = np.exp(margins)
    weights, scores = (mean, y - mean) if family == "poisson" else (1.0 + 0 * y, y / mean - 1.0)
    gradient = data.x.T @ scores / weights.sum() - params["regParam"] * w[:, 0]
    return 1.0 + float(np.abs(gradient / np.maximum(1.0, np.abs(data.x).max())).max())


# --- known optima ---------------------------------------------------------------------------------

KINDS = {
    "logistic_l2": (SIGNS, 1e-8),
    "logistic_l1": (SIGNS, 1e-6),
    "hinge_l2": (SIGNS, 5e-8),  # half of the width over which LinearSVC rounds the kink
    "squared_hinge_l2": (SIGNS, 1e-8),
    "softmax_l2": (CLASSES, 1e-8),
    "ridge": (NUMBERS, 1e-8),
    "lasso": (NUMBERS, 1e-6),
}
"""The labels, and the gap that is allowed: relative, but of the hinge absolute."""


def known(name: str) -> list[tuple[str, float]]:
    """Kinds and strengths of the optima that are known of a set."""
    entries = read_json("reference.json")[name]
    return [(one["kind"], one["lam"]) for one in entries if one["kind"] in KINDS]


def gap(data: Data, name: str, kind: str, lam: float) -> float:
    """The gap of the estimator's fit to the known optimum, as ``KINDS`` says."""
    estimator: Any
    y, sign = data.y, 2.0 * data.y - 1.0
    if kind.startswith("logistic"):
        share = float(kind == "logistic_l1")
        estimator = classification.LogisticRegression(elasticNetParam=share)
    elif kind == "softmax_l2":
        estimator = classification.LogisticRegression(family="multinomial")
    elif kind == "hinge_l2":
        estimator = classification.LinearSVC()
    elif kind == "squared_hinge_l2":
        estimator = LossEstimator(loss=SquaredHinge())
    else:
        estimator = regression.LinearRegression(elasticNetParam=float(kind == "lasso"))
    unit, least = y.std() if kind == "ridge" else 1.0, optimum(name, kind, lam)["optimum_value"]
    # Of unscaled features one iteration may gain little while others gain more: as far as it goes.
    limits = TIGHT | ({"maxIter": 20_000} if kind == "hinge_l2" else {"tol": 0.0})
    model = estimator.setParams(regParam=lam * unit, **_PLAIN, **limits).fit(data.frame)
    w, _ = parameters(model)
    margins = data.x @ w
    if kind == "softmax_l2":
        rows = np.arange(len(y))
        losses = logsumexp(margins, axis=1) - margins[rows, y.astype(int)]
    elif kind.startswith("logistic"):
        losses = np.logaddexp(0.0, -sign * margins[:, 0])
    elif "hinge" in kind:
        losses = np.maximum(0.0, 1.0 - sign * margins[:, 0]) ** (1 + (kind != "hinge_l2"))
    else:
        losses = 0.5 * (y - margins[:, 0]) ** 2
    norm = np.abs(w).sum() if kind in ("logistic_l1", "lasso") else 0.5 * (w**2).sum()
    return float(losses.mean() + lam * norm - least) / (1.0 if kind == "hinge_l2" else least)
