"""The tasks that use factors of users and items: predictions, and the best of the other side.

Factors are a broadcast, or rows on the servers, of which tasks pull those that they need.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from distvec import DistArray
from distvec.losses.rows import Ints
from distvec.spark.context import PSContext
from distvec.spark.jobs.application import is_connect
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.task_session import SessionTicket, join
from ps_backend.client import StoredArray

_COLUMNS = 4096
"""So many rows of the other side are multiplied at a time."""

Ids = npt.NDArray[np.int32]
Values = npt.NDArray[np.float32]


class FactorTable(NamedTuple):
    """The factors of users or of items, in memory or on the servers."""

    ids: Ids
    """Ascending."""
    factors: Values | DistArray
    """A row for each id."""


Tables = tuple[FactorTable, FactorTable]


class TaskRows(NamedTuple):
    """The same in tasks."""

    ids: Ids
    factors: Any
    """Numbers, or a ``StoredArray`` of the servers that ``access`` joins."""
    access: SessionTicket | None

    @classmethod
    def of(cls, table: FactorTable) -> TaskRows:
        """A table on the servers is evaluated first."""
        if isinstance(table.factors, np.ndarray):
            return cls(table.ids, table.factors, None)
        array, ps = table.factors.persist(), table.factors.session
        if not isinstance(ps, PSContext):
            raise TypeError("the factors must be on the servers of a PSContext")
        return cls(table.ids, StoredArray(array.buffer_id, array.type), ps.access)

    def at(self, places: Ints) -> Values:
        """The factors at some places."""
        if self.access is None:
            return self.factors[places]  # type: ignore[no-any-return]
        distinct, inverse = np.unique(places, return_inverse=True)
        stored: StoredArray = self.factors
        pulled = join(self.access).gather(stored.buffer, stored.type, distinct)
        return pulled[inverse]


class _Known(NamedTuple):
    """Two tables, in the closure of a task."""

    tables: tuple[TaskRows, TaskRows] | Broadcast[tuple[TaskRows, TaskRows]]

    @classmethod
    def of(cls, session: SparkSession, tables: Tables) -> _Known:
        found = TaskRows.of(tables[0]), TaskRows.of(tables[1])
        if is_connect(session):
            return cls(found)
        return cls(session.sparkContext.broadcast(found))

    def __call__(self) -> tuple[TaskRows, TaskRows]:
        return self.tables.value if isinstance(self.tables, Broadcast) else self.tables


def predict(
    data: DataFrame, tables: Tables, columns: tuple[Column, Column], output: str
) -> DataFrame:
    """``data`` with the products of the factors of two ids; NaN if one is unknown."""
    use_driver_python(data)
    known = _Known.of(data.sparkSession, tables)

    def score(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        for batch in batches:
            yield pa.array(_products(known(), batch))

    udf = arrow_udf(score, "float")  # type: ignore[call-overload]  # the stubs want the kind
    return data.withColumn(output, udf(*columns))


def _products(tables: tuple[TaskRows, TaskRows], columns: tuple[pa.Array, pa.Array]) -> Values:
    places, is_known = [], np.ones(len(columns[0]), bool)
    for table, column in zip(tables, columns, strict=True):
        if column.null_count:
            raise ValueError("an id is null; drop such rows: data.dropna()")
        ids = column.to_numpy()
        found = np.minimum(np.searchsorted(table.ids, ids), len(table.ids) - 1)
        is_known &= table.ids[found] == ids
        places.append(found)
    products = np.full(is_known.size, np.nan, np.float32)
    left, right = (table.at(at[is_known]) for table, at in zip(tables, places, strict=True))
    products[is_known] = np.vecdot(left, right)
    return products


def recommend(
    session: SparkSession,
    tables: Tables,
    places: Ints,
    count: int,
    *,
    names: tuple[str, str],
    block: int,
) -> DataFrame:
    """For rows of the first table, those of the other with the ``count`` largest products.

    A task multiplies ``block`` rows at a time with the other table.
    """
    own, other = names
    schema = f"`{own}` int, recommendations array<struct<`{other}`:int,rating:float>>"
    known = _Known.of(session, tables)
    return by_blocks(session, places, block, partial(_best, known, count, names), schema)


def list_factors(session: SparkSession, table: FactorTable, block: int) -> DataFrame:
    """The table as a frame with the columns ``id`` and ``features``."""
    known = _Known.of(session, (table, table))
    places, schema = np.arange(len(table.ids)), "id int, features array<float>"
    return by_blocks(session, places, block, partial(_listed, known), schema)


def by_blocks(session: SparkSession, places: Ints, block: int, task: Any, schema: str) -> DataFrame:
    """A frame with the rows that ``task`` makes of each block of places."""
    blocks = -(-len(places) // block)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield task(places[number * block : (number + 1) * block])

    frame = session.range(0, blocks, 1, max(blocks, 1))
    use_driver_python(frame)
    return frame.mapInArrow(run, schema)


def _best(known: _Known, count: int, names: tuple[str, str], places: Ints) -> pa.RecordBatch:
    own, other = known()
    rows = own.at(places)
    ratings: Any = np.empty((len(places), 0), np.float32)
    chosen: Any = np.empty((len(places), 0), np.int64)
    for start in range(0, len(other.ids), _COLUMNS):
        columns = np.arange(start, min(start + _COLUMNS, len(other.ids)))
        more = np.broadcast_to(columns, (len(places), columns.size))
        ratings = np.concatenate([ratings, rows @ other.at(columns).T], axis=1)
        chosen = np.concatenate([chosen, more], axis=1)
        if ratings.shape[1] > count:
            largest = np.argpartition(-ratings, count - 1, axis=1)[:, :count]
            ratings = np.take_along_axis(ratings, largest, axis=1)
            chosen = np.take_along_axis(chosen, largest, axis=1)
    order = np.lexsort((chosen, -ratings), axis=1)
    ids = other.ids[np.take_along_axis(chosen, order, axis=1)].ravel()
    products = np.take_along_axis(ratings, order, axis=1).ravel()
    each = pa.StructArray.from_arrays([pa.array(ids), pa.array(products)], [names[1], "rating"])
    return pa.RecordBatch.from_arrays(
        [pa.array(own.ids[places]), as_lists(each, len(places))], [names[0], "recommendations"]
    )


def _listed(known: _Known, places: Ints) -> pa.RecordBatch:
    table = known()[0]
    features = as_lists(pa.array(table.at(places).ravel()), len(places))
    return pa.RecordBatch.from_arrays([pa.array(table.ids[places]), features], ["id", "features"])


def as_lists(flat: pa.Array, count: int) -> pa.ListArray:
    """So many lists of one length."""
    ends = np.arange(count + 1, dtype=np.int32) * (len(flat) // count)
    return pa.ListArray.from_arrays(pa.array(ends), flat)
