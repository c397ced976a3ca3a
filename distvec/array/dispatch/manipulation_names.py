"""Which functions of this room stand for NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distvec.array.manipulation import diagonals, grids
from distvec.array.manipulation import differences as convolution
from distvec.array.manipulation import differences as neighbours
from distvec.array.manipulation import insert_delete as editing
from distvec.array.manipulation import join as joining
from distvec.array.manipulation import pad as padding
from distvec.array.manipulation import rearrange as ordering
from distvec.array.manipulation import rearrange as splitting
from distvec.array.manipulation import rearrange as turning
from distvec.array.manipulation import repeat as repeating


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
