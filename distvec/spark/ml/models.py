"""Parts of fitted models: their parameters, margins of frames, and vectors as MLlib has them."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from pyspark.ml import Model as SparkModel
from pyspark.ml.linalg import (
    DenseMatrix,
    DenseVector,
    Matrix,
    SparseMatrix,
    Vector,
    Vectors,
    VectorUDT,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from distvec.losses.classification import Logistic
from distvec.losses.loss import Loss, as_arrays
from distvec.losses.rows import Floats
from distvec.spark.context import PSContext
from distvec.spark.data.columns import find_column
from distvec.spark.ml.files import Saved
from distvec.spark.ml.params import HasFeatures, KeywordParams
from distvec.spark.ml.summary import Training
from distvec.spark.objectives.model import Model
from distvec.spark.objectives.validation import Decision
from ps_backend.durability.stores import open_store

MARGIN = "distvec margin"
"""A column that exists while a frame is transformed."""

LOCAL_PARAMETERS = 1 << 24
"""Larger models stay on the servers."""


def no_parameters(model: Any) -> ValueError:
    """The error of a model that was made without parameters."""
    return ValueError(
        f"this {type(model).__name__} has no parameters; make one by fit() of the estimator, "
        "load() or from_mllib()"
    )


class ServerModel(KeywordParams, HasFeatures, Saved):
    """A model with the Params of its estimator, and parameters in memory or on the servers."""

    def __init__(self, fitted: Model | None = None) -> None:
        super().__init__()
        self._fitted = fitted
        self._training: Training | None = None

    @property
    def fitted(self) -> Model:
        """The model as distvec's own class, with parameters in memory or on the servers."""
        if self._fitted is None:
            raise no_parameters(self)
        return self._fitted

    @property
    def coefficients(self) -> Vector:
        """The coefficients, sparse if that is smaller."""
        return compressed(Vectors.dense(self._linear))

    @property
    def intercept(self) -> float:
        """The intercept."""
        return float(self.fitted.intercept)

    @property
    def numFeatures(self) -> int:
        """The number of features."""
        return self.fitted.num_features

    def nonZeros(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the coefficients that are not zero.

        Returns
        -------
        (array of int64, array)
            The features, ascending, and their coefficients, ``(n,)`` or ``(n, classes)``. Of a loss
            with several parameters, the first one.

        Notes
        -----
        Of a model on the servers, only these are copied to the driver.
        """
        model, known = self.fitted, self.fitted.coordinates
        if known is None:
            table = as_arrays(model.coefficients, model.loss.parameters)[0]
        else:
            table = model.arrays[0][: len(known)]
        used = table != 0.0
        places = np.flatnonzero(used if used.ndim == 1 else used.any(axis=1))
        features = places if known is None else known[places]
        return np.asarray(features, np.int64), np.asarray(table[places], np.float64)

    @property
    def hasSummary(self) -> bool:
        """Whether the model has just been fitted, so that ``summary`` exists."""
        return self._training is not None

    def to_mllib(self) -> SparkModel:
        """Return the same model as MLlib's class, with the same Params.

        Returns
        -------
        Model
            The model of ``pyspark.ml`` with the same name. Its parameters are in the driver.

        Raises
        ------
        ValueError
            If the parameters are on the servers.
        """
        made: Any = self._in_mllib()
        made._resetUid(self.uid)
        self._copyValues(made)._transfer_params_to_java()  # which evaluate() does not do
        return made  # type: ignore[no-any-return]

    @classmethod
    def from_mllib(cls, model: Any) -> Self:
        """Make a model of one that MLlib has fitted.

        Parameters
        ----------
        model : Model
            A model of ``pyspark.ml`` with the same name.

        Returns
        -------
        Model
            A model with the same parameters and Params.
        """
        made: Self = model._copyValues(cls._made_of(model)._resetUid(model.uid))
        return made

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        if metadata.get("onServers"):
            ps = PSContext.get_or_create(session)
            fitted = Model.load(open_store(os.path.join(path, "data")).url, ps)
            return cls(fitted, **metadata["attributes"])
        row = session.read.parquet(os.path.join(path, "data")).first()
        if row is None:
            raise ValueError(f"{path}/data has no row")
        return cls._made_of(row)

    @classmethod
    def _made_of(cls, attributes: Any) -> Self:
        """A model without Params."""
        return cls(cls._of(attributes))

    @classmethod
    @abstractmethod
    def _of(cls, attributes: Any) -> Model:
        """The parameters, of MLlib's model or of the row that it saves: both name them alike."""

    @property
    def _is_on_servers(self) -> bool:  # type: ignore[override]
        return not self.fitted.is_local

    def _save_from_servers(self, path: str) -> None:
        self.fitted.save(open_store(path).url)

    def _in_mllib(self) -> SparkModel:
        """MLlib's model with the same parameters, without Params."""
        made: SparkModel = self._local().to_mllib()
        return made

    def _known_training(self) -> Training:
        if self._training is None:
            raise RuntimeError(
                f"No training summary available for this {type(self).__name__}; only fit() makes "
                "one: use evaluate(dataset)"
            )
        return self._training

    def _local(self) -> Model:
        """The model in memory; ``ValueError`` if it is on the servers."""
        if self.fitted.is_local:
            return self.fitted
        raise ValueError(
            f"the model of {self.numFeatures:,} features is on the servers; read a slice, "
            "model.fitted.coefficients[:1000].numpy(), or all of it: model.fitted.numpy()"
        )

    @property
    def _decision(self) -> Decision | None:
        """How margins become predictions; None if they do not, or differently."""
        return None

    @property
    def _linear(self) -> npt.NDArray[np.float64]:
        """The coefficients of the features; other parameters come behind them."""
        local = self._local()
        found = as_arrays(local.coefficients, local.loss.parameters)[0]
        return np.asarray(found, np.float64)

    def _margins(self, value: Vector) -> npt.NDArray[np.float64]:
        """The margins of one row."""
        return np.atleast_1d(self._local().margins(np.asarray(value.toArray())[None])[0])

    def _transform(self, dataset: DataFrame) -> DataFrame:
        """In Python only the margins are computed; all other columns are Spark's expressions."""
        if self._runs_in_jvm(dataset):
            return self.to_mllib().transform(dataset)
        named = {name: column for name, column in self._outputs().items() if name}
        if not named:
            return dataset
        found: DataFrame = self.fitted.margins(dataset, output=MARGIN, features=self._features)
        return found.withColumns(named).drop(MARGIN)

    def _runs_in_jvm(self, dataset: DataFrame) -> bool:
        """Whether MLlib's model can transform ``dataset``, without Python in the executors."""
        if not self.fitted.is_local or is_remote() or not isinstance(self._features, str):
            return False
        _, kind = find_column(dataset, self._features, "featuresCol")
        return isinstance(kind, VectorUDT)

    def _outputs(self) -> Mapping[str, Column]:
        """The new columns by name, as functions of the column ``MARGIN``; without a name: none."""
        raise NotImplementedError

    def _scored(self, dataset: DataFrame, *needed: str) -> tuple[DataFrame, dict[str, str]]:
        """Predictions for a summary, and the columns by Param: ``needed`` ones without a name in
        this model get one."""
        if not isinstance(dataset, DataFrame):
            raise TypeError(f"dataset must be a DataFrame but got {type(dataset)}.")
        missing = {name: f"{name}_{self.uid}" for name in needed if not self.getOrDefault(name)}
        model: Any = self.copy({self.getParam(name): one for name, one in missing.items()})
        names = ("labelCol", "featuresCol", "weightCol", *needed)
        known = {
            one: model.getOrDefault(one)
            for one in names
            if model.hasParam(one) and model.isDefined(one)
        }
        return model.transform(dataset), known


@dataclass(frozen=True)
class BinaryLogistic(Logistic):
    """The logistic loss of the labels 0 and 1."""

    labels: ClassVar[str] = "classes"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Evaluate the loss and its slope for a block of rows."""
        return super().row(margins, 2.0 * labels - 1.0)


def argmax(scores: Column, thresholds: Sequence[float] = ()) -> Column:
    """The number of the class with the largest score, divided by its threshold."""
    if thresholds:
        factors = F.array(*(F.lit(math.inf if t == 0.0 else 1.0 / t) for t in thresholds))
        scores = F.zip_with(scores, factors, lambda score, factor: score * factor)
    return (F.array_position(scores, F.array_max(scores)) - 1).cast("double")


def kept(x: Any, loss: Loss, features: str | list[str], *, intercept: bool) -> Model:
    """A fitted model of an array or a dict of arrays: in memory, unless it is too large."""
    return in_memory(Model(x, loss=loss, intercept=intercept, features=features))


def in_memory(model: Model) -> Model:
    """The same model, in memory unless it is too large."""
    return model if sum(one.size for one in model.arrays) > LOCAL_PARAMETERS else model.numpy()


def compressed(vector: DenseVector) -> Vector:
    """Sparse if that takes less memory, as MLlib has it."""
    values = vector.toArray()
    places = np.flatnonzero(values)
    if 1.5 * (places.size + 1) < values.size:
        return Vectors.sparse(values.size, places, values[places])
    return vector


def compressed_matrix(table: npt.NDArray[np.float64]) -> Matrix:
    """A matrix by rows, sparse if that takes less memory, as MLlib has it."""
    rows, columns = table.shape
    nonzero = int(np.count_nonzero(table))
    if 12 * nonzero + 4 * (rows + 1) + 16 < 8 * table.size:
        found = sp.csr_array(table)
        structure = found.indptr.tolist(), found.indices.tolist()
        # 1 for True: such is the flag that the JVM's matrices come with, also when printed.
        return SparseMatrix(rows, columns, *structure, found.data.tolist(), 1)  # type: ignore[arg-type]
    return DenseMatrix(rows, columns, table.ravel().tolist(), True)
