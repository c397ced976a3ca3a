"""Bounds of an objective's parameters, as boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from distvec.losses.loss import Parameter
from optim import Box, NonNegative
from optim.core.arrays import Array, namespace
from optim.quasi_newton.bounds import box_like


def box_of(bounds: Any, like: Array, mask: Array | None) -> Box:
    """The box of one parameter, an array like ``like``.

    Numbers bound the features alone, and so do pairs for them alone; an intercept is bounded where
    there are arrays or pairs with an element for it.
    """
    if bounds is None:
        return Box()
    if isinstance(bounds, NonNegative):
        bounds = Box(0.0, math.inf)
    if mask is not None and isinstance(bounds, Sequence) and len(bounds) == like.shape[0] - 1:
        bounds = [*bounds, (None, None)]
    box = box_like(bounds, like)
    return Box(_of_features(box.lower, -math.inf, mask), _of_features(box.upper, math.inf, mask))


def scaled_box(box: Box, factor: Array, part: Array | None) -> Box:
    """The box of the parameter times ``factor``; where that is 0 there are no bounds."""

    def times(bound: Any, none: float) -> Any:
        if isinstance(bound, float) and math.isinf(bound):
            return bound
        product = factor * bound
        return product if part is None else namespace(part).where(part, product, none)

    return Box(times(box.lower, -math.inf), times(box.upper, math.inf))


def by_name(bounds: Any, parameters: Sequence[Parameter]) -> list[Any]:
    """What was given for each parameter."""
    if len(parameters) == 1 and not parameters[0].name:
        return [bounds]
    names = [one.name for one in parameters]
    if not isinstance(bounds, Mapping) or set(bounds) - set(names):
        what = sorted(bounds) if isinstance(bounds, Mapping) else type(bounds).__name__
        raise TypeError(f"bounds are a dict by parameters, of {names}; {what} was given")
    return [bounds.get(name) for name in names]


def _of_features(bound: Any, none: float, mask: Array | None) -> Any:
    if mask is None or not isinstance(bound, float) or bound == none:
        return bound
    return namespace(mask).where(mask, bound, none)
