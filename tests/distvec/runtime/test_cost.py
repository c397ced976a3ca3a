"""What things cost: messages, sweeps, vectors read and written are asserted beside the results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import distvec as dv

N = 5000
LARGE = 1 << 17  # run by compiled kernels in these tests


def cost_of(ps: dv.Session, action: Callable[[], object]) -> dict[str, int]:
    """The counters after ``action`` alone."""
    ps.counters.reset()
    action()
    return ps.counters.snapshot()


@pytest.mark.parametrize("length", [N, LARGE])
def test_fused_expression_with_two_dots_is_one_message_and_one_sweep(
    ps: dv.Session, length: int, small_arrays_are_compiled: None
) -> None:
    a, b, c = (ps.random.normal(length, seed=seed).persist() for seed in range(3))
    z = 2 * a + b * c - 0.5
    first, second = z @ a, z @ z
    plan = ps.plan(z, first, second)
    assert (plan.messages, plan.sweeps, plan.vectors_read, plan.vectors_written) == (1, 1, 3, 1)
    cost = cost_of(ps, lambda: dv.evaluate(z, first, second))
    assert cost["messages"] == cost["sweeps"] == cost["programs"] == 1
    assert (cost["vectors_read"], cost["vectors_written"]) == (3, 1)
    host = 2 * a.numpy() + b.numpy() * c.numpy() - 0.5
    assert (z.numpy() == host).all()
    np.testing.assert_allclose([float(first), float(second)], [host @ a.numpy(), host @ host])


def test_the_readme_snippet_is_one_program(ps: dv.Session) -> None:
    x = ps.array(np.linspace(0, 1, N))
    y = ps.zeros(N)
    ps.counters.reset()
    z = 2 * x + np.exp(y) - x / 3
    s = z @ x
    assert ps.counters.messages == 0
    value, length = float(s), float(np.linalg.norm(z))
    assert ps.counters.messages == ps.counters.sweeps == 1
    host = 2 * x.numpy() + 1 - x.numpy() / 3
    np.testing.assert_allclose([value, length], [host @ x.numpy(), np.linalg.norm(host)])


def test_common_subexpressions_are_the_same_node(ps: dv.Session) -> None:
    x = ps.array(np.arange(10.0))
    assert (np.exp(x) * 2).node is (np.exp(x) * 2).node
    total = np.exp(x) + np.exp(x)
    assert (
        sum(step.op == "exp" for step in ps.plan(total).programs[0].sweeps[0].structure.steps) == 1
    )


def test_sgd_step_is_one_message(ps: dv.Session) -> None:
    x, velocity = ps.zeros(N).persist(), ps.zeros(N).persist()
    gradient = ps.random.normal(N, seed=1).persist()

    def step() -> None:
        nonlocal x, velocity
        velocity = 0.9 * velocity + gradient
        x = x - 0.1 * velocity
        dv.evaluate(x, velocity, gradient @ gradient)

    cost = cost_of(ps, step)
    assert (cost["messages"], cost["sweeps"]) == (1, 1)
    assert (cost["vectors_read"], cost["vectors_written"]) == (3, 2)


def test_a_dependent_scalar_takes_a_second_message_and_no_third(ps: dv.Session) -> None:
    x = ps.random.normal(N, seed=1).persist()
    unit = x / np.linalg.norm(x)
    cost = cost_of(ps, unit.persist)
    assert cost["messages"] == 2
    np.testing.assert_allclose(float(np.linalg.norm(unit)), 1.0)


def test_equal_constants_do_not_make_another_structure(ps: dv.Session) -> None:
    x, y = ps.array(np.ones(N)), ps.array(np.ones(N))

    def structure(a: float, b: float) -> object:
        return ps.plan(a * x + b * y).programs[0].sweeps[0].structure

    assert structure(1.0, 1.0) == structure(2.0, 3.0)


def test_inner_products_of_buffers_are_remembered(ps: dv.Session) -> None:
    x, y = ps.array(np.arange(4.0)), ps.array(np.ones(4))
    assert float(x @ y) == 6.0
    assert cost_of(ps, lambda: float(x @ y) + float(y @ x))["messages"] == 0
    x.push([0], [1.0])
    assert float(x @ y) == 7.0


def test_what_is_pending_and_reads_nothing_new_comes_along(ps: dv.Session) -> None:
    x, other = ps.array(np.arange(10.0)), ps.array(np.ones(10))
    doubled, total, unrelated = x * 2, x.sum(), other + 1
    assert float((x * x).sum()) == 285.0
    cost = cost_of(ps, lambda: (float(total), doubled.persist()))
    assert cost["messages"] == 0
    assert not unrelated.node.known


def test_dead_buffers_leave_with_the_next_message(ps: dv.Session) -> None:
    x = ps.array(np.arange(1000.0))
    kept = (x + 1).persist()
    for _ in range(20):
        (x * 3.0).persist()
    ps.counters.reset()
    float(kept.sum())
    assert ps.counters.messages == 1
    held = max(status.buffers for status in ps.client.status())
    assert held == 2, "x and kept"


def test_a_loop_that_reads_nothing_does_not_grow(ps: dv.Session) -> None:
    x, a = ps.zeros(100), ps.array(np.ones(100))
    for _ in range(1000):
        x += 0.5 * a
    assert x.node.depth <= ps.pending_depth + 2
    assert len(ps.graph) < 2 * ps.pending_nodes
    assert ps.counters.messages < 1000 * 2 / ps.pending_depth + 10
    assert (x.numpy() == 500.0).all()
    assert max(status.buffers for status in ps.client.status()) <= 4


def test_many_independent_pending_arrays_are_flushed(ps: dv.Session) -> None:
    x = ps.array(np.ones(10))
    ps.pending_nodes = 100
    made = [x * float(k) for k in range(300)]
    assert len(ps.graph) <= 2 * 100 + 10
    assert all((array.numpy() == k).all() for k, array in enumerate(made))


def test_creation_and_random_cost_nothing_until_used(ps: dv.Session) -> None:
    def make() -> None:
        ps.zeros(N), ps.ones(N), ps.arange(N), ps.linspace(0, 1, N), ps.random.uniform(N, seed=1)

    assert cost_of(ps, make)["messages"] == 0
    cost = cost_of(ps, lambda: float(ps.random.normal(N, seed=2).sum()))
    assert (cost["vectors_read"], cost["vectors_written"], cost["messages"]) == (0, 0, 1)


def test_small_vectors_are_asked_of_their_holder_only() -> None:
    with dv.local(servers=3, in_process=True) as ps:
        x = ps.array(np.arange(1000.0))
        ps.counters.reset()
        float(x.sum())
        assert ps.counters.messages == 1


def test_a_chain_of_ten_thousand_operations_does_not_overflow_the_stack(ps: dv.Session) -> None:
    ps.pending_depth = ps.pending_nodes = 1_000_000
    x = ps.array(np.zeros(3))
    y = x
    for _ in range(10_000):
        y = y + 1.0
    assert (y.numpy() == 10_000).all()


def test_a_new_form_is_planned_encoded_and_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from distvec import planner
    from ps_backend.client import programs
    from ps_backend.kernels import numpy_engine
    from ps_backend.program import rules
    from ps_backend.wire import codec

    calls: list[str] = []

    def count(module: object, name: str) -> None:
        function = getattr(module, name)

        def counted(*arguments: object) -> object:
            calls.append(name)
            return function(*arguments)

        monkeypatch.setattr(module, name, counted)

    count(planner, "emit")
    count(programs, "encode_sweep")
    count(codec, "decode_sweep")
    count(numpy_engine, "recipe_of")
    monkeypatch.setattr(
        rules, "RULES", (("looked at", lambda s: not calls.append("verify")), *rules.RULES)
    )
    with dv.local(3, in_process=True) as ps:
        x = ps.arange(5000.0).persist()
        for first in (True, False):
            calls.clear()
            y = np.cbrt(x + 0.5) - np.arctan(x - 0.25)  # no other test has this form
            assert float(y.sum()) > 0
            assert calls == (["emit", "encode_sweep", "verify"] if first else [])
