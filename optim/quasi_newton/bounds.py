"""Bounds of a vector: as users give them, and which coordinates they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optim.core.arrays import Array, fitted, namespace, quiet
from optim.core.trees import Tree, applied
from optim.proximal.projections import Box

# Relative to the width of the box, and absolute: nearer to a bound, it can hold a coordinate.
_NEAR = 1e-3


def box_like(bounds: Any, x: Array) -> Box:
    """A box that fits `x`, of what SciPy's users write.

    bounds  a `Box`; or an object with `lb` and `ub`, as `scipy.optimize.Bounds`; or one pair
            (lower, upper) for each element of x (of a table: for each column), with None for no
            bound. Of parameters in several arrays: such bounds for each array or part, in the
            structure of x, and None for an array without
    """
    if isinstance(x, Tree):
        return _box_of_trees(bounds, x)
    lower, upper = _ends(bounds)
    with quiet():
        return Box(_bound("lower", lower, x), _bound("upper", upper, x))


def _box_of_trees(bounds: Any, x: Tree) -> Box:
    if isinstance(bounds, Box):
        ends = applied(Box, x.spread(bounds.lower, "lower"), x.spread(bounds.upper, "upper"))
    else:
        ends = x.spread(bounds, "bounds")
    boxes = applied(lambda own, leaf: box_like(Box() if own is None else own, leaf), ends, x).leaves
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
            "or optim.Box(lower, upper), or scipy.optimize.Bounds, but is "
            f"{'no such sequence' if pairs else type(bounds).__name__}"
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
    own = fitted(bound, x)
    if own is None:
        raise ValueError(
            f"bounds: {name} has shape {shape}, but x has {tuple(x.shape)}; give one "
            "bound for each element of x, or one number for all"
        )
    return own


def projected_gradient(box: Box, x: Array, gradient: Array) -> Array:
    """x - box(x - gradient), without its cancellation; it vanishes just where x is stationary."""
    xp = namespace(x)
    return xp.maximum(xp.minimum(gradient, x - box.lower), x - box.upper)


def held(box: Box, x: Array, gradient: Array, scale: float) -> Array:
    """A mask of coordinates at a bound, or near, that would leave the box along -gradient.

    D. P. Bertsekas, SIAM J. Control Optim. 20 (1982) 221-246, equation 32: nearness shrinks with
    the projected gradient, whose norm is `scale`, so that no coordinate is held for long by mistake
    and none blocks the others from a hair's breadth. Bertsekas takes the norm at x; that before the
    last step serves as well, and is a number already.
    """
    near = _nearness(box, scale)
    at_lower = (x - box.lower <= near) & (gradient > 0.0)
    at_upper = (box.upper - x <= near) & (gradient < 0.0)
    return at_lower | at_upper


def _nearness(box: Box, scale: float) -> Any:
    near = min(scale, _NEAR)
    return applied(lambda width: _smaller(_NEAR * width, near), box.upper - box.lower)


def _smaller(width: Any, near: float) -> Any:
    return min(width, near) if isinstance(width, float) else namespace(width).minimum(width, near)


def outward(box: Box, x: Array, d: Array) -> Array:
    """A mask of coordinates that are at a bound and that `d` would move beyond."""
    return ((x <= box.lower) & (d < 0.0)) | ((x >= box.upper) & (d > 0.0))
