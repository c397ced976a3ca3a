"""Inner products of linear combinations: few messages, NumPy's results, digits guarded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import distvec as dv
from optim import LBFGS, OWLQN, SGD

N = 2000


def two_loop(g: Any, pairs: Sequence[tuple[Any, Any, float]], gamma: float) -> Any:
    """The two-loop recursion as anybody would type it (Nocedal & Wright, algorithm 7.4)."""
    q, alphas = g, []
    for s, y, rho in reversed(pairs):
        alpha = rho * (s @ q)
        q = q - alpha * y
        alphas.append(alpha)
    r = gamma * q
    for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
        beta = rho * (y @ r)
        r = r + (alpha - beta) * s
    return r


def history(m: int, scale: float = 1.0, spread: float = 1.0) -> list[tuple[Any, Any, float]]:
    """``m`` pairs of a quadratic; ``spread`` near 0 makes them nearly dependent."""
    rng = np.random.default_rng(m)
    curvature = np.linspace(1, 50, N)
    first = rng.standard_normal(N)
    steps = [scale * (first + spread * rng.standard_normal(N)) for _ in range(m)]
    return [(s, curvature * s, 1.0 / (s @ (curvature * s))) for s in steps]


def on_servers(ps: dv.Session, pairs: Sequence[tuple[Any, Any, float]]) -> list[Any]:
    return [(ps.array(s), ps.array(y), rho) for s, y, rho in pairs]


def relative_error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("m", [1, 2, 3, 5, 10, 20])
def test_two_loop_recursion_takes_two_messages(ps: dv.Session, m: int) -> None:
    pairs, g = history(m), np.random.default_rng(99).standard_normal(N)
    remote, gradient = on_servers(ps, pairs), ps.array(g)
    ps.counters.reset()
    direction = two_loop(gradient, remote, 0.05).persist()
    cost = ps.counters.snapshot()
    assert cost["messages"] == 2
    assert cost["vectors_read"] + cost["vectors_written"] <= 4 * m + 4
    assert relative_error(direction.numpy(), two_loop(g, pairs, 0.05)) < 1e-12


def test_the_next_direction_asks_only_for_new_products(ps: dv.Session) -> None:
    pairs = history(11)
    remote = on_servers(ps, pairs)
    two_loop(ps.array(pairs[0][0]), remote[:10], 0.05).persist()
    direction = two_loop(ps.array(pairs[1][0]), remote[1:], 0.05)
    first = ps.plan(direction).programs[0].sweeps[0].structure
    assert len(first.reductions) <= 5 * 10 + 2, "20 with g, 30 with the new pair"
    assert relative_error(direction.numpy(), two_loop(pairs[1][0], pairs[1:], 0.05)) < 1e-12


@pytest.mark.parametrize("spread", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_hard_histories(ps: dv.Session, spread: float, scale: float) -> None:
    """Nearly dependent pairs, at scales whose squares nearly leave the range of floats."""
    pairs, g = history(8, scale, spread), np.random.default_rng(7).standard_normal(N)
    direction = two_loop(ps.array(g), on_servers(ps, pairs), 0.05)
    assert relative_error(direction.numpy(), two_loop(g, pairs, 0.05)) < 1e-8


def test_cancellation_is_noticed_counted_and_mended(ps: dv.Session) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal(N), rng.standard_normal(N)
    x -= (x @ y) / (y @ y) * y * (1 - 1e-13)
    a, b = ps.array(x), ps.array(y)
    residual = a - ((a @ b) / (b @ b)) * b
    product = residual @ b
    host = x - ((x @ y) / (y @ y)) * y
    assert abs(float(product) - host @ y) <= 1e-12 * np.abs(host * y).sum()
    assert ps.cancellations == 1
    ps.cancellation_limit = np.inf
    again = float((ps.array(x) - ((a @ b) / (b @ b)) * b) @ b)
    assert abs(again - host @ y) <= 1e-10 * np.abs(x * y).sum(), "digits lost, as allowed"
    assert ps.cancellations == 1, "the bound is an option"


def test_what_needs_no_answer_is_not_expanded(ps: dv.Session) -> None:
    x, y = ps.array(np.ones(N)), ps.array(np.ones(N))
    plan = ps.plan((2 * x - 3 * y) @ (x + y))
    assert (plan.messages, plan.sweeps, plan.vectors_read) == (1, 1, 2)
    assert len(plan.programs[0].sweeps[0].structure.reductions) == 1


@given(data=st.data())
def test_random_programs_with_dependent_scalars(
    sessions: dict[int, dv.Session], data: st.DataObject
) -> None:
    """Chains of updates whose coefficients come from inner products, as Gram-Schmidt takes them."""
    ps = sessions[data.draw(st.sampled_from((1, 3)))]
    count, length = data.draw(st.integers(1, 4)), data.draw(st.sampled_from((1, 7, 1500)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10)))
    host = [rng.standard_normal(length) for _ in range(count)]
    remote = [ps.array(v) for v in host]
    bound = 1.0
    for _ in range(data.draw(st.integers(1, 8))):
        i, j, k = (data.draw(st.integers(0, len(host) - 1)) for _ in range(3))
        kind = data.draw(st.sampled_from(("update", "scale", "mix", "normalise")))

        def step(v: Sequence[Any], i: int = i, j: int = j, k: int = k, kind: str = kind) -> Any:
            match kind:
                case "update":
                    return v[i] - ((v[j] @ v[k]) / (1.0 + v[k] @ v[k])) * v[j]
                case "scale":
                    return -(v[i] @ v[j]) / (1.0 + v[i] @ v[i]) * v[k]
                case "mix":
                    return v[i] * 0.5 + v[j] / 4.0 - v[k]
            return v[i] / (1.0 + (v[i] @ v[i]))

        host.append(step(host))
        remote.append(step(remote))
        bound = max(bound, float(np.abs(host[-1]).max()))
    chosen = data.draw(st.lists(st.integers(0, len(host) - 1), min_size=1, max_size=3))
    dv.evaluate(*(remote[c] for c in chosen))
    for c in chosen:
        np.testing.assert_allclose(remote[c].numpy(), host[c], rtol=1e-9, atol=1e-9 * bound)


QUADRATIC_STEPS = [
    (LBFGS(max_iterations=12), 3),
    (OWLQN(l1=0.01, max_iterations=12), 5),
    (SGD(step_size=0.005, momentum=0.9, max_iterations=12), 1),
]


@pytest.mark.parametrize(("solver", "most"), QUADRATIC_STEPS, ids=lambda v: type(v).__name__)
def test_messages_of_an_iteration(ps: dv.Session, solver: Any, most: int) -> None:
    """Solvers that know nothing of servers, with an objective of one message riding along."""
    a, b = np.linspace(1, 100, N), np.random.default_rng(0).standard_normal(N)
    records: list[tuple[int, int]] = []

    def quadratic(a: Any, b: Any) -> Any:
        return lambda x: (0.5 * (x @ (a * x)) - b @ x, a * x - b)

    result = solver.minimize(
        quadratic(ps.array(a), ps.array(b)),
        ps.zeros(N),
        callback=lambda state: records.append((ps.counters.messages, state.evaluations)),
    )
    for (before, first), (after, last) in itertools.pairwise(records):
        assert after - before <= most + (last - first - 1), "one more per extra trial"
    on_numpy = solver.minimize(quadratic(a, b), np.zeros(N))
    assert (result.nit, result.nfev) == (on_numpy.nit, on_numpy.nfev)
    for ours, theirs in zip(result.history, on_numpy.history, strict=True):
        assert ours.value == pytest.approx(theirs.value, rel=1e-8)
    np.testing.assert_allclose(result.x.numpy(), on_numpy.x, rtol=1e-8, atol=1e-10)


def test_remembered_products_do_not_grow_without_bound(ps: dv.Session) -> None:
    x = ps.array(np.ones(4))
    for k in range(700):
        float(x @ ps.array(np.full(4, float(k))))
    assert len(x.node.value.products) <= 512
    assert float(x @ x) == 4.0
