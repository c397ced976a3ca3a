"""Random walks over a DataFrame of edges: sentences of nodes, from which ``Word2Vec`` learns."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame

from distvec.losses.rows import Ints
from distvec.objectives.random_walks import Neighbours
from distvec.spark.data.columns import find_column, in_few_partitions, number_column
from distvec.spark.jobs.application import is_connect
from distvec.spark.objectives.recommendations import by_blocks

__all__ = ("random_walks",)

_BLOCK = 4096
"""Walks of so many nodes become rows of a frame at a time."""


def random_walks(
    edges: DataFrame,
    *,
    source: str = "src",
    target: str = "dst",
    weight: str | None = None,
    directed: bool = False,
    walks: int = 10,
    length: int = 80,
    p: float = 1.0,
    q: float = 1.0,
    seed: int = 0,
) -> DataFrame:
    """Walk randomly from each node of a graph, as DeepWalk and node2vec do.

    Parameters
    ----------
    edges : DataFrame
        The edges, one a row. Repeated ones add up.
    source, target : str, default "src" and "dst"
        The columns of the nodes of an edge, of numbers or texts.
    weight : str, optional
        The column of weights, above 0. By default all edges weigh the same.
    directed : bool, default False
        Whether walks follow edges from source to target alone.
    walks : int, default 10
        Number of walks from each node.
    length : int, default 80
        Number of nodes of a walk. It ends earlier at a node without neighbours.
    p, q : float, default 1.0
        The return and the in-out parameter of node2vec: a step back to the node before weighs
        ``1 / p`` times as much as one to a neighbour of that node, a step to others ``1 / q``
        times. With 1.0 for both they are DeepWalk's.
    seed : int, default 0
        The seed.

    Returns
    -------
    DataFrame
        The column ``walk``, an array of the nodes as texts. Lazy: cache it for several uses.

    Raises
    ------
    ValueError
        If there is no edge, a node is null, or a weight is not above 0.

    Notes
    -----
    One Spark job collects the edges. Driver and tasks keep 4 bytes an edge and direction, 12 with
    weights. A walk depends on the graph, its first node, its number and the seed alone. A step
    takes a neighbour by weight and rejects it at times (rejection sampling), so no tables of pairs
    of edges are kept.

    References
    ----------
    B. Perozzi, R. Al-Rfou, S. Skiena, "DeepWalk: online learning of social representations", 2014.
    A. Grover, J. Leskovec, "node2vec: scalable feature learning for networks", 2016.

    Examples
    --------
    >>> from distvec.spark.walks import random_walks
    >>> edges = spark.createDataFrame([("a", "b"), ("b", "c"), ("c", "a")], ["src", "dst"])
    >>> found = random_walks(edges, walks=2, length=5)
    >>> found.count(), len(found.first().walk)
    (6, 5)
    """
    if is_connect(edges.sparkSession):
        raise NotImplementedError(
            "random_walks sends the graph by a broadcast, which Spark Connect lacks; use a classic "
            "SparkSession"
        )
    for name, value in (("walks", walks), ("length", length)):
        if value < 1:
            raise ValueError(f"{name}={value}; must be 1 or more")
    for name, number in (("p", p), ("q", q)):
        if not 0.0 < number < math.inf:
            raise ValueError(f"{name}={number}; must be finite and above 0")
    graph = _read(edges, (source, target), weight, directed=directed)
    session = edges.sparkSession
    known = session.sparkContext.broadcast(graph)
    task = partial(_walk, known, walks, length, (1.0 / p, 1.0 / q), seed)
    return by_blocks(session, np.arange(len(graph.names)), _BLOCK, task, "walk array<string>")


class _Graph(NamedTuple):
    names: pa.Array
    """Of the nodes, as texts, ascending."""
    neighbours: Neighbours


def _read(edges: DataFrame, ends: tuple[str, str], weight: str | None, *, directed: bool) -> _Graph:
    columns = [
        find_column(edges, name, argument)[0].cast("string").alias(argument)
        for name, argument in zip(ends, ("source", "target"), strict=True)
    ]
    if weight is not None:
        columns.append(number_column(edges, weight, "weight"))
    found = in_few_partitions(edges.select(*columns)).toArrow().combine_chunks()
    if not found.num_rows:
        raise ValueError("there are no edges; random walks need at least one")
    for name in found.column_names:
        if found.column(name).null_count:
            raise ValueError(f"the column of {name}s has nulls; drop such rows: edges.dropna()")
    weights = None if weight is None else found.column("weight").to_numpy()
    if weights is not None and not (np.isfinite(weights) & (weights > 0.0)).all():
        raise ValueError("a weight is not finite and above 0; drop such edges")
    both = pa.chunked_array(
        [*found.column("source").chunks, *found.column("target").chunks]
    ).dictionary_encode()
    coded = both.combine_chunks()
    order = np.argsort(coded.dictionary.to_numpy(zero_copy_only=False))
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.arange(order.size)
    sources, targets = ranks[coded.indices.to_numpy()].reshape(2, -1)
    if not directed:
        sources, targets = np.append(sources, targets), np.append(targets, sources)
        weights = None if weights is None else np.append(weights, weights)
    names = coded.dictionary.take(pa.array(order))
    return _Graph(names, Neighbours.of(order.size, sources, targets, weights))


def _walk(
    known: Broadcast[_Graph],
    walks: int,
    length: int,
    factors: tuple[float, float],
    seed: int,
    places: Ints,
) -> pa.RecordBatch:
    names, neighbours = known.value
    back, away = factors
    found = np.concatenate(
        [
            neighbours.walks(places, length, back=back, away=away, seed=seed, number=number)
            for number in range(walks)
        ]
    )
    is_there = found >= 0
    ends = np.append(0, np.cumsum(is_there.sum(axis=1))).astype(np.int32)
    texts = names.take(pa.array(found[is_there]))
    return pa.RecordBatch.from_arrays([pa.ListArray.from_arrays(pa.array(ends), texts)], ["walk"])
