"""The quadratic function of least squares, and its minimum with an l1 norm or signs."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dposv

from distvec.losses.rows import Floats, Matrix
from distvec.sklearn.base import Array

_MOST_COLUMNS = 4096
_MOST_SPARSE_COLUMNS = 512
"""With more, not all products of two columns are computed."""

_FEW = 16
"""So many coefficients may leave 0 in an iteration, or as many as are not 0."""

_SHRINK = 0.8
_LOOSE = 0.1
"""The weight of the l1 norm falls by this factor to the one asked for, as soon as slopes are small
relative to it, so that few coefficients leave 0 that have to return."""

_DAMPING = 1e-12
"""Added to the diagonal, relative to its mean, of a block that is singular."""


class Quadratic:
    """``x G x / 2 - b x`` for each target: half the weighted mean of squared residuals.

    With an intercept ``G`` and ``b`` are of features less their means: of a dense matrix there is
    such a copy, from products with a sparse one the means are subtracted.
    """

    def __init__(self, X: Matrix, y: Array, weights: Floats | None, *, intercept: bool) -> None:
        targets = y.reshape(len(y), -1).astype(np.float64)
        each = np.ones(len(targets)) if weights is None else weights
        self.total = float(each.sum())
        self.means, y_means = np.zeros(X.shape[1]), np.zeros(targets.shape[1])
        if intercept:
            self.means = np.asarray(X.T @ each, np.float64) / self.total
            y_means = each @ targets / self.total
        self.y, self.y_means = targets - y_means, y_means
        self.is_dense = isinstance(X, np.ndarray)
        self.matrix: Any = X - self.means if self.is_dense else X
        if weights is not None:
            roots = np.sqrt(weights)
            self.y *= roots[:, None]
            if self.is_dense:
                self.matrix *= roots[:, None]
            else:
                self.matrix = sp.csr_array(sp.diags_array(roots) @ X)
        self.linear = np.asarray(self.matrix.T @ self.y, np.float64) / self.total
        self.squares = np.einsum("ij,ij->j", self.y, self.y) / self.total

    @property
    def has_gram(self) -> bool:
        """Whether all of ``G`` is worth computing."""
        rows, columns = self.matrix.shape
        most = min(rows, _MOST_COLUMNS) if self.is_dense else _MOST_SPARSE_COLUMNS
        return bool(columns <= most)

    @property
    def has_factors(self) -> bool:
        """Whether linear equations with ``G`` have a direct solution."""
        return self.is_dense or self.has_gram

    @cached_property
    def gram(self) -> Floats:
        """All of ``G``."""
        return self._block(self.matrix, self.means)

    def product(self, x: Array) -> Floats:
        """``G x`` of a vector."""
        if self.has_gram:
            return np.asarray(self.gram @ x)
        found = np.asarray(self.matrix.T @ (self.matrix @ x), np.float64) / self.total
        return found if self.is_dense else found - self.means * float(self.means @ x)

    def block(self, places: Array) -> Floats:
        """The rows and columns of ``G`` at some places."""
        if self.has_gram:
            whole = len(places) == len(self.means)
            return self.gram if whole else self.gram[np.ix_(places, places)]
        return self._block(self._by_columns[:, places], self.means[places])

    def gap(self, x: Array, target: int, l1: float, l2: float, *, positive: bool) -> float:
        """The duality gap of an elastic net: how far above the least the value is at most.

        With ``positive`` the dual constraint is one-sided.
        """
        product, b, squares = self.product(x), self.linear[:, target], self.squares[target]
        residual = float(squares - 2.0 * (b @ x) + x @ product)
        slopes = b - product - l2 * x
        steepest = float((slopes if positive else np.abs(slopes)).max(initial=0.0))
        part = 1.0 if steepest <= l1 else l1 / steepest
        dual = 0.5 * (1.0 + part * part) * (residual + l2 * float(x @ x))
        return dual + l1 * float(np.abs(x).sum()) - part * float(squares - b @ x)

    @cached_property
    def _by_columns(self) -> Any:
        return self.matrix if self.is_dense else sp.csc_array(self.matrix)

    def _block(self, matrix: Any, means: Floats) -> Floats:
        if self.is_dense:
            return np.asarray(matrix.T @ matrix) / self.total
        found = np.asarray((matrix.T @ matrix).toarray(), np.float64) / self.total
        return found - np.outer(means, means)


class Minimum(NamedTuple):
    """The result of ``minimize_in_orthants``."""

    x: Floats
    iterations: int
    converged: bool


def minimize_in_orthants(
    quadratic: Quadratic,
    b: Floats,
    start: Floats,
    *,
    l1: float,
    l2: float,
    positive: bool,
    tolerance: float,
    max_iterations: int,
) -> Minimum:
    """The minimum of ``x (G + l2) x / 2 - b x + l1 |x|``, of 0 or more if ``positive``.

    In each iteration Newton's step of the coefficients that are not 0, and of those that gain most
    by leaving 0; then the least value along it, also beyond zeros. Exact up to rounding.

    H. Lee, A. Battle, R. Raina, A. Y. Ng, Efficient sparse coding algorithms, NIPS 2006: one
    coefficient leaves 0 at a time there.
    """
    x = np.maximum(start, 0.0) if positive else start.copy()
    slopes = _one_sided(quadratic.product(x) + l2 * x - b, x, l1, positive=positive)
    weight = l1
    if not (x.any() or quadratic.has_gram):
        weight += _SHRINK * float(np.abs(slopes).max(initial=0.0))
    for iteration in range(max_iterations):
        gradient = quadratic.product(x) + l2 * x - b
        slopes = _one_sided(gradient, x, weight, positive=positive)
        while weight > l1 and np.abs(slopes).max(initial=0.0) <= _LOOSE * weight:
            weight = max(l1, _SHRINK * weight)
            weight = l1 if weight < 1.05 * l1 or weight <= tolerance else weight
            slopes = _one_sided(gradient, x, weight, positive=positive)
        if np.abs(slopes).max(initial=0.0) <= tolerance:
            return Minimum(x, iteration, True)
        places, step, bend = _newton(quadratic, x, slopes, l2)
        curvature = float(step @ (bend @ step)) + l2 * float(step @ step)
        slope = float(slopes[places] @ step)
        if not slope < 0.0:
            return Minimum(x, iteration, False)
        kink = math.inf if positive else 2.0 * weight
        size, zeros = _least_along(x[places], step, slope, curvature, kink)
        x[places] += size * step
        x[places[zeros]] = 0.0
    return Minimum(x, max_iterations, False)


def _one_sided(gradient: Floats, x: Floats, l1: float, *, positive: bool) -> Floats:
    """The slope of the penalized function along which it falls; 0 where it does not."""
    up, down = gradient + l1, gradient - l1
    at_zero = np.minimum(up, 0.0)
    if not positive:
        at_zero += np.maximum(down, 0.0)
    found: Floats = np.where(x > 0.0, up, np.where(x < 0.0, down, at_zero))
    return found


def _newton(
    quadratic: Quadratic, x: Floats, slopes: Floats, l2: float
) -> tuple[Array, Floats, Floats]:
    """Places, Newton's step there, each that leaves 0 goes along its slope, and their block."""
    inside = np.flatnonzero(x)
    outside = np.flatnonzero((x == 0.0) & (slopes != 0.0))
    steepest = outside[np.argsort(-np.abs(slopes[outside]), kind="stable")]
    room = quadratic.matrix.shape[0] - 1 - inside.size
    most = max(1, min(max(_FEW, inside.size // 4), room))
    known = np.abs(slopes[inside]).max(initial=0.0)
    if not quadratic.has_gram and steepest.size and known > 0.1 * abs(slopes[steepest[0]]):
        most = 0  # those that are not 0 first
    chosen = np.sort(np.concatenate([inside, steepest[:most]]))
    block = quadratic.block(chosen)
    while True:
        step = -_solved(block, slopes[chosen], l2)
        wrong = (x[chosen] == 0.0) & (step * slopes[chosen] > 0.0)
        if not wrong.any():
            return chosen, step, block
        kept = ~wrong
        stuck = np.abs(slopes[inside]).max(initial=0.0) <= 1e-6 * abs(slopes[steepest[0]])
        if stuck and kept.sum() == inside.size:
            # All would leave 0 the wrong way, and the others are where they should be. Then the
            # steepest one goes the right way, but for rounding.
            kept |= chosen == steepest[0]
            if kept.all():
                kept = chosen == steepest[0]
        chosen, block = chosen[kept], block[np.ix_(kept, kept)]


def _solved(block: Floats, right: Floats, l2: float) -> Floats:
    matrix, scale = block.copy(), float(np.trace(block)) / len(block)
    for damping in (l2, l2 + _DAMPING * scale, l2 + math.sqrt(_DAMPING) * scale):
        np.fill_diagonal(matrix, np.diagonal(block) + damping)
        _, solution, failed = dposv(matrix, right, lower=True)
        if not failed:
            return np.asarray(solution)
    return right


def _least_along(
    x: Floats, step: Floats, slope: float, curvature: float, kink: float
) -> tuple[float, Array]:
    """The step size with the least value, and where ``x`` becomes 0 then.

    Where an element passes 0, the slope grows by ``kink`` times its change.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = np.where(x * step < 0.0, -x / step, np.inf)
    order = np.argsort(crossings, kind="stable")
    order = order[np.isfinite(crossings[order])]
    size = _unkinked(slope, curvature)
    for place in order.tolist():
        at = float(crossings[place])
        if at >= size:
            break
        slope += kink * abs(float(step[place]))
        if slope + at * curvature >= 0.0:
            return at, np.flatnonzero(crossings == at)
        size = _unkinked(slope, curvature)
    return size, np.zeros(0, np.intp)


def _unkinked(slope: float, curvature: float) -> float:
    return -slope / curvature if curvature > 0.0 else math.inf
