"""L-BFGS: its curvature pairs, the two-loop recursion, and the matrix B itself.

D. C. Liu, J. Nocedal, Mathematical Programming 45 (1989) 503-528.
J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithm 7.4, equation 7.20;
B, not its inverse, as a sum of products of vectors: section 7.2, "Unrolling the update".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from optim.core.arrays import Array, Scalar, fetch, max_norm, persist, quiet, vdot
from optim.core.descent import Direction, next_state, straight_ray
from optim.core.problem import Problem
from optim.core.progress import Plateau
from optim.core.result import Outcome, State
from optim.core.solver import ToleranceSolver
from optim.line_search import Search, StrongWolfe
from optim.line_search.ray import CurvaturePair


@dataclass(frozen=True)
class History:
    """The last ``capacity`` curvature pairs, oldest first. Immutable."""

    capacity: int
    pairs: tuple[CurvaturePair, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs)

    @property
    def scale(self) -> float:
        """The length of H_0 = scale * identity: s.y / y.y of the newest pair (eq. 7.20)."""
        newest = self.pairs[-1]
        return newest.sy / newest.yy

    @property
    def newest(self) -> tuple[Array, ...]:
        """The vectors of the newest pair, which lazy arrays have yet to compute."""
        return tuple(vector for pair in self.pairs[-1:] for vector in (pair.s, pair.y))

    def push(self, pair: CurvaturePair, epsilon: float) -> History:
        """With `pair`, if it has the positive curvature that keeps H positive definite."""
        if self.capacity == 0 or not pair.sy > epsilon * pair.yy > 0.0:
            return self
        return History(self.capacity, (*self.pairs, pair)[-self.capacity :])

    def restrict(self, part: Callable[[Array], Array], epsilon: float) -> History:
        """The pairs on a subspace, given the projection `part` on it; one request.

        Pairs without positive curvature there are left out.
        """
        vectors = [(part(pair.s), part(pair.y)) for pair in self.pairs]
        dots = [dot for s, y in vectors for dot in (vdot(s, y), vdot(y, y))]
        numbers = iter(fetch(*dots, also=tuple(v for pair in vectors for v in pair)))
        history = History(self.capacity)
        for (s, y), sy, yy in zip(vectors, numbers, numbers, strict=False):
            history = history.push(CurvaturePair(s, y, sy, yy), epsilon)
        return history

    def inverse_hessian_times(
        self, q: Array, restrict: Callable[[Array], Array] = lambda v: v
    ) -> Array:
        """H q, the inverse Hessian's estimate times a vector; the dots stay lazy scalars.

        `restrict` projects on the coordinates that may move: H_0 = scale * projection. If the steps
        s lie in that subspace, so does H q, and up to the scale it is the result of the recursion
        on the subspace alone; restricting the result instead would overshoot.
        """
        alphas = []
        for pair in reversed(self.pairs):
            alpha = vdot(pair.s, q) / pair.sy
            q = q - alpha * pair.y
            alphas.append(alpha)
        r = self.scale * restrict(q) if self.pairs else restrict(q)
        for pair, alpha in zip(self.pairs, reversed(alphas), strict=True):
            beta = vdot(pair.y, r) / pair.sy
            r = r + (alpha - beta) * pair.s
        return r


@dataclass(frozen=True)
class CurvatureMemory:
    """The curvature pairs, and the number of iterations without progress."""

    history: History
    plateau: Plateau


def attempts(history: History) -> tuple[History, ...]:
    """The histories to make a direction of: if the pairs mislead the search, an empty one."""
    return (history, History(history.capacity)) if history else (history,)


# So many iterations without progress end a run: on flat values it takes some thirty to renew the
# pairs, and then gradients may get smaller again.
PATIENCE = 40
# After a step without positive curvature, the next one may be longer by this factor.
GROWTH = 4.0


def first_step(slope: float, history: History, known: History, last: float) -> float:
    """The step size to try first: 1 if the pairs scale the direction.

    Without pairs, steepest descent: by the scale of the pairs that were just dropped (`known`), or
    by the `last` step size if no step gave a pair, or at the very first by a vector of norm 1.
    """
    if history:
        return 1.0
    if known:
        return known.scale
    if last > 0.0:
        return GROWTH * last
    return 1.0 / math.sqrt(-slope) if slope < 0.0 else 1.0


@dataclass(frozen=True)
class BFGSMatrix:
    """B v = scale * v + sum over the pairs of (y.v / s.y) y - (a.v) a, with a = B s / sqrt(s.B s).

    The B of each a is made of the pairs before it. Positive definite, because all s.y are positive.
    """

    scale: Scalar
    pairs: tuple[CurvaturePair, ...] = ()
    images: tuple[Array, ...] = ()

    @classmethod
    def from_history(cls, history: History, scale: Scalar) -> BFGSMatrix:
        """From the pairs; `scale` is for no pairs. Costs history^2 products, and one request."""
        matrix = cls(1.0 / history.scale if history else scale)
        for pair in history.pairs:
            image = matrix @ pair.s
            a = image / vdot(pair.s, image) ** 0.5
            matrix = cls(matrix.scale, (*matrix.pairs, pair), (*matrix.images, a))
        if history:
            persist(*matrix.images, *history.newest)
        return matrix

    def __matmul__(self, v: Array) -> Array:
        product = self.scale * v
        for pair, a in zip(self.pairs, self.images, strict=True):
            product = product + (vdot(pair.y, v) / pair.sy) * pair.y - vdot(a, v) * a
        return product


@dataclass(frozen=True, kw_only=True)
class LBFGS(ToleranceSolver):
    """Limited-memory BFGS for smooth objectives.

    The first choice for a smooth objective without constraints.

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
    history : int, default 10
        Number of curvature pairs. They take ``2 * history`` vectors of memory.
    search : callable, default StrongWolfe()
        Step-size search: `StrongWolfe`, `HagerZhang` or `Backtracking`.

    See Also
    --------
    LBFGSB : The same within bounds.
    OWLQN : The same with an l1 penalty.

    Notes
    -----
    If the first trial is accepted, an iteration takes one evaluation. On distributed vectors it
    takes 3 requests per server, each with one pass over memory: one for the trial and two for the
    direction. Every further trial adds one evaluation and one request.

    References
    ----------
    .. [1] D. C. Liu, J. Nocedal, On the limited memory BFGS method for large scale optimization,
       Mathematical Programming 45 (1989) 503-528.
    .. [2] J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition (2006), algorithm 7.4.

    Examples
    --------
    >>> def rosenbrock(x):
    ...     a, b = x
    ...     value = (1 - a) ** 2 + 100 * (b - a * a) ** 2
    ...     return value, np.array([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)])
    >>> result = optim.LBFGS(history=5).minimize(rosenbrock, [-1.2, 1.0])
    >>> result.success, np.round(result.x, 6)
    (True, array([1., 1.]))

    On parameter servers, with a session ``ps`` of ``distvec``:

    >>> target = ps.array(np.arange(4.0))
    >>> fun = lambda x: ((x - target) @ (x - target), 2 * (x - target))
    >>> np.round(optim.LBFGS().minimize(fun, ps.zeros(4)).x.numpy(), 6)
    array([0., 1., 2., 3.])
    """

    history: int = 10
    search: Search = field(default_factory=StrongWolfe)

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate the objective at the start."""
        point = problem.at(x)
        return State.start(
            point, CurvatureMemory(History(self.history), Plateau.start(point, PATIENCE))
        )

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration; if the pairs mislead the search, try again without them."""
        for history in attempts(state.memory.history):
            ray = straight_ray(problem, state, _direction(state, history))
            trial = self.search(ray) if ray.start.slope < 0.0 else None
            if trial is not None:
                return next_state(state, ray, trial, history=history.push(trial.pair, ray.epsilon))
        return replace(state, outcome=Outcome.STALLED)


def _direction(state: State, history: History) -> Direction:
    """The quasi-Newton direction."""
    x, g = state.x, state.gradient
    with quiet():
        d = -history.inverse_hessian_times(g)
        # The newest pair is computed together with the direction, in the same request.
        also = (d, *history.newest)
        slope, d_norm, x_norm = fetch(vdot(d, g), max_norm(d), max_norm(x), also=also)
    first = first_step(slope, history, state.memory.history, state.step_size)
    return Direction(d, slope, d_norm, x_norm, first)
