"""An estimator of any loss, also your own, with Params like those of ``pyspark.ml``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.ml import Model as SparkModel
from pyspark.ml.base import PredictionModel, Predictor, _PredictorParams
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vector, Vectors
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasElasticNetParam,
    HasFitIntercept,
    HasMaxIter,
    HasProbabilityCol,
    HasRawPredictionCol,
    HasRegParam,
    HasSeed,
    HasStandardization,
    HasTol,
    HasValidationIndicatorCol,
    HasWeightCol,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType

from distvec.losses.loss import (
    MARGINS,
    PREDICTIONS,
    PROBABILITIES,
    Loss,
    as_given,
    check_loss,
    no_scores,
    predict,
)
from distvec.spark.context import PSContext
from distvec.spark.ml.files import decode_loss, encode_loss
from distvec.spark.ml.fits import ServerEstimator
from distvec.spark.ml.models import ServerModel, in_memory
from distvec.spark.ml.params import HasFeatures, Range, at_least, between
from distvec.spark.ml.summary import Training, ValidatedSummary
from distvec.spark.objectives.model import Model
from distvec.spark.objectives.objective import Objective
from optim import ElasticNet, Result, State, StochasticSolver
from optim.scipy_interface import solver_class
from ps_backend.durability.stores import open_store

__all__ = ("LossEstimator", "LossModel")


def _to_loss(value: Any) -> Loss:
    check_loss(value)
    found: Loss = value
    return found


class _LossParams(
    _PredictorParams,
    HasMaxIter,
    HasRegParam,
    HasElasticNetParam,
    HasTol,
    HasFitIntercept,
    HasStandardization,
    HasWeightCol,
    HasProbabilityCol,
    HasRawPredictionCol,
    HasSeed,
    HasValidationIndicatorCol,
    HasFeatures,
):
    """Params of the estimator and its models."""

    _is_in_mllib = False
    _ranges: ClassVar[Mapping[str, Range]] = {
        "maxIter": at_least(0),
        "regParam": at_least(0.0),
        "elasticNetParam": between(0.0, 1.0),
        "tol": at_least(0.0),
        "seed": at_least(0),
        "batchSize": at_least(0),
        "epochs": at_least(0),
        "patience": at_least(1),
    }

    loss: Param[Loss] = Param(
        Params._dummy(),
        "loss",
        "a loss of distvec.losses, or one made by row_loss or block_loss",
        typeConverter=_to_loss,
    )
    compact: Param[bool] = Param(
        Params._dummy(),
        "compact",
        "whether only features that occur in the rows have parameters; others are 0",
        typeConverter=TypeConverters.toBoolean,
    )
    groupCol: Param[str] = Param(
        Params._dummy(),
        "groupCol",
        "column of the groups whose rows are ranked together",
        typeConverter=TypeConverters.toString,
    )
    eventCol: Param[str] = Param(
        Params._dummy(),
        "eventCol",
        "for survival times: column with 1 for observed events, and 0 for censored rows",
        typeConverter=TypeConverters.toString,
    )

    offsetCol: Param[str] = Param(
        Params._dummy(),
        "offsetCol",
        "column of numbers that are added to the margins of the training rows",
        typeConverter=TypeConverters.toString,
    )

    batchSize: Param[int] = Param(
        Params._dummy(),
        "batchSize",
        "about so many rows for each step of a stochastic optimizer; 0: all rows",
        typeConverter=TypeConverters.toInt,
    )
    epochs: Param[int] = Param(
        Params._dummy(),
        "epochs",
        "with batchSize: how often all rows are used, in place of maxIter",
        typeConverter=TypeConverters.toInt,
    )
    patience: Param[int] = Param(
        Params._dummy(),
        "patience",
        "with validationIndicatorCol: epochs, or iterations without batchSize, that may pass "
        "without a lower loss before the fit ends with the best parameters",
        typeConverter=TypeConverters.toInt,
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(
            maxIter=100, regParam=0.0, elasticNetParam=0.0, tol=1e-6, fitIntercept=True,
            standardization=True, compact=False, batchSize=0, epochs=10, seed=0,
        )  # fmt: skip

    def _with_features(self, dataset: DataFrame) -> tuple[DataFrame, Any]:
        """The rows, and the columns of their features; one that was added is dropped later."""
        return dataset, self._features

    def getLoss(self) -> Loss:
        """Return the loss.

        Returns
        -------
        Loss
            As it was set.

        Raises
        ------
        ValueError
            If no loss was set.
        """
        if not self.isDefined(self.loss):
            raise ValueError("LossEstimator needs a loss, such as LossEstimator(loss=Huber())")
        found: Loss = self.getOrDefault(self.loss)
        return found


class LossEstimator(ServerEstimator, _LossParams, Predictor[Any]):
    """Estimator of any loss, with elastic net: quantiles, rankings, survival times, your own.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        ``loss`` is required: a loss of ``distvec.losses``, or one made by ``row_loss`` or
        ``block_loss``. ``groupCol`` is for rankings, ``eventCol`` for ``Cox``, ``offsetCol`` for
        known parts of margins. The others are Params as in MLlib: ``featuresCol``, ``labelCol``,
        ``predictionCol``, ``rawPredictionCol``, ``probabilityCol`` (of losses that have
        probabilities), ``weightCol``, ``regParam``, ``elasticNetParam``, ``fitIntercept``,
        ``standardization``, ``maxIter``, ``tol``, ``validationIndicatorCol``; ``patience``,
        ``compact``, ``batchSize``, ``epochs``, ``seed``, and Params of all estimators of distvec.

    See Also
    --------
    distvec.spark.Objective : The same objective without Params, with other penalties.

    Notes
    -----
    It minimizes the weighted mean of the loss plus ``regParam`` times the elastic net of the
    coefficients. Predictions are labels as the loss predicts them: a class, a mean, a quantile. If
    it predicts no labels, as for rankings, predictions are margins. They leave the
    offset out, as counts of one year do.

    With ``batchSize``, the optimizer takes a step for each batch, ``"Adam"`` by default. ``seed``
    decides the order of the batches, and ``tol`` is not used.

    Rows for which ``validationIndicatorCol`` is true do not train. Their mean loss after each
    epoch, or without ``batchSize`` after each iteration, is ``summary.validationHistory``. With
    ``patience`` the fit ends once it has not fallen for so long, and the model has the parameters
    for which it was lowest.

    With ``compact``, only features that occur in the rows have parameters, as in ``Objective``. The
    other coefficients are 0, so memory depends on the data and not on the number of features.

    Examples
    --------
    >>> from distvec.losses import Quantile
    >>> from distvec.spark.ml.losses import LossEstimator
    >>> model = LossEstimator(loss=Quantile(quantile=0.9, smoothing=0.01), regParam=0.1).fit(train)
    >>> model.transform(train).select("label", "prediction").count()
    4
    """

    def _check_together(self) -> None:
        super()._check_together()
        if self._given("patience") and not self._given("validationIndicatorCol"):
            raise ValueError("patience needs held-out rows: set validationIndicatorCol=")
        if self._given("patience") and self._given("checkpointDir"):
            raise ValueError(
                "patience and checkpointDir exclude each other: checkpoints do not have the best "
                "parameters"
            )

    def _data_key(self) -> tuple[Any, ...]:
        own = ("labelCol", "fitIntercept", "standardization", "compact")
        given = (self.getOrDefault(name) for name in own)
        names = ("groupCol", "eventCol", "offsetCol", "validationIndicatorCol")
        columns = (self._given(name) for name in names)
        return (id(self._given("loss")), *given, *columns, str(self._features), self._weight)

    def _objective(self, dataset: DataFrame) -> Objective:
        loss = self.getLoss()
        rows, features = self._with_features(dataset)
        return Objective(
            rows,
            loss=loss,
            features=features,
            label=self.getLabelCol(),
            weight=self._weight,
            group=self._given("groupCol"),
            event=self._given("eventCol"),
            offset=self._given("offsetCol"),
            held_out=self._given("validationIndicatorCol"),
            intercept=self.getFitIntercept() and loss.takes_intercept,
            standardization=self.getStandardization(),
            compact=self.getOrDefault("compact"),
            ps=PSContext.get_or_create(dataset.sparkSession),
        )

    def _train(self, objective: Objective, dataset: DataFrame) -> LossModel:
        strength, share = self.getRegParam(), self.getElasticNetParam()
        penalty = None
        if strength:
            penalty = ElasticNet(l1=share * strength, l2=(1.0 - share) * strength)
        objective = objective.with_penalty(penalty)
        held_out = None
        if self._given("validationIndicatorCol"):
            held_out = _HeldOutRows(objective, self._given("patience"))
        result = self._steps(objective, held_out)
        best = held_out.best if held_out else None
        fitted = in_memory(objective.model(result.x)) if best is None else best
        model = self._copyValues(self._model_type(fitted)._resetUid(self.uid))
        model._training = Training(
            dataset,
            [record.value for record in result.history],
            held_out.history if held_out else None,
        )
        return model

    @property
    def _model_type(self) -> type[LossModel]:
        return LossModel

    def _steps(self, objective: Objective, held_out: _HeldOutRows | None) -> Result:
        """By all rows, or batch by batch."""
        size = min(self.getOrDefault("batchSize"), objective.rows)
        if not size:
            return self._minimize(objective, callback=held_out)
        name = self._given("optimizer") or "Adam"
        if not issubclass(solver_class(name), StochasticSolver):
            raise ValueError(f"optimizer={name!r} uses all rows in each step; set batchSize=0")
        sampled = objective.minibatches(size, seed=self.getSeed())
        if held_out:
            held_out.every = sampled.batches_per_epoch
        return self._minimize(
            sampled,
            callback=held_out,
            method=name,
            max_iterations=self.getOrDefault("epochs") * sampled.batches_per_epoch,
            gradient_tolerance=0.0,
            value_tolerance=0.0,
            full_every=0,
        )


class _HeldOutRows:
    """The loss of rows that do not train, for a callback of the solver.

    It ends the run after so many epochs of ``patience`` without a lower one.
    """

    def __init__(self, objective: Objective, patience: int | None) -> None:
        self._objective, self._patience = objective, patience
        self.every = 1
        """Iterations of an epoch."""
        self.history: list[float] = []
        self.best: Model | None = None
        """With ``patience``: the model for which the loss was lowest."""
        self._lowest, self._epoch = np.inf, 0

    def __call__(self, state: State) -> bool:
        """Whether the run ends."""
        if state.iteration % self.every:
            return False
        value = self._objective.held_out_value(state.x)
        self.history.append(value)
        if self._patience is None:
            return False
        if self.best is None or value < self._lowest:
            self._lowest, self._epoch = min(self._lowest, value), len(self.history)
            self.best = in_memory(self._objective.model(state.x))
        return len(self.history) - self._epoch >= self._patience


class LossModel(ServerModel, _LossParams, PredictionModel[Vector]):
    """A model of any loss; ``LossEstimator.fit`` makes one.

    Parameters
    ----------
    fitted : Model, optional
        The parameters, with the loss.

    Notes
    -----
    ``save`` stores a loss by the path that imports it, and its arguments; no file contains code.
    ``load`` imports your loss from your module. If it is defined within a function, ``save`` raises
    ``ValueError``.

    Examples
    --------
    >>> import os
    >>> from distvec.losses import Huber
    >>> from distvec.spark.ml.losses import LossEstimator, LossModel
    >>> model = LossEstimator(loss=Huber(), regParam=0.1).fit(train)
    >>> path = os.path.abspath("huber")
    >>> model.save(path)
    >>> LossModel.load(path).coefficients == model.coefficients
    True
    """

    def __repr__(self) -> str:
        return f"LossModel: uid={self.uid}, loss={self.fitted.loss}, numFeatures={self.numFeatures}"

    @property
    def coefficients(self) -> Vector:
        """The coefficients of a loss with one vector of parameters."""
        self._check_single("vector of coefficients", "coefficients", len(self.fitted.arrays) == 1)
        coordinates = self.fitted.coordinates
        if coordinates is None:
            return super().coefficients
        values = self._local().arrays[0][: len(coordinates)]
        return Vectors.sparse(self.numFeatures, coordinates, values)

    @property
    def intercept(self) -> float:
        """The intercept of a loss with one margin for each row."""
        self._check_single("intercept", "intercept")
        return super().intercept

    def _check_single(self, name: str, attribute: str, is_single: bool = True) -> None:
        """``ValueError`` unless there is one, as of losses with one margin for each row."""
        if not is_single or self.fitted.arrays[0].ndim > 1:
            raise ValueError(
                f"a model of {self.fitted.loss} has no single {name}; use model.fitted.{attribute}"
            )

    def predict(self, value: Vector) -> float:
        """Predict one row.

        Parameters
        ----------
        value : Vector
            The features.

        Returns
        -------
        float
            The label, or for losses that do not predict labels the margin.
        """
        row = np.asarray(value.toArray())[None]
        model = self._local()
        return float((model.predict if self._predicts else model.margins)(row)[0])

    @property
    def _predicts(self) -> bool:
        """Whether the loss predicts labels."""
        return self._has(PREDICTIONS)

    def _has(self, what: str) -> bool:
        """Whether the loss has predictions, or probabilities."""
        fitted = self.fitted
        try:
            scores = no_scores(fitted.loss, intercept=fitted.has_intercept)
            predict(what, fitted.loss, fitted.classes, scores)
        except NotImplementedError:
            return False
        return True

    def _transform(self, dataset: DataFrame) -> DataFrame:
        raw, probability = self.getRawPredictionCol(), self.getProbabilityCol()
        wanted = {raw: MARGINS} if raw else {}
        if probability and self._has(PROBABILITIES):
            wanted[probability] = PROBABILITIES
        if prediction := self.getPredictionCol():
            wanted[prediction] = PREDICTIONS if self._predicts else MARGINS
        if not wanted:
            return dataset
        rows, features = self._with_features(dataset)
        found = self.fitted.add_columns(rows, wanted, features)
        if rows is not dataset:
            found = found.drop(features)
        lists = [name for name in wanted if isinstance(found.schema[name].dataType, ArrayType)]
        return found.withColumns({name: array_to_vector(found[name]) for name in lists})

    @property
    def summary(self) -> ValidatedSummary:
        """The course of the training."""
        training = self._known_training()
        made = ValidatedSummary()
        made._history, made._validation = training.history, training.validation
        return made

    def to_mllib(self) -> SparkModel:
        """Return the same model as a class of MLlib, if there is one.

        Returns
        -------
        Model
            As ``distvec.spark.mllib_model`` returns it.

        Raises
        ------
        NotImplementedError
            If MLlib has no model for the loss.
        ValueError
            If the parameters are on the servers.
        """
        bare = self.copy()
        bare.clear(bare.loss)  # MLlib's Param of this name has another type
        return ServerModel.to_mllib(bare)

    @classmethod
    def _of(cls, attributes: Any) -> Model:
        raise NotImplementedError("MLlib has no class for models of any loss")

    @property
    def _is_on_servers(self) -> bool:  # type: ignore[override]
        """Also a compact model, which no frame of MLlib's has, is in files of distvec."""
        return not self.fitted.is_local or self.fitted.coordinates is not None

    def _attributes(self) -> dict[str, Any]:
        model = self.fitted
        return {
            "loss": encode_loss(model.loss),
            "intercept": model.has_intercept,
            "num_features": model.num_features,
            "classes": model.classes,
        }

    def _data(self, session: SparkSession) -> DataFrame:
        """A row for each parameter."""
        rows = []
        for one, array in zip(self.fitted.loss.parameters, self._local().arrays, strict=True):
            values = np.asarray(array, np.float64)
            rows.append((one.name, list(values.shape), values.ravel().tolist()))
        return session.createDataFrame(rows, "name string, shape array<long>, values array<double>")

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        about = dict(metadata["attributes"])
        loss, place = decode_loss(about.pop("loss")), os.path.join(path, "data")
        if metadata["onServers"]:
            ps = PSContext.get_or_create(session)
            return cls(in_memory(Model.load(open_store(place).url, ps, loss=loss)))
        found = {row.name: row for row in session.read.parquet(place).collect()}
        rows = [found[one.name] for one in loss.parameters]
        arrays = [np.array(row["values"], np.float64).reshape(row["shape"]) for row in rows]
        return cls(Model(as_given(arrays, loss.parameters), loss=loss, **about))
