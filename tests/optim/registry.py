"""Every solver that `optim` offers, for tests that all of them must pass."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import optim
from optim import Box, ElasticNet, Solver
from optim.core.arrays import namespace
from optim.stochastic.base import StochasticSolver

_BOX = Box(-1.5, 0.5)  # its upper bound is active at the minimum of `ill_conditioned`

# By class, what it cannot do without, or where the defaults would leave out a part of the solver.
_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "AdaDelta": [{"step_size": 20.0}],
    "AdaGrad": [{"step_size": 0.5}, {"step_size": 0.5, "l1": 0.3, "l2": 0.1}],
    "ADMM": [{"penalty": ElasticNet(0.3, 0.1)}],
    "Adam": [{"step_size": 0.1}, {"step_size": 0.1, "average": True}],
    "AdamW": [{"step_size": 0.1}],
    "FTRL": [{"step_size": 0.5, "l1": 0.3, "l2": 0.1}],
    "LBFGSB": [{"bounds": _BOX}, {}],
    "OWLQN": [{"l1": 0.3}, {"l1": 0.0}],
    "ProjectedQuasiNewton": [{"projection": _BOX}],
    "ProximalGradient": [{"penalty": ElasticNet(0.3, 0.1)}],
    "RMSProp": [{"step_size": 0.1}, {"step_size": 0.02, "momentum": 0.9, "centered": True}],
    "SAG": [{"step_size": 0.05, "l2": 0.1}],
    "SGD": [
        {"step_size": 0.05},
        {"step_size": 0.02, "momentum": 0.9, "nesterov": True, "average": True},
    ],
    "SVRG": [{"step_size": 0.05}],
    "SpectralProjectedGradient": [{"projection": _BOX}],
}
_STOCHASTIC_ITERATIONS = 40


@dataclass(frozen=True)
class Case:
    """A solver to be made, by class and options."""

    cls: type[Solver]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def stochastic(self) -> bool:
        return issubclass(self.cls, StochasticSolver)

    def make(self, **more: Any) -> Solver:
        """The solver; stochastic ones have no other end than their limit."""
        limit = {"max_iterations": _STOCHASTIC_ITERATIONS} if self.stochastic else {}
        return self.cls(**{**limit, **self.options, **more})

    def __str__(self) -> str:
        return "-".join([self.cls.__name__, *self.options])


def cases() -> list[Case]:
    """At least one for each concrete solver that `optim` exports."""
    exported = [value for _, value in sorted(vars(optim).items()) if inspect.isclass(value)]
    concrete = [c for c in exported if issubclass(c, Solver) and not inspect.isabstract(c)]
    return [Case(cls, opts) for cls in concrete for opts in _OPTIONS.get(cls.__name__, [{}])]


START = np.linspace(-2.0, 3.0, 12)


def ill_conditioned(x: Any) -> tuple[Any, Any]:
    """2 sum of cosh(root (x - 1) / 3), curvatures from 0.2 to 7; on any array library."""
    xp = namespace(x)
    root = xp.asarray(np.logspace(0.0, 0.75, 12))
    up, down = xp.exp(root * (x - 1.0) / 3.0), xp.exp(-root * (x - 1.0) / 3.0)
    return xp.sum(up + down), root * (up - down) / 3.0
