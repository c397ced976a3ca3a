"""Vectors that tasks pull and push at any time, and the one way to push, whatever the vector."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pytest

from distvec.spark import run
from ps_backend.errors import BufferLost

pytestmark = pytest.mark.spark

ROWS = 40


@pytest.fixture(scope="module")
def rdd(spark):
    return spark.sparkContext.parallelize(range(ROWS), 3)


def held(ps):
    gc.collect()
    return sum(server.buffers for server in ps.client.status())


def test_tasks_pull_and_push_a_shared_vector_at_any_time(ps, rdd):
    w = ps.ones(ROWS + 1)
    old = w.copy()

    def task(rows):
        rows = list(rows)
        before = shared.pull(rows)
        shared.push([*rows, -1], 2.0)
        yield float((shared.pull(rows) - before).sum())

    with ps.share(w) as shared:
        assert sum(rdd.mapPartitions(task).collect()) == 2.0 * ROWS
        rdd.foreachPartition(lambda rows: shared.push(None, np.arange(ROWS + 1) / 4))
        shared.push([0], [1.0])
        after = shared.snapshot()
        shared.push([0], [1.0])
        pushed = [3.0 + 0.75 * k for k in range(ROWS)] + [7.0 + 0.75 * ROWS]
        assert after.numpy().tolist() == [4.0, *pushed[1:]]
        assert shared.pull([0, -1]).tolist() == [5.0, pushed[-1]]
        assert shared.pull().tolist() == [5.0, *pushed[1:]]
        assert w.numpy().tolist() == [1.0] * (ROWS + 1)
        with pytest.raises(Exception, match="in a task use pull"):
            rdd.foreachPartition(lambda rows: shared.snapshot())
    assert w.numpy().tolist() == [5.0, *pushed[1:]]
    assert old.numpy().tolist() == [1.0] * (ROWS + 1)


def test_a_shared_vector_ends_with_its_block(ps, rdd):
    w = ps.ones(ROWS).persist()
    used = held(ps)
    kept = []

    def fail():
        with ps.share(w) as shared:
            shared.push([0], 1.0)
            late = rdd.mapPartitions(lambda rows: [shared.push(list(rows), 1.0)]).union(rdd)
            late._jrdd  # noqa: B018 - pickles the closure
            kept.extend((shared, late))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    shared, late = kept
    assert w.numpy().tolist() == [1.0] * ROWS
    for use in (shared.pull, lambda: shared.push([0], 1.0), shared.snapshot):
        with pytest.raises(RuntimeError, match="is over; pull and push inside of it, or share"):
            use()
    with pytest.raises(pickle.PicklingError, match="is over; pull and push inside"):
        rdd.foreachPartition(lambda rows: shared.push(list(rows), 1.0))
    ps.zeros(1).persist()  # takes the free along
    with pytest.raises(BufferLost):
        ps.client.pull(shared._array)
    with pytest.raises(
        Exception, match=r"BufferLost: the block 'with ps\.share\(\.\.\.\)' is over"
    ):
        late.count()
    assert held(ps) <= used
    assert w.numpy().tolist() == [1.0] * ROWS


def test_an_array_that_changes_while_it_is_shared_keeps_its_value_and_says_so(ps):
    w = ps.ones(3)

    def change():
        nonlocal w
        with ps.share(w) as shared:
            shared.push(None, 1.0)
            w += 5

    with pytest.raises(RuntimeError, match="without the pushes of the tasks"):
        change()
    assert w.numpy().tolist() == [6.0] * 3


def test_one_spelling_adds_to_all_elements(ps, rdd):
    def pushed(push):
        push(None, 1.0)
        push(None, [1.0, 2.0, 3.0])
        push([0, -1], 1.0)

    x, shared, contributed, trained = (ps.zeros(3) for _ in range(4))
    pushed(x.push)
    one = rdd.coalesce(1)
    with ps.share(shared) as s:
        one.foreachPartition(lambda rows: pushed(s.push))
    with ps.round(contributed) as r:
        one.foreachPartition(lambda rows: pushed(r.push))
    run(lambda worker, w: pushed(w.push), one, trained)
    for array in (x, shared, contributed, trained):
        assert array.numpy().tolist() == [3.0, 3.0, 5.0]
        with pytest.raises(ValueError, match=r"values .*shape \(2,\)"):
            array.push(None, [1.0, 2.0])


def test_without_with_the_block_is_named(ps, rdd):
    w = ps.zeros(3)
    with pytest.raises(
        AttributeError, match=r"'pull' is available .*: with ps\.share\(w\) as shared"
    ):
        ps.share(w).pull()
    with pytest.raises(AttributeError, match=r"'push' is available .*: with ps\.round\(g\) as r"):
        ps.round(w).push([0], 1.0)
    shared = ps.share(w)
    with pytest.raises(pickle.PicklingError, match=r"that the block yields: with ps\.share\(w\)"):
        rdd.foreach(lambda row: shared.push([row], 1.0))
