"""What the spectral methods share: the step of Barzilai and Borwein, its trials, when to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ._arrays import Array, machine_epsilon, max_norm
from ._descent import Direction, straight_ray
from ._line_search import NonMonotone, Ray
from ._outcome import Outcome
from ._plateau import rounding_of
from ._problem import Problem
from ._solver import ToleranceSolver
from ._state import State

# Iterations without progress that end a run: values may rise for long before they fall again.
PATIENCE = 100


@dataclass(frozen=True)
class StepBounds:
    """The range that spectral steps are kept in."""

    shortest: float = 1e-10
    longest: float = 1e10

    def clipped(self, step: float) -> float:
        """`step` moved into the range; the longest if it is not a number."""
        return max(self.shortest, step) if step < self.longest else self.longest

    def spectral(self, ss: float, sy: float) -> float:
        """s.s / s.y, the inverse of the mean curvature along the last step s.

        J. Barzilai, J. M. Borwein, IMA J. Numer. Anal. 8 (1988) 141-148. Where the
        curvature is not positive nothing bounds the step.
        """
        return self.clipped(ss / sy) if sy > 0.0 else self.longest


@dataclass(frozen=True, kw_only=True)
class SpectralSolver(ToleranceSolver):
    """The fields of a solver with spectral steps, and its tests; the memory has a `plateau`.

    value_tolerance     off: erratic steps gain little now and then, which proves nothing
    search              the step-size search
    step_bounds         the range of the spectral steps
    """

    value_tolerance: float = 0.0
    search: NonMonotone = field(default_factory=NonMonotone)
    step_bounds: StepBounds = field(default_factory=StepBounds)

    def done(self, state: State) -> Outcome | None:
        """The tolerances, at an iterate that is as low as any before."""
        return super().done(state) if lowest(state, state.memory.plateau.value) else None


def lowest(state: State, value: float) -> bool:
    """Whether `state` is not above the lowest `value` so far, up to rounding.

    Where values rise now and then a run ends at its best point, not at a stationary one above it.
    """
    return state.value <= value + rounding_of(value, machine_epsilon(state.x))


def measured_ray(
    problem: Problem, state: State, direction: Direction, where: Callable[[float], Array]
) -> Ray:
    """As `straight_ray`; `Trial.measured` has the max norm of x and the squared 2-norm of g."""
    return straight_ray(
        problem, state, direction, where=where, measure=lambda x, g, y: (max_norm(x), g @ g)
    )
