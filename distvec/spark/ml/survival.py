"""The regression of survival times of ``pyspark.ml.regression``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vector, Vectors, VectorUDT
from pyspark.ml.regression import RegressionModel, Regressor, _AFTSurvivalRegressionParams
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from distvec.losses.weibull import Weibull
from distvec.spark.context import PSContext
from distvec.spark.ml.files import frame_of
from distvec.spark.ml.fits import ServerEstimator
from distvec.spark.ml.models import MARGIN, ServerModel, kept
from distvec.spark.ml.params import HasFeatures, Range, at_least
from distvec.spark.objectives.model import Model
from distvec.spark.objectives.objective import Objective

_LEAST = 1e-9
"""A smaller scale means that the likelihood has no maximum."""


class _AFTParams(_AFTSurvivalRegressionParams, HasFeatures):
    """Params of the estimator and its models."""

    _module = "distvec.spark.ml.regression"
    _ranges: ClassVar[Mapping[str, Range]] = {
        "maxIter": at_least(0),
        "tol": at_least(0.0),
        "aggregationDepth": at_least(2),
        "maxBlockSizeInMB": at_least(0.0),
        "quantileProbabilities": Range(
            lambda values: bool(values) and all(0.0 < p < 1.0 for p in values),
            "numbers above 0 and below 1, at least one",
        ),
    }


class AFTSurvivalRegression(ServerEstimator, _AFTParams, Regressor[Any]):
    """Accelerated failure time model of survival times, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.regression.AFTSurvivalRegression``, by name. ``featuresCol`` may
        also be a list of columns of numbers, or the name of an array column.

    See Also
    --------
    distvec.losses.Weibull : The loss.
    distvec.losses.Cox : Proportional hazards, another model of survival times.

    Notes
    -----
    Times have a Weibull distribution. The column ``censorCol`` is 1 if the event was observed, and
    0 if the row was censored. The objective is MLlib's, and so is the optimum.

    If a model fits all observed times exactly, the likelihood has no maximum. Then there is a
    warning, and the scale is about 0, or 1 if all coefficients are 0, as in MLlib.

    ``aggregationDepth`` and ``maxBlockSizeInMB`` have no effect.

    Examples
    --------
    >>> from distvec.spark.ml.regression import AFTSurvivalRegression
    >>> rows = [(1.0, 9.0, 1.0), (1.0, 4.0, 1.0), (2.0, 5.0, 0.0), (3.0, 3.0, 1.0)]
    >>> times = spark.createDataFrame(rows, ["dose", "label", "censor"])
    >>> model = AFTSurvivalRegression(featuresCol=["dose"]).fit(times)
    >>> model.coefficients.toArray().round(2), round(model.intercept, 2), round(model.scale, 2)
    (array([-0.43]), 2.52, 0.24)
    """

    def _data_key(self) -> tuple[Any, ...]:
        names = ("labelCol", "censorCol", "fitIntercept")
        return (*(self.getOrDefault(name) for name in names), str(self._features))

    def _objective(self, dataset: DataFrame) -> Objective:
        return Objective(
            dataset,
            loss=Weibull(),
            features=self._features,
            label=self.getLabelCol(),
            event=self.getCensorCol(),
            intercept=self.getFitIntercept(),
            standardization=True,
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Objective, dataset: DataFrame) -> AFTSurvivalRegressionModel:
        x = self._minimize(objective, value_tolerance=self.getTol() * 1e-4).x
        if float(x["log_scale"][0]) < math.log(_LEAST):
            warnings.warn(
                "AFTSurvivalRegression: a model fits all observed times exactly, so the "
                "likelihood has no maximum; the scale is arbitrary",
                RuntimeWarning,
                stacklevel=2,
            )
            if float(abs(x["w"]).max()) < _LEAST:  # MLlib gives up there, and so returns the start
                x = objective.start()
        fitted = kept(x, objective.loss, self._features, intercept=objective.intercept)
        return self._copyValues(AFTSurvivalRegressionModel(fitted)._resetUid(self.uid))


class AFTSurvivalRegressionModel(ServerModel, _AFTParams, RegressionModel[Vector]):
    """A fitted model of survival times; ``AFTSurvivalRegression.fit`` makes one.

    Parameters
    ----------
    fitted : Model, optional
        The parameters, with the loss ``Weibull``.

    Notes
    -----
    Models of more than 16 million parameters stay on the parameter servers. Then read them with
    ``fitted``: ``coefficients`` raises ``ValueError``.

    Examples
    --------
    >>> from distvec.spark.ml.regression import AFTSurvivalRegression
    >>> rows = [(1.0, 9.0, 1.0), (1.0, 4.0, 1.0), (2.0, 5.0, 0.0), (3.0, 3.0, 1.0)]
    >>> times = spark.createDataFrame(rows, ["dose", "label", "censor"])
    >>> model = AFTSurvivalRegression(featuresCol=["dose"]).fit(times)
    >>> from pyspark.ml.linalg import Vectors
    >>> model.setQuantileProbabilities([0.5]).predictQuantiles(Vectors.dense(2.0))
    DenseVector([4.8054])
    """

    def setQuantileProbabilities(self, value: list[float]) -> Self:
        """Set the probabilities of the quantiles.

        Parameters
        ----------
        value : list of float
            Numbers above 0 and below 1.

        Returns
        -------
        AFTSurvivalRegressionModel
            This object.
        """
        return self._set(quantileProbabilities=value)

    def setQuantilesCol(self, value: str) -> Self:
        """Set the column for the quantiles.

        Parameters
        ----------
        value : str
            Its name.

        Returns
        -------
        AFTSurvivalRegressionModel
            This object.
        """
        return self._set(quantilesCol=value)

    @property
    def coefficients(self) -> Vector:
        """The coefficients."""
        return Vectors.dense(self._linear)

    @property
    def scale(self) -> float:
        """The scale: the reciprocal of the shape of the Weibull distribution."""
        return math.exp(float(self.fitted.arrays[1][0]))

    def __repr__(self) -> str:
        return f"AFTSurvivalRegressionModel: uid={self.uid}, numFeatures={self.numFeatures}"

    def predict(self, value: Vector) -> float:
        """Predict the time of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The scale of the row's Weibull distribution.
        """
        return math.exp(self._margins(value)[0])

    def predictQuantiles(self, features: Vector) -> Vector:
        """Return quantiles of the time of one row.

        Parameters
        ----------
        features : Vector
            The features.

        Returns
        -------
        Vector
            A time for each of ``quantileProbabilities``.
        """
        return Vectors.dense(self.predict(features) * np.array(self._factors()))

    def _factors(self) -> list[float]:
        """The quantiles of a row whose prediction is 1."""
        scale = self.scale
        return [math.pow(-math.log1p(-p), scale) for p in self.getQuantileProbabilities()]

    def _outputs(self) -> dict[str, Column]:
        time = F.exp(F.col(MARGIN))
        columns = {self.getPredictionCol(): time}
        if self.isDefined("quantilesCol"):
            quantiles = F.array(*(time * F.lit(factor) for factor in self._factors()))
            columns[self.getQuantilesCol()] = array_to_vector(quantiles)
        return columns

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        w = np.append(attributes.coefficients.toArray(), attributes.intercept)
        x = {"w": w, "log_scale": np.array([math.log(attributes.scale)])}
        return Model(x, loss=Weibull(), intercept=True)

    def _data(self, session: SparkSession) -> DataFrame:
        return frame_of(
            session,
            coefficients=(VectorUDT(), self.coefficients),
            intercept=(DoubleType(), self.intercept),
            scale=(DoubleType(), self.scale),
        )
