"""L-BFGS within bounds, by projected steps.

D. P. Bertsekas, Projected Newton methods for optimization problems with simple constraints, SIAM J.
Control Optim. 20 (1982) 221-246: the held coordinates and the projected path; M. Schmidt, D. Kim,
S. Sra, Projected Newton-type methods in machine learning, in: Optimization for Machine Learning
(2011), section 11.4: limited-memory pairs on the free coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from optim.core.arrays import (
    Array,
    Scalar,
    fetch,
    machine_epsilon,
    max_norm,
    namespace,
    quiet,
    reshape_like,
    vdot,
)
from optim.core.descent import Direction, next_state, ray_along
from optim.core.problem import Point, Problem
from optim.core.progress import Plateau
from optim.core.result import Outcome, State
from optim.core.solver import ToleranceSolver
from optim.core.trees import Tree, map_arrays
from optim.line_search import Ray, Search, StrongWolfe, Trial
from optim.line_search.ray import CurvaturePair
from optim.proximal.projections import Box
from optim.quasi_newton.lbfgs import PATIENCE, CurvatureMemory, History, attempts, first_step

if TYPE_CHECKING:
    from scipy import optimize

Pair: TypeAlias = tuple[float | None, float | None]
Bounds: TypeAlias = "Box | optimize.Bounds | Sequence[Pair] | Sequence[Any] | Mapping[str, Any]"

# A bound can hold a coordinate that is nearer to it, in absolute terms and relative to the box.
_NEAR = 1e-3


def box_like(bounds: Any, x: Array) -> Box:
    """Return the box that fits `x`, from bounds as SciPy's users write them.

    bounds  a `Box`; or an object with `lb` and `ub`, such as `scipy.optimize.Bounds`; or one pair
            (lower, upper) for each element of x (of a table: for each column), with None for no
            bound. If x is a structure of arrays: such bounds for each array or part, in the same
            structure, and None for an array without
    """
    if isinstance(x, Tree):
        return _box_of_trees(bounds, x)
    lower, upper = _ends(bounds)
    with quiet():
        return Box(_bound("lower", lower, x), _bound("upper", upper, x))


def _box_of_trees(bounds: Any, x: Tree) -> Box:
    if isinstance(bounds, Box):
        ends = map_arrays(Box, x.spread(bounds.lower, "lower"), x.spread(bounds.upper, "upper"))
    else:
        ends = x.spread(bounds, "bounds")
    boxes = map_arrays(
        lambda own, leaf: box_like(Box() if own is None else own, leaf), ends, x
    ).leaves
    lower, upper = tuple(box.lower for box in boxes), tuple(box.upper for box in boxes)
    return Box(Tree(x.structure, lower), Tree(x.structure, upper))


def _ends(bounds: Any) -> tuple[Any, Any]:
    if isinstance(bounds, Box):
        return bounds.lower, bounds.upper
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        return _single(bounds.lb), _single(bounds.ub)
    pairs = isinstance(bounds, (Sequence, np.ndarray))
    if not pairs or any(np.shape(pair) != (2,) for pair in bounds):
        raise TypeError(
            "bounds must be one pair (lower, upper) for each element of x, with None for no bound, "
            "or optim.Box(lower, upper), or scipy.optimize.Bounds, got "
            f"{'a sequence of other elements' if pairs else type(bounds).__name__}"
        )
    lower = [-np.inf if low is None else low for low, _ in bounds]
    upper = [np.inf if high is None else high for _, high in bounds]
    return np.array(lower, dtype=float), np.array(upper, dtype=float)


def _single(bound: Any) -> Any:
    """The only element of an array of one, as `scipy.optimize.Bounds(0, 1)` holds."""
    return bound[0] if getattr(bound, "shape", ()) == (1,) else bound


def _bound(name: str, bound: Any, x: Array) -> Any:
    """A number as it is; an array in the library, dtype and shape of `x`."""
    shape = tuple(getattr(bound, "shape", ()))
    if not shape:
        return float(bound)
    own = reshape_like(bound, x)
    if own is None:
        raise ValueError(
            f"bounds: {name} has shape {shape}, but x has {tuple(x.shape)}; give one "
            "bound for each element of x, or one number for all"
        )
    return own


def projected_gradient(box: Box, x: Array, gradient: Array) -> Array:
    """x - box(x - gradient), without its cancellation; it vanishes only at stationary points."""
    xp = namespace(x)
    return xp.maximum(xp.minimum(gradient, x - box.lower), x - box.upper)


def bound_mask(box: Box, x: Array, gradient: Array, scale: float, step: float) -> Array:
    """A mask of coordinates at a bound, or near, that -step * gradient would carry to it.

    D. P. Bertsekas, SIAM J. Control Optim. 20 (1982) 221-246, equation 32: nearness shrinks with
    the projected gradient, of norm `scale`. So no coordinate is held for long by mistake, and a
    tiny distance from a bound does not block the others. Bertsekas takes the norm at x; the norm
    before the last step serves as well, and is a number already. A near coordinate that the step
    would leave inside is free: the pairs know its curvature, the gradient alone does not.
    """
    near, moved = _nearness(box, scale), x - step * gradient
    at_lower = (x - box.lower <= near) & (gradient > 0.0) & (moved <= box.lower)
    at_upper = (box.upper - x <= near) & (gradient < 0.0) & (moved >= box.upper)
    return at_lower | at_upper


def _nearness(box: Box, scale: float) -> Any:
    near = min(scale, _NEAR)
    return map_arrays(lambda width: _smaller(_NEAR * width, near), box.upper - box.lower)


def _smaller(width: Any, near: float) -> Any:
    return min(width, near) if isinstance(width, float) else namespace(width).minimum(width, near)


def outward(box: Box, x: Array, d: Array) -> Array:
    """A mask of coordinates that are at a bound and that `d` would move beyond."""
    return ((x <= box.lower) & (d < 0.0)) | ((x >= box.upper) & (d > 0.0))


@dataclass(frozen=True)
class BoundedTrial(Trial):
    """A trial with the coordinates held there and the pair on the others.

    changed     how many are held either here or at the ray's start
    """

    held: Array = None
    changed: float = 0.0
    free_pair: CurvaturePair | None = None


@dataclass(frozen=True)
class BoundedMemory(CurvatureMemory):
    """The box, the held coordinates, and the pairs on the others."""

    box: Box
    held: Array
    free: History


@dataclass(frozen=True, kw_only=True)
class LBFGSB(ToleranceSolver):
    """Limited-memory BFGS for smooth objectives within bounds.

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
    bounds : Box, scipy.optimize.Bounds, sequence of pairs or structure, default Box()
        A `Box` with numbers or arrays like x. Or as in SciPy: one pair
        ``(lower, upper)`` for each element of x, with ``None`` for no bound. If x is a structure of
        arrays: such bounds for each array, in the same structure. Default: no bounds.
    history : int, default 10
        Number of curvature pairs. They take ``4 * history`` vectors of memory, because the pairs of
        the free coordinates are kept as well.
    search : callable, default StrongWolfe()
        Step-size search along the path that is projected on the box.

    See Also
    --------
    SpectralProjectedGradient : For other convex sets.

    Notes
    -----
    A start outside the box is moved to its nearest point. The objective is evaluated only inside.
    The gradient tolerances apply to the projected gradient, ``x - projection(x - gradient)``. If
    the first trial is accepted, an iteration takes one evaluation. On distributed vectors it takes
    3 requests per server, each with one pass over memory, and one more if the set of coordinates
    at bounds changed. The usual L-BFGS-B [3]_ walks along the sorted breakpoints of a path. Here
    each operation is on whole vectors, because a breakpoint would cost a request.

    References
    ----------
    .. [1] D. P. Bertsekas, Projected Newton methods for optimization problems with simple
       constraints, SIAM J. Control Optim. 20 (1982) 221-246.
    .. [2] M. Schmidt, D. Kim, S. Sra, Projected Newton-type methods in machine learning, in:
       Optimization for Machine Learning (2011), section 11.4.
    .. [3] R. H. Byrd, P. Lu, J. Nocedal, C. Zhu, A limited memory algorithm for bound constrained
       optimization, SIAM J. Sci. Comput. 16 (1995) 1190-1208.

    Examples
    --------
    >>> fun = lambda x: (float((x - 2) @ (x - 2)), 2 * (x - 2))
    >>> solver = optim.LBFGSB(bounds=[(0, 1), (None, 5)])
    >>> np.round(solver.minimize(fun, [0.5, 0.5]).x, 6)
    array([1., 2.])
    """

    bounds: Bounds = field(default_factory=Box)
    history: int = 10
    search: Search = field(default_factory=StrongWolfe)

    def init(self, problem: Problem, x: Array) -> State:
        """Move the start into the box and evaluate the objective there."""
        box = box_like(self.bounds, x)
        x, pairs = box(x), History(self.history)
        with quiet():
            value, gradient = problem(x)
            mask = bound_mask(box, x, gradient, math.inf, 1.0)
            norm = max_norm(projected_gradient(box, x, gradient))
            number, norm = fetch(value, norm, also=(x, gradient, mask))
        point = Point(x, number, gradient, norm)
        return State.start(
            point, BoundedMemory(pairs, Plateau.start(point, PATIENCE), box, mask, pairs)
        )

    def step(self, problem: Problem, state: State) -> State:
        """Take one iteration; if the pairs mislead the search, try again without them."""
        for free in attempts(state.memory.free):
            ray = _projected_ray(problem, state, _direction(state, free))
            trial = self.search(ray) if ray.start.slope < 0.0 else None
            if trial is not None:
                return _next_state(state, ray, cast(BoundedTrial, trial), free)
        return replace(state, outcome=Outcome.STALLED)


def _direction(state: State, free: History) -> Direction:
    """Quasi-Newton on the free coordinates; for the held, along the gradient up to the bound."""
    x, g, memory = state.x, state.gradient, state.memory
    if not (free or memory.history or state.step_size):
        return _first_direction(x, g, memory.box)
    box, xp = memory.box, namespace(x)
    scale = free.scale if free else 1.0
    with quiet():
        newton = -free.inverse_hessian_times(_free(memory.held, g))
        d = xp.where(memory.held, box(x - scale * g) - x, newton)
        d = xp.where(outward(box, x, d), 0.0, d)
        # A line to the end of the projected path has no bends; its slopes show its curvature.
        end = -projected_gradient(box, x, -d) if free else d
        also = (end, *memory.history.newest, *memory.free.newest)
        end_slope, end_norm, slope, d_norm, x_norm = fetch(
            vdot(end, g), max_norm(end), vdot(d, g), max_norm(d), max_norm(x), also=also
        )
    if end_slope < 0.5 * slope and end_norm > 0.9 * d_norm:  # The bounds cut little off.
        d, slope, d_norm = end, end_slope, end_norm
    first = first_step(slope, free, memory.history, state.step_size)
    return Direction(d, slope, d_norm, x_norm, first)


def _first_direction(x: Array, g: Array, box: Box) -> Direction:
    """The projected gradient: the whole step if the box is finite, else one of norm 1 at most.

    On the line to a corner each trial is another point; on the path that bends there many trials
    are the corner itself. A box that is finite everywhere has the scale of its problem.
    """
    with quiet():
        d = -projected_gradient(box, x, g)
        room = namespace(x).maximum(x - box.lower, box.upper - x)
        slope, square, steepest, d_norm, x_norm, width = fetch(
            vdot(d, g), vdot(d, d), -vdot(g, g), max_norm(d), max_norm(x), max_norm(room), also=(d,)
        )
    if math.isfinite(width):
        return Direction(d, slope, d_norm, x_norm, 1.0)
    first = 1.0 / math.sqrt(square) if square > 0.0 else 1.0
    return Direction(d, slope, d_norm, x_norm, min(first, 1.0) if slope > steepest else first)


def _free(mask: Array, v: Array) -> Array:
    """`v` with 0 for the coordinates of the mask."""
    return namespace(v).where(mask, 0.0, v)


def _projected_ray(problem: Problem, state: State, direction: Direction) -> Ray:
    """The objective along the direction, projected on the box.

    If the path has bent at a bound, its slope does not show the curvature of the pairs; a slope of
    0 lets the search judge such a step by its gain alone. If the first line falls to a bound, it
    goes on along the other coordinates: a longer step would not move the ones at the bound.
    """
    x, g, memory, d = state.x, state.gradient, state.memory, direction.vector
    box, pairs = memory.box, memory.free
    reach = pairs.scale if pairs else 1.0
    slack = 4.0 * machine_epsilon(x) * direction.x_norm

    def at(step_size: float) -> BoundedTrial:
        with quiet():
            straight = x + step_size * d
            new = box(straight)
            value, gradient = problem(new)
            mask = bound_mask(box, new, gradient, state.gradient_norm, reach)
            s, y = new - x, gradient - g
            free_s, free_y = _free(mask, s), _free(mask, y)
            onward = d if pairs else namespace(x).where(outward(box, new, d), 0.0, d)
            number, norm, slope, slope_onward, bend, foretold, changed, kept, *dots = fetch(
                value,
                max_norm(projected_gradient(box, new, gradient)),
                vdot(gradient, d),
                vdot(gradient, onward),
                max_norm(new - straight),
                vdot(s, g),
                _count(mask != memory.held, x),
                _count(mask, x),
                vdot(s, y),
                vdot(y, y),
                vdot(free_s, free_y),
                vdot(free_y, free_y),
                also=(new, gradient, mask),
            )
        slope = slope_onward if slope < 0.0 else slope
        pair = CurvaturePair(s, y, *dots[:2])
        return BoundedTrial(
            step_size,
            number,
            slope if bend <= slack else 0.0 * slope,
            foretold=foretold,
            point=Point(new, number, gradient, norm),
            pair=pair,
            held=mask,
            changed=changed,
            free_pair=CurvaturePair(free_s, free_y, *dots[2:]) if kept else pair,
        )

    return ray_along(problem, state, direction, at)


def _count(mask: Array, x: Array) -> Scalar:
    xp = namespace(x)
    return xp.sum(xp.astype(mask, x.dtype))


def _next_state(state: State, ray: Ray, trial: BoundedTrial, free: History) -> State:
    """The state after `trial`; `free` holds the pairs that made the direction."""
    misled = free is not state.memory.free
    known = History(free.capacity) if misled else state.memory.history
    history = known.push(trial.pair, ray.epsilon)
    if not trial.changed and trial.free_pair is not None:
        free = free.push(trial.free_pair, ray.epsilon)
    elif trial.free_pair is trial.pair:  # No coordinate is held.
        free = history
    else:
        free = history.restrict(lambda v: _free(trial.held, v), ray.epsilon)
    return next_state(state, ray, trial, history=history, free=free, held=trial.held)
