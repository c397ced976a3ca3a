"""Which graphs need no pass: what plain_order takes has the plan that all passes make."""

from __future__ import annotations

import numpy as np
import pytest

import distvec as dv
from distvec.planner import plain_order


@pytest.fixture
def ps():
    with dv.local(servers=2, in_process=True) as session:
        yield session


def is_plain(ps, *arrays, pending=()):
    targets = [array.node for array in arrays]
    held = [*targets, *(array.node for array in pending)]
    return plain_order(ps.graph, targets, held) is not None


def test_dots_and_updates_are(ps):
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    assert is_plain(ps, x @ y)
    assert is_plain(ps, 2 * x + y)
    assert is_plain(ps, np.sqrt((x - y) @ x))


def test_what_a_pass_would_change_is_not(ps):
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    z = x + y
    dot = z @ x
    assert not is_plain(ps, dot, pending=[z]), "z comes along"
    assert not is_plain(ps, dot, z), "its own norm comes along"
    assert not is_plain(ps, x[2:] + y[:8]), "views"
    assert not is_plain(ps, (x - (x @ y) * y) @ x), "an inner product that may be expanded"
    assert not is_plain(ps, np.cumsum(x)), "a movement"


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
