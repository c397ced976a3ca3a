"""Linear regression with the name and Params of ``pyspark.ml.regression.LinearRegression``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from pyspark.ml import Model as SparkModel
from pyspark.ml import regression as mllib
from pyspark.ml.linalg import Vector, VectorUDT
from pyspark.ml.regression import RegressionModel, Regressor, _LinearRegressionParams
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType
from scipy import special

from distvec.losses.loss import Loss
from distvec.losses.regression import ScaledHuber, Squared
from distvec.losses.rows import Floats
from distvec.spark.context import PSContext
from distvec.spark.ml.files import frame_of
from distvec.spark.ml.fits import ServerEstimator
from distvec.spark.ml.least_squares import (
    MOST_FEATURES,
    LabelledRows,
    LeastSquares,
    Solution,
    label_moments,
)
from distvec.spark.ml.models import MARGIN, ServerModel, kept
from distvec.spark.ml.params import HasFeatures, Range, at_least, between, one_of, tolerances
from distvec.spark.ml.summary import PredictionSummary, Training, TrainingSummary
from distvec.spark.objectives.model import Model, in_mllib
from distvec.spark.objectives.objective import Objective
from distvec.spark.objectives.validation import Decision
from optim import ElasticNet, SquaredL2Norm


class _LinearParams(_LinearRegressionParams, HasFeatures):
    """Params of the estimator and its models."""

    _module = "distvec.spark.ml.regression"
    _ranges: ClassVar[Mapping[str, Range]] = {
        "maxIter": at_least(0),
        "regParam": at_least(0.0),
        "elasticNetParam": between(0.0, 1.0),
        "tol": at_least(0.0),
        "aggregationDepth": at_least(2),
        "maxBlockSizeInMB": at_least(0.0),
        "epsilon": Range(lambda x: 1.0 < x < math.inf, "finite and above 1"),
        "solver": one_of("auto", "normal", "l-bfgs"),
        "loss": one_of("squarederror", "huber"),
    }


class LinearRegression(ServerEstimator, _LinearParams, Regressor[Any]):
    """Linear regression with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.regression.LinearRegression``, by name. ``featuresCol`` may also
        be a list of columns of numbers, or the name of an array column.

    See Also
    --------
    distvec.spark.Objective : Other losses, penalties and solvers.

    Notes
    -----
    The objective is MLlib's, and so is the optimum. It divides the labels by their standard
    deviation before it applies the penalty.

    - ``solver="normal"`` reads the rows once and solves the normal equations of up to 4096
      features. It divides by population deviations. ``fit`` with several param maps reads the rows
      once for all of them.
    - ``solver="l-bfgs"`` takes any number of features. Parameters and gradients are on the servers
      of the running ``PSContext``. It divides by sample deviations.
    - ``loss="huber"`` also fits the scale of the residuals. Its penalty is not divided.
    - ``solver="auto"`` is the second for more than 4096 features, or if ``optimizer`` is set.

    ``aggregationDepth`` and ``maxBlockSizeInMB`` have no effect.

    Examples
    --------
    >>> from distvec.spark.ml.regression import LinearRegression
    >>> model = LinearRegression(regParam=0.1).fit(train)
    >>> model.coefficients.toArray().round(2), round(model.intercept, 2)
    (array([-0.09, -0.3 ,  0.3 ,  0.09]), 0.5)
    """

    def _data_key(self) -> tuple[Any, ...]:
        given = self.getLabelCol(), self.getFitIntercept(), str(self._features)
        return (*given, self._weight, self._loss)

    @property
    def _loss(self) -> Loss:
        """``ValueError`` for Params that do not go with it."""
        if self.getOrDefault("loss").lower() != "huber":
            return Squared()
        if self.getSolver().lower() == "normal":
            raise ValueError(
                "LinearRegression with huber loss doesn't support normal solver, please change "
                "solver to auto or l-bfgs."
            )
        if self.getElasticNetParam() != 0.0:
            raise ValueError(
                "LinearRegression with huber loss only supports L2 regularization, but got "
                f"elasticNetParam = {self.getElasticNetParam()}."
            )
        return ScaledHuber(epsilon=self.getEpsilon())

    def _objective(self, dataset: DataFrame) -> Objective:
        return LabelledRows(
            dataset,
            loss=self._loss,
            features=self._features,
            label=self.getLabelCol(),
            weight=self._weight,
            intercept=self.getFitIntercept(),
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Any, dataset: DataFrame) -> LinearRegressionModel:
        solver, scale, diagonal = self.getSolver().lower(), 1.0, None
        is_easy = objective.features <= MOST_FEATURES and not self._given("optimizer")
        if isinstance(objective.loss, ScaledHuber):
            fitted, history, scale = self._by_huber(objective)
        elif solver == "normal" or (solver == "auto" and is_easy):
            fitted, history, diagonal = self._by_products(objective)
        else:
            fitted, history = self._by_rows(objective)
        model = self._copyValues(LinearRegressionModel(fitted, scale)._resetUid(self.uid))
        model._training, model._inverse_diagonal = Training(dataset, history), diagonal
        return model

    def _by_products(self, objective: LabelledRows) -> tuple[Model, list[float], Floats | None]:
        found = LeastSquares(
            intercept=self.getFitIntercept(),
            strength=self.getRegParam(),
            l1_share=self.getElasticNetParam(),
            standardize_features=self.getStandardization(),
            max_iterations=self.getMaxIter(),
            tolerance=self.getTol(),
        ).solve(objective.products)
        return self._fitted(found), found.history, found.inverse_diagonal

    def _fitted(self, found: Solution) -> Model:
        x = np.append(found.coefficients, found.intercept)
        return Model(x, loss=Squared(), intercept=True, features=self._features)

    def _by_rows(self, objective: LabelledRows) -> tuple[Model, list[float]]:
        labels = label_moments(objective)
        strength, share, unit = self.getRegParam(), self.getElasticNetParam(), labels.deviation
        if unit == 0.0:
            if objective.intercept or labels.mean == 0.0:
                nothing = Solution(np.zeros(objective.features), labels.mean, None, [0.0])
                return self._fitted(nothing), nothing.history
            if strength:
                raise ValueError(
                    "The standard deviation of the label is zero. Model cannot be regularized."
                )
            unit = abs(labels.mean)
        penalty = None
        if strength:
            penalty = ElasticNet(l1=share * strength, l2=(1.0 - share) * strength / unit)
        result = self._minimize(
            objective.with_penalty(penalty, standardization=self._is_standardized),
            gradient_tolerance=tolerances(self.getTol())["gradient_tolerance"] * unit,
        )
        fitted = kept(result.x, Squared(), self._features, intercept=objective.intercept)
        return fitted, [record.value / unit**2 for record in result.history]

    def _by_huber(self, objective: LabelledRows) -> tuple[Model, list[float], float]:
        strength = self.getRegParam()
        penalty = {"w": SquaredL2Norm(strength)} if strength else None
        result = self._minimize(
            objective.with_penalty(penalty, standardization=self._is_standardized),
            value_tolerance=min(self.getTol() * 1e-4, tolerances(self.getTol())["value_tolerance"]),
        )
        fitted = kept(result.x["w"], Squared(), self._features, intercept=objective.intercept)
        scale = math.exp(float(result.x["log_scale"][0]))
        return fitted, [record.value for record in result.history], scale

    @property
    def _is_standardized(self) -> bool:
        """Whether the solver works on standardized features, also if the optimum is the same."""
        return bool(self.getStandardization() or not self.getRegParam())


class LinearRegressionModel(ServerModel, _LinearParams, RegressionModel[Any]):
    """A fitted linear regression; ``LinearRegression.fit`` makes one.

    Parameters
    ----------
    fitted : Model, optional
        The parameters, with the loss ``Squared``.
    scale : float, default 1.0
        The scale of the residuals of Huber's loss.

    Notes
    -----
    Models of more than 16 million parameters stay on the parameter servers. Then read them with
    ``fitted``: ``coefficients`` raises ``ValueError``.

    Examples
    --------
    >>> from distvec.spark.ml.regression import LinearRegression
    >>> model = LinearRegression(regParam=0.1).fit(train)
    >>> model.numFeatures, model.scale, round(model.summary.r2, 3)
    (4, 1.0, 0.923)
    """

    _formats = ("distvec", "mllib", "pmml")

    def __init__(self, fitted: Model | None = None, scale: float = 1.0) -> None:
        super().__init__(fitted)
        self._scale = scale
        self._inverse_diagonal: Floats | None = None

    @property
    def _decision(self) -> Decision:
        return Decision()

    @property
    def scale(self) -> float:
        """The scale of the residuals of Huber's loss; 1.0 of the squared loss."""
        return self._scale

    def __repr__(self) -> str:
        return f"LinearRegressionModel: uid={self.uid}, numFeatures={self.numFeatures}"

    def predict(self, value: Vector) -> float:
        """Predict the label of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The label.
        """
        return float(self._margins(value)[0])

    def _outputs(self) -> dict[str, Column]:
        return {self.getPredictionCol(): F.col(MARGIN)}

    @property
    def summary(self) -> LinearRegressionTrainingSummary:
        """Metrics on the training data; they are computed when they are read."""
        training = self._known_training()
        made = LinearRegressionTrainingSummary(
            *self._scored(training.dataset, "predictionCol"),
            self._estimates(self._inverse_diagonal),
        )
        made._history = training.history
        return made

    def evaluate(self, dataset: DataFrame) -> LinearRegressionSummary:
        """Return metrics of the predictions on a DataFrame.

        Parameters
        ----------
        dataset : DataFrame
            Rows with labels.

        Returns
        -------
        LinearRegressionSummary
            Metrics, which are computed when they are read.
        """
        return LinearRegressionSummary(
            *self._scored(dataset, "predictionCol"), self._estimates(None)
        )

    def _estimates(self, inverse_diagonal: Floats | None) -> Estimates:
        return Estimates.of(self, self.getFitIntercept(), inverse_diagonal)

    def _in_mllib(self) -> SparkModel:
        coefficients = self._local().coefficients
        made: Any = mllib.LinearRegressionModel, coefficients, self.intercept, self.scale
        return in_mllib(*made)  # type: ignore[return-value]

    def _attributes(self) -> dict[str, Any]:
        return {"scale": self.scale}

    @classmethod
    def _made_of(cls, attributes: Any) -> Self:
        return cls(cls._of(attributes), float(attributes.scale))

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        x = np.append(attributes.coefficients.toArray(), attributes.intercept)
        return Model(x, loss=Squared(), intercept=True)

    def _data(self, session: SparkSession) -> DataFrame:
        return frame_of(
            session,
            intercept=(DoubleType(), self.intercept),
            coefficients=(VectorUDT(), self.coefficients),
            scale=(DoubleType(), self.scale),
        )


class Estimates(NamedTuple):
    """Coefficients, then the intercept if one was fitted, for statistics of them."""

    rank: int
    """Their number."""
    values: Floats | None
    """None of a model on the servers."""
    intercept: bool
    inverse_diagonal: Floats | None
    """As a ``Solution`` has it."""

    @classmethod
    def of(cls, model: ServerModel, intercept: bool, inverse_diagonal: Floats | None) -> Estimates:
        """Those of a model."""
        values = None
        if model.fitted.is_local:
            values = np.append(model.fitted.coefficients, [model.intercept] * intercept)
        return cls(model.numFeatures + intercept, values, intercept, inverse_diagonal)

    def standard_errors(self, variance: float) -> Floats:
        """Of noise of this variance. ``RuntimeError`` if a solver did not factor a matrix."""
        if self.inverse_diagonal is None:
            raise RuntimeError(
                "No Std. Error of coefficients available for this model; they need normal "
                "equations that are not singular, without an l1 penalty"
            )
        found: Floats = np.sqrt(self.inverse_diagonal * variance)
        return found

    def t_values(self, variance: float) -> Floats:
        """Quotients of values and standard errors."""
        errors = self.standard_errors(variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.asarray(self.values) / errors)

    def p_values(self, variance: float, freedom: float) -> Floats:
        """Two-sided, by Student's t distribution; the normal one for infinite ``freedom``."""
        far = -np.abs(self.t_values(variance))
        tail = special.ndtr(far) if math.isinf(freedom) else special.stdtr(freedom, far)
        return np.asarray(2.0 * tail)


class _Sums(NamedTuple):
    """Over the rows, weighted but for the first."""

    rows: int
    weight: float
    squared_weights: float
    labels: float
    squared_labels: float
    absolute_residuals: float
    squared_residuals: float
    least: float
    """Of the residuals times the roots of the weights."""
    most: float


class LinearRegressionSummary(PredictionSummary):
    """Metrics of a linear regression on a DataFrame; ``model.evaluate`` makes one.

    Parameters
    ----------
    predictions : DataFrame
        The output of ``transform``, with labels.
    columns : dict
        The names of the columns, by Param.
    estimates : Estimates
        The coefficients.

    Notes
    -----
    The first metric runs one Spark job; the first that needs the variance of the labels runs
    another.
    """

    def __init__(
        self, predictions: DataFrame, columns: dict[str, str], estimates: Estimates
    ) -> None:
        super().__init__(predictions, columns)
        self._estimates = estimates

    @property
    def explainedVariance(self) -> float:
        """The mean square of predictions minus the mean label."""
        return self._squares[1] / self._sums.weight

    @property
    def meanAbsoluteError(self) -> float:
        """The mean absolute residual."""
        return self._sums.absolute_residuals / self._sums.weight

    @property
    def meanSquaredError(self) -> float:
        """The mean squared residual."""
        return self._sums.squared_residuals / self._sums.weight

    @property
    def rootMeanSquaredError(self) -> float:
        """The root of the mean squared residual."""
        return math.sqrt(self.meanSquaredError)

    @property
    def r2(self) -> float:
        """The coefficient of determination; without an intercept that of a line through 0."""
        sums = self._sums
        total = sums.squared_labels
        if self._estimates.intercept:
            freedom = sums.weight - sums.squared_weights / sums.weight
            variance = self._squares[0] / freedom if freedom > 0.0 else 0.0
            total = variance * (sums.weight - 1.0)
        return float(1.0 - np.divide(sums.squared_residuals, total))

    @property
    def r2adj(self) -> float:
        """``r2``, adjusted to the number of coefficients."""
        rows = self.numInstances - self._estimates.intercept
        freedom = self.numInstances - self._estimates.rank
        return float(1.0 - (1.0 - self.r2) * np.divide(rows, freedom))

    @property
    def residuals(self) -> DataFrame:
        """A column of labels minus predictions."""
        return self._predictions.select(self._residual.alias("residuals"))

    @property
    def numInstances(self) -> int:
        """The number of rows."""
        return self._sums.rows

    @property
    def degreesOfFreedom(self) -> int:
        """The number of rows minus the number of coefficients and of the intercept."""
        return self.numInstances - self._estimates.rank

    @property
    def devianceResiduals(self) -> list[float]:
        """The least and the largest residual, times the roots of the weights."""
        return [self._sums.least, self._sums.most]

    @property
    def coefficientStandardErrors(self) -> list[float]:
        """The standard errors of the coefficients, and of the intercept; after ``normal``."""
        found: list[float] = self._estimates.standard_errors(self._variance).tolist()
        return found

    @property
    def tValues(self) -> list[float]:
        """The t-statistics of the coefficients, and of the intercept; after ``normal``."""
        found: list[float] = self._estimates.t_values(self._variance).tolist()
        return found

    @property
    def pValues(self) -> list[float]:
        """The two-sided p-values of the coefficients, and of the intercept; after ``normal``."""
        freedom = self.degreesOfFreedom
        found: list[float] = self._estimates.p_values(self._variance, freedom).tolist()
        return found

    @property
    def _variance(self) -> float:
        return float(np.divide(self._sums.squared_residuals, self.degreesOfFreedom))

    @property
    def _residual(self) -> Any:
        return self._label - self._prediction

    @cached_property
    def _sums(self) -> _Sums:
        label, residual, weight = self._label, self._residual, self._weight
        far = residual * F.sqrt(weight)
        terms = (weight, weight * weight, weight * label, weight * label * label)
        rest = (weight * F.abs(residual), weight * residual * residual)
        sums = [F.sum(one) for one in (*terms, *rest)]
        row = self._predictions.agg(F.count("*"), *sums, F.min(far), F.max(far)).first()
        return _Sums(*(row or ()))

    @cached_property
    def _squares(self) -> tuple[float, float]:
        """Of labels minus their mean, and of predictions minus that mean."""
        mean = F.lit(self._sums.labels / self._sums.weight)
        far = (self._label - mean, self._prediction - mean)
        row = self._predictions.agg(*(F.sum(self._weight * one * one) for one in far)).first()
        return tuple(row or ())


class LinearRegressionTrainingSummary(LinearRegressionSummary, TrainingSummary):
    """Metrics on the training data, and the course of the training."""
