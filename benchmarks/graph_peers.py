"""Algorithms on graphs as users write them without graph libraries: SciPy on the driver, or joins.

Each takes a DataFrame of edges and returns one with the columns ``id`` and ``value``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy.sparse import csgraph

from distvec.spark.graphs import Graph

DAMPING = 0.85


class Method(NamedTuple):
    """Takes the place of an estimator: ``fit`` computes the values of vertices."""

    fit: Callable[[DataFrame], DataFrame]


def links(spark: SparkSession, count: int, parts: int) -> tuple[DataFrame, DataFrame]:
    """Edges between a tenth as many vertices, some of which have many; twice the same frame."""
    each, vertices = count // parts, max(count // 10, 10)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                rng = np.random.default_rng(seed)
                source = rng.integers(vertices, size=each)
                target = (vertices * rng.random(each) ** 3).astype(np.int64)
                yield pa.RecordBatch.from_pydict({"src": 7 * source, "dst": 7 * target})

    edges = spark.range(0, parts, 1, parts).mapInArrow(make, "src long, dst long")
    edges = edges.where("src != dst").distinct().cache()
    edges.count()
    return edges, edges


def pagerank(edges: DataFrame) -> DataFrame:
    """Our own."""
    with Graph(edges) as graph:
        return graph.pagerank().withColumnRenamed("pagerank", "value")


def pagerank_by_scipy(edges: DataFrame, tolerance: float = 1e-8) -> DataFrame:
    """Power iterations over a sparse matrix, to the same error."""
    ids, source, target = _numbered(edges)
    n = ids.size
    degrees = np.bincount(source, minlength=n)
    moves = sp.csr_array((1.0 / degrees[source], (target, source)), shape=(n, n))
    rank, error = np.full(n, 1.0 / n), 1.0
    while error > tolerance * (1.0 - DAMPING):
        new = DAMPING * (moves @ rank + rank[degrees == 0].sum() / n) + (1.0 - DAMPING) / n
        error, rank = np.abs(new - rank).sum(), new
    return _frame(edges, ids, rank)


def pagerank_by_joins(edges: DataFrame, steps: int = 10) -> DataFrame:
    """Power iterations by joins of DataFrames."""
    ends = edges.select(F.col("src").alias("id")).union(edges.select("dst")).distinct()
    degrees = edges.groupBy("src").count()
    out = edges.join(degrees, "src").cache()
    n = ends.count()
    vertices = ends.join(degrees.withColumnRenamed("src", "id"), "id", "left").cache()
    rank = vertices.withColumn("value", F.lit(1.0 / n))
    for _ in range(steps):
        lost = _only(rank.where("count is null").agg(F.sum("value")))
        shares = out.join(rank.select(F.col("id").alias("src"), "value"), "src")
        arrived = shares.groupBy(F.col("dst").alias("id")).agg(
            F.sum(F.col("value") / F.col("count")).alias("arrived")
        )
        base = (1.0 - DAMPING + DAMPING * lost) / n
        value = F.lit(base) + DAMPING * F.coalesce("arrived", F.lit(0.0))
        rank = vertices.join(arrived, "id", "left").select("id", "count", value.alias("value"))
        rank = rank.localCheckpoint()  # else its plan would grow with each step
    return rank.select("id", "value")


def components(edges: DataFrame) -> DataFrame:
    """Our own."""
    with Graph(edges) as graph:
        return graph.connected_components().withColumnRenamed("component", "value")


def components_by_scipy(edges: DataFrame) -> DataFrame:
    """The search of SciPy."""
    ids, source, target = _numbered(edges)
    matrix = sp.csr_array((np.ones(source.size), (source, target)), shape=(ids.size, ids.size))
    _, parts = csgraph.connected_components(matrix, directed=False)
    return _frame(edges, ids, ids[np.unique(parts, return_index=True)[1]][parts])


def components_by_joins(edges: DataFrame) -> DataFrame:
    """The smallest label of all neighbours, by joins, until none changes."""
    swapped = edges.select(F.col("dst").alias("src"), F.col("src").alias("dst"))
    both = edges.select("src", "dst").union(swapped).cache()
    label = both.select(F.col("src").alias("id")).distinct()
    label = label.withColumn("value", F.col("id")).cache()
    changed = 1
    while changed:
        told = both.join(label.withColumnRenamed("id", "src"), "src")
        least = told.groupBy(F.col("dst").alias("id")).agg(F.min("value").alias("least"))
        new = label.join(least, "id").select("id", F.least("value", "least").alias("value"))
        new = new.localCheckpoint()
        old = label.withColumnRenamed("value", "old")
        changed = new.join(old, "id").where("value != old").count()
        label = new
    return label


def error_of_ranks(found: DataFrame, edges: DataFrame) -> float:
    """The sum of the absolute errors."""
    exact = pagerank_by_scipy(edges, 1e-14).withColumnRenamed("value", "exact")
    differences = found.join(exact, "id").select(F.abs(F.col("value") - F.col("exact")).alias("e"))
    return _only(differences.agg(F.sum("e")))


def count_values(found: DataFrame, edges: DataFrame) -> float:
    """The number of components."""
    return float(found.select("value").distinct().count())


def _only(frame: DataFrame) -> float:
    """The number that a frame of one row has; 0 for null."""
    return float(frame.toArrow().column(0)[0].as_py() or 0.0)


def _numbered(edges: DataFrame) -> tuple[Any, Any, Any]:
    """The ids, and both ends of the edges as places among them."""
    ends = edges.select("src", "dst").toArrow()
    ids, places = np.unique(
        np.concatenate([ends.column(k).to_numpy() for k in (0, 1)]), return_inverse=True
    )
    source, target = np.split(places, 2)
    return ids, source, target


def _frame(edges: DataFrame, ids: Any, values: Any) -> DataFrame:
    return edges.sparkSession.createDataFrame(pa.table({"id": ids, "value": values}))
