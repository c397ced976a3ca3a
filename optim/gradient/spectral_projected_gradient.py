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
# The factor by which a step may exceed the last one if no curvature bounds it.
_GROWTH = 10.0


@dataclass(frozen=True)
class NextStep:
    """The step size to try first.

    ``sure`` says whether it is the inverse of the curvature along the last step: only then may the
    value rise.
    """

    size: float
    sure: bool


@dataclass(frozen=True)
class StepBounds:
    """The range of spectral step sizes; steps along negative curvature may be longer.

    Parameters
    ----------
    shortest : float, default 1e-10
        Smallest step size.
    longest : float, default 1e10
        Largest step size.

    Examples
    --------
    >>> optim.StepBounds(shortest=0.01, longest=1.0).clipped(5.0)
    1.0
    """

    shortest: float = 1e-10
    longest: float = 1e10

    def clipped(self, step: float) -> float:
        """Move a step size into the range.

        Parameters
        ----------
        step : float
            The step size.

        Returns
        -------
        float
            The nearest step size in the range; the longest if `step` is not a number.
        """
        return max(self.shortest, step) if step < self.longest else self.longest

    def spectral(
        self, ss: float, pair: CurvaturePair, last: float, gradient_norm: float, x_norm: float
    ) -> NextStep:
        """Return the inverse of the mean curvature along the last step s, which is ``s.s / s.y``.

        Parameters
        ----------
        ss : float
            Squared 2-norm of s.
        pair : CurvaturePair
            The step s and the change y of the gradient, with ``s.y`` and ``y.y``.
        last : float
            Size of the last step.
        gradient_norm : float
            Max norm of the gradient.
        x_norm : float
            Max norm of x.

        Returns
        -------
        NextStep
            The step size, and whether it comes from a positive curvature.

        Notes
        -----
        If the curvature is about 0, the step is bounded by the size of x, or by 1 if x is
        smaller. If it is negative, the step is bounded by the curvature in other directions and
        by a multiple of the last step. Farther away, values may be lower only by chance.

        References
        ----------
        .. [1] J. Barzilai, J. M. Borwein, Two-point step size gradient methods, IMA J. Numer.
           Anal. 8 (1988) 141-148.
        """
        if pair.sy > 0.0:
            curved = ss / pair.sy
            reach = max(x_norm, 1.0) / max(gradient_norm, 1.0 / self.longest)
            return NextStep(self.clipped(min(curved, reach)), curved <= reach)
        bent = math.sqrt(ss / pair.yy) if pair.yy > 0.0 else math.inf
        return NextStep(max(self.shortest, min(bent, _GROWTH * last)), sure=False)


@dataclass(frozen=True, kw_only=True)
class SpectralSolver(ToleranceSolver):
    """Base class of the solvers with spectral steps; their memory has a ``plateau``.

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    gradient_tolerance : float, optional
        Absolute tolerance on the max norm of the gradient. An explicit value is never relaxed.
        Default: 1e-8, or larger if rounding hides every further gain.
    gradient_rtol : float, default 0.0
        Tolerance on the max norm of the gradient, relative to its norm at the start. 0: off.
    value_tolerance : float, default 0.0
        Tolerance on the gain of an iteration, relative to ``max(|f_k|, |f_k+1|, 1)``. 0: off.
    step_tolerance : float, default 0.0
        Tolerance on the max norm of a step, relative to ``max(max norm of x, 1)``. 0: off.
    search : NonMonotone, default NonMonotone()
        Step-size search, which lets values rise for a while.
    step_bounds : StepBounds, default StepBounds()
        Range of the spectral step sizes.
    """

    search: NonMonotone = field(default_factory=NonMonotone)
    step_bounds: StepBounds = field(default_factory=StepBounds)

    def reference_after(self, known: Reference, step: NextStep, value: float) -> Reference:
        """Return the reference for the next trials; after a step that is not sure they must gain.

        Parameters
        ----------
        known : Reference
            The reference so far.
        step : NextStep
            The step size to try first.
        value : float
            The value of the new iterate.

        Returns
        -------
        Reference
            With the new value.
        """
        return (known if step.sure else self.search.reference).after(value)

    def done(self, state: State) -> Outcome | None:
        """Test the tolerances at an iterate that is as low as every earlier one."""
        return super().done(state) if lowest(state, state.memory.plateau.value) else None


def lowest(state: State, value: float) -> bool:
    """Whether `state` is not above the lowest `value` so far, up to rounding.

    If values rise now and then, a run must end at its best point, not at a higher stationary one.
    """
    return state.value <= value + rounding_of(value, machine_epsilon(state.x))


def measured_ray(
    problem: Problem, state: State, direction: Direction, where: Callable[[float], Array]
) -> Ray:
    """As `straight_ray`; ``Trial.measured`` has the max norm of x and the squared 2-norm of g."""
    return straight_ray(
        problem, state, direction, where=where, measure=lambda x, g, y: (max_norm(x), vdot(g, g))
    )


Projection: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True)
class Approach:
    """A point of the set to search towards, the direction there, and its 2-norm squared.

    ``step`` is the step along -gradient to a point whose projection is the target.
    """

    target: Array
    direction: Direction
    squared_length: float
    step: float


@dataclass(frozen=True)
class SpectralMemory:
    """The way to search along next, and the values so far."""

    plateau: Plateau
    reference: Reference
    approach: Approach


@dataclass(frozen=True, kw_only=True)
class SpectralProjectedGradient(SpectralSolver):
    """Minimise a smooth objective over a closed convex set (SPG).

    Parameters
    ----------
    max_iterations : int, default 1000
        Largest number of iterations.
    max_evaluations : int, optional
        Largest number of calls of the objective, which is never exceeded. Default: no limit.
    max_seconds : float, optional
        Seconds after which no further iteration starts. Default: no limit.
    gradient_tolerance : float, optional
        Absolute tolerance on the max norm of the gradient. An explicit value is never relaxed.
        Default: 1e-8, or larger if rounding hides every further gain.
    gradient_rtol : float, default 0.0
        Tolerance on the max norm of the gradient, relative to its norm at the start. 0: off.
    value_tolerance : float, default 0.0
        Tolerance on the gain of an iteration, relative to ``max(|f_k|, |f_k+1|, 1)``. 0: off.
    step_tolerance : float, default 0.0
        Tolerance on the max norm of a step, relative to ``max(max norm of x, 1)``. 0: off.
    search : NonMonotone, default NonMonotone()
        Step-size search along the way to the projected point.
    step_bounds : StepBounds, default StepBounds()
        Range of the spectral step sizes.
    projection : ConvexSet, callable or structure
        Maps a vector to the nearest point of the set: ``Box(0.0, 1.0)``, ``Simplex()`` or any
        function. The start is projected first, and all iterates are in the set. If x is a structure
        of arrays, each may have its own set, or ``None``: ``{"w": Simplex(), "V": None}``.

    See Also
    --------
    ProjectedQuasiNewton : Takes fewer evaluations and more projections.
    LBFGSB : For bounds.

    Notes
    -----
    The gradient tolerances apply to the projected gradient, ``x - projection(x - gradient)``. It
    vanishes at a minimum over the set. ``jac`` of the result is the objective's own gradient. If
    the first trial is accepted, an iteration takes one evaluation and two projections. On
    distributed vectors it takes 2 requests per server and the requests of the projections.

    References
    ----------
    .. [1] E. G. Birgin, J. M. Martinez, M. Raydan, Nonmonotone spectral projected gradient methods
       on convex sets, SIAM J. Optim. 10 (2000) 1196-1211, algorithm SPG2.

    Examples
    --------
    >>> fun = lambda x: (float((x - 2) @ (x - 2)), 2 * (x - 2))
    >>> solver = optim.SpectralProjectedGradient(projection=optim.Simplex())
    >>> np.round(solver.minimize(fun, np.zeros(4)).x, 6)
    array([0.25, 0.25, 0.25, 0.25])
    """

    projection: Projection

    def __post_init__(self) -> None:
        super().__post_init__()
        adopt_projection(self)

    def init(self, problem: Problem, x: Array) -> State:
        """Move the start into the set and evaluate the objective there."""
        with quiet():
            x = self.projection(x)
        point, approach = self._approach(problem.at(x), None)
        plateau = Plateau.start(point, PATIENCE)
        return State.start(
            point, SpectralMemory(plateau, self.search.reference.after(point.value), approach)
        )

    def step(self, problem: Problem, state: State) -> State:
        """Take one step towards the projection of a gradient step."""
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
        norm = state.gradient_norm  # The norm at the trial would take one more projection.
        following = self.step_bounds.spectral(squared_step, trial.pair, last, norm, x_norm)
        point, approach = self._approach(trial.point, following.size)
        reference = self.reference_after(memory.reference, following, trial.value)
        moved = replace(trial, point=point)
        return next_state(state, ray, moved, reference=reference, approach=approach)

    def done(self, state: State) -> Outcome | None:
        """Test the tolerances, but not a residual that is 0 by rounding alone."""
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
