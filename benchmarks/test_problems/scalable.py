"""Problems of any dimension: sums of squares, by Moré, Garbow and Hillstrom and after them.

MGH: J. J. Moré, B. S. Garbow, K. E. Hillstrom, ACM TOMS 7 (1981) 17-41, with the problem's number.
CUTEst: the test set of N. I. M. Gould, D. Orban, P. L. Toint, Comput. Optim. Appl. 60 (2015)
545-557.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from benchmarks.test_problems.problem import Problem, analytic, least_squares, repeated


def scalable() -> tuple[Problem, ...]:
    """The problems, in the dimensions that are usual."""
    return (*_rosenbrocks(), *_more_garbow_hillstrom(), *_chebyquads(), *_cutest())


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    """The extended Rosenbrock function, a sum over pairs of coordinates; in the dtype of x."""
    a, b = x[0::2], x[1::2]
    g = np.empty_like(x)
    g[0::2] = -2.0 * (1.0 - a) - 400.0 * a * (b - a * a)
    g[1::2] = 200.0 * (b - a * a)
    return np.sum((1.0 - a) ** 2 + 100.0 * (b - a * a) ** 2), g


def _rosenbrocks() -> list[Problem]:
    pair = (-1.2, 1.0)
    extended = [
        Problem(f"Extended Rosenbrock n={n}", "MGH 21", rosenbrock, repeated(pair, n), 0.0)
        for n in (10, 100, 1000)
    ]
    # Near (-1, 1, ..., 1) lies another minimum.
    chained = [
        Problem(
            f"Chained Rosenbrock n={n}",
            "SciPy's rosen",
            least_squares(_chained_rosenbrock),
            repeated(pair, n),
            0.0,
            (other,),
        )
        for n, other in ((10, 3.9865791123471386), (100, 3.9866238543009334))
    ]
    return extended + chained


def _more_garbow_hillstrom() -> list[Problem]:
    """Of dimension 10, unless the name says otherwise."""
    i = np.arange(1, 11)
    halves, ones = repeated((0.5,), 10), repeated((1.0,), 10)
    integers, parabola = tuple(i * 1.0), tuple(i / 11 * (i / 11 - 1))
    return [
        Problem(name, f"MGH {number}", least_squares(residuals), start, *minima)
        for name, number, residuals, start, *minima in (
            ("Watson n=9", 20, _watson, repeated((0.0,), 9), 1.39976013809902e-06),
            ("Watson n=12", 20, _watson, repeated((0.0,), 12), 4.722381105891757e-10),
            ("Penalty I n=10", 23, _penalty_1, integers, 7.087651467090369e-05),
            ("Penalty II n=10", 24, _penalty_2, halves, 0.00029366053745674594),
            ("Variably dimensioned n=10", 25, _variably_dimensioned, tuple(1 - i / 10), 0.0),
            (
                "Trigonometric n=10",
                26,
                _trigonometric,
                repeated((0.1,), 10),
                0.0,
                (2.7950561218794563e-05,),
            ),
            ("Brown almost-linear n=10", 27, _brown_almost_linear, halves, 0.0, (1.0,)),
            ("Discrete boundary value n=10", 28, _boundary_value, parabola, 0.0),
            ("Discrete integral equation n=10", 29, _integral_equation, parabola, 0.0),
            ("Broyden tridiagonal n=10", 30, _broyden_tridiagonal, tuple(-1.0 + 0 * i), 0.0),
            ("Broyden banded n=10", 31, _broyden_banded, tuple(-1.0 + 0 * i), 0.0),
            ("Linear full rank n=10 m=20", 32, _linear_full_rank, ones, 10.0),
            ("Linear rank 1 n=10 m=20", 33, _linear_rank_1, ones, 190 / 41),
        )
    ]


def _chebyquads() -> list[Problem]:
    return [
        Problem(
            f"Chebyquad n={n}",
            "MGH 35",
            least_squares(_chebyquad),
            tuple(i / (n + 1) for i in range(1, n + 1)),
            *minima,
        )
        for n, *minima in (
            (7, 0.0),
            (8, 0.0035168737256779316),
            (9, 0.0),
            (10, 0.006503954800882306, (0.004772713696375335,)),  # lower, but far from the start
        )
    ]


def _cutest() -> list[Problem]:
    return [
        Problem(name, f"CUTEst {name.split()[0]}", analytic(formula), repeated((start,), n), least)
        for name, formula, n, start, least in (
            ("ENGVAL1 n=10", _engval1, 10, 2.0, 9.177469957181389),
            ("ARWHEAD n=100", _arwhead, 100, 1.0, 0.0),
            ("LIARWHD n=100", _liarwhd, 100, 4.0, 0.0),
            ("TRIDIA n=30", _tridia, 30, 1.0, 0.0),
            ("DIXMAANA n=15", _dixmaana, 15, 2.0, 1.0),
        )
    ]


def _chained_rosenbrock(x: np.ndarray) -> Any:
    return np.concatenate([10 * (x[1:] - x[:-1] ** 2), 1 - x[:-1]])


def _watson(x: np.ndarray) -> Any:
    j, derivative, value = _powers_of_watson(x.size)
    return np.concatenate(
        [derivative @ (j * x) - (value @ x) ** 2 - 1, [x[0], x[1] - x[0] ** 2 - 1]]
    )


@cache
def _powers_of_watson(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    j, t = np.arange(n), np.arange(1, 30)[:, None] / 29
    return j, t ** np.maximum(j - 1, 0), t**j


def _penalty_1(x: np.ndarray) -> Any:
    return np.concatenate([1e-5**0.5 * (x - 1), [x @ x - 0.25]])


_EXP_OF_MINUS_TENTH = np.exp(-1 / 10)


def _penalty_2(x: np.ndarray) -> Any:
    y, weights = _constants_of_penalty_2(x.size)
    e = np.exp(x / 10)
    small = 1e-5**0.5 * np.concatenate([e[1:] + e[:-1] - y, e[1:] - _EXP_OF_MINUS_TENTH])
    return np.concatenate([x[:1] - 0.2, small, [weights @ (x * x) - 1]])


@cache
def _constants_of_penalty_2(n: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.exp(np.arange(1, n + 1) / 10)
    return y[1:] + y[:-1], np.arange(n, 0, -1)


def _variably_dimensioned(x: np.ndarray) -> Any:
    s = np.arange(1, x.size + 1) @ (x - 1)
    return np.concatenate([x - 1, [s, s * s]])


def _trigonometric(x: np.ndarray) -> Any:
    i = np.arange(1, x.size + 1)
    return x.size - np.cos(x).sum() + i * (1 - np.cos(x)) - np.sin(x)


def _brown_almost_linear(x: np.ndarray) -> Any:
    return np.concatenate([x[:-1] + x.sum() - (x.size + 1), [x.prod() - 1]])


def _boundary_value(x: np.ndarray) -> Any:
    h = 1 / (x.size + 1)
    t = h * np.arange(1, x.size + 1)
    padded = np.concatenate([[0.0], x, [0.0]])
    return 2 * x - padded[:-2] - padded[2:] + 0.5 * h * h * (x + t + 1) ** 3


def _integral_equation(x: np.ndarray) -> Any:
    h = 1 / (x.size + 1)
    t = h * np.arange(1, x.size + 1)
    kernel = np.minimum(t, t[:, None]) * (1 - np.maximum(t, t[:, None]))
    return x + 0.5 * h * (kernel @ (x + t + 1) ** 3)


def _broyden_tridiagonal(x: np.ndarray) -> Any:
    padded = np.concatenate([[0.0], x, [0.0]])
    return (3 - 2 * x) * x - padded[:-2] - 2 * padded[2:] + 1


def _broyden_banded(x: np.ndarray) -> Any:
    n = x.size
    band = np.tri(n, k=1) - np.tri(n, k=-6) - np.eye(n)  # from 5 below the diagonal to 1 above
    return x * (2 + 5 * x * x) + 1 - band @ (x * (1 + x))


def _linear_full_rank(x: np.ndarray) -> Any:
    shift = -x.sum() / x.size - 1  # of m = 2n residuals
    return np.concatenate([x + shift, np.full(x.size, shift)])


def _linear_rank_1(x: np.ndarray) -> Any:
    return np.arange(1, 2 * x.size + 1) * (np.arange(1, x.size + 1) @ x) - 1


def _chebyquad(x: np.ndarray) -> Any:
    """The errors of equal-weight quadrature at x, of Chebyshev polynomials shifted to [0, 1]."""
    t = 2 * x - 1
    before, polynomial = np.ones_like(t), t
    errors = []
    for i in range(1, x.size + 1):
        integral = 0.0 if i % 2 else -1 / (i * i - 1)
        errors.append(polynomial.mean() - integral)
        before, polynomial = polynomial, 2 * t * polynomial - before
    return np.stack(errors)


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
