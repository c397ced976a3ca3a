"""Recommendation with the names and Params of ``pyspark.ml.recommendation``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from pyspark.ml import recommendation
from pyspark.ml.base import Estimator
from pyspark.ml.base import Model as SparkModel
from pyspark.ml.recommendation import _ALSModelParams, _ALSParams
from pyspark.ml.wrapper import JavaWrapper
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from distvec import DistArray
from distvec.losses.ratings import Factorization
from distvec.spark.context import PSContext
from distvec.spark.data.columns import number_column
from distvec.spark.data.dataset import FrameStandIn
from distvec.spark.ml.files import Saved
from distvec.spark.ml.fits import SharingEstimator
from distvec.spark.ml.models import LOCAL_PARAMETERS, no_parameters
from distvec.spark.ml.params import KeywordParams, Range, SettableParams, at_least, one_of
from distvec.spark.objectives.ratings import Ratings, factorize
from distvec.spark.objectives.recommendations import (
    FactorTable,
    list_factors,
    predict,
    recommend,
)

__all__ = ("ALS", "ALSModel")

_SEED = 0
_DROP = "drop"


class _ModelParams(KeywordParams, _ALSModelParams):
    """Params of the estimator and its models."""

    _ranges: ClassVar[Mapping[str, Range]] = {
        "coldStartStrategy": one_of("nan", _DROP),
        "blockSize": at_least(1),
    }


class ALS(SharingEstimator, _ModelParams, _ALSParams, Estimator[Any]):
    """Matrix factorization by alternating least squares, with the Params of MLlib's class.

    Parameters
    ----------
    *args
        Not allowed: Params are set by name.
    **params
        Any Param of ``pyspark.ml.recommendation.ALS``, by name. ``seed`` is 0 by default.

    Notes
    -----
    The objective is MLlib's: of explicit ratings ``sum (r - u v)^2``, of implicit ones the weighted
    squares of Hu, Koren and Volinsky, and the penalty ``regParam * n * |factors|^2`` of each user
    and item with ``n`` ratings. Several ratings of one pair count as such. Each row of factors is
    solved exactly, by one task, from ratings in a fixed order: the model is the same for any number
    of partitions and servers. With ``regParam=0`` rows of few ratings get the shortest solution.

    Factors are float64 on the servers during the fit, and float32 in the model: in memory, or
    on the servers if there are more than 16 million numbers. Each half of an iteration is one Spark
    job without a shuffle, in which a task pulls the factors that its ratings name. If a server is
    lost, the fit starts again.

    ``numUserBlocks`` and ``numItemBlocks`` are the numbers of partitions, of which there is at most
    one for each id. ``checkpointInterval`` and the storage levels have no effect. ``verbose`` shows
    a progress bar with the objective.

    References
    ----------
    Y. Zhou, D. Wilkinson, R. Schreiber, R. Pan, "Large-scale parallel collaborative filtering for
    the Netflix Prize", 2008. Y. Hu, Y. Koren, C. Volinsky, "Collaborative filtering for implicit
    feedback datasets", 2008.

    Examples
    --------
    >>> from distvec.spark.ml.recommendation import ALS
    >>> rows = [(0, 0, 4.0), (0, 1, 2.0), (1, 1, 3.0), (1, 2, 4.0), (2, 1, 1.0), (2, 2, 5.0)]
    >>> ratings = spark.createDataFrame(rows, ["user", "item", "rating"])
    >>> model = ALS(rank=2, maxIter=5, seed=1).fit(ratings)
    >>> model.rank, model.recommendForAllUsers(2).count()
    (2, 3)
    """

    _own_params: ClassVar[frozenset[str]] = SharingEstimator._own_params
    _ranges: ClassVar[Mapping[str, Range]] = {
        "rank": at_least(1),
        "maxIter": at_least(0),
        "regParam": at_least(0.0),
        "alpha": at_least(0.0),
        "numUserBlocks": at_least(1),
        "numItemBlocks": at_least(1),
    }

    def __init__(self, *args: Any, **params: Any) -> None:
        super().__init__(*args, **params)
        self._setDefault(seed=_SEED)

    def setNumBlocks(self, value: int) -> Self:
        """Set ``numUserBlocks`` and ``numItemBlocks``.

        Parameters
        ----------
        value : int
            Their value.

        Returns
        -------
        ALS
            This object.
        """
        return self._set(numUserBlocks=value, numItemBlocks=value)

    def _data_key(self) -> tuple[Any, ...]:
        names = self.getUserCol(), self.getItemCol(), self.getRatingCol()
        return *names, self.getNumUserBlocks(), self.getNumItemBlocks()

    def _objective(self, dataset: DataFrame | FrameStandIn) -> Ratings:
        if isinstance(dataset, FrameStandIn):
            raise NotImplementedError(
                "ALS shuffles the ratings, which a fit through Spark Connect cannot; use a classic "
                "SparkSession, or pyspark.ml.recommendation.ALS"
            )
        name = self.getRatingCol()
        rating = number_column(dataset, name, "ratingCol") if name else F.lit(1.0)
        ids = _ids(self, dataset)
        columns = (one.alias(own) for one, own in zip((*ids, rating), _NAMES, strict=True))
        partitions = self.getNumUserBlocks(), self.getNumItemBlocks()
        return Ratings(dataset.select(*columns), partitions)

    def _train(self, objective: Ratings, dataset: DataFrame) -> ALSModel:
        ps = PSContext.get_or_create(dataset.sparkSession)
        shape = len(objective.users.ids), self.getRank()
        is_nonnegative, seed = self.getNonnegative(), self.getSeed()

        def start() -> DistArray:
            drawn: Any = ps.random.normal(size=shape, seed=seed)
            drawn = np.abs(drawn) if is_nonnegative else drawn
            found: DistArray = drawn / np.sqrt((drawn * drawn).sum(axis=1, keepdims=True))
            return found

        problem = Factorization(
            self.getRegParam(), self.getImplicitPrefs(), self.getAlpha(), is_nonnegative
        )
        shown = self.getOrDefault("verbose")
        found = factorize(ps, objective, problem, start, self.getMaxIter(), progress=shown)
        sides = (objective.users.ids, found.users), (objective.items.ids, found.items)
        tables = [_kept(FactorTable(ids, array.astype(np.float32))) for ids, array in sides]
        model = self._copyValues(ALSModel(*tables)._resetUid(self.uid))
        model._history = found.history
        return model


_NAMES = "user", "item", "rating"


def _ids(params: _ALSModelParams, dataset: DataFrame) -> tuple[Column, Column]:
    user, item = params.getUserCol(), params.getItemCol()
    return number_column(dataset, user, "userCol"), number_column(dataset, item, "itemCol")


def _kept(table: FactorTable) -> FactorTable:
    """In memory, unless it is too large."""
    if isinstance(table.factors, DistArray) and table.factors.size <= LOCAL_PARAMETERS:
        return FactorTable(table.ids, table.factors.numpy())
    return table


class ALSModel(SettableParams, _ModelParams, Saved, SparkModel):
    """Factors of users and items; ``ALS.fit`` makes them.

    Parameters
    ----------
    users : FactorTable, optional
        Ids and factors of the users.
    items : FactorTable, optional
        Ids and factors of the items.

    Notes
    -----
    If the factors are on the servers, keep the model for as long as you use the frames that it
    makes.

    Examples
    --------
    >>> from distvec.spark.ml.recommendation import ALS
    >>> ratings = spark.createDataFrame([(0, 5, 4.0), (1, 5, 2.0)], ["user", "item", "rating"])
    >>> model = ALS(rank=1, regParam=0.0).fit(ratings)
    >>> model.transform(ratings).select("prediction").first()[0]
    4.0
    """

    _own_params: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, users: FactorTable | None = None, items: FactorTable | None = None) -> None:
        super().__init__()
        self._tables = users, items
        self._history: list[float] = []

    @property
    def _users(self) -> FactorTable:
        return self._known(0)

    @property
    def _items(self) -> FactorTable:
        return self._known(1)

    def _known(self, side: int) -> FactorTable:
        found = self._tables[side]
        if found is None:
            raise no_parameters(self)
        return found

    @property
    def rank(self) -> int:
        """The number of factors of a user or an item."""
        return int(self._users.factors.shape[1])

    @property
    def objectiveHistory(self) -> list[float]:
        """The objective after each iteration of the fit; empty for a model that was loaded."""
        return list(self._history)

    @property
    def userFactors(self) -> DataFrame:
        """The factors of users, in the columns ``id`` and ``features``."""
        return self._listed(self._users)

    @property
    def itemFactors(self) -> DataFrame:
        """The factors of items, in the columns ``id`` and ``features``."""
        return self._listed(self._items)

    def recommendForAllUsers(self, numItems: int) -> DataFrame:
        """Recommend items to all users.

        Parameters
        ----------
        numItems : int
            Number of items for each user.

        Returns
        -------
        DataFrame
            Columns of users and ``recommendations``, a list of items and ratings. Lazy.
        """
        return self._recommend((self._users, self._items), None, numItems, "numItems")

    def recommendForAllItems(self, numUsers: int) -> DataFrame:
        """Recommend users for all items.

        Parameters
        ----------
        numUsers : int
            Number of users for each item.

        Returns
        -------
        DataFrame
            Columns of items and ``recommendations``, a list of users and ratings. Lazy.
        """
        return self._recommend((self._items, self._users), None, numUsers, "numUsers")

    def recommendForUserSubset(self, dataset: DataFrame, numItems: int) -> DataFrame:
        """Recommend items to some users.

        Parameters
        ----------
        dataset : DataFrame
            Has the column of users. Users that the model does not know are left out.
        numItems : int
            Number of items for each user.

        Returns
        -------
        DataFrame
            As of ``recommendForAllUsers``.

        Notes
        -----
        Runs one Spark job, for the distinct users.
        """
        column = number_column(dataset, self.getUserCol(), "userCol")
        return self._recommend(
            (self._users, self._items), dataset.select(column), numItems, "numItems"
        )

    def recommendForItemSubset(self, dataset: DataFrame, numUsers: int) -> DataFrame:
        """Recommend users for some items.

        Parameters
        ----------
        dataset : DataFrame
            Has the column of items. Items that the model does not know are left out.
        numUsers : int
            Number of users for each item.

        Returns
        -------
        DataFrame
            As of ``recommendForAllItems``.

        Notes
        -----
        Runs one Spark job, for the distinct items.
        """
        column = number_column(dataset, self.getItemCol(), "itemCol")
        return self._recommend(
            (self._items, self._users), dataset.select(column), numUsers, "numUsers"
        )

    def to_mllib(self) -> SparkModel:
        """Return the same model as MLlib's class.

        Returns
        -------
        ALSModel
            The model of ``pyspark.ml.recommendation``.
        """
        frames = self.userFactors._jdf, self.itemFactors._jdf
        java = JavaWrapper._new_java_obj(self._jvm_name(), self.uid, self.rank, *frames)
        made = recommendation.ALSModel(java)
        self._copyValues(made)._transfer_params_to_java()  # which transform() does not do
        return made

    @classmethod
    def from_mllib(cls, model: Any) -> Self:
        """Make a model of one that MLlib has fitted.

        Parameters
        ----------
        model : ALSModel
            A model of ``pyspark.ml.recommendation``.

        Returns
        -------
        ALSModel
            A model with the same factors and Params.
        """
        made = cls(*(_table_of(one) for one in (model.userFactors, model.itemFactors)))
        copied: Self = model._copyValues(made._resetUid(model.uid))
        return copied

    def __repr__(self) -> str:
        return f"ALSModel: uid={self.uid}, rank={self.rank}"

    def _transform(self, dataset: DataFrame) -> DataFrame:
        output = self.getPredictionCol()
        tables = self._users, self._items
        found = predict(dataset, tables, _ids(self, dataset), output)
        if self.getColdStartStrategy().lower() == _DROP:
            return found.where(~F.isnan(output))
        return found

    def _recommend(
        self,
        tables: tuple[FactorTable, FactorTable],
        some: DataFrame | None,
        count: int,
        argument: str,
    ) -> DataFrame:
        if count < 1:
            raise ValueError(f"{argument}={count}; must be 1 or more")
        names = self.getUserCol(), self.getItemCol()
        if tables[0] is self._items:
            names = names[1], names[0]
        ids = tables[0].ids
        if some is None:
            places = np.arange(len(ids))
        else:
            wanted = some.distinct().toArrow().column(0).drop_null().to_numpy()
            places = np.flatnonzero(np.isin(ids, wanted))
        block = self.getBlockSize()
        return recommend(_session(), tables, places, count, names=names, block=block)

    def _listed(self, table: FactorTable) -> DataFrame:
        return list_factors(_session(), table, self.getBlockSize())

    def _frames(self, session: SparkSession) -> dict[str, DataFrame]:
        return {"userFactors": self.userFactors, "itemFactors": self.itemFactors}

    def _metadata(self) -> dict[str, Any]:
        return {"rank": self.rank}

    @classmethod
    def _from_data(cls, session: SparkSession, path: str, metadata: Mapping[str, Any]) -> Self:
        folders = "userFactors", "itemFactors"
        return cls(*(_table_of(session.read.parquet(os.path.join(path, one))) for one in folders))


def _session() -> SparkSession:
    found = SparkSession.getActiveSession()
    if found is None:
        raise RuntimeError("there is no SparkSession; create one")
    return found


def _table_of(frame: DataFrame) -> FactorTable:
    """Factors as MLlib has them."""
    found = frame.toArrow()
    ids = found.column("id").to_numpy()
    lists = found.column("features").combine_chunks()
    rank = len(lists.values) // max(len(ids), 1)
    factors = lists.values.to_numpy().astype(np.float32, copy=False).reshape(len(ids), rank)
    order = np.argsort(ids)
    return FactorTable(ids[order].astype(np.int32), factors[order])
