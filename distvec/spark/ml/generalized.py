"""Generalized linear regression with the name and Params of ``pyspark.ml.regression``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
from pyspark.ml import Model as SparkModel
from pyspark.ml import regression as mllib
from pyspark.ml.linalg import Vector, VectorUDT
from pyspark.ml.regression import (
    RegressionModel,
    Regressor,
    _GeneralizedLinearRegressionParams,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DoubleType

from distvec.losses.loss import Arrays, Parameter, StatefulLoss, Sums, TaskArrays
from distvec.losses.regression import Squared
from distvec.losses.rows import Floats, Rows
from distvec.spark.context import PSContext
from distvec.spark.data.blocks import Block
from distvec.spark.ml.families import FAMILIES, LINKS, Distribution, Gaussian
from distvec.spark.ml.files import frame_of
from distvec.spark.ml.fits import RowsEstimator
from distvec.spark.ml.least_squares import (
    MOST_FEATURES,
    LabelledRows,
    LeastSquares,
    Products,
    Solution,
    about_means,
    products_of,
    weighted_products,
    widened,
)
from distvec.spark.ml.linear import Estimates
from distvec.spark.ml.models import MARGIN, ServerModel
from distvec.spark.ml.params import HasFeatures, Range, at_least, one_of
from distvec.spark.ml.summary import PredictionSummary, Training
from distvec.spark.objectives.evaluation_task import LossSpec
from distvec.spark.objectives.evaluator import Evaluator, standing_tasks
from distvec.spark.objectives.model import Model, in_mllib
from distvec.spark.objectives.objective import Objective
from optim.core.run import progress_bar


class _GeneralizedParams(_GeneralizedLinearRegressionParams, HasFeatures):
    """Params of the estimator and its models."""

    _module = "distvec.spark.ml.regression"
    _ranges: ClassVar[Mapping[str, Range]] = {
        "maxIter": at_least(0),
        "regParam": at_least(0.0),
        "tol": at_least(0.0),
        "aggregationDepth": at_least(2),
        "family": one_of(*FAMILIES, "tweedie"),
        "link": one_of(*LINKS),
        "solver": one_of("irls"),
        "variancePower": Range(lambda x: x == 0.0 or 1.0 <= x < math.inf, "0, or finite and >= 1"),
    }

    @property
    def _distribution(self) -> Distribution:
        """``ValueError`` for a link that the family lacks."""
        family = self.getFamily()
        if family.lower() == "tweedie":
            power = self.getLinkPower() if self.isSet("linkPower") else None
            return Distribution.of_powers(self.getVariancePower(), power)
        return Distribution.of(family, self.getLink() if self.isSet("link") else None)

    @property
    def _offset(self) -> str | None:
        return self.getOffsetCol() or None if self.isSet("offsetCol") else None


@dataclass(frozen=True)
class _Start:
    """The response of the first step: the predictor of means near the labels."""

    distribution: Distribution

    def __call__(self, block: Block) -> tuple[Floats, Floats | None]:
        rows = block.rows
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        mean = self.distribution.family.start(rows.labels, weights)
        found = self.distribution.predictor(mean)
        return found if rows.offsets is None else found - rows.offsets, rows.weights


@dataclass(frozen=True)
class _WorkingProducts(StatefulLoss):
    """A step of iteratively reweighted least squares: products of all columns and the response.

    Parameters are the means of the columns at the start, and the coefficients. The sums are
    products of differences from these means, and last of the number 1.
    """

    distribution: Distribution
    columns: int
    """With that of the response."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("means", rows=self.columns), Parameter("coefficients")

    def begin(self, rows: Rows, array: TaskArrays) -> tuple[Rows, Floats]:
        return rows, array(0)

    def advance(self, state: tuple[Rows, Floats], array: TaskArrays) -> Floats:
        rows, means = state
        found = weighted_products(rows.matrix, *self._working(rows, array(1)))
        table, near = found.table, found.totals.means
        numbers = np.append(array.features, means.size - 1)
        if numbers.size < means.size:  # columns that no row here has differ from their means, too
            table = widened(widened(table, numbers, means.size).T, numbers, means.size)
            near = widened(near, numbers, means.size)
        far = np.append(near - means, 1.0)
        products: Floats = np.pad(table, (0, 1)) + found.totals.weight * np.outer(far, far)
        return products

    def _working(self, rows: Rows, coefficients: Floats) -> tuple[Floats, Floats]:
        """The response and the weight of each row."""
        distribution = self.distribution
        predictor = rows.margins(coefficients, intercept=True)
        with np.errstate(all="ignore"):
            mean = distribution.mean(predictor)
            slope = distribution.link.slope(mean)
            response = predictor + (rows.labels - mean) * slope
            weights = 1.0 / (np.square(slope) * distribution.family.variance(mean))
        if rows.offsets is not None:
            response -= rows.offsets
        return response, weights if rows.weights is None else weights * rows.weights

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        raise NotImplementedError("its steps minimize no loss; call GeneralizedLinearRegression")


class _Steps:
    """The products of each step, by tasks that stay."""

    def __init__(self, objective: Objective, distribution: Distribution, means: Floats) -> None:
        loss = _WorkingProducts(distribution, means.size)
        ps, work = objective.ps, LossSpec(loss, intercept=True)
        self._ps, self._means = ps, means
        self._tasks = standing_tasks(ps, objective.data, work)
        self._evaluator = Evaluator(ps, objective.data, work, self._tasks)
        self._known = ps.array(means)

    def products(self, at: Solution) -> Products:
        """Of the step from a solution. One message to the tasks."""
        x = self._ps.array(np.append(at.coefficients, at.intercept))
        size = self._means.size + 1
        table = self._ps.zeros((size, size))
        return about_means(
            self._means, self._evaluator.advance((self._known, x), table.type).numpy()
        )

    def close(self) -> None:
        """End the tasks."""
        self._tasks.close()


class GeneralizedLinearRegression(RowsEstimator, _GeneralizedParams, Regressor[Any]):
    """Generalized linear regression with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.regression.GeneralizedLinearRegression``, by name.
        ``featuresCol`` may also be a list of columns of numbers, or the name of an array column.

    See Also
    --------
    distvec.losses.Poisson : A loss for more than 4096 features, as are Gamma and Tweedie.

    Notes
    -----
    The rows are read once, and tasks that stay compute the products of each step. The steps are
    MLlib's, and so is the result. In particular, the penalty is divided by the mean of the working
    weights. The family "gaussian" with the link "identity" takes one step. A fit with
    ``initialModel`` starts from the coefficients of a model. ``verbose`` shows a progress bar.

    ``aggregationDepth`` has no effect.

    Examples
    --------
    >>> from distvec.spark.ml.regression import GeneralizedLinearRegression
    >>> model = GeneralizedLinearRegression(family="poisson", regParam=0.1).fit(train)
    >>> model.coefficients.toArray().round(2), round(model.intercept, 2)
    (array([-0.28, -1.09,  0.61, -0.19]), -0.88)
    """

    def _data_key(self) -> tuple[Any, ...]:
        given = self.getLabelCol(), self.getFitIntercept(), str(self._features)
        return (*given, self._weight, self._offset)

    def _objective(self, dataset: DataFrame) -> Objective:
        _ = self._distribution
        return LabelledRows(
            dataset,
            loss=Squared(),
            features=self._features,
            label=self.getLabelCol(),
            weight=self._weight,
            offset=self._offset,
            intercept=self.getFitIntercept(),
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Any, dataset: DataFrame) -> GeneralizedLinearRegressionModel:
        if objective.features > MOST_FEATURES:
            raise ValueError(
                "Currently, GeneralizedLinearRegression only supports number of features <= "
                f"{MOST_FEATURES}. Found {objective.features} in the input dataset."
            )
        found, iterations = self._solve(objective)
        x = np.append(found.coefficients, found.intercept)
        fitted = Model(x, loss=Squared(), intercept=True, features=self._features)
        model = self._copyValues(GeneralizedLinearRegressionModel(fitted)._resetUid(self.uid))
        model._training = Training(dataset, [])
        model._inverse_diagonal, model._iterations = found.inverse_diagonal, iterations
        return model

    def _solve(self, objective: LabelledRows) -> tuple[Solution, int]:
        """The solution, and the number of iterations."""
        distribution, given = self._distribution, (self.getFitIntercept(), self.getRegParam())
        problem = LeastSquares(*given)
        if distribution.is_linear:
            return problem.solve(objective.products), 1
        start: Any = self._start(objective)
        if start is None:
            products = _checked(products_of(objective, _Start(distribution)), 0)
            found = problem.solve(products)
        else:
            products = objective.products
            w, rest = np.split(start.numpy(), [objective.features])
            found = Solution(w, float(rest.sum()), None, [])
        problem = LeastSquares(*given, standardize_features=False, standardize_response=False)
        steps = _Steps(objective, distribution, products.totals.means)
        try:
            with progress_bar(self.getMaxIter(), is_shown=self.getOrDefault("verbose")) as show:
                for iteration in range(1, self.getMaxIter() + 1):
                    products = _checked(steps.products(found), iteration)
                    last, found = found, problem.solve(products)
                    change = np.abs(found.coefficients - last.coefficients).max(initial=0.0)
                    change = max(change, abs(found.intercept - last.intercept))
                    show(iteration, change=float(change))
                    if change < self.getTol():
                        return found, iteration
        finally:
            steps.close()
        return found, self.getMaxIter()


def _checked(found: Products, iteration: int) -> Products:
    if not (np.isfinite(found.table).all() and found.totals.weight > 0.0):
        raise ValueError(
            f"iteration {iteration}: the means of some rows are out of the range of family and "
            "link; choose another link, scale the features, or raise regParam"
        )
    return found


class GeneralizedLinearRegressionModel(ServerModel, _GeneralizedParams, RegressionModel[Any]):
    """A fitted generalized linear model; ``GeneralizedLinearRegression.fit`` makes one.

    Parameters
    ----------
    fitted : Model, optional
        The parameters, with the loss ``Squared``.

    Examples
    --------
    >>> from distvec.spark.ml.regression import GeneralizedLinearRegression
    >>> model = GeneralizedLinearRegression(family="poisson", regParam=0.1).fit(train)
    >>> model.numFeatures, round(model.summary.deviance, 3)
    (4, 0.427)
    """

    def __init__(self, fitted: Model | None = None) -> None:
        super().__init__(fitted)
        self._inverse_diagonal: Floats | None = None
        self._iterations = 0

    def setLinkPredictionCol(self, value: str) -> Self:
        """Set the column of linear predictors.

        Parameters
        ----------
        value : str
            The name; without one there is no such column.

        Returns
        -------
        GeneralizedLinearRegressionModel
            This object.
        """
        return self._set(linkPredictionCol=value)

    def __repr__(self) -> str:
        link = f"link={self.getLink()}, " if self.isDefined("link") else ""
        return (
            f"GeneralizedLinearRegressionModel: uid={self.uid}, family={self.getFamily()}, {link}"
            f"numFeatures={self.numFeatures}"
        )

    def predict(self, value: Vector) -> float:
        """Predict the mean of the label of one row, without an offset.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The mean.
        """
        return float(self._distribution.mean(self._margins(value))[0])

    def _outputs(self) -> dict[str, Column]:
        offset = F.col(self._offset).cast("double") if self._offset else F.lit(0.0)
        predictor = F.col(MARGIN) + offset
        shown = self.getLinkPredictionCol() if self.isDefined("linkPredictionCol") else ""
        mean = _column(self._distribution.mean, predictor)
        return {shown: predictor, self.getPredictionCol(): mean}

    @property
    def summary(self) -> GeneralizedLinearRegressionTrainingSummary:
        """Metrics on the training data; they are computed when they are read."""
        dataset = self._known_training().dataset
        made = GeneralizedLinearRegressionTrainingSummary(*self._about(dataset))
        made._iterations = self._iterations
        made._estimates = made._estimates._replace(inverse_diagonal=self._inverse_diagonal)
        return made

    def evaluate(self, dataset: DataFrame) -> GeneralizedLinearRegressionSummary:
        """Return metrics of the predictions on a DataFrame.

        Parameters
        ----------
        dataset : DataFrame
            Rows with labels.

        Returns
        -------
        GeneralizedLinearRegressionSummary
            Metrics, which are computed when they are read.
        """
        return GeneralizedLinearRegressionSummary(*self._about(dataset))

    def _about(self, dataset: DataFrame) -> tuple[Any, ...]:
        predictions, columns = self._scored(dataset, "predictionCol")
        return predictions, columns, Estimates.of(self, self.getFitIntercept(), None), self

    def _null_intercept(self, dataset: DataFrame) -> float:
        """The intercept of the same model without features."""
        estimator = self._copyValues(GeneralizedLinearRegression())
        nothing = f"features_{self.uid}"
        frame = dataset.withColumn(nothing, F.array().cast("array<double>"))
        found: float = estimator.setFeaturesCol(nothing).fit(frame).intercept
        return found

    def _in_mllib(self) -> SparkModel:
        made: Any = mllib.GeneralizedLinearRegressionModel, self._local().coefficients
        return in_mllib(*made, self.intercept)  # type: ignore[return-value]

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        x = np.append(attributes.coefficients.toArray(), attributes.intercept)
        return Model(x, loss=Squared(), intercept=True)

    def _data(self, session: SparkSession) -> DataFrame:
        return frame_of(
            session,
            intercept=(DoubleType(), self.intercept),
            coefficients=(VectorUDT(), self.coefficients),
        )


def _column(function: Callable[..., Floats], *columns: Column) -> Column:
    """A column that NumPy computes of others."""

    # arrow_udf reads the kind of function from these hints, which a functools.partial cannot have.
    def compute(*given: pa.Array) -> pa.Array:
        return pa.array(function(*map(_numbers, given)))

    made: Column = arrow_udf(compute, "double")(*columns)  # type: ignore[call-overload]
    return made


def _numbers(column: pa.Array) -> Floats:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


class _Totals(NamedTuple):
    """Over the rows."""

    rows: float
    weight: float
    deviance: float
    pearson: float
    """Squared residuals over variances, weighted."""
    labels: float
    """Without offsets, weighted."""


@dataclass(frozen=True)
class _Metrics:
    """Of rows: labels, means, weights and offsets as arrays."""

    distribution: Distribution

    def totals(self, y: Floats, mean: Floats, weights: Floats, offsets: Floats) -> list[float]:
        family = self.distribution.family
        return [
            float(y.size),
            float(weights.sum()),
            float(family.deviance(y, mean, weights).sum()),
            float((weights * np.square(y - mean) / family.variance(mean)).sum()),
            float(weights @ (y - offsets)),
        ]

    def null_deviance(
        self, intercept: float, y: Floats, mean: Floats, weights: Floats, offsets: Floats
    ) -> list[float]:
        means = self.distribution.link.mean(intercept + offsets)
        return [float(self.distribution.family.deviance(y, means, weights).sum())]

    def log_likelihood(
        self, dispersion: float, y: Floats, mean: Floats, weights: Floats, offsets: Floats
    ) -> list[float]:
        found = self.distribution.family.log_likelihood(y, mean, weights, dispersion)
        return [float(found.sum())]

    def deviance_residuals(self, y: Floats, mean: Floats, weights: Floats) -> Floats:
        found = np.maximum(self.distribution.family.deviance(y, mean, weights), 0.0)
        return np.where(y > mean, 1.0, -1.0) * np.sqrt(found)

    def pearson_residuals(self, y: Floats, mean: Floats, weights: Floats) -> Floats:
        return np.asarray((y - mean) * np.sqrt(weights / self.distribution.family.variance(mean)))

    def working_residuals(self, y: Floats, mean: Floats, weights: Floats) -> Floats:
        return (y - mean) * self.distribution.link.slope(mean)

    def response_residuals(self, y: Floats, mean: Floats, weights: Floats) -> Floats:
        return y - mean


def _sum_batches(
    function: Callable[..., list[float]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with np.errstate(all="ignore"):
        found = [function(*map(_numbers, one.columns)) for one in batches if one.num_rows]
    if found:
        sums = [math.fsum(column) for column in zip(*found, strict=True)]
        yield pa.RecordBatch.from_arrays([pa.array([sums], pa.list_(pa.float64()))], ["sums"])


class GeneralizedLinearRegressionSummary(PredictionSummary):
    """Metrics of a generalized linear model on a DataFrame; ``model.evaluate`` makes one.

    Parameters
    ----------
    predictions : DataFrame
        The output of ``transform``, with labels.
    columns : dict
        The names of the columns, by Param.
    estimates : Estimates
        The coefficients.
    model : GeneralizedLinearRegressionModel
        The model.

    Notes
    -----
    Most metrics come from one Spark job, which the first of them runs. ``aic`` and
    ``nullDeviance`` run one more each. With offsets, ``nullDeviance`` fits a model.
    """

    def __init__(
        self,
        predictions: DataFrame,
        columns: dict[str, str],
        estimates: Estimates,
        model: GeneralizedLinearRegressionModel,
    ) -> None:
        super().__init__(predictions, columns)
        self._estimates, self._model = estimates, model.copy()
        self._distribution = model._distribution

    @property
    def numInstances(self) -> int:
        """The number of rows."""
        return int(self._totals.rows)

    @property
    def rank(self) -> int:
        """The number of coefficients, with the intercept."""
        return self._estimates.rank

    @property
    def degreesOfFreedom(self) -> int:
        """The number of rows minus ``rank``."""
        return self.numInstances - self.rank

    @property
    def residualDegreeOfFreedom(self) -> int:
        """The same as ``degreesOfFreedom``."""
        return self.degreesOfFreedom

    @property
    def residualDegreeOfFreedomNull(self) -> int:
        """The degrees of freedom of the null model, which has no features."""
        return self.numInstances - self._estimates.intercept

    def residuals(self, residualsType: str = "deviance") -> DataFrame:
        """Return a column of residuals.

        Parameters
        ----------
        residualsType : {"deviance", "pearson", "working", "response"}, default "deviance"
            The kind of residuals.

        Returns
        -------
        DataFrame
            One column.

        Raises
        ------
        ValueError
            If there are no such residuals.
        """
        metrics = _Metrics(self._distribution)
        kinds = {
            "deviance": metrics.deviance_residuals,
            "pearson": metrics.pearson_residuals,
            "working": metrics.working_residuals,
            "response": metrics.response_residuals,
        }
        if residualsType not in kinds:
            raise ValueError(
                f"The residuals type {residualsType} is not supported by Generalized Linear "
                f"Regression; allowed are {', '.join(kinds)}"
            )
        found = _column(kinds[residualsType], self._label, self._prediction, self._weight)
        return self._predictions.select(found.alias(f"{residualsType}Residuals"))

    @cached_property
    def nullDeviance(self) -> float:
        """The deviance of the null model, which has no features."""
        intercept = 0.0
        if self._estimates.intercept:
            if self._model._offset and not self._distribution.is_linear:
                intercept = self._model._null_intercept(self._predictions)
            else:
                mean = np.array([self._totals.labels / self._totals.weight])
                intercept = float(self._distribution.link.predictor(mean)[0])
        metrics = _Metrics(self._distribution)
        return self._sums(partial(metrics.null_deviance, intercept))[0]

    @property
    def deviance(self) -> float:
        """The deviance of the model."""
        return self._totals.deviance

    @property
    def dispersion(self) -> float:
        """1.0 of the families "binomial" and "poisson"; else Pearson's statistic over
        ``degreesOfFreedom``."""
        if self._is_of_counts:
            return 1.0
        return float(np.divide(self._totals.pearson, self.degreesOfFreedom))

    @cached_property
    def aic(self) -> float:
        """Akaike's information criterion."""
        family = self._distribution.family
        if family.name == "tweedie":
            raise NotImplementedError("No AIC available for the tweedie family")
        totals = self._totals
        count = totals.rows if isinstance(family, Gaussian) else totals.weight
        dispersion = totals.deviance / count
        found = self._sums(partial(_Metrics(self._distribution).log_likelihood, dispersion))[0]
        return -2.0 * found + 2.0 * (self.rank + family.fits_dispersion)

    @property
    def _is_of_counts(self) -> bool:
        return self._model.getFamily().lower() in ("binomial", "poisson")

    @cached_property
    def _totals(self) -> _Totals:
        return _Totals(*self._sums(_Metrics(self._distribution).totals))

    def _sums(self, function: Callable[..., list[float]]) -> list[float]:
        """The sums of the results of ``function`` over the rows. One Spark job."""
        offset = self._model._offset
        offsets = F.col(offset).cast("double") if offset else F.lit(0.0)
        columns = self._label, self._prediction, self._weight, offsets
        named = [one.alias(f"c{number}") for number, one in enumerate(columns)]
        frame = self._predictions.select(*named)
        found = frame.mapInArrow(partial(_sum_batches, function), "sums array<double>").collect()
        return [math.fsum(one) for one in zip(*(row.sums for row in found), strict=True)]


class GeneralizedLinearRegressionTrainingSummary(GeneralizedLinearRegressionSummary):
    """Metrics on the training data, and statistics of the coefficients."""

    _iterations = 0

    @property
    def numIterations(self) -> int:
        """The number of iterations."""
        return self._iterations

    @property
    def solver(self) -> str:
        """The solver: "irls"."""
        return self._model.getOrDefault("solver")  # type: ignore[no-any-return]

    @property
    def coefficientStandardErrors(self) -> list[float]:
        """The standard errors of the coefficients, and of the intercept."""
        found: list[float] = self._estimates.standard_errors(self.dispersion).tolist()
        return found

    @property
    def tValues(self) -> list[float]:
        """The t-statistics of the coefficients, and of the intercept."""
        found: list[float] = self._estimates.t_values(self.dispersion).tolist()
        return found

    @property
    def pValues(self) -> list[float]:
        """The two-sided p-values of the coefficients, and of the intercept."""
        freedom = math.inf if self._is_of_counts else self.degreesOfFreedom
        found: list[float] = self._estimates.p_values(self.dispersion, freedom).tolist()
        return found

    def __repr__(self) -> str:
        """A table as R prints it."""
        names = ["Feature", "Estimate", "Std Error", "T Value", "P Value"]
        statistics = (
            self._feature_names(),
            np.asarray(self._estimates.values),
            self.coefficientStandardErrors,
            self.tValues,
            self.pValues,
        )
        table = [[_cell(one) for one in row] for row in zip(*statistics, strict=True)]
        if self._estimates.intercept:
            table = [table[-1], *table[:-1]]
        widths = [max(map(len, column)) for column in zip(names, *table, strict=True)]
        lines = ["Coefficients:"]
        for row in (names, *table):
            lines.append(" ".join(one.rjust(width) for one, width in zip(row, widths, strict=True)))
        family = self._distribution.family.name
        lines += ["", f"(Dispersion parameter for {family} family taken to be "]
        lines[-1] += f"{_cell(self.dispersion)})"
        freedom = f"on {self.degreesOfFreedom} degrees of freedom"
        deviances = [
            f"Null deviance: {_cell(self.nullDeviance)} {freedom}",
            f"Residual deviance: {_cell(self.deviance)} {freedom}",
        ]
        width = max(map(len, deviances))
        lines += [one.rjust(width) for one in deviances]
        if family != "tweedie":
            lines.append(f"AIC: {_cell(self.aic)}")
        return "\n".join(lines)

    def _feature_names(self) -> list[str]:
        features = self._model._features
        count = self._model.numFeatures
        if isinstance(features, str):
            attributes = self._predictions.schema[features].metadata.get("ml_attr", {})
            known = {
                one["idx"]: one.get("name")
                for some in attributes.get("attrs", {}).values()
                for one in some
            }
            names = [known.get(k) or f"{features}_{k}" for k in range(count)]
        else:
            names = list(features)
        return [*names, "(Intercept)"] if self._estimates.intercept else names


_ROUNDING = Context(prec=400, rounding=ROUND_HALF_UP)


def _cell(value: Any) -> str:
    """Numbers to four digits; at most 20 characters."""
    if isinstance(value, str):
        text = value
    elif math.isfinite(value):
        text = str(Decimal(repr(float(value))).quantize(Decimal("0.0001"), context=_ROUNDING))
    else:
        text = str(float(value))
    return text if len(text) <= 20 else f"{text[:17]}..."
