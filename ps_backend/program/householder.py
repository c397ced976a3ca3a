"""QR decompositions by Householder's reflections, of pieces of a table and of what these leave.

``rows = Q @ R`` of ``m`` rows of length ``k``: with ``r = min(m, k)``, R is upper triangular, of
shape ``(r, k)``. No piece needs full rank, and no product of a matrix with its transpose is taken.

Q is the first ``r`` columns of ``I - V @ inv(S) @ V.T``, where V is unit lower trapezoidal, of
shape ``(m, r)``, and S upper triangular with the strict upper part of ``V.T @ V`` (Puglisi, SIAM J.
Sci. Stat. Comput. 13, 1992; Joffrain, Low, Quintana-Orti and van de Geijn, ACM TOMS 32, 2006). So Q
times a matrix is one product of V, and Q itself is never formed.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ps_backend.serial_blas import serial_blas

Matrix = npt.NDArray[np.float64]


def triangle(rows: npt.NDArray[np.generic]) -> Matrix:
    """R of ``rows``. Without a row, none."""
    columns = np.ascontiguousarray(rows.T, np.float64)  # as LAPACK wants them, in one copy
    with serial_blas():  # the same bits on servers, of whatever cores, and on the client
        upper: Matrix = np.linalg.qr(columns.T, mode="r")  # type: ignore[assignment]
    return upper


def padded(upper: Matrix) -> Matrix:
    """A triangle with rows of zeros beneath, for shape ``(k, k)``."""
    r, k = upper.shape
    if r == k:
        return upper
    full = np.zeros((k, k))
    full[:r] = upper
    return full


def join_triangles(first: Matrix, second: Matrix) -> Matrix:
    """R of the rows of two pieces, from the triangles of these; all of shape ``(k, k)``.

    Rows of zeros say nothing. Without them what is left of fewer rows than columns is as of them.
    """
    stack = np.concatenate([first, second])
    return padded(triangle(stack[stack.any(axis=1)]))


def signs_of(upper: Matrix) -> Matrix:
    """By row of a triangle, by what it is multiplied to have no negative number on its diagonal."""
    return np.where(np.diagonal(upper) < 0, -1.0, 1.0)


def upright(upper: Matrix) -> Matrix:
    """The triangle of the same products that has no negative number on its diagonal."""
    return np.triu(signs_of(upper)[:, None] * upper)  # no -0.0 beneath the diagonal


def _above(matrix: Matrix, first: int) -> Matrix:
    """``np.triu(matrix, first)``, which takes as long as a small decomposition."""
    return np.where(_is_below(*matrix.shape[-2:], first), 0.0, matrix)


@lru_cache(maxsize=64)
def _is_below(rows: int, columns: int, first: int) -> npt.NDArray[np.bool_]:
    return np.tri(rows, columns, first - 1, np.bool_)


def _diagonal(matrix: Matrix) -> Matrix:
    """A view, which may be written to."""
    view: Matrix = np.einsum("...ii->...i", matrix)
    return view


class Reflections:
    """Those of one piece, in memory that was given: ``size_of`` elements of it.

    Or of several pieces of one shape, each with memory of its own and as if it was alone: then all
    matrices are stacks of matrices.
    """

    def __init__(self, memory: Matrix, m: int, k: int) -> None:
        """``memory``: a vector, which says what was found if this is the second one over it."""
        r, stack = min(m, k), memory.shape[:-1]
        # V.T: each vector is in one piece
        self._vectors = memory[..., : r * m].reshape(*stack, r, m)
        self._couplings = memory[..., r * m : r * (m + r)].reshape(*stack, r, r)

    @staticmethod
    def size_of(m: int, k: int) -> int:
        """Elements of memory for a piece of ``m`` rows of length ``k``."""
        r = min(m, k)
        return r * (m + r)

    def find(self, rows: npt.NDArray[np.generic]) -> Matrix:
        """Decompose ``rows``. Returns R, of shape ``(r, k)``."""
        vectors, couplings = self._vectors, self._couplings
        r = vectors.shape[-2]
        # As LAPACK wants them, in one copy.
        columns = np.ascontiguousarray(rows.swapaxes(-1, -2), np.float64)
        found, scales = np.linalg.qr(columns.swapaxes(-1, -2), mode="raw")
        vectors[...] = found[..., :r, :]
        vectors[..., :r] = _above(found[..., :r, :r], 1)
        _diagonal(vectors[..., :r])[...] = 1.0
        is_identity = scales == 0.0  # nothing to reflect: the rows below are zero
        vectors[is_identity] = 0.0
        couplings[...] = _above(vectors @ vectors.swapaxes(-1, -2), 1)
        scales[is_identity] = 1.0
        _diagonal(couplings)[...] = 1.0 / scales
        return _above(found[..., :r].swapaxes(-1, -2), 0)

    def times(self, right: Matrix) -> Matrix:
        """``Q @ right``, of shape ``(m, columns)``, for ``right`` of shape ``(r, columns)``."""
        vectors = self._vectors
        r = vectors.shape[-2]
        turned = np.linalg.solve(self._couplings, vectors[..., :r] @ -right)
        product: Matrix = vectors.swapaxes(-1, -2) @ turned
        product[..., :r, :] += right
        return product
