"""Noticing that neither the value nor the gradient gets any smaller."""

from __future__ import annotations

from dataclasses import dataclass

from optim.core.problem import Point

# Values are sums of many rounded terms: differences of a few units in the last place mean nothing.
_ROUNDINGS = 16.0
_PATIENCE = 10


def rounding_of(value: float, epsilon: float) -> float:
    """The difference below which two objective values near `value` count as equal."""
    return _ROUNDINGS * epsilon * abs(value)


@dataclass(frozen=True)
class Plateau:
    """The lowest value and gradient norm so far, and for how many iterations both stood still.

    patience    how many such iterations are too many; more where values may rise for a while
    """

    value: float
    gradient_norm: float
    length: int = 0
    patience: int = _PATIENCE

    @classmethod
    def start(cls, point: Point, patience: int = _PATIENCE) -> Plateau:
        """Before the first iteration."""
        return cls(point.value, point.gradient_norm, patience=patience)

    def after(self, point: Point, rounding: float) -> Plateau:
        """With the iterate `point`."""
        lower = point.value < self.value - rounding
        smaller = point.gradient_norm < 0.9 * self.gradient_norm
        length = 0 if lower or smaller else self.length + 1
        value = min(self.value, point.value)
        norm = min(self.gradient_norm, point.gradient_norm)
        return Plateau(value, norm, length, self.patience)

    @property
    def stalled(self) -> bool:
        """Whether to give up."""
        return self.length >= self.patience
