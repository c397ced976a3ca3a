"""ADMM: consensus with a regulariser, in scaled form.

S. Boyd, N. Parikh, E. Chu, B. Peleato, J. Eckstein, Distributed Optimization and Statistical
Learning via the Alternating Direction Method of Multipliers, Foundations and Trends in Machine
Learning 3 (2011), section 7.1.1; over-relaxation 3.4.3, stopping 3.3.1. The balance of relative
instead of absolute residuals: B. Wohlberg, ADMM penalty parameter selection by residual balancing,
arXiv:1704.06209 (2017).

The module also adapts the weight rho: it balances the residuals and ends cycles. Smooth functions
become terms with a proximal operator: another solver minimises them near a point.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from optim.core.arrays import Array, Scalar, fetch, machine_epsilon, max_norm, quiet, size, vdot
from optim.core.problem import Point, Problem
from optim.core.progress import Plateau, rounding_of
from optim.core.result import Outcome, State
from optim.core.solver import Solver, ToleranceSolver
from optim.core.trees import Tree
from optim.gradient.spectral_projected_gradient import lowest
from optim.proximal.operators import Proximal, check_proximal
from optim.proximal.separable import adopt_proximal
from optim.quasi_newton.lbfgs import LBFGS

Function: TypeAlias = Callable[[Array], tuple[Scalar, Array]]


@dataclass(frozen=True)
class SmoothTerm(Proximal):
    """A smooth function as a term of `ADMM`; a solver finds its proximal operator.

    Parameters
    ----------
    fun : callable
        ``fun(x)`` returns ``(value, gradient)``.
    solver : Solver, default LBFGS(gradient_tolerance=1e-9)
        The solver. Its evaluations are not counted in the result of ADMM.

    Examples
    --------
    >>> term = optim.SmoothTerm(lambda x: (0.5 * float((x - 4) @ (x - 4)), x - 4))
    >>> np.round(term.prox(np.zeros(2), step=1.0), 6)
    array([2., 2.])
    """

    fun: Function
    solver: Solver = field(
        default_factory=lambda: LBFGS(gradient_tolerance=1e-9, value_tolerance=0.0)
    )

    def value(self, x: Array) -> Scalar:
        """Evaluate the function."""
        return self._function(x)(x)[0]

    def prox(self, x: Array, step: float) -> Array:
        """Minimise ``fun(u) + |u - x|^2 / (2 * step)``, from u = x."""
        fun = near(self._function(x), x, 1.0 / step)
        return last_of(self.solver.iterations(fun, x, checkpoint=False)).x

    def _function(self, x: Array) -> Function:
        return Problem(self.fun, structured=True) if isinstance(x, Tree) else self.fun


def near(fun: Function, centre: Array, weight: float) -> Function:
    """fun(x) + weight / 2 * |x - centre|^2 and its gradient."""

    def pulled(x: Array) -> tuple[Scalar, Array]:
        value, gradient = fun(x)
        d = x - centre
        return value + 0.5 * weight * vdot(d, d), gradient + weight * d

    return pulled


def last_of(states: Iterator[State]) -> State:
    """The last state, not the lowest: near a minimum values are noise, but gradients are not."""
    return deque(states, maxlen=1).pop()


# Residual balancing (section 3.4.1): rho changes by one factor if the residuals, each relative to
# its bound, differ by another. Only in the first iterations, because the method may not converge if
# rho never settles.
_UNBALANCED = 3.0
_RHO_FACTOR = 2.0
_BALANCED_ITERATIONS = 100
# If fun is not convex, iterates cycle once rho is below its curvature. So after some iterations
# without progress rho rises by a factor, and stays above that until there is progress again. If the
# residuals show that rho is too large already, it does not rise, or it would grow without end.
_STALLED_ITERATIONS = 10
_RESCUE = 10.0
_RESCUED_ITERATIONS = 200


@dataclass(frozen=True)
class Residuals:
    """2-norms of the primal and dual residual, each with the bound that stops (section 3.3.1).

    inexactness     the gradient that `inner` left over: it belongs to the dual residual too
    """

    primal: float
    dual: float
    primal_bound: float
    dual_bound: float
    inexactness: float = 0.0

    @property
    def small(self) -> bool:
        """Whether both are within their bounds."""
        dual = self.dual + self.inexactness
        return self.primal <= self.primal_bound and dual <= self.dual_bound


def adapt_rho(
    iteration: int, least_rho: float, plateau: Plateau, residuals: Residuals, rho: float
) -> tuple[float, float]:
    """The factor for rho, and the least that it may be from now on."""
    stalled = plateau.length > 0 and plateau.length % _STALLED_ITERATIONS == 0
    wanted = _rho_factor(residuals)
    if stalled and iteration < _RESCUED_ITERATIONS and wanted >= 1.0:
        return _RESCUE, _RESCUE * rho
    least = least_rho if plateau.length else least_rho / _RHO_FACTOR
    factor = wanted if iteration < _BALANCED_ITERATIONS else 1.0
    return (1.0 if factor < 1.0 and rho * factor < least else factor), least


def _rho_factor(residuals: Residuals) -> float:
    primal = residuals.primal * residuals.dual_bound
    dual = residuals.dual * residuals.primal_bound
    if primal > _UNBALANCED * dual:
        return _RHO_FACTOR
    return 1.0 / _RHO_FACTOR if dual > _UNBALANCED * primal else 1.0


# Attempts of one iteration, each with ten times the rho, while fun is not finite.
_MAX_TRIALS = 10
# So many iterations without progress end relaxation, before `adapt_rho` raises rho: near a minimum
# inside the domain, relaxation throws iterates across it.
_PLAIN_ITERATIONS = 5


@dataclass(frozen=True)
class SplittingMemory:
    """The scaled multipliers u_i, one for each term; rho; fun(z) without the penalty.

    plateau     the lowest value of the sum so far, and the number of iterations without progress
    least_rho   rho falls no lower: with less, progress has ended before
    relaxed     whether the answers are relaxed; answers of `inner` until progress ends
    """

    multipliers: tuple[Array, ...]
    rho: float
    smooth: float
    plateau: Plateau
    least_rho: float = 0.0
    relaxed: bool = True
    residuals: Residuals | None = None


@dataclass(frozen=True, kw_only=True)
class ADMM(ToleranceSolver):
    """Minimise ``fun(x) + penalty(x)``, with fun smooth or a sum of terms with proximal operators.

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
    penalty : Proximal or structure
        For instance ``L1Norm(0.1)`` or ``Simplex()``; each iterate lies in its domain. If x is a
        structure of arrays, each may have its own, or ``None``: ``{"w": L1Norm(0.1), "V": None}``.
    terms : tuple of Proximal, default ()
        The terms of which ``fun`` is the sum, with finite values. They are solved for separately
        and brought to agree. Default: ``fun`` is one term, and `inner` solves its subproblem.
    rho : float, default 1.0
        Weight of disagreement at the start, positive; it adapts.
    relaxation : float, default 1.6
        Relaxation of the terms' answers, between 0 and 2. 1 is no relaxation; 1.5 to 1.8
        saves iterations. Without `terms` it ends when there is no progress.
    absolute_tolerance : float, default 1e-8
        Tolerance on the primal and dual residuals, for each element.
    relative_tolerance : float, default 1e-6
        The same, relative to the size of x and of the multipliers.
    inner : Solver, default LBFGS(max_iterations=20, gradient_rtol=0.1)
        Solver of ``fun(x) + rho / 2 * |x - v|^2``, which starts at the last iterate and stops
        early.

    See Also
    --------
    ProximalGradient : For one smooth function plus one penalty.
    SmoothTerm : A smooth function as one of several terms.

    Notes
    -----
    The gradient tolerances apply to the generalised gradient ``x - prox(x - gradient, 1)``. The
    run ends when the first of the tolerances is met. Values may rise between iterations. An
    iteration takes one evaluation of ``fun``, at the new iterate, and the evaluations of `inner`.
    On distributed vectors it takes one request per server, the requests of `inner`, and the
    requests of proximal operators that read numbers.

    References
    ----------
    .. [1] S. Boyd, N. Parikh, E. Chu, B. Peleato, J. Eckstein, Distributed optimization and
       statistical learning via the alternating direction method of multipliers, Foundations and
       Trends in Machine Learning 3 (2011), sections 3.3.1, 3.4 and 7.1.1.
    .. [2] B. Wohlberg, ADMM penalty parameter selection by residual balancing, arXiv:1704.06209
       (2017).

    Examples
    --------
    >>> fun = lambda x: (0.5 * float((x - 3) @ (x - 3)), x - 3)
    >>> penalty = optim.L1Norm(np.array([1.0, 5.0]))
    >>> np.round(optim.ADMM(penalty=penalty).minimize(fun, np.zeros(2)).x, 4)
    array([2., 0.])
    """

    penalty: Proximal
    terms: tuple[Proximal, ...] = ()
    rho: float = 1.0
    relaxation: float = 1.6
    absolute_tolerance: float = 1e-8
    relative_tolerance: float = 1e-6
    inner: Solver = field(
        default_factory=lambda: LBFGS(
            max_iterations=20, gradient_tolerance=0.0, gradient_rtol=0.1, value_tolerance=0.0
        )
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        adopt_proximal(self, "penalty")
        for i, term in enumerate(self.terms):
            check_proximal(self, f"terms[{i}]", term)
        if not 0.0 < self.rho < math.inf:
            raise ValueError(f"ADMM(rho={self.rho!r}): must be a positive finite number")
        if not 0.0 < self.relaxation < 2.0:
            raise ValueError(
                f"ADMM(relaxation={self.relaxation!r}): must lie between 0 and 2; 1.0 turns it off"
            )

    def init(self, problem: Problem, x: Array) -> State:
        """Move the start into the domain of the penalty and evaluate the objective there."""
        with quiet():
            z = self.penalty.feasible(x)
            point, smooth, _ = self._evaluate(problem, z, also=())
            multipliers = (0.0 * z,) * max(len(self.terms), 1)
        return State.start(
            point, SplittingMemory(multipliers, self.rho, smooth, Plateau.start(point))
        )

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration; if it leads out of fun's domain, try again closer to x."""
        rho = state.memory.rho
        for _ in range(_MAX_TRIALS):
            if problem.remaining < 1:
                break
            moved = self._move(problem, state, rho)
            if math.isfinite(moved.value) and math.isfinite(moved.gradient_norm):
                return moved
            rho *= 10.0
        return replace(state, outcome=Outcome.STALLED)

    def _move(self, problem: Problem, state: State, rho: float) -> State:
        """Solve for the terms, then for the penalty, then move the multipliers."""
        z, memory = state.x, state.memory
        count = len(memory.multipliers)
        with quiet():
            old = _rescale(memory.multipliers, memory.rho / rho)
            answers, error = self._answers(problem, state, old, rho)
            alpha = self.relaxation if memory.relaxed else 1.0
            relaxed = [alpha * x + (1.0 - alpha) * z for x in answers]
            sums = [x + u for x, u in zip(relaxed, old, strict=True)]
            new = self.penalty.prox(_total(sums) / count, 1.0 / (rho * count))
            multipliers = tuple(v - new for v in sums)
            point, smooth, numbers = self._evaluate(
                problem,
                new,
                *(_total(vdot(x - new, x - new) for x in answers), vdot(new - z, new - z)),
                *(
                    _total(vdot(x, x) for x in answers),
                    vdot(new, new),
                    _total(vdot(u, u) for u in multipliers),
                ),
                *(error, max_norm(new - z), max_norm(new)),
                also=multipliers,
            )
        *squares, length, x_norm = numbers
        residuals = self._residuals(squares, rho, count, size(z))
        plateau = memory.plateau.update(point, rounding_of(point.value, machine_epsilon(z)))
        factor, least_rho = adapt_rho(state.iteration, memory.least_rho, plateau, residuals, rho)
        plain = not self.terms and plateau.length >= _PLAIN_ITERATIONS
        return state.moved(
            point,
            memory=SplittingMemory(
                _rescale(multipliers, 1.0 / factor),
                rho * factor,
                smooth,
                plateau,
                least_rho,
                relaxed=memory.relaxed and not plain,
                residuals=residuals,
            ),
            step_size=1.0 / rho,
            step_length=length / max(x_norm, 1.0),
            gain=abs(state.value - point.value),
        )

    def done(self, state: State) -> Outcome | None:
        """Test the generalised gradient if the value is the lowest so far, then the residuals."""
        met = super().done(state) if lowest(state, state.memory.plateau.value) else None
        residuals = state.memory.residuals
        within = residuals is not None and residuals.small
        return met or (Outcome.CONVERGED_RESIDUALS if within else None)

    def _answers(
        self, problem: Problem, state: State, multipliers: tuple[Array, ...], rho: float
    ) -> tuple[list[Array], Scalar]:
        """The answer of each term, given its multiplier; and |gradient|^2 left by `inner`."""
        z, memory = state.x, state.memory
        if self.terms:
            pairs = zip(self.terms, multipliers, strict=True)
            return [term.prox(z - u, 1.0 / rho) for term, u in pairs], 0.0
        # The inner run begins at z, at which fun is known.
        known = iter([(memory.smooth, state.gradient)])
        fun = near(lambda x: next(known, None) or problem(x), z - multipliers[0], rho)
        limits = [n for n in (self.inner.max_evaluations, problem.remaining) if n is not None]
        allowed = None if min(limits) == math.inf else int(min(limits))
        inner = replace(self.inner, max_evaluations=allowed)
        last = last_of(inner.iterations(fun, z, checkpoint=False))
        return [last.x], vdot(last.gradient, last.gradient)

    def _evaluate(
        self, problem: Problem, z: Array, *scalars: Scalar, also: tuple[Array, ...]
    ) -> tuple[Point, float, tuple[float, ...]]:
        """The sum at `z`, fun there, and the `scalars`, read in one request."""
        value, gradient = problem(z)
        residual = max_norm(z - self.penalty.prox(z - gradient, 1.0))
        smooth, added, norm, *numbers = fetch(
            value, self.penalty.value(z), residual, *scalars, also=(z, gradient, *also)
        )
        return Point(z, smooth + added, gradient, norm), smooth, tuple(numbers)

    def _residuals(self, squares: list[float], rho: float, count: int, n: int) -> Residuals:
        apart, moved, answers, z, multipliers, error = (math.sqrt(square) for square in squares)
        share = math.sqrt(count)
        floor = math.sqrt(n * count) * self.absolute_tolerance
        return Residuals(
            primal=apart,
            dual=rho * share * moved,
            inexactness=error,
            primal_bound=floor + self.relative_tolerance * max(answers, share * z),
            dual_bound=floor + self.relative_tolerance * rho * multipliers,
        )


def _rescale(multipliers: tuple[Array, ...], factor: float) -> tuple[Array, ...]:
    """The scaled multipliers are the plain ones over rho, so they change with it."""
    return multipliers if factor == 1.0 else tuple(factor * u for u in multipliers)


def _total(values: Iterable[Any]) -> Any:
    first, *rest = values
    return sum(rest, start=first)
