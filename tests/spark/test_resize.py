"""``PSContext.resize``: the same results on other servers, in the driver and in tasks."""

from __future__ import annotations

import numpy as np
import pytest

from distvec.spark import LogisticLoss, PSContext, run
from optim import LBFGS
from ps_backend.errors import PSError
from tests.served import TOKEN, served
from tests.spark.conftest import random_problem
from tests.waiting import has_ended, wait_for


@pytest.fixture
def started(spark):
    """``started(servers=...)``: a context of its own."""
    if PSContext._active is not None:
        PSContext._active.stop()
    made = []

    def start(**options):
        made.append(PSContext.get_or_create(spark, **options))
        return made[-1]

    yield start
    for one in made:
        one.stop()


def train(worker, array, keyed):
    """One clock of a loop."""
    pulled = array.pull()
    array.push(np.arange(pulled.size), 0.5 * pulled + worker.rank)
    keyed.push(np.array([worker.rank, 7]), np.ones((2, 2)))
    worker.clock()


def results(ps, frame, between):
    """Results of tasks and the driver; ``between`` is called with its place among them."""
    rdd = ps.spark_context.parallelize(range(4), 2)
    weights, gradient, keyed = ps.linspace(0, 1, 50), ps.zeros(50), ps.keys().table(2)
    found = []
    with LogisticLoss(frame, mode="resident", ps=ps) as loss:
        solver = LBFGS(max_iterations=4)
        first = solver.minimize(loss, ps.zeros(loss.dimension)).x
        moved = solver.minimize(
            loss, first, callback=lambda state: between(0) if state.iteration == 2 else None
        )
        found.append(moved.x.numpy())
        ps.accumulate(rdd, lambda rows: (np.array(list(rows)), 1.5), into=gradient)
        between(1)
        ps.accumulate(rdd, lambda rows: (np.array(list(rows)), 1.5), into=gradient)
        run(train, rdd, weights, keyed)
        between(2)
        run(train, rdd, weights, keyed)
        found += [gradient.numpy(), weights.numpy(), keyed.pull(np.array([0, 1, 7]))]
        found.append(np.array(loss(first)[0]))
    return [one.tobytes() for one in found]


def test_results_are_those_on_the_former_servers(spark, started):
    frame = random_problem(spark).frame
    expected = results(started(servers=1), frame, lambda place: None)
    ps, former = PSContext.active(), []
    assert ps.server_pids

    def change(place):
        former.extend(ps.server_pids)
        ps.resize([2, 1, 2][place])
        assert len(ps.server_pids) == [2, 1, 2][place]

    assert results(ps, frame, change) == expected
    for pid in former:
        wait_for(lambda pid=pid: has_ended(pid))
    assert PSContext.get_or_create(spark, servers=2) is ps


def test_no_change_while_tasks_use_the_servers(started):
    ps = started(servers=1)
    x = ps.ones(3)
    with (
        pytest.raises(PSError, match=r"resize\(\) within a round: call it when that has ended"),
        ps.round(x),
    ):
        ps.resize(2)
    with ps.share(x) as shared, pytest.raises(PSError, match="within a share"):
        ps.resize(2)
    assert shared is not None
    ps.resize(2)
    assert len(ps.server_pids) == 2
    np.testing.assert_array_equal(x.numpy(), np.ones(3))


def test_an_error_leaves_the_context_as_it_was(started, monkeypatch):
    ps = started(servers=1)
    x, pids = ps.ones(3), ps.server_pids

    def fail(*_):
        raise PSError("no slot")

    monkeypatch.setattr("distvec.spark.context.start", fail)
    with pytest.raises(PSError, match="no slot"):
        ps.resize(2)
    assert ps.server_pids == pids
    assert float(x.sum()) == 3.0


def test_servers_at_other_addresses(spark, started, tmp_path):
    with served(tmp_path, 1) as one, served(tmp_path, 2) as two:
        ps = started(addresses=one.addresses, token=TOKEN)
        x = ps.arange(10.0)
        with pytest.raises(ValueError, match="needs checkpoint="):
            ps.resize(two.addresses)
        ps.resize(two.addresses, checkpoint=tmp_path / "between")
        assert tuple(ps.client.addresses) == tuple(two.addresses)
        gradient = ps.zeros(10)
        rdd = ps.spark_context.parallelize(range(4), 2)
        ps.accumulate(rdd, lambda rows: (np.array(list(rows)), 1.0), into=gradient)
        np.testing.assert_array_equal((x + gradient).numpy(), np.arange(10) + (np.arange(10) < 4))
        ps.stop()
