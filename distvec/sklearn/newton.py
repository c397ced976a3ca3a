"""Newton's method with the whole Hessian: few iterations where a dense matrix has few columns."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg.lapack import dposv

from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Floats, Rows, blocks
from optim.core.progress import rounding_of

_MOST_COLUMNS = {"L-BFGS": 32, "trust-ncg": 64}
"""With more, products of all pairs of columns cost more than further steps of these methods."""

_SUFFICIENT = 1e-4
_HALVINGS = 30
_DAMPING = 1e-9
"""Added to the Hessian's diagonal, relative to its mean, for columns that depend on each other."""


class Curved(Protocol):
    """A function with a gradient and a Hessian."""

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Value and gradient."""

    def hessian(self, x: Floats) -> Floats:
        """A new array. Where the Hessian is not positive, a positive matrix in its place."""


class Minimum(NamedTuple):
    """The last point, its value and gradient, and whether the gradient is small."""

    x: Floats
    value: float
    gradient: Floats
    iterations: int
    converged: bool


def pays(rows: Rows, loss: object, method: str) -> bool:
    """Whether ``MeanLoss`` takes the loss and the rows, and Newton's is faster than the method."""
    is_smooth = isinstance(loss, RowLoss) and loss.has_products and rows.offsets is None
    return is_smooth and isinstance(rows.matrix, np.ndarray) and has_few_columns(rows, method)


def has_few_columns(rows: Rows, method: str) -> bool:
    """Whether Newton's method is faster than that one."""
    return rows.columns <= min(_MOST_COLUMNS.get(method, 0), len(rows))


class MeanLoss:
    """The mean loss plus ``l2 / 2 |x|^2``, which has no part of an intercept."""

    def __init__(self, rows: Rows, loss: RowLoss, l2: float, *, intercept: bool) -> None:
        matrix = np.asarray(rows.matrix, np.float64)
        self._matrix = np.hstack([matrix, np.ones((len(rows), 1))]) if intercept else matrix
        self._ridge = np.full(self._matrix.shape[1], l2)
        if intercept:
            self._ridge[-1] = 0.0
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        self._weights = weights / rows.weight_sum
        self._loss, self._labels = loss, rows.labels

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Value and gradient."""
        values, slopes = self._loss.row(self._matrix @ x, self._labels)
        gradient = (self._weights * slopes) @ self._matrix + self._ridge * x
        return float(self._weights @ values) + 0.5 * float(self._ridge @ (x * x)), gradient

    def hessian(self, x: Floats) -> Floats:
        """A new array."""
        curvatures = self._loss.curvature(self._matrix @ x, self._labels)
        found = weighted_gram(self._matrix, self._weights * curvatures)
        found[np.diag_indices_from(found)] += self._ridge
        return found


def weighted_gram(matrix: Floats, weights: Floats) -> Floats:
    """``X^T D X``, of weights that are 0 or more."""
    found = np.zeros((matrix.shape[1], matrix.shape[1]))
    for part in blocks(len(matrix)):  # copies of all rows would take as much memory again
        some, roots = matrix[part], np.sqrt(weights[part])
        used = roots > 0.0
        if np.count_nonzero(used) < 0.7 * len(used):
            some, roots = some[used], roots[used]
        scaled = some * roots[:, None]
        found += scaled.T @ scaled
    return found


def minimize_by_newton(
    function: Curved,
    start: Floats,
    *,
    max_iterations: int,
    gradient_tolerance: float | None,
    gradient_rtol: float = 0.0,
) -> Minimum:
    """The minimum of a function.

    The largest element of the gradient is at most ``gradient_tolerance``, or ``gradient_rtol`` of
    the one at the start. Steps are halved until Armijo's condition holds; if none does, the run
    ends.
    """
    with np.errstate(all="ignore"):
        x = np.array(start, np.float64)
        value, gradient = function(x)
        steepest = float(np.abs(gradient).max(initial=0.0))
        limit = max(gradient_tolerance or 0.0, gradient_rtol * steepest)
        for iteration in range(max_iterations + 1):
            if np.abs(gradient).max(initial=0.0) <= limit:
                return Minimum(x, value, gradient, iteration, True)
            if iteration == max_iterations:
                break
            step = _newton_step(function.hessian(x), gradient)
            if step is None:
                break
            slope = float(gradient @ step)
            highest = value + rounding_of(value, float(np.finfo(np.float64).eps))
            for halving in range(_HALVINGS):
                new = x + 0.5**halving * step
                new_value, new_gradient = function(new)
                if new_value <= highest + _SUFFICIENT * 0.5**halving * slope:
                    break
            else:
                break
            x, value, gradient = new, new_value, new_gradient
    return Minimum(x, value, gradient, iteration, False)


def _newton_step(hessian: Floats, gradient: Floats) -> Floats | None:
    """The step to the minimum of the quadratic model; None if there is none."""
    diagonal = np.diagonal(hessian)
    np.fill_diagonal(hessian, diagonal + _DAMPING * diagonal.mean())
    _, solution, failed = dposv(hessian, gradient, lower=True, overwrite_a=True)
    return None if failed else -solution
