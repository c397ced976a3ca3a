"""Step sizes as functions of the iteration k = 0, 1, 2, ..."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Schedule: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """Schedule of a constant step size.

    Parameters
    ----------
    step_size : float
        The step size.

    Examples
    --------
    >>> optim.Constant(0.1)(1000)
    0.1
    """

    step_size: float

    def __call__(self, k: int) -> float:
        return self.step_size


@dataclass(frozen=True)
class InverseTime:
    """Schedule ``initial / (1 + decay * k)``.

    Parameters
    ----------
    initial : float
        Step size of iteration 0.
    decay : float, default 1.0
        Speed of the decay.

    References
    ----------
    .. [1] H. Robbins, S. Monro, A stochastic approximation method, Ann. Math. Statist. 22 (1951)
       400-407.

    Examples
    --------
    >>> optim.InverseTime(1.0)(3)
    0.25
    """

    initial: float
    decay: float = 1.0

    def __call__(self, k: int) -> float:
        return self.initial / (1.0 + self.decay * k)


@dataclass(frozen=True)
class InversePower:
    """Schedule ``initial / (k + 1)**power``.

    Parameters
    ----------
    initial : float
        Step size of iteration 0.
    power : float, default 2/3
        The power. 2/3 is the power of Breeze's schedule.

    Examples
    --------
    >>> optim.InversePower(1.0, power=0.5)(3)
    0.5
    """

    initial: float
    power: float = 2.0 / 3.0

    def __call__(self, k: int) -> float:
        return self.initial / math.pow(k + 1, self.power)


@dataclass(frozen=True)
class Exponential:
    """Schedule ``initial * decay**k``.

    Parameters
    ----------
    initial : float
        Step size of iteration 0.
    decay : float
        Factor of each iteration.

    Examples
    --------
    >>> optim.Exponential(1.0, decay=0.5)(3)
    0.125
    """

    initial: float
    decay: float

    def __call__(self, k: int) -> float:
        return self.initial * math.pow(self.decay, k)


@dataclass(frozen=True)
class StepDecay:
    """Schedule that multiplies the step size by a factor after each `every` iterations.

    Parameters
    ----------
    initial : float
        Step size of the first iterations.
    factor : float, default 0.5
        The factor.
    every : int, default 100
        Number of iterations between two changes.

    Examples
    --------
    >>> schedule = optim.StepDecay(1.0, every=10)
    >>> schedule(9), schedule(10), schedule(20)
    (1.0, 0.5, 0.25)
    """

    initial: float
    factor: float = 0.5
    every: int = 100

    def __post_init__(self) -> None:
        _check_count(self, "every")

    def __call__(self, k: int) -> float:
        return self.initial * math.pow(self.factor, k // self.every)


@dataclass(frozen=True)
class Cosine:
    """Schedule that falls along half a cosine, and then stays at its end.

    Parameters
    ----------
    initial : float
        Step size of iteration 0.
    iterations : int
        Number of iterations of the fall.
    final : float, default 0.0
        Step size afterwards.

    References
    ----------
    .. [1] I. Loshchilov, F. Hutter, SGDR: stochastic gradient descent with warm restarts, ICLR
       2017, equation 5, without restarts.

    Examples
    --------
    >>> schedule = optim.Cosine(1.0, iterations=100)
    >>> schedule(0), round(schedule(50), 6), schedule(100)
    (1.0, 0.5, 0.0)
    """

    initial: float
    iterations: int
    final: float = 0.0

    def __post_init__(self) -> None:
        _check_count(self, "iterations")

    def __call__(self, k: int) -> float:
        fraction = min(k / self.iterations, 1.0)
        return self.final + 0.5 * (self.initial - self.final) * (1.0 + math.cos(math.pi * fraction))


@dataclass(frozen=True)
class Warmup:
    """Schedule that scales another one up linearly during the first iterations.

    Parameters
    ----------
    schedule : callable
        The other schedule: a function of the iteration k = 0, 1, ...
    iterations : int
        Number of iterations of the warm-up; the first factor is ``1 / iterations``.

    Examples
    --------
    >>> schedule = optim.Warmup(optim.Constant(1.0), iterations=4)
    >>> schedule(0), schedule(1), schedule(10)
    (0.25, 0.5, 1.0)
    """

    schedule: Schedule
    iterations: int

    def __post_init__(self) -> None:
        _check_count(self, "iterations")

    def __call__(self, k: int) -> float:
        return self.schedule(k) * min(1.0, (k + 1) / self.iterations)


def _check_count(schedule: object, name: str) -> None:
    given = getattr(schedule, name)
    if not given >= 1:
        raise ValueError(f"{type(schedule).__name__}({name}={given!r}): must be 1 or more")
