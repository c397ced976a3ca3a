"""Shapes as users write them, and arrays in another shape: rank 0 or 1."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from distvec.graph import build
from distvec.graph.expr import space_of
from ps_backend.program.space import DenseSpace

if TYPE_CHECKING:
    from distvec.array.dist_array import DistArray


def shape_of(shape: Any) -> tuple[int, ...]:
    """``shape`` as a tuple: an integer or a sequence of at most one.

    ``TypeError`` for what is no integer, ``ValueError`` for one that cannot be a length.
    """
    extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if len(extents) > 1:
        raise NotImplementedError(
            f"arrays of shape {extents} are not supported yet; rank is 0 or 1"
        )
    return tuple(length_of(extent, "shape") for extent in extents)


def length_of(length: Any, name: str) -> int:
    """``length`` as an ``int``, 0 or more; errors as for ``shape_of``."""
    try:
        result = operator.index(length)
    except TypeError:
        whole = isinstance(length, float | np.floating) and float(length).is_integer()
        hint = f"; write int({length!s})" if whole else ""
        raise TypeError(f"{name} must be an integer, got {length!r}{hint}") from None
    if result < 0:
        raise ValueError(f"{name}: negative dimensions are not allowed, got {result}")
    if result > np.iinfo(np.int64).max:
        raise ValueError(f"{name}: {result} is more than an array can have, 2**63 - 1")
    return result


def reshape(x: DistArray, /, shape: Any, *, copy: bool | None = None) -> DistArray:
    """``x`` in ``shape``, which holds as many elements: its own, or ``()`` and ``(1,)``; lazy."""
    wanted = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    wanted = (x.size,) if wanted == (-1,) else wanted
    if shape_of(wanted) == x.shape:
        return x.copy()
    if math.prod(wanted) != x.size:
        raise ValueError(f"cannot reshape array of size {x.size} into shape {wanted}")
    if not wanted:
        return x.session.wrap(build.scalar_of(x.session, x.node))
    return x.session.wrap(x.session.graph.make("fill", (x.node,), x.dtype, DenseSpace(1)))


def squeeze(x: DistArray, /, axis: Any = None) -> DistArray:
    """``x`` without its axis, which must be of length 1; lazy."""
    axes = (0,) * x.ndim if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if axes and x.shape != (1,):
        raise ValueError(f"squeeze: axis {axis} of an array of shape {x.shape} has not length 1")
    return reshape(x, ()) if axes else x.copy()


def broadcast_to(x: DistArray, /, shape: Any) -> DistArray:
    """``x`` in ``shape``: a scalar or a vector of length 1 repeated; lazy."""
    wanted = shape_of(shape)
    if wanted == x.shape:
        return x.copy()
    if not wanted or x.shape not in ((), (1,)):
        raise ValueError(f"cannot broadcast an array of shape {x.shape} to shape {wanted}")
    scalar = build.scalar_of(x.session, x.node) if x.ndim else x.node
    return x.session.wrap(x.session.graph.make("fill", (scalar,), x.dtype, DenseSpace(*wanted)))


def broadcast_arrays(*arrays: DistArray) -> list[DistArray]:
    """``arrays`` in their common shape: scalars and vectors of length 1 repeated; lazy."""
    if not arrays:
        return []
    for array in arrays:
        build.check_session(arrays[0].session, array, "broadcast_arrays")
    space = space_of(build.broadcast(arrays[0].session, [array.node for array in arrays]))
    return [broadcast_to(array, () if space is None else (space.length,)) for array in arrays]
