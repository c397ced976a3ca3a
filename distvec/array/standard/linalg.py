"""The ``linalg`` extension of the array API standard: of vectors and tables, none of stacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array import products
from distvec.array.standard.given import check_given
from distvec.array.standard.manipulation import matrix_transpose

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


# --- products: of the main namespace too ----------------------------------------------------------


def matmul(x1: Any, x2: Any, /) -> Any:
    """``x1 @ x2``."""
    return products.matmul(x1, x2)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Sums of products over ``axes``: so many, or those of each."""
    return products.tensordot(x1, x2, axes=axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Inner products along ``axis``."""
    return products.vecdot(x1, x2, axis=axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """The products of each element of one vector with each of another."""
    check_given("outer", x1, x2)
    return np.outer(x1, x2)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Cross products of the vectors of three elements along ``axis``."""
    check_given("cross", x1, x2)
    return np.linalg.cross(x1, x2, axis=axis)


# --- norms ----------------------------------------------------------------------------------------


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The norm of all elements as one vector, or of each vector along ``axis``."""
    check_given("vector_norm", x)
    if x.ndim == 0 or axis == ():  # each element is a vector
        kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        return np.abs(x.astype(kind)) if ord != 0 else (x != 0).astype(kind)
    return np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of a table as a matrix."""
    check_given("matrix_norm", x)
    return np.linalg.matrix_norm(x, keepdims=keepdims, ord=ord)


# --- decompositions -------------------------------------------------------------------------------


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The triangular ``L`` with ``L @ L.T`` equal to ``x``, or its transpose."""
    check_given("cholesky", x)
    return np.linalg.cholesky(x, upper=upper)


def eigh(x: Any, /) -> Any:
    """Eigenvalues and eigenvectors of a symmetric matrix."""
    check_given("eigh", x)
    return np.linalg.eigh(x)


def eigvalsh(x: Any, /) -> Any:
    """Eigenvalues of a symmetric matrix."""
    check_given("eigvalsh", x)
    return np.linalg.eigvalsh(x)


def qr(x: Any, /, *, mode: Any = "reduced") -> Any:
    """Orthonormal columns and a triangle of which ``x`` is the product."""
    check_given("qr", x)
    return np.linalg.qr(x, mode)


def svd(x: Any, /, *, full_matrices: bool = True) -> Any:
    """Singular values and vectors."""
    check_given("svd", x)
    return np.linalg.svd(x, full_matrices)


def svdvals(x: Any, /) -> Any:
    """Singular values."""
    check_given("svdvals", x)
    return np.linalg.svdvals(x)


# --- of square matrices ---------------------------------------------------------------------------


def det(x: Any, /) -> Any:
    """The determinant."""
    check_given("det", x)
    return np.linalg.det(x)


def slogdet(x: Any, /) -> Any:
    """The sign of the determinant, and the logarithm of its magnitude."""
    check_given("slogdet", x)
    return np.linalg.slogdet(x)


def inv(x: Any, /) -> Any:
    """The inverse."""
    check_given("inv", x)
    return np.linalg.inv(x)


def matrix_power(x: Any, n: int, /) -> Any:
    """``x`` multiplied by itself, so many times."""
    check_given("matrix_power", x)
    return np.linalg.matrix_power(x, n)


def solve(x1: Any, x2: Any, /) -> Any:
    """The solution of ``x1 @ x == x2``."""
    check_given("solve", x1, x2)
    return np.linalg.solve(x1, x2)


# --- of any matrix --------------------------------------------------------------------------------


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The elements on a diagonal."""
    check_given("diagonal", x)
    return np.linalg.diagonal(x, offset=offset)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of the elements on a diagonal."""
    check_given("trace", x)
    return np.linalg.trace(x, offset=offset, dtype=dtype)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """How many singular values are not negligible beside the largest."""
    check_given("matrix_rank", x)
    return np.linalg.matrix_rank(x, rtol=rtol)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """The pseudo-inverse."""
    check_given("pinv", x)
    return np.linalg.pinv(x) if rtol is None else np.linalg.pinv(x, rtol=rtol)
