"""Every element of one array with every one of another: grids, products of Kronecker, ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import host_array
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import broadcast_to, full, on_servers, reshape
from distvec.array.elementwise import apply
from distvec.array.indexing.getitem import get_item
from distvec.array.manipulation.join import MOST_INPUTS, as_joinable, block, concatenate
from distvec.array.manipulation.repeat import MOST_COLUMNS, take_along_columns
from distvec.array.transposed import transpose


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Return the coordinates of a grid of two vectors as tables: ``numpy.meshgrid``. Lazy.

    Rows lie along the shorter vector. If ``indexing`` asks for the other order, the tables are
    split by columns. The shorter vector goes to every server.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    given = [one.reshape(-1) for one in as_joinable("meshgrid", xi)]
    if len(given) > 2:
        raise NotImplementedError(f"meshgrid: got {len(given)} vectors, at most 2 are supported")
    if len(given) == 1:
        return (given[0].copy(),)
    down, across = (given[1], given[0]) if indexing == "xy" else (given[0], given[1])
    tables = _grid(down, across, sparse)
    return tables[::-1] if indexing == "xy" else tables


def _grid(down: Any, across: Any, sparse: bool) -> tuple[Any, Any]:
    """The coordinates along axis 0 and those along axis 1."""
    if _is_long(across) and len(across) > len(down):
        along, row = _grid(across, down, sparse)
        return transpose(row), transpose(along)
    like = down if isinstance(down, Arithmetic) else across
    column = _ours(like, down.reshape(-1, 1))
    row = _ours(like, across.reshape(1, -1))
    if sparse:
        return column, row
    shape = (len(down), across.size)
    if not (column.node.on_client and row.node.on_client):
        column = on_servers(column)
    return broadcast_to(column, shape), broadcast_to(row, shape)


def _is_long(x: Any) -> bool:
    return not _is_kept(x) and len(x) > MOST_COLUMNS


def _ours(like: Arithmetic, x: Any) -> Any:
    return x if isinstance(x, Arithmetic) else host_array(like, x)


def outer(
    x: Arithmetic | npt.ArrayLike,
    y: Arithmetic | npt.ArrayLike,
    /,
    *,
    function: Callable[..., Any] = np.multiply,
) -> Any:
    """Apply a function to each pair of an element of ``x`` and an element of ``y``.

    Parameters
    ----------
    x : DistArray or array_like
        First operand of ``n`` elements; it gives the rows.
    y : DistArray or array_like
        Second operand of ``m`` elements; it gives the columns. One of both is a DistArray.
    function : callable, default numpy.multiply
        Elementwise function of two arrays.

    Returns
    -------
    DistArray
        Lazy table of shape ``(n, m)``.

    See Also
    --------
    numpy.outer : The same function of arrays on the client.

    Notes
    -----
    The shorter operand goes to every server. If that is ``x``, the table is split by columns.

    Examples
    --------
    >>> dv.outer(ps.array([1.0, 2.0]), [1.0, 10.0])
    DistArray([[ 1., 10.],
               [ 2., 20.]], dtype=float64, shape=(2, 2))
    """
    first, second = (one.reshape(-1) for one in as_joinable("outer", (x, y)))
    is_short = _is_kept(first) and not _is_kept(second)
    if is_short or (_is_long(second) and len(second) > len(first)):
        return transpose(function(first.reshape(1, -1), second.reshape(-1, 1)))
    return function(first.reshape(-1, 1), second.reshape(1, -1))


def _is_kept(x: Any) -> bool:
    return not isinstance(x, Arithmetic) or x.node.on_client


def kron(a: Any, b: Any) -> Any:
    """Return the Kronecker product of vectors and tables: ``numpy.kron``. Lazy.

    One operand is small. If it is ``b``, two requests: a table with the products of each row of
    ``a``, then a view of it. If it is ``a``, of a few elements, one.
    """
    first, second = as_joinable("kron", (a, b))
    if first.ndim == 0 or second.ndim == 0:
        return apply("multiply", first, second)
    like = first if isinstance(first, Arithmetic) else second
    first, second = (_ours(like, x) for x in (first, second))
    rank = max(first.ndim, second.ndim)
    if not first.size * second.size:
        empty = np.kron(*(np.empty(x.shape, x.dtype) for x in (first, second)))
        return full(like, empty.shape, 0, empty.dtype)
    shapes = [(1,) * (rank - x.ndim) + x.shape for x in (first, second)]
    if rank == 1:
        first, second = (x.reshape(-1, 1) for x in (first, second))
    else:
        first, second = (x.reshape(shape) for x, shape in zip((first, second), shapes, strict=True))
    result = _kron(first, second)
    return result.reshape(-1) if rank == 1 else result


def _kron(first: Any, second: Any) -> Any:
    """Of tables."""
    (m, n), (p, q) = first.shape, second.shape
    kept = _is_kept(first) and _is_kept(second)
    if not kept and first.size <= MOST_INPUTS:
        return _blocks(first, second)
    if not kept and second.size * n > MOST_COLUMNS:
        raise NotImplementedError(
            f"kron: one operand must be small, got shapes {first.shape} and {second.shape}; use "
            f"numpy.repeat and numpy.tile"
        )
    down, column, across = np.indices((p, n, q)).reshape(3, -1)
    row = take_along_columns(second.reshape(1, -1), 1, down * q + across)
    table = first if kept else on_servers(first)
    wide = apply("multiply", take_along_columns(table, 1, column), row)
    return wide.reshape(m * p, n * q)


def _blocks(first: Any, second: Any) -> Any:
    rows = range(first.shape[0])
    factors = [[get_item(first, (i, j)) for j in range(first.shape[1])] for i in rows]
    return block([[apply("multiply", factor, second) for factor in row] for row in factors])


def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    """Return vector products of rows of three elements: ``numpy.cross``. Lazy, no data transfer."""
    first, second = as_joinable("cross", (a, b))
    axes = (axis,) * 3 if axis is not None else (axisa, axisb, axisc)
    ranks = (first.ndim, second.ndim, max(first.ndim, second.ndim))
    if any(one not in (-1, rank - 1) for one, rank in zip(axes, ranks, strict=True)):
        raise NotImplementedError(
            "cross: vectors must lie along axis -1; for vectors in columns give x.T"
        )
    if first.shape[-1:] != (3,) or second.shape[-1:] != (3,):
        raise ValueError("incompatible dimensions for cross product\n(dimension must be 3)")

    columns = []
    for k in range(3):
        one, other = (k + 1) % 3, (k + 2) % 3
        ahead = apply("multiply", _take_element(first, one), _take_element(second, other))
        behind = apply("multiply", _take_element(first, other), _take_element(second, one))
        columns.append(apply("subtract", ahead, behind))
    return np.stack(columns) if columns[0].ndim == 0 else concatenate(columns, axis=1)


def _take_element(x: Any, k: int) -> Any:
    """One element of each vector: a number, or a column."""
    return x[k] if x.ndim == 1 else x[:, k : k + 1]


# --- ranks ----------------------------------------------------------------------------------------


def atleast_1d(*arys: Any) -> Any:
    """Each array, a number as a vector of one element; one of the client stays there."""
    pieces = as_joinable("atleast_1d", arys)
    found = [
        x if x.ndim else reshape(x, (1,)) if isinstance(x, Arithmetic) else x.reshape(1)
        for x in pieces
    ]
    return found[0] if len(found) == 1 else tuple(found)


def atleast_2d(*arys: Any) -> Any:
    """Each array, a vector as a table of one row; on the servers that is split by columns."""
    found = [_at_least_2d(x) for x in as_joinable("atleast_2d", arys)]
    return found[0] if len(found) == 1 else tuple(found)


def _at_least_2d(x: Any) -> Any:
    if x.ndim == 2:
        return x
    if x.ndim == 0 or not isinstance(x, Arithmetic) or x.node.on_client:
        return x.reshape(1, -1)
    return transpose(reshape(x, (-1, 1)))
