"""Every solver over vectors on servers: NumPy's path, and what a step costs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import distvec as dv
from optim import SAG, SGD, SVRG, AdaGrad, Adam, FiniteSum, TruncatedNewton
from tests.optim.registry import START, cases, ill_conditioned

N = 2000
CURVATURE = np.linspace(1.0, 10.0, N)
LINEAR = np.random.default_rng(0).standard_normal(N)

# Messages of an iteration at most: so many, and so many more for each evaluation in it.
MESSAGES = {
    "ADMM": (4, 2),
    "ConjugateGradient": (1, 1),
    "GradientDescent": (0, 1),
    "LBFGS": (2, 1),
    "LBFGSB": (3, 1),
    "OWLQN": (3, 1),
    "ProjectedQuasiNewton": (40, 1),  # about 6 for each inner iteration, of which there may be 50
    "ProximalGradient": (0, 1),
    "SpectralProjectedGradient": (1, 1),
    "TruncatedNewton": (0, 5),  # the product with the Hessian is two gradients' difference
}


@pytest.fixture(scope="module")
def ps() -> Iterator[dv.Session]:
    with dv.local(servers=2, in_process=True) as session:
        yield session


def on_servers(ps):
    """x @ (a * x) / 2 - b @ x and its gradient; reads two vectors besides x."""
    a, b = ps.array(CURVATURE), ps.array(LINEAR)
    return lambda x: (0.5 * (x @ (a * x)) - b @ x, a * x - b)


def costs(ps, states):
    """State by state, what each iteration after the start added to the counters."""
    seen = [(ps.counters.snapshot(), state) for state in states]
    for (before, _), (after, state) in itertools.pairwise(seen):
        yield {name: after[name] - before[name] for name in after}, state


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_same_path_on_servers(ps, case):
    solver = case.make()
    ours = solver.minimize(ill_conditioned, START)
    theirs = solver.minimize(ill_conditioned, ps.array(START))
    assert isinstance(theirs.x, dv.DistArray)
    for one, other in zip(ours.history[:10], theirs.history[:10], strict=True):
        assert other.value == pytest.approx(one.value, rel=1e-8)
    assert theirs.outcome is ours.outcome
    assert theirs.fun == pytest.approx(ours.fun, rel=1e-9)
    np.testing.assert_allclose(theirs.x.numpy(), ours.x, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", [c for c in cases() if c.stochastic], ids=str)
def test_a_stochastic_step_is_one_message_and_one_sweep(ps, case):
    """It reads and writes what it must: x, gradient and the solver's vectors, and reads the data.

    The program of a step does not depend on its number: servers know it from the steps before.
    """
    solver = case.make(max_iterations=6)
    # A function without batches needs no snapshot; SAG reads the old gradient besides the new.
    slots = 0 if isinstance(solver, SVRG) else len(solver.slots)
    vectors = 2 + slots + solver.average
    old_gradient = isinstance(solver, SAG)
    steps = list(costs(ps, solver.iterations(on_servers(ps), ps.zeros(N))))
    assert [(cost["messages"], cost["sweeps"]) for cost, _ in steps] == [(1, 1)] * 6
    for cost, _ in steps[3:]:
        assert cost["vectors_read"] == 2 + vectors + old_gradient
        assert cost["vectors_written"] == vectors
        assert cost["bytes_sent"] == steps[-1][0]["bytes_sent"] < 700, "only ids and numbers travel"


@pytest.mark.parametrize("case", [c for c in cases() if not c.stochastic], ids=str)
def test_messages_of_deterministic_solvers(ps, case):
    name = case.cls.__name__
    assert name in MESSAGES, f"measure an iteration of {name} and add it to MESSAGES"
    fixed, per_evaluation = MESSAGES[name]
    evaluations = 1
    states = case.make(max_iterations=5).iterations(on_servers(ps), ps.zeros(N))
    for cost, state in costs(ps, states):
        assert cost["messages"] <= fixed + per_evaluation * (state.evaluations - evaluations)
        evaluations = state.evaluations
    assert state.iteration > 1


def parts_on_servers(ps):
    """The same quadratic as a sum of four terms, each with two vectors of its own."""
    curvatures = [ps.array(CURVATURE * scale) for scale in (0.5, 0.8, 1.2, 1.5)]
    linears = [ps.array(LINEAR + shift) for shift in (-0.3, -0.1, 0.1, 0.3)]

    def term(x, i):
        a, b = curvatures[i], linears[i]
        return 0.5 * (x @ (a * x)) - b @ x, a * x - b

    return FiniteSum(term, 4)


@pytest.mark.parametrize(
    "solver",
    [
        SGD(step_size=0.02, momentum=0.9),
        AdaGrad(step_size=0.02, l1=0.01),
        Adam(step_size=0.02),
        SAG(step_size=0.02, l2=0.1),
        SVRG(step_size=0.02),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_batches_cost_one_message_even_where_the_whole_is_looked_at(ps, solver):
    solver = replace(solver, max_iterations=17)
    objective = parts_on_servers(ps)
    steps = list(costs(ps, solver.iterations(objective, ps.zeros(N))))
    assert [cost["messages"] for cost, _ in steps] == [1] * 17
    ps.counters.reset()
    result = solver.minimize(objective, ps.zeros(N))
    assert ps.counters.messages == 1 + 17 + 1, "the start, the steps, the whole at the end"
    penalty = solver.penalty.value(result.x) if solver.penalty else 0.0
    assert result.fun == pytest.approx(float(objective(result.x)[0] + penalty), rel=1e-12)
    assert result.fun < -0.5


def test_a_function_of_values_is_resumed_with_its_own_products(ps):
    """The library that differentiates it gives exact products with the Hessian, then as before."""
    curvatures = ps.array(np.linspace(1.0, 50.0, 40))
    solver = TruncatedNewton()

    def fun(x):
        return dv.sum(curvatures * x**4 + x**2)

    whole = list(solver.iterations(fun, ps.ones(40)))
    rest = list(solver.iterations(fun, whole[3]))
    assert [state.value for state in rest] == [state.value for state in whole[3:]]
    assert rest[-1].evaluations == whole[-1].evaluations
