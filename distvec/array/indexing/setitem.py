"""``x[parts] = value``: another array, which differs from ``x`` there.

It is an expression like others: new values if a condition holds, otherwise the old ones. So
assignments are fused with later operations, and servers write in the memory of the old array if
it has no live reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import (
    Handle,
    check_not_slice,
    check_session,
    express,
    host_array,
    make,
)
from distvec.array.core.on_client import set_known
from distvec.array.core.operators import Arithmetic, elementwise
from distvec.array.core.shapes import broadcast_to, full, reshape, reshape_any
from distvec.array.indexing import compress, getitem
from distvec.array.indexing.getitem import is_one_truth, names_all, parts_of
from distvec.array.indexing.parse_key import At, Mask, NewAxis, Part, Slice, Take, positions
from distvec.graph import build
from distvec.graph.build import collect
from ps_backend.program.types import array_type, client_type

_MOST_PLACED = 1 << 18
"""So many values travel with the program that puts them at indices; more are put there first."""

Shape = tuple[int, ...]


def given_as(x: Arithmetic, value: Any) -> Any:
    """``value`` as an array of the session of ``x``, in its dtype; errors as NumPy's."""
    given = _number_or_array(x, value)
    return x.session._put(given) if isinstance(given, np.ndarray) else given


def _rank(value: Any) -> int:
    """``np.ndim``, which takes longer to find out whose array it is."""
    return value.ndim if isinstance(value, Handle) else np.ndim(value)


def _number_or_array(x: Arithmetic, value: Any) -> Any:
    """The same; what is an array of the client stays one."""
    if isinstance(value, Arithmetic):
        check_session(x.session, value, "item assignment")
        return value.astype(x.dtype)
    if np.ndim(value) == 0:
        return full(x, (), value, x.dtype)
    return np.asarray(value).astype(x.dtype)


def set_item(x: Arithmetic, key: Any, value: Any) -> None:
    """Set ``x[key] = value``, cast as in NumPy: the handle is rebound to another array.

    Lazy. Later operations on the new value are fused with the assignment.
    """
    check_not_slice(x)
    if set_known(x, key, value):
        return
    while _rank(value) > x.ndim and np.shape(value)[0] == 1:  # as NumPy, which leaves them out
        rest = np.shape(value)[1:]
        value = reshape_any(value, rest)
    if names_all(x, key):
        x.assign(given_as(x, value))
        return
    if is_one_truth(key):
        if key:
            has_new_axis = np.ndim(value) > x.ndim and np.shape(value)[0] == 1
            set_item(x, Ellipsis, value[0] if has_new_axis else value)
        return
    parts = parts_of(x, key)
    kept = [part for part in parts if not isinstance(part, NewAxis)]
    if len(kept) < len(parts) and np.ndim(value):
        raise NotImplementedError(
            "assignment through new axes supports only a number; leave out the new axes: x[1:3] = "
            "values"
        )
    is_element = all(isinstance(part, At) for part in kept)
    has_ellipsis = isinstance(key, tuple) and any(one is Ellipsis for one in key)
    if is_element and has_ellipsis and np.shape(value) == (1,):
        value = reshape_any(value, ())
    with x.write_lock:
        assign_parts(x, kept, value)


def assign_parts(x: Arithmetic, parts: Sequence[Part], value: Any) -> None:
    """Let ``x`` have ``value``, broadcast, at ``parts``, one an axis. Under its write lock."""
    new = _number_or_array(x, value)
    if x.ndim == 0:
        x.assign(new)
        return
    if x.node.on_client:
        _assign_on_client(x, parts, new)
        return
    taken = [part.indices for part in parts if isinstance(part, Take)]
    if len(taken) == 2:
        _assign_pairs(x, taken[0], taken[1], new)
        return
    rows, chosen = parts[0], _columns(x, parts)
    width: Shape = x.shape[1:] if chosen is None else chosen.shape
    if not isinstance(rows, Mask):
        new = _drop_unit_axes(new, (*_extents(rows), *width))
        is_row = not isinstance(rows, At) and new.ndim == len(width) == 1
    else:
        is_row = rows.mask.ndim == 1 and new.ndim == len(width) == 1
        if is_row and new.shape[0] not in (1, *width):
            raise ValueError(
                f"shape mismatch: values of shape {new.shape} do not fit rows of {width} elements"
            )
    if x.ndim > 1 and (is_row or isinstance(rows, At)):
        new = _keep_on_client(x, new)
    if chosen is not None and chosen.size and _replaces_a_part(x, parts, new):
        new, chosen = _between_columns(x, parts[0], parts[1], new), None
    if chosen is not None:
        if not chosen.size:
            return
        new = _fill_columns(
            x, new, chosen, len(_extents(rows)) if not isinstance(rows, Mask) else 1
        )
    changed = _with_rows(x, rows, new)
    if chosen is not None:
        mask = np.zeros(x.shape[1], np.bool_)
        mask[chosen] = True
        here = host_array(x, mask)
        changed = elementwise(x, "where", here, changed, x)
    x.assign(changed)


def _assign_pairs(x: Arithmetic, rows: Any, columns: Any, new: Any) -> None:
    """Single elements of a table: those of its elements as one vector."""
    shape = np.broadcast_shapes(rows.shape, columns.shape)
    new = _drop_unit_axes(new, shape)
    if new.ndim:
        new = (
            np.broadcast_to(new, shape) if isinstance(new, np.ndarray) else broadcast_to(new, shape)
        )
        new = reshape_any(new, (prod(shape),))
    elements = reshape(x, (x.size,))
    places = getitem.flat_places(x, rows, columns)
    x.assign(reshape(_put_rows(elements, places, new), x.shape))


# --- the values ---------------------------------------------------------------------------------


def _extents(rows: Part) -> Shape:
    if isinstance(rows, Take):
        return rows.shape
    return (rows.length,) if isinstance(rows, Slice) else ()


def _drop_unit_axes(new: Any, shape: Shape) -> Any:
    """``new`` without axes of length 1 that ``shape`` has not. ``ValueError`` if it fits not."""
    given = new.shape
    if given and not shape:
        raise ValueError("setting an array element with a sequence.")
    while len(given) > len(shape) and given[0] == 1:
        given = given[1:]
    try:
        fits = np.broadcast_shapes(given, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"could not broadcast input array from shape {new.shape} into shape {shape}"
        )
    return new if given == new.shape else reshape_any(new, given)


def _keep_on_client(x: Arithmetic, new: Any) -> Any:
    """One row of values, which the client keeps, since it is the same for many rows."""
    kept = isinstance(new, np.ndarray) or new.node.on_client
    return new if kept else express(x, collect, new)


def _columns(x: Arithmetic, parts: Sequence[Part]) -> npt.NDArray[np.int64] | None:
    """The columns that the second part names, an array of rank 0 for a single one; None: all."""
    if len(parts) < 2:
        return None
    rows, part = parts
    if isinstance(part, Slice):
        found = np.arange(x.shape[1])[part.key]
        return None if part.is_all(x.shape[1]) else found
    if isinstance(part, At):
        return np.array(part.index)
    if isinstance(rows, Take | Mask):
        raise NotImplementedError(
            "x[mask, columns] = values: assign column by column, x[mask, j], or to the places of "
            "the mask, x[numpy.flatnonzero(mask)[:, None], columns]"
        )
    found = getitem.as_numpy_key(part)
    if found.dtype == np.bool_:
        return np.flatnonzero(found)
    if found.ndim != 1:
        raise NotImplementedError("column indices must be a vector")
    return positions(found, x.shape[1], 1)


def _replaces_a_part(x: Arithmetic, parts: Sequence[Part], new: Any) -> bool:
    """Whether ``new`` is a table on the servers, and stands for rows and columns side by side."""
    if not isinstance(new, Arithmetic) or new.node.on_client:
        return False
    are_slices = all(isinstance(part, Slice) and part.step == 1 for part in parts)
    return are_slices and new.shape == tuple(part.length for part in parts)  # type: ignore[union-attr]


def _between_columns(x: Arithmetic, rows: Any, columns: Any, new: Any) -> Any:
    """``new`` between the columns of the same rows that stay as they are."""
    there, width = getitem.slice_rows(x, rows), x.shape[1]
    left = Slice(0, 1, columns.start)
    right = Slice(columns.end, 1, width - columns.end)
    some = [part for part in (left, right) if part.length]
    pieces: list[Any] = [getitem.slice_columns(there, part) for part in some]
    pieces.insert(1 if left.length else 0, new)
    joined = pieces[0]
    for one in pieces[1:]:
        type = array_type(joined.space, x.dtype, (joined.shape[1] + one.shape[1],))
        joined = make(x, "join_columns", (joined, one), type)
    return joined


def _fill_columns(x: Arithmetic, new: Any, chosen: npt.NDArray[np.int64], axes: int) -> Any:
    """Values for the ``chosen`` columns as such for all: whatever stands in the others.

    ``axes``: how many there are of rows.
    """
    if new.ndim == 0:
        return new
    if chosen.ndim == 0:  # one value a row
        return reshape_any(new, (*new.shape, 1)) if new.ndim == axes else new
    if new.shape[-1] == 1:
        return new
    source = np.zeros(x.shape[1], np.int64)
    source[chosen] = np.arange(len(chosen))
    if isinstance(new, np.ndarray):
        return new[..., source]
    if new.node.on_client:
        return getitem.index_on_host(new, (Ellipsis, source))
    return getitem.take_columns(new, source)


# --- rows ---------------------------------------------------------------------------------------


def _with_rows(x: Arithmetic, rows: Part, new: Any) -> Any:
    """``x`` with ``new``, numbers or rows, at ``rows``."""
    if isinstance(rows, Mask):
        return _where(x, rows, new)
    if isinstance(rows, Take):
        return _put_rows(x, rows.indices, new)
    span = Slice(rows.index, 1, 1) if isinstance(rows, At) else rows
    assert isinstance(span, Slice)
    if not span.length:
        return x
    if new.ndim == x.ndim and len(new) == 1:
        new = reshape_any(new, new.shape[1:])
    if new.ndim == x.ndim:
        is_few = isinstance(new, np.ndarray) and new.size <= _MOST_PLACED
        if (is_few or new.node.on_client) and not span.is_all(len(x)):
            return _put_rows(x, np.arange(len(x))[span.key], new)
        new = getitem.spread_rows(
            broadcast_to(_on_servers(x, new), (span.length, *x.shape[1:])), span, x
        )
    if span.is_all(len(x)):
        return broadcast_to(_operand(x, new), x.shape)
    return elementwise(x, "where", _as_column(x, getitem.is_inside(x, span)), _operand(x, new), x)


def _as_column(x: Arithmetic, condition: Any) -> Any:
    return reshape(condition, (len(x), 1)) if x.ndim > condition.ndim else condition


def _operand(x: Arithmetic, new: Any) -> Any:
    """A row of the client as an operand that travels with the program."""
    return new if isinstance(new, Handle) else host_array(x, new)


def _on_servers(x: Arithmetic, new: Any) -> Any:
    if isinstance(new, np.ndarray) or new.node.on_client:
        return x.session._put(new if isinstance(new, np.ndarray) else new.numpy())
    return new


def _where(x: Arithmetic, rows: Mask, new: Any) -> Any:
    mask: Any = rows.mask if isinstance(rows.mask, Handle) else x.session._put(rows.mask)
    check_session(x.session, mask, "a mask")
    is_flat = mask.ndim == x.ndim
    if isinstance(new, Arithmetic) and new.selects:
        if new.mask.node is mask.node:  # type: ignore[attr-defined]
            return elementwise(x, "where", _as_column(x, mask), new.values, x)  # type: ignore[attr-defined]
        new = new.like(new.node)
    rank = 1 if is_flat else x.ndim
    while new.ndim > rank and len(new) == 1:
        new = reshape_any(new, new.shape[1:])
    if new.ndim > rank:
        raise ValueError(
            f"shape mismatch: values of shape {new.shape} do not fit the selected elements"
        )
    if new.ndim == rank and len(new) != 1:
        row = () if is_flat else x.shape[1:]
        values = broadcast_to(_on_servers(x, new), (len(new), *row))
        return compress.put_where(x, mask, values)
    if new.ndim == rank:
        new = reshape_any(new, new.shape[1:])
    return elementwise(x, "where", _as_column(x, mask), _operand(x, new), x)


def _put_rows(x: Arithmetic, indices: Any, new: Any) -> Any:
    """``x`` with ``new`` at ``indices``; of repeated ones the last stays."""
    if not indices.size:
        return x
    if isinstance(indices, Arithmetic) and indices.node.on_client:
        indices = getitem.read_indices(indices, len(x), 0)
    if isinstance(indices, Arithmetic):
        return x.session.scatter(x, indices, new)
    if indices.size > _MOST_PLACED:
        return x.session.scatter(x, x.session._put(indices), new)
    shape, flat = (*indices.shape, *x.shape[1:]), (indices.size, *x.shape[1:])
    if isinstance(new, np.ndarray):
        new = np.ascontiguousarray(np.broadcast_to(new, shape)).reshape(flat)
    elif new.ndim:
        wide = express(x, build.broadcast_to, new, client_type(x.dtype, shape))
        new = express(x, build.reshape, wide, flat)
    return make(x, "place", (x, indices.ravel(), new), x.node.type)


# --- arrays that are stored on the client -------------------------------------------------------


def _assign_on_client(x: Arithmetic, parts: Sequence[Part], new: Any) -> None:
    key = tuple([getitem.encode_key(getitem.as_numpy_key(part)) for part in parts])
    values = express(x, collect, _operand(x, new))
    x.assign(make(x, "client.put", (x, values), x.node.type, key))
