"""Products of more than two matrices, in the order that multiplies least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np


def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Any:
    """The product of all, left to right: ``numpy.linalg.multi_dot``; lazy."""
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    shapes = [one.shape if k or one.ndim > 1 else (1, *one.shape) for k, one in enumerate(arrays)]
    extents = [shape[0] for shape in shapes] + [(*shapes[-1], 1)[1]]

    @cache
    def cheapest(first: int, last: int) -> tuple[int, int]:
        """How many products, and after which factor to cut."""
        cuts = [
            (cheapest(first, cut)[0] + cheapest(cut + 1, last)[0]
             + extents[first] * extents[cut + 1] * extents[last + 1], cut)
            for cut in range(first, last)
        ]  # fmt: skip
        return min(cuts, default=(0, 0))

    def product(first: int, last: int) -> Any:
        if first == last:
            return arrays[first]
        cut = cheapest(first, last)[1]
        return product(first, cut) @ product(cut + 1, last)

    return product(0, len(arrays) - 1)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.linalg.multi_dot: multi_dot}
