"""Linear algebra: decompositions of tall tables on the servers, norms, and of small arrays.

``T = Q @ R``, with R of shape ``(k, k)`` on the client, and Q a table on the servers. R alone is a
reduction: one request per server, in the pass over memory that computes the table. With Q it
takes two. The diagonal of R has no negative number, so for a table of full rank both factors are
unique. Singular values, and functions of them, are computed from R. Least squares use the triangle
of the table beside its right-hand sides.

The client computes NumPy's functions of small arrays, lazily: ``np.linalg.solve(X.T @ X, X.T @ y)``
sends no request by itself; its evaluation takes one per server, for both products.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distvec.array import elementwise, products, reductions
from distvec.array.collectives.core import collective
from distvec.array.core.conversion import item, numpy
from distvec.array.core.handle import (
    check_session,
    express,
    host_array,
    is_split_by_columns,
    make,
    stored_table,
)
from distvec.array.core.keywords import NOT_GIVEN
from distvec.array.core.operators import A, Arithmetic
from distvec.array.core.shapes import reshape
from distvec.array.elementwise import evaluate
from distvec.array.manipulation.join import column_stack, row_index
from distvec.array.transposed import transpose
from distvec.graph import build, host_eval
from distvec.graph.build import check_dtype
from distvec.graph.host_eval import MOST_ELEMENTS
from ps_backend.program.collectives import TSQR
from ps_backend.program.types import client_type

_ARRAYS = 2
"""At most so many arguments of these functions are arrays: the first ones."""


def on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, one of ``host_eval.LINEAR_ALGEBRA``, of arrays that the client keeps; lazy.

    What servers have comes to the client with the next answer, if it is small. Errors of shapes and
    dtypes are NumPy's, at once; others, as ``LinAlgError`` of a singular matrix, show where the
    values are computed.
    """
    parameters = list(inspect.signature(function).parameters)

    def lazily(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(parameters, args, strict=False)) | kwargs
        arrays = [
            given.pop(name)
            for place, name in enumerate(parameters[:_ARRAYS])
            if place == 0 or _is_array(given.get(name))
        ]
        return apply_on_host(function, arrays, **given)

    return lazily


def _is_array(value: Any) -> bool:
    if isinstance(value, list):
        return True
    return isinstance(value, Arithmetic | np.ndarray) and value.ndim > 0


def apply_on_host(function: Callable[..., Any], arrays: Sequence[Any], **keywords: Any) -> Any:
    """``function`` of ``arrays``, one of the session at least; several results in NumPy's tuple."""
    like = session_array(arrays)
    fixed = tuple(sorted((name, _plain(value)) for name, value in keywords.items()))
    given = [np.asarray(one) if isinstance(one, list) else one for one in arrays]
    found = host_eval.result_shapes(function, [(one.shape, one.dtype) for one in given], fixed)
    operands = [collected_on_host(like, array, function.__name__) for array in given]
    params = host_eval.function_name(function), fixed
    if not isinstance(found, tuple):
        type = client_type(check_dtype(found.dtype), found.shape)
        return make(like, "client.linalg", operands, type, params)
    type = client_type(check_dtype(found[0].dtype), (sum(one.size for one in found),))
    packed = make(like, "client.linalg", operands, type, params)
    return host_eval.tuple_like(found, _unpack(packed, found))


def _unpack(packed: Any, found: Sequence[Any]) -> list[Any]:
    """The results, of the shapes of ``found``, whose elements ``packed`` has after each other."""
    parts, start = [], 0
    for one in found:
        type, place = client_type(packed.dtype, one.shape), (start, *one.shape)
        parts.append(make(packed, "client.part", (packed,), type, place))
        start += one.size
    return parts


def session_array(arrays: Sequence[Any]) -> Any:
    """The first array of a session among ``arrays``."""
    return next(array for array in arrays if isinstance(array, Arithmetic))


def _plain(value: Any) -> Any:
    """A keyword's value, as a node remembers it: a lazy number is computed."""
    if isinstance(value, Arithmetic):
        return item(value)
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def collected_on_host(like: Any, array: Any, name: str) -> Any:
    """An argument of the function ``name`` as an array that the client keeps; lazy.

    ``NotImplementedError`` for what is too long to come to the client.
    """
    if isinstance(array, Arithmetic):
        _check_size(array, name)
    if is_split_by_columns(array):
        return transpose(collected_on_host(like, array.table, name))
    if not isinstance(array, Arithmetic):
        return host_array(like, array)
    check_session(like.session, array, name)
    return express(like, build.collect, array)


def _check_size(array: Any, name: str) -> None:
    if array.size <= MOST_ELEMENTS or stored_table(array).node.on_client:
        return
    hint = "pull the values with x.numpy() and call it on those"
    if array.ndim == 2 and array.shape[0] != array.shape[1]:
        split = "rows" if array.is_split_by_columns else "columns"
        hint = (
            f"tables that are split along their longer side are treated where they are: put it "
            f"there with session.space({len(array)}, split={split!r}).array(...)"
        )
    raise NotImplementedError(
        f"{name}: runs on the client, which accepts at most {MOST_ELEMENTS} elements; the "
        f"array has shape {array.shape}; {hint}"
    )


_FLOAT, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)
QRResult: Any = type(np.linalg.qr(np.eye(1)))
SVDResult: Any = type(np.linalg.svd(np.eye(1)))


def is_tall(x: Any) -> bool:
    """Whether servers have ``x``, a table of at least as many rows as columns, split by rows."""
    if not isinstance(x, Arithmetic) or x.ndim < 2 or x.is_split_by_columns or x.node.on_client:
        return False
    return x.shape[0] >= x.shape[1]


def is_wide(x: Any) -> bool:
    """Whether ``x`` is the transpose of a tall table: split by columns."""
    return is_split_by_columns(x) and is_tall(x.table)


def as_float_table(x: Any, name: str) -> Any:
    """A tall table as it is decomposed: float32, or float64.

    ``TypeError`` for float16, which NumPy's linear algebra does not take either,
    ``NotImplementedError`` for a triangle that is too large for the client.
    """
    k = x.shape[1]
    if k * k > MOST_ELEMENTS:
        raise NotImplementedError(
            f"{name}: a table of {k} columns needs {k * k} elements on the client, which accepts "
            f"at most {MOST_ELEMENTS}; use fewer columns, as in x[:, :2048]"
        )
    if x.dtype == np.float16:
        raise TypeError("array type float16 is unsupported in linalg; write x.astype('float32')")
    x = x.materialized()
    return x if x.dtype in (_FLOAT, _SINGLE) else x.astype(_FLOAT)


def r_factor(x: Any) -> Any:
    """R of a tall table, in float64, from one sweep: no Q is made."""
    k = x.shape[1]
    type = client_type(_FLOAT, (k, k))
    x = x.copy()
    return make(x, "client.triangle", (make(x, "triangle", (x, x), type),), type)


def qr_factors(x: Any) -> tuple[Any, Any]:
    """Q, and R in float64, from two messages to each server."""
    k = x.shape[1]
    table, upper = collective(TSQR, [x], [], [x.type, client_type(_FLOAT, (k, k))])
    return table, upper


def qr(a: Any, mode: str = "reduced") -> Any:
    """``numpy.linalg.qr``: Q on the servers, R kept by the client; lazy. Two messages.

    ``mode="r"``: R alone, in one message. R's diagonal has no negative number.
    """
    if is_wide(a):
        return _qr_of_wide(a.table, mode)
    if not is_tall(a):
        return on_host(np.linalg.qr)(a, mode)
    if mode == "complete" and _is_small_square(len(a)):
        return on_host(np.linalg.qr)(a, mode)
    _check_mode(a, mode)
    x = as_float_table(a, "qr")
    if mode == "r":
        return r_factor(x).astype(x.dtype)
    q, r = qr_factors(x)
    return QRResult(q, r.astype(x.dtype))


def _qr_of_wide(table: Any, mode: str) -> Any:
    """Of the transpose of ``table``, whose first columns have Q; R is split by columns."""
    _check_mode(table, mode)
    x = as_float_table(table, "qr")
    k = x.shape[1]
    q = apply_on_host(np.linalg.qr, [transpose(x[:k])]).Q
    below = row_index(x, len(x)).reshape(-1, 1) < np.arange(k)
    r = transpose(elementwise.where(below, 0.0, x @ q))
    return r if mode == "r" else QRResult(q, r)


def _is_small_square(length: int) -> bool:
    """Whether the client may keep a square matrix of so many rows."""
    return length * length <= MOST_ELEMENTS


def _check_mode(x: Any, mode: str) -> None:
    if mode not in ("reduced", "r"):
        raise NotImplementedError(
            f"qr: mode={mode!r} is not supported for a table on the servers; use mode='reduced' "
            f"or mode='r'"
        )


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """``numpy.linalg.svd`` with ``full_matrices=False``: the long singular vectors stay on the
    servers; lazy. Three messages; singular values alone, with ``compute_uv=False``, take one.
    """
    if not (is_tall(a) or is_wide(a)) or hermitian:
        return on_host(np.linalg.svd)(a, full_matrices, compute_uv, hermitian)
    if not compute_uv:
        return svdvals(a)
    if full_matrices and a.shape[0] != a.shape[1]:
        if _is_small_square(max(a.shape)):
            return on_host(np.linalg.svd)(a)
        raise NotImplementedError(
            f"svd: full_matrices=True is not supported for a table of shape {a.shape} on the "
            f"servers; write full_matrices=False"
        )
    x = as_float_table(a.table if is_wide(a) else a, "svd")
    q, r = qr_factors(x)
    u, s, vh = apply_on_host(np.linalg.svd, [r])
    long = q @ u.astype(x.dtype)
    s, vh = s.astype(x.dtype), vh.astype(x.dtype)
    return SVDResult(vh.T, s, transpose(long)) if is_wide(a) else SVDResult(long, s, vh)


def svdvals(x: Any, /) -> Any:
    """``numpy.linalg.svdvals``, kept by the client; lazy. One message."""
    return by_triangle(np.linalg.svdvals, x)


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """``numpy.linalg.matrix_rank``; lazy. One message."""
    if tol is not None and rtol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    if isinstance(A, Arithmetic) and A.ndim < 2:
        return reductions.any(elementwise.apply("not_equal", A, 0)).astype(np.int64)
    if hermitian or not (is_tall(A) or is_wide(A)):
        return on_host(np.linalg.matrix_rank)(A, tol, hermitian, rtol=rtol)
    if tol is not None:
        return by_triangle(np.linalg.matrix_rank, A, tol=tol)
    return by_triangle(np.linalg.matrix_rank, A, rtol=rank_tolerance(A) if rtol is None else rtol)


def cond(x: Any, p: Any = None) -> Any:
    """``numpy.linalg.cond``, in one message; other norms than 2 and -2 of small square tables."""
    if p not in (None, 2, -2):
        return on_host(np.linalg.cond)(x, p)
    return by_triangle(np.linalg.cond, x, p=p)


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = NOT_GIVEN) -> Any:
    """``numpy.linalg.pinv``, a table with exchanged axes; lazy. Three messages."""
    if is_wide(a):
        return transpose(pinv(a.table, rcond, hermitian, rtol=rtol))
    if hermitian or not is_tall(a):
        keywords = {} if rtol is NOT_GIVEN else {"rtol": rtol}
        return on_host(np.linalg.pinv)(a, rcond, hermitian, **keywords)
    if rcond is None:
        rcond = _SMALLEST if rtol is NOT_GIVEN else rank_tolerance(a) if rtol is None else rtol
    elif rtol is not NOT_GIVEN:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    x = as_float_table(a, "pinv")
    q, r = qr_factors(x)
    inverse = apply_on_host(np.linalg.pinv, [r], rcond=rcond)
    return transpose(q @ inverse.T.astype(x.dtype))


_SMALLEST = 1e-15
"""NumPy's ``rcond`` of ``pinv`` if nothing is said."""


def by_triangle(function: Callable[..., Any], x: Any, **keywords: Any) -> Any:
    """``function``, which sees singular values alone, of R instead of the table."""
    if is_wide(x):
        return by_triangle(function, x.table, **keywords)
    if not is_tall(x):
        return on_host(function)(x, **keywords)
    table = as_float_table(x, function.__name__)
    found = apply_on_host(function, [r_factor(table)], **keywords)
    return found.astype(table.dtype) if found.dtype.kind == "f" else found


def rank_tolerance(x: Any) -> float:
    """Of singular values, relative to the largest, as NumPy takes it for a matrix of this shape."""
    kind = _SINGLE if x.dtype == _SINGLE else _FLOAT
    return float(max(x.shape) * np.finfo(kind).eps)


_OTHER = {1: np.inf, -1: -np.inf, np.inf: 1, -np.inf: -1}
"""The norm of a matrix that its transpose has by another name."""
_SINGULAR = ("nuc", 2, -2)
"""Those made of singular values."""


def norm(
    x: A,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: int | tuple[int, int] | None = None,
    keepdims: bool = False,
) -> A:
    """Compute a vector norm or a matrix norm.

    Parameters
    ----------
    x : DistArray
        Vector or table.
    ord : number or {"fro", "nuc"}, optional
        Order of the norm. None (default) is the Euclidean norm of all elements. Vectors take any
        real number, 0 for the number of non-zeros, and plus or minus infinity. Matrices take 1, -1,
        2, -2, plus or minus infinity, "fro" and "nuc".
    axis : int or pair of int, optional
        Axis of a table along which to compute vector norms. A pair, or None with ``ord``, computes
        a matrix norm.
    keepdims : bool, default False
        Keep each reduced axis with length 1.

    Returns
    -------
    DistArray
        Lazy scalar, or lazy vector of norms.

    Raises
    ------
    ValueError
        If ``ord`` is not supported for the array.

    See Also
    --------
    numpy.linalg.norm : The same function of arrays on the client.

    Notes
    -----
    One request per server. Floats keep their dtype and are accumulated in float64; other dtypes
    give float64.

    Examples
    --------
    >>> x = ps.array([3.0, -4.0])
    >>> dv.norm(x), dv.norm(x, 1)
    (DistArray(5.0, dtype=float64, shape=()), DistArray(7.0, dtype=float64, shape=()))
    """
    if isinstance(axis, tuple | list) and len(axis) == 2:
        first, _ = normalize_axis_tuple(axis, x.ndim)
        return matrix_norm(x if first == 0 else transpose(x), ord=ord, keepdims=keepdims)  # type: ignore[no-any-return]
    if axis is None and getattr(x, "ndim", 0) == 2 and ord is not None:
        return matrix_norm(x, ord=ord, keepdims=keepdims)  # type: ignore[no-any-return]
    return vector_norm(x, ord=ord, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """``numpy.linalg.vector_norm``: along an axis, or of all elements; lazy."""
    return products.vector_norm(x, ord, axis, keepdims=keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """``numpy.linalg.matrix_norm``: ``ord`` is "fro", "nuc", 1, -1, 2, -2, inf or -inf; lazy."""
    if x.ndim != 2:
        raise ValueError(f"matrix_norm: needs a table, got an array of rank {x.ndim}")
    if x.is_split_by_columns:
        return matrix_norm(x.table, keepdims=keepdims, ord=_OTHER.get(ord, ord))
    if x.node.on_client:
        return apply_on_host(np.linalg.norm, [x], ord=ord, keepdims=keepdims)
    if ord in (None, "fro"):
        return products.vector_norm(x, keepdims=keepdims)
    if ord in _SINGULAR:
        result = by_triangle(np.linalg.norm, x, ord=ord)
    elif ord in _OTHER:
        result = _of_sums(x, ord)
    else:
        raise ValueError("Invalid norm order for matrices.")
    return reductions.keep_axes(x, result, None, keepdims)


def _of_sums(x: Any, ord: Any) -> Any:
    """The largest sum of magnitudes of a column or row, or the smallest."""
    kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    sums = reductions.sum(elementwise.apply("abs", x.astype(kind)), 0 if abs(ord) == 1 else 1)
    return (reductions.max if ord > 0 else reductions.min)(sums)


_FLOAT, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """Solve least squares, as ``numpy.linalg.lstsq``: solution, residuals, rank, singular values.

    The results are stored on the client. Eager, since the shape of the residuals depends on the
    rank; one request per server, as R of the columns of ``a`` and ``b`` together gives all. If
    ``a`` is wide, and split by columns, the solution is as long as its rows, and stays on the
    servers.
    """
    tolerance = item(rcond) if isinstance(rcond, Arithmetic) else rcond
    if is_wide(a):
        return _shortest(a, b, tolerance)
    if not is_tall(a):
        return _of_small(a, b, tolerance)
    if not isinstance(b, Arithmetic) or b.node.on_client:
        raise TypeError(
            f"lstsq: a, with {len(a)} rows, is on the servers, so b must be, too; write "
            "session.array(b)"
        )
    check_session(a.session, b, "lstsq")
    if len(b) != len(a):
        raise np.linalg.LinAlgError("Incompatible dimensions")
    upper, kind = _joint_triangle(a, b)
    parts = _of_triangle(numpy(upper), a.shape, _tolerance(a, tolerance))
    solution, residuals, values = (host_array(a, part.astype(kind)) for part in parts[:3])
    rank = host_array(a, np.asarray(parts[3], np.int32))
    return solution if b.ndim == 2 else solution[:, 0], residuals, rank, values


def _joint_triangle(a: Any, b: Any) -> tuple[Any, np.dtype[Any]]:
    """The triangle of the columns of both, and the dtype of what follows from it.

    Nobody holds these columns together when it is evaluated, so they are not stored.
    """
    left, right = as_float_table(a, "lstsq"), b if b.ndim == 2 else reshape(b, (-1, 1))
    kind = _SINGLE if left.dtype == right.dtype == _SINGLE else _FLOAT
    return r_factor(as_float_table(column_stack([left, right.astype(kind)]), "lstsq")), kind


def _of_triangle(upper: Any, shape: tuple[int, int], tolerance: float) -> Any:
    """Solution, residuals, singular values and rank, from the triangle of ``a`` beside ``b``."""
    n, k = shape
    x, _, rank, values = np.linalg.lstsq(upper[:k, :k], upper[:k, k:], rcond=tolerance)
    squares = np.square(upper[k:, k:]).sum(axis=0)
    return x, squares if rank == k and n > k else np.empty(0), values, rank


def _of_small(a: Any, b: Any, rcond: Any) -> Any:
    """Of arrays that come to the client."""
    like = session_array((a, b))
    arrays = [collected_on_host(like, one, "lstsq") for one in (a, b)]
    evaluate(*arrays)
    left, right = map(numpy, arrays)
    found = np.linalg.lstsq(left, right, rcond=rcond)
    return tuple(host_array(like, np.asarray(part)) for part in found)


def _shortest(a: Any, b: Any, rcond: Any) -> Any:
    """The shortest solution of fewer equations than unknowns; lazy."""
    x = as_float_table(a.table, "lstsq")
    right = collected_on_host(x, b, "lstsq")
    if len(right) != len(a):
        raise np.linalg.LinAlgError("Incompatible dimensions")
    kind = np.result_type(x.dtype, right.dtype)
    tolerance = _tolerance(a, rcond)
    q, r = qr_factors(x)
    inverse = apply_on_host(np.linalg.pinv, [r], rcond=tolerance).T
    solution = (q @ (inverse @ right).astype(x.dtype)).astype(kind)
    rank = apply_on_host(np.linalg.matrix_rank, [r], rtol=tolerance).astype(np.int32)
    values = apply_on_host(np.linalg.svdvals, [r]).astype(x.dtype)
    return solution, host_array(x, np.empty(0, kind)), rank, values


def _tolerance(a: Any, rcond: Any) -> float:
    """What NumPy takes for ``rcond``."""
    if rcond is None:
        return rank_tolerance(a)
    return float(rcond) if rcond >= 0 else float(np.finfo(_FLOAT).eps)


def solve(a: Any, b: Any) -> Any:
    """Solve linear systems, as ``numpy.linalg.solve``; lazy.

    If ``b`` is the transpose of a tall table, as ``T.T``, so is the result: each server multiplies
    its columns by the inverse of ``a``, in float64.
    """
    if not is_wide(b):
        return on_host(np.linalg.solve)(a, b)
    table = b.table
    left = collected_on_host(table, a, "solve")
    if left.shape != (len(b), len(b)):
        raise ValueError(f"solve: shapes {left.shape} and {b.shape} are not aligned")
    kind = np.result_type(np.linalg.solve(np.ones((1, 1), left.dtype), np.ones(1, table.dtype)))
    inverse = apply_on_host(np.linalg.inv, [left.astype(np.float64)])
    return transpose((table @ inverse.T).astype(kind))
