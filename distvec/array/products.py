"""Products of vectors and tables: inner products, ``@``, and norms.

Products along the split axis 0 (``x @ y``, ``x @ T``, ``T.T @ U``) come to the client: a number, a
row, a small table. Products along the rows (``T @ v``, ``T @ S``) send a small operand to the
servers; the result stays there.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import Handle, check_session, express, host_array, make
from distvec.array.core.keywords import store
from distvec.array.core.on_client import product_of_known
from distvec.array.core.operators import (
    A,
    Arithmetic,
    Deferred,
    as_array,
    as_operand,
    elementwise,
    upload_beside,
)
from distvec.array.core.shapes import MOST_RANK, reshape
from distvec.array.indexing.pull_push import as_indices
from distvec.array.reductions import axis_of, count_nonzero, keep_axes, max, min, reduce_along
from distvec.array.transposed import (
    collected_transpose,
    exchanged_axes,
    supports_column_split,
    transpose,
    transpose_operand,
)
from distvec.graph import build
from distvec.graph.node import Graph, Node
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.types import array_type, client_type, summed

_FLOAT = np.dtype(np.float64)
_BOOL = np.dtype(np.bool_)


def dot(
    x: Arithmetic | npt.ArrayLike, y: Arithmetic | npt.ArrayLike, out: Arithmetic | None = None
) -> Any:
    """Compute the dot product of two arrays.

    Parameters
    ----------
    x, y : DistArray, array_like or number
        Operands; at least one is a DistArray. Beside a table, a small operand can be a NumPy array.
    out : DistArray, optional
        Array of the result's shape and dtype that receives the result.

    Returns
    -------
    DistArray
        Lazy inner product of two vectors, a scalar; otherwise ``x @ y``. A scalar operand
        multiplies each element.

    Raises
    ------
    ValueError
        If the shapes are not aligned, or ``out`` does not fit.
    TypeError
        If no operand is a DistArray, or an operand is a large array on the client.

    See Also
    --------
    distvec.matmul : The operator ``@``.
    numpy.dot : The same function of arrays on the client.

    Notes
    -----
    The inner product of two vectors takes one pass over memory, without a temporary array. Floats
    are accumulated in float64.

    Examples
    --------
    >>> x = ps.array([1.0, 2.0, 3.0])
    >>> dv.dot(x, x)
    DistArray(14.0, dtype=float64, shape=())
    """
    first, second = both(x, y, "dot")
    is_scaled = first.ndim == 0 or second.ndim == 0
    if is_scaled:
        result = elementwise(first, "multiply", first, second)
    else:
        result = _product(first, second, "dot")
    return store(out, result, "dot", "no")


def matmul(
    x: Arithmetic | npt.ArrayLike, y: Arithmetic | npt.ArrayLike, out: Arithmetic | None = None
) -> Any:
    """Multiply vectors and tables, ``x @ y``.

    Parameters
    ----------
    x, y : DistArray or array_like
        Vectors or tables; at least one is a DistArray. Beside a table, a small operand can be a
        NumPy array.
    out : DistArray, optional
        Array of the result's shape that receives the result.

    Returns
    -------
    DistArray
        Lazy product.

    Raises
    ------
    ValueError
        If an operand is a scalar, or the shapes are not aligned.
    TypeError
        If no operand is a DistArray, or an operand is a large array on the client.

    See Also
    --------
    numpy.matmul : The same function of arrays on the client.

    Notes
    -----
    A product along the split axis, such as ``T.T @ U``, is small and is stored on the client. A
    product along the rows, such as ``T @ v``, sends ``v`` to every server and stays there.

    Examples
    --------
    >>> T = ps.array([[1.0, 2.0], [3.0, 4.0]])
    >>> dv.matmul(T, np.array([1.0, 1.0]))
    DistArray([3., 7.], dtype=float64, shape=(2,))
    """
    return store(out, _matmul(x, y), "matmul", "same_kind")


def matmul_in_place(x: Any, y: Any) -> Any:
    """``x @= y``: the product, of the shape and in the dtype of ``x``, in its place."""
    if x.ndim == 0 or np.ndim(y) < 2:
        raise ValueError(
            "inplace matrix multiplication requires the first operand to have at least one and the "
            "second at least two dimensions; write x = x @ y"
        )
    with x.write_lock:
        result = x @ y
        if result.shape != x.shape:
            raise ValueError(
                f"@=: the product has shape {result.shape}, but the array has shape {x.shape}; "
                f"write x = x @ y"
            )
        return x.assign(result, "matmul")


def _matmul(x: Any, y: Any) -> Any:
    like = x if isinstance(x, Arithmetic) else y
    if isinstance(like, Arithmetic) and not like._defers and like.node.on_client:
        known = product_of_known(like, x, y)
        if known is not None:
            return known
    kind = type(x)
    if kind is type(y) and isinstance(x, Arithmetic) and not x._defers and x.session is y.session:
        session = x.session
        with session.holders.lock:  # inner products of aligned vectors come most often
            a, b = x.node, y.node
            type_ = a.type
            if type_ is b.type and a.dtype is _FLOAT and len(type_.shape) == 1 and not a.on_client:
                return x.like(session.graph.inner(a, b))
    if isinstance(x, np.ndarray) and x.ndim == 2 and isinstance(y, Arithmetic) and y.ndim == 1:
        x, y = y, x.T  # a column of it for each element
    x, y = both(x, y, "matmul")
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError("@ needs vectors or tables; multiply by a scalar with *")
    return _product(x, y, "matmul")


def matmul_operator(x: Any, y: Any) -> Any:
    """Return ``x @ y``, or NotImplemented if the class of ``y`` defines the product."""
    try:
        return _matmul(x, y)
    except Deferred:
        return NotImplemented


def matmul_reflected(x: Any, y: Any) -> Any:
    """``y @ x``."""
    return matmul(y, x)


def both(x: Any, y: Any, name: str) -> tuple[Any, Any]:
    """Return two arrays of one session. ``TypeError`` for an operand that cannot be sent along."""
    like = x if isinstance(x, Arithmetic) else y
    if not isinstance(like, Arithmetic):
        as_array(name, x)
    return as_factor(like, x, name), as_factor(like, y, name)


def as_factor(like: Arithmetic, operand: Any, name: str) -> Any:
    """``operand`` beside ``like``: an array of its session, or a small one of the client."""
    if isinstance(operand, Arithmetic):
        check_session(like.session, operand, name)
        return operand
    travels = like.ndim == 2 or name in ("outer", "einsum")
    if isinstance(operand, list | tuple) and travels:
        operand = np.asarray(operand)
    if isinstance(operand, np.ndarray) and operand.ndim and travels:
        return host_array(like, operand)
    if name == "matmul" and isinstance(operand, int | float | np.generic):
        raise ValueError("@ needs vectors or tables; multiply by a scalar with *")
    if name == "matmul" and not hasattr(operand, "__array_ufunc__"):
        raise TypeError(
            f"@ needs two arrays on the servers, got {type(operand).__name__}; "
            f"put it there with session.array(...)"
        )
    return as_operand(like, upload_beside(like, name, operand, rows=name == "matmul"), name)


def _product(x: A, y: A, name: str) -> A:
    """The product of arrays of rank 1 or 2."""
    x, y = x.aligned_operands(y)
    if x.is_split_by_columns or y.is_split_by_columns:
        return _product_of_columns(x, y, name)  # type: ignore[no-any-return]
    if x.shape[-1] != y.shape[0]:
        raise ValueError(f"{name}: shapes {x.shape} and {y.shape} not aligned")
    if x.ndim == y.ndim == 1 and not (x.node.on_client and y.node.on_client):
        return inner(x, y, _result(x, y))
    return express(x, _matrix_product, x, y, _result(x, y))


def _product_of_columns(x: Any, y: Any, name: str) -> Any:
    """The product where one is split by columns: that of the tables that servers have."""
    if x.shape[-1] != y.shape[0]:
        raise ValueError(f"{name}: shapes {x.shape} and {y.shape} not aligned")
    if x.is_split_by_columns and y.is_split_by_columns:
        return transpose(_product(y.table, x.table, name))
    if x.is_split_by_columns:
        return express(x, _gram_in, x.table, y, _result(x, y))
    if x.ndim == 1:
        return _product(y.table, x, name)
    if not x.node.on_client and x.size >= y.size:  # it keeps its rows
        return _product(x, collected_transpose(y.table), name)
    return transpose(_product(y.table, collected_transpose(x), name))


def _gram_in(graph: Graph, x: Node, y: Node, dtype: np.dtype[Any]) -> Node:
    """``gram`` in ``dtype``, also of a ``y`` that the client keeps."""
    x, y = build.cast(graph, x, dtype), build.cast(graph, y, dtype)
    return gram(graph, x, build.put_on_servers(graph, y, x.type.space) if y.on_client else y)


def _result(x: Arithmetic, y: Arithmetic) -> np.dtype[Any]:
    return x.dtype if x.dtype == y.dtype else np.result_type(x.dtype, y.dtype)


def _matrix_product(graph: Graph, x: Node, y: Node, dtype: np.dtype[Any]) -> Node:
    """Of two nodes, one of rank 2 at least, in ``dtype``."""
    x, y = build.cast(graph, x, dtype), build.cast(graph, y, dtype)
    shape = x.type.shape[:-1] + y.type.shape[1:]
    if 0 in shape:
        return graph.client_value(np.empty(shape, x.dtype), x.dtype)
    if not x.on_client and len(x.type.shape) == 2:
        small = build.collect(graph, y)
        type = array_type(x.type.space, x.dtype, shape[1:])
        return graph.make("matmul", (x, small), type)
    if x.on_client and y.on_client:
        return build.on_client(graph, "client.matmul", (x, y), client_type(x.dtype, shape))
    # Along the split axis of y.
    if x.on_client:
        x = build.transpose(graph, x)
        if not y.on_client:
            x = build.put_on_servers(graph, x, y.type.space)
    return _gram_in(graph, x, y, dtype)


def gram(graph: Graph, x: Node, y: Node) -> Node:
    """``x.T @ y`` of two arrays over one space, of rank 2 or one of them 1; the client gets it."""
    wide = REDUCERS["gram"].accumulators(x.dtype.name)[-1]
    product = graph.make("gram", (x, y), client_type(wide, x.type.row + y.type.row))
    return build.cast(graph, product, x.dtype)


def inner(x: A, y: A, result: np.dtype[Any]) -> A:
    """The sum of the products of two arrays of one shape, in ``result``."""
    if result == _BOOL:
        return reduce_along(elementwise(x, "logical_and", x, y), "any", None, _BOOL)
    wide = REDUCERS["sum"].wide(result)
    if x.node.on_client or y.node.on_client:
        product = elementwise(x, "multiply", x.astype(wide), y.astype(wide))
        return reduce_along(product, "sum", None, result)
    return express(x, _inner, x, y, wide, result)


def _inner(graph: Graph, x: Node, y: Node, wide: np.dtype[Any], result: np.dtype[Any]) -> Node:
    product = graph.inner(build.cast(graph, x, wide), build.cast(graph, y, wide))
    return build.cast(graph, product, result)


def vecdot(x: A, y: A, *, axis: int = -1) -> A:
    """Compute inner products along an axis.

    Parameters
    ----------
    x, y : DistArray
        Two vectors, or tables with one pair of rows (or columns) for each result; broadcast.
    axis : int, default -1
        Axis of the vectors.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy vector with one inner product for each row or column.

    Raises
    ------
    ValueError
        If an operand is a scalar, or the lengths along ``axis`` differ.

    See Also
    --------
    numpy.vecdot : The same function of arrays on the client.

    Examples
    --------
    >>> T = ps.array([[1.0, 2.0], [3.0, 4.0]])
    >>> dv.vecdot(T, T)
    DistArray([ 5., 25.], dtype=float64, shape=(2,))
    """
    x, y = both(x, y, "vecdot")
    if x.is_split_by_columns or y.is_split_by_columns:
        if x.ndim == y.ndim == 2:
            return vecdot(transpose_operand(x), transpose_operand(y), axis=exchanged_axes(axis))  # type: ignore[no-any-return]
        return _product(x, y, "vecdot") if x.ndim == 2 else _product(y, x, "vecdot")
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError("vecdot: both operands must have at least one dimension")
    over = axis_of(x if x.ndim >= y.ndim else y, "vecdot", operator.index(axis))
    axis_of(x, "vecdot", axis), axis_of(y, "vecdot", axis)
    if not (x.selects or y.selects) and x.shape[axis] != y.shape[axis]:
        raise ValueError(f"vecdot: shapes {x.shape} and {y.shape} differ along axis {axis}")
    if x.ndim == y.ndim == 1:
        return inner(x, y, _result(x, y)) if x.shape == y.shape else _product(x, y, "vecdot")
    on_servers = not (x.node.on_client or y.node.on_client)
    if x.shape == y.shape and over == 1 and on_servers:
        return _row_products(x, y)
    dtype = _result(x, y)
    return reduce_along(elementwise(x, "multiply", x, y), "sum", over, dtype)  # type: ignore[arg-type]


def _row_products(x: A, y: A) -> A:
    dtype = _result(x, y)
    wide = summed(dtype.name)
    products = make(x, "row_dot", (x.astype(wide), y.astype(wide)), array_type(x.space, wide))
    return products.astype(dtype)


@supports_column_split()
def vector_norm(x: A, ord: Any = None, axis: Any = None, *, keepdims: bool = False) -> A:
    """Vector norm: 2 by default, 1, 0 (number of non-zeros), inf, -inf, or any real p.

    Of a table: along ``axis``, or over all elements without one.
    Floats stay in their dtype (accumulated in float64), other dtypes give float64.
    """
    over = axis_of(x, "norm", axis)
    if x.ndim == 0:
        x, over = reshape(x, (1,)), None
    if isinstance(over, tuple):
        raise ValueError("norm: axis must not be empty; leave it out, or write axis=0")
    result = x.dtype if x.dtype.kind == "f" else _FLOAT
    adds_up = ord is None or (isinstance(ord, int | float) and ord >= 0)
    # Of selected rows those that are not would be there, if each has a result of its own.
    whole = x.fill_unselected(0) if adds_up and over != 1 else x
    return keep_axes(x, _norm(whole, ord, over, result), over, keepdims)


def _norm(x: A, ord: Any, axis: Any, result: np.dtype[Any]) -> A:
    wide = x.astype(_FLOAT)
    if ord is None or ord == 2:
        squares = inner(wide, wide, _FLOAT) if axis is None else _sum_of_squares(wide, axis)
        return elementwise(x, "sqrt", squares).astype(result)
    if ord == np.inf and (x.size if axis is None else x.shape[axis]) == 0:
        return reduce_along(wide, "sum", axis, result)
    if ord in (np.inf, -np.inf):
        extreme: A = (max if ord > 0 else min)(_magnitude(x.astype(result)), axis)
        return extreme
    if ord == 1:
        return reduce_along(_magnitude(wide), "sum", axis, result)
    if ord == 0:
        return count_nonzero(x, axis).astype(result)
    if not isinstance(ord, int | float):
        raise ValueError(f"norm: ord must be a number, inf or -inf, got {ord!r}")
    total = reduce_along(_magnitude(wide) ** float(ord), "sum", axis, _FLOAT)
    return (total ** (1.0 / ord)).astype(result)


def _sum_of_squares(x: A, axis: int) -> A:
    if axis == 1 and not x.node.on_client:
        return _row_products(x, x)
    return reduce_along(elementwise(x, "square", x), "sum", axis, _FLOAT)


def _magnitude(x: A) -> A:
    return elementwise(x, "abs", x)


def vdot(x: A, y: A) -> A:
    """Compute the inner product of all elements of two arrays.

    Parameters
    ----------
    x, y : DistArray or array_like
        Arrays of the same size. Beside a table, a small operand can be a NumPy array.

    Returns
    -------
    DistArray
        Lazy scalar.

    Raises
    ------
    ValueError
        If the sizes differ.

    See Also
    --------
    numpy.vdot : The same function of arrays on the client.

    Examples
    --------
    >>> T = ps.array([[1.0, 2.0], [3.0, 4.0]])
    >>> dv.vdot(T, T)
    DistArray(30.0, dtype=float64, shape=())
    """
    x, y = both(x, y, "vdot")
    if x.is_split_by_columns or y.is_split_by_columns:
        x, y = transpose_operand(x), transpose_operand(y)
    if x.size != y.size:
        raise ValueError(f"vdot: shapes {x.shape} and {y.shape} not aligned")
    if x.shape != y.shape:
        x, y = reshape(x, (x.size,)), reshape(y, (y.size,))
    return inner(x, y, _result(x, y)) if x.ndim else dot(x, y)


def inner_product(x: A, y: A) -> Any:
    """``numpy.inner``: sums of products along the last axes; lazy."""
    x, y = both(x, y, "inner")
    if x.ndim == 0 or y.ndim == 0:
        return elementwise(x, "multiply", x, y)
    return x @ (y.T if y.ndim == 2 else y)  # type: ignore[operator, attr-defined]


def outer(x: A, y: Any, /) -> A:
    """The products of each element of ``x`` with each of ``y``: a table of ``len(x)`` rows; lazy.

    ``y`` is small: it goes to every server.
    """
    x, y = both(x, y, "outer")
    column = reshape(x, (x.size, 1))
    return elementwise(column, "multiply", column, reshape(y, (1, y.size)))


def tensordot(x: A, y: A, /, axes: int | tuple[int | Sequence[int], int | Sequence[int]] = 2) -> A:
    """Sum products over chosen axes of two arrays.

    Parameters
    ----------
    x, y : DistArray or array_like
        Operands; at least one is a DistArray.
    axes : int or pair of int or sequence of int, default 2
        Number of axes to sum over: the last of ``x`` and the first of ``y``. A pair names the axes
        of each.

    Returns
    -------
    DistArray
        Lazy result, of rank 2 at most.

    Raises
    ------
    NotImplementedError
        If the result has more than two axes.

    See Also
    --------
    numpy.tensordot : The same function of arrays on the client.

    Examples
    --------
    >>> T = ps.array([[1.0, 2.0], [3.0, 4.0]])
    >>> dv.tensordot(T, T, axes=((0,), (0,)))
    DistArray([[10., 14.],
               [14., 20.]], dtype=float64, shape=(2, 2))
    """
    x, y = both(x, y, "tensordot")
    if isinstance(axes, int):
        pairs = list(range(x.ndim - axes, x.ndim)), list(range(axes))
    else:
        given = [list(np.atleast_1d(one)) for one in axes]
        pairs = [int(k) % x.ndim for k in given[0]], [int(k) % y.ndim for k in given[1]]
    summed = tuple(sorted(zip(*pairs, strict=True)))
    if not summed:
        if x.ndim + y.ndim > MOST_RANK:
            rank = x.ndim + y.ndim
            raise NotImplementedError(
                f"tensordot: the result would have {rank} axes, at most 2 are supported"
            )
        return outer(x, y) if x.ndim == y.ndim == 1 else elementwise(x, "multiply", x, y)
    if len(summed) == 2 or x.ndim == y.ndim == 1:
        return vdot(x, y)
    first: Any = x.T if summed[0][0] == 0 and x.ndim == 2 else x  # type: ignore[attr-defined]
    second: Any = y.T if summed[0][1] == 1 else y  # type: ignore[attr-defined]
    return first @ second  # type: ignore[no-any-return]


def row_dot(x: A, i: npt.ArrayLike, y: A, j: npt.ArrayLike) -> A:
    """Compute inner products of chosen rows of two tables.

    The result has ``x[i[t]] @ y[j[t]]`` for each ``t``, like ``numpy.vecdot(x[i], y[j])``.

    Parameters
    ----------
    x : DistArray
        Table of shape ``(n, k)``.
    i : array_like of int
        Vector of ``m`` row indices of ``x`` on the client; negative ones count from the end.
    y : DistArray
        Table with ``k`` columns, split like ``x``.
    j : array_like of int
        Vector of ``m`` row indices of ``y``.

    Returns
    -------
    DistArray
        Lazy vector of shape ``(m,)``.

    Raises
    ------
    TypeError
        If an operand is not a table, or one is split by rows and the other by columns.
    ValueError
        If the tables differ in the number of columns, or ``i`` and ``j`` in length.
    IndexError
        If an index is out of bounds.

    Notes
    -----
    One request per server. If both tables are split by columns, rows stay on their servers, and
    each server sends ``m`` partial sums. If both are split by rows, servers exchange the rows
    ``y[j]``. Results are bitwise identical for any number of servers.

    Examples
    --------
    >>> words = ps.array([[1.0, 2.0], [3.0, 4.0]])
    >>> contexts = ps.array([[1.0, 0.0], [0.0, 1.0]])
    >>> dv.row_dot(words, [0, 1, 1], contexts, [0, 0, 1])
    DistArray([1., 3., 4.], dtype=float64, shape=(3,))
    """
    for one in (x, y):
        if not isinstance(one, Handle) or one.ndim != 2:
            raise TypeError(
                f"row_dot: needs two tables on the servers, got {type(one).__name__}; "
                f"put it there with session.array(...)"
            )
    check_session(x.session, y, "row_dot")
    if x.is_split_by_columns is not y.is_split_by_columns:
        raise TypeError(
            "row_dot: one table is split by rows and the other by columns; create both in one space"
        )
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"row_dot: the tables must have the same number of columns, got {x.shape[1]} and "
            f"{y.shape[1]}"
        )
    rows, others = as_indices(i, len(x)), as_indices(j, len(y))
    if len(rows) != len(others):
        raise ValueError(
            f"row_dot: i and j must have the same length, got {len(rows)} and {len(others)}"
        )
    if not len(rows):
        return x.session._put(np.empty(0, np.result_type(x.dtype, y.dtype)))  # type: ignore[no-any-return]
    return np.vecdot(x[rows], y[others])  # type: ignore[index, no-any-return]
