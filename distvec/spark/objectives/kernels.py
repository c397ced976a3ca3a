"""The local part of an objective: one partition's rows against the coordinates they touch.

Measured on 50 000 rows x 50 non-zeros over 918 000 touched columns (one thread, float64): SciPy's
two passes 13.5 ms, the same two passes in numba 15 ms, margins and gradient fused in one numba pass
37 to 52 ms (two random access streams share the cache), so SciPy it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Floats = npt.NDArray[np.float64]


class LossAndGradient(NamedTuple):
    """A partition's weighted sums: the loss, and its gradient in the order of the local weights."""

    loss: float
    gradient: npt.NDArray[Any]


def margins(matrix: sp.csr_array, weights: npt.NDArray[Any], *, intercept: bool) -> Floats:
    """``X w``, or ``X w[:-1] + w[-1]`` with an intercept: shape ``(rows,)``."""
    if not intercept:
        return np.asarray(matrix @ weights, dtype=np.float64)
    scores = np.asarray(matrix @ weights[:-1], dtype=np.float64)
    scores += weights[-1]
    return scores


def logistic(
    matrix: sp.csr_array,
    labels: Floats,
    importance: Floats | None,
    weights: npt.NDArray[Any],
    *,
    intercept: bool,
) -> LossAndGradient:
    """``sum c ln(1 + exp(-y m))`` and its gradient ``X^T (-c y / (1 + exp(y m)))``, ``m = X w``.

    ``labels`` are +1 or -1, ``importance`` the row weights ``c`` (None: all 1), each ``(rows,)``.
    ``weights`` has one entry a column of ``matrix``, and the intercept's behind them if there is
    one; so has the gradient. Products with ``matrix`` are in its dtype, float64 or float32, which
    ``weights`` has too; all else is float64. With ``e = exp(-|y m|)`` no margin overflows: the loss
    is ``max(-y m, 0) + log1p(e)`` and the logistic function of ``-y m`` is ``1 / (1 + e)`` or
    ``e / (1 + e)``.
    """
    against = -labels * margins(matrix, weights, intercept=intercept)
    decay = np.exp(-np.abs(against))
    losses = np.maximum(against, 0.0) + np.log1p(decay)
    residual = np.where(against > 0.0, 1.0, decay)
    residual /= 1.0 + decay
    residual *= -labels
    if importance is not None:
        losses *= importance
        residual *= importance
    gradient = np.empty(weights.size, matrix.dtype)
    gradient[: matrix.shape[1]] = matrix.T @ residual.astype(matrix.dtype, copy=False)
    if intercept:
        gradient[-1] = residual.sum()
    return LossAndGradient(float(losses.sum()), gradient)
