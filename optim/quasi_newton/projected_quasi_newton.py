"""PQN: projected quasi-Newton for costly objectives over convex sets."""

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
    """Minimise a costly smooth objective over a closed convex set, in few evaluations (PQN).

    Use it if an evaluation costs more than many projections.

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
    projection : ConvexSet, callable or structure
        Maps a vector to the nearest point of the set: ``Box(0.0, 1.0)``, ``Simplex()`` or any
        function. The start is projected first, and all iterates are in the set. If x is a structure
        of arrays, each may have its own set, or ``None``: ``{"w": Simplex(), "V": None}``.
    history : int, default 10
        Number of curvature pairs. They take ``3 * history`` vectors of memory.
    search : callable, default Backtracking()
        Step-size search along the way to the minimum of the quadratic model.
    inner_iterations : int, default 50
        Largest number of iterations of the spectral projected gradient over the model.
    inner_rtol : float, default 0.1
        Factor by which these iterations reduce the model's projected gradient.

    See Also
    --------
    SpectralProjectedGradient : For objectives that are cheap to evaluate.

    Notes
    -----
    The gradient tolerances apply to the projected gradient, ``x - projection(x - gradient)``. An
    iteration takes one evaluation and two projections for each inner iteration. On distributed
    vectors it takes about 5 requests per server, and 5 to 10 more for each inner iteration.

    References
    ----------
    .. [1] M. Schmidt, E. van den Berg, M. P. Friedlander, K. Murphy, Optimizing costly functions
       with simple constraints: a limited-memory projected quasi-Newton algorithm, AISTATS 2009,
       algorithm 1.

    Examples
    --------
    >>> fun = lambda x: (float((x - 2) @ (x - 2)), 2 * (x - 2))
    >>> result = optim.ProjectedQuasiNewton(projection=optim.Simplex()).minimize(fun, np.zeros(4))
    >>> np.round(result.x, 6)
    array([0.25, 0.25, 0.25, 0.25])
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
        """Move the start into the set and evaluate the objective there."""
        with quiet():
            x = self.projection(x)
        point = self._measure(problem.at(x))
        return State.start(point, CurvatureMemory(History(self.history), Plateau.start(point)))

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration; if the pairs mislead the search, try again without them."""
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
            length = 1.0  # Later steps are longer than the last one, which gave no pair.
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
