"""Which functions of this room stand for NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distvec.array.shaping import (
    diagonals,
    editing,
    grids,
    joining,
    padding,
    repeating,
    splitting,
    turning,
)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        **diagonals.numpy_functions(),
        **editing.numpy_functions(),
        **grids.numpy_functions(),
        **joining.numpy_functions(),
        **padding.numpy_functions(),
        **repeating.numpy_functions(),
        **splitting.numpy_functions(),
        **turning.numpy_functions(),
    }
