"""Functions with gradients and known minima, for optimizers, on any array that has a namespace.

All are typed with operators and functions of the array API, so they run on NumPy arrays and on
distributed ones, and cost one message with whatever else is asked for at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Start = Callable[[int], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class TestProblem:
    """A function to minimize over vectors of any length ``n``, with its known minimum.

    Parameters
    ----------
    name : str
        Name of the problem.
    fun : callable
        ``fun(x)`` returns the value, a scalar, and the gradient, shape ``(n,)``.
    start : callable
        ``start(n)`` returns the starting point, a float64 NumPy vector of shape ``(n,)``.
    minimum : callable
        ``minimum(n)`` returns the value at the global minimum.
    convex : bool
        Whether every stationary point is a global minimum.

    Examples
    --------
    >>> from distvec.testing import problem
    >>> quadratic = problem("quadratic")
    >>> value, gradient = quadratic.fun(ps.array(quadratic.start(5)))
    >>> float(value), gradient.shape, quadratic.minimum(5)
    (828.125, (5,), 0.0)
    """

    __test__ = False  # for pytest, which takes the name for a test's

    name: str
    fun: Callable[[Any], tuple[Any, Any]]
    """``fun(x)``: the value, of rank 0, and the gradient, of the shape of x."""
    start: Start
    """``start(n)``: where to begin, a NumPy float64 vector of shape ``(n,)``."""
    minimum: Callable[[int], float]
    """``minimum(n)``: the value at the global minimum; at every stationary point if convex."""
    convex: bool

    def __repr__(self) -> str:
        return f"problem({self.name!r})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For Hypothesis, which would print the fields."""
        printer.text(repr(self))


def _zero(n: int) -> float:
    return 0.0


def _ramp(low: float, high: float) -> Start:
    return lambda n: np.linspace(low, high, n)


def _one_to_n(n: int) -> npt.NDArray[np.float64]:
    return np.arange(1.0, n + 1.0)


def _quadratic(x: Any) -> tuple[Any, Any]:
    """``sum(a (x - 3)^2) / 2`` with curvatures a from 1 to 100."""
    d = x - 3.0
    curved = x.__array_namespace__().linspace(1.0, 100.0, x.shape[0]) * d
    return 0.5 * (d @ curved), curved


def _quartic(x: Any) -> tuple[Any, Any]:
    """``sum((x - 3)^4)``, whose Hessian vanishes at the minimum."""
    d = x - 3.0
    squares = d * d
    return squares @ squares, 4.0 * squares * d


def _pseudo_huber(x: Any) -> tuple[Any, Any]:
    """``sum(sqrt(1 + (x - 1)^2) - 1)``: quadratic near 1, linear far away."""
    xp, d = x.__array_namespace__(), x - 1.0
    root = xp.sqrt(1.0 + d * d)
    return xp.sum(root - 1.0), d / root


def _logistic(x: Any) -> tuple[Any, Any]:
    """``sum(log(1 + exp(x)) - p x)``: cross entropy with probabilities p from 0.1 to 0.9."""
    xp = x.__array_namespace__()
    p = xp.linspace(0.1, 0.9, x.shape[0])
    tail = xp.exp(-xp.abs(x))  # never overflows
    softplus = xp.maximum(x, 0.0) + xp.log1p(tail)
    sigmoid = xp.where(x >= 0, 1.0 / (1.0 + tail), tail / (1.0 + tail))
    return xp.sum(softplus - p * x), sigmoid - p


def _entropy(n: int) -> float:
    p = np.linspace(0.1, 0.9, n)
    return float(-(p * np.log(p) + (1 - p) * np.log(1 - p)).sum())


def _log_sum_exp(x: Any) -> tuple[Any, Any]:
    """``log(sum(exp(x) + exp(-x)))``: smooth, every coordinate coupled to every other."""
    xp = x.__array_namespace__()
    shift = xp.max(xp.abs(x))  # so that no exponential overflows
    up, down = xp.exp(x - shift), xp.exp(-x - shift)
    total = xp.sum(up + down)
    return xp.log(total) + shift, (up - down) / total


def _double_well(x: Any) -> tuple[Any, Any]:
    """``sum((x^2 - 1)^2)``, with a minimum at each corner of the cube and a maximum at 0."""
    gap = x * x - 1.0
    return gap @ gap, 4.0 * gap * x


def _penalty(x: Any) -> tuple[Any, Any]:
    """``1e-5 sum((x - 1)^2) + (x @ x - 1/4)^2``: More, Garbow, Hillstrom (1981), problem 23."""
    d, excess = x - 1.0, x @ x - 0.25
    return 1e-5 * (d @ d) + excess * excess, 2e-5 * d + 4.0 * excess * x


def _penalty_minimum(n: int) -> float:
    # By symmetry all coordinates are one t, a root of 2e-5 (t - 1) + 4 (n t^2 - 1/4) t.
    roots = np.roots([4.0 * n, 0.0, 2e-5 - 1.0, -2e-5])
    t = roots[np.abs(roots.imag) < 1e-9].real
    return float((1e-5 * n * (t - 1) ** 2 + (n * t * t - 0.25) ** 2).min())


def _variably_dimensioned(x: Any) -> tuple[Any, Any]:
    """``d @ d + s^2 + s^4``, d = x - 1, s = sum(i d_i): More, Garbow, Hillstrom, problem 25."""
    d = x - 1.0
    weights = x.__array_namespace__().arange(1.0, x.shape[0] + 1.0)
    s = weights @ d
    return d @ d + s**2 + s**4, 2.0 * d + (2.0 * s + 4.0 * s**3) * weights


PROBLEMS = (
    TestProblem("quadratic", _quadratic, _ramp(-1.0, 1.0), _zero, convex=True),
    TestProblem("quartic", _quartic, _ramp(-1.0, 5.0), _zero, convex=True),
    TestProblem("pseudo Huber", _pseudo_huber, _ramp(-20.0, 30.0), _zero, convex=True),
    TestProblem("logistic", _logistic, _ramp(-4.0, 3.0), _entropy, convex=True),
    TestProblem(
        "log-sum-exp", _log_sum_exp, _ramp(-2.0, 3.0), lambda n: float(np.log(2 * n)), convex=True
    ),
    TestProblem("double well", _double_well, _ramp(-2.0, 1.7), _zero, convex=False),
    TestProblem("penalty I", _penalty, _one_to_n, _penalty_minimum, convex=False),
    TestProblem(
        "variably dimensioned",
        _variably_dimensioned,
        lambda n: 1.0 - np.arange(1, n + 1) / n,
        _zero,
        convex=True,
    ),
)
"""Convex and non-convex problems; pick some by ``convex``."""


def problem(name: str) -> TestProblem:
    """Return a test problem by its name.

    Parameters
    ----------
    name : str
        Name of one of ``PROBLEMS``: "quadratic", "quartic", "pseudo Huber", "logistic",
        "log-sum-exp", "double well", "penalty I" or "variably dimensioned".

    Returns
    -------
    TestProblem
        The problem.

    Raises
    ------
    ValueError
        If no problem has this name.

    Examples
    --------
    >>> from distvec.testing import PROBLEMS, problem
    >>> problem("penalty I").convex
    False
    >>> [p.name for p in PROBLEMS if not p.convex]
    ['double well', 'penalty I']
    """
    for known in PROBLEMS:
        if known.name == name:
            return known
    names = ", ".join(repr(known.name) for known in PROBLEMS)
    raise ValueError(f"problem must be one of {names}, got {name!r}")
