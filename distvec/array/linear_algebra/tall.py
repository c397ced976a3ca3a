"""Tall tables, split by rows: their QR decomposition, and what follows from its triangle.

``T = Q @ R``, with R of shape ``(k, k)``, which the client keeps, and Q a table on the servers. R
alone is a reduction: one message, in the sweep that computes the table. With Q it takes two. The
diagonal of R has no negative number, so for a table of full rank both are the same whoever computes
them. Singular values, and what is made of them, are those of R.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array import functions, reductions
from distvec.array.linear_algebra import small
from distvec.array.moving.core import move
from distvec.array.operators import Arithmetic
from distvec.array.reduction_keywords import UNSAID
from distvec.array.transposed import Transposed, transpose
from distvec.graph import build
from distvec.graph.host_eval import MOST_ELEMENTS
from ps_backend.program.tsqr import KIND
from ps_backend.program.types import client_type

_FLOAT, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)
QRResult: Any = type(np.linalg.qr(np.eye(1)))
SVDResult: Any = type(np.linalg.svd(np.eye(1)))


def is_tall(x: Any) -> bool:
    """Whether servers have ``x``, a table of at least as many rows as columns, split by rows."""
    if not isinstance(x, Arithmetic) or x.ndim < 2 or x.node.on_client:
        return False
    return x.shape[0] >= x.shape[1]


def is_wide(x: Any) -> bool:
    """Whether ``x`` is the transpose of a tall table: split by columns."""
    return isinstance(x, Transposed) and is_tall(x.table)


def prepared(x: Any, name: str) -> Any:
    """A tall table as it is decomposed: float32, or float64.

    ``TypeError`` for float16, which NumPy's linear algebra does not take either,
    ``NotImplementedError`` for a triangle that is too large for the client.
    """
    k = x.shape[1]
    if k * k > MOST_ELEMENTS:
        raise NotImplementedError(
            f"{name}: the triangle of a table of {k} columns has {k * k} elements, and the client "
            f"keeps at most {MOST_ELEMENTS}; take fewer columns, as in x[:, :2048]"
        )
    if x.dtype == np.float16:
        raise TypeError("array type float16 is unsupported in linalg; x.astype('float32') is")
    x = x.made()
    return x if x.dtype in (_FLOAT, _SINGLE) else x.astype(_FLOAT)


def triangle(x: Any) -> Any:
    """R of a tall table, in float64, from one sweep: no Q is made."""
    k = x.shape[1]
    type = client_type(_FLOAT, (k, k))
    with x.session.holders.lock:
        graph = x.session.graph
        found = graph.make("triangle", (x.node, x.node), type)
        return x.like(build.on_client(graph, "client.triangle", (found,), type))


def factors(x: Any) -> tuple[Any, Any]:
    """Q, and R in float64, from two messages to each server."""
    k = x.shape[1]
    table, upper = move(KIND, [x], [], [x.type, client_type(_FLOAT, (k, k))])
    return table, upper


def qr(a: Any, mode: str = "reduced") -> Any:
    """``numpy.linalg.qr``: Q on the servers, R kept by the client; lazy. Two messages.

    ``mode="r"``: R alone, in one message. R's diagonal has no negative number.
    """
    if is_wide(a):
        return _qr_of_wide(a.table, mode)
    if not is_tall(a):
        return small.of_small(np.linalg.qr)(a, mode)
    if mode == "complete" and _is_small_square(len(a)):
        return small.of_small(np.linalg.qr)(a, mode)
    _check_mode(a, mode)
    x = prepared(a, "qr")
    if mode == "r":
        return triangle(x).astype(x.dtype)
    q, r = factors(x)
    return QRResult(q, r.astype(x.dtype))


def _qr_of_wide(table: Any, mode: str) -> Any:
    """Of the transpose of ``table``, whose first columns have Q; R is split by columns."""
    _check_mode(table, mode)
    x = prepared(table, "qr")
    k = x.shape[1]
    q = small.applied(np.linalg.qr, [transpose(x[:k])]).Q
    below = x.session.arange(len(x)).reshape(-1, 1) < np.arange(k)
    r = transpose(functions.where(below, 0.0, x @ q))
    return r if mode == "r" else QRResult(q, r)


def _is_small_square(length: int) -> bool:
    """Whether the client may keep a square matrix of so many rows."""
    return length * length <= MOST_ELEMENTS


def _check_mode(x: Any, mode: str) -> None:
    if mode not in ("reduced", "r"):
        raise NotImplementedError(
            f"qr: mode={mode!r} of a table on the servers has {len(x)} columns, or is no matrix; "
            f"take mode='reduced' or mode='r'"
        )


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """``numpy.linalg.svd`` with ``full_matrices=False``: the long singular vectors stay on the
    servers; lazy. Three messages; singular values alone, with ``compute_uv=False``, take one.
    """
    if not (is_tall(a) or is_wide(a)) or hermitian:
        return small.of_small(np.linalg.svd)(a, full_matrices, compute_uv, hermitian)
    if not compute_uv:
        return svdvals(a)
    if full_matrices and a.shape[0] != a.shape[1]:
        if _is_small_square(max(a.shape)):
            return small.of_small(np.linalg.svd)(a)
        raise NotImplementedError(
            f"svd: full_matrices=True of a table of shape {a.shape} has {max(a.shape)} long "
            f"singular vectors; say full_matrices=False"
        )
    x = prepared(a.table if is_wide(a) else a, "svd")
    q, r = factors(x)
    u, s, vh = small.applied(np.linalg.svd, [r])
    long = q @ u.astype(x.dtype)
    s, vh = s.astype(x.dtype), vh.astype(x.dtype)
    return SVDResult(vh.T, s, transpose(long)) if is_wide(a) else SVDResult(long, s, vh)


def svdvals(x: Any, /) -> Any:
    """``numpy.linalg.svdvals``, kept by the client; lazy. One message."""
    return of_triangle(np.linalg.svdvals, x)


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """``numpy.linalg.matrix_rank``; lazy. One message."""
    if tol is not None and rtol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    if isinstance(A, Arithmetic) and A.ndim < 2:
        return reductions.any(functions.apply("not_equal", A, 0)).astype(np.int64)
    if hermitian or not (is_tall(A) or is_wide(A)):
        return small.of_small(np.linalg.matrix_rank)(A, tol, hermitian, rtol=rtol)
    if tol is not None:
        return of_triangle(np.linalg.matrix_rank, A, tol=tol)
    return of_triangle(np.linalg.matrix_rank, A, rtol=precision(A) if rtol is None else rtol)


def cond(x: Any, p: Any = None) -> Any:
    """``numpy.linalg.cond``, in one message; other norms than 2 and -2 of small square tables."""
    if p not in (None, 2, -2):
        return small.of_small(np.linalg.cond)(x, p)
    return of_triangle(np.linalg.cond, x, p=p)


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = UNSAID) -> Any:
    """``numpy.linalg.pinv``, a table with exchanged axes; lazy. Three messages."""
    if is_wide(a):
        return transpose(pinv(a.table, rcond, hermitian, rtol=rtol))
    if hermitian or not is_tall(a):
        keywords = {} if rtol is UNSAID else {"rtol": rtol}
        return small.of_small(np.linalg.pinv)(a, rcond, hermitian, **keywords)
    if rcond is None:
        rcond = _SMALLEST if rtol is UNSAID else precision(a) if rtol is None else rtol
    elif rtol is not UNSAID:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    x = prepared(a, "pinv")
    q, r = factors(x)
    inverse = small.applied(np.linalg.pinv, [r], rcond=rcond)
    return transpose(q @ inverse.T.astype(x.dtype))


_SMALLEST = 1e-15
"""NumPy's ``rcond`` of ``pinv`` if nothing is said."""


def of_triangle(function: Callable[..., Any], x: Any, **keywords: Any) -> Any:
    """``function``, which sees singular values alone, of R instead of the table."""
    if is_wide(x):
        return of_triangle(function, x.table, **keywords)
    if not is_tall(x):
        return small.of_small(function)(x, **keywords)
    table = prepared(x, function.__name__)
    found = small.applied(function, [triangle(table)], **keywords)
    return found.astype(table.dtype) if found.dtype.kind == "f" else found


def precision(x: Any) -> float:
    """Of singular values, relative to the largest, as NumPy takes it for a matrix of this shape."""
    kind = _SINGLE if x.dtype == _SINGLE else _FLOAT
    return float(max(x.shape) * np.finfo(kind).eps)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.linalg.qr: qr,
        np.linalg.svd: svd,
        np.linalg.svdvals: svdvals,
        np.linalg.matrix_rank: matrix_rank,
        np.linalg.cond: cond,
        np.linalg.pinv: pinv,
    }
