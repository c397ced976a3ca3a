"""Arrays in other shapes and orders, with the parameters of the array API standard; lazy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distvec.array import transposed
from distvec.array.core.shapes import broadcast_arrays, broadcast_to
from distvec.array.core.shapes import expand_dims as _expand_dims
from distvec.array.core.shapes import reshape as _reshape
from distvec.array.core.shapes import squeeze as _squeeze
from distvec.array.standard.given import check_given

__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "matrix_transpose",
    "meshgrid",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "tile",
    "unstack",
]

matrix_transpose = transposed.matrix_transpose


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Any:
    """``arrays`` one after the other along ``axis``; without an axis all elements of them."""
    check_given("concat", *arrays)
    return np.concatenate(arrays, axis=axis)


def expand_dims(x: Any, /, axis: Any) -> Any:
    """``x`` with an axis of length 1 at ``axis``."""
    return _expand_dims(x, axis=axis)


def flip(x: Any, /, *, axis: Any = None) -> Any:
    """Backwards along ``axis``, or along all; an array of its own, that may be assigned to."""
    check_given("flip", x)
    return np.flip(x, axis).copy()


def meshgrid(*arrays: Any, indexing: Any = "xy") -> list[Any]:
    """Tables of the coordinates of a grid."""
    if not arrays:
        return []
    check_given("meshgrid", *arrays)
    return list(np.meshgrid(*arrays, indexing=indexing))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """Axes at other places."""
    check_given("moveaxis", x)
    return np.moveaxis(x, source, destination)


def permute_dims(x: Any, /, axes: Any) -> Any:
    """Axes in the order of ``axes``."""
    return transposed.transpose(x, axes)


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element, or row, so many times."""
    check_given("repeat", x)
    return np.repeat(x, repeats, axis)


def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
    """``x`` in ``shape``, which holds as many elements in the same order."""
    return _reshape(x, shape, copy=copy)


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """Every element ``shift`` places further along ``axis``, the last ones first."""
    check_given("roll", x)
    return np.roll(x, shift, axis)


def squeeze(x: Any, /, axis: Any = None) -> Any:
    """``x`` without the axes of ``axis``, which have length 1; without any that has, by default."""
    return _squeeze(x, axis)


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
    """Vectors of one length as the rows or columns of a table, numbers as a vector."""
    check_given("stack", *arrays)
    return np.stack(arrays, axis=axis)


def tile(x: Any, repetitions: tuple[int, ...], /) -> Any:
    """``x`` so many times along each axis."""
    check_given("tile", x)
    return np.tile(x, repetitions)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The parts of ``x`` along ``axis``, one for each index."""
    check_given("unstack", x)
    return np.unstack(x, axis=axis)
