"""Add collectives to the graph; scatter values by indices on the servers.

A scatter sends pairs of an index and a value to the server that holds the place: two requests per
server, and 16 bytes for each float64 pair that changes servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distvec.array import reductions
from distvec.array.core.handle import SessionBase, check_session, express, is_broadcastable, node_of
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import broadcast_to, on_servers, reshape
from distvec.graph import build
from distvec.graph.node import movement
from ps_backend.program.collectives import SCATTER, TABLE, WAYS
from ps_backend.program.types import ArrayType, NodeType


def collective(
    kind: str,
    arrays: Sequence[Any],
    operands: Sequence[Any],
    types: Sequence[NodeType],
    params: Sequence[int] = (),
) -> list[Any]:
    """Return the outputs, of ``types``, of the collective ``kind``; lazy.

    ``arrays`` are on the servers; ``operands`` are small arrays on the client, ours or NumPy's.
    Outputs without a live reference are not computed. Each phase costs one request per server; all
    phases together cost one if a single server holds the arrays.
    """
    like = arrays[0]
    made = [array.materialized() for array in arrays]  # selections are compacted first
    count = like.session.client.servers
    given = [array.node.type for array in made]
    holders = {
        server
        for type in (*given, *types)
        if isinstance(type, ArrayType)
        for server in type.space.holders(count)
    }
    phases = 1 if len(holders) == 1 else TABLE[kind].phases
    with like.session.holders.lock:
        graph = like.session.graph
        args = [node_of(graph, operand) for operand in (*made, *operands)]
        return [
            like.like(movement(graph, kind, number, args, type, phases, params))
            for number, type in enumerate(types)
        ]


def least_and_greatest(x: Any, what: str) -> tuple[Any, Any]:
    """Return the least and the greatest element; an implicit evaluation, counted for ``what``.

    The results for a stored array are cached.
    """
    session = x.session
    found: tuple[Any, Any] | None = session.extremes.get(x.node)
    if found is None:
        least, greatest = reductions.min(x), reductions.max(x)
        last = session.evaluate_implicitly(greatest, what)
        found = session.compute(least)[0].value, last
        if x.node.known:
            session.extremes[x.node] = found
    return found


def are_in_range(indices: Arithmetic, length: int) -> bool:
    """Whether integers on the servers are all places of an axis of that ``length``.

    One message, the first time that an array is asked.
    """
    session = indices.session
    if not indices.size:
        return True
    if indices.node not in session.extremes:
        least, greatest = session.compute(reductions.min(indices), reductions.max(indices))
        session.extremes[indices.node] = least.value, greatest.value
    least, greatest = session.extremes[indices.node]
    return bool(-length <= least and greatest < length)


def scatter_now(x: Arithmetic, way: str, indices: Any, values: Any) -> Any:
    """Scatter into ``x`` and raise ``IndexError`` immediately if an index is out of range.

    The indices are checked with one request the first time that they are used. ``x`` does not
    change.
    """
    result = scatter(x, way, indices, values)
    if not are_in_range(indices, len(x)):
        x.session.compute(result)
    return result


def scatter(x: Arithmetic, way: str, indices: Any, values: Any) -> Any:
    """Return ``x`` with ``values`` joined to its rows at ``indices``, in their order.

    ``indices``: integers, negative ones from the end, of shape ``(m,)``, or ``(m, j)`` into a
    vector. ``values``: a number, a row, or an array that broadcasts to ``(*indices.shape, *row)``.
    ``way`` is ``"assign"`` or the name of a ufunc; each repeated index counts, in order. Results
    are bitwise equal to NumPy's. The evaluation raises ``IndexError`` if an index is out of range.
    """
    check_session(x.session, indices, "indices")
    if indices.ndim > 1 and x.ndim > 1:
        raise NotImplementedError("indices of table rows must be a vector; write indices.ravel()")
    row = x.shape[1:]
    given = _values(x, indices, values, (*indices.shape, *row))
    where = reshape(indices.astype(np.int64), (indices.size,)) if indices.ndim > 1 else indices
    base, operands = [x], []
    if x.node.op == "fill" and not x.node.known:  # a constant need not be stored
        base, operands = [], [x.like(x.node.args[0])]
    arrays = [*base, where.astype(np.int64)]
    is_constant = not isinstance(given, Arithmetic) or given.node.on_client
    (operands if is_constant else arrays).append(given)
    params = WAYS.index(way), len(base)
    return collective(SCATTER, arrays, operands, [x.type], params)[0]


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
    if not is_broadcastable(given, shape):
        raise ValueError(
            f"shape mismatch: values of shape {values.shape} could not be broadcast to indexing "
            f"result of shape {shape}"
        )
    if len(given) <= len(row):
        return _of_all(x, values, given)
    if not isinstance(values, Arithmetic):
        values = x.session._put(np.broadcast_to(values, shape))
    elif values.node.on_client:
        values = on_servers(broadcast_to(values, shape))
    check_session(x.session, values, "values")
    if values.shape != shape and not (row and values.shape == (*shape[:1], 1)):
        values = broadcast_to(values, shape)
    return reshape(values, (indices.size,)) if indices.ndim > 1 else values


def _of_all(x: Arithmetic, values: Any, shape: tuple[int, ...]) -> Any:
    """Return a value that is the same for all rows, stored on the client."""
    if not isinstance(values, Arithmetic):
        return values.reshape(shape)
    if values.shape != shape:
        values = reshape(values, shape)
    return values if values.node.on_client else express(x, build.collect, values)


def common_session(first: Any, second: Any, name: str) -> Any:
    """Return the session of the DistArrays among both operands."""
    ours = [one for one in (first, second) if isinstance(one, Arithmetic)]
    if not ours:
        raise TypeError(
            f"{name}: needs at least one DistArray; use numpy.{name} for arrays on the client"
        )
    for one in ours:
        check_session(ours[0].session, one, name)
    return ours[0].session


def as_vector(session: SessionBase, x: Any) -> Any:
    """All elements of ``x``, on the servers, one after the other."""
    found = x.materialized() if isinstance(x, Arithmetic) else session._put(x)
    if found.ndim != 1:
        found = reshape(found, (found.size,))
    return session._put(found) if found.node.on_client else found
