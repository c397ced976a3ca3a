"""Fits of estimators to a DataFrame: rows are read once for all param maps that allow it."""

from __future__ import annotations

import json
import math
import threading
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from pyspark.ml.base import Model, _FitMultipleIterator
from pyspark.ml.param import Param
from pyspark.sql import DataFrame

from distvec.losses.loss import as_arrays, as_given
from distvec.objectives.model import Model as Fitted
from distvec.objectives.model import Weights
from distvec.spark.barrier.job import run_in_tasks
from distvec.spark.context import PSContext
from distvec.spark.jobs.application import is_connect
from distvec.spark.jobs.failures import Failure
from distvec.spark.ml.files import Saved, encode_map
from distvec.spark.ml.params import (
    CheckpointParams,
    FitParams,
    HasFeatures,
    ProgressParams,
    SettableParams,
    StartParams,
    tolerances,
)
from distvec.spark.objectives.block_rounds import restart_if_lost
from distvec.spark.objectives.objective import Objective
from optim import Result
from ps_backend.durability.checkpoint_directory import names_checkpoint
from ps_backend.durability.stores import open_store
from ps_backend.errors import PSError

ParamMap = dict[Param[Any], Any]


def _names(kind: type) -> frozenset[str]:
    """The Params that a class defines itself."""
    return frozenset(one.name for one in vars(kind).values() if isinstance(one, Param))


class SharingEstimator(SettableParams, ProgressParams, Saved):
    """An estimator that is fitted to rows which tasks keep.

    Subclasses read the rows, and make a model of them. All estimators with the same ``_data_key``
    may share them: the key has the Params that ``_objective`` reads.
    """

    _own_params: ClassVar[frozenset[str]] = _names(ProgressParams)
    _is_one_of_many = False
    """Whether other fits share ``checkpointDir``."""

    @abstractmethod
    def _data_key(self) -> tuple[Any, ...]: ...

    @abstractmethod
    def _objective(self, dataset: DataFrame) -> Any:
        """What has the rows, with a method ``close``."""

    @abstractmethod
    def _train(self, objective: Any, dataset: DataFrame) -> Any: ...

    @property
    def _weight(self) -> str | None:
        """The column of weights, if there is one."""
        return self._given("weightCol") or None

    def _start(self, objective: Objective) -> Weights | None:
        """The parameters of ``initialModel``; None without one.

        A model of one vector starts a loss of several parameters, such as a scale, at its vector.
        """
        model: Fitted | None = self._given("initialModel")
        if model is None:
            return None
        parameters, model = objective.loss.parameters, model.whole()
        try:
            arrays: Sequence[Any] = (model.x,)
            if isinstance(model.x, Mapping) or len(parameters) == 1:
                arrays = as_arrays(model.x, parameters)
            else:
                rest = as_arrays(objective.start(), parameters)[1:]
                arrays = (model.x, *(one.numpy() for one in rest))
            each = zip(parameters, arrays, strict=True)
            extra = objective.intercept - model.has_intercept
            found = [_with_rows(one, extra * of.has_intercept(True)) for of, one in each]
            return objective.start(as_given(found, parameters))  # type: ignore[no-any-return]
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"initialModel={model} does not fit {objective.loss} over {objective.features:,} "
                f"features: {error}"
            ) from None

    def fitMultiple(
        self, dataset: DataFrame, paramMaps: Sequence[ParamMap]
    ) -> Iterator[tuple[int, Model]]:
        """Fit a model for each param map; rows are read once for all maps that allow it.

        Parameters
        ----------
        dataset : DataFrame
            The rows.
        paramMaps : list of dict
            Params by map.

        Returns
        -------
        iterator of (int, Model)
            Position and model of each map, in any order. Several threads may use it.
        """
        estimators = [self.copy(one) for one in paramMaps]
        for one in estimators:
            one._is_one_of_many = True
        fits = _Fits(dataset, estimators)
        return _FitMultipleIterator(fits.fit, len(paramMaps))

    def _fit(self, dataset: DataFrame) -> Any:
        return _Fits(dataset, [self]).fit(0)


class RowsEstimator(SharingEstimator, StartParams, HasFeatures):
    """The same over rows of features, by an objective."""

    _own_params: ClassVar[frozenset[str]] = (
        SharingEstimator._own_params | Saved._own_params | _names(StartParams)
    )
    _unsaved_params: ClassVar[frozenset[str]] = frozenset({"initialModel"})

    @abstractmethod
    def _objective(self, dataset: DataFrame) -> Objective: ...


class ServerEstimator(RowsEstimator, FitParams):
    """An estimator that minimizes an objective over the rows, on the servers.

    ``_train`` calls ``_minimize``, which follows the Params that all such estimators have.
    """

    _own_params: ClassVar[frozenset[str]] = (
        RowsEstimator._own_params | _names(CheckpointParams) | _names(FitParams)
    )

    def _minimize(
        self, objective: Objective, start: Weights | None = None, **options: Any
    ) -> Result:
        """Minimize; ``options`` as ``Objective.minimize`` takes them."""
        start = self._start(objective) if start is None else start
        given: dict[str, Any] = {
            "max_iterations": self.getOrDefault("maxIter"),
            **tolerances(self.getOrDefault("tol")),
            **options, **(self._given("optimizerOptions") or {}),
            "method": self._given("optimizer") or options.get("method"),
            "progress": self.getOrDefault("verbose"),
        }  # fmt: skip
        place = self._given("checkpointDir")
        if not place:
            return objective.minimize(start, **given)
        problem = _Problem.of(self, objective, start)
        if self._is_one_of_many:
            place = f"{place}/fit-{problem.number:08x}"
        problem.open(place)
        given |= {"checkpoint": place, "every": self.getOrDefault("checkpointInterval")}
        result = objective.minimize(start, resume=True, **given)
        objective.ps.durability.clear(objective.ps, place)
        open_store(place).delete(_PROBLEM)
        return result


def _with_rows(array: Any, extra: int) -> Any:
    """``array`` with a last row more, of zeros, or with one less."""
    if extra == 0:
        return array
    return array[:-1] if extra < 0 else np.concatenate([array, np.zeros_like(array[:1])])


_PROBLEM = "problem.json"
"""Beside the checkpoints of a fit: the problem that they belong to."""

_FREE_PARAMS = frozenset(
    "maxIter verbose checkpointDir checkpointInterval initialModel predictionCol probabilityCol "
    "rawPredictionCol threshold thresholds aggregationDepth maxBlockSizeInMB".split()
)
"""Params that a fit may change before it continues."""


class _Problem:
    """The identity of a fit: Params, rows, and the objective at the start, which tells rows."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known

    @classmethod
    def of(
        cls, estimator: ServerEstimator, objective: Objective, start: Weights | None
    ) -> _Problem:
        """One evaluation of the objective."""
        value, gradient = objective(objective.start() if start is None else start)
        slopes = as_arrays(gradient, objective.loss.parameters)
        about = {
            "estimator": type(estimator).__name__,
            **encode_map(estimator.extractParamMap(), _FREE_PARAMS),
            "number of rows": objective.rows,
            "number of features": objective.data.size,
            "sum of weights": objective.weight_sum,
            "objective at the start": float(value),
            "squared gradient at the start": sum(float((one * one).sum()) for one in slopes),
        }
        return cls(json.loads(json.dumps(about)))

    @property
    def number(self) -> int:
        """The same for the same problem."""
        rounded = {
            name: f"{one:.9g}" if isinstance(one, float) else one
            for name, one in self._known.items()
        }
        return zlib.crc32(json.dumps(rounded, sort_keys=True).encode())

    def open(self, place: str) -> None:
        """Mark ``place`` as this problem's; ``ValueError`` if it belongs to another one."""
        store = open_store(place)
        names = store.names()
        advice = "delete the directory, or give another checkpointDir"
        if _PROBLEM in names:
            content = bytearray(store.size(_PROBLEM))
            store.read(_PROBLEM, 0, memoryview(content))
            if other := self._difference(json.loads(content)):
                raise ValueError(
                    f"checkpointDir={place!r} has checkpoints of another fit: {other}; repeat that "
                    f"fit, {advice}"
                )
        elif any(map(names_checkpoint, names)):
            raise ValueError(
                f"checkpointDir={place!r} has checkpoints that no estimator wrote; {advice}"
            )
        else:
            store.write(_PROBLEM, [json.dumps(self._known).encode()])

    def _difference(self, other: Mapping[str, Any]) -> str:
        """The first difference, or an empty text."""
        for name in {**self._known, **other}:
            now, then = self._known.get(name), other.get(name)
            if isinstance(now, float) and isinstance(then, float):
                same = math.isclose(now, then, rel_tol=1e-9)
            else:
                same = now == then
            if not same:
                return f"its {name} is {then!r}, and is {now!r} now"
        return ""


class _Fits:
    """Fits of several estimators to the same frame.

    ``fit`` may be called by several threads. All fits of the process take turns, as each one uses
    all slots of the application; another one would wait for a slot too long, and fail.
    """

    _turn: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, dataset: DataFrame, estimators: Sequence[SharingEstimator]) -> None:
        self._dataset, self._estimators = dataset, estimators
        self._objectives: dict[Any, Any] = {}
        self._left = Counter(one._data_key() for one in estimators)
        self._by_tasks: dict[int, Any] = {}
        """Results of fits in one barrier job, by number of the estimator."""

    def fit(self, index: int) -> Any:
        """Return the model of the estimator with this number."""
        with self._turn:
            if is_connect(self._dataset.sparkSession):
                return self._fit_in_tasks(index)
            estimator = self._estimators[index]
            key = estimator._data_key()
            ps = PSContext.get_or_create(self._dataset.sparkSession)
            try:
                return restart_if_lost(ps, partial(self._train, estimator, key), "the fit")
            finally:
                self._left[key] -= 1
                if not self._left[key] and key in self._objectives:
                    self._objectives.pop(key).close()

    def _train(self, estimator: SharingEstimator, key: Any) -> Any:
        if key not in self._objectives:
            self._objectives[key] = estimator._objective(self._dataset)
        try:
            return estimator._train(self._objectives[key], self._dataset)
        except PSError:  # it may have arrays that are lost
            self._objectives.pop(key).close()
            raise

    def _fit_in_tasks(self, index: int) -> Any:
        """The same in one barrier job for all estimators that share the rows."""
        if index not in self._by_tasks:
            keys = [one._data_key() for one in self._estimators]
            numbers = [number for number, key in enumerate(keys) if key == keys[index]]
            estimators = [self._estimators[number] for number in numbers]
            found = run_in_tasks(
                self._dataset, estimators[0]._objective, partial(_train_all, estimators)
            )
            self._by_tasks.update(zip(numbers, found, strict=True))
        outcome = self._by_tasks.pop(index)
        if isinstance(outcome, Failure):
            outcome.throw("in the first task of a fit", "the trace is that of the task")
        return outcome


def _train_all(estimators: Sequence[SharingEstimator], rows: Any) -> list[Any]:
    """The models of estimators that share the rows, or why there is none."""
    found: list[Any] = []
    with estimators[0]._objective(rows) as objective:
        for one in estimators:
            try:
                found.append(one._train(objective, rows))
            except Exception as error:  # noqa: BLE001 - raised where the model is asked for
                found.append(Failure.of(0, error))
    return found
