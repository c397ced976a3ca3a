"""Step sizes as functions of the iteration k = 0, 1, 2, ..."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Schedule: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """step_size."""

    step_size: float

    def __call__(self, k: int) -> float:
        return self.step_size


@dataclass(frozen=True)
class InverseTime:
    """initial / (1 + decay * k): H. Robbins, S. Monro, Ann. Math. Statist. 22 (1951) 400-407."""

    initial: float
    decay: float = 1.0

    def __call__(self, k: int) -> float:
        return self.initial / (1.0 + self.decay * k)


@dataclass(frozen=True)
class InversePower:
    """initial / (k + 1)**power; Breeze's schedule has power 2/3."""

    initial: float
    power: float = 2.0 / 3.0

    def __call__(self, k: int) -> float:
        return self.initial / math.pow(k + 1, self.power)


@dataclass(frozen=True)
class Exponential:
    """initial * decay**k."""

    initial: float
    decay: float

    def __call__(self, k: int) -> float:
        return self.initial * math.pow(self.decay, k)


@dataclass(frozen=True)
class StepDecay:
    """initial, multiplied by `factor` after each `every` iterations."""

    initial: float
    factor: float = 0.5
    every: int = 100

    def __post_init__(self) -> None:
        _check_count(self, "every")

    def __call__(self, k: int) -> float:
        return self.initial * math.pow(self.factor, k // self.every)


@dataclass(frozen=True)
class Cosine:
    """From initial to final over so many iterations, along half a cosine, then final.

    I. Loshchilov, F. Hutter, SGDR, ICLR 2017, equation 5, without restarts.
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
    """`schedule`, scaled up linearly from 1/iterations during the first `iterations`."""

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
