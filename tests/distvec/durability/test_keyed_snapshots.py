"""Keyed spaces in checkpoints, and after a server died: as if nothing had happened since."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
import optim
from distvec.rows.optimizers import RowOptimizer
from ps_backend.client.files import WantedSpace
from ps_backend.errors import NotDurable, OutOfBudget, ServerLost
from tests.distvec.keyed.test_steps import OPTIMIZERS
from tests.waiting import PATIENCE

EDGES = [0, -1, -(2**63), 2**63 - 1]
keys = st.lists(st.one_of(st.sampled_from([*EDGES, 1, 2, 3]), st.integers(-(2**63), 2**63 - 1)))
changes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["push", "step", "remove"]), keys),
        st.tuples(st.just("evict"), st.integers(0, 3)),
    ),
    max_size=6,
)


class Model:
    """A space with arrays of several kinds, and what is done to them."""

    def __init__(self, ps, **options):
        self.space = space = ps.keys(**options)
        self.w = space.zeros("int64")
        self.t = space.table(3, init=dv.normal(seed=5))
        self.states = self.t.optimizer(dv.rows.adam(0.1))
        self.given = 0

    def change(self, what, keys):
        self.given += 1
        if what == "push":
            self.w.push(keys, self.given)
        elif what == "step":
            gradients = np.linspace(-1, 1, 3 * len(keys), dtype=np.float32).reshape(-1, 3)
            self.t.step(keys, gradients * self.given)
        elif what == "remove":
            self.space.remove(keys)
        else:
            self.space.evict(abs(self.w) % 4 == keys)

    def seen(self):
        state = self.space.state()
        rows = [(k.tobytes(), w.tobytes(), t.tobytes())
                for k, w, t in self.space.items(self.w, self.t, batch=5)]  # fmt: skip
        states = [np.asarray(one).tobytes() for one in self.states.values()]
        unknown = self.t.pull([77, 78]).tobytes()
        return rows, states, unknown, self.t.steps, state.keys, state.evicted, state.waiting


@settings(max_examples=10, deadline=None)
@given(
    servers=st.sampled_from([1, 2, 3]),
    options=st.sampled_from([{}, {"admit": 2}, {"admit": 3, "sketch": 64}]),
    before=changes,
    lost=changes,
    after=changes,
)
def test_from_a_checkpoint_on_all_is_as_if_nothing_had_come_between(
    tmp_path_factory, sessions, servers, options, before, lost, after
):
    folder = tmp_path_factory.mktemp("run")
    ps = sessions[servers]
    one, other = Model(ps, **options), Model(ps, **options)
    for model in (one, other):
        for change in before:
            model.change(*change)
    expected = one.seen()
    ps.checkpoint(folder)
    for change in lost:
        one.change(*change)
    one.given = other.given
    ps.restore(folder)
    assert one.seen() == expected
    for change in after:
        one.change(*change)
        other.change(*change)
    assert one.seen() == other.seen()


def test_a_server_that_dies_brings_all_spaces_back_by_a_checkpoint(tmp_path):
    with dv.local(2, checkpoint=tmp_path) as ps:
        model, twin = Model(ps, admit=2), Model(ps, admit=2)
        numbered = ps.keys(range(100)).zeros()
        numbered.push([3, 99], 1.5)
        for one in (model, twin):
            one.change("push", list(range(300)))
            one.change("push", list(range(100, 500)))
            one.change("step", list(range(50, 150)))
            one.change("remove", [120, 130])
        view = model.t.at([5, 110, 140])
        expected, rows = model.seen(), view.pull().tobytes()
        ps.checkpoint(w=model.w)
        later = model.space.zeros()
        model.change("push", list(range(400, 600)))
        made_later = ps.keys().zeros()
        os.kill(ps._owner.pids[1], signal.SIGKILL)
        with pytest.raises(ServerLost) as lost:
            model.w.pull(list(range(300)))
        with pytest.raises(ServerLost):
            ps.checkpoint()
        found = ps.restore(lost.value.resume_from)
        assert found["w"] is model.w
        model.given = twin.given
        assert model.seen() == expected and view.pull().tobytes() == rows
        assert numbered.pull([3, 99, 4]).tolist() == [1.5, 1.5, 0]
        for one in (model, twin):
            one.change("push", list(range(250, 550)))
            one.change("step", list(range(100, 200)))
        assert model.seen() == twin.seen()
        with pytest.raises(dv.BufferLost, match="or created after the checkpoint"):
            later.push([5], 1.0)
        with pytest.raises(ServerLost):
            made_later.pull(list(range(50)))
        with pytest.warns(NotDurable, match="older checkpoint"):
            damaged_newest(ps, model, tmp_path)


def damaged_newest(ps, model, folder):
    """The one before is taken, for all spaces."""
    expected = model.seen()
    ps.checkpoint()
    model.change("push", [1, 2, 3])
    newest = ps.checkpoint().path
    for part in os.listdir(newest):
        if part.startswith("part-"):
            path = Path(newest, part)
            data = bytearray(path.read_bytes())
            data[-20] ^= 1
            path.write_bytes(data)
    ps.restore()
    assert model.seen() == expected


def test_what_has_not_changed_is_not_written_again(tmp_path):
    with dv.local(2, in_process=True) as ps:
        w, other = ps.keys().zeros(), ps.keys().zeros()
        w.push(np.arange(1000), 1.0)
        other.push(np.arange(500), 1.0)
        assert ps.checkpoint(tmp_path).nbytes == 16 * 1500
        assert ps.checkpoint(tmp_path).nbytes == 0
        other.push([0], 1.0)  # on one server
        half = ps.checkpoint(tmp_path).nbytes
        assert 0 < half < 16 * 500
        other.push([600, 601], 1.0)
        other.space.remove([5])
        for _ in range(3):
            ps.checkpoint(tmp_path)
        expected = np.asarray(other).tobytes(), other.space.keys().tolist()
        w.push([1], 1.0)
        other.push([7777], 1.0)
        ps.restore(tmp_path)
        assert (np.asarray(other).tobytes(), other.space.keys().tolist()) == expected
        assert w.pull([1]).tolist() == [1.0]
        assert ps.checkpoint(tmp_path).nbytes == 0


def test_all_arrays_of_a_space_are_of_one_moment(tmp_path):
    with dv.local(2, in_process=True) as ps:
        space = ps.keys()
        a, b = space.zeros("int64"), space.table(2, dtype="int64")

        @dv.rows
        def both(a, b, x):
            return {"a": a + x, "b": b + x[:, None]}

        with pushing_both(space, both, a, b):
            for _ in range(5):
                ps.checkpoint(tmp_path, a=a, b=b)
        ps.restore(tmp_path)
        rows = np.asarray(b)
        assert len(rows) and (np.asarray(a)[:, None] == rows).all()


@contextmanager
def pushing_both(space, both, a, b):
    over, began = threading.Event(), threading.Event()

    def push():
        k = 0
        while not over.is_set():
            space.apply(both, np.arange(k, k + 50), a, b, np.ones(50, "int64"))
            k += 10
            began.set()

    thread = threading.Thread(target=push)
    thread.start()
    assert began.wait(PATIENCE)
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_another_session_gets_named_arrays_over_a_new_space(tmp_path, sessions):
    with dv.local(2, in_process=True) as ps:
        model = Model(ps)
        model.change("push", [5, -7, 2**40])
        model.change("step", [5, 8])
        empty = ps.keys().zeros()
        ps.checkpoint(tmp_path, w=model.w, t=model.t, empty=empty, x=ps.ones(3))
        expected = [(k.tolist(), w.tolist(), t.tolist())
                    for k, w, t in model.space.items(model.w, model.t)]  # fmt: skip
        keys = model.space.keys().tolist()
    for servers in (1, 3):
        found = sessions[servers].restore(tmp_path)
        w, t = found["w"], found["t"]
        assert w.space is t.space and w.space.keys().tolist() == keys
        again = {k: (w.pull([k]).tolist(), t.pull([k]).tolist()) for k in keys}
        for some, counts, rows in expected:
            for k, count, row in zip(some, counts, rows, strict=True):
                assert again[k] == ([count], [row])
        assert len(found["empty"]) == 0 and float(found["x"].sum()) == 3
        t.push([99], 1.0)


def test_a_copy_needs_room(tmp_path):
    with dv.local(1, in_process=True, memory=9 << 19) as ps:
        w = ps.keys().table(64, dtype="float64")
        for k in range(5):
            w.push(np.arange(1000 * k, 1000 * (k + 1)), 1.0)
        with pytest.raises(OutOfBudget, match="copy of a keyed space"):
            ps.checkpoint(tmp_path)
        (number,) = ps.spaces
        with pytest.raises(OutOfBudget, match="copy of a keyed space"):
            ps.client.pin("p", [WantedSpace(number, ps.client.new_id(), [0])])
        (session,) = ps.client._transports[0].service.sessions.all()
        assert len(session.store.pins) == 0, "what was refused keeps nothing"
        w.push([1], 1.0)
        assert w.pull([1])[0, 0] == 2.0


def moved(way, folder, ps, space, t, to):
    """``t`` in the session ``to``, by a checkpoint or a file, beside an array without a name."""
    unnamed = space.zeros()
    if way == "checkpoint":
        ps.checkpoint(folder, t=t)
        del unnamed
        return to.restore(folder)["t"]
    path = folder / ("model" if way == "folder" else "model.safetensors")
    ps.save(path, t=t)
    return to.load(path)["t"]


WAYS = ("checkpoint", "folder", "file")


@pytest.mark.parametrize(
    ("name", "way"),
    [("adam", way) for way in WAYS] + [(one, WAYS[k % 3]) for k, one in enumerate(OPTIMIZERS)],
)
def test_steps_continue_in_another_session_with_the_same_bits(tmp_path, sessions, name, way):
    optimizer, draw = OPTIMIZERS[name], np.random.default_rng(0).normal
    batches = [(np.arange(k, k + 9), draw(size=(9, 3))) for k in range(6)]
    for again in (False, True):
        with dv.local(2, in_process=True) as ps:
            space = ps.keys()
            t, twin = (space.table(3, init=dv.normal(seed=5)) for _ in range(2))
            t.optimizer(optimizer), twin.optimizer(optimizer)
            for keys, gradients in batches[:3]:
                t.step(keys, gradients), twin.step(keys, gradients)
            found = moved(way, tmp_path / str(again), ps, space, t, sessions[3])
            if again:
                states = found.optimizer(optimizer)
                assert states.keys() == twin.trained.states.keys()
            for keys, gradients in batches[3:]:
                found.step(keys, gradients), twin.step(keys, gradients)
            assert found.steps == twin.steps == 6
            assert found.pull(np.arange(20)).tobytes() == twin.pull(np.arange(20)).tobytes()


@dataclass(frozen=True, kw_only=True)
class Sign(optim.StochasticSolver):
    """A solver that is not one of optim's."""

    def update(self, memory, x, gradient, k):
        return x - self.step_size_at(k) * np.sign(gradient), memory


@pytest.mark.parametrize("way", WAYS)
def test_an_optimizer_that_no_file_holds_is_to_be_given_again(tmp_path, sessions, way):
    named = {
        "step_size, a function": dv.rows.momentum(lambda k: 1 / (k + 1)),
        "the optimizer, a tests.distvec": RowOptimizer(Sign()),
    }
    for number, (lacks, optimizer) in enumerate(named.items()):
        with dv.local(1, in_process=True) as ps:
            space = ps.keys()
            t = space.zeros()
            t.optimizer(optimizer)
            t.step([1, 2], [1.0, 2.0])
            found = moved(way, tmp_path / str(number), ps, space, t, sessions[2])
            with pytest.raises(
                TypeError, match=rf"cannot be restored from the file \(.*{lacks}.*t\.optimizer"
            ):
                found.step([1], [1.0])
            again = moved(way, tmp_path / f"again{number}", sessions[2], found.space, found, ps)
            again.optimizer(optimizer)
            again.step([1], [1.0]), t.step([1], [1.0])
            assert again.steps == t.steps == 2
            assert again.pull([1, 2]).tobytes() == t.pull([1, 2]).tobytes()


def test_another_kind_of_optimizer_is_refused(tmp_path, sessions):
    with dv.local(1, in_process=True) as ps:
        space = ps.keys()
        t = space.zeros()
        t.optimizer(dv.rows.adagrad(0.5))
        t.step([1], [2.0])
        found = moved("checkpoint", tmp_path, ps, space, t, sessions[2])
    document = json.loads(next(tmp_path.glob("*/manifest.json")).read_text())["manifest"][
        "document"
    ]
    (about,) = document["spaces"]
    assert [one["optimizer"]["kind"] for one in about["trained"].values()] == ["optim.AdaGrad"]
    told = r"states of optim\.AdaGrad, and optim\.SGD cannot continue .*restart=True"
    with pytest.raises(ValueError, match=told):
        found.optimizer(dv.rows.sgd())
    with pytest.raises(ValueError, match=r"squares \(float64.*value=0.*needs squares.*value=3"):
        found.optimizer(dv.rows.adagrad(0.5, accumulator=3.0))
    states = found.optimizer(dv.rows.adagrad(0.25))
    assert states["squares"].pull([1]).tolist() == [4.0], "it goes on, by the parameters given"
    states = found.optimizer(dv.rows.adagrad(0.25), restart=True)
    assert states["squares"].pull([1]).tolist() == [0.0] and found.steps == 0
    found.optimizer(dv.rows.sgd(), restart=True)


def test_in_its_own_session_an_array_has_the_optimizer_of_then(tmp_path):
    with dv.local(2, in_process=True) as ps:
        space = ps.keys()
        t, w = space.zeros(), space.zeros()
        t.optimizer(dv.rows.adagrad(lambda k: 0.5))
        t.step([1], [2.0])
        ps.checkpoint(tmp_path, t=t)
        t.step([1], [2.0])
        w.optimizer(dv.rows.sgd())
        ps.restore(tmp_path)
        t.step([1], [2.0])
        assert t.steps == 2 and t.trained.states["squares"].pull([1]).tolist() == [8.0]
        with pytest.raises(TypeError, match="no optimizer yet"):
            w.step([1], [1.0])
        t.optimizer(dv.rows.adagrad(0.5), restart=True)
        ps.restore(tmp_path)
        with pytest.raises(TypeError, match="a function"):
            t.step([1], [2.0])
        del t
        t = ps.restore(tmp_path)["t"]
        t.optimizer(dv.rows.adagrad(0.5))
        t.step([1], [2.0])
        assert t.trained.states["squares"].pull([1]).tolist() == [8.0]


def test_states_have_names_in_files(tmp_path, ps):
    space = ps.keys()
    t = space.zeros()
    squares = t.optimizer(dv.rows.adagrad(0.5))["squares"]
    t.step([1, 2], [1.0, 2.0])
    ps.save(tmp_path / "a", t=t)
    assert sorted(dv.load(tmp_path / "a")["t.squares"].tolist()) == [1.0, 4.0]
    ps.save(tmp_path / "b", t=t, s=squares)
    assert sorted(dv.load(tmp_path / "b")) == ["keys", "s", "t"]
    ps.load(tmp_path / "b")["t"].step([1], [1.0])
    ps.save(tmp_path / "c", t=t, optimizers=False)
    assert sorted(dv.load(tmp_path / "c")) == ["keys", "t"]
    for loaded in (ps.load(tmp_path / "c"), ps.load(tmp_path / "a", names=["keys", "t"])):
        with pytest.raises(TypeError, match="no optimizer yet"):
            loaded["t"].step([1], [1.0])
    with pytest.raises(
        ValueError, match=r"'t\.squares' is the name of a state of .*optimizers=False"
    ):
        ps.save(tmp_path / "d", {"t": t, "t.squares": space.zeros()})
