"""Parts of arrays along one axis: elements and rows, slices, columns, what index arrays name.

All are lazy. Slices are views: what servers need of each other they fetch while they compute what
the slices are used for. Single elements, and the few that a short index array names, come to the
client; of a pending expression only these are computed.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from distvec.array.creation import broadcast_to, reshape
from distvec.array.keys import At, Part, Slice, Take, positions
from distvec.array.operators import Arithmetic
from distvec.graph import view_nodes
from distvec.graph.build import collect, on_client
from distvec.graph.host_eval import item_shape
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type, client_type

A = TypeVar("A", bound=Arithmetic)

FEW = 4096
"""So many rows, named by an array of the client, come to it; more stay on the servers."""


def on_the_client(x: A, key: tuple[Any, ...]) -> A:
    """``x[key]`` of what the client keeps; slices, integers and integer arrays."""
    names = tuple([encoded(one) for one in key])
    with x.session.holders.lock:
        type = client_type(x.dtype, item_shape(x.shape, names))
        return x.like(on_client(x.session.graph, "client.item", (x.node,), type, names))


def plain(part: Part) -> Any:
    """A part as NumPy takes it, of what the client keeps."""
    if isinstance(part, At):
        return part.index
    if isinstance(part, Slice):
        return part.key
    array: Any = part.indices if isinstance(part, Take) else part.mask  # type: ignore[union-attr]
    if isinstance(array, Arithmetic):
        array.session.evaluate_implicitly(array, "an index array")
        array = np.asarray(array)
    return array


def encoded(one: Any) -> Any:
    """One index as what can be part of a node's name."""
    if isinstance(one, slice):
        return "slice", one.start, one.stop, one.step
    if isinstance(one, np.ndarray):
        return "array", one.dtype.str, one.shape, tuple(one.ravel().tolist())
    return one


def rows_at(x: A, indices: npt.NDArray[np.int64]) -> A:
    """The rows (of a vector: elements) at ``indices``, all in range: shape ``(m, ...)``.

    Few of them come to the client with the next answer; more become an array on the servers.
    """
    if len(indices) > FEW:
        result: A = gathered(x, x.session.array(indices))
        return result
    graph = x.session.graph
    with x.session.holders.lock:
        wanted = graph.client_value(indices, np.dtype(np.int64))
        type = client_type(x.dtype, (len(indices), *x.node.type.row))
        return x.like(graph.make("take", (x.node, wanted), type))


def row_at(x: A, index: int) -> A:
    """One row, or of a vector one element: a lazy value of the client."""
    row = rows_at(x, np.array([index]))
    return reshape(row, row.shape[1:])


def gathered(x: A, indices: A) -> A:
    """The rows at the integers of a vector on the servers: ``(len(indices), ...)``, there too.

    Whether all are in range is found by the servers: who evaluates this gets the ``IndexError``.
    """
    wide = indices.astype(np.int64).made()
    if not len(x) and len(wide):
        raise IndexError(f"{len(wide)} indices are out of bounds for axis 0 with size 0")
    with x.session.holders.lock:
        return x.like(view_nodes.gather(x.session.graph, x.node, wide.node))


def places_of_pairs(x: Arithmetic, rows: Any, columns: Any) -> Any:
    """Where the elements that index arrays of rows and columns name are among all of a table.

    A vector on the servers. Who evaluates it gets the ``IndexError`` for what is out of range.
    """
    shape = np.broadcast_shapes(rows.shape, columns.shape)
    first, second = _of_axis(x, rows, shape, 0), _of_axis(x, columns, shape, 1)
    return first * x.shape[1] + second


def _of_axis(x: Arithmetic, indices: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Indices of an axis of ``x`` in a vector on the servers, counted from 0."""
    there = x.session.array(indices).astype(np.int64)
    flat = x.session.array(reshape(broadcast_to(there, shape), (prod(shape),))).made()
    with x.session.holders.lock:
        made = x.session.graph.make("along_axis", (flat.node,), flat.type, (axis, x.shape[axis]))
        return flat.like(made)


def sliced(x: A, part: Slice) -> A:
    """Rows ``part`` of the array; a view."""
    if part.is_all(len(x)):
        return x.copy()
    with x.session.holders.lock:
        space = DenseSpace(part.length)
        return x.like(view_nodes.view(x.session.graph, x.node, space, part.start, part.step))


def spread(values: A, part: Slice, like: Arithmetic) -> A:
    """An array as long as ``like`` that has ``values`` at rows ``part``, elsewhere anything."""
    with values.session.holders.lock:
        space = like.node.type.space
        return values.like(
            view_nodes.spread(values.session.graph, values.node, space, part.start, part.step)
        )


def inside(x: Arithmetic, part: Slice) -> Any:
    """Of each row of ``x`` whether it is among ``part``, which is not all of them."""
    graph = x.session.graph
    with x.session.holders.lock:
        type = array_type(x.node.type.space, np.dtype(np.int64))
        index = x.like(graph.make("iota", (), type))
    step = abs(part.step)
    low, high = sorted((part.start, part.end - part.step))
    within = None
    if low > 0:
        within = index >= low
    if high < len(x) - step:
        within = index <= high if within is None else within & (index <= high)
    if step > 1:
        is_power = step & (step - 1) == 0  # which needs no division
        rest = (index - low) & (step - 1) if is_power else (index - low) % step
        hits = rest == 0
        within = hits if within is None else within & hits
    return index >= 0 if within is None else within


def column(x: A, index: int) -> A:
    """One column of a table, as a vector."""
    return _of_rows(x, "column", (index,), ())


def columns(x: A, part: Slice) -> A:
    """Columns ``part`` of a table."""
    if part.is_all(x.shape[1]):
        return x.copy()
    return _of_rows(x, "columns", (part.start, part.end, part.step), (part.length,))


def _of_rows(x: A, op: str, params: tuple[Any, ...], row: tuple[int, ...]) -> A:
    with x.session.holders.lock:
        type = array_type(x.node.type.space, x.dtype, row)
        return x.like(x.session.graph.make(op, (x.node,), type, params))


def columns_at(x: A, indices: npt.NDArray[np.int64]) -> A:
    """The columns of a table that ``indices`` name, all in range."""
    graph = x.session.graph
    with x.session.holders.lock:
        wanted = graph.client_value(indices, np.dtype(np.int64))
        type = array_type(x.node.type.space, x.dtype, (len(indices),))
        return x.like(graph.make("take_columns", (x.node, wanted), type))


def known_indices(indices: Any, length: int, axis: int) -> npt.NDArray[np.int64]:
    """Indices, read by the client: an implicit evaluation where they are not known to it."""
    return positions(known(indices), length, axis)


def known(array: Any) -> npt.NDArray[Any]:
    """The values of indices or of a mask, read by the client."""
    with array.session.holders.lock:
        array = array.like(collect(array.session.graph, array.node))
    array.session.evaluate_implicitly(array, "an index array")
    return np.asarray(array.node.value)
