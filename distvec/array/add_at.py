"""``numpy.ufunc.at``: repeated indices count each time, which ``x[indices] += values`` does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.indexing import push
from distvec.array.items import get_item, set_item
from distvec.array.operators import Arithmetic


def at(function: Any, x: Any, indices: Any, values: Any) -> None:
    """``function.at(x, indices, values)``: integers as indices of ``numpy.add`` and
    ``numpy.subtract``, masks and slices, which name nothing twice, of all ufuncs.

    With integers evaluation of ``x`` if need be, then one message to each server that holds some.
    """
    name = f"numpy.{function.__name__}.at"
    if not isinstance(x, Arithmetic):
        raise TypeError(f"{name}: changes a {type(x).__name__} on the client; pull the operands")
    if _names_once(indices):
        with x.turn:
            set_item(x, indices, function(get_item(x, indices), values))
        return
    if function not in (np.add, np.subtract):
        raise TypeError(
            f"{name} is not available on the servers: they add and subtract at indices; "
            f"pull the values with x.numpy() for others"
        )
    where, given = _integers(name, indices), np.asarray(values)
    if x.dtype == np.bool_ and function is np.subtract:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported")
    if given.dtype.kind in "iub" and x.dtype.kind in "iu":  # modulo what they can hold, as in NumPy
        given = given.astype(x.dtype)
    row = x.shape[1:]
    spread = np.broadcast_to(given, (*where.shape, *row)).reshape(-1, *row)
    push(x, where.ravel(), np.negative(spread) if function is np.subtract else spread)


def _integers(name: str, indices: Any) -> npt.NDArray[Any]:
    """``indices`` along the first axis."""
    if isinstance(indices, tuple) and len(indices) != 1:
        raise TypeError(f"{name}: indices must be along the first axis, got {len(indices)} of them")
    where = np.asarray(indices[0] if isinstance(indices, tuple) else indices)
    if where.size and where.dtype.kind not in "iu":
        raise TypeError(f"{name}: indices must be integers, got {where.dtype}")
    return where


def _names_once(indices: Any) -> bool:
    """Whether ``indices`` are a mask or a slice."""
    dtype = indices.dtype if hasattr(indices, "dtype") else None
    return isinstance(indices, slice) or indices is Ellipsis or dtype == np.bool_
