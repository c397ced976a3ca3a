"""Linear models over keys, trained by FTRL on frames and streams; their weights stay on servers."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pyspark.ml.base import PredictionModel, Predictor, _PredictorParams
from pyspark.ml.functions import array_to_vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasFitIntercept,
    HasMaxIter,
    HasProbabilityCol,
    HasRawPredictionCol,
    HasStepSize,
    HasWeightCol,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from distvec.durability.save import save
from distvec.keyed.array import KeyedArray
from distvec.keyed.space import KeyedSpace
from distvec.losses.classification import Logistic
from distvec.losses.loss import Loss
from distvec.losses.regression import Squared
from distvec.losses.row_losses import RowLoss
from distvec.objectives.keyed_machine import INTERCEPT
from distvec.rows.api import rows as row_functions
from distvec.spark.context import PSContext
from distvec.spark.keyed.objective import KeyedObjective, TrainingProgress
from distvec.spark.ml.files import Saved
from distvec.spark.ml.models import MARGIN
from distvec.spark.ml.params import (
    HasFeatures,
    Range,
    SettableParams,
    at_least,
    between,
)
from distvec.spark.objectives.block_rounds import restart_if_lost
from ps_backend.durability.stores import open_store

__all__ = (
    "FTRLClassifier",
    "FTRLClassifierModel",
    "FTRLRegressor",
    "FTRLRegressorModel",
    "StreamTraining",
)

_POSITIVE = Range(lambda x: 0.0 < x < math.inf, "finite and above 0")


def _param(name: str, about: str, convert: Any) -> Any:
    return Param(Params._dummy(), name, about, typeConverter=convert)


def _to_row_loss(value: Any) -> RowLoss:
    if isinstance(value, RowLoss):
        return value
    raise TypeError(f"loss is {value!r}; must be a loss of one margin, such as Squared()")


class _FTRLParams(
    _PredictorParams, HasMaxIter, HasStepSize, HasFitIntercept, HasWeightCol, HasFeatures, Saved
):
    """Params of the estimators and their models."""

    _is_in_mllib = False
    _ranges: ClassVar[Mapping[str, Range]] = {
        "maxIter": at_least(1),
        "stepSize": _POSITIVE,
        "beta": at_least(0.0),
        "l1": at_least(0.0),
        "l2": at_least(0.0),
        "batchSize": at_least(1),
        "admit": between(1, 255),
        "maxBytes": at_least(1),
    }

    valuesCol: Param[str] = _param(
        "valuesCol", "column of lists with a number for each key", TypeConverters.toString
    )
    beta: Param[float] = _param("beta", "beta of FTRL's step sizes (>= 0)", TypeConverters.toFloat)
    l1: Param[float] = _param(
        "l1", "l1 penalty on each weight; below it a weight is 0 (>= 0)", TypeConverters.toFloat
    )
    l2: Param[float] = _param("l2", "l2 penalty on each weight (>= 0)", TypeConverters.toFloat)
    batchSize: Param[int] = _param(
        "batchSize", "number of rows of a minibatch (>= 1)", TypeConverters.toInt
    )
    exactlyOnce: Param[bool] = _param(
        "exactlyOnce", "whether each row counts exactly once per pass", TypeConverters.toBoolean
    )
    admit: Param[int] = _param(
        "admit", "number of steps after which a key is stored, 1 to 255", TypeConverters.toInt
    )
    maxBytes: Param[int] = _param(
        "maxBytes", "memory limit of keys and weights on all servers", TypeConverters.toInt
    )

    verbose: Param[bool] = _param(
        "verbose", "whether to print loss and AUC after each pass", TypeConverters.toBoolean
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(
            maxIter=1, stepSize=0.1, beta=1.0, l1=0.0, l2=0.0, batchSize=256, exactlyOnce=False,
            admit=1, fitIntercept=True, verbose=False,
        )  # fmt: skip

    def _given(self, name: str) -> Any:
        return self.getOrDefault(name) or None if self.isDefined(name) else None

    @property
    def _row_loss(self) -> RowLoss:
        return Logistic()

    def _keyed(self, ps: PSContext, weights: KeyedArray | None) -> KeyedObjective:
        """The objective that trains and predicts, over ``weights`` or over a new space."""
        value = self.getOrDefault
        optimizer = space = None
        if weights is None:
            step, rest = value("stepSize"), ("beta", "l1", "l2")
            optimizer = row_functions.ftrl(step, **{name: value(name) for name in rest})
            space = self._space(ps)
        return KeyedObjective(
            loss=self._row_loss,
            intercept=value("fitIntercept"),
            optimizer=optimizer,
            space=space,
            weights=weights,
            ps=ps,
            **self._reading,
        )

    def _space(self, ps: PSContext, share: float = 1.0) -> KeyedSpace:
        """A new space, which may have this share of ``maxBytes``."""
        most = self._given("maxBytes")
        most_bytes = None if most is None else int(share * most)
        return ps.keys(admit=self.getOrDefault("admit"), most_bytes=most_bytes)

    @property
    def _reading(self) -> dict[str, Any]:
        """The columns, and how rows are taken, as arguments of ``KeyedObjective``."""
        value = self.getOrDefault
        return {
            "features": self._features,
            "values": self._given("valuesCol"),
            "label": value("labelCol"),
            "weight": self._given("weightCol"),
            "batch_size": value("batchSize"),
            "exactly_once": value("exactlyOnce"),
        }


class _FTRLEstimator(SettableParams, _FTRLParams):
    """Trains by passes over a frame, or by the batches of a stream."""

    @abstractmethod
    def _new(self, objective: KeyedObjective) -> Any: ...

    def _begin(self, spark: SparkSession) -> Any:
        """A model that has seen no row."""
        objective = self._keyed(PSContext.get_or_create(spark), None)
        model = self._new(objective)
        return self._copyValues(model._resetUid(self.uid))

    def _fit(self, dataset: DataFrame) -> Any:
        ps = PSContext.get_or_create(dataset.sparkSession)
        return restart_if_lost(ps, partial(self._fit_once, dataset), "the fit")

    def _fit_once(self, dataset: DataFrame) -> Any:
        model = self._begin(dataset.sparkSession)
        progress = print if self.getOrDefault("verbose") else None
        model._progress = model._objective.train(
            dataset, epochs=self.getMaxIter(), progress=progress
        )
        return model

    def streaming(self, model: Any = None) -> StreamTraining:
        """Return a function for ``foreachBatch``, which trains a model on each batch.

        Parameters
        ----------
        model : FTRLClassifierModel or FTRLRegressorModel, optional
            The model to continue with. By default a new one.

        Returns
        -------
        StreamTraining
            The function. Its ``model`` predicts at any time.

        Examples
        --------
        >>> from distvec.spark.ml.online import FTRLClassifier
        >>> training = FTRLClassifier(featuresCol=["site", "ad"], labelCol="click").streaming()
        >>> training(clicks, 0)  # as stream.writeStream.foreachBatch(training) does
        >>> training.progress.rows
        4
        """
        if model is None:
            model = self._begin(SparkSession.active())
        return StreamTraining(model)


class StreamTraining:
    """Trains a model on each batch of a stream; ``estimator.streaming()`` makes one.

    Parameters
    ----------
    model : FTRLClassifierModel or FTRLRegressorModel
        The model.

    Attributes
    ----------
    model : FTRLClassifierModel or FTRLRegressorModel
        The model, which each batch changes.

    Notes
    -----
    A batch with the number of an earlier one is left out, because a stream repeats its last batch
    after an error. After a restart of the driver, load the model that you saved.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._last = -1

    @property
    def progress(self) -> TrainingProgress | None:
        """Loss and AUC of the last batch, before it was learned; None before the first batch."""
        found: TrainingProgress | None = self.model.progress
        return found

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Train on ``rows``."""
        if batch > self._last:
            self.model.partial_fit(rows)
            self._last = batch


class _FTRLModel(SettableParams, _FTRLParams):
    """Weights on the servers, with the state of FTRL, so that they can learn from further rows."""

    _is_on_servers = True

    def __init__(self, objective: KeyedObjective) -> None:
        super().__init__()
        self._objective = objective
        self._progress: TrainingProgress | None = None

    @property
    def weights(self) -> KeyedArray:
        """The weights over the keys, on the servers."""
        return self._objective.weights

    @property
    def progress(self) -> TrainingProgress | None:
        """Loss and AUC of the last pass, before its rows were learned; None after ``load``."""
        return self._progress

    @property
    def intercept(self) -> float:
        """The weight that all rows share. Reading it takes one request."""
        return self._objective.intercept if self.getOrDefault("fitIntercept") else 0.0

    @property
    def numFeatures(self) -> int:
        """The number of keys so far. Reading it takes one request per server."""
        return len(self._objective.space) - int(INTERCEPT in self._objective.space)

    def nonZeros(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the weights that are not zero, without the intercept.

        Returns
        -------
        (array of int64, array of float64)
            Keys, and their weights.

        Notes
        -----
        Keys and weights are read in batches; only weights that are not zero are kept.
        """
        keys, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
        for some, values in self._objective.space.items(self.weights):
            used = (values != 0.0) & (some != INTERCEPT)
            keys.append(some[used])
            weights.append(values[used])
        return np.concatenate(keys), np.concatenate(weights)

    def partial_fit(self, dataset: DataFrame) -> Self:
        """Learn from further rows.

        Parameters
        ----------
        dataset : DataFrame
            The rows, such as a batch of a stream.

        Returns
        -------
        FTRLClassifierModel or FTRLRegressorModel
            This model, with changed weights.
        """
        self._objective = self._resume()
        self._progress = self._objective.train(dataset)
        return self

    def _resume(self) -> KeyedObjective:
        """The objective with the Params as they are now."""
        made = self._keyed(self._objective.ps, self.weights)
        made.rows = self._objective.rows
        return made

    def predict(self, value: Any) -> float:
        """Raise an error: the weights are on the servers; use ``transform``.

        Parameters
        ----------
        value : Any
            The features.

        Returns
        -------
        float
            Never.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError("the weights are on the servers; use transform(dataset)")

    def _save_from_servers(self, path: str) -> None:
        save(open_store(path).url, {"w": self.weights})

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        ps = PSContext.get_or_create(session)
        weights = ps.load(open_store(os.path.join(path, "data")).url)["w"]
        return cls(KeyedObjective(loss=Logistic(), weights=weights, ps=ps))


class _ClassifierParams(_FTRLParams, HasRawPredictionCol, HasProbabilityCol):
    _ranges: ClassVar[Mapping[str, Range]] = {"threshold": between(0.0, 1.0)}

    threshold: Param[float] = _param(
        "threshold", "probability above which the prediction is 1", TypeConverters.toFloat
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(threshold=0.5)


class FTRLClassifier(_FTRLEstimator, _ClassifierParams, Predictor[Any]):
    """Logistic regression over keys by FTRL, for streams and for features without a dense index.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        ``featuresCol``: a column of lists of integers (keys) or strings (which are hashed), or a
        list of columns of any type (``"site=a.com"`` is hashed). ``valuesCol``: numbers of the
        keys. ``labelCol``, ``weightCol``, ``fitIntercept``, ``threshold``, ``predictionCol``,
        ``probabilityCol`` and ``rawPredictionCol`` are as in MLlib. ``stepSize``, ``beta``, ``l1``,
        ``l2``: of FTRL. ``maxIter``: passes. ``batchSize``, ``exactlyOnce``, ``admit``,
        ``maxBytes``: as in ``KeyedObjective`` and ``Session.keys``. ``verbose`` prints a line after
        each pass.

    See Also
    --------
    distvec.spark.KeyedObjective : The same without Params, with other optimizers.

    Notes
    -----
    Weights stay on the servers of the running ``PSContext``. A minibatch costs two requests to each
    server. Order and timing of tasks change the last digits, unless ``exactlyOnce`` is set.

    References
    ----------
    H. B. McMahan et al., "Ad click prediction: a view from the trenches", 2013.

    Examples
    --------
    >>> from distvec.spark.ml.online import FTRLClassifier
    >>> estimator = FTRLClassifier(featuresCol=["site", "ad"], labelCol="click", maxIter=2)
    >>> model = estimator.fit(clicks)
    >>> model.numFeatures, model.progress.rows
    (4, 8)
    >>> model.transform(clicks).select("site", "ad", "probability").count()
    4
    """

    def _new(self, objective: KeyedObjective) -> FTRLClassifierModel:
        return FTRLClassifierModel(objective)


class FTRLClassifierModel(_FTRLModel, _ClassifierParams, PredictionModel[Any]):
    """A classifier over keys; ``FTRLClassifier.fit`` makes one.

    Parameters
    ----------
    objective : KeyedObjective
        The weights, with their optimizer.

    Notes
    -----
    ``save`` lets the servers write keys, weights and the state of FTRL, so a loaded model can learn
    from further rows.

    Examples
    --------
    >>> from distvec.spark.ml.online import FTRLClassifier
    >>> model = FTRLClassifier(featuresCol=["site", "ad"], labelCol="click").fit(clicks)
    >>> keys, weights = model.nonZeros()
    >>> len(keys) > 0, model.partial_fit(clicks).progress.rows
    (True, 8)
    """

    def _transform(self, dataset: DataFrame) -> DataFrame:
        margin, threshold = F.col(MARGIN), self.getOrDefault("threshold")
        least = math.log(threshold / (1 - threshold)) if 0 < threshold < 1 else None
        at = F.lit(math.copysign(math.inf, threshold - 0.5) if least is None else least)
        negative = 1.0 / (1.0 + F.exp(margin))
        columns = {
            self.getRawPredictionCol(): array_to_vector(F.array(-margin, margin)),
            self.getProbabilityCol(): array_to_vector(F.array(negative, 1.0 - negative)),
            self.getPredictionCol(): (margin > at).cast("double"),
        }
        found = self._resume().margins(dataset, output=MARGIN)
        return found.withColumns({name: one for name, one in columns.items() if name}).drop(MARGIN)


class _RegressorParams(_FTRLParams):
    loss: Param[Loss] = _param("loss", "a loss of one margin, such as Huber()", _to_row_loss)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(loss=Squared())

    @property
    def _row_loss(self) -> RowLoss:
        found: RowLoss = self.getOrDefault("loss")
        return found


class FTRLRegressor(_FTRLEstimator, _RegressorParams, Predictor[Any]):
    """Regression over keys by FTRL, with any loss of one margin, such as ``Huber`` or ``Poisson``.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        ``loss``, a loss of ``distvec.losses`` or your own by ``row_loss``. The others are as in
        ``FTRLClassifier``, without Params of classes.

    See Also
    --------
    FTRLClassifier : The same for two classes.

    Examples
    --------
    >>> from distvec.spark.ml.online import FTRLRegressor
    >>> model = FTRLRegressor(featuresCol=["site", "ad"], labelCol="click").fit(clicks)
    >>> model.transform(clicks).select("prediction").count()
    4
    """

    def _new(self, objective: KeyedObjective) -> FTRLRegressorModel:
        return FTRLRegressorModel(objective)


class FTRLRegressorModel(_FTRLModel, _RegressorParams, PredictionModel[Any]):
    """A regression over keys; ``FTRLRegressor.fit`` makes one.

    Parameters
    ----------
    objective : KeyedObjective
        The weights, with their optimizer.
    """

    def _transform(self, dataset: DataFrame) -> DataFrame:
        name = self.getPredictionCol()
        return self._resume().predict(dataset, output=name) if name else dataset
