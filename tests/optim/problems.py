"""Objectives with known minima, with gradients exact to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.test_problems import Objective as Objective
from benchmarks.test_problems import problems
from benchmarks.test_problems.problem import least_squares as least_squares
from benchmarks.test_problems.scalable import rosenbrock as rosenbrock


def quadratic(x: Any) -> tuple[Any, Any]:
    """sum (x - 3)^2, on any array library."""
    d = x - 3.0
    return d @ d, 2.0 * d


def quartic(x: Any) -> tuple[Any, Any]:
    """sum (x - 3)^4, on any array library."""
    d = (x - 3.0) ** 2
    return d @ d, 4.0 * d * (x - 3.0)


def logistic(rounded_value: bool, rounded_gradient: bool) -> Objective:
    """A logistic loss with l2 penalty of 30 features; value and gradient perhaps of float32."""
    rng = np.random.default_rng(7)
    features = rng.normal(size=(1000, 30)) * 10.0 ** rng.uniform(-1.0, 1.0, 30)
    signed = features * np.sign(features @ rng.normal(size=30) + rng.normal(size=1000))[:, None]

    def fun(w: np.ndarray) -> tuple[float, np.ndarray]:
        margins = signed @ w
        value = np.logaddexp(0.0, -margins).mean() + 5e-4 * w @ w
        gradient = signed.T @ (-0.5 * (1.0 - np.tanh(0.5 * margins))) / 1000 + 1e-3 * w
        value = float(np.float32(value)) if rounded_value else value
        return value, gradient.astype(np.float32).astype(float) if rounded_gradient else gradient

    return fun


def breeze_start(n: int) -> np.ndarray:
    return np.tile([-1.2, 1.0], n // 2)


_NAMED = (
    "Extended Rosenbrock n=100",
    "Wood",
    "Variably dimensioned n=10",
    "Penalty I n=10",
    "Brown almost-linear n=10",
    "Broyden tridiagonal n=10",
    "Discrete boundary value n=10",
    "Chained Rosenbrock n=10",
    "Chained Rosenbrock n=100",
    "Dixon-Price n=10",
    "Powell badly scaled",
    "Brown badly scaled",
)
# The selection that the tests of several solvers share.
NAMED: dict[str, Objective] = {name: problems()[name].objective for name in _NAMED}


def start_of(entry: dict[str, Any]) -> np.ndarray:
    """The standard start of an entry of test_functions.json."""
    start = entry["start"]
    if isinstance(start, dict):
        x = np.resize(np.array(start["repeat"], dtype=float), entry["dimension"])
        if "last" in start:
            x[-1] = start["last"]
        return x
    return np.array(start, dtype=float)
