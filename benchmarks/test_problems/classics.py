"""Classics in few dimensions, many with several minima, and quadratics of known condition.

M. Jamil, X.-S. Yang, A literature survey of benchmark functions for global optimisation problems,
Int. J. Mathematical Modelling and Numerical Optimisation 4 (2013) 150-194.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.test_problems import measurements
from benchmarks.test_problems.problem import Problem, analytic, least_squares, repeated


def classics() -> tuple[Problem, ...]:
    """The problems."""
    return (*_quadratics(), *_in_the_plane(), *_in_space(), *_clusters())


def _quadratics() -> list[Problem]:
    return [
        Problem(name, "a quadratic", analytic(formula), repeated((0.0,), n), minimum)
        for name, formula, n, minimum in (
            ("Ill-conditioned diagonal quadratic n=20", _diagonal, 20, 0.0),
            ("Hilbert quadratic n=8", _hilbert, 8, -5.302974802974803),
            ("Trid n=6", _trid, 6, -50.0),
            ("Trid n=10", _trid, 10, -210.0),
        )
    ]


def _in_the_plane() -> list[Problem]:
    return [
        Problem(name, "Jamil and Yang", analytic(formula), start, *minima)
        for name, formula, start, *minima in (
            ("Goldstein-Price", _goldstein_price, (-0.5, -0.5), 3.0, (30.0,)),
            ("Branin", _branin, (2.5, 7.5), 1.25 / np.pi),
            ("Six-hump camel", _six_hump_camel, (0.5, -0.5), -1.0316284534898774),
            ("Three-hump camel", _three_hump_camel, (0.8, 0.8), 0.0),
            (
                "McCormick",
                _mccormick,
                (0.0, 0.0),
                -1.9132229549810364,
                (-1.9132229549810364 - np.pi,),
            ),
            ("Easom", _easom, (2.5, 3.5), -1.0),
            ("Levy 13", _levy_13, (1.1, 0.9), 0.0, (0.10987365835883793,)),
            ("Bohachevsky 1", _bohachevsky_1, (0.1, 0.1), 0.0),
            (
                "Schaffer 4",
                _schaffer_4,
                (0.1, 1.1),
                0.29257863203598056,
                (0.2938737588113202, 0.29642788558291056),
            ),
        )
    ]


def _in_space() -> list[Problem]:
    hartmann_3 = partial(_hartmann, measurements.HARTMANN_3, measurements.HARTMANN_3_CENTRES)
    hartmann_6 = partial(_hartmann, measurements.HARTMANN_6, measurements.HARTMANN_6_CENTRES)
    fours = (3.8, 4.2, 3.8, 4.2)
    rows: tuple[tuple[Any, ...], ...] = (
        ("Rastrigin n=5", analytic(_rastrigin), repeated((0.3,), 5), 0.0, (4.974795285466456,)),
        ("Hartmann 3", analytic(hartmann_3), (0.5, 0.5, 0.5), -3.8627797873326624),
        (
            "Hartmann 6",
            analytic(hartmann_6),
            (0.2, 0.2, 0.5, 0.3, 0.3, 0.6),
            -3.3223680114155147,
        ),
        ("Shekel 5", analytic(partial(_shekel, 5)), fours, -10.153199679058227),
        ("Shekel 10", analytic(partial(_shekel, 10)), fours, -10.536409816692043),
        ("Michalewicz n=5", analytic(_michalewicz), (2.1, 1.5, 1.3, 1.9, 1.7), -4.687658179088146),
        ("Dixon-Price n=10", least_squares(_dixon_price), repeated((1.0,), 10), 0.0, (2 / 3,)),
    )
    return [Problem(name, "Jamil and Yang", *row) for name, *row in rows]


def _clusters() -> list[Problem]:
    """Atoms in space; the minima are those of D. J. Wales, J. P. K. Doye (1997)."""
    triangle = (0.0, 0.0, 0.0, 1.2, 0.0, 0.0, 0.5, 1.0, 0.1)
    return [
        Problem(name, "Wales and Doye", analytic(_lennard_jones), start, minimum)
        for name, start, minimum in (
            ("Lennard-Jones 3", triangle, -3.0),
            ("Lennard-Jones 13", _icosahedron(), -44.326801419533844),
        )
    ]


def _icosahedron() -> tuple[float, ...]:
    """Its centre and its vertices, flattened; too large by 5 percent for a minimum."""
    a, b = 0.5974487217788653, 0.9666923383733836  # in the golden ratio
    signs = [(s, t) for s in (1, -1) for t in (1, -1)]
    vertices = [(0.0, s * a, t * b) for s, t in signs]
    vertices += [(s * a, t * b, 0.0) for s, t in signs]
    vertices += [(t * b, 0.0, s * a) for s, t in signs]
    return tuple(c for point in [(0.0, 0.0, 0.0), *vertices] for c in point)


def _diagonal(x: np.ndarray) -> Any:
    return 0.5 * np.sum(np.logspace(0, 6, x.size) * (x - 1) ** 2)


def _hilbert(x: np.ndarray) -> Any:
    i = np.arange(1, x.size + 1)
    h = 1 / (i[:, None] + i - 1)
    return 0.5 * x @ h @ x - h.sum(axis=1) @ x


def _trid(x: np.ndarray) -> Any:
    return np.sum((x - 1) ** 2) - x[1:] @ x[:-1]


def _goldstein_price(x: np.ndarray) -> Any:
    a, b = x
    first = 19 - 14 * a + 3 * a * a - 14 * b + 6 * a * b + 3 * b * b
    second = 18 - 32 * a + 12 * a * a + 48 * b - 36 * a * b + 27 * b * b
    return (1 + (a + b + 1) ** 2 * first) * (30 + (2 * a - 3 * b) ** 2 * second)


def _branin(x: np.ndarray) -> Any:
    a, b = x
    parabola = b - 5.1 / (4 * np.pi**2) * a * a + 5 / np.pi * a - 6
    return parabola**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10


def _six_hump_camel(x: np.ndarray) -> Any:
    a, b = x
    return (4 - 2.1 * a * a + a**4 / 3) * a * a + a * b + (4 * b * b - 4) * b * b


def _three_hump_camel(x: np.ndarray) -> Any:
    a, b = x
    return 2 * a * a - 1.05 * a**4 + a**6 / 6 + a * b + b * b


def _mccormick(x: np.ndarray) -> Any:
    """Without the usual box the minimum comes again by steps of -(pi, pi), lower by pi each."""
    a, b = x
    return np.sin(a + b) + (a - b) ** 2 - 1.5 * a + 2.5 * b + 1


def _easom(x: np.ndarray) -> Any:
    return -np.cos(x).prod() * np.exp(-np.sum((x - np.pi) ** 2))


def _levy_13(x: np.ndarray) -> Any:
    a, b = x
    first = (a - 1) ** 2 * (1 + np.sin(3 * np.pi * b) ** 2)
    second = (b - 1) ** 2 * (1 + np.sin(2 * np.pi * b) ** 2)
    return np.sin(3 * np.pi * a) ** 2 + first + second


def _bohachevsky_1(x: np.ndarray) -> Any:
    a, b = x
    return a * a + 2 * b * b - 0.3 * np.cos(3 * np.pi * a) - 0.4 * np.cos(4 * np.pi * b) + 0.7


def _schaffer_4(x: np.ndarray) -> Any:
    a, b = x
    # The published sin|u| has the cosine of sin(u), as the cosine is even.
    wave = np.cos(np.sin(a * a - b * b)) ** 2
    return 0.5 + (wave - 0.5) / (1 + 0.001 * (x @ x)) ** 2


def _rastrigin(x: np.ndarray) -> Any:
    return 10 * x.size + np.sum(x * x - 10 * np.cos(2 * np.pi * x))


def _hartmann(
    rates: Sequence[Sequence[float]], centres: Sequence[Sequence[float]], x: np.ndarray
) -> Any:
    exponents = np.sum(np.array(rates) * (x - np.array(centres)) ** 2, axis=1)
    return -np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-exponents)


def _shekel(holes: int, x: np.ndarray) -> Any:
    centres, widths = np.array(measurements.SHEKEL)[:holes], measurements.SHEKEL_WIDTHS[:holes]
    return -np.sum(1 / (np.sum((x - centres) ** 2, axis=1) + widths))


def _michalewicz(x: np.ndarray) -> Any:
    i = np.arange(1, x.size + 1)
    return -np.sum(np.sin(x) * np.sin(i * x * x / np.pi) ** 20)


def _dixon_price(x: np.ndarray) -> Any:
    i = np.arange(2, x.size + 1)
    return np.concatenate([x[:1] - 1, i**0.5 * (2 * x[1:] ** 2 - x[:-1])])


def _lennard_jones(x: np.ndarray) -> Any:
    atoms = x.reshape(-1, 3)
    first, second = np.triu_indices(len(atoms), k=1)
    sixth = np.sum((atoms[first] - atoms[second]) ** 2, axis=1) ** -3
    return 4 * np.sum(sixth * sixth - sixth)
