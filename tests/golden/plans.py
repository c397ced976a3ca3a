"""The plans that one iteration of each solver runs, once its history is full, as text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import distvec as dv
from optim import (
    LBFGS,
    OWLQN,
    SGD,
    AdaGrad,
    Adam,
    ConjugateGradient,
    GradientDescent,
    L1Norm,
    ProximalGradient,
    RMSProp,
)

FOLDER = Path(__file__).parent
RENEW = ".venv/bin/python -m tests.golden"

_LENGTH = 5000
_ITERATIONS = 10

SOLVERS: Mapping[str, Callable[[], Any]] = {
    "adagrad": lambda: AdaGrad(max_iterations=_ITERATIONS),
    "adam": lambda: Adam(max_iterations=_ITERATIONS),
    "conjugate_gradient": lambda: ConjugateGradient(max_iterations=_ITERATIONS),
    "gradient_descent": lambda: GradientDescent(max_iterations=_ITERATIONS),
    "lbfgs": lambda: LBFGS(history=3, max_iterations=_ITERATIONS),
    "owlqn": lambda: OWLQN(l1=0.01, history=3, max_iterations=_ITERATIONS),
    "proximal_gradient": lambda: ProximalGradient(penalty=L1Norm(0.01), max_iterations=_ITERATIONS),
    "rmsprop": lambda: RMSProp(max_iterations=_ITERATIONS),
    "sgd_momentum": lambda: SGD(step_size=0.005, momentum=0.9, max_iterations=_ITERATIONS),
}
"""Solvers by the name of the file that holds their plans."""


def path_of(name: str) -> Path:
    """The file of a solver's plans."""
    return FOLDER / f"{name}.txt"


def plans_of_an_iteration(solver: Any) -> str:
    """What one of ten iterations runs on a quadratic, in order of execution.

    The last of those that evaluate the objective as few times as any.
    """
    curvature = np.linspace(1.0, 100.0, _LENGTH)
    with dv.local(servers=2, in_process=True) as session, dv.profile(show=False) as profile:
        a, b = session.array(curvature), session.array(np.sin(np.arange(_LENGTH)))
        seen: list[tuple[int, int]] = []
        solver.minimize(
            lambda x: (0.5 * (x @ (a * x)) - b @ x, a * x - b),
            session.zeros(_LENGTH),
            callback=lambda state: seen.append((len(profile.plans), state.evaluations)),
        )
        texts = [str(plan) for plan in profile.plans]
    iterations = [
        (after - before, -start, end) for (start, before), (end, after) in itertools.pairwise(seen)
    ]
    _, start, end = min(iterations)
    return "\n\n".join(texts[-start:end]) + "\n"
