"""Factorization machines over keys, trained by FTRL and AdaGrad on frames and streams."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pyspark.ml.base import PredictionModel, Predictor
from pyspark.ml.param import Param, TypeConverters
from pyspark.ml.param.shared import HasSeed
from pyspark.sql import SparkSession

from distvec.keyed.array import KeyedArray
from distvec.objectives.keyed_machine import KeyedMachine
from distvec.spark.context import PSContext
from distvec.spark.keyed.objective import KeyedObjective
from distvec.spark.ml.online import (
    FTRLClassifierModel,
    FTRLRegressorModel,
    _ClassifierParams,
    _FTRLEstimator,
    _FTRLModel,
    _FTRLParams,
    _param,
    _RegressorParams,
)
from distvec.spark.ml.params import Range, at_least

__all__ = (
    "OnlineFMClassifier",
    "OnlineFMClassifierModel",
    "OnlineFMRegressor",
    "OnlineFMRegressorModel",
)

_FULL = 0.75
"""Of ``maxBytes``: then a stream drops the half of its keys that it saw least."""


class _MachineParams(_FTRLParams, HasSeed):
    """Params of the estimators and their models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "factorSize": at_least(1),
        "numFields": Range(lambda n: n == 0 or n >= 2, "0, or 2 or more"),
        "factorStepSize": Range(lambda x: 0.0 < x < math.inf, "finite and above 0"),
        "factorReg": at_least(0.0),
        "admitFactors": at_least(0),
        "initStd": at_least(0.0),
    }

    factorSize: Param[int] = _param(
        "factorSize", "length of the factors of a key (>= 1)", TypeConverters.toInt
    )
    numFields: Param[int] = _param(
        "numFields",
        "number of fields of a field-aware machine; 0: a plain one",
        TypeConverters.toInt,
    )
    factorStepSize: Param[float] = _param(
        "factorStepSize", "step size of AdaGrad for the factors (> 0)", TypeConverters.toFloat
    )
    factorReg: Param[float] = _param(
        "factorReg", "l2 penalty of each minibatch on factors (>= 0)", TypeConverters.toFloat
    )
    admitFactors: Param[int] = _param(
        "admitFactors", "a key gets factors when it was seen in more rows", TypeConverters.toInt
    )
    initStd: Param[float] = _param(
        "initStd", "standard deviation of initial factors (>= 0)", TypeConverters.toFloat
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(
            factorSize=8, numFields=0, factorStepSize=0.05, factorReg=0.0, admitFactors=10,
            initStd=0.01, seed=0,
        )  # fmt: skip

    def _keyed(self, ps: PSContext, weights: KeyedArray | KeyedMachine | None) -> KeyedObjective:
        """The objective of a machine with these Params, with the arrays of another, or new ones."""
        value = self.getOrDefault
        arrays = weights.arrays if isinstance(weights, KeyedMachine) else None
        machine = KeyedMachine(
            ps,
            factors=value("factorSize"),
            fields=value("numFields"),
            loss=self._row_loss,
            intercept=value("fitIntercept"),
            factor_step_size=value("factorStepSize"),
            factor_l2=value("factorReg"),
            admit=value("admitFactors"),
            spread=value("initStd"),
            seed=value("seed"),
            most_bytes=self._given("maxBytes"),
            saved=arrays,
            space=None if arrays else self._space(ps, 0.5),
            **{name: value(param) for name, param in _OF_FTRL.items()},
        )
        return KeyedObjective(**self._reading, machine=machine, ps=ps)


_OF_FTRL = {"step_size": "stepSize", "beta": "beta", "l1": "l1", "l2": "l2"}
"""Params of FTRL by the arguments of the machine."""


class _MachineModel(_FTRLModel, _MachineParams):
    """Weights and factors on the servers, with the states of their optimizers."""

    def __init__(self, objective: KeyedObjective) -> None:
        super().__init__(objective)
        assert objective.machine is not None
        self._machine: KeyedMachine = objective.machine

    @property
    def factors(self) -> KeyedArray:
        """The factors of the frequent keys, on the servers."""
        return self._machine.factors

    @property
    def numFactors(self) -> int:
        """The number of keys with factors. Reading it takes one request per server."""
        return len(self.factors)

    def evict(self, count: int) -> int:
        """Keep the keys that were seen in most rows, and remove all others.

        Parameters
        ----------
        count : int
            Number of keys to keep.

        Returns
        -------
        int
            Number of removed keys.
        """
        return self._machine.evict(count)

    def partial_fit(self, dataset: Any) -> Self:
        """Learn from further rows.

        Parameters
        ----------
        dataset : DataFrame
            The rows, such as a batch of a stream.

        Returns
        -------
        OnlineFMClassifierModel or OnlineFMRegressorModel
            This model, changed.

        Notes
        -----
        With ``maxBytes``, three quarters of which are in use, first the half of the keys that were
        seen least are removed.
        """
        most = self._given("maxBytes")
        if most is not None and self._machine.nbytes > _FULL * most:
            self.evict(len(self.weights) // 2)
        return super().partial_fit(dataset)

    def _resume(self) -> KeyedObjective:
        made = self._keyed(self._objective.ps, self._machine)
        made.rows = self._objective.rows
        return made

    def _save_from_servers(self, path: str) -> None:
        self._machine.save(path)

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        ps = PSContext.get_or_create(session)
        given = {**metadata["defaultParamMap"], **metadata["paramMap"]}
        kept = {"factors": given["factorSize"], "fields": given["numFields"]}
        machine = KeyedMachine.load(ps, f"{path}/data", **kept, intercept=given["fitIntercept"])
        return cls(KeyedObjective(machine=machine, ps=ps))


class OnlineFMClassifier(_FTRLEstimator, _MachineParams, _ClassifierParams, Predictor[Any]):
    """Factorization machine over keys for two classes, for streams and rare keys.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Params of ``FTRLClassifier``, which are for the weights; and ``factorSize``,
        ``factorStepSize`` and ``factorReg`` of the factors. A key gets factors when it was seen in
        more than ``admitFactors`` rows and its weight is not 0; ``l1`` makes weights 0.
        ``numFields`` of 2 or more makes the machine field-aware: the field of a key is its place in
        its row, so with a list of columns there are as many fields as columns.

    See Also
    --------
    distvec.losses.KeyedMachine : The same without Spark.
    distvec.spark.ml.classification.FMClassifier : MLlib's, for features with a dense index.

    Notes
    -----
    Weights take steps of FTRL, factors of AdaGrad. A minibatch costs two requests to each server.
    With ``maxBytes`` a stream removes keys that it rarely saw.

    References
    ----------
    M. Li et al., "DiFacto: distributed factorization machines", 2016.

    Y. Juan et al., "Field-aware factorization machines for CTR prediction", 2016.

    Examples
    --------
    >>> from distvec.spark.ml.online_factorization import OnlineFMClassifier
    >>> estimator = OnlineFMClassifier(
    ...     featuresCol=["site", "ad"], labelCol="click", factorSize=2, admitFactors=0
    ... )
    >>> model = estimator.fit(clicks)
    >>> model.numFeatures, model.numFactors
    (4, 2)
    >>> model.transform(clicks).select("probability").count()
    4
    """

    def _new(self, objective: KeyedObjective) -> OnlineFMClassifierModel:
        return OnlineFMClassifierModel(objective)


class OnlineFMClassifierModel(
    _MachineModel, FTRLClassifierModel, _ClassifierParams, PredictionModel[Any]
):
    """A factorization machine over keys; ``OnlineFMClassifier.fit`` makes one.

    Parameters
    ----------
    objective : KeyedObjective
        The machine, with its optimizers.

    Examples
    --------
    >>> from distvec.spark.ml.online_factorization import OnlineFMClassifier
    >>> estimator = OnlineFMClassifier(featuresCol=["site", "ad"], labelCol="click")
    >>> estimator.fit(clicks).partial_fit(clicks).progress.rows
    8
    """


class OnlineFMRegressor(_FTRLEstimator, _MachineParams, _RegressorParams, Predictor[Any]):
    """Factorization machine over keys with any loss of one margin, such as ``Squared``.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        ``loss``, as of ``FTRLRegressor``. The others are as in ``OnlineFMClassifier``, without
        Params of classes.

    See Also
    --------
    OnlineFMClassifier : The same for two classes.

    Examples
    --------
    >>> from distvec.spark.ml.online_factorization import OnlineFMRegressor
    >>> model = OnlineFMRegressor(featuresCol=["site", "ad"], labelCol="click").fit(clicks)
    >>> model.transform(clicks).select("prediction").count()
    4
    """

    def _new(self, objective: KeyedObjective) -> OnlineFMRegressorModel:
        return OnlineFMRegressorModel(objective)


class OnlineFMRegressorModel(
    _MachineModel, FTRLRegressorModel, _RegressorParams, PredictionModel[Any]
):
    """A factorization machine over keys; ``OnlineFMRegressor.fit`` makes one.

    Parameters
    ----------
    objective : KeyedObjective
        The machine, with its optimizers.
    """
