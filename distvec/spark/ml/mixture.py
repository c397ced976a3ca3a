"""Mixtures of normal distributions with the names and Params of ``pyspark.ml.clustering``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from pyspark.ml.base import Estimator
from pyspark.ml.base import Model as SparkModel
from pyspark.ml.clustering import _GaussianMixtureParams
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import DenseMatrix, DenseVector, Vector, Vectors
from pyspark.ml.stat import MultivariateGaussian
from pyspark.mllib import linalg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, StructField, StructType

from distvec.losses.clustering import EUCLIDEAN, Quantization
from distvec.losses.loss import PREDICTIONS, PROBABILITIES, as_given
from distvec.losses.mixture import Mixture, Normals, arrays_of, normals_in, normals_of
from distvec.losses.rows import Floats
from distvec.spark.context import PSContext
from distvec.spark.ml.fits import RowsEstimator
from distvec.spark.ml.models import ServerModel
from distvec.spark.ml.params import HasFeatures, Range, SettableParams, at_least
from distvec.spark.ml.summary import ClusteringSummary, Training
from distvec.spark.objectives.clusters import KMeansProblem, fit_clusters
from distvec.spark.objectives.evaluation_task import LossSpec
from distvec.spark.objectives.evaluator import Evaluator, standing_tasks
from distvec.spark.objectives.features import moments
from distvec.spark.objectives.model import Model, mixture_in_mllib
from distvec.spark.objectives.objective import Objective
from optim.core.run import progress_bar

__all__ = ("GaussianMixture", "GaussianMixtureModel", "GaussianMixtureSummary")

_MODULE = "distvec.spark.ml.clustering"
_FIRST_STEPS = 10
"""Of k-means, for the first means."""


class _MixtureParams(_GaussianMixtureParams, HasFeatures):
    """Params of the estimator and its models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "k": at_least(2),
        "maxIter": at_least(0),
        "tol": at_least(0.0),
    }

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **params)
        self._setDefault(seed=0)


class _Fit(NamedTuple):
    """The end of a fit."""

    normals: Normals
    iterations: int
    likelihood: float


class GaussianMixture(RowsEstimator, _MixtureParams, Estimator[Any]):
    """Gaussian mixture by expectation maximization, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.clustering.GaussianMixture``, by name. ``featuresCol`` may also
        be a list of columns of numbers, or the name of an array column. ``seed`` is 0 by default.

    Notes
    -----
    The fit ends when the log-likelihood of all rows changes by ``tol`` at most, as in MLlib. First
    means come from ten steps of k-means; all components begin with the variances of the rows.
    A fit with ``initialModel`` starts from a model. ``verbose`` shows a progress bar.

    Each iteration is one request to the resident tasks, in which rows of a component are summed up
    by products of matrices. The driver holds ``k * d * d`` numbers.

    Examples
    --------
    >>> from distvec.spark.ml.clustering import GaussianMixture
    >>> rows = [([float(k % 3), 10.0 * (k % 2) + k % 5],) for k in range(30)]
    >>> points = spark.createDataFrame(rows, ["features"])
    >>> model = GaussianMixture(k=2, maxIter=5).fit(points)
    >>> [round(share, 6) for share in model.weights]
    [0.5, 0.5]
    """

    _module = _MODULE

    def _data_key(self) -> tuple[Any, ...]:
        return str(self._features), self._weight

    def _objective(self, dataset: DataFrame) -> Objective:
        return Objective(
            dataset,
            loss=Quantization(self.getK()),
            features=self._features,
            label=None,
            weight=self._weight,
            intercept=True,
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Objective, dataset: DataFrame) -> GaussianMixtureModel:
        found = self._maximize(objective)
        model = GaussianMixtureModel(_model_of(found.normals, self._features), found.normals)
        model = self._copyValues(model._resetUid(self.uid))
        model._training, model._end = Training(dataset, []), found
        return model

    def _maximize(self, objective: Objective) -> _Fit:
        ps, data = objective.ps, objective.data
        normals = self._first(objective)
        center = np.average(normals.means, axis=0, weights=normals.shares)
        work = LossSpec(Mixture(len(normals.means), data.size), intercept=True)
        standing = standing_tasks(ps, data, work)
        evaluator = Evaluator(ps, data, work, standing)
        frame = ps.array(arrays_of(normals, center)[0])
        likelihood, iterations, most = -np.inf, 0, self.getMaxIter()
        try:
            with progress_bar(most, is_shown=self.getOrDefault("verbose")) as show:
                while iterations < most:
                    moved = [ps.array(one) for one in arrays_of(normals, center)[1:]]
                    found = evaluator.sums((frame, *moved), None)
                    gained = -found.value - likelihood
                    likelihood = -found.value
                    sums = [one.numpy() for one in found.gradients]
                    normals = normals_of(tuple(sums), center, normals)
                    iterations += 1
                    show(iterations, likelihood=likelihood)
                    if abs(gained) <= self.getTol():
                        break
        finally:
            standing.close()
        return _Fit(normals, iterations, float(likelihood))

    def _first(self, objective: Objective) -> Normals:
        """The distributions of ``initialModel``; without one by k-means."""
        given: Model | None = self._given("initialModel")
        if given is not None:
            known = normals_in(given.arrays)
            wanted = self.getK(), objective.data.size
            if known.means.shape != wanted:
                raise ValueError(
                    f"initialModel has {known.means.shape} components and features; the fit has "
                    f"{wanted}"
                )
            return known
        problem = KMeansProblem(self.getK(), EUCLIDEAN, False, 2, self.getSeed())
        found = fit_clusters(
            objective.ps, objective.data, problem,
            start=None, max_iterations=_FIRST_STEPS, tolerance=1e-4, progress=False,
        )  # fmt: skip
        count = len(found.centers)
        spread = np.square(moments(objective._evaluator, None).deviations.numpy())
        covariances = np.repeat(np.diag(spread)[None], count, axis=0)
        return Normals(np.full(count, 1.0 / count), found.centers, covariances)


def _model_of(normals: Normals, features: str | list[str] = "features") -> Model:
    k, d = normals.means.shape
    loss, center = Mixture(k, d), np.average(normals.means, axis=0, weights=normals.shares)
    x = as_given(arrays_of(normals, center), loss.parameters)
    return Model(x, loss=loss, intercept=True, features=features)


class GaussianMixtureModel(SettableParams, ServerModel, _MixtureParams, SparkModel):
    """Normal distributions and their shares; ``GaussianMixture.fit`` makes them.

    Parameters
    ----------
    fitted : Model, optional
        The parameters.
    normals : Normals, optional
        The distributions; by default they are computed from the parameters.

    Examples
    --------
    >>> from distvec.spark.ml.clustering import GaussianMixture
    >>> rows = [([float(k % 3), 10.0 * (k % 2) + k % 5],) for k in range(30)]
    >>> points = spark.createDataFrame(rows, ["features"])
    >>> model = GaussianMixture(k=2, maxIter=5).fit(points)
    >>> model.numFeatures, sorted(model.summary.clusterSizes)
    (2, [15, 15])
    """

    _module = _MODULE
    _end: _Fit

    def __init__(self, fitted: Model | None = None, normals: Normals | None = None) -> None:
        super().__init__(fitted)
        self._normals = normals

    @property
    def _distributions(self) -> Normals:
        return normals_in(self._local().arrays) if self._normals is None else self._normals

    @property
    def weights(self) -> list[float]:
        """The share of each component."""
        found: list[float] = self._distributions.shares.tolist()
        return found

    @property
    def gaussians(self) -> list[MultivariateGaussian]:
        """The normal distributions."""
        known = self._distributions
        return [
            MultivariateGaussian(DenseVector(mean), _matrix(covariance))
            for mean, covariance in zip(known.means, known.covariances, strict=True)
        ]

    @property
    def gaussiansDF(self) -> DataFrame:
        """The normal distributions as a frame with the columns ``mean`` and ``cov``."""
        session = SparkSession.active()
        fields = [StructField("mean", linalg.VectorUDT()), StructField("cov", linalg.MatrixUDT())]
        return session.createDataFrame(self._old_pairs(), StructType(fields))

    def _old_pairs(self) -> list[tuple[linalg.Vector, linalg.Matrix]]:
        """Means and covariances as ``pyspark.mllib`` has them, and so MLlib's files."""
        return [
            (linalg.Vectors.dense(one.mean.toArray()), linalg.Matrices.fromML(one.cov))
            for one in self.gaussians
        ]

    def predict(self, value: Vector) -> int:
        """Predict the component of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        int
            The number of the most probable component.
        """
        return int(self._local().predict(np.asarray(value.toArray())[None])[0])

    def predictProbability(self, value: Vector) -> Vector:
        """Predict the probability of each component for one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        Vector
            The probabilities.
        """
        found = self._local().probabilities(np.asarray(value.toArray())[None])[0]
        return Vectors.dense(found)

    def __repr__(self) -> str:
        return (
            f"GaussianMixtureModel: uid={self.uid}, k={len(self.weights)}, "
            f"numFeatures={self.numFeatures}"
        )

    def _transform(self, dataset: DataFrame) -> DataFrame:
        if self._runs_in_jvm(dataset):
            return self.to_mllib().transform(dataset)
        kinds = {"predictionCol": PREDICTIONS, "probabilityCol": PROBABILITIES}
        wanted = {name: kind for param, kind in kinds.items() if (name := self.getOrDefault(param))}
        if not wanted:
            return dataset
        found = self.fitted.add_columns(dataset, wanted, self._features)
        casts = {
            name: F.col(name).cast("int") if kind == PREDICTIONS else array_to_vector(F.col(name))
            for name, kind in wanted.items()
        }
        return found.withColumns(casts)

    @property
    def summary(self) -> GaussianMixtureSummary:
        """Sizes of the components in the training data, its likelihood, and predictions."""
        return GaussianMixtureSummary(self, self._known_training().dataset)

    def _in_mllib(self) -> SparkModel:
        made: Any = mixture_in_mllib(self.weights, self.gaussians)
        return made  # type: ignore[no-any-return]

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        return cls._made_of(attributes).fitted

    @classmethod
    def _made_of(cls, attributes: Any) -> Self:
        if isinstance(attributes, SparkModel):
            made: Any = attributes
            pairs = [(one.mean, one.cov) for one in made.gaussians]
        else:
            pairs = list(zip(attributes.mus, attributes.sigmas, strict=True))
        means = np.array([mean.toArray() for mean, _ in pairs])
        covariances = np.array([matrix.toArray() for _, matrix in pairs])
        normals = Normals(np.array(attributes.weights), means, covariances)
        return cls(_model_of(normals), normals)

    def _data(self, session: SparkSession) -> DataFrame:
        fields = [
            StructField("weights", ArrayType(DoubleType(), False)),
            StructField("mus", ArrayType(linalg.VectorUDT())),
            StructField("sigmas", ArrayType(linalg.MatrixUDT())),
        ]
        means, covariances = zip(*self._old_pairs(), strict=True)
        row = self.weights, list(means), list(covariances)
        return session.createDataFrame([row], StructType(fields))


def _matrix(table: Floats) -> DenseMatrix:
    rows, columns = table.shape
    return DenseMatrix(rows, columns, table.ravel(order="F"))


class GaussianMixtureSummary(ClusteringSummary):
    """The components in the training data; ``model.summary`` is one.

    Parameters
    ----------
    model : GaussianMixtureModel
        The model.
    dataset : DataFrame
        The training data.
    """

    @property
    def numIter(self) -> int:
        """The number of iterations."""
        found: int = self._model._end.iterations
        return found

    @property
    def logLikelihood(self) -> float:
        """The log-likelihood of the training data at the last iteration."""
        found: float = self._model._end.likelihood
        return found

    @property
    def clusterSizes(self) -> list[int]:
        """The number of rows for which each component is the most probable one."""
        counted = self.cluster.groupBy(self.predictionCol).count().collect()
        counts = {row[0]: row[1] for row in counted}
        return [counts.get(j, 0) for j in range(self.k)]

    @property
    def probabilityCol(self) -> str:
        """The column of probabilities."""
        found: str = self._model.getProbabilityCol()
        return found

    @property
    def probability(self) -> DataFrame:
        """The probabilities alone."""
        return self.predictions.select(self.probabilityCol)
