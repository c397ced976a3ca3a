"""Shapes as users write them, and arrays in another shape: rank 0, 1 or 2."""

from __future__ import annotations

import math
import operator
from math import prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import Handle, check_order, check_session, express, host_array
from distvec.diagnostics.profile import measured
from distvec.graph import build
from distvec.graph.build import check_dtype
from distvec.graph.host_eval import cast_value
from distvec.graph.node import MOST_COPIED, Graph, Node
from distvec.runtime.evaluator import Evaluator
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import ArrayType, array_type, client_type

H = TypeVar("H", bound=Handle)

MOST_RANK = 2


def shape_of(shape: Any) -> tuple[int, ...]:
    """``shape`` as a tuple: an integer or a sequence of at most two.

    ``TypeError`` for what is no integer, ``ValueError`` for one that cannot be a length.
    """
    extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if len(extents) > MOST_RANK:
        if len(extents) == 3 and extents[1] == 1 < extents[2]:  # as X[:, None, :] - C has it
            fix = (
                "for distances to the rows of C write "
                "(X**2).sum(axis=1)[:, None] - 2*X @ C.T + (C**2).sum(axis=1)"
            )
        else:
            fix = "combine axes: write x.reshape(n, -1)"
        raise NotImplementedError(
            f"arrays of shape {extents} are not supported: at most {MOST_RANK} axes; {fix}"
        )
    lengths = tuple(length_of(extent, "shape") for extent in extents)
    return lengths


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
        raise ValueError(f"{name}: {result} exceeds the largest length, 2**63 - 1")
    return result


def put(session: Evaluator, values: Any, dtype: Any = None) -> Node:
    """``values`` of rank 0, 1 or 2, in ``dtype`` or their own: on the servers, at once."""
    host = np.asarray(values, None if dtype is None else check_dtype(dtype))
    check_dtype(host.dtype)
    shape = shape_of(host.shape)
    if not shape:
        return session.graph.constant(host[()], host.dtype)
    if shape[1:] == (0,):
        return session.graph.client_value(host, host.dtype)
    if session.make_room is not None:
        session.make_room()
    buffer = session.new_buffer(type_of(shape, host.dtype))
    with measured(session.counters):
        session.client.write(buffer.id, buffer.type.space, np.ascontiguousarray(host))
    leaf = session.graph.leaf(buffer)
    if host.size <= MOST_COPIED:
        session.graph.collected[leaf] = session.graph.client_value(host, host.dtype)
    return leaf


def client_array(graph: Graph, values: npt.NDArray[Any]) -> Node:
    """A copy of ``values`` that the client stores."""
    type = client_type(values.dtype, values.shape)
    return graph.known(cast_value(values, type), type)


def iota(graph: Graph, shape: tuple[int, ...]) -> Node:
    """The number of each element of a new array, counted in C order."""
    if graph.keeps(shape):
        return client_array(graph, np.arange(prod(shape)).reshape(shape))
    return graph.make("iota", (), type_of(shape, np.dtype(np.int64)))


def on_servers(x: H) -> H:
    """Return ``x``, or a copy on the servers if it is a small array on the client; lazy.

    The copy is sent with the program that needs it.
    """
    if not x.ndim or not x.node.on_client:
        return x.copy()
    return express(x, build.put_on_servers, x, DenseSpace(x.shape[0]))


def full(like: H, shape: Any, fill_value: Any, dtype: Any = None) -> H:
    """``fill_value`` everywhere, in ``dtype`` or its own, in the session of ``like``; lazy."""
    return like.like(filled(like.session.graph, shape, fill_value, dtype))


def filled(graph: Graph, shape: Any, fill_value: Any, dtype: Any = None) -> Node:
    """``fill_value`` everywhere, in ``dtype`` or its own."""
    value = np.asarray(fill_value)
    if value.ndim:
        raise TypeError(f"full: fill_value must be a scalar, got shape {value.shape}")
    kind = check_dtype(dtype if dtype is not None else value.dtype)
    constant = graph.constant(np.asarray(fill_value, kind)[()], kind)
    return fill(graph, constant, shape_of(shape))


def fill(graph: Graph, scalar: Node, shape: tuple[int, ...]) -> Node:
    """An array of ``shape`` on the servers with ``scalar`` everywhere; itself for rank 0."""
    return graph.make("fill", (scalar,), type_of(shape, scalar.dtype)) if shape else scalar


def type_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArrayType:
    """The type of arrays as users make them: all of one length are aligned."""
    return array_type(DenseSpace(shape[0]), dtype, shape[1:])


def reshape(x: H, /, shape: Any, *, copy: bool | None = None) -> H:
    """Return ``x`` in ``shape``, with as many elements in the same order; lazy.

    No data is transferred if rows stay whole, as from ``(n,)`` to ``(n, 1)``.
    """
    wanted = resolve_shape(x, shape)
    if wanted == x.shape:
        return x.copy()
    if math.prod(wanted) != x.size:
        raise ValueError(f"cannot reshape array of size {x.size} into shape {wanted}")
    return express(x, _reshape_node, x, wanted)


def reshape_any(x: Any, shape: Any) -> Any:
    """``x``, an array on the servers or NumPy's, in ``shape``."""
    return reshape(x, shape) if isinstance(x, Handle) else np.reshape(x, shape)


def resolve_shape(x: Handle, shape: Any) -> tuple[int, ...]:
    """Return ``shape`` with -1 replaced by the length that it stands for."""
    extents = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    given = [extent for extent in extents if extent != -1]
    if len(given) == len(extents) - 1:
        rest, left = divmod(x.size, max(1, math.prod(given)))
        if left or not math.prod(given):
            raise ValueError(f"cannot reshape array of size {x.size} into shape {extents}")
        extents = tuple(rest if extent == -1 else extent for extent in extents)
    return shape_of(extents)


def _reshape_node(graph: Graph, node: Node, shape: tuple[int, ...]) -> Node:
    own = node.type.shape
    if node.on_client:
        if node.is_scalar:
            return fill(graph, node, shape)
        return build.reshape(graph, node, shape)
    if not shape:
        return build.scalar_of(graph, node)
    if math.prod(own) == 1:
        return fill(graph, build.scalar_of(graph, node), shape)
    if math.prod(own) == 0:
        return fill(graph, graph.constant(0, node.dtype), shape)
    if own[0] == shape[0]:  # one of them has columns of one element
        op = "as_column" if len(shape) == 2 else "as_vector"
        return graph.make(op, (node,), array_type(node.type.space, node.dtype, shape[1:]))
    return graph.make("view", (node,), type_of(shape, node.dtype), (0, 1))


def squeeze(x: H, /, axis: int | tuple[int, ...] | None = None) -> H:
    """Remove axes of length 1.

    Parameters
    ----------
    x : DistArray
        Input array.
    axis : int or tuple of int, optional
        Axes to remove. None (default) removes all axes of length 1.

    Returns
    -------
    DistArray
        Lazy array without these axes.

    Raises
    ------
    ValueError
        If an axis in ``axis`` does not have length 1.

    See Also
    --------
    numpy.squeeze : The same function of arrays on the client.

    Examples
    --------
    >>> ps.ones((3, 1)).squeeze().shape
    (3,)
    """
    if x.ndim == 0 and axis in (0, -1):  # as NumPy
        return x.copy()
    ones = [k for k, extent in enumerate(x.shape) if extent == 1]
    axes = ones if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, x.ndim)
    if not set(axes) <= set(ones):
        raise ValueError(
            f"squeeze: axis {axis} of an array of shape {x.shape} does not have length 1"
        )
    return reshape(x, tuple(extent for k, extent in enumerate(x.shape) if k not in axes))


def expand_dims(x: H, /, axis: int | tuple[int, ...] = 0) -> H:
    """``x`` with an axis of length 1 at ``axis``; lazy."""
    given = axis if isinstance(axis, tuple) else (axis,)
    rank = x.ndim + len(given)
    axes = np.lib.array_utils.normalize_axis_tuple(given, rank)
    extents = iter(x.shape)
    return reshape(x, tuple(1 if k in axes else next(extents) for k in range(rank)))


def broadcast_to(x: H, /, shape: Any) -> H:
    """``x`` stretched to ``shape`` as NumPy does; lazy."""
    wanted = shape_of(shape)
    if wanted == x.shape:
        return x.copy()
    if x.is_split_by_columns:
        return broadcast_to(x.table, wanted[::-1]).T  # type: ignore[attr-defined,no-any-return]
    try:
        fits = np.broadcast_shapes(x.shape, wanted) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"cannot broadcast an array of shape {x.shape} to shape {wanted}")
    same_rows = not x.node.on_client and x.ndim == len(wanted) and x.shape[0] == wanted[0]
    space = x.space if same_rows else DenseSpace(wanted[0])
    return express(x, build.broadcast_to, x, array_type(space, x.dtype, wanted[1:]))


def broadcast_arrays(*arrays: H) -> list[H]:
    """``arrays`` in their common shape; lazy."""
    if not arrays:
        return []
    for array in arrays:
        check_session(arrays[0].session, array, "broadcast_arrays")
    _, shape = build.common_shape([array.node for array in arrays])
    return [broadcast_to(array, shape) for array in arrays]


def numpy_broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    """As ``broadcast_arrays``; NumPy's are put on the servers."""
    session = next(one.session for one in args if isinstance(one, Handle))
    return tuple(
        broadcast_arrays(*(one if isinstance(one, Handle) else session._put(one) for one in args))
    )


def numpy_full_like(
    fill_value: Any, x: Any, dtype: Any = None, order: Any = "K", subok: Any = True,
    shape: Any = None, *, device: Any = None,
) -> Any:  # fmt: skip
    """As ``numpy.full_like``, but that what is to be everywhere comes first."""
    check_order(order)
    kind = x.dtype if dtype is None else dtype
    if x.is_split_by_columns and shape is None:
        return full(x.table, x.table.shape, fill_value, kind).T
    if x.node.on_client and shape is None and not isinstance(fill_value, Handle):
        return host_array(x, np.full(x.shape, fill_value, check_dtype(kind)))
    extents = x.shape if shape is None else shape
    return full(x, extents, fill_value, kind)
