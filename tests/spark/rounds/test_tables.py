"""Tables in tasks: rounds, shared arrays and loops add rows, and tasks pull rows."""

from __future__ import annotations

import numpy as np
import pytest

from distvec.spark import run

pytestmark = pytest.mark.spark

ROWS, K = 3000, 4


@pytest.fixture(scope="module")
def rdd(spark):
    return spark.sparkContext.parallelize(range(40), 3)


def test_a_round_adds_rows_and_what_the_client_keeps_is_put_on_the_servers(ps, rdd):
    host = np.random.default_rng(0).normal(size=(ROWS, K))
    table = ps.array(host)
    small = table.T @ table  # (k, k), which the client keeps
    old, kept = table.copy(), small.copy()

    def task(rows):
        rows = list(rows)
        to_table.push([*rows, rows[0]], np.outer([*rows, 1.0], np.arange(K)))
        to_table.push(None, np.arange(K))
        to_small.push([0, -1], 2.0)

    with ps.round(table, small) as (to_table, to_small):
        rdd.foreachPartition(task)
    parts = rdd.glom().collect()
    expected, expected_small = host.copy(), kept.numpy()
    for part in parts:
        np.add.at(expected, [*part, part[0]], np.outer([*part, 1.0], np.arange(K)))
        expected += np.arange(K)
        expected_small[[0, -1]] += 2.0
    np.testing.assert_array_equal(table.numpy(), expected)
    np.testing.assert_array_equal(small.numpy(), expected_small)
    np.testing.assert_array_equal(old.numpy(), host)
    np.testing.assert_array_equal((table @ small).numpy(), table.numpy() @ small.numpy())


def test_tasks_pull_and_push_the_rows_of_a_shared_table(ps, rdd):
    table = ps.zeros((ROWS, K), np.float32)

    def task(rows):
        rows = list(rows)
        before = shared.pull(rows)
        shared.push([*rows, -1], np.arange(K, dtype=np.float32))
        yield shared.shape, (shared.pull(rows) - before).tolist()

    with ps.share(table) as shared:
        assert repr(shared) == f"<TaskArray: shape ({ROWS}, {K}), float32>"
        told = rdd.mapPartitions(task).collect()
        with pytest.raises(ValueError, match=r"\(5,\); allowed are \(1, 4\), one row of shape \(4"):
            shared.push([0], np.ones(5))
        with pytest.raises(IndexError, match="index 3000 is out of bounds"):
            shared.pull([ROWS])
    assert [shape for shape, _ in told] == [(ROWS, K)] * 3
    assert all(row == [0, 1, 2, 3] for _, rows in told for row in rows)
    expected = np.zeros((ROWS, K), np.float32)
    expected[:40] = np.arange(K)
    expected[-1] = 3 * np.arange(K)
    np.testing.assert_array_equal(table.numpy(), expected)
    with pytest.raises(TypeError, match=r"Transposed is not a DistArray; give the table, x\.T"):
        ps.share(table.T)


def test_a_loop_over_a_table_has_numpys_bits(ps, rdd):
    def batches(rank, clocks):
        return [np.arange(t + rank, ROWS, 700) for t in range(clocks)]

    def train(worker, table):
        mine = batches(worker.rank, 5)
        for batch, rows in worker.prefetch(table, mine, lambda batch: batch):
            table.push(batch, -0.3 * rows)
            table.push(batch[:1], 0.1)
            worker.clock()
        return table.shape, len(table), table.pull(mine[0]).shape

    start = np.random.default_rng(1).normal(size=(ROWS, K))
    table = ps.array(start)
    told = run(train, rdd.coalesce(2), table)
    assert told == [((ROWS, K), ROWS, (5, K))] * 2
    expected = start.copy()
    for pair in zip(batches(0, 5), batches(1, 5), strict=True):
        changes = [-0.3 * expected[batch] for batch in pair]
        for batch, change in zip(pair, changes, strict=True):
            change[0] += 0.1
            expected[batch] += change
    assert table.numpy().tobytes() == expected.tobytes()
