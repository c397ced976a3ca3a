"""Replay: a server is killed anywhere, and the program that used it only waits."""

from __future__ import annotations

import os
import shutil
import signal
from concurrent.futures import wait
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import distvec as dv
from optim import LBFGS
from ps_backend.errors import NotDurable, PSError, ReplayDiverged, ServerLost
from ps_backend.wire.protocol import Total, Winner
from tests.ps_backend.helpers import impatient
from tests.served import TOKEN, served
from tests.waiting import PATIENCE

N = 3000


def kill(ps: Any, server: int) -> None:
    os.kill(ps.client.status()[server].pid, signal.SIGKILL)


def await_writer(ps: Any) -> None:
    """Until the thread that writes a checkpoint has ended, well or not."""
    if (writing := ps.durability.checkpoints(ps)._writing) is not None:
        wait([writing])


def script(ps: Any, strike: Any) -> list[bytes]:
    """Statements of many kinds; ``strike`` is called between them. The bytes of all results."""
    values = np.linspace(-1.0, 2.0, N)
    x, table = ps.array(values), ps.array(np.outer(values, [1.0, 2.0, 3.0]))
    values[:] = np.nan  # the copy is the session's
    space = ps.keys()
    rows = space.table(2, init=dv.normal(seed=3))
    rows.push([5, -7, 2**40], np.ones((3, 2)))
    y = (np.exp(x) - x.mean()).persist()
    strike(1)
    x[10:20] += y[10:20]
    gram = table.T @ table
    order = np.argsort(y - x)
    rows.push([5, 6], [[1.0, 2.0], [3.0, 4.0]])
    strike(2)
    total = np.cumsum(x)[order]
    draws = ps.random.normal(N, seed=5)
    z = (total * draws).persist()
    del y, order
    kept = rows.pull([5, 6, -7, 99])
    strike(3)
    table += 1.0
    found = [x, z, draws, gram, table.sum(axis=0)]
    return [np.asarray(one).tobytes() for one in found] + [
        kept.tobytes(),
        repr(len(space)).encode(),
    ]


@pytest.mark.parametrize("checkpoint_at", [None, 2])
def test_a_script_whose_servers_are_killed_has_the_same_bits(tmp_path, checkpoint_at):
    with dv.local(2, in_process=True) as ps:
        expected = script(ps, lambda place: None)
    with dv.local(2, durability="replay", checkpoint=tmp_path) as ps:

        def strike(place: int) -> None:
            if place == checkpoint_at:
                ps.checkpoint(tmp_path / "elsewhere")
                assert len(ps.client.journal) > 0
                ps.checkpoint()
                assert len(ps.client.journal) == 0
            kill(ps, place % 2)

        assert script(ps, strike) == expected
        assert ps.client.journal.recoveries == 3


def test_a_solver_goes_on_where_it_was(tmp_path):
    def rosenbrock(x):
        head, tail = x[:-1], x[1:]
        return (100.0 * (tail - head * head) ** 2 + (1.0 - head) ** 2).sum()

    def fit(ps, callback=None):
        solver = LBFGS(max_iterations=30, gradient_tolerance=0.0)
        x0, seen = ps.array(np.linspace(-1.5, 1.5, N)), []

        def watch(state):
            seen.append(state.iteration)
            if callback is not None:
                callback(state)

        found = solver.minimize(dv.value_and_grad(rosenbrock), x0, callback=watch)
        assert seen == list(range(1, 31)), "no iteration is repeated"
        return found.x.numpy().tobytes(), found.fun, found.nfev

    with dv.local(2, in_process=True, durability="replay", checkpoint=tmp_path / "a") as ps:
        expected = fit(ps)
    with dv.local(2, durability="replay", checkpoint=tmp_path / "b") as ps:
        assert fit(ps, lambda state: state.iteration in (7, 25) and kill(ps, 1)) == expected
        assert ps.client.journal.recoveries == 2


def test_names_are_there_again_for_the_next_driver(tmp_path):
    with served(tmp_path, 2) as servers:
        given = {"token": TOKEN, "timeout": PATIENCE}
        options = {"durability": "replay", "checkpoint": tmp_path / "run"}
        ps = dv.connect(servers.addresses, name="run7", **given, **options)
        ps.publish(w=ps.arange(5000.0) + 1)
        servers.again(1)
        x = ps.arange(5000.0) * 2
        assert float(ps["w"] @ x) == float(np.arange(1.0, 5001.0) @ (np.arange(5000.0) * 2))
        ps.detach()
        with dv.attach("run7", servers.addresses, **given, **options) as ps:
            assert ps["w"].numpy().tolist() == np.arange(1.0, 5001.0).tolist()
            servers.again(0)
            assert float(ps["w"].sum()) == np.arange(1.0, 5001.0).sum()


def test_checkpoints_come_by_themselves_and_the_journal_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(dv.Session, "journal_limit", 200_000)
    with dv.local(1, in_process=True, durability="replay", checkpoint=tmp_path) as ps:
        journal, most = ps.client.journal, 0
        w = ps.keys().zeros()
        for k in range(30):
            x = ps.array(np.full(5000, float(k)))
            w.push(np.arange(500), np.ones(500))
            assert float((x * 2).sum()) == 10_000 * k
            ps.durability.checkpoints(ps).settle()
            most = max(most, journal.nbytes)
        assert journal.base
        assert len(list(tmp_path.iterdir())) <= 3, "two are kept, and spare files"
        assert most < 200_000 + 2 * 50_000


def test_a_store_that_fails_costs_no_statement(tmp_path):
    store = tmp_path / "run"
    with dv.local(1, in_process=True, durability="replay", checkpoint=store) as ps:
        ps.journal_limit = 50_000
        x = ps.ones(10).persist()
        store.mkdir(exist_ok=True)
        shutil.rmtree(store)
        store.write_text("no directory")

        def statements() -> None:
            for k in range(20):
                y = ps.array(np.full(1000, float(k)))
                assert float((x * k).sum()) == 10 * k and float(y.sum()) == 1000 * k
                await_writer(ps)

        with pytest.warns(NotDurable, match="the journal of the session grows") as told:
            statements()
        assert 1 <= len(told) <= 4, "not with each statement"
        journal = ps.client.journal
        assert journal.nbytes > 160_000
        store.unlink()
        for _ in range(20):
            ps.array(np.ones(1000))
            await_writer(ps)
        assert journal.base and journal.nbytes < 120_000


def test_what_others_take_part_in_is_not_repeated(tmp_path):
    with dv.local(1, durability="replay", checkpoint=tmp_path) as ps:
        x = ps.ones(100).persist()
        type, total = x.node.type, ps.new_buffer(x.node.type)
        ps.client.stage("round", 0, 1, type.space, None, np.ones(100))
        ps.client.commit_totals("round", [Total(total.id, type, [Winner(0, 1)])])
        kill(ps, 0)
        with pytest.raises(ServerLost) as lost:
            float(x.sum())
        assert "not repeated: release" in lost.value.__notes__[0]
        y = ps.ones(100).persist()
        ps.checkpoint()
        kill(ps, 0)
        assert float(y.sum()) == 100.0


def test_a_server_of_other_bits_is_found_out(tmp_path):
    with dv.local(1, durability="replay", checkpoint=tmp_path) as ps:
        x = ps.arange(1000.0).persist()
        ps.checkpoint()
        y = x + 1
        assert float(y @ y) == 333833500.0
        entry = ps.client.journal._entries[-1]
        entry.digests[0] += 1  # as if the first server had answered otherwise
        kill(ps, 0)
        with pytest.raises(ReplayDiverged, match=r"request 1 of 1 .* a 'run', gave other numbers"):
            float(x.sum())
        with pytest.raises(PSError):
            float(x.sum())
        ps.restore()
        assert float(x.sum()) == 499500.0
        kill(ps, 0)
        assert float(x.sum()) == 499500.0, "it is protected again"


def test_a_server_with_another_digest_is_refused(tmp_path, monkeypatch):
    """Also where no result that the client saw differs."""
    with dv.local(1, durability="replay", checkpoint=tmp_path) as ps:
        x = ps.ones(1000).persist()
        observe = ps.client.observe
        other = [replace(one, functions="other") for one in observe()]
        monkeypatch.setattr(ps.client, "observe", lambda: other)
        kill(ps, 0)
        with pytest.raises(ReplayDiverged, match="server 0 was replaced by one that computes"):
            float(x.sum())


def test_a_recovery_that_was_broken_off_is_made_again(tmp_path):
    with dv.local(1, durability="replay", checkpoint=tmp_path) as ps:
        x, journal = ps.arange(1000.0).persist(), ps.client.journal
        recover = journal.recover

        def pressed(error: ServerLost) -> None:
            journal.recover = recover
            ps.client.empty()
            raise KeyboardInterrupt

        journal.recover = pressed
        kill(ps, 0)
        with pytest.raises(KeyboardInterrupt):
            float(x.sum())
        assert float(x.sum()) == 499500.0


def test_a_server_that_nobody_starts_again(tmp_path):
    with dv.local(1, restart=False, durability="replay", checkpoint=tmp_path) as ps:
        impatient(ps.client)
        x = ps.ones(10).persist()
        kill(ps, 0)
        with pytest.raises(ServerLost, match="does not answer"):
            float(x.sum())


def test_without_a_directory():
    with pytest.raises(ValueError, match="durability='replay' needs checkpoint="):
        dv.local(1, durability="replay")
