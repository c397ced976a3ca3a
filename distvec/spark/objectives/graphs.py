"""The edges of a graph in blocks on the executors, and jobs over them.

Tasks keep the edges by the vertex that they lead to, and the neighbours of each vertex. In a step
they pull the values of the neighbours of their vertices, and push those of their vertices. A vertex
is computed by one task, from its neighbours in a fixed order, so values are the same for any number
of partitions and servers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from distvec import DistArray
from distvec.graphs import INWARD, MUTUAL
from distvec.losses.graph_steps import (
    Edges,
    NeighbourStep,
    add_triangles,
    orient,
    sort_edges,
    vertices_of,
)
from distvec.losses.labels import Numbers
from distvec.losses.rows import Ints
from distvec.spark.context import PSContext
from distvec.spark.data.columns import Columns, in_few_partitions
from distvec.spark.data.dataset import Dataset
from distvec.spark.data.rows import entry_rows
from distvec.spark.jobs.interpreter import use_driver_python
from distvec.spark.objectives.block_rounds import run_in_round
from distvec.spark.objectives.evaluation_task import LoadedPartitions, LossSpec
from distvec.spark.objectives.evaluator import Evaluator, WaitingTasks, standing_tasks
from distvec.spark.objectives.partition import Selection, Values
from distvec.spark.rounds.contribute import Contributor
from distvec.spark.task_session import singleton
from ps_backend.client import Client, StoredArray

_TOGETHER = 1 << 22
"""So many neighbours of neighbours are pulled at a time."""

_MOST_VERTICES = np.iinfo(np.int32).max


class EdgeBlocks:
    """The edges of a DataFrame with the columns ``source``, ``target`` and, perhaps, ``weight``.

    Making it runs a Spark job with a shuffle for the ids, and each of ``inward`` and ``mutual``
    another one when it is first used. ``ValueError`` for null ids and unusable weights.
    """

    def __init__(self, edges: DataFrame, partitions: int) -> None:
        use_driver_python(edges)
        edges = in_few_partitions(edges)
        self.ids = _ids(edges)
        """Those of the vertices, ascending; the number of a vertex is its place."""
        self._edges = edges
        self.is_weighted = "weight" in edges.columns
        if self.is_weighted:
            _check_weights(edges)
        # More partitions than vertices would be empty, and each a task of each job.
        self._partitions = min(partitions, len(self.ids))
        self._known = edges.sparkSession.sparkContext.broadcast(self.ids)

    @cached_property
    def inward(self) -> Dataset:
        """A row for each vertex with edges to it."""
        return self._by_vertex(self._edges, "target", "source")

    @cached_property
    def mutual(self) -> Dataset | None:
        """A row for each vertex with other vertices beside it; None if there is none."""
        apart = self._edges.where(F.col("source") != F.col("target"))
        swapped = F.struct(F.col("target").alias("source"), F.col("source").alias("target"))
        both = apart.select(F.inline(F.array(F.struct("source", "target"), swapped)))
        return None if apart.isEmpty() else self._by_vertex(both, "target", "source")

    @cached_property
    def outward(self) -> Dataset:
        """A row for each vertex with edges from it."""
        return self._by_vertex(self._edges, "source", "target")

    def side(self, name: str) -> Dataset | None:
        """The neighbours that an algorithm asks for."""
        found: Dataset | None = self.inward if name == INWARD else self.mutual
        return found

    def close(self) -> None:
        """Remove the blocks."""
        for name in ("inward", "mutual", "outward"):
            if (rows := vars(self).pop(name, None)) is not None:
                rows.close()

    def _by_vertex(self, edges: DataFrame, own: str, other: str) -> Dataset:
        weight = F.col("weight") if "weight" in edges.columns else F.lit(1.0)
        chosen = edges.select(own, other, weight.alias("weight"))
        rows = chosen.repartition(self._partitions, own)
        return Dataset(
            rows, Columns(), Numbers(), prepare=partial(_rows_of, self._known, own, other)
        )


def _ids(edges: DataFrame) -> pa.Array:
    """The distinct ids, ascending."""
    ends = edges.select(F.explode(F.array("source", "target")))
    ids = ends.distinct().toArrow().column(0).combine_chunks()
    if ids.null_count:
        raise ValueError("an edge has a null id; drop such rows: edges.dropna()")
    if not len(ids):
        raise ValueError("the graph has no edges; it needs at least one")
    if len(ids) > _MOST_VERTICES:
        raise ValueError(f"the graph has {len(ids):,} vertices; the most is {_MOST_VERTICES:,}")
    return ids.take(pc.array_sort_indices(ids))


def _check_weights(edges: DataFrame) -> None:
    weight = F.col("weight")
    is_bad = weight.isNull() | F.isnan(weight) | (weight < 0.0) | (weight == math.inf)
    bad = edges.where(is_bad).first()
    if bad is not None:
        raise ValueError(
            f"the edge from {bad.source!r} to {bad.target!r} has the weight {bad.weight}; weights "
            "must be finite and 0 or more: drop such rows"
        )


def _rows_of(
    known: Broadcast[pa.Array], own: str, other: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The edges of each vertex together, as ``sort_edges`` orders them."""
    table = pa.Table.from_batches([*batches])
    rows, columns = (
        pc.index_in(table.column(name), value_set=known.value).to_numpy().astype(np.int64)
        for name in (own, other)
    )
    edges = sort_edges(rows, columns, table.column("weight").to_numpy())
    yield entry_rows(edges.rows, edges.starts, len(known.value), edges.columns, edges.weights)


class GraphJobs:
    """The steps of one run of an algorithm. Resident tasks stay until ``close``."""

    def __init__(self, ps: PSContext, blocks: EdgeBlocks) -> None:
        self.ps, self._blocks, self._size = ps, blocks, len(blocks.ids)
        self._standing: list[WaitingTasks] = []
        ps.release_slots()

    def close(self) -> None:
        """End the tasks."""
        while self._standing:
            self._standing.pop().close()

    def stepper(self, side: str, kind: str) -> Callable[[DistArray], DistArray]:
        """Combine the values of neighbours. Costs a request per server, and two of each task."""
        rows = self._blocks.side(side)
        if rows is None:
            return lambda values: values * 0
        work = LossSpec(NeighbourStep(kind), intercept=False)
        self._standing.append(standing_tasks(self.ps, rows, work))
        evaluator = Evaluator(self.ps, rows, work, self._standing[-1])
        return lambda values: evaluator.advance((values,), values.type)

    def degrees(self, side: str) -> DistArray:
        """The number of neighbours. One Spark job."""
        rows = self._blocks.side(side)
        return self._zeros() if rows is None else self._sum(rows, _push_degrees)

    def outward_weights(self) -> DistArray:
        """The sums of the weights of the edges from each vertex. One Spark job."""
        if self._blocks.is_weighted:
            return self._sum(self._blocks.outward, _push_sums, "float64")
        return self._sum(self._blocks.inward, _push_columns).astype("float64")

    def triangles(self) -> DistArray:
        """The triangles of each vertex. Four Spark jobs."""
        rows = self._blocks.mutual
        if rows is None:
            return self._zeros()
        degrees = self.degrees(MUTUAL)
        counts = self._sum(rows, partial(_push_upward_degrees, _stored(degrees)))
        starts: Any = np.cumsum(counts) - counts
        lists = _Lists(_stored(degrees), _stored(counts), _stored(starts))
        flat = self._sum(rows, partial(_push_lists, lists), length=int(counts.sum()))
        return self._sum(rows, partial(_push_triangles, lists, _stored(flat)))

    def _zeros(self, dtype: str = "int64", length: int | None = None) -> DistArray:
        found: DistArray = self.ps.zeros(self._size if length is None else length, dtype=dtype)
        return found

    def _sum(
        self, rows: Dataset, task: Any, dtype: str = "int64", length: int | None = None
    ) -> DistArray:
        return run_in_round(self.ps, rows, partial(self._zeros, dtype, length), task)[0]


def _stored(array: DistArray) -> StoredArray:
    array.persist()
    return StoredArray(array.buffer_id, array.type)


def _push_degrees(client: Client, selection: Selection, r: Contributor) -> None:
    r.push(vertices_of(selection.rows), np.diff(_edges_of(selection).starts))


def _push_columns(client: Client, selection: Selection, r: Contributor) -> None:
    counts = np.bincount(_matrix(selection).indices, minlength=selection.features.size)
    r.push(selection.features, counts)


def _push_sums(client: Client, selection: Selection, r: Contributor) -> None:
    edges = _edges_of(selection)
    r.push(edges.rows, np.add.reduceat(edges.weights, edges.starts[:-1]))


def _matrix(selection: Selection) -> Any:
    return selection.rows.matrix


def _edges_of(selection: Selection) -> Edges:
    matrix = _matrix(selection)
    columns = selection.features[matrix.indices]
    return Edges(vertices_of(selection.rows), matrix.indptr, columns, matrix.data)


# --- triangles ------------------------------------------------------------------------------------


class _Lists(NamedTuple):
    """What is known of the vertices when edges are oriented."""

    degrees: StoredArray
    counts: StoredArray
    """How many neighbours above it each vertex has."""
    starts: StoredArray
    """Where the list of these begins in the array of all lists."""


def _pull(client: Client, array: StoredArray, places: Ints) -> Values:
    """Elements at some places, each of which is pulled once."""
    distinct, inverse = np.unique(places, return_inverse=True)
    pulled: Values = singleton(LoadedPartitions).vectors().pull(client, *array, distinct)
    return pulled[inverse]


def _upward(client: Client, selection: Selection, degrees: StoredArray) -> Edges:
    edges = _edges_of(selection)
    found = _pull(client, degrees, np.concatenate([edges.columns, edges.rows]))
    return orient(edges, found[: edges.columns.size], found[edges.columns.size :])


def _push_upward_degrees(
    degrees: StoredArray, client: Client, selection: Selection, r: Contributor
) -> None:
    edges = _upward(client, selection, degrees)
    r.push(edges.rows, np.diff(edges.starts))


def _push_lists(lists: _Lists, client: Client, selection: Selection, r: Contributor) -> None:
    edges = _upward(client, selection, lists.degrees)
    starts = _pull(client, lists.starts, edges.rows)
    r.push(_ranges(starts, np.diff(edges.starts)), edges.columns)


def _push_triangles(
    lists: _Lists, flat: StoredArray, client: Client, selection: Selection, r: Contributor
) -> None:
    """Pull the lists of neighbours, those of some rows at a time, and intersect them."""
    edges = _upward(client, selection, lists.degrees)
    found = np.zeros(lists.degrees.type.space.length, np.int64)
    each = _pull(client, lists.counts, edges.columns)
    sizes = np.append(0, np.cumsum(each))[edges.starts]
    first = 0
    while first < edges.rows.size:
        enough = np.searchsorted(sizes, sizes[first] + _TOGETHER, side="right") - 1
        last = max(first + 1, int(enough))
        part = slice(edges.starts[first], edges.starts[last])
        distinct, places = np.unique(edges.columns[part], return_inverse=True)
        if distinct.size:
            counts = _pull(client, lists.counts, distinct)
            wanted = _ranges(_pull(client, lists.starts, distinct), counts)
            others = client.gather(*flat, wanted) if wanted.size else wanted
            starts = edges.starts[first : last + 1] - edges.starts[first]
            own = edges.rows[first:last], starts, edges.columns[part]
            add_triangles(*own, places, np.append(0, np.cumsum(counts)), others, found)
        first = last
    at = np.flatnonzero(found)
    r.push(at, found[at])


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """The numbers ``start, ..., start + length - 1`` of all pairs."""
    ends = np.cumsum(lengths)
    shifts = np.repeat(starts - (ends - lengths), lengths)
    found: Ints = np.arange(shifts.size) + shifts
    return found
