"""A state is all that a run needs to go on, also after a journey through pickle."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from optim import (
    ADMM,
    Box,
    GradientDescent,
    L1Norm,
    ProjectedQuasiNewton,
    ProximalGradient,
    SpectralProjectedGradient,
)
from tests.optim.problems import breeze_start, rosenbrock

SOLVERS = [
    GradientDescent(),
    SpectralProjectedGradient(projection=Box(-2.0, 0.8)),
    ProjectedQuasiNewton(projection=Box(-2.0, 0.8)),
    ProximalGradient(penalty=L1Norm(0.1)),
    ADMM(penalty=L1Norm(0.1)),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
def test_the_same_steps_follow(solver):
    states = list(solver.iterations(rosenbrock, breeze_start(6)))
    middle = pickle.loads(pickle.dumps(states[4]))
    resumed = list(solver.iterations(rosenbrock, middle))
    assert len(states) > 10
    assert [s.value for s in resumed] == [s.value for s in states[4:]]
    np.testing.assert_array_equal(resumed[-1].x, states[-1].x)
    assert resumed[-1].outcome is states[-1].outcome
    assert resumed[-1].evaluations == states[-1].evaluations
