"""Principal components and word vectors, with the names and Params of ``pyspark.ml.feature``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from itertools import count
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.ml import Model as SparkModel
from pyspark.ml import feature
from pyspark.ml.base import Estimator
from pyspark.ml.feature import _PCAParams
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import DenseMatrix, DenseVector, MatrixUDT, Vectors, VectorUDT
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType
from pyspark.sql.utils import is_remote

from distvec.losses.components import Components
from distvec.losses.rows import Floats
from distvec.spark.context import PSContext
from distvec.spark.data.columns import find_column
from distvec.spark.ml.embeddings import Word2Vec, Word2VecModel
from distvec.spark.ml.files import Saved
from distvec.spark.ml.fits import SharingEstimator
from distvec.spark.ml.line import LINE
from distvec.spark.ml.models import in_memory, no_parameters
from distvec.spark.ml.params import KeywordParams, Range, SettableParams, at_least
from distvec.spark.objectives.model import Model, in_mllib
from distvec.spark.objectives.objective import Objective
from optim import largest_eigenpairs
from optim.core.run import progress_bar
from ps_backend.durability.stores import open_store

__all__ = (
    "LINE",
    "PCA",
    "PCAModel",
    "TruncatedSVD",
    "TruncatedSVDModel",
    "Word2Vec",
    "Word2VecModel",
)

_MORE = 8
"""Columns of the blocks beyond ``k``: they save iterations."""


class _ComponentParams(KeywordParams, _PCAParams):
    """Params of estimators and models."""

    _ranges: ClassVar[Mapping[str, Range]] = {"k": at_least(1)}


class _ComponentEstimator(SharingEstimator, _ComponentParams, Estimator[Any]):
    """Finds eigenvectors of ``X^T X`` by its products with a few vectors at a time."""

    maxIter: Param[int] = Param(
        Params._dummy(), "maxIter", "maximum number of passes over the rows", TypeConverters.toInt
    )
    tol: Param[float] = Param(
        Params._dummy(),
        "tol",
        "accuracy of components, relative to the largest eigenvalue (>= 0)",
        TypeConverters.toFloat,
    )
    seed: Param[int] = Param(
        Params._dummy(), "seed", "seed of the first vectors", TypeConverters.toInt
    )

    _own_params: ClassVar[frozenset[str]] = SharingEstimator._own_params | {
        "maxIter",
        "tol",
        "seed",
    }
    _ranges: ClassVar[Mapping[str, Range]] = {"maxIter": at_least(1), "tol": at_least(0.0)}
    _is_centered: ClassVar[bool]
    _model: ClassVar[Any]

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **params)
        self._setDefault(maxIter=100, tol=1e-9, seed=0)

    def _data_key(self) -> tuple[Any, ...]:
        return self.getInputCol(), self.getK()

    def _objective(self, dataset: DataFrame) -> Objective:
        return Objective(
            dataset,
            loss=Components(self.getK() + _MORE),
            features=self.getInputCol(),
            label=None,
            intercept=True,
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Objective, dataset: DataFrame) -> Any:
        ps, d, k = objective.ps, objective.features, self.getK()
        if k > d:
            raise ValueError(f"source vector size {d} must be no less than k={k}")
        means: Any = objective._means() if self._is_centered else ps.zeros(d)

        def product(table: Any) -> Any:
            """``X^T X / n`` of centered rows, times ``table``."""
            shift = -(means @ table)
            _, gradient = objective(np.concatenate([table, shift[None]]))
            show(next(passes))
            return gradient[:-1] - np.outer(means, gradient[-1])

        start = ps.random.normal(size=(d, k + _MORE), seed=self.getOrDefault("seed"))
        most, tolerance, passes = self.getOrDefault("maxIter"), self.getOrDefault("tol"), count(1)
        with progress_bar(most, is_shown=self.getOrDefault("verbose")) as show:
            found = largest_eigenpairs(product, start, k, tolerance=tolerance, max_products=most)
        if not found.converged:
            warnings.warn(
                f"components are not accurate to tol={tolerance:g} after maxIter={most} passes: a "
                f"residual is {found.residual:.1e}, the largest eigenvalue {found.values[0]:.1e}; "
                "increase one of them",
                RuntimeWarning,
                stacklevel=2,
            )
        values = np.maximum(found.values, 0.0)
        total = self._total(objective)
        ratios = values / total if total > 0.0 else np.zeros(k)
        fitted = in_memory(
            Model(
                found.vectors * _signs(found.vectors),
                loss=Components(k),
                intercept=False,
                features=self.getInputCol(),
            )
        )
        made = self._model(fitted, ratios, np.sqrt(values * objective.rows))
        return self._copyValues(made._resetUid(self.uid))

    def _total(self, objective: Objective) -> float:
        """The sum of the eigenvalues of ``X^T X / n``."""
        n = objective.rows
        spread = float((objective._moments.deviations**2).sum()) * (n - 1) / n
        if self._is_centered:
            return spread
        return spread + float((objective._means() ** 2).sum())


def _signs(vectors: Any) -> Floats:
    """Factors that make the element of each column with the largest size positive."""
    most, least = np.asarray(vectors.max(axis=0)), np.asarray(vectors.min(axis=0))
    return np.where(most >= -least, 1.0, -1.0)


class _ComponentModel(SettableParams, _ComponentParams, Saved, SparkModel):
    """Directions; a row becomes its coordinates along them."""

    _own_params: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, fitted: Model | None = None, ratios: Any = (), singular: Any = ()) -> None:
        super().__init__()
        self._fitted = fitted
        self._ratios = np.asarray(ratios, np.float64)
        self._singular = np.asarray(singular, np.float64)

    @property
    def fitted(self) -> Model:
        """The components as distvec's own class, in memory or on the servers."""
        if self._fitted is None:
            raise no_parameters(self)
        return self._fitted

    @property
    def pc(self) -> DenseMatrix:
        """The components, one per column."""
        if not self.fitted.is_local:
            raise ValueError(
                "the components are on the servers; read some rows: "
                "model.fitted.coefficients[:1000].numpy()"
            )
        table = np.asarray(self.fitted.coefficients, np.float64)
        rows, columns = table.shape
        return DenseMatrix(rows, columns, table.ravel(order="F"))

    @property
    def explainedVariance(self) -> DenseVector:
        """The share of the variance along each component."""
        return DenseVector(self._ratios)

    @property
    def singularValues(self) -> DenseVector:
        """The singular values of the rows, after centering if the estimator centers."""
        return DenseVector(self._singular)

    def __repr__(self) -> str:
        return f"{type(self).__name__}: uid={self.uid}, k={self.getK()}"

    def _transform(self, dataset: DataFrame) -> DataFrame:
        features, output = self.getInputCol(), self.getOutputCol()
        _, kind = find_column(dataset, features, "inputCol")
        if self.fitted.is_local and isinstance(kind, VectorUDT) and not is_remote():
            return self._in_mllib().transform(dataset)
        found: DataFrame = self.fitted.margins(dataset, output=output, features=features)
        return found.withColumn(output, array_to_vector(found[output]))

    def _in_mllib(self) -> feature.PCAModel:
        made: Any = in_mllib(feature.PCAModel, self.pc, self._ratios)
        made._resetUid(self.uid)
        self._copyValues(made)._transfer_params_to_java()  # which transform() does not do
        return made  # type: ignore[no-any-return]

    @property
    def _is_on_servers(self) -> bool:  # type: ignore[override]
        return not self.fitted.is_local

    def _save_from_servers(self, path: str) -> None:
        self.fitted.save(open_store(path).url)

    def _attributes(self) -> dict[str, Any]:
        return {"ratios": self._ratios.tolist(), "singular": self._singular.tolist()}

    def _data(self, session: SparkSession) -> DataFrame:
        fields = [StructField("pc", MatrixUDT()), StructField("explainedVariance", VectorUDT())]
        row = self.pc, Vectors.dense(self._ratios)
        return session.createDataFrame([row], StructType(fields))

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        place = os.path.join(path, "data")
        known: dict[str, Any] = metadata.get("attributes") or {}
        if metadata.get("onServers"):
            ps = PSContext.get_or_create(session)
            loss = Components(len(known["ratios"]))
            fitted = Model.load(open_store(place).url, ps, loss=loss)
            return cls(in_memory(fitted), known["ratios"], known["singular"])
        row: Any = session.read.parquet(place).first()
        ratios = row.explainedVariance.toArray()
        singular = known["singular"] if known else np.full(ratios.size, np.nan)
        return cls(_model_of(row.pc.toArray()), ratios, singular)


def _model_of(table: Floats) -> Model:
    return Model(table, loss=Components(table.shape[1]), intercept=False)


class PCAModel(_ComponentModel):
    """Principal components; ``PCA.fit`` makes them.

    Parameters
    ----------
    fitted : Model
        The components.
    ratios : array
        The share of the variance along each component.
    singular : array
        The singular values of the centered rows.

    Examples
    --------
    >>> from distvec.spark.ml.feature import PCA
    >>> model = PCA(k=1, inputCol="features", outputCol="pca").fit(train)
    >>> model.pc.numRows, model.transform(train).first().pca.size
    (4, 1)
    """

    def to_mllib(self) -> feature.PCAModel:
        """Return the same model as MLlib's class.

        Returns
        -------
        PCAModel
            The model of ``pyspark.ml.feature``.
        """
        return self._in_mllib()

    @classmethod
    def from_mllib(cls, model: feature.PCAModel) -> Self:
        """Make a model of one that MLlib has fitted.

        Parameters
        ----------
        model : PCAModel
            A model of ``pyspark.ml.feature``.

        Returns
        -------
        PCAModel
            A model with the same components and Params.
        """
        ratios = model.explainedVariance.toArray()
        made = cls(_model_of(model.pc.toArray()), ratios, np.full(ratios.size, np.nan))
        copied: Self = model._copyValues(made._resetUid(model.uid))
        return copied


class PCA(_ComponentEstimator):
    """Principal component analysis with the Params of MLlib's class, for any number of features.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        ``k``, ``inputCol`` and ``outputCol`` as in ``pyspark.ml.feature.PCA``. ``maxIter``: passes
        over the rows. ``tol``: accuracy. ``seed``: of the first vectors.

    Notes
    -----
    The covariance matrix is never made: each pass over the rows multiplies it by a few vectors on
    the servers (block Lanczos), so features may be sparse and millions. As MLlib's, the model
    projects rows without centering them. Of each component the largest element is positive.

    Examples
    --------
    >>> from distvec.spark.ml.feature import PCA
    >>> model = PCA(k=2, inputCol="features", outputCol="pca").fit(train)
    >>> len(model.explainedVariance), model.transform(train).count()
    (2, 4)
    """

    _is_centered: ClassVar[bool] = True
    _model: ClassVar[Any] = PCAModel


class TruncatedSVDModel(_ComponentModel):
    """The first right singular vectors; ``TruncatedSVD.fit`` makes them.

    Parameters
    ----------
    fitted : Model
        The vectors.
    ratios : array
        The share of the sum of squares along each vector.
    singular : array
        The singular values.

    Examples
    --------
    >>> from distvec.spark.ml.feature import TruncatedSVD
    >>> model = TruncatedSVD(k=1, inputCol="features", outputCol="svd").fit(train)
    >>> model.singularValues.size
    1
    """

    _is_in_mllib: ClassVar[bool] = False


class TruncatedSVD(_ComponentEstimator):
    """The largest singular values of the rows, without centering, as for texts (LSA).

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        As of ``PCA``.

    See Also
    --------
    PCA : The same after centering.

    Examples
    --------
    >>> from distvec.spark.ml.feature import TruncatedSVD
    >>> model = TruncatedSVD(k=2, inputCol="features", outputCol="svd").fit(train)
    >>> model.transform(train).first().svd.size
    2
    """

    _is_in_mllib: ClassVar[bool] = False
    _is_centered: ClassVar[bool] = False
    _model: ClassVar[Any] = TruncatedSVDModel
