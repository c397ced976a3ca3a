"""Values that an index array on the servers brings to their places, in its order; lazy.

Each server sends its pairs of an index and a value to who holds the place: two messages to each
server, and 16 bytes for each pair of float64 that changes servers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array.creation import broadcast_to, on_servers, reshape
from distvec.array.handle import broadcasts, check_session
from distvec.array.moving.core import move
from distvec.array.moving.extremes import are_places
from distvec.array.operators import Arithmetic
from distvec.graph import build
from ps_backend.program.scatters import ASSIGN, KIND, WAYS

__all__ = ["ASSIGN", "WAYS", "changed", "scattered"]


def changed(x: Arithmetic, way: str, indices: Any, values: Any) -> Any:
    """As ``scattered``, for who changes ``x``: where an index is out of range, which is looked up
    in one message the first time that ``indices`` are used, the ``IndexError`` comes at once, and
    ``x`` is what it was."""
    result = scattered(x, way, indices, values)
    if not are_places(indices, len(x)):
        x.session.compute(result)
    return result


def scattered(x: Arithmetic, way: str, indices: Any, values: Any) -> Any:
    """``x`` with each of ``values``, in the order of ``indices``, joined to the row there.

    ``indices``: integers, negative ones from the end, of shape ``(m,)``, or ``(m, j)`` into a
    vector. ``values``: a number, a row, or what ``(*indices.shape, *row)`` is broadcast of. ``way``
    is ``"assign"`` or the name of a ufunc; repeated indices count each, in their order. Same bits
    as NumPy's. Who evaluates it gets the ``IndexError`` for an index that is out of range.
    """
    check_session(x.session, indices, "indices")
    if indices.ndim > 1 and x.ndim > 1:
        raise NotImplementedError("indices of the rows of a table are a vector: indices.ravel()")
    row = x.shape[1:]
    given = _values(x, indices, values, (*indices.shape, *row))
    where = reshape(indices.astype(np.int64), (indices.size,)) if indices.ndim > 1 else indices
    base, operands = [x], []
    if x.node.op == "fill" and not x.node.known:  # what is the same everywhere need not be stored
        base, operands = [], [x.like(x.node.args[0])]
    arrays = [*base, where.astype(np.int64)]
    is_constant = not isinstance(given, Arithmetic) or given.node.on_client
    (operands if is_constant else arrays).append(given)
    params = WAYS.index(way), len(base)
    return move(KIND, arrays, operands, [x.type], params)[0]


def _values(x: Arithmetic, indices: Any, values: Any, shape: tuple[int, ...]) -> Any:
    """A value, or a row, of the client for all, or an array on the servers with one for each."""
    row = shape[indices.ndim :]
    if not isinstance(values, Arithmetic):
        values = np.asarray(values)
    elif values.node.op == "fill" and not values.node.known:
        values = x.like(values.node.args[0])
    given = values.shape
    while len(given) > len(row) and given[0] == 1:
        given = given[1:]
    if not broadcasts(given, shape):
        raise ValueError(
            f"shape mismatch: values of shape {values.shape} could not be broadcast to indexing "
            f"result of shape {shape}"
        )
    if len(given) <= len(row):
        return _of_all(x, values, given)
    if not isinstance(values, Arithmetic):
        values = x.session.array(np.broadcast_to(values, shape))
    elif values.node.on_client:
        values = x.like(on_servers(broadcast_to(values, shape)))
    check_session(x.session, values, "values")
    if values.shape != shape and not (row and values.shape == (*shape[:1], 1)):
        values = broadcast_to(values, shape)
    return reshape(values, (indices.size,)) if indices.ndim > 1 else values


def _of_all(x: Arithmetic, values: Any, shape: tuple[int, ...]) -> Any:
    """What is the same for all, as the client keeps it."""
    if not isinstance(values, Arithmetic):
        return values.reshape(shape)
    if values.shape != shape:
        values = reshape(values, shape)
    return values if values.node.on_client else _collected(x, values)


def _collected(x: Arithmetic, values: Any) -> Any:
    with x.session.holders.lock:
        return x.like(build.collect(x.session.graph, values.node))
