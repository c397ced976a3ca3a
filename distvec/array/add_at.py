"""``numpy.ufunc.at``: repeated indices count each time, which ``x[indices] += values`` does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.handle import refuse_window
from distvec.array.indexing import as_indices, pull, push
from distvec.array.items import get_item, set_item
from distvec.array.moving.scatter import WAYS, changed
from distvec.array.operators import Arithmetic


def at(function: Any, x: Any, indices: Any, *values: Any) -> None:
    """``function.at(x, indices, values)``, with repeated integers each in its turn.

    Masks and slices name nothing twice: they are lazy. So are indices on the servers, which bring
    the values to their places in two messages. With integers of the client ``x`` is evaluated if
    need be; ``numpy.add`` and ``numpy.subtract`` then take one message to each server that holds
    some, others two: the elements come to the client, and go back.
    """
    name = f"numpy.{function.__name__}.at"
    if not isinstance(x, Arithmetic):
        raise TypeError(f"{name}: changes a {type(x).__name__} on the client; pull the operands")
    if _names_once(indices):
        with x.turn:
            set_item(x, indices, function(get_item(x, indices), *values))
        return
    if isinstance(indices, Arithmetic) and not indices.node.on_client:
        _scatter(name, function, x, indices, values)
        return
    where = _integers(name, indices)
    spread = [_spread(x, where, one) for one in values]
    if function not in (np.add, np.subtract):
        _on_client(function, x, as_indices(where.ravel(), len(x)), spread)
        return
    if x.dtype == np.bool_ and function is np.subtract:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported")
    (added,) = spread
    if added.dtype.kind in "iub" and x.dtype.kind in "iu":  # modulo what they can hold, as in NumPy
        added = added.astype(x.dtype)
    push(x, where.ravel(), np.negative(added) if function is np.subtract else added)


def _scatter(name: str, function: Any, x: Arithmetic, indices: Any, values: Any) -> None:
    if indices.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if function.nin != 2 or function.__name__ not in WAYS:
        raise TypeError(
            f"{name}: with indices on the servers only ufuncs of two numbers; "
            f"pull them: indices.numpy()"
        )
    if x.dtype == np.bool_ and function is np.subtract:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported")
    refuse_window(x)
    with x.turn:
        (given,) = values
        x.assign(changed(x, function.__name__, indices, given))


def _spread(x: Arithmetic, where: npt.NDArray[Any], values: Any) -> npt.NDArray[Any]:
    """``values`` for each index: a number, or a row of a table."""
    row = x.shape[1:]
    return np.broadcast_to(np.asarray(values), (*where.shape, *row)).reshape(-1, *row)


def _on_client(
    function: Any, x: Arithmetic, where: npt.NDArray[np.int64], values: list[npt.NDArray[Any]]
) -> None:
    """``function.at`` of the elements that are named, which the client computes."""
    named, places = np.unique(where, return_inverse=True)
    with x.turn:
        elements = pull(x, named)
        function.at(elements, places, *values)
        set_item(x, named, elements)


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
