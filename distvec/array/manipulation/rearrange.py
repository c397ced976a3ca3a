"""The same elements in another order or shape: flipped, rolled, transposed, cut, reshaped."""

from __future__ import annotations

import operator
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distvec.array.core import shapes
from distvec.array.core.handle import check_order
from distvec.array.core.operators import A
from distvec.array.indexing.getitem import FEW, get_item
from distvec.array.manipulation.join import MOST_INPUTS, column_stack, concatenate
from distvec.array.transposed import redistribute, transpose


def part(x: Any, axis: int, start: int | None, stop: int | None, step: int | None = None) -> Any:
    """``x[start:stop:step]`` along ``axis``; a view."""
    key = slice(start, stop, step)
    return get_item(x, (slice(None),) * axis + (key,))


def flip(m: Any, axis: Any = None) -> Any:
    """Reverse the elements along ``axis``, or along all axes: ``numpy.flip``. A view.

    Along axis 0 servers fetch elements that change servers, possibly all, if the view is used.
    """
    axes = range(m.ndim) if axis is None else normalize_axis_tuple(axis, m.ndim)
    backwards = slice(None, None, -1)
    if not axes:
        return m.copy()
    return get_item(m, tuple(backwards if k in axes else slice(None) for k in range(m.ndim)))


def fliplr(m: Any) -> Any:
    """Columns backwards; a view. ``ValueError`` below rank 2, as NumPy's."""
    if m.ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """Rows backwards; a view."""
    if m.ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """A table turned by ``k`` quarters, from the first of ``axes`` to the second; a view.

    By an odd number of quarters it is split by columns.
    """
    if m.ndim < 2:
        raise ValueError(f"Axes={axes} out of range for array of ndim={m.ndim}.")
    if len(axes) != m.ndim:
        raise ValueError("len(axes) must be 2.")
    if not all(-m.ndim <= axis < m.ndim for axis in axes):
        raise ValueError(f"Axes={axes} out of range for array of ndim={m.ndim}.")
    first, second = normalize_axis_tuple(axes, m.ndim)
    quarters = operator.index(k) * (1 if (first, second) == (0, 1) else -1) % 4
    if quarters % 2 == 0:
        return flip(m) if quarters else m.copy()
    return transpose(flip(m, 1 if quarters == 1 else 0))


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Every element ``shift`` places further along ``axis``, the last ones first: ``numpy.roll``.

    Lazy. Along axis 0 of arrays on the servers, ``shift`` rows cross each border of servers, in
    the sweep that uses them. Without an axis a table is rolled as the vector of its elements.
    """
    if axis is None:
        by = int(np.sum(np.asarray(shift)))
        return _rolled_flat(a, by) if a.ndim == 2 and a.size else _roll_axis(a, 0, by)
    axes = normalize_axis_tuple(axis, a.ndim, allow_duplicate=True)
    shifts, along = np.broadcast_arrays(np.asarray(shift), np.asarray(axes))
    if shifts.ndim > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    totals = [0] * a.ndim
    for by, one in zip(shifts.ravel().tolist(), along.ravel().tolist(), strict=True):
        totals[one] += int(by)
    for one, total in enumerate(totals):
        a = _roll_axis(a, one, total)
    return a


def _roll_axis(a: Any, axis: int, by: int) -> Any:
    length = a.shape[axis] if a.ndim else 1
    by = by % length if length else 0
    if not by:
        return a.copy()
    last, first = part(a, axis, length - by, None), part(a, axis, None, length - by)
    return concatenate((last, first), axis=axis)


def _rolled_flat(a: Any, by: int) -> Any:
    """A table rolled as a vector: some columns by so many rows, the others by one row more."""
    rows, columns = divmod(by % a.size, a.shape[1])
    if not columns:
        return _roll_axis(a, 0, rows)
    border = a.shape[1] - columns
    last = _roll_axis(part(a, 1, border, None), 0, rows + 1)
    first = _roll_axis(part(a, 1, None, border), 0, rows)
    return concatenate((last, first), axis=1)


# --- axes -----------------------------------------------------------------------------------------


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Move axes to other places; the others stay in order: ``numpy.moveaxis``. No data transfer."""
    given = normalize_axis_tuple(source, a.ndim, "source")
    wanted = normalize_axis_tuple(destination, a.ndim, "destination")
    if len(given) != len(wanted):
        raise ValueError(
            "`source` and `destination` arguments must have the same number of elements"
        )
    order = [axis for axis in range(a.ndim) if axis not in given]
    for place, axis in sorted(zip(wanted, given, strict=True)):
        order.insert(place, axis)
    return transpose(a, order)


def swapaxes(a: A, axis1: int, axis2: int) -> A:
    """Exchange two axes.

    Parameters
    ----------
    a : DistArray
        Input array.
    axis1, axis2 : int
        Axes to exchange.

    Returns
    -------
    DistArray
        The transpose if the axes differ, otherwise a copy; lazy, without data transfer.

    Raises
    ------
    AxisError
        If the array does not have an axis.

    See Also
    --------
    numpy.swapaxes : The same function of arrays on the client.

    Examples
    --------
    >>> ps.ones((3, 2)).swapaxes(0, 1).shape
    (2, 3)
    """
    return moveaxis(a, (axis1, axis2), (axis2, axis1)) if _differ(a, axis1, axis2) else a.copy()


def _differ(a: Any, axis1: int, axis2: int) -> bool:
    return normalize_axis_index(axis1, a.ndim) != normalize_axis_index(axis2, a.ndim)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Move ``axis`` before ``start``: ``numpy.rollaxis``. No data transfer."""
    along = normalize_axis_index(axis, a.ndim)
    before = start + a.ndim if start < 0 else start
    if not 0 <= before <= a.ndim:
        raise np.exceptions.AxisError(
            f"'start' arg requires {-a.ndim} <= start < {a.ndim + 1}, but {start} was passed in"
        )
    return moveaxis(a, along, before - 1 if along < before else before)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """``ary`` in so many pieces, the first ones longer by one, or cut before the indices."""
    along = normalize_axis_index(axis, ary.ndim)
    length = ary.shape[along]
    if np.ndim(indices_or_sections):
        cuts = [operator.index(one) for one in indices_or_sections]
        return [part(ary, along, low, high) for low, high in pairwise((0, *cuts, None))]
    count = int(indices_or_sections)
    if count <= 0:
        raise ValueError("number sections must be larger than 0.")
    size, longer = divmod(length, count)
    cuts = [k * size + min(k, longer) for k in range(count + 1)]
    return [part(ary, along, low, high) for low, high in pairwise(cuts)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split as ``array_split``, in pieces of one length; ``ValueError`` if that is impossible."""
    along = normalize_axis_index(axis, ary.ndim)
    if not np.ndim(indices_or_sections) and ary.shape[along] % int(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """A table cut between columns, a vector between elements."""
    if ary.ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, min(1, ary.ndim - 1))


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """A table cut between rows."""
    if ary.ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """``ValueError`` as NumPy's: there are no arrays of rank 3."""
    raise ValueError("dsplit only works on arrays of 3 or more dimensions")


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The columns of a table, ``axis=1``, as vectors; the rows, or elements, as lazy values that
    the client keeps, at most ``FEW``.
    """
    along = normalize_axis_index(axis, x.ndim)
    count = x.shape[along]
    if count > FEW:
        raise NotImplementedError(
            f"unstack: got {count} rows, at most {FEW} are supported; split the array into fewer "
            f"pieces with numpy.array_split"
        )
    return tuple(get_item(x, (slice(None),) * along + (k,)) for k in range(count))


def reshape(x: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """``x`` in ``shape``; lazy. ``order="F"``: columns are read, and written, one by one."""
    if x.is_split_by_columns:
        order = "F" if str(order).upper() in ("A", "K") else order  # as the elements are
        return reshape(ravel(x.table, "C" if _by_columns(order) else "F"), shape, order)
    if not _by_columns(order) or x.ndim + np.ndim(shape) == 0:
        return shapes.reshape(x, shape, copy=copy)
    extents = shapes.resolve_shape(x, shape)
    flat = ravel(x, "F")
    if flat.size != np.prod(extents, dtype=np.int64):
        raise ValueError(f"cannot reshape array of size {x.size} into shape {extents}")
    if len(extents) < 2:
        return shapes.reshape(flat, extents)
    rows, columns = extents
    if flat.node.on_client or rows < columns:
        return transpose(shapes.reshape(flat, (columns, rows)))
    return column_stack([get_item(flat, slice(k * rows, (k + 1) * rows)) for k in range(columns)])


def reshape_method(
    x: A,
    *shape: int | tuple[int, ...],
    order: Literal["C", "F", "A"] = "C",
    copy: bool | None = None,
) -> A:
    """Return the elements in another shape.

    Parameters
    ----------
    x : DistArray
        Input array.
    *shape : int or tuple of int
        Lengths of at most two axes, as separate arguments or as one tuple. A length of -1 is
        computed from the other.
    order : {"C", "F", "A"}, default "C"
        "C" reads and fills the elements row by row, "F" column by column. "A" means "F" for a
        table that is split by columns, otherwise "C".
    copy : bool, optional
        Accepted for compatibility with the array API; has no effect.

    Returns
    -------
    DistArray
        Lazy array in the new shape.

    Raises
    ------
    ValueError
        If the number of elements differs.
    NotImplementedError
        If the shape has more than two axes.

    See Also
    --------
    numpy.reshape : The same function of arrays on the client.

    Notes
    -----
    No data is transferred if rows stay whole, as from ``(n,)`` to ``(n, 1)``.

    Examples
    --------
    >>> ps.arange(4).reshape(2, -1)
    DistArray([[0, 1],
               [2, 3]], dtype=int64, shape=(2, 2))
    """
    return reshape(x, shape[0] if len(shape) == 1 else shape, order, copy=copy)  # type: ignore[no-any-return]


def ravel(a: A, order: Literal["C", "F", "A", "K"] = "C") -> A:
    """Return the elements as a vector.

    Parameters
    ----------
    a : DistArray
        Input array.
    order : {"C", "F", "A", "K"}, default "C"
        "C" reads the elements row by row, "F" column by column. "A" and "K" mean "F" for a table
        that is split by columns, otherwise "C".

    Returns
    -------
    DistArray
        Lazy vector.

    See Also
    --------
    numpy.ravel : The same function of arrays on the client.

    Examples
    --------
    >>> ps.array([[1, 2], [3, 4]]).ravel()
    DistArray([1, 2, 3, 4], dtype=int64, shape=(4,))
    """
    if a.is_split_by_columns:
        return reshape(a, -1, order)  # type: ignore[no-any-return]
    if a.ndim < 2 or not _by_columns(order):
        return shapes.reshape(a, (a.size,))
    if a.node.on_client:
        return shapes.reshape(transpose(a), (a.size,))  # type: ignore[no-any-return]
    if a.shape[1] > MOST_INPUTS:
        return shapes.reshape(redistribute(a), (a.size,))  # type: ignore[no-any-return]
    return concatenate([get_item(a, (slice(None), k)) for k in range(a.shape[1])])  # type: ignore[no-any-return]


def _by_columns(order: Any) -> bool:
    """Whether ``order`` is that of Fortran. "A" and "K" are as things are: row by row."""
    check_order(order)
    return str(order).upper() == "F"
