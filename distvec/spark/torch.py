"""An estimator that trains networks of PyTorch, with Params like those of ``pyspark.ml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, ClassVar

import numpy as np
import torch
from pyspark.ml.linalg import Vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NumericType

from distvec.losses.labels import KINDS
from distvec.losses.loss import Loss
from distvec.losses.rows import Floats
from distvec.spark.data.columns import find_column
from distvec.spark.ml.losses import LossEstimator, LossModel, _LossParams
from distvec.spark.ml.params import Range, at_least, one_of
from distvec.torch import Network

__all__ = ("TorchEstimator", "TorchModel")


_ENTRIES = "distvec embeddings"
"""The column of features, while a frame has it."""


def _to_callable(value: Any) -> Any:
    if not callable(value):
        raise TypeError(f"must be a function, got {value!r}")
    return value


class _TorchParams(_LossParams):
    """Params of the estimator and its models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "labels": one_of(*KINDS),
        "outputs": at_least(1),
        "embeddingSize": at_least(0),
        "fields": at_least(0),
        "numBuckets": at_least(1),
    }

    model: Param[Callable[[], torch.nn.Module] | torch.nn.Module] = Param(
        Params._dummy(),
        "model",
        "function without arguments that returns a torch.nn.Module, or a module",
        typeConverter=_to_callable,
    )
    loss: Param[Any] = Param(
        Params._dummy(),
        "loss",
        "loss of outputs and labels, such as torch.nn.functional.mse_loss",
        typeConverter=_to_callable,
    )
    labels: Param[str] = Param(
        Params._dummy(),
        "labels",
        "the labels that the loss takes; known for the losses of PyTorch, else 'real'",
        typeConverter=TypeConverters.toString,
    )
    outputs: Param[int] = Param(
        Params._dummy(),
        "outputs",
        "number of outputs of the network for a row; of classes their number",
        typeConverter=TypeConverters.toInt,
    )
    embeddingSize: Param[int] = Param(
        Params._dummy(),
        "embeddingSize",
        "columns of the table of embeddings, which has a row for each feature; 0: there is none",
        typeConverter=TypeConverters.toInt,
    )
    fields: Param[int] = Param(
        Params._dummy(),
        "fields",
        "with embeddings of featuresCol, the largest number of nonzeros of a row",
        typeConverter=TypeConverters.toInt,
    )
    numBuckets: Param[int] = Param(
        Params._dummy(),
        "numBuckets",
        "with embeddings of featuresCols, the number of features of each column",
        typeConverter=TypeConverters.toInt,
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(
            batchSize=32, fitIntercept=False, standardization=False, outputs=1, embeddingSize=0,
            fields=0, numBuckets=1 << 16,
        )  # fmt: skip

    @property
    def _columns(self) -> list[str]:
        """The columns with an embedding for each value; none without embeddings or such columns."""
        wanted = self.getOrDefault("embeddingSize") and self.isDefined("featuresCols")
        return self.getFeaturesCols() if wanted else []

    def _with_features(self, dataset: DataFrame) -> tuple[DataFrame, Any]:
        if not self._columns:
            return super()._with_features(dataset)
        size, indices, values = self.getOrDefault("numBuckets"), [], []
        for first, name in zip(count(0, size), self._columns, strict=False):
            column, kind = find_column(dataset, name, "featuresCols")
            is_number = isinstance(kind, NumericType | BooleanType)
            bucket = F.lit(0) if is_number else F.pmod(F.xxhash64(column), F.lit(size))
            indices.append((first + bucket).cast("int"))
            values.append(column.cast("double") if is_number else F.lit(1.0))
        width = F.lit(size * len(indices)).cast("int").alias("size")
        lists = F.array(*indices).alias("indices"), F.array(*values).alias("values")
        return dataset.withColumn(_ENTRIES, F.struct(width, *lists)), _ENTRIES

    def getLoss(self) -> Loss:
        """Return the network with its loss, as objectives take it.

        Returns
        -------
        Network
            Made of ``model``, ``loss`` and the Params that describe them.

        Raises
        ------
        ValueError
            If ``model`` or ``loss`` was not set.
        """
        for name in ("model", "loss"):
            if not self.isDefined(name):
                raise ValueError(
                    f"{type(self).__name__} needs {name}=, such as TorchEstimator(model="
                    "make_network, loss=torch.nn.functional.mse_loss)"
                )
        value = self.getOrDefault
        return Network(
            value("model"),
            value("loss"),
            value("labels") if self.isDefined("labels") else "",
            outputs=value("outputs"),
            embedding_size=value("embeddingSize"),
            fields=len(self._columns) or value("fields"),
            seed=value("seed"),
        )


class TorchEstimator(LossEstimator, _TorchParams):
    """Estimator of a network of PyTorch: rows on the executors, parameters on the servers.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        ``model`` and ``loss`` are required: a function without arguments that returns a
        ``torch.nn.Module``, and a loss such as ``torch.nn.functional.mse_loss``. ``batchSize`` (32
        by default; 0 for all rows), ``epochs``, ``optimizer`` (a solver of ``optim``, ``"Adam"`` by
        default), ``optimizerOptions`` such as ``{"step_size": 1e-3}``, ``seed``. ``labels``,
        ``outputs``, ``embeddingSize`` and ``fields`` are arguments of ``distvec.torch.Network``.
        The others are Params of ``LossEstimator``.

    See Also
    --------
    distvec.torch.Network : The loss, for objectives and for rows in memory.
    distvec.torch.Embedding : Layers over keyed tables, in a training loop of your own.

    Notes
    -----
    A step uses one batch of the rows of all tasks, and waits for all of them: the same partitions
    give bitwise identical results on any number of executors, tasks and servers. Each row is used
    once in an epoch. Batches of unequal weight count by their weight, and the step size is not
    multiplied by the number of tasks. A lost task is repeated, and counts once. With
    ``checkpointDir`` a fit continues after a crash.

    With ``embeddingSize`` and ``featuresCols``, each column has ``numBuckets`` rows of the table of
    embeddings, and is a field of its own. Texts are hashed to one of them; of a number the first
    one counts, times the number.

    The module computes in its own dtype; the parameters and the state of the optimizer are
    float64. ``optimizer="L-BFGS"`` with ``batchSize=0`` trains small networks by all rows.

    Examples
    --------
    >>> import torch
    >>> from distvec.spark.torch import TorchEstimator
    >>> def make_network():
    ...     return torch.nn.Sequential(
    ...         torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    ...     )
    >>> estimator = TorchEstimator(
    ...     model=make_network,
    ...     loss=torch.nn.functional.binary_cross_entropy_with_logits,
    ...     batchSize=2,
    ...     epochs=30,
    ...     optimizerOptions={"step_size": 0.05},
    ... )
    >>> model = estimator.fit(train)
    >>> model.transform(train).select("label", "prediction").count()
    4
    >>> model.torch_module()(torch.zeros(1, 4)).shape
    torch.Size([1, 1])
    """

    def _check_together(self) -> None:
        super()._check_together()
        width = self.getOrDefault("numBuckets") * len(self._columns)
        if width >= 1 << 31:
            raise ValueError(
                f"{len(self._columns)} featuresCols of numBuckets={self.getOrDefault('numBuckets')}"
                f" are {width:,} features; at most {(1 << 31) - 1:,} are possible"
            )

    def _data_key(self) -> tuple[Any, ...]:
        names = "labels", "outputs", "embeddingSize", "fields", "numBuckets", "seed"
        given = (self._given(name) for name in names)
        return (id(self._given("model")), *given, *super()._data_key())

    @property
    def _model_type(self) -> type[TorchModel]:
        return TorchModel


class TorchModel(LossModel, _TorchParams):
    """A trained network; ``TorchEstimator.fit`` makes one.

    Parameters
    ----------
    fitted : Model, optional
        The parameters, with the network.

    Notes
    -----
    ``rawPredictionCol`` has the outputs of the network, ``probabilityCol`` the probabilities of
    classes, ``predictionCol`` the class or the output.

    ``save`` stores the parameters, and the paths that import ``model`` and ``loss``; no file
    contains code. If ``model`` is a module, or defined within a function, ``save`` raises
    ``ValueError``: use ``torch.save(model.torch_module().state_dict(), path)``.

    Examples
    --------
    >>> import torch
    >>> from distvec.spark.torch import TorchEstimator
    >>> mse = torch.nn.functional.mse_loss
    >>> model = TorchEstimator(model=lambda: torch.nn.Linear(4, 1), loss=mse, epochs=1).fit(train)
    >>> model
    TorchModel: Network(<lambda>), numFeatures=4
    """

    def __repr__(self) -> str:
        return f"TorchModel: {self.fitted.loss}, numFeatures={self.numFeatures}"

    def torch_module(self) -> torch.nn.Module:
        """Return the network with the trained parameters, for use without servers.

        Returns
        -------
        torch.nn.Module
            A new module, in evaluation mode. With embeddings it takes their rows: see
            ``embeddings``.
        """
        network: Any = self.fitted.loss
        made: torch.nn.Module = network.module(self._local().arrays[-1])
        return made.eval()

    @property
    def embeddings(self) -> Floats:
        """The table of embeddings, ``(numFeatures, embeddingSize)``."""
        model = self._local().whole()
        if len(model.arrays) == 1:
            raise ValueError("the model has no embeddings; TorchEstimator(embeddingSize=, fields=)")
        return np.asarray(model.arrays[0], np.float64)

    @property
    def coefficients(self) -> Vector:
        """Not available: a network has ``torch_module()``."""
        raise ValueError("a network has no coefficients; use torch_module()")

    @property
    def intercept(self) -> float:
        """Not available: a network has ``torch_module()``."""
        raise ValueError("a network has no intercept; use torch_module()")
