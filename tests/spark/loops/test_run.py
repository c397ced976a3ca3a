"""Loops in Spark: they converge under any bound, survive lost tasks, and say what happens."""

from __future__ import annotations

import re

import numpy as np
import pytest

from distvec.spark import run
from distvec.spark.jobs.application import free_slots
from distvec.spark.loops.worker_progress import LineWriter, WorkerProgress, WorkerReport, screen
from examples import bounded_staleness
from tests.samples import marked
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

tell = print  # the linter takes prints for forgotten ones

SIZE, ROWS, STEP = 20, 160, 0.1


@pytest.fixture(scope="module")
def system():
    """A least-squares problem of sparse rows, and its solution."""
    rng = np.random.default_rng(3)
    a = rng.normal(size=(ROWS, SIZE)) * (rng.random((ROWS, SIZE)) < 0.4)
    b = a @ rng.normal(size=SIZE) + 0.1 * rng.normal(size=ROWS)
    return a, b, np.linalg.lstsq(a, b, rcond=None)[0]


@pytest.fixture(scope="module")
def rdd(spark, system):
    a, b, _ = system
    return spark.sparkContext.parallelize(list(zip(a, b, strict=True)), 2)


def descend(clocks, batches=3):
    """A training function: stochastic gradient descent on the worker's rows."""

    def train(worker, w):
        rows = list(worker.rows)
        a, b = np.array([row for row, _ in rows]), np.array([target for _, target in rows])
        parts = [slice(k, None, batches) for k in range(batches)]
        order = (parts[clock % batches] for clock in range(worker.now, clocks))
        columns = [np.flatnonzero(a[part].any(axis=0)) for part in parts]
        for part, weights in worker.prefetch(w, order, lambda part: columns[part.start]):
            x, y = a[part][:, columns[part.start]], b[part]
            step = STEP / (1.0 + worker.now / 100)
            w.push(columns[part.start], -step * x.T @ (x @ weights - y) / len(y))
            worker.clock()
        return worker.now

    return train


@pytest.fixture(autouse=True)
def free(spark):
    """Both slots are: a task of the test before may be about to end, and a loop takes the rest."""
    wait_for(lambda: free_slots(spark.sparkContext) == 2)


@pytest.mark.parametrize("staleness", marked([0, 1, 4, None], long=[1, 4]))
def test_a_convex_problem_converges_under_any_bound(ps, rdd, system, staleness):
    a, b, best = system
    w = ps.zeros(SIZE)
    assert run(descend(250), rdd, w, staleness=staleness) == [250, 250]

    def loss(x):
        return float(np.sum((a @ x - b) ** 2))

    # Without a bound one worker may end before the other begins, and the last one drifts towards
    # its own rows: 1.17 of the best loss in the worst order. One worker alone ends above 4.
    factor = 1.25 if staleness is None else 1.05
    assert loss(w.numpy()) < factor * loss(best) < 0.01 * loss(np.zeros(SIZE))


def in_lockstep(system, clocks, start, workers=2, batches=3):
    """What ``descend`` does with staleness 0, in NumPy."""
    a, b, _ = system
    w, shares = start.copy(), np.array_split(np.arange(ROWS), workers)
    for clock in range(clocks):
        changes = []
        for share in shares:
            part = slice(clock % batches, None, batches)
            columns = np.flatnonzero(a[share][part].any(axis=0))
            x, y = a[share][part][:, columns], b[share][part]
            step = STEP / (1.0 + clock / 100)
            changes.append((columns, -step * x.T @ (x @ w[columns] - y) / len(y)))
        for columns, change in changes:
            w[columns] += change
    return w


def test_lockstep_gives_numpys_bits(ps, rdd, system):
    start = np.random.default_rng(1).normal(size=SIZE)
    w = ps.array(start)
    old = w.copy()
    run(descend(20), rdd, w)
    assert w.numpy().tobytes() == in_lockstep(system, 20, start).tobytes()
    assert old.numpy().tobytes() == start.tobytes()


def test_several_vectors_of_several_types_and_none(ps, rdd):
    def train(worker, counts, mass):
        rows = list(worker.rows)
        counts.push([worker.rank], len(rows))
        mass.push(None, np.float32(0.5))
        counts.push([-1, -1], [1, 2])
        seen = counts.pull([0, 1, -1, worker.rank]).tolist(), float(mass.pull().sum())
        worker.clock()
        return seen, counts.pull([0, 1, -1]).tolist(), counts.dtype.name, len(mass)

    counts, mass = ps.zeros(5, np.int64), ps.ones(4, np.float32)
    results = run(train, rdd, counts, mass)
    half = ROWS // 2
    after = [half, half, 6], "int64", 4
    assert results[0] == (([half, 0, 3, half], 6.0), *after)
    assert results[1] == (([0, half, 3, half], 6.0), *after)
    assert counts.numpy().tolist() == [half, half, 0, 0, 6]
    assert mass.numpy().tolist() == [2.0] * 4 and mass.dtype == np.float32
    assert run(lambda worker: worker.clock() or worker.now, rdd) == [1, 1]


def test_prefetch_sees_own_pushes_however_often_the_clock_ticks(ps, rdd):
    def train(worker, w):
        own = []
        for ticks, weights in worker.prefetch(w, [1, 0, 2, 1, 0, 0, 1]):
            own.append(weights[worker.rank])
            w.push([worker.rank], 1.0)
            for _ in range(ticks):
                worker.clock()
        for _ in worker.prefetch(w, [0, 0]):
            break
        return own, list(worker.prefetch(w, []))

    for staleness in (0, 2, None):
        w = ps.zeros(3)
        results = run(train, rdd, w, staleness=staleness)
        assert results == [([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [])] * 2
        assert w.numpy().tolist() == [7.0, 7.0, 0.0]


def test_more_partitions_than_slots(ps, spark):
    rdd = spark.sparkContext.parallelize(range(50), 5)

    def train(worker, w):
        rows = list(worker.rows)
        w.push(rows, 1.0)
        worker.clock()
        return worker.rank, worker.size, w.pull().min()

    w = ps.zeros(50)
    assert run(train, rdd, w) == [(0, 2, 1.0), (1, 2, 1.0)]
    assert w.numpy().tolist() == [1.0] * 50
    assert run(train, spark.sparkContext.emptyRDD(), w) == []


def test_what_workers_print_arrives_after_their_rank(ps, rdd, capsys):
    def train(worker, w):
        import sys

        tell("begin", worker.rank)
        tell("half", end="")
        tell(" and half, ä\n\nlast", end="", file=sys.stderr)
        w.pull()
        tell("x" * 10_000)

    seen = []
    run(train, rdd, ps.zeros(1), progress=seen.append)
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2 * 6
    for rank in range(2):
        begin, half, empty, *last = [line[4:] for line in out if line.startswith(f"[{rank}] ")]
        assert (begin, half, empty) == (f"begin {rank}", "half and half, ä", "")
        assert "".join(last) == "last" + "x" * 10_000
    assert seen[-1] == [1, 1]


def test_slow_workers_are_reported_once(ps, rdd):
    def train(worker, w):
        worker._watch._seconds.extend([0.5 if worker.rank else 0.01] * 10)

    with pytest.warns(
        UserWarning, match="worker 1 is slow: 0.5 s for a clock, the others 0.01"
    ) as all:
        run(train, rdd, ps.zeros(1))
    assert len(all) == 1
    assert all[0].filename == __file__


def test_an_error_in_a_task_is_told_and_changes_nothing(ps, rdd, spark, capsys):
    def train(worker, w):
        tell("before")
        w.push(None, 1.0)
        worker.clock()
        if worker.rank:
            raise ValueError("no such learning rate")
        for _ in range(10**6):
            w.pull()
            worker.clock()

    w = ps.ones(4).persist()
    with pytest.raises(ValueError, match="no such learning rate") as caught:
        run(train, rdd, w)
    assert caught.value.__notes__ == [
        "This was in the worker of rank 1; the arrays given to run stand for what they were."
    ]
    assert 'raise ValueError("no such learning rate")' in str(caught.value.__cause__)
    assert w.numpy().tolist() == [1.0] * 4
    assert "[1] before" in capsys.readouterr().out
    assert free_slots(spark.sparkContext) == 2
    assert run(lambda worker, w: len(list(worker.rows)), rdd, w) == [ROWS // 2] * 2


def test_refusals(ps, rdd, spark):
    def train(worker, w):
        raise AssertionError("not run")

    w = ps.zeros(3)
    with pytest.raises(ValueError, match=r"staleness=-1; allowed are 0 \(lockstep\), 1, 2"):
        run(train, rdd, w, staleness=-1)
    with pytest.raises(ValueError, match="staleness=True"):
        run(train, rdd, w, staleness=True)
    with pytest.raises(ValueError, match="patience=0; must be a number of seconds"):
        run(train, rdd, w, patience=0)
    with pytest.raises(TypeError, match=r"got DataFrame; for a DataFrame pass df\.rdd"):
        run(train, spark.range(3), w)
    with pytest.raises(ValueError, match="given twice"):
        run(train, rdd, w, w)
    with pytest.raises(TypeError, match=r"ps\.array\(values\)"):
        run(train, rdd, np.zeros(3))
    with pytest.raises(IndexError, match=r"index 3 is out of bounds"):
        run(lambda worker, w: w.push([3], 1.0), rdd, w)
    with pytest.raises(ValueError, match=r"values have shape \(3,\); allowed are"):
        run(lambda worker, w: w.push([1, 2], [1.0, 2.0, 3.0]), rdd, w)


def test_without_a_free_slot_it_says_so_in_time(ps, rdd, held_slots, monkeypatch):
    with held_slots(), monkeypatch.context() as patch:
        patch.setattr("distvec.spark.loops.run._START_SECONDS", 0.2)
        with pytest.raises(RuntimeError, match=r"needs 1 slots, but only 0 of .*coalesce"):
            run(lambda worker: None, rdd)
    assert run(lambda worker: worker.size, rdd) == [2, 2]


def test_a_view_tells_who_is_silent_and_who_is_slow():
    view = WorkerProgress(3)
    assert (view.silent(1e9, 1.0), view.missing) == ([], 3)
    view.note(WorkerReport(0, 7, 1, [0.2] * 10), 10.0)
    view.note(WorkerReport(1, 8, 2, [0.19] * 29), 11.0)
    assert (view.clocks, view.missing) == ([1, 2, 0], 1)
    assert view.silent(15.5, 5.0) == [(0, 7), (2, 0)]
    assert view.silent(15.5, 5.0) == []
    view.note(WorkerReport(0, 9, 3), 16.0)
    view.note(WorkerReport(0, 7, 99), 17.0)
    assert view.clocks == [3, 2, 0], "an older attempt says nothing"
    view.note(WorkerReport(1, 8, 3, done=True), 17.0)
    assert view.silent(30.0, 5.0) == [(0, 9)]
    assert view.slow() == []
    view.note(WorkerReport(2, 3, 1, [9.0] * 9), 31.0)
    assert view.slow() == [], "too few clocks to tell"
    view.note(WorkerReport(2, 3, 2, [1.0]), 32.0)
    assert view.slow() == [(2, 9.0, pytest.approx(0.195))]
    assert view.slow() == []


def test_a_line_writer_hands_over_whole_lines():
    lines = []
    writer = LineWriter(lines.append)
    for text in ("a", "b\nc", "\n\n", "d"):
        assert writer.write(text) == len(text)
    assert lines == ["ab", "c", ""]
    writer.close()
    assert lines == ["ab", "c", "", "d"]


def test_a_line_writer_shows_the_end_of_a_bar_and_bounds_what_it_keeps():
    lines = []
    writer = LineWriter(lines.append)
    for percent in range(10_000):
        writer.write(f"\r{percent / 100:.0f} %")
    writer.write("\r\nnext\r\n")
    writer.write("x" * 9000)
    writer.close()
    assert lines == ["100 %", "next", "x" * 8000, "x" * 1000]


def test_a_bar_shows_the_slowest(capsys):
    view = WorkerProgress(2)
    with screen(True) as shown:
        view.note(WorkerReport(0, 1, 5), 0.0)
        view.note(WorkerReport(1, 1, 3), 0.0)
        shown.show(view)
        shown.print_line("[0] text")
    captured = capsys.readouterr()
    assert captured.out == "[0] text\n"
    assert re.search(r"3clock .*of 2 ranks, 1 is at 3, the first at 5", captured.err)


def test_the_example_runs(spark, ps, monkeypatch, capsys):
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    bounded_staleness.main(["--rows", "800", "--clocks", "40"])
    lines = re.findall(r"(\w+): loss (.*), [\d,]+ weights", capsys.readouterr().out)
    assert [name for name, _ in lines] == ["BSP", "SSP", "ASP"]
    assert all(float(loss) < 0.5 for _, loss in lines)
