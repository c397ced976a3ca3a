"""J. J. Moré, B. S. Garbow, K. E. Hillstrom, Testing unconstrained optimization software.

ACM Transactions on Mathematical Software 7 (1981) 17-41. The residuals of its problems, by their
numbers there; those of any dimension are in scalable.py. Where the paper gives no minimum to enough
digits, Newton's method in 60 digits gave the value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.test_problems.measurements import OSBORNE_1, OSBORNE_2
from benchmarks.test_problems.problem import Problem, least_squares


def more_garbow_hillstrom() -> tuple[Problem, ...]:
    """The problems of fixed dimension."""
    return (
        Problem("Rosenbrock", "MGH 1", least_squares(_rosenbrock), (-1.2, 1.0), 0.0),
        Problem(
            "Freudenstein-Roth",
            "MGH 2",
            least_squares(_freudenstein_roth),
            (0.5, -2.0),
            0.0,
            (48.98425367924002,),
        ),
        Problem(
            "Powell badly scaled", "MGH 3", least_squares(_powell_badly_scaled), (0.0, 1.0), 0.0
        ),
        Problem("Brown badly scaled", "MGH 4", least_squares(_brown_badly_scaled), (1.0, 1.0), 0.0),
        Problem(
            "Jennrich-Sampson",
            "MGH 6",
            least_squares(_jennrich_sampson),
            (0.3, 0.4),
            124.36218235561485,
            (259.58019013425326,),  # where the second coordinate is far below 0
        ),
        Problem(
            "Gulf research and development",
            "MGH 11, with the absolute value that its misprint lacks",
            least_squares(_gulf),
            (5.0, 2.5, 0.15),
            0.0,
        ),
        Problem("Wood", "MGH 14", least_squares(_wood), (-3.0, -1.0, -3.0, -1.0), 0.0),
        Problem(
            "Osborne 1",
            "MGH 17",
            least_squares(_osborne_1),
            (0.5, 1.5, -1.0, 0.01, 0.02),
            5.464894697482907e-05,
        ),
        Problem(
            "Biggs EXP6",
            "MGH 18",
            least_squares(_biggs),
            (1.0, 2.0, 1.0, 1.0, 1.0, 1.0),
            0.0,
            (0.005655649925499931,),
        ),
        Problem(
            "Osborne 2",
            "MGH 19",
            least_squares(_osborne_2),
            (1.3, 0.65, 0.65, 0.7, 0.6, 3.0, 5.0, 7.0, 2.0, 4.5, 5.5),
            0.040137736293547735,
        ),
    )


def _rosenbrock(x: np.ndarray) -> Any:
    a, b = x
    return np.stack([10 * (b - a * a), 1 - a])


def _freudenstein_roth(x: np.ndarray) -> Any:
    a, b = x
    return np.stack([-13 + a + ((5 - b) * b - 2) * b, -29 + a + ((b + 1) * b - 14) * b])


def _powell_badly_scaled(x: np.ndarray) -> Any:
    a, b = x
    return np.stack([1e4 * a * b - 1, np.exp(-a) + np.exp(-b) - 1.0001])


def _brown_badly_scaled(x: np.ndarray) -> Any:
    a, b = x
    return np.stack([a - 1e6, b - 2e-6, a * b - 2])


def _jennrich_sampson(x: np.ndarray) -> Any:
    i = np.arange(1, 11)
    return 2 + 2 * i - (np.exp(i * x[0]) + np.exp(i * x[1]))


def _gulf(x: np.ndarray) -> Any:
    a, b, c = x
    t = np.arange(1, 100) / 100
    y = 25 + (-50 * np.log(t)) ** (2 / 3)
    # The power of the square, as |y - b| is not analytic.
    return np.exp(-(((y - b) ** 2) ** (0.5 * c)) / a) - t


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


def _osborne_1(x: np.ndarray) -> Any:
    t = 10 * np.arange(33)
    return OSBORNE_1 - (x[0] + x[1] * np.exp(-t * x[3]) + x[2] * np.exp(-t * x[4]))


def _biggs(x: np.ndarray) -> Any:
    t = np.arange(1, 14) / 10
    y = np.exp(-t) - 5 * np.exp(-10 * t) + 3 * np.exp(-4 * t)
    return x[2] * np.exp(-t * x[0]) - x[3] * np.exp(-t * x[1]) + x[5] * np.exp(-t * x[4]) - y


def _osborne_2(x: np.ndarray) -> Any:
    t = np.arange(65) / 10
    peaks = [x[k] * np.exp(-((t - x[k + 7]) ** 2) * x[k + 4]) for k in (1, 2, 3)]
    return OSBORNE_2 - (x[0] * np.exp(-t * x[4]) + sum(peaks))
