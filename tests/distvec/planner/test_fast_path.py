"""Which graphs need no pass: what plain_order takes has the plan that all passes make."""

from __future__ import annotations

import numpy as np
import pytest

import distvec as dv
from distvec import planner as planning
from distvec.planner import Planner, plain_order


@pytest.fixture
def ps():
    with dv.local(servers=2, in_process=True) as session:
        yield session


def is_plain(ps, *arrays, pending=()):
    targets = [array.node for array in arrays]
    held = [*targets, *(array.node for array in pending)]
    return plain_order(ps.graph, targets, held, 64) is not None


def test_dots_and_updates_are(ps):
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    assert is_plain(ps, x @ y)
    assert is_plain(ps, 2 * x + y)
    assert is_plain(ps, np.sqrt((x - y) @ x))


def test_what_a_pass_would_change_is_not(ps):
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    assert not is_plain(ps, x[2:] + y[:8]), "views"
    assert not is_plain(ps, (x - (x @ y) * y) @ x), "an inner product that may be expanded"
    assert not is_plain(ps, np.cumsum(x)), "a movement"
    assert not is_plain(ps, x @ y, pending=[x[1:] * 2]), "a view that comes along"


def test_the_passes_make_the_same_of_loops(ps, monkeypatch):
    """Programs, order of nodes, goals: with what comes along, norms, and what does not."""
    x, y, other = (ps.array(np.arange(10.0) + k) for k in range(3))

    def targets():
        z = x + y
        held = [z, 2 * z - x, other + z, (z - x).sum(), ps.ones(10), z @ x > 3, x @ y + 1]
        yield [z @ x], held
        yield [z @ x, z], held[1:]
        yield [(z * z).max(), z @ x], held[::-1]

    for goals, held in targets():
        nodes = [one.node for one in goals]
        pending = [*nodes, *(one.node for one in held)]
        fresh = Planner(ps.graph)
        first = fresh.plan(nodes, pending)
        again = fresh.plan(nodes, pending)
        with monkeypatch.context() as patched:
            patched.setattr(planning, "plain_order", lambda *_: None)
            passes = fresh.plan(nodes, pending)
        assert again.template is first.template
        assert str(again) == str(passes) == str(first)
        assert again.nodes == passes.nodes, "the form is found among those of the passes"


def test_what_a_loop_adds_up_is_not_walked(ps):
    """The sum of all steps reads others than the last step: that is found near its end."""
    total, step = ps.zeros(10), ps.array(np.arange(10.0))
    for _ in range(50):
        total = total + 0.5 * step
        step = (0.5 * step).persist()
    found = plain_order(ps.graph, [(step @ step).node], [total.node], 64)
    assert found is not None and len(found.nodes) == 3 and not found.riders


def test_a_known_product_is_taken(ps):
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    assert float(x @ y) == 45.0
    again = x @ y
    assert not is_plain(ps, again)
    assert again.node.value == 45.0


def test_it_is_planned_as_ever(ps):
    """The plan is the same as that of the passes, which the first of its form went through."""
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    first, second = x - y, y - x
    texts = [str(ps.plan(one)) for one in (first, second)]
    assert texts[0] == texts[1]
    np.testing.assert_array_equal(second.numpy(), np.ones(10) - np.arange(10.0))
