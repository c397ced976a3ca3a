"""Random walks of a frame of edges, and vectors of nodes that ``Word2Vec`` learns from them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from pyspark.sql import functions as F

from distvec.spark.ml.feature import LINE, Word2Vec
from distvec.spark.walks import random_walks
from tests.distvec.objectives.test_skip_gram import purity

BLOCKS, NODES = 3, 12


@pytest.fixture(scope="module")
def edges(spark):
    """A graph of blocks of nodes: most edges are within a block."""
    rng = np.random.default_rng(0)
    block = np.arange(BLOCKS * NODES) // NODES
    chances = np.where(block[:, None] == block, 0.6, 0.03)
    places = np.argwhere(np.triu(rng.random(chances.shape) < chances, 1))
    rows = [(f"n{one:02}", f"n{other:02}") for one, other in places.tolist()]
    return spark.createDataFrame(rows, ["src", "dst"]).repartition(3)


def test_walks_follow_edges_and_vectors_find_the_blocks(ps, edges):
    both = {(row.src, row.dst) for row in edges.collect()}
    both |= {(dst, src) for src, dst in both}
    walks = random_walks(edges, walks=20, length=30, p=2.0, q=0.5, seed=1).cache()
    found = [row.walk for row in walks.collect()]
    assert len(found) == 20 * BLOCKS * NODES
    for walk in found:
        assert len(walk) == 30
        assert both.issuperset(pairwise(walk))
    again = random_walks(edges.repartition(2), walks=20, length=30, p=2.0, q=0.5, seed=1)
    assert [row.walk for row in again.collect()] == found
    word2vec = Word2Vec(vectorSize=12, inputCol="walk", batchSize=2000, maxIter=3)
    rows = sorted(word2vec.fit(walks).getVectors().collect())
    assert [row.word for row in rows] == [f"n{k:02}" for k in range(BLOCKS * NODES)]
    assert purity(np.array([row.vector.toArray() for row in rows]), NODES) > 0.95


@pytest.mark.parametrize("order", [1, 2])
def test_line_finds_the_blocks(ps, edges, order):
    pairs = edges.select(F.array("src", "dst").alias("edge")).orderBy(F.rand(0)).coalesce(1)
    line = LINE(order=order, vectorSize=12, inputCol="edge", maxIter=100, batchSize=500)
    rows = sorted(line.fit(pairs).getVectors().collect())
    assert purity(np.array([row.vector.toArray() for row in rows]), NODES) > 0.9


def test_directed_walks_end_and_weights_count(spark):
    rows = [(1, 2, 1e9), (1, 3, 1.0), (2, 4, 1.0)]
    chain = spark.createDataFrame(rows, ["from", "to", "w"])
    found = random_walks(
        chain, source="from", target="to", weight="w", directed=True, walks=1, length=5
    )
    assert [row.walk for row in found.collect()] == [["1", "2", "4"], ["2", "4"], ["3"], ["4"]]


def test_bad_edges_raise_an_error(spark):
    edges = spark.createDataFrame(
        [("a", "b", 0.0), ("a", None, 1.0)], "src string, dst string, w double"
    )
    with pytest.raises(ValueError, match="the column of targets has nulls"):
        random_walks(edges)
    with pytest.raises(ValueError, match="a weight is not finite and above 0"):
        random_walks(edges.limit(1), weight="w")
    with pytest.raises(ValueError, match="there are no edges"):
        random_walks(edges.limit(0))
    with pytest.raises(ValueError, match="length=0"):
        random_walks(edges, length=0)
    with pytest.raises(ValueError, match="p=0"):
        random_walks(edges, p=0)
