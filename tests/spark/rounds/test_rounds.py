"""Rounds from Spark: a partition counts once, in actions and transformations, under any fault."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from distvec.spark.rounds.round import winning_reports
from distvec.spark.task_session import Report
from tests.spark import round_schedules
from tests.spark.round_schedules import Outcome
from tests.spark.standalone import standalone
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spark

ROWS, LONG = 40, 10_000


@pytest.fixture(scope="module")
def rdd(spark):
    return spark.sparkContext.parallelize(range(ROWS), 3)


def held(ps):
    gc.collect()
    return sum(server.used for server in ps.client.status())


def test_an_action_adds_once_a_partition(ps, rdd):
    g = ps.full(3000, 0.5).persist()
    old = g.copy()
    with ps.round(g) as r:
        rdd.foreachPartition(lambda rows: r.push(list(rows), 1.0))
    expected = np.full(3000, 0.5)
    expected[:ROWS] += 1.0
    np.testing.assert_array_equal(g.numpy(), expected)
    np.testing.assert_array_equal(old.numpy(), np.full(3000, 0.5))


@pytest.mark.parametrize(("op", "combine"), [("min", np.minimum), ("max", np.maximum)])
def test_several_arrays_sparse_and_dense(ps, rdd, op, combine):
    low, high = ps.full(5, 10.0, np.float32), ps.full(ROWS, 15, np.int64)
    high += 0

    def task(rows):
        rows = np.array(list(rows))
        to_high.push(rows - ROWS, rows)
        to_low.push(None, rows[:5].astype(np.float32))
        to_high.push(rows[::-1], 2 * rows[::-1])

    with ps.round(low, high, op=op) as (to_low, to_high):
        rdd.foreachPartition(task)
    rows, parts = np.arange(ROWS), rdd.glom().collect()
    expected = combine.reduce([[10.0] * 5, *(part[:5] for part in parts)])
    assert low.numpy().tobytes() == expected.astype(np.float32).tobytes()
    np.testing.assert_array_equal(high.numpy(), combine.reduce([rows * 0 + 15, rows, 2 * rows]))


def test_each_action_counts_and_later_ones_come_after(ps, rdd):
    g = ps.full(1, 1.0)
    with ps.round(g) as r:
        rdd.foreachPartition(lambda rows: r.push([0], 2.0**-53))
        rdd.foreachPartition(lambda rows: r.push([0], 1.0))
    assert g.item() == 4.0
    with pytest.warns(UserWarning, match="no task contributed to the round"), ps.round(g):
        pass
    assert g.item() == 4.0
    with ps.round(g) as r:
        added = rdd.mapPartitions(lambda rows: [r.push([0], 1.0)])
        added.count()
        added.collect()
    assert g.item() == 10.0


def test_a_contributing_rdd_that_nobody_evaluates_is_warned_of(ps, rdd):
    g = ps.zeros(ROWS)
    told = r"no task contributed to the round, .* call rdd\.foreachPartition\(\.\.\.\)"

    def evaluate_nothing(pickled):
        with ps.round(g) as r:
            lazy = rdd.mapPartitions(lambda rows: [r.push(list(rows), 1.0)])
            if pickled:
                lazy._jrdd  # noqa: B018 - pickles the closure

    for pickled in (False, True):
        with pytest.warns(UserWarning, match=told) as warned:
            evaluate_nothing(pickled)
        assert [one.filename for one in warned] == [__file__]
    with ps.round(g) as r:  # not of tasks that have nothing to contribute
        rdd.foreachPartition(lambda rows: [r.push([row], 1.0) for row in rows if row < 0])
    assert g.numpy().tolist() == [0.0] * ROWS
    assert ps.reports.value == {}


def test_a_closure_run_several_times_by_one_task_counts_each(ps, rdd):
    g = ps.zeros(ROWS)
    with ps.round(g) as r:
        added = rdd.mapPartitions(lambda rows: [r.push(list(rows), 1.0)])
        assert added.coalesce(1).count() == 3
    np.testing.assert_array_equal(g.numpy(), np.ones(ROWS))


def test_an_rdd_evaluated_by_two_actions_is_refused(ps, rdd):
    g = ps.ones(LONG).persist()
    used = held(ps)

    def evaluate_twice():
        with ps.round(g) as r:
            added = rdd.mapPartitions(lambda rows: [r.push(None, 1.0)]).union(rdd)
            added.count()
            added.collect()

    with pytest.raises(RuntimeError, match=r"ran in stages \[\d+, \d+\] of Spark"):
        evaluate_twice()
    np.testing.assert_array_equal(g.numpy(), np.ones(LONG))
    assert held(ps) < used + 4 * LONG, "not even half of a contribution"


def test_a_failed_job_changes_nothing_and_leaves_nothing(ps, rdd):
    g = ps.ones(LONG).persist()
    used = held(ps)

    def task(rows):
        r.push(None, 1.0)
        raise ValueError("after adding")

    with pytest.raises(Exception, match="after adding"), ps.round(g) as r:
        rdd.foreachPartition(task)
    np.testing.assert_array_equal(g.numpy(), np.ones(LONG))
    assert held(ps) < used + 4 * LONG, "not even half of a contribution"
    assert ps.reports.value == {}


def test_what_comes_after_the_round_is_refused(ps, rdd):
    g = ps.zeros(ROWS)
    with pytest.warns(UserWarning, match="no task contributed to the round"), ps.round(g) as r:  # noqa: PT031
        late = rdd.mapPartitions(lambda rows: [r.push(list(rows), 1.0)])
        late._jrdd  # noqa: B018 - pickles the closure
    with pytest.raises(Exception, match=r"RoundClosed.*is too late"):
        late.union(rdd).count()
    with pytest.raises(Exception, match=r"run the tasks inside of 'with ps\.round"):
        rdd.foreachPartition(lambda rows: r.push(list(rows), 1.0))


def test_errors_say_what_to_type(ps, rdd):
    g = ps.zeros(ROWS, np.int64)
    with pytest.raises(RuntimeError, match=r"g\.push\(indices, values\)"), ps.round(g) as r:
        r.push([0], 1)
    with pytest.raises(Exception, match=r"values\.astype\('int64'\)"), ps.round(g) as r:
        rdd.foreachPartition(lambda rows: r.push([0], 0.5))
    with pytest.raises(ValueError, match="allowed are 'add', 'min', 'max'"):
        ps.round(g, op="sum").__enter__()
    with pytest.raises(TypeError, match=r"ps\.round\(g\)"):
        ps.round().__enter__()
    with pytest.raises(TypeError, match=r"ps\.array\(values\)"):
        ps.round(np.zeros(3)).__enter__()
    with pytest.raises(TypeError, match="length 1"):
        ps.round(ps.zeros(())).__enter__()
    with pytest.raises(TypeError, match=r"ps\.array\(values\)"):
        ps.share(np.zeros(3))
    with pytest.raises(ValueError, match="given twice"):
        ps.round(g, g).__enter__()


def test_the_last_attempt_of_a_repeated_partition_counts():
    def report(partition, attempt, closure=0, run=0):
        return Report(closure, 7, partition, attempt, run, [1])

    came = [report(1, 4), report(0, 9, closure=1), report(1, 6, run=2), report(1, 6), report(0, 3)]
    assert winning_reports(came) == [
        report(0, 3),
        report(1, 6, run=2),
        report(1, 6),
        report(0, 9, closure=1),
    ]
    assert winning_reports([]) == []


@pytest.mark.long
@pytest.mark.timeout(600)  # some 30 s, but much longer where others use the machine
def test_schedules_of_faults_give_the_bits_of_a_run_without(driver, tmp_path):
    """Eight of those that ``make stress`` runs."""
    rounds = tmp_path / "rounds"
    rounds.mkdir()
    with standalone(tmp_path) as url:
        process = driver(round_schedules.script(url, rounds, round_schedules.SOME))
        said = process.stdout.readline()
        assert said, process.stderr.read()
        process.wait(PATIENCE)
    outcome = Outcome.said(said)
    assert outcome.wrong == []
    assert outcome.missing == []
    assert len(outcome.logs) > len(round_schedules.SOME)
