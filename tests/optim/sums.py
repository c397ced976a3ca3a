"""More objectives of test_functions.json, written as one number; gradients by complex steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.optim.problems import NAMED, Objective, least_squares


def complex_step(function: Callable[[np.ndarray], Any]) -> Objective:
    """The function with its gradient, exact to rounding, for what is analytic."""

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        steps = x + 1e-30j * np.eye(x.size)
        gradient = np.array([np.imag(function(row)) for row in steps]) / 1e-30
        return float(function(x)), gradient

    return fun


def _engval1(x: np.ndarray) -> Any:
    return np.sum((x[:-1] ** 2 + x[1:] ** 2) ** 2 - 4 * x[:-1] + 3)


def _arwhead(x: np.ndarray) -> Any:
    return np.sum((x[:-1] ** 2 + x[-1] ** 2) ** 2 - 4 * x[:-1] + 3)


def _liarwhd(x: np.ndarray) -> Any:
    return np.sum(4 * (x * x - x[0]) ** 2 + (x - 1) ** 2)


def _tridia(x: np.ndarray) -> Any:
    i = np.arange(2, x.size + 1)
    return (x[0] - 1) ** 2 + np.sum(i * (2 * x[1:] - x[:-1]) ** 2)


def _dixmaana(x: np.ndarray) -> Any:
    m = x.size // 3
    quartic = np.sum(x[: 2 * m] ** 2 * x[m:] ** 4)
    return 1 + x @ x + 0.125 * quartic + 0.125 * (x[:m] @ x[2 * m :])


def _trid(x: np.ndarray) -> Any:
    return np.sum((x - 1) ** 2) - x[1:] @ x[:-1]


def _hilbert(x: np.ndarray) -> Any:
    i = np.arange(1, x.size + 1)
    h = 1.0 / (i[:, None] + i - 1)
    return 0.5 * x @ h @ x - h.sum(axis=1) @ x


def _broyden_banded(x: np.ndarray) -> Any:
    n = x.size
    coupled = [sum(x[j] * (1 + x[j]) for j in range(max(0, i - 5), min(n, i + 2)) if j != i)
               for i in range(n)]  # fmt: skip
    return x * (2 + 5 * x * x) + 1 - np.array(coupled)


def _linear_full_rank(x: np.ndarray) -> Any:
    shift = -2 / (2 * x.size) * x.sum() - 1
    return np.concatenate([x + shift, np.full(x.size, shift)])


SMOOTH: dict[str, Objective] = {
    **NAMED,
    "Broyden banded n=10": least_squares(_broyden_banded),
    "Linear full rank n=10 m=20": least_squares(_linear_full_rank),
    "ENGVAL1 n=10": complex_step(_engval1),
    "ARWHEAD n=100": complex_step(_arwhead),
    "LIARWHD n=100": complex_step(_liarwhd),
    "TRIDIA n=30": complex_step(_tridia),
    "DIXMAANA n=15": complex_step(_dixmaana),
    "Trid n=6": complex_step(_trid),
    "Trid n=10": complex_step(_trid),
    "Hilbert quadratic n=8": complex_step(_hilbert),
}
