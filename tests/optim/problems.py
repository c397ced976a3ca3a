"""Objectives with known minima, with gradients exact to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Objective = Callable[[Any], tuple[Any, Any]]


def quadratic(x: Any) -> tuple[Any, Any]:
    """sum (x - 3)^2, on any array library."""
    d = x - 3.0
    return d @ d, 2.0 * d


def quartic(x: Any) -> tuple[Any, Any]:
    """sum (x - 3)^4, on any array library."""
    d = (x - 3.0) ** 2
    return d @ d, 4.0 * d * (x - 3.0)


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    """The sum over pairs of coordinates."""
    a, b = x[0::2], x[1::2]
    g = np.empty_like(x)
    g[0::2] = -2.0 * (1.0 - a) - 400.0 * a * (b - a * a)
    g[1::2] = 200.0 * (b - a * a)
    return np.sum((1.0 - a) ** 2 + 100.0 * (b - a * a) ** 2), g


def breeze_start(n: int) -> np.ndarray:
    return np.tile([-1.2, 1.0], n // 2)


def least_squares(residuals: Callable[[np.ndarray], Any]) -> Objective:
    """The sum of squared residuals; their Jacobian by complex steps."""

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        r = np.asarray(residuals(x))
        steps = x + 1e-30j * np.eye(x.size)
        jacobian = np.array([np.imag(residuals(row)) for row in steps]).T / 1e-30
        return float(r @ r), 2.0 * (jacobian.T @ r)

    return fun


def _wood(x: np.ndarray) -> Any:
    a, b, c, d = x
    return np.stack(
        (
            10 * (b - a * a),
            1 - a,
            90**0.5 * (d - c * c),
            1 - c,
            10**0.5 * (b + d - 2),
            (b - d) / 10**0.5,
        )
    )


def _variably(x: np.ndarray) -> Any:
    s = np.arange(1, x.size + 1) @ (x - 1)
    return np.concatenate([x - 1, [s, s * s]])


def _penalty(x: np.ndarray) -> Any:
    return np.concatenate([1e-5**0.5 * (x - 1), [x @ x - 0.25]])


def _brown_linear(x: np.ndarray) -> Any:
    return np.concatenate([x[:-1] + x.sum() - (x.size + 1), [x.prod() - 1]])


def _broyden(x: np.ndarray) -> Any:
    padded = np.concatenate([[0.0], x, [0.0]])
    return (3 - 2 * x) * x - padded[:-2] - 2 * padded[2:] + 1


def _boundary(x: np.ndarray) -> Any:
    h = 1 / (x.size + 1)
    t = h * np.arange(1, x.size + 1)
    padded = np.concatenate([[0.0], x, [0.0]])
    return 2 * x - padded[:-2] - padded[2:] + 0.5 * h * h * (x + t + 1) ** 3


def _chained(x: np.ndarray) -> Any:
    return np.concatenate([10 * (x[1:] - x[:-1] ** 2), 1 - x[:-1]])


def _dixon_price(x: np.ndarray) -> Any:
    i = np.arange(2, x.size + 1)
    return np.concatenate([x[:1] - 1, i**0.5 * (2 * x[1:] ** 2 - x[:-1])])


def _powell(x: np.ndarray) -> Any:
    a, b = x
    return np.stack([1e4 * a * b - 1, np.exp(-a) + np.exp(-b) - 1.0001])


def _brown(x: np.ndarray) -> Any:
    a, b = x
    return np.stack([a - 1e6, b - 2e-6, a * b - 2])


# By the names of test_functions.json, which holds the starts and the minima.
NAMED: dict[str, Objective] = {
    "Extended Rosenbrock n=100": rosenbrock,
    "Wood": least_squares(_wood),
    "Variably dimensioned n=10": least_squares(_variably),
    "Penalty I n=10": least_squares(_penalty),
    "Brown almost-linear n=10": least_squares(_brown_linear),
    "Broyden tridiagonal n=10": least_squares(_broyden),
    "Discrete boundary value n=10": least_squares(_boundary),
    "Chained Rosenbrock n=10": least_squares(_chained),
    "Chained Rosenbrock n=100": least_squares(_chained),
    "Dixon-Price n=10": least_squares(_dixon_price),
    "Powell badly scaled": least_squares(_powell),
    "Brown badly scaled": least_squares(_brown),
}


def start_of(entry: dict[str, Any]) -> np.ndarray:
    """The standard start of an entry of test_functions.json."""
    start = entry["start"]
    if isinstance(start, dict):
        x = np.resize(np.array(start["repeat"], dtype=float), entry["dimension"])
        if "last" in start:
            x[-1] = start["last"]
        return x
    return np.array(start, dtype=float)
