"""Optimizers of tables on servers: what their rows go through, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from optim import InverseTime
from tests.distvec.keyed.conftest import messages

KEYS = np.array([17, -3, 2**40, 0, -1, 2**63 - 1, -(2**63)])
OPTIMIZERS = {
    "sgd": dv.rows.sgd(0.1),
    "momentum": dv.rows.momentum(0.1, nesterov=True, bound=1.0),
    "adagrad": dv.rows.adagrad(0.05, weight_decay=0.1),
    "rowwise": dv.rows.rowwise_adagrad(0.05),
    "adam": dv.rows.adam(0.05),
    "ftrl": dv.rows.ftrl(0.5, l1=0.1),
    "group": dv.rows.group_ftrl(0.5, l1=0.1, l21=0.2),
    "rmsprop": dv.rows.rmsprop(centered=True),
    "adadelta": dv.rows.adadelta(),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@settings(max_examples=3)
@given(
    batches=st.lists(st.lists(st.sampled_from(KEYS.tolist()), min_size=1), min_size=1, max_size=4),
    columns=st.sampled_from([None, 3]),
    seed=st.integers(0, 99),
)
def test_a_step_has_the_same_bits_on_any_number_of_servers(sessions, name, batches, columns, seed):
    found = []
    for count in (1, 3):
        space = sessions[count].keys()
        draw = np.random.default_rng(seed).normal
        t = space.zeros("float32")
        if columns is not None:
            t = space.table(columns, init=dv.uniform(-1, 1), seed=seed)
        states = t.optimizer(OPTIMIZERS[name])
        for keys in batches:
            t.step(keys, draw(size=(len(keys), *t.row)))
        arrays = [t.pull(KEYS), *(state.pull(KEYS) for state in states.values())]
        found.append([values.tobytes() for values in arrays])
        assert len(space) == len({key for keys in batches for key in keys})
    assert found[0] == found[1]


def test_a_step_is_one_message_and_adds_up_what_came_for_one_key_first(ps):
    space = ps.keys()
    w = space.zeros()
    with messages(ps, 1):
        states = w.optimizer(dv.rows.adagrad(0.5, epsilon=1e-9))
    with messages(ps, 1):
        w.step([17, 17], [1.0, 2.0])
    assert states["squares"].pull([17, 5]).tolist() == [9.0, 0.0]
    np.testing.assert_allclose(w.pull([17]), -0.5)
    view = w.at(KEYS)
    view.step(np.ones(7))
    with messages(ps, 1):
        view.step(np.ones(7), step_size=0.25)
    assert states["squares"].pull([5, -3, 17]).tolist() == [0.0, 2.0, 11.0]


def test_weights_and_states_are_evicted_together(ps):
    space = ps.keys()
    t = space.table(2, dtype="float64")
    states = t.optimizer(dv.rows.adam(0.1))
    t.step([1, 2], np.ones((2, 2)))
    t.step([2], np.ones((1, 2)))
    assert states["steps"].pull([1, 2, 3]).tolist() == [1, 2, 0]
    assert space.evict(states["steps"].values < 2) == 1
    assert states["steps"].pull([1, 2]).tolist() == [0, 2]
    t.step([1], np.ones((1, 2)))
    np.testing.assert_allclose(t.pull([1]), [[-0.1, -0.1]])


def test_a_schedule_goes_by_the_steps_that_were_asked_for(ps):
    w = ps.keys().zeros()
    w.optimizer(dv.rows.sgd(InverseTime(1.0)))
    for _ in range(3):
        w.step([5], [1.0])
    np.testing.assert_allclose(w.pull([5]), -(1 + 1 / 2 + 1 / 3))
    w.step([5], [1.0], step_size=10.0)
    np.testing.assert_allclose(w.pull([5]), -(11 + 1 / 2 + 1 / 3))


def test_what_is_no_step_is_refused(ps):
    space = ps.keys()
    w = space.zeros()
    with pytest.raises(TypeError, match=r"t\.optimizer\(dv\.rows\.adagrad"):
        w.step([1], [1.0])
    with pytest.raises(TypeError, match="optimizer must be a row optimizer"):
        w.optimizer("adam")
    with pytest.raises(TypeError, match="got int64"):
        space.zeros("int64").optimizer(dv.rows.sgd())
    w.optimizer(dv.rows.sgd())
    with pytest.raises(ValueError, match=r"2 keys need gradients of shape \(2,\), got \(3,\)"):
        w.step([1, 2], [1.0, 2.0, 3.0])
    assert len(space) == 0
