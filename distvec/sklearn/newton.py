"""Newton's method with the whole Hessian: few iterations where a dense matrix has few columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dposv

from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Floats, Rows
from optim.core.progress import rounding_of

_MOST_COLUMNS = {"L-BFGS": 32, "trust-ncg": 64}
"""With more, products of all pairs of columns cost more than further steps of these methods."""

_SUFFICIENT = 1e-4
_HALVINGS = 30
_DAMPING = 1e-9
"""Added to the Hessian's diagonal, relative to its mean, for columns that depend on each other."""


class Minimum(NamedTuple):
    """The last point, its value and gradient, and whether the gradient is small."""

    x: Floats
    value: float
    gradient: Floats
    iterations: int
    converged: bool


def pays(rows: Rows, loss: object, method: str) -> bool:
    """Whether ``minimize_by_newton`` takes the loss and the rows, and is faster than the method."""
    most = _MOST_COLUMNS.get(method, 0)
    small = isinstance(rows.matrix, np.ndarray) and rows.columns <= min(most, len(rows))
    return small and isinstance(loss, RowLoss) and loss.has_products and rows.offsets is None


def minimize_by_newton(
    rows: Rows,
    loss: RowLoss,
    start: Floats,
    l2: float,
    *,
    max_iterations: int,
    gradient_tolerance: float | None,
    gradient_rtol: float = 0.0,
) -> Minimum:
    """The minimum of the mean loss plus ``l2 / 2 |x|^2``, which has no part of the intercept.

    ``start`` has a last row for the intercept if it is longer than the features are many. The
    largest element of the gradient is at most ``gradient_tolerance``, or ``gradient_rtol`` of the
    one at the start. Steps are halved until Armijo's condition holds; if none does, the run ends.
    """
    matrix, labels = np.asarray(rows.matrix, np.float64), rows.labels
    ridge = np.full(len(start), l2)
    if len(start) > rows.columns:
        matrix = np.hstack([matrix, np.ones((len(rows), 1))])
        ridge[-1] = 0.0
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    weights = weights / rows.weight_sum

    def value_and_slopes(x: Floats, margins: Floats) -> tuple[float, Floats]:
        values, slopes = loss.row(margins, labels)
        return float(weights @ values) + 0.5 * float(ridge @ (x * x)), slopes

    with np.errstate(all="ignore"):
        x = np.array(start, np.float64)
        margins = matrix @ x
        value, slopes = value_and_slopes(x, margins)
        gradient = (weights * slopes) @ matrix + ridge * x
        steepest = float(np.abs(gradient).max(initial=0.0))
        limit = max(gradient_tolerance or 0.0, gradient_rtol * steepest)
        for iteration in range(max_iterations + 1):
            if np.abs(gradient).max(initial=0.0) <= limit:
                return Minimum(x, value, gradient, iteration, True)
            step = _newton_step(matrix, weights * loss.curvature(margins, labels), ridge, gradient)
            if step is None or iteration == max_iterations:
                break
            changes, slope = matrix @ step, float(gradient @ step)
            highest = value + rounding_of(value, float(np.finfo(np.float64).eps))
            for halving in range(_HALVINGS):
                size = 0.5**halving
                new, new_margins = x + size * step, margins + size * changes
                new_value, slopes = value_and_slopes(new, new_margins)
                if new_value <= highest + _SUFFICIENT * size * slope:
                    break
            else:
                break
            x, margins, value = new, new_margins, new_value
            gradient = (weights * slopes) @ matrix + ridge * x
    return Minimum(x, value, gradient, iteration, False)


def _newton_step(
    matrix: Floats, curvatures: Floats, ridge: Floats, gradient: Floats
) -> Floats | None:
    """The step to the minimum of the quadratic model; None if there is none."""
    bent = curvatures > 0.0
    if np.count_nonzero(bent) < 0.7 * len(bent):
        matrix, curvatures = matrix[bent], curvatures[bent]
    scaled = matrix * np.sqrt(curvatures)[:, None]
    hessian = scaled.T @ scaled
    diagonal = np.diagonal(hessian) + ridge
    np.fill_diagonal(hessian, diagonal + _DAMPING * diagonal.mean())
    _, solution, failed = dposv(hessian, gradient, lower=True, overwrite_a=True)
    return None if failed else -solution
