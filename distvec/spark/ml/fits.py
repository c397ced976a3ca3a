"""Fits of estimators to a DataFrame: rows are read once for all param maps that allow it."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.ml.base import Model, _FitMultipleIterator
from pyspark.ml.param import Param
from pyspark.sql import DataFrame

from distvec.spark.ml.files import Saved
from distvec.spark.ml.params import HasFeatures, SettableParams
from distvec.spark.objectives.objective import Objective

ParamMap = dict[Param[Any], Any]


class ServerEstimator(SettableParams, HasFeatures, Saved):
    """An estimator that minimizes an objective over the rows, on the servers.

    Subclasses make the objective, and a model from it. All estimators with the same ``_data_key``
    may share one objective: the key has the Params that ``_objective`` reads.
    """

    @abstractmethod
    def _data_key(self) -> tuple[Any, ...]: ...

    @abstractmethod
    def _objective(self, dataset: DataFrame) -> Objective: ...

    @abstractmethod
    def _train(self, objective: Objective, dataset: DataFrame) -> Any: ...

    @property
    def _weight(self) -> str | None:
        """The column of weights, if there is one."""
        return self.getOrDefault("weightCol") or None if self.isDefined("weightCol") else None

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
        fits = _Fits(dataset, [self.copy(one) for one in paramMaps])
        return _FitMultipleIterator(fits.fit, len(paramMaps))

    def _fit(self, dataset: DataFrame) -> Any:
        return _Fits(dataset, [self]).fit(0)


class _Fits:
    """Fits of several estimators to the same frame.

    ``fit`` may be called by several threads; the fits run one after another, as each one uses all
    slots of the application.
    """

    def __init__(self, dataset: DataFrame, estimators: Sequence[ServerEstimator]) -> None:
        self._dataset, self._estimators = dataset, estimators
        self._lock = threading.Lock()
        self._objectives: dict[Any, Objective] = {}
        self._left = Counter(one._data_key() for one in estimators)

    def fit(self, index: int) -> Any:
        """Return the model of the estimator with this number."""
        with self._lock:
            estimator = self._estimators[index]
            key = estimator._data_key()
            try:
                if key not in self._objectives:
                    self._objectives[key] = estimator._objective(self._dataset)
                return estimator._train(self._objectives[key], self._dataset)
            finally:
                self._left[key] -= 1
                if not self._left[key] and key in self._objectives:
                    self._objectives.pop(key).close()
