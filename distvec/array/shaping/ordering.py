"""Elements in another shape, read row by row or column by column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array import creation
from distvec.array.exchanged import redistributed
from distvec.array.handle import check_order
from distvec.array.items import get_item
from distvec.array.shaping.joining import column_stack, concatenate
from distvec.array.shaping.placing import MOST_INPUTS
from distvec.array.transposed import transpose


def reshape(x: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """``x`` in ``shape``; lazy. ``order="F"``: columns are read, and written, one by one."""
    if not _by_columns(order) or x.ndim + np.ndim(shape) == 0:
        return creation.reshape(x, shape, copy=copy)
    extents = creation.wanted_shape(x, shape)
    flat = ravel(x, "F")
    if flat.size != np.prod(extents, dtype=np.int64):
        raise ValueError(f"cannot reshape array of size {x.size} into shape {extents}")
    if len(extents) < 2:
        return creation.reshape(flat, extents)
    rows, columns = extents
    if flat.node.on_client or rows < columns:
        return transpose(creation.reshape(flat, (columns, rows)))
    return column_stack([get_item(flat, slice(k * rows, (k + 1) * rows)) for k in range(columns)])


def reshape_method(x: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
    """As the function; ``x.reshape(n, k)`` and ``x.reshape((n, k))``."""
    return reshape(x, shape[0] if len(shape) == 1 else shape, order, copy=copy)


def ravel(a: Any, order: str = "C") -> Any:
    """The elements as a vector, row by row, or with ``order="F"`` column by column; lazy."""
    if a.ndim < 2 or not _by_columns(order):
        return creation.reshape(a, (a.size,))
    if a.node.on_client:
        return creation.reshape(transpose(a), (a.size,))
    if a.shape[1] > MOST_INPUTS:
        return creation.reshape(redistributed(a), (a.size,))
    return concatenate([get_item(a, (slice(None), k)) for k in range(a.shape[1])])


def _by_columns(order: Any) -> bool:
    """Whether ``order`` is that of Fortran. "A" and "K" are as things are: row by row."""
    check_order(order)
    return str(order).upper() == "F"


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.reshape: lambda a, /, shape, order="C", *, copy=None: reshape(a, shape, order),
        np.ravel: ravel,
    }
