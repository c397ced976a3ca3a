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
    """Numbers at x: the step size to try, g.g, and the max norm of x; and the values."""

    plateau: Plateau
    reference: Reference
    step_size: float
    squared_gradient: float
    x_norm: float


@dataclass(frozen=True, kw_only=True)
class GradientDescent(SpectralSolver):
    """Gradient descent with spectral steps, for smooth deterministic objectives.

    Needs the least memory of all solvers: it keeps no vectors beside x and its gradient.

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
        ``NonMonotone(reference=HighestOf(1))`` does not let them rise.
    step_bounds : StepBounds, default StepBounds()
        Range of the step size that is tried first: the inverse of the curvature along the last
        step.

    See Also
    --------
    SGD : For noisy objectives and batches.

    Notes
    -----
    If the first trial is accepted, an iteration takes one evaluation. On distributed vectors it
    takes one request per server, with one pass over memory. Every further trial adds one of both.

    References
    ----------
    .. [1] J. Barzilai, J. M. Borwein, Two-point step size gradient methods, IMA J. Numer. Anal. 8
       (1988) 141-148.
    .. [2] M. Raydan, The Barzilai and Borwein gradient method for the large scale unconstrained
       minimization problem, SIAM J. Optim. 7 (1997) 26-33.

    Examples
    --------
    >>> a = np.array([1.0, 10.0, 100.0])
    >>> fun = lambda x: (0.5 * float(x @ (a * x)) - float(x.sum()), a * x - 1)
    >>> np.round(optim.GradientDescent().minimize(fun, np.zeros(3)).x, 6)
    array([1.  , 0.1 , 0.01])
    """

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate the objective at the start; the first step has length 1."""
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
        """Take one step along the negative gradient."""
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
