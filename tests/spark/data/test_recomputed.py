"""Data that Spark computes again: rows in another order, in other partitions, and other rows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from distvec.spark import LogisticLoss
from distvec.spark.data.rows import SparseRows, row_digests

ROWS, SIZE, PARTITIONS = 90, 40, 3


@pytest.fixture
def restless(spark, tmp_path):
    """A frame whose rows come in another order each time it is computed, and what else it does."""
    behaviour = tmp_path / "behaviour"
    values = np.random.default_rng(3).normal(size=(ROWS, SIZE))

    def rows_of(partition, numbers):
        list(numbers)
        does = behaviour.read_text()
        if does == "moves rows":
            partition = (partition + 1) % PARTITIONS
        found = [
            ([float(x) + (does == "changes") for x in values[k]], float(k % 2))
            for k in range(partition, ROWS, PARTITIONS)
        ]
        random.SystemRandom().shuffle(found)
        return found

    def does(what):
        behaviour.write_text(what)

    does("nothing else")
    rdd = spark.sparkContext.parallelize(range(PARTITIONS), PARTITIONS)
    rows = rdd.mapPartitionsWithIndex(rows_of)
    return spark.createDataFrame(rows, "features array<double>, label double"), does


def lose_blocks(loss):
    """As if all executors were lost."""
    loss.data._rdd.unpersist(blocking=True).persist()


def bits(result):
    value, gradient = result
    return float(value), gradient.numpy().tobytes()


@pytest.mark.parametrize("mode", ["job", "resident"])
def test_rows_in_another_order_give_the_same_bits(ps, restless, mode):
    with LogisticLoss(restless[0], mode=mode, ps=ps) as loss:
        w = ps.arange(SIZE) / SIZE
        first = bits(loss(w))
        if mode == "resident":
            loss._evaluator.standing_tasks.close()
        lose_blocks(loss)
        assert bits(loss(w)) == first


def test_rows_in_other_partitions_count_once_each_with_a_warning(ps, restless):
    frame, does = restless
    with LogisticLoss(frame, ps=ps) as loss:
        w = ps.arange(SIZE) / SIZE
        value, gradient = loss(w)
        expected = float(value), gradient.numpy()
        does("moves rows")
        lose_blocks(loss)
        with pytest.warns(RuntimeWarning, match=r"in other partitions.*df = df\.checkpoint\(\)"):
            value, gradient = loss(w)
        assert float(value) == pytest.approx(expected[0], rel=1e-14)
        np.testing.assert_allclose(gradient.numpy(), expected[1], rtol=1e-11, atol=1e-16)
        assert bits(loss(w)) == (float(value), gradient.numpy().tobytes())


def test_other_rows_are_an_error_each_time(ps, restless):
    frame, does = restless
    with LogisticLoss(frame, ps=ps) as loss:
        w = ps.zeros(SIZE)
        loss(w)
        does("changes")
        lose_blocks(loss)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="the data changed when Spark recomputed it"):
                loss(w)


def test_digests_know_a_row_in_whatever_order_and_no_other():
    rows = SparseRows(
        9,
        np.array([2, 0, 2, 1, 2]),
        np.array([3, 5, 3, 5, 3, 5, 3], np.int32),
        np.array([1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 1.0]),
    )
    labels = np.array([1.0, 1.0, 1.0, 1.0, 1.0])
    found = row_digests(rows, labels)
    assert found[0] == found[4], "features in another order"
    assert len(set(found.tolist())) == 4
    assert not set(found.tolist()) & set(row_digests(rows, -labels).tolist())
    assert not set(found.tolist()) & set(row_digests(rows, labels, labels / 2).tolist())
