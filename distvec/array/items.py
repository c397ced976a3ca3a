"""``x[key]`` and ``x[key] = value``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distvec.array import pieces
from distvec.array.assignment import assign_parts, given_as
from distvec.array.creation import reshape
from distvec.array.handle import Handle, check_session, refuse_window
from distvec.array.keys import At, Mask, NewAxis, Part, Slice, Take, check_together, parse
from distvec.array.operators import Arithmetic

# --- reading ------------------------------------------------------------------------------------


def get_item(x: Arithmetic, key: Any) -> Any:
    """``x[key]``; lazy. Of a mask a selection, whose elements are not made."""
    if _is_all(x, key):
        return x
    if _is_one_truth(key):
        all_of_it = reshape(x, (1, *x.shape))
        return all_of_it if key else get_item(all_of_it, slice(0))
    parts = _parts(x, key)
    result = _part_of(x, [part for part in parts if not isinstance(part, NewAxis)])
    if any(isinstance(part, NewAxis) for part in parts):
        result = reshape(result, _with_new_axes(result.shape, parts))
    is_basic = not any(isinstance(part, Take | Mask) for part in parts)
    return x.session.window(result) if is_basic and result.ndim and result is not x else result


def _parts(x: Arithmetic, key: Any) -> list[Part]:
    """What ``key`` names, for each axis; a mask that the client keeps where ``x`` is."""
    parts = parse(x.shape, _masks_as_they_are(x, key))
    if x.node.on_client or not parts:
        return parts
    first = parts[0]
    if isinstance(first, Mask) and isinstance(first.mask, Handle) and first.mask.node.on_client:
        parts[0] = Mask(x.session.array(first.mask))
    return parts


def _is_one_truth(key: Any) -> bool:
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
        return pieces.on_the_client(x, tuple(map(pieces.plain, parts)))
    if len(parts) == 1:
        return _rows(x, parts[0])
    if all(isinstance(part, Take) for part in parts) and not all(map(_is_known_here, parts)):
        return _pairs_on_servers(x, *(part.indices for part in parts))  # type: ignore[union-attr]
    rows: Any = parts[0]
    columns = _read(parts[1], x, 1)
    if isinstance(rows, Take):
        rows = _read(rows, x, 0)
    elif isinstance(rows, Mask) and not isinstance(columns, At | Slice):
        rows = Take(_places(x, rows))
    if isinstance(columns, At):
        return _rows(pieces.column(x, columns.index), rows)
    if isinstance(columns, Slice):
        return _rows(pieces.columns(x, columns), rows)
    if columns.ndim > 1 and isinstance(rows, Slice | Mask):
        raise NotImplementedError("columns are named by a vector of indices; rank is 2 at most")
    if isinstance(rows, Slice):
        return _rows(pieces.columns_at(x, columns), rows)
    if isinstance(rows, At):
        return pieces.on_the_client(pieces.row_at(x, rows.index), (columns,))
    return _pairs(x, rows.indices, columns)


def _is_known_here(part: Part) -> bool:
    """Whether the client has the indices, or is to compute them."""
    indices = part.indices  # type: ignore[union-attr]
    return isinstance(indices, np.ndarray) or indices.node.on_client


def _places(x: Arithmetic, part: Mask) -> Any:
    """The indices of the rows that a mask names, as a vector on the servers."""
    mask: Any = part.mask if isinstance(part.mask, Handle) else x.session.array(part.mask)
    places: Any = np.flatnonzero(mask)
    return places.made()


def _read(part: Part, x: Arithmetic, axis: int) -> Any:
    """A mask or index array that columns are named by, as indices on the client.

    Those on the servers come to it: they are no more than a row has.
    """
    if isinstance(part, Mask):
        mask = part.mask
        return np.flatnonzero(pieces.known(mask) if isinstance(mask, Handle) else mask)
    if not isinstance(part, Take):
        return part
    if isinstance(part.indices, np.ndarray):
        return part.indices if axis else part
    if axis or part.indices.node.on_client:
        found = pieces.known_indices(part.indices, x.shape[axis], axis)
        return found if axis else Take(found)
    return part


def _pairs_on_servers(x: Arithmetic, rows: Any, columns: Any) -> Any:
    """Single elements of a table, where indices of rows and columns on the servers name them."""
    places = pieces.places_of_pairs(x, rows, columns)
    found = pieces.gathered(reshape(x, (x.size,)), places)
    return reshape(found, np.broadcast_shapes(rows.shape, columns.shape))


def _pairs(x: Arithmetic, rows: Any, columns: Any) -> Any:
    """Single elements of a table: those where the indices of rows and columns name them."""
    check_together(rows.shape, columns.shape)
    if isinstance(rows, Handle):
        return _pairs_on_servers(x, rows, columns)
    first, second = np.broadcast_arrays(rows, columns)
    flat = first.ravel()
    if len(flat) > pieces.FEW:
        return _pairs_on_servers(x, rows, columns)
    found = pieces.rows_at(x, flat)
    chosen = pieces.on_the_client(found, (np.arange(len(flat)), second.ravel()))
    return reshape(chosen, first.shape)


def _rows(x: Arithmetic, part: Any) -> Any:
    """Rows of a table, elements of a vector."""
    if x.node.on_client:  # as a table without columns is
        return pieces.on_the_client(x, (pieces.plain(part),))
    if isinstance(part, At):
        return pieces.row_at(x, part.index)
    if isinstance(part, Slice):
        return pieces.sliced(x, part)
    if isinstance(part, Mask):
        mask = part.mask if isinstance(part.mask, Handle) else x.session.array(part.mask)
        check_session(x.session, mask, "a mask")
        return x.session.select(x, mask)
    indices = part.indices
    if isinstance(indices, Arithmetic):
        check_session(x.session, indices, "indices")
        if not indices.node.on_client:
            flat = indices if indices.ndim == 1 else reshape(indices, (indices.size,))
            return _in_shape(pieces.gathered(x, flat), indices.shape)
        indices = pieces.known_indices(indices, len(x), 0)
    found = pieces.rows_at(x, indices.ravel())
    return _in_shape(found, indices.shape)


def _in_shape(found: Any, shape: tuple[int, ...]) -> Any:
    """The rows that an index array of ``shape`` names, which came as those of a vector."""
    return found if len(shape) == 1 else reshape(found, shape + found.shape[1:])


def _is_all(x: Handle, key: Any) -> bool:
    """Whether ``key`` names the array as it is."""
    if isinstance(key, tuple) and len(key) < 2:
        return not key or _is_all(x, key[0])
    if key is Ellipsis:
        return True
    if not isinstance(key, slice) or x.ndim == 0:
        return False
    return all(one is None for one in (key.start, key.stop, key.step))  # some may be arrays


# --- writing ------------------------------------------------------------------------------------


def set_item(x: Arithmetic, key: Any, value: Any) -> None:
    """``x[key] = value``, cast as it must, as in NumPy: the handle stands for another array.

    Lazy. What is computed with the new value next is fused with the assignment.
    """
    refuse_window(x)
    while np.ndim(value) > x.ndim and np.shape(value)[0] == 1:  # as NumPy, which leaves them out
        rest = np.shape(value)[1:]
        value = reshape(value, rest) if isinstance(value, Handle) else np.reshape(value, rest)
    if _is_all(x, key):
        x.assign(given_as(x, value))
        return
    if _is_one_truth(key):
        if key:
            has_new_axis = np.ndim(value) > x.ndim and np.shape(value)[0] == 1
            set_item(x, Ellipsis, value[0] if has_new_axis else value)
        return
    parts = _parts(x, key)
    kept = [part for part in parts if not isinstance(part, NewAxis)]
    if len(kept) < len(parts) and np.ndim(value):
        raise NotImplementedError(
            "assignment through new axes takes a number; leave the new axes out: x[1:3] = values"
        )
    is_element = all(isinstance(part, At) for part in kept)
    has_ellipsis = isinstance(key, tuple) and any(one is Ellipsis for one in key)
    if is_element and has_ellipsis and np.shape(value) == (1,):
        value = reshape(value, ()) if isinstance(value, Handle) else np.reshape(value, ())
    with x.turn:
        assign_parts(x, kept, value)
