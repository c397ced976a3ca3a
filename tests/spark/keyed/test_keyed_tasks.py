"""Keyed arrays in tasks of Spark: rows of keys, row functions, views, and what is the driver's."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import distvec as dv
from distvec.spark import run

pytestmark = pytest.mark.spark

ROWS = 40


@pytest.fixture(scope="module")
def rdd(spark):
    return spark.sparkContext.parallelize(range(ROWS), 3)


@dv.rows
def doubled(w, z, more):
    return {"w": 2 * w, "z": z + 1}, w + more


def test_tasks_use_rows_of_keys(ps, rdd):
    space = ps.keys()
    w, z = space.zeros(), space.table(3, init=dv.uniform(0, 1, seed=4))
    w.push([0, -5], [8.0, 1.0])

    def task(rows):
        keys = np.array(list(rows), np.int64)
        w.push(keys, 1.0)
        found = space.apply(doubled, keys, w, z, np.ones(len(keys)))
        view = z.at(keys)
        view.push(1.0)
        yield found.sum(), view.pull(), space.contains([-5, keys[0], 1000]).tolist()
        w.assign(["some text"], [3.0])

    initial = z.pull(range(ROWS))
    found = rdd.mapPartitions(task).collect()
    assert [there for _, _, there in found] == [[True, True, False]] * 3
    np.testing.assert_allclose(
        np.concatenate([rows for _, rows, _ in found]), initial + 2, rtol=1e-6
    )
    assert w.pull([0, 1, -5]).tolist() == [18.0, 2.0, 1.0]
    assert w.pull(["some text"]).tolist() == [3.0]
    assert len(space) == ROWS + 2
    assert float(w @ w) == 18.0**2 + 4.0 * (ROWS - 1) + 1 + 9


def test_tasks_take_steps(ps, rdd):
    w = ps.keys().zeros()
    w.optimizer(dv.rows.adagrad(0.5))

    def task(rows):
        keys = list(rows)
        w.step(keys, np.ones(len(keys)))
        w.at(keys).step(np.ones(len(keys)), step_size=1.0)

    rdd.foreachPartition(task)
    np.testing.assert_allclose(w.pull([0, ROWS - 1, ROWS]), [-0.5 - 0.5**0.5] * 2 + [0])


def test_what_tasks_made_or_unpickled_frees_nothing(ps, rdd):
    w = ps.keys().zeros()
    view = w.at([1, 2, 3])
    view.push(1.0)
    for _ in range(2):
        assert (
            rdd.mapPartitions(lambda _: [view.pull().sum(), w.pull([1])[0]]).collect() == [3, 1] * 3
        )
    rdd.foreachPartition(lambda _: w.space.zeros().push([9], 1.0))
    assert view.pull().tolist() == [1, 1, 1]
    assert w.space.keys().tolist() == pickle.loads(pickle.dumps(w)).space.keys().tolist()


def test_expressions_are_for_the_driver(ps, rdd):
    w = ps.keys().zeros()
    w.push([1], 1.0)
    with pytest.raises(Exception, match="whole arrays, such as w @ w, on the driver"):
        rdd.mapPartitions(lambda _: [float(w @ w)]).collect()


def test_loops_and_shares_take_them(ps, rdd):
    t, w = ps.keys().zeros(), ps.zeros(2)

    def train(worker, t, w):
        keys = np.array(list(worker.rows), np.int64)
        for k in range(worker.now, 2):
            t.push(keys, 1.0 + k)
            w.push([0], 1.0)
            worker.clock()
        return worker.rank

    ranks = run(train, rdd, t, w)  # as many as there are free slots
    assert t.pull([0, ROWS - 1]).tolist() == [3.0, 3.0]
    assert w.numpy().tolist() == [2.0 * len(ranks), 0.0]
    with ps.share(t) as shared:
        rdd.foreachPartition(lambda rows: shared.push(list(rows), 1.0))
    assert t.pull([0]).tolist() == [4.0]
