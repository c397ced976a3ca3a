"""Which point of a noisy run to return, and whether the run still gets lower."""

from __future__ import annotations

from dataclasses import dataclass, replace

from optim.core.problem import Point


@dataclass(frozen=True)
class Watch:
    """What is known from values that may be compared: those of the whole objective.

    start         the first
    best          the point of the lowest
    latest        the iteration of the newest, -1 before the first
    gradient_norm the newest one's
    mark          the last value that was lower than the mark before by more than the tolerance,
    improved_at   and its iteration
    """

    start: float = float("inf")
    best: Point | None = None
    latest: int = -1
    gradient_norm: float = float("inf")
    mark: float = float("inf")
    improved_at: int = 0

    def seen(self, point: Point, iteration: int, tolerance: float) -> Watch:
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
