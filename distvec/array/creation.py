"""Shapes as users write them, and arrays in another shape: rank 0 or 1."""

from __future__ import annotations

import math
import operator
from typing import Any, TypeVar

import numpy as np

from distvec.array.handle import Handle, check_session
from distvec.diagnostics.profile import measured
from distvec.graph import build
from distvec.graph.dtypes import check_dtype
from distvec.graph.expr import Graph, Node
from distvec.runtime.evaluation import Evaluator
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import ArrayType, array_type

H = TypeVar("H", bound=Handle)


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


def put(session: Evaluator, values: Any, dtype: Any = None) -> Node:
    """``values`` of rank 0 or 1, in ``dtype`` or their own: on the servers, at once."""
    host = np.asarray(values, None if dtype is None else check_dtype(dtype))
    check_dtype(host.dtype)
    if host.ndim > 1:
        raise NotImplementedError(
            f"arrays of rank {host.ndim} are not supported yet; "
            f"pass a vector, for instance values.ravel()"
        )
    if host.ndim == 0:
        return session.graph.constant(host[()], host.dtype)
    buffer = session.new_buffer(vector_type(len(host), host.dtype))
    with measured(session.counters):
        session.client.write(buffer.id, buffer.type.space, np.ascontiguousarray(host))
    return session.graph.leaf(buffer)


def filled(graph: Graph, shape: Any, fill_value: Any, dtype: Any = None) -> Node:
    """``fill_value`` everywhere, in ``dtype`` or its own."""
    value = np.asarray(fill_value)
    if value.ndim:
        raise TypeError(f"full: fill_value must be a scalar, got shape {value.shape}")
    kind = check_dtype(dtype if dtype is not None else value.dtype)
    constant = graph.constant(np.asarray(fill_value, kind)[()], kind)
    extents = shape_of(shape)
    return repeated(graph, constant, *extents) if extents else constant


def repeated(graph: Graph, scalar: Node, length: int) -> Node:
    """A vector of ``length`` with ``scalar`` everywhere."""
    return graph.make("fill", (scalar,), vector_type(length, scalar.dtype))


def vector_type(length: int, dtype: np.dtype[Any]) -> ArrayType:
    """The type of vectors of ``length`` as users make them: all of one length are aligned."""
    return array_type(DenseSpace(length), dtype)


def reshape(x: H, /, shape: Any, *, copy: bool | None = None) -> H:
    """``x`` in ``shape``, which holds as many elements: its own, or ``()`` and ``(1,)``; lazy."""
    wanted = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    wanted = (x.size,) if wanted == (-1,) else wanted
    if shape_of(wanted) == x.shape:
        return x.copy()
    if math.prod(wanted) != x.size:
        raise ValueError(f"cannot reshape array of size {x.size} into shape {wanted}")
    with x.session.holders.lock:
        if not wanted:
            return x.like(build.scalar_of(x.session.graph, x.node))
        return x.like(repeated(x.session.graph, x.node, 1))


def squeeze(x: H, /, axis: Any = None) -> H:
    """``x`` without its axis, which must be of length 1; lazy."""
    axes = (0,) * x.ndim if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if axes and x.shape != (1,):
        raise ValueError(f"squeeze: axis {axis} of an array of shape {x.shape} has not length 1")
    return reshape(x, ()) if axes else x.copy()


def broadcast_to(x: H, /, shape: Any) -> H:
    """``x`` in ``shape``: a scalar or a vector of length 1 repeated; lazy."""
    wanted = shape_of(shape)
    if wanted == x.shape:
        return x.copy()
    if not wanted or x.shape not in ((), (1,)):
        raise ValueError(f"cannot broadcast an array of shape {x.shape} to shape {wanted}")
    graph = x.session.graph
    with x.session.holders.lock:
        scalar = build.scalar_of(graph, x.node) if x.ndim else x.node
        return x.like(repeated(graph, scalar, *wanted))


def broadcast_arrays(*arrays: H) -> list[H]:
    """``arrays`` in their common shape: scalars and vectors of length 1 repeated; lazy."""
    if not arrays:
        return []
    for array in arrays:
        check_session(arrays[0].session, array, "broadcast_arrays")
    nodes = build.broadcast(arrays[0].session.graph, [array.node for array in arrays])
    shape = next((node.type.shape for node in nodes if not node.is_scalar), ())
    return [broadcast_to(array, shape) for array in arrays]
