"""PQN: M. Schmidt, E. van den Berg, M. P. Friedlander, K. Murphy, Optimizing costly functions with
simple constraints: a limited-memory projected quasi-Newton algorithm, AISTATS 2009, algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from optim.core.arrays import Array, Scalar, fetch, max_norm, quiet, vdot
from optim.core.descent import Direction, next_state
from optim.core.problem import Point, Problem
from optim.core.progress import Plateau
from optim.core.result import Outcome, State
from optim.core.solver import ToleranceSolver
from optim.gradient.spectral_projected_gradient import (
    Projection,
    SpectralProjectedGradient,
    measured_ray,
)
from optim.line_search import Backtracking, Search
from optim.proximal.separable import adopt_projection
from optim.quasi_newton.lbfgs import GROWTH, BFGSMatrix, CurvatureMemory, History, attempts


@dataclass(frozen=True, kw_only=True)
class ProjectedQuasiNewton(ToleranceSolver):
    """Minimises a smooth objective over a closed convex set, in few evaluations.

    projection          maps a vector to the nearest one in the set: Box(0.0, 1.0), L1Ball(), ... or
                        any function. The start is projected first, and all iterates lie in the set.
                        Of parameters in several arrays each may have its own, or None
    history             pairs kept: 3 * history vectors of memory
    search              the step-size search along the way to the minimum of the quadratic model
    inner_iterations    of the spectral projected gradient over that model, at most
    inner_rtol          by how much it reduces the model's projected gradient

    Gradient norms are as for SpectralProjectedGradient. Meant for objectives that cost more than
    many projections: an iteration takes one evaluation, but two projections for each of the inner
    ones; on lazy arrays six messages, two for each inner iteration and those of the projections.
    """

    projection: Projection
    history: int = 10
    search: Search = field(default_factory=Backtracking)
    inner_iterations: int = 50
    inner_rtol: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        adopt_projection(self)

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start, moved into the set."""
        with quiet():
            x = self.projection(x)
        point = self._measure(problem.at(x))
        return State.start(point, CurvatureMemory(History(self.history), Plateau.start(point)))

    def step(self, problem: Problem, state: State) -> State:
        """One iteration; if the pairs mislead the search, another attempt without them."""
        x = state.x
        for history in attempts(state.memory.history):
            target, way = self._model_minimum(state, history)

            def where(step_size: float, target: Array = target, d: Array = way.vector) -> Array:
                # x + (target - x) may leave the set by rounding; the target does not.
                return target if step_size == 1.0 else x + step_size * d

            ray = measured_ray(problem, state, way, where)
            trial = self.search(ray) if way.slope < 0.0 else None
            if trial is not None:
                pushed = history.push(trial.pair, ray.epsilon)
                moved = replace(trial, point=self._measure(trial.point))
                return next_state(state, ray, moved, history=pushed)
        return replace(state, outcome=Outcome.STALLED)

    def _model_minimum(self, state: State, history: History) -> tuple[Array, Direction]:
        """The minimum over the set of g.d + d.B d / 2, inexactly, and the direction d to it."""
        x, g = state.x, state.gradient
        with quiet():
            length = 1.0  # at first; then longer than the last step, which has given no pair
            if state.iteration and not state.memory.history:
                length = GROWTH * state.step_length * max(float(max_norm(x)), 1.0)
            hessian = BFGSMatrix.from_history(history, scale=vdot(g, g) ** 0.5 / length)

        def model(z: Array) -> tuple[Scalar, Array]:
            d = z - x
            curved = hessian @ d
            return vdot(g, d) + 0.5 * vdot(d, curved), g + curved

        inner = SpectralProjectedGradient(
            projection=self.projection,
            max_iterations=self.inner_iterations,
            gradient_tolerance=0.0,
            gradient_rtol=self.inner_rtol,
        )
        target = inner.minimize(model, x, checkpoint=False).x
        with quiet():
            d = target - x
            slope, d_norm, x_norm = fetch(vdot(d, g), max_norm(d), max_norm(x), also=(d,))
        return target, Direction(d, slope, d_norm, x_norm, first=1.0)

    def _measure(self, point: Point) -> Point:
        """`point` with the norm of its projected gradient."""
        with quiet():
            (norm,) = fetch(max_norm(self.projection(point.x - point.gradient) - point.x))
        return replace(point, gradient_norm=norm)
