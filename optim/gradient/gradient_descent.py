"""Gradient descent with spectral steps.

J. Barzilai, J. M. Borwein, IMA J. Numer. Anal. 8 (1988) 141-148, the step; M. Raydan, SIAM J.
Optim. 7 (1997) 26-33, the search that makes it converge from anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from optim.core.arrays import Array, fetch, max_norm, quiet, vdot
from optim.core.descent import Direction, next_state
from optim.core.problem import Point, Problem
from optim.core.progress import Plateau
from optim.core.result import Outcome, State
from optim.gradient.spectral_projected_gradient import PATIENCE, SpectralSolver, measured_ray
from optim.line_search import Reference


@dataclass(frozen=True)
class DescentMemory:
    """What is known at x: the step size to try, g.g, and the max norm of x; and the values."""

    plateau: Plateau
    reference: Reference
    step_size: float
    squared_gradient: float
    x_norm: float


@dataclass(frozen=True, kw_only=True)
class GradientDescent(SpectralSolver):
    """Steps along -gradient, for smooth deterministic objectives. Keeps no history.

    search      the step-size search; NonMonotone(reference=HighestOf(1)) never lets the value rise
    step_bounds the range of the step size that is tried first, the inverse of the curvature along
                the last step

    Cost of an iteration whose first trial step is accepted: one evaluation of the objective and one
    message on lazy arrays; each further trial costs one of both.
    """

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start; the first step has length 1."""
        with quiet():
            value, gradient = problem(x)
            number, norm, squared, x_norm = fetch(
                value, max_norm(gradient), vdot(gradient, gradient), max_norm(x), also=(x, gradient)
            )
        point = Point(x, number, gradient, norm)
        reference = self.search.reference.after(number)
        step_size = self.step_bounds.clipped(1.0 / math.sqrt(squared)) if squared > 0.0 else 1.0
        plateau = Plateau.start(point, PATIENCE)
        return State.start(point, DescentMemory(plateau, reference, step_size, squared, x_norm))

    def step(self, problem: Problem, state: State) -> State:
        """One iteration."""
        x, g, memory = state.x, state.gradient, state.memory
        slope = -memory.squared_gradient
        downhill = Direction(-g, slope, state.gradient_norm, memory.x_norm, memory.step_size)
        ray = measured_ray(problem, state, downhill, lambda step_size: x - step_size * g)
        trial = self.search(ray, memory.reference) if slope < 0.0 else None
        if trial is None:
            return replace(state, outcome=Outcome.STALLED)
        x_norm, squared_gradient = trial.measured
        squared_step = trial.step_size**2 * memory.squared_gradient
        following = self.step_bounds.spectral(
            squared_step, trial.pair, trial.step_size, trial.point.gradient_norm, x_norm
        )
        return next_state(
            state,
            ray,
            trial,
            reference=self.reference_after(memory.reference, following, trial.value),
            step_size=following.size,
            squared_gradient=squared_gradient,
            x_norm=x_norm,
        )
