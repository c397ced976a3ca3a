"""Standard deviations of features, as MLlib has them.

Sums over rows come first, which partitions can add up; then sums of squares of what is left of the
means, so that nothing cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.losses.rows import Floats, Rows

_ROWS = 4096
"""So many dense rows at a time: what is made of them stays small."""

_ROUNDING = 1e-6
"""Where so little of the squares is left without the mean's own error, the rest is rounding: of a
column that is the same in all rows, about the number of rows times 1e-16 is."""


def standard_deviations(rows: Rows) -> Floats:
    """Of each column, ``(columns,)``, over rows that are all there are. Two passes."""
    weights = _weights(rows)
    total = float(weights.sum())
    means = column_sums(rows) / total
    squares = float(weights @ weights)
    found: Floats = deviations(*column_squares(rows, means), total, squares)
    return found


def column_sums(rows: Rows) -> Floats:
    """``sum c x``, ``(columns,)``."""
    return np.asarray(rows.matrix.T @ _weights(rows), np.float64)


def column_squares(rows: Rows, means: Floats) -> tuple[Floats, Floats]:
    """``sum c (x - mean)`` and ``sum c (x - mean)^2``, ``(columns,)`` each."""
    weights = _weights(rows)
    if isinstance(rows.matrix, np.ndarray):
        first, second = np.zeros(rows.columns), np.zeros(rows.columns)
        for start in range(0, len(rows), _ROWS):
            part = slice(start, start + _ROWS)
            far = rows.matrix[part] - means
            first += weights[part] @ far
            second += weights[part] @ np.square(far, out=far)
        return first, second
    matrix, columns = rows.matrix, rows.columns
    each = np.repeat(weights, np.diff(matrix.indptr))
    far = matrix.data - means[matrix.indices]
    zeros = weights.sum() - np.bincount(matrix.indices, each, columns)
    zeros[np.bincount(matrix.indices, minlength=columns) == len(rows)] = 0.0  # not of rounding
    each *= far
    first = np.bincount(matrix.indices, each, columns) - zeros * means
    each *= far
    return first, np.bincount(matrix.indices, each, columns) + zeros * np.square(means)


def deviations(first: Any, second: Any, weights: float, squares: float) -> Any:
    """``sum c (x - mean)^2 / (sum c - sum c^2 / sum c)``, rooted, of the sums over all rows;
    ``squares`` are those of the weights.

    With weights of 1 that is the unbiased variance. 0 for a column that is the same in all rows,
    and where there is one row only. Arrays of any library that NumPy's functions take.
    """
    freedom = weights - squares / weights
    spread = second - np.square(first) / weights  # the mean was rounded
    if freedom <= 0.0:
        return 0.0 * spread
    return np.where(spread > _ROUNDING * second, np.sqrt(np.abs(spread / freedom)), 0.0)


def _weights(rows: Rows) -> Floats:
    return np.ones(len(rows)) if rows.weights is None else rows.weights
