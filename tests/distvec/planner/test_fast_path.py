"""Plans kept by form: the plan that all passes made of the first graph, over other values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec import planner as planning
from distvec.planner import Planner
from distvec.planner.forms import Form, form_of


@pytest.fixture
def ps():
    with dv.local(servers=2, in_process=True) as session:
        yield session


def the_form(ps, *arrays, pending=()) -> Form | None:
    targets = [array.node for array in arrays]
    held = [*targets, *(array.node for array in pending)]
    return form_of(ps.graph, targets, held, 64, ())


def has_form(ps, *arrays, pending=()):
    return the_form(ps, *arrays, pending=pending) is not None


def by_passes_alone(monkeypatch):
    monkeypatch.setattr(planning, "form_of", lambda *_: None)


def test_dots_and_updates_have_one(ps):
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    assert has_form(ps, x @ y)
    assert has_form(ps, 2 * x + y)
    assert has_form(ps, (x - (x @ y) * y) @ x)


def test_slots_of_views_are_part_of_it(ps):
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    first = the_form(ps, x[2:] + y[:8])
    assert first.key == the_form(ps, y[2:] + x[:8]).key
    others = [x[2:] + y[2:], x[1:9] + y[:8], x[::-1][2:] + y[:8]]
    keys = {the_form(ps, other).key for other in others}
    assert len(keys) == len(others) and first.key not in keys


def test_other_results_of_a_movement_that_somebody_holds_are_part_of_it(ps):
    table = np.random.default_rng(0).standard_normal((12, 2))
    q, r = np.linalg.qr(ps.array(table))
    alone, both = the_form(ps, r), the_form(ps, r, pending=[q])
    assert alone.key != both.key and len(both.nodes) == len(alone.nodes) + 1
    np.testing.assert_allclose(q.numpy() @ r.numpy(), table, atol=1e-14)


def test_it_says_what_the_passes_look_at(ps):
    """Ops, constants and values, dtypes, what is held, what is the same node."""
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    first = the_form(ps, x + 2 * y)
    assert first.key == the_form(ps, y + 3 * x).key
    others = [x - 2 * y, x + y, x + 2 * x, x + 2 * y.astype("float32"), 2 * y]
    keys = {the_form(ps, other).key for other in others}
    assert len(keys) == len(others) and first.key not in keys
    twice, once = 2 * y, x + 2 * y
    assert the_form(ps, once).key != the_form(ps, once, pending=[twice]).key


def test_the_passes_make_the_same_of_loops(ps, monkeypatch):
    """Programs and goals: with what comes along, norms, and what does not."""
    x, y, other = (ps.array(np.arange(10.0) + k) for k in range(3))

    def targets():
        z = x + y
        held = [z, 2 * z - x, other + z, (z - x).sum(), ps.ones(10), z @ x > 3, x @ y + 1]
        yield [z @ x], held
        yield [z @ x, z], held[1:]
        yield [(z * z).max(), z @ x], held[::-1]
        yield [(z - (z @ x) * y) @ (y - (x @ y) * z)], held[:2]
        yield [np.diff(z) + ps.arange(10)[1:]], [*held, z[::2], np.cumsum(x)]
        yield [np.cumsum(z), np.sort(x) + y], held[2:]
        yield [z[x.astype(int)] * 2, (z[3:] - x[:7]) @ y[3:]], held

    for goals, held in targets():
        nodes = [one.node for one in goals]
        pending = [*nodes, *(one.node for one in held)]
        fresh = Planner(ps.graph)
        first = fresh.plan(nodes, pending)
        again = fresh.plan(nodes, pending)
        with monkeypatch.context() as patched:
            by_passes_alone(patched)
            passes = fresh.plan(nodes, pending)
        assert again.template is first.template, "it was kept"
        assert str(again) == str(passes) == str(first)
        assert [node for node, _ in again.aliases] == [node for node, _ in passes.aliases]


def two_loops(ps, steps, scales):
    """As of a quasi-Newton method: inner products of combinations, some known from before."""
    x, g = ps.array(np.linspace(-1.0, 2.0, 50)), ps.array(np.cos(np.arange(50.0)))
    pairs, values = [], []
    for k in range(steps):
        direction, found = 1.0 * g, []
        for s, y in pairs[::-1]:
            found.append((s @ direction) / (y @ s))
            direction = direction - found[-1] * y
        for (s, y), one in zip(pairs, found[::-1], strict=True):
            direction = direction + (one - (y @ direction) / (y @ s)) * s
        slope = direction @ g
        step = (scales[k] * direction).persist()
        x = x - step
        values += [float(slope), float(x @ x)]
        new = np.tanh(x) + 0.1 * x
        pairs = [*pairs[-2:], (step, (g - new).persist())]
        g = new
    return [*values, *x.numpy()]


@settings(max_examples=8, deadline=None)
@given(scales=st.lists(st.sampled_from([1.0, 0.5, 0.25, -1.0]), min_size=6, max_size=6))
def test_kept_plans_give_the_same_bits_for_the_same_messages(scales):
    """Also where a coefficient is one, or the same as another one, by chance."""
    found = []
    with pytest.MonkeyPatch.context() as patched, dv.local(1, in_process=True) as ps:
        two_loops(ps, 6, scales[::-1])  # what is kept is of other numbers
        for _ in range(2):
            ps.counters.reset()
            values = two_loops(ps, 6, scales)
            found.append((values, ps.counters.messages, ps.counters.vectors_read))
            by_passes_alone(patched)
    assert found[0] == found[1]


@pytest.mark.parametrize("servers", [1, 2])
def test_kept_plans_of_views_and_movements_are_of_other_numbers(servers):
    """Also where a number is the start or the step of a slice, by chance."""
    values = np.linspace(-1.0, 2.0, 20)
    with dv.local(servers, in_process=True) as ps:
        line, x = ps.arange(20), ps.array(values)
        for factor, order in ((2, 1), (5, -1), (2, -1)):
            index = np.arange(20)[::order] % 7
            found = [
                line[2::2] * factor,
                (factor * x)[1:] - x[:-1],
                np.cumsum(factor * x)[ps.array(index)],
                factor * x[ps.array(index)] + x[::-1],
            ]
            expected = [
                np.arange(20)[2::2] * factor,
                (factor * values)[1:] - values[:-1],
                np.cumsum(factor * values)[index],
                factor * values[index] + values[::-1],
            ]
            for mine, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-15, atol=1e-15)


def test_views_after_their_first_run_are_planned_once(monkeypatch):
    """A stencil typed in place, and a product with indices: the second loop makes no pass."""
    passes = []
    by_passes = Planner._by_passes
    monkeypatch.setattr(Planner, "_by_passes", lambda *given: passes.append(1) or by_passes(*given))
    with dv.local(1, in_process=True) as ps:
        x, index = ps.array(np.arange(30.0)), ps.array(np.arange(30)[::-1])
        counts = []
        for _ in range(3):
            passes.clear()
            v = 1.0 * x
            for _ in range(4):
                w = 2 * v
                w[1:] -= v[:-1]
                v = w / np.linalg.norm(w)
                v = np.cumsum(v[index])
            v.numpy()
            counts.append(len(passes))
    assert counts[0] > 0 and counts[1:] == [0, 0]


def test_products_that_cancel_only_later(ps):
    """The same form: the expansion serves once, then it loses digits, and is not used."""
    y = ps.array(np.ones(10))
    for x, cancels in ((np.arange(10.0), False), (np.ones(10), True)):
        a = ps.array(x)
        residual = a - ((a @ y) / (y @ y)) * y
        before = ps.cancellations
        left = residual @ residual
        expected = x - x.mean()
        assert float(left) == pytest.approx(expected @ expected, abs=1e-20)
        assert (ps.cancellations > before) is cancels


def test_known_products_decide(ps, monkeypatch):
    """The plan of a graph whose inner products were not known is not that of one where some are."""
    counts = []
    for _ in range(2):
        counts.append([])
        for known in (0, 1, 2, 3):
            x, y, z = (ps.array(np.arange(10.0) + k) for k in range(3))
            for pair in [(x, x), (y, z), (x, z)][:known]:
                float(pair[0] @ pair[1])
            ps.counters.reset()
            coefficient = (x @ y) / (y @ y)
            value = float((x - coefficient * y) @ (x - coefficient * z))
            assert value == pytest.approx(195 / 49)
            counts[-1].append((ps.counters.messages, ps.counters.vectors_read))
        by_passes_alone(monkeypatch)
    assert counts[0] == counts[1]


def test_what_a_loop_adds_up_is_not_walked(ps):
    """The sum of all steps reads others than the last step: that is found near its end."""
    total, step = ps.zeros(10), ps.array(np.arange(10.0))
    for _ in range(50):
        total = total + 0.5 * step
        step = (0.5 * step).persist()
    found = the_form(ps, step @ step, pending=[total])
    assert found is not None and len(found.nodes) == 3


def test_a_known_product_is_taken(ps):
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    assert float(x @ y) == 45.0
    again = x @ y
    form = the_form(ps, again)
    assert again.node.value == 45.0
    assert form is not None and form.nodes == [again.node]


def test_what_the_client_knows_is_computed(ps):
    """Its operands are no part of the form any more."""
    x, known = ps.array(np.arange(10.0)), dv.sum(ps.ones(10))
    lazy = known / 2 + 1
    product = lazy * x
    assert float(known) == 10.0
    form = the_form(ps, product)
    assert form is not None and len(form.nodes) == 3
    np.testing.assert_array_equal(product.numpy(), 6 * np.arange(10.0))


def test_it_is_planned_as_ever(ps):
    """The plan is the same as that of the passes, which the first of its form went through."""
    x, y = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    first, second = x - y, y - x
    texts = [str(ps.plan(one)) for one in (first, second)]
    assert texts[0] == texts[1]
    np.testing.assert_array_equal(second.numpy(), np.ones(10) - np.arange(10.0))
