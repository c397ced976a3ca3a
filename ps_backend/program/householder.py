"""QR decompositions by Householder's reflections, of pieces of a table and of what these leave.

``rows = Q @ R`` of ``m`` rows of length ``k``: with ``r = min(m, k)``, R is upper triangular, of
shape ``(r, k)``. No piece needs full rank, and no product of a matrix with its transpose is taken.
"""

from __future__ import annotations

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


def joined(first: Matrix, second: Matrix) -> Matrix:
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
