"""SPG, and its parts that other spectral methods share: the Barzilai-Borwein step, its trials.

E. G. Birgin, J. M. Martinez, M. Raydan, SIAM J. Optim. 10 (2000) 1196-1211, SPG2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from optim.core.arrays import (
    Array,
    Scalar,
    fetch,
    machine_epsilon,
    max_norm,
    namespace,
    quiet,
    vdot,
)
from optim.core.descent import Direction, next_state, straight_ray
from optim.core.problem import Point, Problem
from optim.core.progress import Plateau, residual_is_hidden, rounding_of
from optim.core.result import Outcome, State
from optim.core.solver import ToleranceSolver
from optim.line_search import NonMonotone, Ray, Reference
from optim.line_search.ray import CurvaturePair
from optim.proximal.separable import adopt_projection

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


Projection: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True)
class Approach:
    """A point of the set to search towards, the direction there, and its 2-norm squared.

    step    that leads along -gradient to where the target is the projection of
    """

    target: Array
    direction: Direction
    squared_length: float
    step: float


@dataclass(frozen=True)
class SpectralMemory:
    """Where to go next, and the values so far."""

    plateau: Plateau
    reference: Reference
    approach: Approach


@dataclass(frozen=True, kw_only=True)
class SpectralProjectedGradient(SpectralSolver):
    """Minimises a smooth objective over a closed convex set.

    projection  maps a vector to the nearest one in the set: Box(0.0, 1.0), Simplex(), ... or any
                function. The start is projected first, and all iterates lie in the set. Of
                parameters in several arrays each may have its own: {"w": Simplex(), "V": None}
    search      the step-size search along the way to the projected point
    step_bounds the range of the spectral steps

    `gradient_norm`, and so `gradient_tolerance`, is about the projected gradient
    x - projection(x - gradient), which vanishes at a minimum over the set; `jac` of the result is
    the objective's own gradient. Cost of an iteration whose first trial is accepted: one evaluation
    and two projections; on lazy arrays two messages, and those of the projections.
    """

    projection: Projection

    def __post_init__(self) -> None:
        super().__post_init__()
        adopt_projection(self)

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start, moved into the set."""
        with quiet():
            x = self.projection(x)
        point, approach = self._approach(problem.at(x), None)
        plateau = Plateau.start(point, PATIENCE)
        return State.start(
            point, SpectralMemory(plateau, self.search.reference.after(point.value), approach)
        )

    def step(self, problem: Problem, state: State) -> State:
        """One iteration."""
        x, memory = state.x, state.memory
        target, way = memory.approach.target, memory.approach.direction

        def where(step_size: float) -> Array:
            # x + (target - x) may leave the set by rounding; the target does not.
            return target if step_size == 1.0 else x + step_size * way.vector

        ray = measured_ray(problem, state, way, where)
        trial = self.search(ray, memory.reference) if way.slope < 0.0 else None
        if trial is None:
            return replace(state, outcome=Outcome.STALLED)
        squared_step = trial.step_size**2 * memory.approach.squared_length
        last = trial.step_size * memory.approach.step
        x_norm, _ = trial.measured
        norm = state.gradient_norm  # at the trial it takes a projection more
        following = self.step_bounds.spectral(squared_step, trial.pair, last, norm, x_norm)
        point, approach = self._approach(trial.point, following.size)
        reference = self.reference_after(memory.reference, following, trial.value)
        moved = replace(trial, point=point)
        return next_state(state, ray, moved, reference=reference, approach=approach)

    def done(self, state: State) -> Outcome | None:
        """As every solver with spectral steps, but where rounding alone makes the residual 0."""
        met = super().done(state)
        if met is Outcome.CONVERGED_GRADIENT and residual_is_hidden(
            state, state.memory.approach.direction.x_norm, lambda v, step: self.projection(v)
        ):
            return None
        return met

    def _approach(self, point: Point, step: Scalar | None) -> tuple[Point, Approach]:
        """`point` with the norm of its projected gradient, and the way to projection(x - step * g).

        Without a step, the first one: the inverse of that norm.
        """
        x, g = point.x, point.gradient
        with quiet():
            residual = max_norm(self.projection(x - g) - x)
            if step is None:
                step = 1.0 / namespace(x).maximum(residual, 1.0 / self.step_bounds.longest)
            target = self.projection(x - step * g)
            d = target - x
            norm, slope, squared, d_norm, x_norm, size = fetch(
                residual, vdot(d, g), vdot(d, d), max_norm(d), max_norm(x), step, also=(target, d)
            )
        way = Direction(d, slope, d_norm, x_norm, first=1.0)
        return replace(point, gradient_norm=norm), Approach(target, way, squared, size)
