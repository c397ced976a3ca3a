"""K-means, and all estimators with the names and Params of ``pyspark.ml.clustering``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.ml.base import Estimator
from pyspark.ml.base import Model as SparkModel
from pyspark.ml.clustering import _KMeansParams
from pyspark.ml.linalg import Vector, Vectors, VectorUDT
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from distvec.losses.clustering import COSINE, EUCLIDEAN, Quantization, nearest, table_of
from distvec.losses.rows import Floats, Rows
from distvec.spark.context import PSContext
from distvec.spark.ml.fits import RowsEstimator
from distvec.spark.ml.mixture import (
    GaussianMixture,
    GaussianMixtureModel,
    GaussianMixtureSummary,
)
from distvec.spark.ml.models import MARGIN, ServerModel
from distvec.spark.ml.params import HasFeatures, Range, at_least, one_of
from distvec.spark.ml.summary import ClusteringSummary, Training
from distvec.spark.ml.topics import LDA, LDAModel, LocalLDAModel
from distvec.spark.objectives.clusters import Clusters, KMeansProblem, fit_clusters
from distvec.spark.objectives.model import Model
from distvec.spark.objectives.objective import Objective

__all__ = (
    "LDA",
    "GaussianMixture",
    "GaussianMixtureModel",
    "GaussianMixtureSummary",
    "KMeans",
    "KMeansModel",
    "KMeansSummary",
    "LDAModel",
    "LocalLDAModel",
)

_RANDOM = "random"
_SEED = 0


class _ClusterParams(_KMeansParams, HasFeatures):
    """Params of the estimator and its models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "k": at_least(2),
        "initMode": one_of("k-means||", _RANDOM),
        "initSteps": at_least(1),
        "maxIter": at_least(0),
        "tol": at_least(0.0),
        "distanceMeasure": one_of(EUCLIDEAN, COSINE),
        "solver": one_of("auto", "row", "block"),
        "maxBlockSizeInMB": at_least(0.0),
    }

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **params)
        self._setDefault(seed=_SEED)

    @property
    def _measure(self) -> str:
        return self.getDistanceMeasure().lower()


class KMeans(RowsEstimator, _ClusterParams, Estimator[Any]):
    """K-means clustering with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.clustering.KMeans``, by name. ``featuresCol`` may also be a list
        of columns of numbers, or the name of an array column. ``seed`` is 0 by default.

    Notes
    -----
    Lloyd's algorithm ends when every center has moved by ``tol`` at most. A center without rows
    stays. If the data has fewer distinct rows than ``k``, the model has fewer centers. Clusters are
    numbered by their first rows, in the order of the data.

    The first centers are rows at random, or come from k-means||, which draws ``2 k`` rows in each
    of ``initSteps`` steps and clusters them in the driver. Draws depend on the seed and on the
    features of rows, so they are the same for any number of partitions; equal rows are drawn as
    one. A fit with ``initialModel`` starts from the centers of a model. ``verbose`` shows a
    progress bar.

    Each step of the algorithm is one request to the resident tasks. The rows are read once for all
    param maps of ``fit``. ``solver``, ``maxBlockSizeInMB`` and ``intermediateStorageLevel`` have no
    effect.

    Examples
    --------
    >>> from distvec.spark.ml.clustering import KMeans
    >>> model = KMeans(k=2, seed=1).fit(train)
    >>> len(model.clusterCenters()), model.summary.numIter <= 20
    (2, True)
    """

    def _data_key(self) -> tuple[Any, ...]:
        return str(self._features), self._weight

    def _objective(self, dataset: DataFrame) -> Objective:
        return Objective(
            dataset,
            loss=Quantization(self.getK(), self._measure),
            features=self._features,
            label=None,
            weight=self._weight,
            intercept=True,
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Objective, dataset: DataFrame) -> KMeansModel:
        is_random = self.getInitMode().lower() == _RANDOM
        problem = KMeansProblem(
            self.getK(), self._measure, is_random, self.getInitSteps(), self.getSeed()
        )
        found = fit_clusters(
            objective.ps,
            objective.data,
            problem,
            start=self._first_centers(objective.data.size),
            max_iterations=self.getMaxIter(),
            tolerance=self.getTol(),
            progress=self.getOrDefault("verbose"),
        )
        fitted = _model_of(found.centers, self._measure, self._features)
        model = self._copyValues(KMeansModel(fitted)._resetUid(self.uid))
        model._training, model._clusters = Training(dataset, []), found
        return model

    def _first_centers(self, features: int) -> Floats | None:
        """The centers of ``initialModel``; None without one."""
        model: Model | None = self._given("initialModel")
        if model is None:
            return None
        centers: Floats = np.asarray(model.numpy().coefficients).T
        if centers.ndim != 2 or not 0 < len(centers) <= self.getK() or centers.shape[1] != features:
            raise ValueError(
                f"initialModel={model} does not fit k={self.getK()} and {features:,} features; it "
                "must be a KMeansModel with at most k centers"
            )
        if self._measure == COSINE:
            centers = centers / np.linalg.norm(centers, axis=1, keepdims=True)
        return centers


def _model_of(centers: Floats, measure: str, features: str | list[str] = "features") -> Model:
    loss = Quantization(len(centers), measure)
    return Model(table_of(centers, measure), loss=loss, intercept=True, features=features)


class KMeansModel(ServerModel, _ClusterParams, SparkModel):
    """Fitted clusters; ``KMeans.fit`` makes them.

    Parameters
    ----------
    fitted : Model, optional
        The centers.

    Examples
    --------
    >>> from distvec.spark.ml.clustering import KMeans
    >>> model = KMeans(k=2).fit(train)
    >>> model.numFeatures, model.summary.k, sum(model.summary.clusterSizes)
    (4, 2, 4)
    """

    _formats = ("distvec", "mllib", "pmml")
    _clusters: Clusters

    def setFeaturesCol(self, value: str) -> Self:
        """Set the column of features.

        Parameters
        ----------
        value : str
            Its name.

        Returns
        -------
        KMeansModel
            This object.
        """
        return self._set(featuresCol=value)

    def setPredictionCol(self, value: str) -> Self:
        """Set the column of predictions.

        Parameters
        ----------
        value : str
            Its name.

        Returns
        -------
        KMeansModel
            This object.
        """
        return self._set(predictionCol=value)

    def clusterCenters(self) -> list[Floats]:
        """Return the centers.

        Returns
        -------
        list of array
            One array for each cluster.
        """
        return list(np.ascontiguousarray(self.fitted.coefficients.T))

    def predict(self, value: Vector) -> int:
        """Predict the cluster of one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        int
            The number of the cluster.
        """
        rows = Rows(np.asarray(value.toArray(), np.float64)[None], np.zeros(1))
        return int(nearest(rows, self.fitted.arrays[0], self._measure).places[0])

    def __repr__(self) -> str:
        return (
            f"KMeansModel: uid={self.uid}, k={self.getK()}, distanceMeasure={self._measure}, "
            f"numFeatures={self.numFeatures}"
        )

    def _outputs(self) -> dict[str, Column]:
        margins = F.col(MARGIN)
        prediction = F.array_position(margins, F.array_max(margins)) - 1
        return {self.getPredictionCol(): prediction.cast("int")}

    @property
    def summary(self) -> KMeansSummary:
        """Sizes and cost of the clusters of the training data, and its predictions."""
        return KMeansSummary(self, self._known_training().dataset)

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        centers = np.array(attributes.clusterCenters())
        return _model_of(centers, attributes.getDistanceMeasure())

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        found = session.read.parquet(os.path.join(path, "data")).orderBy("clusterIdx").collect()
        centers = np.array([row.clusterCenter.toArray() for row in found])
        given = metadata["defaultParamMap"] | metadata["paramMap"]
        return cls(_model_of(centers, given.get("distanceMeasure", EUCLIDEAN)))

    def _data(self, session: SparkSession) -> DataFrame:
        fields = [
            StructField("clusterIdx", IntegerType()),
            StructField("clusterCenter", VectorUDT()),
        ]
        rows = [(k, Vectors.dense(one)) for k, one in enumerate(self.clusterCenters())]
        return session.createDataFrame(rows, StructType(fields))


class KMeansSummary(ClusteringSummary):
    """Clusters of the training data; ``model.summary`` is one.

    Parameters
    ----------
    model : KMeansModel
        The model.
    dataset : DataFrame
        The training data.
    """

    @property
    def numIter(self) -> int:
        """The number of iterations."""
        found: int = self._model._clusters.iterations
        return found

    @property
    def trainingCost(self) -> float:
        """The weighted sum of the squared distances of rows to the nearest center.

        With cosines, it is the sum of one minus the cosine.
        """
        found: float = self._model._clusters.cost
        return found

    @property
    def clusterSizes(self) -> list[int]:
        """The number of rows of each cluster."""
        sizes: list[int] = self._model._clusters.sizes
        return sizes + [0] * (self.k - len(sizes))
