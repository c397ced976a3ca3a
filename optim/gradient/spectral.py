"""What the spectral methods share: the step of Barzilai and Borwein, its trials, when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from optim.core.arrays import Array, machine_epsilon, max_norm, vdot
from optim.core.descent import Direction, straight_ray
from optim.core.outcome import Outcome
from optim.core.plateau import rounding_of
from optim.core.problem import Problem
from optim.core.solver import ToleranceSolver
from optim.core.state import State
from optim.line_search import NonMonotone, Ray, Reference
from optim.quasi_newton.history import CurvaturePair

# Iterations without progress that end a run: values may rise for long before they fall again.
PATIENCE = 100
# By how much a step may exceed the last one where no curvature bounds it.
_GROWTH = 10.0


@dataclass(frozen=True)
class NextStep:
    """The step size to try first.

    sure    whether it is the curvature's along the last step: only then may the value rise
    """

    size: float
    sure: bool


@dataclass(frozen=True)
class StepBounds:
    """The range that spectral steps are kept in; those along negative curvature may be longer."""

    shortest: float = 1e-10
    longest: float = 1e10

    def clipped(self, step: float) -> float:
        """`step` moved into the range; the longest if it is not a number."""
        return max(self.shortest, step) if step < self.longest else self.longest

    def spectral(
        self, ss: float, pair: CurvaturePair, last: float, gradient_norm: float, x_norm: float
    ) -> NextStep:
        """s.s / s.y, the inverse of the mean curvature along the last step s, of size `last`.

        J. Barzilai, J. M. Borwein, IMA J. Numer. Anal. 8 (1988) 141-148. Where the curvature is
        about 0 the step is bounded by the size of x, or by 1 if that is larger; where it is
        negative, by that in other directions and by a few last steps. Beyond lies a part of the
        space of which nothing is known, and where the objective may be lower by chance.
        """
        if pair.sy > 0.0:
            curved = ss / pair.sy
            reach = max(x_norm, 1.0) / max(gradient_norm, 1.0 / self.longest)
            return NextStep(self.clipped(min(curved, reach)), curved <= reach)
        bent = math.sqrt(ss / pair.yy) if pair.yy > 0.0 else math.inf
        return NextStep(max(self.shortest, min(bent, _GROWTH * last)), sure=False)


@dataclass(frozen=True, kw_only=True)
class SpectralSolver(ToleranceSolver):
    """The fields of a solver with spectral steps, and its tests; the memory has a `plateau`.

    search              the step-size search
    step_bounds         the range of the spectral steps
    """

    search: NonMonotone = field(default_factory=NonMonotone)
    step_bounds: StepBounds = field(default_factory=StepBounds)

    def reference_after(self, known: Reference, step: NextStep, value: float) -> Reference:
        """What the next trials are compared with: a step that is not sure must gain."""
        return (known if step.sure else self.search.reference).after(value)

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
        problem, state, direction, where=where, measure=lambda x, g, y: (max_norm(x), vdot(g, g))
    )
