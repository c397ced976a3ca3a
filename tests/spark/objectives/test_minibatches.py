"""Minibatches over Spark: what a step costs, and that each stochastic solver gets near the optimum
in as few passes over the rows as it does in one process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distvec.losses.classification import Logistic
from distvec.spark import Objective, PSContext
from optim import LBFGS, SAG, SGD, SVRG, AdaGrad, Adam, SquaredL2Norm
from optim.stochastic.schedules import InverseTime
from tests.samples import marked
from tests.spark.conftest import random_problem

pytestmark = pytest.mark.spark

BATCH, PASSES = 30, 8


@pytest.fixture(scope="module")
def objective(spark):
    """A logistic loss of 600 rows, which resident tasks evaluate."""
    problem = random_problem(spark, rows=600, size=20, partitions=2, seed=3, density=0.5)
    options = {"intercept": True, "ps": PSContext.get_or_create(spark, servers=2)}
    penalty = SquaredL2Norm(0.05)
    with Objective(problem.frame, loss=Logistic(), penalty=penalty, **options) as made:
        yield made


COSTS = {
    "SGD": (SGD(step_size=0.1), 1),
    "momentum": (SGD(step_size=0.1, momentum=0.9), 1),
    "averaged": (SGD(step_size=0.1, average=True), 1),
    "AdaGrad": (AdaGrad(step_size=0.1, l1=1e-3), 1),
    "Adam": (Adam(), 1),
    "SAG": (SAG(step_size=0.1), 1),
    "SVRG": (SVRG(step_size=0.1), 2),
}
"""Solvers, and the evaluations of a batch in a step."""


def cost_of_ten_steps(objective, solver):
    """Programs and messages of steps 3 to 12, all of which see a batch only."""
    counters, x = objective.ps.counters, objective.start()
    for state in replace(solver, max_iterations=12).iterations(objective.minibatches(BATCH), x):
        if state.iteration == 2:
            counters.reset()
    cost = counters.snapshot()
    return cost["programs"], cost["messages"]


@pytest.mark.parametrize("name", COSTS)
def test_a_step_is_a_program_and_a_question(objective, name):
    """What reads x alone comes with the program that makes it, and nothing reads the gradient.

    All of so small a space is on one server. Where an answer takes half a second the question is
    repeated, so the least messages of several runs are looked at.
    """
    solver, evaluations = COSTS[name]
    programs, messages = zip(*(cost_of_ten_steps(objective, solver) for _ in range(3)), strict=True)
    needed = 10 * (1 + solver.average)  # the mean reads one more vector
    assert set(programs) == {needed}
    assert min(messages) == needed + 10 * evaluations


REACHES = {
    "SGD": SGD(step_size=InverseTime(0.5, 0.05)),
    "AdaGrad": AdaGrad(step_size=0.2),
    "Adam": Adam(step_size=InverseTime(0.05, 0.02)),
    "SAG": SAG(step_size=0.5),
    "SVRG": SVRG(step_size=0.5),
}


@pytest.fixture(scope="module")
def optimum(objective):
    found = LBFGS(gradient_tolerance=1e-9).minimize(objective, objective.start())
    assert found.success, found.message
    return found.fun


@pytest.mark.parametrize("name", marked(REACHES, long=list(REACHES)[2:]))
def test_solvers_come_within_a_thousandth_of_the_optimum(objective, optimum, name):
    batches = objective.minibatches(BATCH, seed=1)
    solver = replace(REACHES[name], max_iterations=PASSES * batches.batches_per_epoch)
    gap = solver.minimize(batches, objective.start()).fun / optimum - 1.0
    assert -1e-12 < gap < 1e-3
