"""Rounds over keyed arrays: each partition counts once, in the order of partitions."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark import TaskContext

import distvec as dv
from ps_backend.client import Key, KeyBatch, Winner
from ps_backend.errors import PSError, RoundClosed
from ps_backend.program.keys import bucket_of, server_of
from ps_backend.program.row_program import RowProgram, Scatter
from ps_backend.program.sweep import Sweep
from ps_backend.program.types import ValueType

pytestmark = pytest.mark.spark

ROWS = 40
ADD = RowProgram(Sweep((ValueType("float64"),), (), (), (0,), ()), scatters=(Scatter(0, 0, "add"),))


@pytest.fixture(scope="module")
def rdd(spark):
    return spark.sparkContext.parallelize(range(ROWS), 3)


def contributions(partition):
    """Keys, some in all partitions and some twice, and values whose order shows in the bits."""
    rng = np.random.default_rng(partition)
    keys = np.append(rng.integers(-30, 30, 40), [partition - 2**63, 7])
    return keys, rng.normal(size=len(keys)) * 10.0 ** rng.integers(-8, 8, len(keys))


@dv.rows
def shrunk(w, by):
    return {"w": w * by}


def test_partitions_count_in_their_order(ps, rdd):
    space = ps.keys()
    w, g, other = space.zeros(), ps.zeros(3), ps.keys().zeros("int64")
    w.push([7, 99], [0.25, 0.5])
    expected = {7: 0.25, 99: 0.5}

    def task(rows):
        keys, values = contributions(TaskContext.get().partitionId())
        to_w.push(keys, values)
        to_g.push([1], 1.0)
        to_w.apply(shrunk, keys, w, 0.75)
        to_other.push([5, 5], [1, 2])

    before = w.pull([7])[0]
    with ps.round(w, g, other) as (to_w, to_g, to_other):
        rdd.foreachPartition(task)
        assert w.pull([7])[0] == before and len(space) == 2
    order = []
    for partition in range(3):
        keys, values = contributions(partition)
        batch = KeyBatch.of(keys)
        for key, value in zip(batch.keys.tolist(), batch.combined(values, "add"), strict=True):
            order += [] if key in expected else [key]
            expected[key] = (expected.get(key, 0.0) + value) * 0.75
    assert dict(zip(space.keys().tolist(), w.pull(space.keys()).tolist(), strict=True)) == expected
    inserted = np.array([7, 99, *order])
    by_bucket = np.argsort(bucket_of(inserted), kind="stable")
    assert space.keys().tolist() == inserted[by_bucket].tolist()
    assert g.numpy().tolist() == [0, 3, 0] and other.pull([5]).tolist() == [9]


def test_a_partition_counts_once_whatever_is_repeated(ps, rdd):
    w = ps.keys().zeros()

    def twice(rows):
        rows = list(rows)
        r.push(rows, 1.0)
        return rows

    with ps.round(w) as r:  # before a shuffle, and run through twice
        counted = rdd.mapPartitions(twice).map(lambda k: (k % 2, k)).groupByKey()
        assert counted.count() == 2
    np.testing.assert_array_equal(w.pull(range(ROWS)), 1.0)

    # What an attempt staged that lost, as Spark runs several of one partition at times.
    name, remote = "by hand", w.space.remote
    for attempt in (1, 2):
        key = Key(0, attempt, 0, 0)
        remote.stage(name, key, ADD, [w.number], KeyBatch.of([1, 2]), [np.full(2, 1.0 * attempt)])
    ps.client.commit_totals(name, [], {0: [Winner(0, 2)]})
    assert w.pull([1, 2]).tolist() == [3.0, 3.0]
    with pytest.raises(RoundClosed):
        remote.stage(name, Key(0, 3), ADD, [w.number], KeyBatch.of([1]), [np.ones(1)])


def test_an_exception_and_a_loser_change_nothing(ps, rdd):
    w, g = ps.keys().zeros(), ps.zeros(2)
    w.push([1], 1.0)

    def broken():
        with ps.round(w, g) as (to_w, to_g):
            rdd.foreachPartition(lambda rows: (to_w.push(list(rows), 1.0), to_g.push([0], 1.0)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    with pytest.raises(PSError, match="this server has no updates of"):
        ps.client.commit_totals("unknown", [], {0: [Winner(0, 0)]})
    assert w.pull([1, 2]).tolist() == [1.0, 0.0] and len(w.space) == 1
    assert g.numpy().tolist() == [0.0, 0.0]


def test_beyond_the_budget_nothing_changes_anywhere(ps, rdd):
    space = ps.keys(most_bytes=2_000_000)
    w, g = space.table(16), ps.zeros(1)
    w.push(range(100), 1.0)
    more = np.arange(40_000)
    more = more[(server_of(more, 2) == 1) | (more < 200)]  # those of the first server fit
    with pytest.raises(dv.OutOfBudget), ps.round(w, g) as (r, to_g):
        rdd.foreachPartition(lambda rows: (r.push(more, 1.0), to_g.push([0], 1.0)))
    assert len(space) == 100 and w.pull([0, 100])[:, 0].tolist() == [1.0, 0.0]
    assert g.item() == 0.0
    with ps.round(w) as r:
        rdd.foreachPartition(lambda rows: r.push(range(100, 110), 1.0))
    assert w.pull([100])[0, 0] == 3.0


def test_operations_steps_and_refusals(ps, rdd):
    w = ps.keys().full(5.0)
    with ps.round(w, op="min") as r:
        rdd.foreachPartition(lambda rows: r.push([1, 2], [min(rows), 9.0]))
    assert w.pull([1, 2]).tolist() == [0.0, 5.0]
    x = ps.keys().zeros()
    x.optimizer(dv.rows.adagrad(0.5))
    with ps.round(x) as r:
        rdd.foreachPartition(lambda rows: r.step([3], [1.0]))
    assert x.pull([3])[0] == pytest.approx(-0.5 * (1 + 2**-0.5 + 3**-0.5))
    with (
        pytest.raises(RuntimeError, match="takes contributions from Spark tasks"),
        ps.round(w) as r,
    ):
        r.push([1], 1.0)
    told = r"cannot be part of a round, .* write it as @dv\.rows, or call space\.apply"
    with pytest.raises(TypeError, match=told), ps.round(w) as r:
        r.apply(dv.rows.plugin("package.module.function"), [1], w)


def test_accumulate_takes_keyed_arrays(ps, rdd):
    space = ps.keys()
    w, t, g = space.zeros(), space.table(2), ps.zeros(3)

    def both(rows):
        keys = np.array(list(rows)) % 20
        yield {"w": (keys, 2.0), "g": 1.0}
        yield {"t": (["some text"], [1.0, 2.0])}

    messages = ps.counters.messages
    ps.accumulate(rdd, both, into={"w": w, "t": t, "g": g})
    assert ps.counters.messages == messages + 4  # to a server; one of them makes what g was
    assert w.pull(range(21)).tolist() == [4.0] * 20 + [0.0]
    assert t.pull(["some text", "another"]).tolist() == [[3.0, 6.0], [0.0, 0.0]]
    assert g.numpy().tolist() == [3.0] * 3
    ps.accumulate(rdd, lambda rows: (list(rows), 1.0), into=w, op="max")
    assert w.pull([0, 20]).tolist() == [4.0, 1.0]
    for wrong, told in ((1.0, "a float"), (([1], 1.0, 2.0), "a tuple of 3")):
        with pytest.raises(TypeError, match=rf"{told}; to a keyed array return \(keys, values\)"):
            ps.accumulate(rdd, lambda rows, wrong=wrong: wrong, into=w)


def test_the_number_of_servers_never_shows(ps, rdd):
    """The two of the context beside three, where the same is staged by hand in another order."""

    def task(rows):
        r.push(*keys_and_rows(TaskContext.get().partitionId()))

    t = ps.keys().table(2, init=dv.uniform(-1, 1, seed=3))
    with ps.round(t) as r:
        rdd.foreachPartition(task)
    with dv.local(servers=3, in_process=True) as others:
        u = others.keys().table(2, init=dv.uniform(-1, 1, seed=3))
        program, remote = RowProgram.scatter(u.type, "add"), u.space.remote
        for partition in (2, 0, 1):
            keys, rows = keys_and_rows(partition)
            batch = KeyBatch.of(keys)
            joined = [batch.combined(rows, "add")]
            remote.stage("by hand", Key(partition, 0), program, [u.number], batch, joined)
        others.client.commit_totals("by hand", [], {0: [Winner(k, 0, 1) for k in range(3)]})
        keys = u.space.keys()
        assert t.space.keys().tolist() == keys.tolist()
        assert t.pull(keys).tobytes() == u.pull(keys).tobytes()


def keys_and_rows(partition):
    keys, values = contributions(partition)
    return keys, np.stack([values, -values], axis=1).astype(np.float32)
