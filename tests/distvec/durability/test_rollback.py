"""Rollback: a lost server brings a run back to its last checkpoint; it ends with the same bits."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext

import numpy as np
import pytest

import distvec as dv
from distvec.durability.checkpoints import Checkpoints
from distvec.testing.compare import assert_plan
from optim import LBFGS, Adam
from ps_backend.errors import NotDurable, ServerLost
from tests.ps_backend.helpers import impatient
from tests.served import TOKEN, served
from tests.waiting import PATIENCE

N = 3000


def rosenbrock(x):
    head, tail = x[:-1], x[1:]
    return (100.0 * (tail - head * head) ** 2 + (1.0 - head) ** 2).sum()


def fit(ps, solver, callback=None, **options):
    x0 = ps.array(np.linspace(-1.5, 1.5, N))
    return solver.minimize(dv.value_and_grad(rosenbrock), x0, callback=callback, **options)


def test_a_run_survives_a_server(tmp_path):
    solver = LBFGS(max_iterations=20, gradient_tolerance=0.0)
    with dv.local(2, in_process=True) as ps:
        expected = fit(ps, solver)
        x = expected.x.numpy().tobytes()
    seen = []
    with dv.local(2, durability="rollback", checkpoint=tmp_path / "run") as ps:

        def strike(state):
            seen.append(state.iteration)
            if state.iteration == 12:
                os.kill(ps._owner.pids[1], signal.SIGKILL)

        found = fit(ps, solver, strike, every=5)
        assert found.x.numpy().tobytes() == x
        assert (found.fun, found.nfev) == (expected.fun, expected.nfev)
        assert seen == list(range(1, 21)), "each is reported once"
        # What was lost is not kept: the checkpoint before stays the newest.
        os.kill(ps._owner.pids[0], signal.SIGKILL)
        with pytest.raises(ServerLost):
            ps.checkpoint(x=found.x)
        assert ps.restore().number == 20
        assert found.x.numpy().tobytes() == x


def test_a_server_that_is_started_again_at_its_address(tmp_path):
    solver = Adam(max_iterations=20, gradient_tolerance=0.0)
    with dv.local(2, in_process=True) as ps:
        x = fit(ps, solver).x.numpy().tobytes()
    run = tmp_path / "run"
    with (
        served(tmp_path, 2) as servers,
        dv.connect(
            servers.addresses, token=TOKEN, timeout=PATIENCE, durability="rollback", checkpoint=run
        ) as ps,
    ):
        found = fit(ps, solver, lambda state: state.iteration == 12 and servers.again(1), every=5)
        assert found.x.numpy().tobytes() == x
        assert ps.client.lives == (0, 1)
        later = (found.x + 1.0).persist()
        servers.again(0)
        with pytest.raises(ServerLost, match="make these arrays again") as lost:
            float(later.sum())
        assert lost.value.resume_from == str(run)
        assert ps.restore(lost.value.resume_from).number == 20


def test_a_server_that_nobody_starts_again_ends_the_run(tmp_path):
    with dv.local(1, restart=False, durability="rollback", checkpoint=tmp_path) as ps:
        impatient(ps.client)
        with pytest.raises(ServerLost) as lost:
            fit(ps, Adam(), lambda state: os.kill(ps._owner.pids[0], signal.SIGKILL), every=5)
    assert lost.value.resume_from == str(tmp_path)


@pytest.mark.parametrize("is_late", [False, True])
def test_inner_products_are_forgotten_when_a_checkpoint_is_due(tmp_path, monkeypatch, is_late):
    """Also when it is left out as the store is slow: no bit may depend on that."""
    with dv.local(1, in_process=True, durability="rollback", checkpoint=tmp_path) as ps:
        a, b = ps.arange(1000.0).persist(), ps.ones(1000).persist()
        keeper = ps.durability.keeper(ps)
        monkeypatch.setattr(Checkpoints, "is_writing", is_late)
        assert_plan(a @ b, sweeps=1)
        assert float(a @ b) == 499500
        assert_plan(a @ b, sweeps=0)
        with pytest.warns(NotDurable, match="some are left out") if is_late else nullcontext():
            keeper.save(1, {"a": a}, {})
        keeper.close()
        assert_plan(a @ b, sweeps=1)


@pytest.mark.parametrize("calls", [2, 10, 11, 25, 46])
def test_what_was_computed_before_a_loss_changes_no_bit_of_what_comes_after(tmp_path, calls):
    """Inner products that are known by then decide how others are computed."""
    solver = LBFGS(max_iterations=60, gradient_tolerance=0.0)
    with dv.local(2, in_process=True, durability="rollback", checkpoint=tmp_path) as ps:
        curvatures, start = ps.array(np.geomspace(1.0, 1e4, 4000)), ps.zeros(4000).persist()
        fun = dv.value_and_grad(lambda x: (curvatures * (x - 1.0) ** 2).sum() / 2)
        made = []

        def loses(x):
            made.append(x)
            if len(made) == calls:
                raise ServerLost("as if a server were gone")
            return fun(x)

        expected = solver.minimize(fun, start, every=7)
        found = solver.minimize(loses, start, every=7)
        assert [record.value for record in found.history] == [
            record.value for record in expected.history
        ]
        assert found.x.numpy().tobytes() == expected.x.numpy().tobytes()
