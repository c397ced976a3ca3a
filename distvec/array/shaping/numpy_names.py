"""Which functions of this room stand for NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distvec.array.shaping import (
    convolution,
    diagonals,
    editing,
    grids,
    joining,
    neighbours,
    ordering,
    padding,
    repeating,
    splitting,
    turning,
)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        **convolution.numpy_functions(),
        **diagonals.numpy_functions(),
        **editing.numpy_functions(),
        **grids.numpy_functions(),
        **joining.numpy_functions(),
        **neighbours.numpy_functions(),
        **ordering.numpy_functions(),
        **padding.numpy_functions(),
        **repeating.numpy_functions(),
        **splitting.numpy_functions(),
        **turning.numpy_functions(),
    }
