"""Linear classifiers with the names and Params of ``pyspark.ml.classification``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.ml.classification import (
    ClassificationModel,
    Classifier,
    ProbabilisticClassificationModel,
    ProbabilisticClassifier,
    _LinearSVCParams,
    _LogisticRegressionParams,
)
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import (
    Matrix,
    MatrixUDT,
    Vector,
    Vectors,
    VectorUDT,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, IntegerType

from distvec import DistArray
from distvec.losses.classification import Hinge, Logistic, Softmax
from distvec.losses.loss import Arrays, Loss, Parameter, Sums
from distvec.losses.rows import Floats, Rows
from distvec.spark.context import PSContext
from distvec.spark.ml.factorization import (
    FMClassificationModel,
    FMClassificationSummary,
    FMClassificationTrainingSummary,
    FMClassifier,
)
from distvec.spark.ml.files import frame_of
from distvec.spark.ml.fits import ServerEstimator
from distvec.spark.ml.models import (
    MARGIN,
    BinaryLogistic,
    ServerModel,
    argmax,
    compressed,
    compressed_matrix,
    kept,
)
from distvec.spark.ml.params import HasFeatures, Range, at_least, between, one_of
from distvec.spark.ml.summary import (
    BinaryClassificationSummary,
    ClassificationSummary,
    Training,
    TrainingSummary,
)
from distvec.spark.ml.tree_models import GBTClassificationModel
from distvec.spark.ml.trees import GBTClassifier
from distvec.spark.objectives.model import Model
from distvec.spark.objectives.objective import Objective
from distvec.spark.objectives.validation import Decision
from optim import Box, ElasticNet, Result

__all__ = (
    "FMClassificationModel",
    "FMClassifier",
    "GBTClassificationModel",
    "GBTClassifier",
    "LinearSVC",
    "LinearSVCModel",
    "LogisticRegression",
    "LogisticRegressionModel",
)

_SUMMARIES = (FMClassificationSummary, FMClassificationTrainingSummary)
"""Of models in other files; users import them for their types."""

_SIDES = {"lower": -math.inf, "upper": math.inf}
"""The sides of bounds, and the bound that is none."""


_WIDE, _NARROW = 1e-2, 1e-7
"""The widths of the kink of the hinge loss, at first and at the least tolerance."""


def _smoothing(tolerance: float) -> float:
    return max(100.0 * tolerance, _NARROW)


@dataclass(frozen=True)
class _BinaryHinge(Hinge):
    """The hinge loss of the labels 0 and 1."""

    labels: ClassVar[str] = "classes"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        return super().row(margins, 2.0 * labels - 1.0)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return super().curvature(margins, 2.0 * labels - 1.0)

    def bind(self, labels: Sequence[float]) -> Loss:
        """``ValueError`` for more than two classes."""
        if not set(labels) <= {0.0, 1.0}:
            raise ValueError(
                f"LinearSVC only supports binary classification with the labels 0 and 1, got "
                f"{sorted(labels)}"
            )
        return self


@dataclass(frozen=True)
class _ByFamily(Loss):
    """Becomes the logistic or the softmax loss when the labels are known."""

    family: str
    labels: ClassVar[str] = "classes"

    def bind(self, labels: Sequence[float]) -> Loss:
        """``ValueError`` for more than two classes of the family "binomial"."""
        classes = int(max(labels)) + 1
        if self.family == "binomial" and classes > 2:
            raise ValueError(
                f"Binomial family only supports 1 or 2 outcome classes but found {classes}; use "
                'family="multinomial"'
            )
        if self.family == "multinomial" or classes > 2:
            return Softmax(classes=max(2, classes))
        return BinaryLogistic()

    @property
    def takes_intercept(self) -> bool:
        return True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(),)

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        raise NotImplementedError("bind it first")


class _LogisticParams(_LogisticRegressionParams, HasFeatures):
    """Params of the estimator and its models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "maxIter": at_least(0),
        "regParam": at_least(0.0),
        "elasticNetParam": between(0.0, 1.0),
        "tol": at_least(0.0),
        "threshold": between(0.0, 1.0),
        "aggregationDepth": at_least(2),
        "maxBlockSizeInMB": at_least(0.0),
        "family": one_of("auto", "binomial", "multinomial"),
        "thresholds": Range(
            lambda t: all(x >= 0 for x in t) and sum(x == 0 for x in t) <= 1,
            "0 or more, and at most one of them 0",
        ),
    }


class LogisticRegression(ServerEstimator, _LogisticParams, ProbabilisticClassifier):
    """Logistic regression for two or more classes, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.classification.LogisticRegression``, by name. ``featuresCol`` may
        also be a list of columns of numbers, or the name of an array column.

    See Also
    --------
    distvec.spark.Objective : Other losses, penalties and solvers.

    Notes
    -----
    The objective is MLlib's, and so is the optimum. Parameters and gradients are on the servers of
    the running ``PSContext``; without one, ``fit`` starts two servers. ``fit`` with several param
    maps, and ``CrossValidator``, read the rows once if the maps change only the penalty, limits,
    tolerances, thresholds or output columns.

    ``aggregationDepth`` and ``maxBlockSizeInMB`` have no effect.

    Examples
    --------
    >>> from distvec.spark.ml.classification import LogisticRegression
    >>> model = LogisticRegression(regParam=0.1, fitIntercept=False).fit(train)
    >>> model.coefficients.toArray().round(2)
    array([ 0.62, -1.05,  1.05, -0.62])
    >>> model.transform(train).select("label", "prediction").show(2)
    +-----+----------+
    |label|prediction|
    +-----+----------+
    |  1.0|       1.0|
    |  0.0|       0.0|
    +-----+----------+
    only showing top 2 rows
    """

    def _check_together(self) -> None:
        self._checkThresholdConsistency()

    def _data_key(self) -> tuple[Any, ...]:
        names = ("labelCol", "fitIntercept", "family")
        given = (self.getOrDefault(name) for name in names)
        return (*given, str(self._features), self._weight, self._is_standardized)

    @property
    def _is_standardized(self) -> bool:
        """Whether the solver works on standardized features, also if the optimum is the same."""
        return bool(self.getStandardization() or self.getRegParam() == 0.0)

    def _objective(self, dataset: DataFrame) -> Objective:
        return Objective(
            dataset,
            loss=_ByFamily(self.getFamily().lower()),
            features=self._features,
            label=self.getLabelCol(),
            weight=self._weight,
            intercept=self.getFitIntercept(),
            standardization=self._is_standardized,
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Objective, dataset: DataFrame) -> LogisticRegressionModel:
        classes = max(2, int(max(objective.data.labels)) + 1)
        is_multinomial = isinstance(objective.loss, Softmax)
        _check_thresholds(self, classes)
        if len(objective.data.labels) == 1 and self.getFitIntercept():
            x, history = _constant(objective), [0.0]
        else:
            result = _minimize(self, objective, classes)
            x, history = result.x, [record.value for record in result.history]
            if is_multinomial:
                x = _centred(x, self)
        loss = objective.loss if is_multinomial else Logistic()
        fitted = kept(x, loss, self._features, intercept=objective.intercept)
        model = self._copyValues(LogisticRegressionModel(fitted)._resetUid(self.uid))
        model._training = Training(dataset, history)
        return model


def _check_thresholds(estimator: LogisticRegression, classes: int) -> None:
    if estimator.isSet("thresholds") and len(estimator.getThresholds()) != classes:
        raise ValueError(
            "LogisticRegression.train() called with non-matching numClasses and "
            f"thresholds.length. numClasses={classes}, but thresholds has length "
            f"{len(estimator.getThresholds())}"
        )


def _minimize(estimator: LogisticRegression, objective: Objective, classes: int) -> Result:
    strength, share = estimator.getRegParam(), estimator.getElasticNetParam()
    penalty = ElasticNet(l1=share * strength, l2=(1.0 - share) * strength) if strength else None
    bounds = _bounds(estimator, objective, classes)
    return estimator._minimize(objective.with_penalty(penalty), bounds=bounds)


def _bounds(estimator: LogisticRegression, objective: Objective, classes: int) -> Box | None:
    """The bounds as a box over coefficients and intercepts; None without bounds."""
    lower, upper = (
        _bound(estimator, objective, classes, side, free) for side, free in _SIDES.items()
    )
    if lower is None and upper is None:
        return None
    if estimator.getElasticNetParam() != 0.0 and estimator.getRegParam() != 0.0:
        raise ValueError(
            "Fitting under bound constrained optimization only supports L2 regularization, but "
            f"got elasticNetParam={estimator.getElasticNetParam()!r}; set it to 0.0"
        )
    if lower is not None and upper is not None and (lower > upper).any():
        raise ValueError("lower bounds must be at most the upper bounds, element by element")
    ps = objective.ps
    return Box(
        -math.inf if lower is None else ps.array(lower),
        math.inf if upper is None else ps.array(upper),
    )


def _bound(
    estimator: LogisticRegression, objective: Objective, classes: int, side: str, free: float
) -> Floats | None:
    """One side as an array like the parameters; None if neither of its Params is set."""
    names = f"{side}BoundsOnCoefficients", f"{side}BoundsOnIntercepts"
    matrix: Matrix | None
    vector: Vector | None
    matrix, vector = (
        estimator.getOrDefault(one) if estimator.isSet(one) else None for one in names
    )
    if matrix is None and vector is None:
        return None
    columns = classes if isinstance(objective.loss, Softmax) else 1
    features = objective.features
    made = np.full((features + objective.intercept, columns), free)
    if matrix is not None:
        if (matrix.numRows, matrix.numCols) != (columns, features):
            raise ValueError(
                f"{names[0]} has the shape ({matrix.numRows}, {matrix.numCols}); must be "
                f"({columns}, {features})"
            )
        made[:features] = matrix.toArray().T
    if vector is not None:
        if not objective.intercept:
            raise ValueError(f"{names[1]} needs fitIntercept=True")
        if len(vector) != columns:
            raise ValueError(f"{names[1]} has {len(vector)} elements; must be {columns}")
        made[features] = vector.toArray()
    return made if isinstance(objective.loss, Softmax) else made[:, 0]


def _constant(objective: Objective) -> DistArray:
    """Parameters for rows that all have the same label: they predict that label."""
    label = int(objective.data.labels[0])
    x = np.zeros(objective.start().shape)
    if x.ndim == 2:
        x[-1, label] = math.inf
    else:
        x[-1] = math.inf if label else -math.inf
    return objective.ps.array(x)


def _centred(x: DistArray, estimator: LogisticRegression) -> DistArray:
    """Of equally good parameters MLlib's: those that no penalty determines have mean 0 over the
    classes, unless there are bounds."""
    names = (f"{side}BoundsOn{of}" for side in _SIDES for of in ("Coefficients", "Intercepts"))
    if any(estimator.isSet(one) for one in names):
        return x
    if estimator.getRegParam() == 0.0:
        return x - x.mean(axis=1, keepdims=True)
    if estimator.getFitIntercept():
        x = x.copy()
        x[-1:] = x[-1:] - x[-1:].mean(axis=1, keepdims=True)
    return x


class LogisticRegressionModel(ServerModel, _LogisticParams, ProbabilisticClassificationModel):
    """A fitted logistic regression; ``LogisticRegression.fit`` makes one.

    Parameters
    ----------
    fitted : Model
        The parameters, with the loss ``Logistic`` or ``Softmax``.

    Notes
    -----
    Models of more than 16 million parameters stay on the parameter servers. Then read them with
    ``fitted``: ``coefficients`` and the other attributes raise ``ValueError``.

    Examples
    --------
    >>> from distvec.spark.ml.classification import LogisticRegression
    >>> model = LogisticRegression(regParam=0.1).fit(train)
    >>> model.numClasses, model.numFeatures, model.summary.accuracy
    (2, 4, 1.0)
    """

    @property
    def coefficients(self) -> Vector:
        """The coefficients of two classes, sparse if that is smaller."""
        self._check_binomial("matrix of coefficients", "coefficientMatrix")
        return super().coefficients

    @property
    def intercept(self) -> float:
        """The intercept of two classes."""
        self._check_binomial("vector of intercepts", "interceptVector")
        return super().intercept

    @property
    def coefficientMatrix(self) -> Matrix:
        """A row of coefficients for each class; of two classes only the positive one's."""
        table = np.atleast_2d(np.asarray(self._local().coefficients).T)
        return compressed_matrix(np.ascontiguousarray(table))

    @property
    def interceptVector(self) -> Vector:
        """The intercepts, sparse if that is smaller."""
        return compressed(Vectors.dense(np.atleast_1d(self.fitted.intercept)))

    @property
    def numClasses(self) -> int:
        """The number of classes."""
        return int(self.fitted.arrays[0].shape[1]) if self._is_multinomial else 2

    @property
    def _is_multinomial(self) -> bool:
        return bool(self.fitted.arrays[0].ndim == 2)

    def _check_binomial(self, kind: str, other: str) -> None:
        if self._is_multinomial:
            raise ValueError(f"Multinomial models contain a {kind}, use {other} instead.")

    def __repr__(self) -> str:
        return (
            f"LogisticRegressionModel: uid={self.uid}, numClasses={self.numClasses}, "
            f"numFeatures={self.numFeatures}"
        )

    # --- predictions ------------------------------------------------------------------------------

    def predict(self, value: Vector) -> float:
        """Predict the class of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The class.
        """
        raw = self.predictRaw(value).toArray()
        if not self._is_multinomial:
            return float(raw[1] > _raw_threshold(self.getThreshold()))
        if not self.isSet("thresholds"):
            return float(raw.argmax())
        with np.errstate(divide="ignore"):
            return float((_softmax(raw) / np.array(self.getThresholds())).argmax())

    def predictRaw(self, value: Vector) -> Vector:
        """Return the margins of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        Vector
            A margin for each class.
        """
        margins = self._margins(value)
        return Vectors.dense(margins if self._is_multinomial else [-margins[0], margins[0]])

    def predictProbability(self, value: Vector) -> Vector:
        """Return the probabilities of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        Vector
            A probability for each class.
        """
        raw = self.predictRaw(value).toArray()
        if self._is_multinomial:
            return Vectors.dense(_softmax(raw))
        return Vectors.dense(Logistic().probabilities(raw[1:])[0])

    def _outputs(self) -> dict[str, Column]:
        margin = F.col(MARGIN)
        if self._is_multinomial:
            raw, probability, prediction = self._multinomial(margin)
        else:
            raw, probability, prediction = self._binomial(margin)
        return {
            self.getRawPredictionCol(): array_to_vector(raw),
            self.getProbabilityCol(): array_to_vector(probability),
            self.getPredictionCol(): prediction,
        }

    @property
    def _decision(self) -> Decision:
        if not self._is_multinomial:
            return Decision(threshold=_raw_threshold(self.getThreshold()))
        given = self.getThresholds() if self.isSet("thresholds") else []
        return Decision(factors=tuple(math.inf if t == 0.0 else 1.0 / t for t in given))

    def _binomial(self, margin: Column) -> tuple[Column, Column, Column]:
        negative = 1.0 / (1.0 + F.exp(margin))
        prediction = (margin > F.lit(_raw_threshold(self.getThreshold()))).cast("double")
        return F.array(-margin, margin), F.array(negative, 1.0 - negative), prediction

    def _multinomial(self, margins: Column) -> tuple[Column, Column, Column]:
        terms = F.transform(margins, lambda m: F.exp(m - F.array_max(margins)))
        total = F.aggregate(terms, F.lit(0.0), lambda total, term: total + term)
        probability = F.transform(terms, lambda term: term / total)
        if self.isSet("thresholds"):
            return margins, probability, argmax(probability, self.getThresholds())
        return margins, probability, argmax(margins)

    # --- metrics ----------------------------------------------------------------------------------

    @property
    def summary(self) -> LogisticRegressionTrainingSummary:
        """Metrics on the training data; they are computed when they are read."""
        training = self._known_training()
        kind = LogisticRegressionTrainingSummary
        if not self._is_multinomial:
            kind = BinaryLogisticRegressionTrainingSummary
        made = kind(*self._predictions(training.dataset))
        made._history = training.history
        return made

    def evaluate(self, dataset: DataFrame) -> LogisticRegressionSummary:
        """Return metrics of the predictions on a DataFrame.

        Parameters
        ----------
        dataset : DataFrame
            Rows with labels.

        Returns
        -------
        LogisticRegressionSummary
            Of two classes, a ``BinaryLogisticRegressionSummary``.
        """
        binary = BinaryLogisticRegressionSummary
        kind = LogisticRegressionSummary if self._is_multinomial else binary
        return kind(*self._predictions(dataset))

    def _predictions(self, dataset: DataFrame) -> tuple[DataFrame, dict[str, str]]:
        return self._scored(dataset, "probabilityCol", "predictionCol")

    # --- files and MLlib --------------------------------------------------------------------------

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        matrix = attributes.coefficientMatrix.toArray()
        x = np.vstack([matrix.T, attributes.interceptVector.toArray()])
        if len(matrix) > 1:
            return Model(x, loss=Softmax(classes=len(matrix)), intercept=True)
        return Model(x[:, 0], loss=Logistic(), intercept=True)

    def _data(self, session: SparkSession) -> DataFrame:
        matrix = self.coefficientMatrix
        return frame_of(
            session,
            numClasses=(IntegerType(), self.numClasses),
            numFeatures=(IntegerType(), self.numFeatures),
            interceptVector=(VectorUDT(), self.interceptVector),
            coefficientMatrix=(MatrixUDT(), matrix),
            isMultinomial=(BooleanType(), self._is_multinomial),
        )


def _raw_threshold(threshold: float) -> float:
    """The margin above which the probability is above ``threshold``."""
    if threshold in (0.0, 1.0):
        return math.inf if threshold else -math.inf
    return math.log(threshold / (1.0 - threshold))


def _softmax(raw: Floats) -> Floats:
    terms = np.exp(raw - raw.max())
    found: Floats = terms / terms.sum()
    return found


class LogisticRegressionSummary(ClassificationSummary):
    """Metrics of a logistic regression on a DataFrame; ``model.evaluate`` makes one."""

    @property
    def probabilityCol(self) -> str:
        """The column of probabilities."""
        return self._columns["probabilityCol"]


class LogisticRegressionTrainingSummary(LogisticRegressionSummary, TrainingSummary):
    """Metrics on the training data, and the course of the training."""


class BinaryLogisticRegressionSummary(BinaryClassificationSummary, LogisticRegressionSummary):
    """Metrics of a logistic regression of two classes on a DataFrame."""


class BinaryLogisticRegressionTrainingSummary(
    BinaryLogisticRegressionSummary, LogisticRegressionTrainingSummary
):
    """Metrics of two classes on the training data, and the course of the training."""


class _SVCParams(_LinearSVCParams, HasFeatures):
    """Params of the estimator and its models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "maxIter": at_least(0),
        "regParam": at_least(0.0),
        "tol": at_least(0.0),
        "aggregationDepth": at_least(2),
        "maxBlockSizeInMB": at_least(0.0),
    }


class LinearSVC(ServerEstimator, _SVCParams, Classifier[Any]):
    """Linear support vector machine for two classes, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.classification.LinearSVC``, by name. ``featuresCol`` may also be a
        list of columns of numbers, or the name of an array column.

    See Also
    --------
    distvec.losses.Hinge : The loss.

    Notes
    -----
    The objective is MLlib's, the mean hinge loss plus an l2 penalty. The solver minimizes it with
    a kink that is rounded over ``100 tol``, at least 1e-7, so the value is at most half of that
    above the minimum. Unless there is a ``checkpointDir``, it begins with a kink that is rounded
    over 0.01, and narrows it tenfold each time it converges. MLlib's solver stops at kinks, often
    at a higher value, so coefficients may differ.

    ``aggregationDepth`` and ``maxBlockSizeInMB`` have no effect.

    Examples
    --------
    >>> from distvec.spark.ml.classification import LinearSVC
    >>> model = LinearSVC(regParam=0.1).fit(train)
    >>> model.transform(train).select("label", "prediction").show(2)
    +-----+----------+
    |label|prediction|
    +-----+----------+
    |  1.0|       1.0|
    |  0.0|       0.0|
    +-----+----------+
    only showing top 2 rows
    """

    def _data_key(self) -> tuple[Any, ...]:
        names = ("labelCol", "fitIntercept", "standardization", "tol")
        given = (self.getOrDefault(name) for name in names)
        return (*given, str(self._features), self._weight)

    def _objective(self, dataset: DataFrame) -> Objective:
        return Objective(
            dataset,
            loss=_BinaryHinge(smoothing=_smoothing(self.getTol())),
            features=self._features,
            label=self.getLabelCol(),
            weight=self._weight,
            intercept=self.getFitIntercept(),
            standardization=self.getStandardization(),
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Objective, dataset: DataFrame) -> LinearSVCModel:
        strength = self.getRegParam()
        penalty = ElasticNet(l1=0.0, l2=strength) if strength else None
        penalized = objective.with_penalty(penalty)
        x, history = None, [math.inf]
        for smoothing in self._smoothings():
            left = self.getMaxIter() - len(history) + 1
            rounded = penalized._with_loss_options(smoothing=smoothing)
            result = self._minimize(rounded, x, max_iterations=left)
            x = result.x
            history = [*history[:-1], *(record.value for record in result.history)]
            if len(history) > self.getMaxIter():
                break
        fitted = kept(x, Hinge(), self._features, intercept=objective.intercept)
        model = self._copyValues(LinearSVCModel(fitted)._resetUid(self.uid))
        model._training = Training(dataset, history)
        return model

    def _smoothings(self) -> list[float]:
        """Widths of the kink, of runs that each start where the last one ended: the narrower it is,
        the more iterations a far start takes. Checkpoints are of one run.
        """
        found = [_smoothing(self.getTol())]
        while 2.0 * found[-1] < _WIDE and not self._given("checkpointDir"):
            found.append(10.0 * found[-1])
        return found[::-1]


class LinearSVCModel(ServerModel, _SVCParams, ClassificationModel):
    """A fitted support vector machine; ``LinearSVC.fit`` makes one.

    Parameters
    ----------
    fitted : Model
        The parameters, with the loss ``Hinge``.

    Notes
    -----
    Models of more than 16 million parameters stay on the parameter servers. Then read them with
    ``fitted``: ``coefficients`` raises ``ValueError``.

    Examples
    --------
    >>> from distvec.spark.ml.classification import LinearSVC
    >>> model = LinearSVC(regParam=0.1).fit(train)
    >>> model.numClasses, model.numFeatures, model.summary().accuracy
    (2, 4, 1.0)
    """

    def setThreshold(self, value: float) -> Self:
        """Set the margin above which the prediction is 1.

        Parameters
        ----------
        value : float
            The threshold.

        Returns
        -------
        LinearSVCModel
            This object.
        """
        return self._set(threshold=value)

    @property
    def numClasses(self) -> int:
        """The number of classes: 2."""
        return 2

    def __repr__(self) -> str:
        return f"LinearSVCModel: uid={self.uid}, numClasses=2, numFeatures={self.numFeatures}"

    def predict(self, value: Vector) -> float:
        """Predict the class of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The class.
        """
        return float(self._margins(value)[0] > self.getThreshold())

    def predictRaw(self, value: Vector) -> Vector:
        """Return the margins of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        Vector
            A margin for each class.
        """
        (margin,) = self._margins(value)
        return Vectors.dense([-margin, margin])

    def _outputs(self) -> dict[str, Column]:
        margin = F.col(MARGIN)
        return {
            self.getRawPredictionCol(): array_to_vector(F.array(-margin, margin)),
            self.getPredictionCol(): (margin > F.lit(self.getThreshold())).cast("double"),
        }

    @property
    def _decision(self) -> Decision:
        return Decision(threshold=self.getThreshold())

    def summary(self) -> LinearSVCTrainingSummary:
        """Return metrics on the training data.

        Returns
        -------
        LinearSVCTrainingSummary
            Metrics, which are computed when they are read.

        Raises
        ------
        RuntimeError
            If the model was not made by ``fit`` just now.
        """
        training = self._known_training()
        made = LinearSVCTrainingSummary(*self._predictions(training.dataset))
        made._history = training.history
        return made

    def evaluate(self, dataset: DataFrame) -> LinearSVCSummary:
        """Return metrics of the predictions on a DataFrame.

        Parameters
        ----------
        dataset : DataFrame
            Rows with labels.

        Returns
        -------
        LinearSVCSummary
            Metrics, which are computed when they are read.
        """
        return LinearSVCSummary(*self._predictions(dataset))

    def _predictions(self, dataset: DataFrame) -> tuple[DataFrame, dict[str, str]]:
        return self._scored(dataset, "rawPredictionCol", "predictionCol")

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        x = np.append(attributes.coefficients.toArray(), attributes.intercept)
        return Model(x, loss=Hinge(), intercept=True)

    def _data(self, session: SparkSession) -> DataFrame:
        return frame_of(
            session,
            coefficients=(VectorUDT(), self.coefficients),
            intercept=(DoubleType(), self.intercept),
        )


class LinearSVCSummary(BinaryClassificationSummary):
    """Metrics of a support vector machine on a DataFrame; ``model.evaluate`` makes one."""


class LinearSVCTrainingSummary(LinearSVCSummary, TrainingSummary):
    """Metrics on the training data, and the course of the training."""
