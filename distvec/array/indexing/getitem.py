"""``x[key]``: elements, rows, slices, columns, and elements at index arrays.

All are lazy. Slices are views: servers fetch data from each other in the computation that uses
the slices. Single elements, and the few of a short index array, come to the client; only these
elements of a pending expression are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import Handle, check_session, express, make
from distvec.array.core.on_client import item_of_known
from distvec.array.core.operators import A, Arithmetic
from distvec.array.core.shapes import broadcast_to, reshape
from distvec.array.indexing.parse_key import (
    At,
    Mask,
    NewAxis,
    Part,
    Slice,
    Take,
    check_together,
    parse,
    positions,
)
from distvec.graph.build import collect
from distvec.graph.host_eval import cast_value, item_shape
from distvec.graph.node import gather as gather_node
from distvec.graph.node import spread, view
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type, client_type
from ps_backend.program.views import INDEX_DTYPES

FEW = 4096
"""So many rows, named by an array of the client, come to it; more stay on the servers."""


def index_on_host(x: A, key: Any) -> A:
    """Return ``x[key]`` of an array on the client; slices, integers and integer arrays."""
    node = x.node
    if node.value is not None:
        value = node.value[key]
        type = client_type(node.dtype, value.shape)
        return x.like(x.session.graph.known(cast_value(value, type), type))
    names = tuple([encode_key(one) for one in key])
    return make(x, "client.item", (x,), client_type(x.dtype, item_shape(x.shape, names)), names)


def as_numpy_key(part: Part) -> Any:
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


def encode_key(one: Any) -> Any:
    """One index as what can be part of a node's name."""
    if isinstance(one, slice):
        return "slice", one.start, one.stop, one.step
    if isinstance(one, np.ndarray):
        return "array", one.dtype.str, one.shape, tuple(one.ravel().tolist())
    return one


def take_rows(x: A, indices: npt.NDArray[np.int64]) -> A:
    """The rows (of a vector: elements) at ``indices``, all in range: shape ``(m, ...)``.

    Few of them come to the client with the next answer; more become an array on the servers.
    """
    if len(indices) > FEW:
        result: A = gather(x, x.session._put(indices))
        return result
    return make(x, "take", (x, indices), client_type(x.dtype, (len(indices), *x.shape[1:])))


def take_row(x: A, index: int) -> A:
    """One row, or of a vector one element: a lazy value of the client."""
    row = take_rows(x, np.array([index]))
    return reshape(row, row.shape[1:])


def gather(x: A, indices: A) -> A:
    """Return the rows at integers of a vector on the servers: ``(len(indices), ...)``, there too.

    The servers check the indices: the evaluation raises ``IndexError`` if one is out of range.
    """
    there = indices if indices.dtype.name in INDEX_DTYPES else indices.astype(np.int64)
    if not len(x) and len(there):
        raise IndexError(f"{len(there)} indices are out of bounds for axis 0 with size 0")
    return express(x, gather_node, x, there.materialized())


def flat_places(x: Arithmetic, rows: Any, columns: Any) -> Any:
    """Return the places, in the flattened table, of elements at index arrays of rows and columns.

    A vector on the servers. Its evaluation raises ``IndexError`` for an index out of range.
    """
    shape = np.broadcast_shapes(rows.shape, columns.shape)
    first, second = _of_axis(x, rows, shape, 0), _of_axis(x, columns, shape, 1)
    return first * x.shape[1] + second


def _of_axis(x: Arithmetic, indices: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Indices of an axis of ``x`` in a vector on the servers, counted from 0."""
    there = x.session._put(indices).astype(np.int64)
    flat = x.session._put(reshape(broadcast_to(there, shape), (prod(shape),))).materialized()
    return make(flat, "along_axis", (flat,), flat.type, (axis, x.shape[axis]))


def slice_rows(x: A, part: Slice) -> A:
    """Rows ``part`` of the array; a view."""
    if part.is_all(len(x)):
        return x.copy()
    return express(x, view, x, DenseSpace(part.length), part.start, part.step)


def spread_rows(values: A, part: Slice, like: Arithmetic) -> A:
    """An array as long as ``like`` that has ``values`` at rows ``part``, elsewhere anything."""
    return express(values, spread, values, like.space, part.start, part.step)


def is_inside(x: Arithmetic, part: Slice) -> Any:
    """Of each row of ``x`` whether it is among ``part``, which is not all of them."""
    index = make(x, "iota", (), array_type(x.space, np.dtype(np.int64)))
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


def slice_columns(x: A, part: Slice) -> A:
    """Columns ``part`` of a table."""
    if part.is_all(x.shape[1]):
        return x.copy()
    return _of_rows(x, "columns", (part.start, part.end, part.step), (part.length,))


def _of_rows(x: A, op: str, params: tuple[Any, ...], row: tuple[int, ...]) -> A:
    return make(x, op, (x,), array_type(x.space, x.dtype, row), params)


def take_columns(x: A, indices: npt.NDArray[np.int64]) -> A:
    """The columns of a table that ``indices`` name, all in range."""
    return make(x, "take_columns", (x, indices), array_type(x.space, x.dtype, (len(indices),)))


def read_indices(indices: Any, length: int, axis: int) -> npt.NDArray[np.int64]:
    """Return indices as values; an implicit evaluation if the client does not know them."""
    return positions(read_small(indices), length, axis)


def read_small(array: Any) -> npt.NDArray[Any]:
    """The values of indices or of a mask, read by the client."""
    array = express(array, collect, array)
    array.session.evaluate_implicitly(array, "an index array")
    return np.asarray(array.node.value)


# --- reading ------------------------------------------------------------------------------------


def get_item(x: Arithmetic, key: Any) -> Any:
    """Return ``x[key]``; lazy. A mask gives a selection, which is not compacted yet."""
    if x.is_split_by_columns:
        return x[key]  # type: ignore[index]
    found = item_of_known(x, key)
    if found is not None:
        is_slice = found.ndim and not isinstance(key, Handle | np.ndarray)
        return x.session.readonly_slice(found) if is_slice else found
    if names_all(x, key):
        return x
    if is_one_truth(key):
        all_of_it = reshape(x, (1, *x.shape))
        return all_of_it if key else get_item(all_of_it, slice(0))
    parts = parts_of(x, key)
    result = _part_of(x, [part for part in parts if not isinstance(part, NewAxis)])
    if any(isinstance(part, NewAxis) for part in parts):
        result = reshape(result, _with_new_axes(result.shape, parts))
    is_basic = not any(isinstance(part, Take | Mask) for part in parts)
    return (
        x.session.readonly_slice(result) if is_basic and result.ndim and result is not x else result
    )


def parts_of(x: Arithmetic, key: Any) -> list[Part]:
    """Return the part of ``key`` for each axis; a mask on the client if ``x`` is there."""
    parts = parse(x.shape, _masks_as_they_are(x, key))
    if x.node.on_client or not parts:
        return parts
    first = parts[0]
    if isinstance(first, Mask) and isinstance(first.mask, Handle) and first.mask.node.on_client:
        parts[0] = Mask(x.session._put(first.mask))
    return parts


def is_one_truth(key: Any) -> bool:
    """Whether ``key`` is one truth value: of all elements, under a new axis, or of none."""
    if isinstance(key, Handle | np.ndarray):
        return key.ndim == 0 and key.dtype == np.bool_
    return isinstance(key, bool | np.bool_)


def _masks_as_they_are(x: Arithmetic, key: Any) -> Any:
    """``numpy.flatnonzero(mask)`` as index says what the mask does, without being computed."""
    if isinstance(key, Arithmetic) and key.selects:
        mask = key.mask  # type: ignore[attr-defined]
        if key.values.node.op == "iota" and mask.shape == x.shape[:1]:  # type: ignore[attr-defined]
            return mask
    return key


def _with_new_axes(shape: tuple[int, ...], parts: Sequence[Part]) -> tuple[int, ...]:
    arrays = [part for part in parts if isinstance(part, Take | Mask)]
    if len(arrays) > 1 or any(isinstance(part, Take) and len(part.shape) > 1 for part in arrays):
        raise NotImplementedError(
            "new axes beside several index arrays are not supported; index first, then x[:, None]"
        )
    extents = iter(shape)
    wanted: list[int] = []
    for part in parts:
        if isinstance(part, NewAxis):
            wanted.append(1)
        elif not isinstance(part, At):
            wanted.append(next(extents))
    return tuple(wanted)


def _part_of(x: Arithmetic, parts: list[Part]) -> Any:
    """What ``parts``, one for each axis, name."""
    if not parts or all(
        isinstance(part, Slice) and part.is_all(extent)
        for part, extent in zip(parts, x.shape, strict=False)
    ):
        return x
    if x.node.on_client:
        return index_on_host(x, tuple(map(as_numpy_key, parts)))
    if len(parts) == 1:
        return _rows(x, parts[0])
    if all(isinstance(part, Take) for part in parts) and not all(map(_is_known_here, parts)):
        return _pairs_on_servers(x, *(part.indices for part in parts))  # type: ignore[union-attr]
    rows: Any = parts[0]
    columns = _read_indices(parts[1], x, 1)
    if isinstance(rows, Take):
        rows = _read_indices(rows, x, 0)
    elif isinstance(rows, Mask) and not isinstance(columns, At | Slice):
        rows = Take(_places(x, rows))
    if isinstance(columns, At):
        return _rows(column(x, columns.index), rows)
    if isinstance(columns, Slice):
        return _rows(slice_columns(x, columns), rows)
    if columns.ndim > 1 and isinstance(rows, Slice | Mask):
        raise NotImplementedError("column indices must be a vector; arrays have at most 2 axes")
    if isinstance(rows, Slice):
        return _rows(take_columns(x, columns), rows)
    if isinstance(rows, At):
        return index_on_host(take_row(x, rows.index), (columns,))
    return _pairs(x, rows.indices, columns)


def _is_known_here(part: Part) -> bool:
    """Whether the client has the indices, or is to compute them."""
    indices = part.indices  # type: ignore[union-attr]
    return isinstance(indices, np.ndarray) or indices.node.on_client


def _places(x: Arithmetic, part: Mask) -> Any:
    """The indices of the rows that a mask names, as a vector on the servers."""
    mask: Any = part.mask if isinstance(part.mask, Handle) else x.session._put(part.mask)
    places: Any = np.flatnonzero(mask)
    return places.materialized()


def _read_indices(part: Part, x: Arithmetic, axis: int) -> Any:
    """A mask or index array that columns are named by, as indices on the client.

    Those on the servers come to it: they are no more than a row has.
    """
    if isinstance(part, Mask):
        mask = part.mask
        return np.flatnonzero(read_small(mask) if isinstance(mask, Handle) else mask)
    if not isinstance(part, Take):
        return part
    if isinstance(part.indices, np.ndarray):
        return part.indices if axis else part
    if axis or part.indices.node.on_client:
        found = read_indices(part.indices, x.shape[axis], axis)
        return found if axis else Take(found)
    return part


def _pairs_on_servers(x: Arithmetic, rows: Any, columns: Any) -> Any:
    """Single elements of a table, where indices of rows and columns on the servers name them."""
    places = flat_places(x, rows, columns)
    found = gather(reshape(x, (x.size,)), places)
    return reshape(found, np.broadcast_shapes(rows.shape, columns.shape))


def _pairs(x: Arithmetic, rows: Any, columns: Any) -> Any:
    """Single elements of a table: those where the indices of rows and columns name them."""
    check_together(rows.shape, columns.shape)
    if isinstance(rows, Handle):
        return _pairs_on_servers(x, rows, columns)
    first, second = np.broadcast_arrays(rows, columns)
    flat = first.ravel()
    if len(flat) > FEW:
        return _pairs_on_servers(x, rows, columns)
    found = take_rows(x, flat)
    chosen = index_on_host(found, (np.arange(len(flat)), second.ravel()))
    return reshape(chosen, first.shape)


def _rows(x: Arithmetic, part: Any) -> Any:
    """Rows of a table, elements of a vector."""
    if x.node.on_client:  # as a table without columns is
        return index_on_host(x, (as_numpy_key(part),))
    if isinstance(part, At):
        return take_row(x, part.index)
    if isinstance(part, Slice):
        return slice_rows(x, part)
    if isinstance(part, Mask):
        mask = part.mask if isinstance(part.mask, Handle) else x.session._put(part.mask)
        check_session(x.session, mask, "a mask")
        return x.session.select(x, mask)
    indices = part.indices
    if isinstance(indices, Arithmetic):
        check_session(x.session, indices, "indices")
        if not indices.node.on_client:
            flat = indices if indices.ndim == 1 else reshape(indices, (indices.size,))
            return _in_shape(gather(x, flat), indices.shape)
        indices = read_indices(indices, len(x), 0)
    found = take_rows(x, indices.ravel())
    return _in_shape(found, indices.shape)


def _in_shape(found: Any, shape: tuple[int, ...]) -> Any:
    """The rows that an index array of ``shape`` names, which came as those of a vector."""
    return found if len(shape) == 1 else reshape(found, shape + found.shape[1:])


def names_all(x: Handle, key: Any) -> bool:
    """Whether ``key`` names the array as it is."""
    if isinstance(key, tuple) and len(key) < 2:
        return not key or names_all(x, key[0])
    if key is Ellipsis:
        return True
    if not isinstance(key, slice) or x.ndim == 0:
        return False
    return all(one is None for one in (key.start, key.stop, key.step))  # some may be arrays
