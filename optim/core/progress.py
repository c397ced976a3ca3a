"""Whether a run still makes progress: the best point, a plateau, residuals that rounding hides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from optim.core.arrays import Array, fetch, machine_epsilon, max_norm, quiet
from optim.core.problem import Point
from optim.core.result import State


@dataclass(frozen=True)
class Watch:
    """The values of the whole objective, which may be compared.

    start         the first
    best          the point of the lowest
    latest        the iteration of the newest, -1 before the first
    gradient_norm the gradient norm of the newest
    mark          the last value that was lower than the mark before by more than the tolerance,
    improved_at   and its iteration
    """

    start: float = float("inf")
    best: Point | None = None
    latest: int = -1
    gradient_norm: float = float("inf")
    mark: float = float("inf")
    improved_at: int = 0

    def update(self, point: Point, iteration: int, tolerance: float) -> Watch:
        """With the whole objective at `point`; `tolerance` is relative to max(|mark|, 1)."""
        if not point.finite:
            return self
        lower = self.best is None or point.value <= self.best.value
        watch = replace(
            self,
            start=point.value if self.latest < 0 else self.start,
            best=point if lower else self.best,
            latest=iteration,
            gradient_norm=point.gradient_norm,
        )
        allowed = tolerance * max(abs(self.mark), 1.0) if self.latest >= 0 else 0.0
        if point.value < self.mark - allowed:
            return replace(watch, mark=point.value, improved_at=iteration)
        return watch


# Values are sums of many rounded terms, so a few units in the last place are only noise.
_ROUNDINGS = 16.0
_PATIENCE = 10


def rounding_of(value: float, epsilon: float) -> float:
    """The difference below which two objective values near `value` count as equal."""
    return _ROUNDINGS * epsilon * abs(value)


@dataclass(frozen=True)
class Plateau:
    """The lowest value and gradient norm so far, and for how many iterations both stood still.

    patience    how many such iterations are too many; more if values may rise for a while
    """

    value: float
    gradient_norm: float
    length: int = 0
    patience: int = _PATIENCE

    @classmethod
    def start(cls, point: Point, patience: int = _PATIENCE) -> Plateau:
        """Before the first iteration."""
        return cls(point.value, point.gradient_norm, patience=patience)

    def update(self, point: Point, rounding: float) -> Plateau:
        """With the iterate `point`."""
        lower = point.value < self.value - rounding
        smaller = point.gradient_norm < 0.9 * self.gradient_norm
        length = 0 if lower or smaller else self.length + 1
        value = min(self.value, point.value)
        norm = min(self.gradient_norm, point.gradient_norm)
        return Plateau(value, norm, length, self.patience)

    @property
    def has_stalled(self) -> bool:
        """Whether to give up."""
        return self.length >= self.patience


# Residuals of this size and more may be hidden by the rounding of x.
_RESIDUAL = 1e-9


def residual_is_hidden(state: State, size: float, mapped: Callable[[Array, float], Array]) -> bool:
    """Whether x - mapped(x - g, 1) vanishes by the rounding of x alone, and not at a minimum.

    `mapped(v, step)` is a projection of v or a proximal operator. The residual of a longer step,
    divided by the step, is no larger (A. Beck, First-Order Methods in Optimization, 2017, theorem
    10.9). A residual as large as the `size` of x, its max norm, is not rounded away. On lazy arrays
    this sends a request only if x is large.
    """
    x = state.x
    if machine_epsilon(x) * size < _RESIDUAL:
        return False
    with quiet():
        (residual,) = fetch(max_norm(x - mapped(x - size * state.gradient, size)) / size)
    return residual > max(_RESIDUAL, 10.0 * state.gradient_norm)
