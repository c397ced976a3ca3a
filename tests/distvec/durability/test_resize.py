"""``ps.resize``: the same arrays on other servers, or everything as before."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.durability.checkpoints import Checkpoints
from optim import LBFGS
from ps_backend.client import Client
from ps_backend.errors import OutOfBudget, PSError, ReplayDiverged, ServerLost, StoreFailed
from ps_backend.machine import usable_cores
from ps_backend.program.spaces import DenseSpace
from ps_backend.wire.protocol import COUNTER_BITS
from tests.durability.cluster import Chances
from tests.durability.test_replay import Script
from tests.served import TOKEN, served
from tests.waiting import PATIENCE, has_ended, wait_for

N = 3000


class Plain(Script):
    """The same statements on servers in this process that never fail."""

    def _begin(self, chances: Chances) -> Any:
        return dv.local(self.pick.randint(1, 4), in_process=True)

    def _checkpoint(self) -> None:
        self.ps.flush()

    def _resize(self) -> None:
        self.ps.resize(self.pick.randint(1, 6))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_script_on_changing_servers_has_numpys_bits(seed):
    Plain(seed).run().ps.close()


def values_of(ps: Any, between: Any) -> list[bytes]:
    """Statements of many kinds; ``between`` is called with their place. The bytes of results."""
    values = np.linspace(-1.0, 2.0, N)
    x, table = ps.array(values), ps.array(np.outer(values, [1.0, 2.0, 3.0]))
    one, none = ps.ones(1), ps.zeros(0)
    square, lazy = x @ x, np.cumsum(np.exp(x))
    mask = (x > 0.3).persist()
    chosen, also = x[mask], table[mask].sum(axis=0)
    between(0)
    near = ((x - 0.1) @ (x - 0.1), square)
    order = np.argsort(np.sin(7 * x))
    split = ps.space(20, split="columns").array(np.outer(np.arange(20.0), np.arange(50.0)))
    between(1)
    gram, picked = table.T @ table, lazy[order]
    rows = chosen * 2 + x[mask]
    between(2)
    x[5:50] += 1.0
    small = ps.array([1.0, 2.0], on_client=True) * 3
    x[mask] += 1.0
    found = [x, also, *near, gram, picked, rows, one, none, chosen, split.sum(axis=0), small]
    return [np.asarray(one).tobytes() for one in found]


@pytest.mark.parametrize("numbers", [(3, 1, 5), (2, 2, 2), (1, 7, 1)])
def test_results_have_the_bits_of_a_session_that_stays(numbers):
    with dv.local(2, in_process=True) as ps:
        expected = values_of(ps, lambda place: None)
    with dv.local(2, in_process=True) as ps:
        assert values_of(ps, lambda place: ps.resize(numbers[place])) == expected
        assert ps.client.servers == numbers[-1]


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (2, 3)])
def test_pending_operations_are_computed_on_any_number_of_servers(before, after):
    values = np.random.default_rng(0).normal(size=5000)
    with dv.local(before, in_process=True) as ps:
        x = ps.array(values)
        ordered, total, twice = np.sort(x), np.cumsum(x), x[x > 0] * 2
        expression = np.sin(x) + ordered[0]
        ps.resize(after)
        assert ordered.numpy().tobytes() == np.sort(values).tobytes()
        np.testing.assert_allclose(total.numpy(), np.cumsum(values), rtol=1e-12)
        assert twice.numpy().tobytes() == (values[values > 0] * 2).tobytes()
        np.testing.assert_allclose(expression.numpy(), np.sin(values) + values.min(), rtol=1e-14)


def test_known_inner_products_stay_known():
    """They decide how later ones are computed, and so their last bits."""
    with dv.local(1, in_process=True) as ps:
        x, y = ps.arange(3000.0).persist(), ps.ones(3000).persist()
        product = float(x @ y)
        ps.resize(2)
        ps.counters.reset()
        assert float(x @ y) == product and ps.counters.messages == 0


def train(ps: Any, between: Any) -> list[bytes]:
    """Steps of optimizers in keyed spaces of each kind, and pushes that are counted only."""
    rng = np.random.default_rng(1)
    free, ranged, counted = ps.keys(most_bytes=1 << 20), ps.keys(range(700)), ps.keys(admit=3)
    w, v, u = free.table(3, init=dv.normal(seed=3)), ranged.zeros(), counted.zeros()
    w.optimizer(dv.rows.adam(0.1))
    v.optimizer(dv.rows.adagrad(0.1))
    seen = w.at(np.arange(40))
    for place in range(6):
        keys = rng.integers(-9000, 9000, 50)
        w.step(keys, rng.normal(size=(50, 3)))
        seen.step(rng.normal(size=(40, 3)))
        v.step(rng.integers(0, 700, 30), rng.normal(size=30))
        u.push(rng.integers(0, 60, 40), np.ones(40))
        between(place)
    keys = np.sort(free.keys())
    found = [w.pull(keys), v.pull(np.arange(700)), u.pull(np.arange(60)), seen.pull()]
    return [keys.tobytes(), *(one.tobytes() for one in found), repr(len(counted)).encode()]


def test_keyed_arrays_go_along_with_counters_and_states_of_optimizers():
    with dv.local(2, in_process=True) as ps:
        expected = train(ps, lambda place: None)
    with dv.local(2, in_process=True) as ps:
        assert train(ps, lambda place: ps.resize((3, 1, 5, 2, 2, 4)[place])) == expected
        assert ps.client.servers == 4


def test_a_solver_on_other_servers_takes_the_same_steps(tmp_path):
    def rosenbrock(x):
        head, tail = x[:-1], x[1:]
        return (100.0 * (tail - head * head) ** 2 + (1.0 - head) ** 2).sum()

    def fit(ps, callback):
        solver = LBFGS(max_iterations=30, gradient_tolerance=0.0)
        x0 = ps.array(np.linspace(-1.5, 1.5, N))
        found = solver.minimize(dv.value_and_grad(rosenbrock), x0, callback=callback)
        return found.x.numpy().tobytes(), found.fun, found.nfev

    with dv.local(2, in_process=True) as ps:
        expected = fit(ps, None)
    with dv.local(2, in_process=True) as ps:
        at = {7: 3, 8: 1, 20: 4}
        assert fit(ps, lambda state: ps.resize(at.get(state.iteration, 2))) == expected


def test_programs_cost_as_much_as_in_a_session_that_began_there():
    with dv.local(3, in_process=True) as ps:
        x, table = ps.arange(10_000.0).persist(), ps.ones((10_000, 3)).persist()
        fresh = [one.buffers for one in ps.client.status()]
        ps.counters.reset()
        float((x + 1) @ x), (x @ table).numpy(), np.sort(x).numpy()
        counts = ps.counters.snapshot(), len(ps.counters.messages_per_server)
    with dv.local(1, in_process=True) as ps:
        x, table = ps.arange(10_000.0).persist(), ps.ones((10_000, 3)).persist()
        gone = ps.ones(10_000).persist()
        del gone
        ps.resize(3)
        assert [one.buffers for one in ps.client.status()] == fresh
        ps.counters.reset()
        float((x + 1) @ x), (x @ table).numpy(), np.sort(x).numpy()
        again = ps.counters.snapshot(), len(ps.counters.messages_per_server)
        sent = "bytes_sent", "bytes_received"  # ids are longer
        for counted in (counts[0], again[0]):
            for name in sent:
                counted.pop(name)
        assert again == counts


def test_a_session_may_be_resized_again_and_again():
    with dv.local(1, in_process=True) as ps:
        x = ps.ones(10).persist()
        for k in range(300):
            ps.resize(1 + k % 2)
            x = (x + 1).persist()
        assert x.numpy().tolist() == [301.0] * 10
        with Client(ps.client._transports, session=ps.client.secret) as other:
            mine = other.new_id()
            other.write(mine, DenseSpace(1), [7.0])
            ps.resize(3)  # which does not know of that one, and never uses its numbers
            with Client(ps.client._transports, session=ps.client.secret) as third:
                assert third.new_id() >> COUNTER_BITS > mine >> COUNTER_BITS
        assert x.numpy().tolist() == [301.0] * 10


def test_processes_start_and_end_with_the_session_and_no_file_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with dv.local(1) as ps:
        x = ps.arange(1e5)
        (former,) = [one.pid for one in ps.client.status()]
        ps.resize(2)
        pids = [one.pid for one in ps.client.status()]
        assert former not in pids and len({*pids}) == 2
        with pytest.raises(ProcessLookupError):
            os.kill(former, 0)
        assert not list(tmp_path.glob("distvec-*/resize-*"))
        assert float(x.sum()) == np.arange(1e5).sum()
        os.kill(pids[0], signal.SIGKILL)  # another one takes its place, as before
        assert float(ps.ones(100_000).sum()) == 1e5
    assert not list(tmp_path.glob("distvec-*/resize-*"))


def test_addresses_may_come_go_and_stay(tmp_path):
    with served(tmp_path, 3) as servers:
        a, b, c = servers.addresses
        with dv.connect([a, b], token=TOKEN, timeout=PATIENCE) as ps:
            x, w = ps.arange(1e5), ps.keys().zeros()
            w.push(np.arange(100), np.arange(100.0))
            for addresses in ([a, b, c], f"{c}, {a}", [b]):
                ps.resize(addresses, checkpoint=tmp_path / "between")
                assert float(x.sum()) == np.arange(1e5).sum()
                assert w.pull(np.arange(100)).tolist() == list(range(100))
            assert ps.client.addresses == (b,)
            assert not list((tmp_path / "between").iterdir())
            with pytest.raises(ValueError, match=r"resize\(\) needs checkpoint="):
                ps.resize([a])
            with dv.connect([a, c], token=TOKEN, timeout=PATIENCE) as other:
                assert [one.sessions for one in other.client.status()] == [1, 1], "no other is left"


def test_a_session_leaves_a_server_that_drains_and_nothing_is_lost(tmp_path):
    with (
        served(tmp_path, 3, grace=10 * PATIENCE) as servers,
        dv.connect(servers.addresses, token=TOKEN, timeout=PATIENCE) as ps,
    ):
        x, w = ps.arange(1e5), ps.keys().zeros()
        w.push(np.arange(100), np.arange(100.0))
        pid = servers.pids[1]
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: ps.client.status() and ps.leaving)
        stay = [one for one in ps.client.addresses if one not in ps.leaving]
        assert stay == [servers.addresses[0], servers.addresses[2]]
        ps.resize(stay, checkpoint=tmp_path / "between")
        assert has_ended(pid), "it had no other session"
        assert not ps.leaving
        assert float(x.sum()) == np.arange(1e5).sum()
        assert w.pull(np.arange(100)).tolist() == list(range(100))


def test_whatever_fails_leaves_everything_as_it_was(tmp_path):
    values = np.arange(3e5)
    with served(tmp_path, 2) as servers:
        a, b = servers.addresses
        with dv.connect([a, b], token=TOKEN, timeout=PATIENCE) as ps:
            x, w = ps.array(values), ps.keys().zeros()
            pending = x + 1
            w.push([1, 2], [3.0, 4.0])
            blocked = tmp_path / "a file"
            blocked.write_text("")

            def unchanged() -> None:
                assert ps.client.servers == len(ps.counters.messages_per_server) == 2
                assert float(x @ x) == float(values @ values)
                assert w.pull([1, 2]).tolist() == [3.0, 4.0]
                w.push([1, 2], [0.0, 0.0])
                assert float(pending.sum()) == float((values + 1).sum())

            with pytest.raises(StoreFailed):
                ps.resize([a], checkpoint=blocked / "below")
            unchanged()
            with pytest.raises(ValueError, match="given twice"):
                ps.resize([b, b], checkpoint=tmp_path / "between")
            unchanged()
            with pytest.raises(ValueError, match="host:port"):
                ps.resize("nowhere", checkpoint=tmp_path / "between")
            unchanged()
            assert not list((tmp_path / "between").iterdir())
            assert [one.sessions for one in ps.client.status()] == [1, 1]


def test_too_little_memory_changes_nothing():
    with dv.local(2, in_process=True, memory="6m") as ps:
        x, y = ps.arange(5e5).persist(), ps.ones(500_000).persist()
        with pytest.raises(OutOfBudget):
            ps.resize(1)
        assert ps.client.servers == 2 and float(x @ y) == np.arange(5e5).sum()
        ps.resize(3)
        assert ps.client.servers == 3 and float(x @ y) == np.arange(5e5).sum()


def test_an_operation_without_memory_is_told_before_the_move():
    with dv.local(2, in_process=True, memory="16m") as ps:
        x = ps.arange(5e5).persist()
        large = np.cumsum(ps.ones((500_000, 40)) * x[:, None])
        with pytest.raises(OutOfBudget):
            ps.resize(1)
        assert ps.client.servers == 2
        del large
        ps.resize(1)
        assert float(x.sum()) == np.arange(5e5).sum()


def test_an_operation_that_fails_is_still_told_of_where_it_is_used():
    with dv.local(2, in_process=True) as ps:
        index = ps.array(np.array([0, 5000]))
        wrong = ps.arange(10.0)[index]
        ps.resize(3)
        with pytest.raises(IndexError):
            wrong.numpy()


def test_one_of_the_other_servers_that_dies_meanwhile_changes_nothing(monkeypatch):
    with dv.local(1) as ps:
        x = ps.arange(10_000.0).persist()
        refill = Checkpoints.refill

        def killing(checkpoints, name, client):
            refill(checkpoints, name, client)
            os.kill(client.status()[0].pid, signal.SIGKILL)

        with monkeypatch.context() as patched:
            patched.setattr(Checkpoints, "refill", killing)
            with pytest.raises(ServerLost):
                ps.resize(2)
        assert ps.client.servers == 1 and float(x.sum()) == 49995000.0
        ps.resize(2)
        assert ps.client.servers == 2 and float(x.sum()) == 49995000.0


def test_ctrl_c_comes_before_the_change_or_after_it(monkeypatch):
    with dv.local(1) as ps:
        x, w = ps.arange(1000.0).persist(), ps.keys().zeros()
        w.push([1], [2.0])

        def pressed(client, other):
            os.kill(os.getpid(), signal.SIGINT)
            return exchange(client, other)

        exchange = type(ps.client).exchange
        with monkeypatch.context() as patched:
            patched.setattr(type(ps.client), "exchange", pressed)
            with pytest.raises(KeyboardInterrupt):
                ps.resize(2)
        assert ps.client.servers == len(ps.client.status()) == 2
        assert float(x.sum()) == 499500.0 and w.pull([1]).tolist() == [2.0]

        def refill(checkpoints, name, client):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Checkpoints, "refill", refill)
            with pytest.raises(KeyboardInterrupt):
                ps.resize(3)
        assert ps.client.servers == len(ps.client.status()) == 2
        assert float(x.sum()) == 499500.0 and w.pull([1]).tolist() == [2.0]


@pytest.mark.parametrize("what", ["rows", "array"])
def test_another_threads_change_is_no_silent_loss(what):
    with dv.local(1, in_process=True) as ps:
        w = ps.keys().zeros()
        w.push([1, 2], [3.0, 4.0])
        kept, opener = [], ps._opener

        def meanwhile(servers, former):
            found = opener.open(servers, former)
            if what == "rows":
                w.push([1], [1.0])
            else:
                kept.append(ps.array([1.0]))
            return found

        ps._opener = opener._replace(open=meanwhile)
        with pytest.raises(PSError, match="another thread has changed arrays"):
            ps.resize(2)
        assert ps.client.servers == 1
        assert w.pull([1, 2]).tolist() == [4.0 if what == "rows" else 3.0, 4.0]
        ps._opener = opener
        ps.resize(2)
        assert w.pull([1, 2]).tolist() == [4.0 if what == "rows" else 3.0, 4.0]
        assert not kept or kept[0].numpy().tolist() == [1.0]


def test_sessions_that_cannot_be_resized_say_what_to_do_instead(tmp_path):
    with dv.local(1, in_process=True) as ps:
        assert ps.keys(admit=2, sketch=4096).zeros().push([1], [1.0]) is None
        space = ps.keys(admit=2, sketch=4096)
        with pytest.raises(NotImplementedError, match="sketch="):
            ps.resize(2)
        assert len(space) == 0 and ps.client.servers == 1
        with pytest.raises(PSError, match=r"only sessions of dv.local\(\), dv.connect\(\)"):
            dv.Session(ps.client).resize(2)
        for wrong in (0, "two", 10_000 * usable_cores()):
            with pytest.raises((ValueError, TypeError)):
                ps.resize(wrong)
    with (
        served(tmp_path, 1) as servers,
        dv.connect(servers.addresses, token=TOKEN, timeout=PATIENCE, name="run") as ps,
        pytest.raises(PSError, match="a session with a name cannot be resized"),
    ):
        ps.resize(servers.addresses, checkpoint=tmp_path / "between")


@pytest.mark.parametrize("level", ["rollback", "replay"])
def test_servers_that_die_afterwards_are_recovered_from(tmp_path, level):
    def fit(ps, callback=None):
        solver = LBFGS(max_iterations=20, gradient_tolerance=0.0)
        x0 = ps.array(np.linspace(-1.5, 1.5, N))
        scale = ps.array(np.linspace(1.0, 2.0, N))

        def objective(x):
            return (scale * (x - 1.0) ** 4).sum() + (x[1:] * x[:-1]).sum()

        run = dv.value_and_grad(objective)
        found = solver.minimize(run, x0, callback=callback, every=3)
        return found.x.numpy().tobytes()

    with dv.local(2, in_process=True, durability=level, checkpoint=tmp_path / "a") as ps:
        expected = fit(ps)
    with dv.local(2, durability=level, checkpoint=tmp_path / "b") as ps:
        done = set()

        def callback(state: Any) -> None:
            if state.iteration in done:
                return
            done.add(state.iteration)
            if state.iteration == 8:
                ps.resize(3)
            if state.iteration == 10:
                os.kill(ps.client.status()[2].pid, signal.SIGKILL)

        assert fit(ps, callback) == expected
        assert ps.client.servers == 3
        w = ps.keys().zeros()
        w.push([1, 2], [3.0, 4.0])
        ps.checkpoint(w=w)
        assert ps.restore()["w"].pull([1, 2]).tolist() == [3.0, 4.0]


def test_replay_does_not_go_to_servers_of_other_bits(tmp_path, monkeypatch):
    with dv.local(1, in_process=True, durability="replay", checkpoint=tmp_path) as ps:
        x = ps.arange(1000.0).persist()
        observe = type(ps.client).observe
        mine = ps.client

        def other(client):
            found = observe(client)
            return found if client is mine else [replace(one, bits="other") for one in found]

        with monkeypatch.context() as patched:
            patched.setattr(type(ps.client), "observe", other)
            with pytest.raises(ReplayDiverged, match="does not go to servers that compute other"):
                ps.resize(2)
        assert ps.client.servers == 1 and float(x.sum()) == 499500.0
        ps.resize(2)
        assert float(x.sum()) == 499500.0


def test_other_sessions_are_warned_of_servers_of_other_bits(monkeypatch):
    with dv.local(1, in_process=True) as ps:
        observe, mine = type(ps.client).observe, ps.client

        def other(client):
            found = observe(client)
            return found if client is mine else [replace(one, bits="other") for one in found]

        monkeypatch.setattr(type(ps.client), "observe", other)
        with pytest.warns(UserWarning, match="not all servers compute the same bits"):
            ps.resize(2)


def test_a_page_and_a_profile_that_are_open_go_along(tmp_path):
    with dv.local(1, in_process=True) as ps, ps.dashboard() as page:
        x = ps.arange(1e4).persist()
        with dv.profile() as profile:
            float(x.sum())
            ps.resize(3)
            float(x.sum())
            ps.resize(2)
            float(x.sum())
        assert str(profile).count("test_resize.py") >= 3
        ps.report(tmp_path / "run.html")
        assert page.url
