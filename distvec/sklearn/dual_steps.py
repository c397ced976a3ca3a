"""Compiled steps of dual coordinate descent for support vector machines, one row at a time.

C.-J. Hsieh, K.-W. Chang, C.-J. Lin, S. S. Keerthi, S. Sundararajan, A dual coordinate descent
method for large-scale linear SVM, ICML 2008.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from distvec.losses.compiled import njit
from distvec.losses.rows import Floats, Rows
from distvec.sklearn.row_steps import shuffle


def minimize_dual(rows: Rows, C: float, *, squared: bool, tol: float, most: int) -> Any:
    """The coefficients with the least ``C sum(w loss) + |x|^2 / 2``, the epochs, and whether the
    slopes of the dual function became as small as ``tol``.

    Labels are -1 and 1. The loss is the squared hinge, or the hinge.
    """
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    order = np.flatnonzero(weights > 0.0)
    limits = np.full(len(rows), math.inf) if squared else C * weights
    diagonal = np.zeros(len(rows))
    if squared:
        diagonal[order] = 0.5 / (C * weights[order])
    matrix: Any = rows.matrix
    if isinstance(matrix, np.ndarray):
        elements: tuple[Any, Any, Any] = (matrix.reshape(-1), None, None)
    else:
        elements = (matrix.data, matrix.indices, matrix.indptr)
    x, dual, squares = np.zeros(rows.columns), np.zeros(len(rows)), np.zeros(len(rows))
    for epoch in range(1, most + 1):
        shuffle(order, epoch)
        spread = _epoch(order, *elements, rows.labels, limits, diagonal, dual, squares, x)
        if spread <= tol:
            return x, epoch, True
    return x, most, False


@njit(cache=True, nogil=True)
def _epoch(
    order: Any,
    data: Any,
    indices: Any,
    ends: Any,
    labels: Floats,
    limits: Floats,
    diagonal: Floats,
    dual: Floats,
    squares: Floats,
    x: Floats,
) -> float:
    """A step for each row; the difference of the largest and the least slope."""
    width, highest, lowest = len(x), -math.inf, math.inf
    for row in order:
        # Unsigned places spare the test for negative ones.
        begin = np.uint64(row * width if ends is None else ends[row])
        end = np.uint64(row * width + width if ends is None else ends[row + 1])
        if squares[row] == 0.0:
            for k in range(begin, end):
                squares[row] += data[k] * data[k]
            squares[row] += diagonal[row]
        margin = 0.0
        for k in range(begin, end):
            margin += data[k] * x[np.uint64(k - begin if indices is None else indices[k])]
        slope = labels[row] * margin - 1.0 + diagonal[row] * dual[row]
        inside = slope
        if dual[row] <= 0.0:
            inside = min(slope, 0.0)
        elif dual[row] >= limits[row]:
            inside = max(slope, 0.0)
        highest, lowest = max(highest, inside), min(lowest, inside)
        if inside == 0.0:
            continue
        before = dual[row]
        if squares[row] > 0.0:
            dual[row] = min(max(before - slope / squares[row], 0.0), limits[row])
        else:  # a row of zeros, with the hinge
            dual[row] = limits[row]
        change = (dual[row] - before) * labels[row]
        for k in range(begin, end):
            x[np.uint64(k - begin if indices is None else indices[k])] += change * data[k]
    return highest - lowest
