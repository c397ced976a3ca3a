"""Least squares, of tall tables by the triangle of the table beside what it is to give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.array.functions import evaluate
from distvec.array.handle import check_session
from distvec.array.linear_algebra import small
from distvec.array.linear_algebra.tall import (
    factors,
    is_tall,
    is_wide,
    precision,
    prepared,
    triangle,
)
from distvec.array.operators import Arithmetic
from distvec.array.shaping.joining import column_stack
from distvec.array.values import item, numpy
from distvec.graph.build import check_dtype

_FLOAT, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """``numpy.linalg.lstsq``: solution, residuals, rank and singular values, kept by the client.

    Evaluated at once, since whether there are residuals depends on the rank. One message: R of the
    columns of ``a`` and ``b`` together says all. Where ``a`` is wide, and split by columns, the
    solution is as long as its rows, and stays on the servers.
    """
    tolerance = item(rcond) if isinstance(rcond, Arithmetic) else rcond
    if is_wide(a):
        return _shortest(a, b, tolerance)
    if not is_tall(a):
        return _of_small(a, b, tolerance)
    if not isinstance(b, Arithmetic) or b.node.on_client:
        raise TypeError(
            f"lstsq: a table of {len(a)} rows is on the servers, so b has to be there as well: "
            f"session.array(b)"
        )
    check_session(a.session, b, "lstsq")
    if len(b) != len(a):
        raise np.linalg.LinAlgError("Incompatible dimensions")
    upper, kind = _beside(a, b)
    parts = _of_triangle(numpy(upper), a.shape, _tolerance(a, tolerance))
    solution, residuals, values = (_kept(a, part.astype(kind)) for part in parts[:3])
    rank = _kept(a, np.asarray(parts[3], np.int32))
    return solution if b.ndim == 2 else solution[:, 0], residuals, rank, values


def _beside(a: Any, b: Any) -> tuple[Any, np.dtype[Any]]:
    """The triangle of the columns of both, and the dtype of what follows from it.

    Nobody holds these columns together when it is evaluated, so they are not stored.
    """
    left, right = prepared(a, "lstsq"), b if b.ndim == 2 else reshape(b, (-1, 1))
    kind = _SINGLE if left.dtype == right.dtype == _SINGLE else _FLOAT
    return triangle(prepared(column_stack([left, right.astype(kind)]), "lstsq")), kind


def _of_triangle(upper: Any, shape: tuple[int, int], tolerance: float) -> Any:
    """Solution, residuals, singular values and rank, from the triangle of ``a`` beside ``b``."""
    n, k = shape
    x, _, rank, values = np.linalg.lstsq(upper[:k, :k], upper[:k, k:], rcond=tolerance)
    squares = np.square(upper[k:, k:]).sum(axis=0)
    return x, squares if rank == k and n > k else np.empty(0), values, rank


def _of_small(a: Any, b: Any, rcond: Any) -> Any:
    """Of arrays that come to the client."""
    like = small.session_array((a, b))
    arrays = [small.collected(like, one, "lstsq") for one in (a, b)]
    evaluate(*arrays)
    left, right = map(numpy, arrays)
    found = np.linalg.lstsq(left, right, rcond=rcond)
    return tuple(_kept(like, np.asarray(part)) for part in found)


def _shortest(a: Any, b: Any, rcond: Any) -> Any:
    """The shortest solution of fewer equations than unknowns; lazy."""
    x = prepared(a.table, "lstsq")
    right = small.collected(x, b, "lstsq")
    if len(right) != len(a):
        raise np.linalg.LinAlgError("Incompatible dimensions")
    kind = np.result_type(x.dtype, right.dtype)
    tolerance = _tolerance(a, rcond)
    q, r = factors(x)
    inverse = small.applied(np.linalg.pinv, [r], rcond=tolerance).T
    solution = (q @ (inverse @ right).astype(x.dtype)).astype(kind)
    rank = small.applied(np.linalg.matrix_rank, [r], rtol=tolerance).astype(np.int32)
    values = small.applied(np.linalg.svdvals, [r]).astype(x.dtype)
    return solution, _kept(x, np.empty(0, kind)), rank, values


def _tolerance(a: Any, rcond: Any) -> float:
    """What NumPy takes for ``rcond``."""
    if rcond is None:
        return precision(a)
    return float(rcond) if rcond >= 0 else float(np.finfo(_FLOAT).eps)


def _kept(like: Any, values: Any) -> Any:
    """NumPy's array as one that the client keeps."""
    return like.like(like.session.graph.client_value(values, check_dtype(values.dtype)))


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.linalg.lstsq: lstsq}
