"""Bounds of an objective's parameters, as boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from distvec.losses.loss import Parameter
from distvec.losses.penalties import in_dtype_of
from distvec.losses.scales import Scales
from optim import Box, NonNegative
from optim.core.arrays import Array, namespace
from optim.core.trees import Tree
from optim.quasi_newton.lbfgsb import box_like


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
    ends = ((box.lower, -math.inf), (box.upper, math.inf))
    return Box(*(in_dtype_of(like, _of_features(bound, none, mask)) for bound, none in ends))


def scaled_boxes(boxes: Sequence[Box], likes: Sequence[Array], scales: Scales) -> list[Box]:
    """The boxes of the scaled parameters, arrays like ``likes``; a row without a part has none."""
    parts = scales.parts or [None] * len(boxes)
    return [
        Box(
            _scaled(box.lower, -math.inf, in_dtype_of(like, factor), part),
            _scaled(box.upper, math.inf, in_dtype_of(like, factor), part),
        )
        for box, like, factor, part in zip(boxes, likes, scales.factors, parts, strict=True)
    ]


def _scaled(bound: Any, none: float, factor: Array, part: Array | None) -> Any:
    if isinstance(bound, float) and math.isinf(bound):
        return bound
    product = factor * bound
    if part is None:
        return product
    return in_dtype_of(product, namespace(part).where(part, product, none))


def by_name(bounds: Any, parameters: Sequence[Parameter]) -> list[Any]:
    """What was given for each parameter."""
    if len(parameters) == 1 and not parameters[0].name:
        return [bounds]
    names = [one.name for one in parameters]
    if isinstance(bounds, Box):
        return [Box(_of(bounds.lower, name), _of(bounds.upper, name)) for name in names]
    if not isinstance(bounds, Mapping) or set(bounds) - set(names):
        what = sorted(bounds) if isinstance(bounds, Mapping) else type(bounds).__name__
        raise TypeError(f"bounds are a dict by parameters, of {names}; {what} was given")
    return [bounds.get(name) for name in names]


def _of(bound: Any, name: str) -> Any:
    return bound.arranged()[name] if isinstance(bound, Tree) else bound


def _of_features(bound: Any, none: float, mask: Array | None) -> Any:
    if mask is None or not isinstance(bound, float) or bound == none:
        return bound
    return namespace(mask).where(mask, bound, none)
