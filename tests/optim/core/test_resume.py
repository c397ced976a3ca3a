"""Runs that are interrupted, saved and resumed go on bit for bit."""

from __future__ import annotations

import dataclasses
import itertools
import pickle

import numpy as np
import pytest

from optim import (
    ADMM,
    LBFGS,
    LBFGSB,
    OWLQN,
    SGD,
    Backtracking,
    Box,
    ConjugateGradient,
    GradientDescent,
    HagerZhang,
    L1Norm,
    Outcome,
    ProjectedQuasiNewton,
    ProximalGradient,
    SpectralProjectedGradient,
    TruncatedNewton,
)
from tests.optim.problems import breeze_start, quadratic, rosenbrock

SOLVERS = [
    LBFGS(history=3),
    LBFGS(search=HagerZhang()),
    LBFGS(search=Backtracking()),
    LBFGSB(bounds=Box(-0.9, np.resize([0.9, 2.0], 20))),
    OWLQN(l1=0.1),
    OWLQN(l1=np.resize([0.0, 0.5], 20)),
    ConjugateGradient(),
    TruncatedNewton(),
    GradientDescent(),
    SpectralProjectedGradient(projection=Box(-2.0, 0.8)),
    ProjectedQuasiNewton(projection=Box(-2.0, 0.8)),
    ProximalGradient(penalty=L1Norm(0.1)),
    ADMM(penalty=L1Norm(0.1)),
    SGD(step_size=1e-4, max_iterations=30),
    SGD(step_size=1e-4, momentum=0.9, average=True, max_iterations=30),
]
every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)


def numbers(states):
    return [(s.iteration, s.value, s.gradient_norm, s.step_size, s.evaluations) for s in states]


@every_solver
@pytest.mark.parametrize("at", [0, 1, 7])
def test_identical_further_steps(solver, at):
    whole = list(solver.iterations(rosenbrock, breeze_start(20)))
    first = list(itertools.islice(solver.iterations(rosenbrock, breeze_start(20)), at + 1))
    saved = pickle.loads(pickle.dumps(first[-1]))
    rest = list(solver.iterations(rosenbrock, saved))
    assert len(whole) > at
    assert numbers(rest) == numbers(whole[at:])
    assert rest[-1].outcome is whole[-1].outcome
    for resumed, expected in zip(rest, whole[at:], strict=True):
        np.testing.assert_array_equal(resumed.x, expected.x)
    assert rest[0].seconds >= saved.seconds


@every_solver
def test_minimize_goes_on(solver):
    states = []
    whole = solver.minimize(rosenbrock, breeze_start(20), callback=states.append)
    seen = []
    result = solver.minimize(rosenbrock, resume=states[4], callback=seen.append)
    assert [state.iteration for state in seen] == [state.iteration for state in states[5:]]
    np.testing.assert_array_equal(result.x, whole.x)
    assert (result.nit, result.nfev, result.outcome) == (whole.nit, whole.nfev, whole.outcome)
    assert result.history[0].value == states[4].value


def test_past_a_limit_with_a_higher_one():
    solver = LBFGS(max_iterations=5)
    *_, last = solver.iterations(rosenbrock, breeze_start(10))
    assert last.outcome is Outcome.LIMIT_ITERATIONS
    again = list(solver.iterations(rosenbrock, last))
    assert [state.outcome for state in again] == [Outcome.LIMIT_ITERATIONS]
    result = dataclasses.replace(solver, max_iterations=500).minimize(rosenbrock, resume=last)
    assert result.success
    assert result.nfev == LBFGS().minimize(rosenbrock, breeze_start(10)).nfev


def test_limit_of_evaluations_counts_from_the_first_start():
    states = list(LBFGS(max_iterations=5).iterations(rosenbrock, breeze_start(10)))
    result = LBFGS(max_evaluations=states[-1].evaluations + 4).minimize(
        rosenbrock, resume=states[-1]
    )
    assert result.outcome is Outcome.LIMIT_EVALUATIONS
    assert result.nfev == states[-1].evaluations + 4


def test_refusals():
    *_, state = LBFGS(max_iterations=2).iterations(rosenbrock, breeze_start(4))
    with pytest.raises(ValueError, match=r"made by LBFGS, so OWLQN cannot continue .* at state.x"):
        OWLQN().minimize(rosenbrock, resume=state)
    with pytest.raises(ValueError, match="got no start"):
        LBFGS().minimize(quadratic)
    with pytest.raises(ValueError, match="got x0 and a state"):
        LBFGS().minimize(quadratic, np.zeros(4), resume=state)
