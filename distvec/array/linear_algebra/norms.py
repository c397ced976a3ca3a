"""Norms of vectors, along an axis, and of whole tables as matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distvec.array import functions, products, reductions
from distvec.array.exchanged import exchanged
from distvec.array.linear_algebra import small
from distvec.array.linear_algebra.tall import of_triangle
from distvec.array.transposed import Transposed, transpose

_OTHER = {1: np.inf, -1: -np.inf, np.inf: 1, -np.inf: -1}
"""The norm of a matrix that its transpose has by another name."""
_SINGULAR = ("nuc", 2, -2)
"""Those made of singular values."""


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """``numpy.linalg.norm``: of vectors, along an axis of a table, or of a table as a matrix; lazy.

    One message. Floats stay in their dtype (accumulated in float64), other dtypes give float64.
    """
    if isinstance(axis, tuple | list) and len(axis) == 2:
        first, _ = normalize_axis_tuple(axis, x.ndim)
        return matrix_norm(x if first == 0 else transpose(x), ord=ord, keepdims=keepdims)
    if axis is None and getattr(x, "ndim", 0) == 2 and ord is not None:
        return matrix_norm(x, ord=ord, keepdims=keepdims)
    return vector_norm(x, ord=ord, axis=axis, keepdims=keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """``numpy.linalg.vector_norm``: along an axis, or of all elements; lazy."""
    if not isinstance(x, Transposed):
        return products.vector_norm(x, ord, axis, keepdims=keepdims)
    result = products.vector_norm(x.table, ord, exchanged(axis), keepdims=keepdims)
    return transpose(result) if keepdims else result


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """``numpy.linalg.matrix_norm``: ``ord`` is "fro", "nuc", 1, -1, 2, -2, inf or -inf; lazy."""
    if x.ndim != 2:
        raise ValueError(f"matrix_norm: needs a table, got an array of rank {x.ndim}")
    if isinstance(x, Transposed):
        return matrix_norm(x.table, keepdims=keepdims, ord=_OTHER.get(ord, ord))
    if x.node.on_client:
        return small.applied(np.linalg.norm, [x], ord=ord, keepdims=keepdims)
    if ord in (None, "fro"):
        return products.vector_norm(x, keepdims=keepdims)
    if ord in _SINGULAR:
        result = of_triangle(np.linalg.norm, x, ord=ord)
    elif ord in _OTHER:
        result = _of_sums(x, ord)
    else:
        raise ValueError("Invalid norm order for matrices.")
    return reductions.kept(x, result, None, keepdims)


def _of_sums(x: Any, ord: Any) -> Any:
    """The largest sum of magnitudes of a column or row, or the smallest."""
    kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    sums = reductions.sum(functions.apply("abs", x.astype(kind)), 0 if abs(ord) == 1 else 1)
    return (reductions.max if ord > 0 else reductions.min)(sums)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.linalg.norm: norm,
        np.linalg.vector_norm: vector_norm,
        np.linalg.matrix_norm: matrix_norm,
    }
