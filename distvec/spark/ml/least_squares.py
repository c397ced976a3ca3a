"""Weighted least squares: squares and products of all columns in one pass, and the best
coefficients by them. The sums are taken about means, so that large means cost no digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from distvec.losses.rows import Floats, Ints, Matrix
from distvec.spark.data.blocks import Block, load
from distvec.spark.data.build import Descriptor
from distvec.spark.ml.params import tolerances
from distvec.spark.objectives.objective import Objective
from distvec.spark.rounds.contribute import Contributor
from optim import LBFGS, OWLQN
from ps_backend.serial_blas import serial_blas

MOST_FEATURES = 4096
"""The table of products of so many is 128 MiB."""

_BLOCK_ROWS = 2048
"""So many rows at a time are copied: they stay in the cache."""

_DENSE_FROM = 0.05
"""Where so much of a sparse matrix is not zero, products of dense blocks are faster."""

_CONSTANT = 1e-14
"""A deviation that is a smaller part of the mean is rounding."""

_SINGULAR = 1e-13
"""The least square of a pivot, of columns of deviation 1: a smaller one has no digit left."""

Working: TypeAlias = "Callable[[Block], tuple[Floats, Floats | None]]"
"""The response and the weight of each row; None: all weights are 1. ``ValueError`` for rows that
cannot be used."""


def labels_of(block: Block) -> tuple[Floats, Floats | None]:
    """Labels without offsets, and the weights."""
    rows = block.rows
    return rows.labels if rows.offsets is None else rows.labels - rows.offsets, rows.weights


class Totals(NamedTuple):
    """Of some rows: the sum of their weights, and weighted means."""

    weight: float
    means: Floats
    """Of the features, and last of the response."""


@dataclass(frozen=True)
class Products:
    """Weighted sums of products of differences from the means: features, and last the response."""

    totals: Totals
    table: Floats
    """``(features + 1, features + 1)``"""

    @property
    def deviations(self) -> Floats:
        """The population standard deviations; 0 of constant columns."""
        spread = np.maximum(np.diagonal(self.table), 0.0) / self.totals.weight
        found = np.sqrt(spread)
        return np.where(found > _CONSTANT * np.abs(self.totals.means), found, 0.0)


class LabelledRows(Objective):
    """Rows for several fits: their products are computed once."""

    @cached_property
    def products(self) -> Products:
        """Of the labels without offsets. One Spark job, when it is first read."""
        return products_of(self)


def products_of(objective: Objective, working: Working = labels_of) -> Products:
    """Of the rows of an objective, with the response that ``working`` makes. One Spark job.

    Servers add up the tables of the partitions in their order. ``ValueError`` for rows that
    ``working`` refuses, and for more than 4096 features.
    """
    ps, data = objective.ps, objective.data
    if data.size > MOST_FEATURES:
        raise ValueError(
            "In order to take the normal equation approach efficiently, we set the max number of "
            f"features to {MOST_FEATURES} but got {data.size}."
        )
    ps.release_slots()

    def attempt() -> Products:
        data.settle(ps.generations)
        table = ps.zeros((data.size + 1, data.size + 1))
        with ps.round(table) as contributor:
            found = data.run_on_blocks(partial(_contribute, working, contributor))
            for error in found:
                if isinstance(error, str):
                    raise ValueError(error)
        return _merged([one for one in found if not isinstance(one, str)], table.numpy())

    return data.retry_missing(attempt)


def _merged(parts: Sequence[Totals], table: Floats) -> Products:
    """``table`` has the sums of products about the means of each part."""
    weight = math.fsum(one.weight for one in parts)
    weights = np.array([one.weight for one in parts])
    each = np.array([one.means for one in parts])
    means = _means(each, weights)
    far = (each - means) * np.sqrt(weights)[:, None]
    return Products(Totals(weight, means), table + far.T @ far)


def _contribute(working: Working, contributor: Contributor, descriptor: Descriptor) -> Totals | str:
    """Contribute the table of a partition; a text says why it cannot be had."""
    block = load(descriptor.path)
    try:
        response, weights = working(block)
    except ValueError as error:
        return f"partition {descriptor.partition}: {error}"
    found, size = weighted_products(block.rows.matrix, response, weights), descriptor.features
    if block.columns.size == size:
        contributor.push(None, found.table)
        return found.totals
    places: Ints = np.append(block.columns, size)
    contributor.push(places, widened(found.table, places, size + 1))
    return found.totals._replace(means=widened(found.totals.means, places, size + 1))


def widened(array: Floats, places: Ints, size: int) -> Floats:
    """With so many columns: those of ``array`` at ``places``, others of zeros."""
    wide = np.zeros((*array.shape[:-1], size))
    wide[..., places] = array
    return wide


def weighted_products(matrix: Matrix, response: Floats, weights: Floats | None) -> Products:
    """Of the rows of a matrix and their response, the products about their means. One pass."""
    with serial_blas():
        if isinstance(matrix, np.ndarray) or matrix.nnz >= _DENSE_FROM * math.prod(matrix.shape):
            return about_means(*_dense(matrix, response, weights))
        return about_means(*_sparse(matrix, response, weights))


def about_means(shift: Floats, table: Floats) -> Products:
    """Of products of [columns - shift, 1]."""
    weight = float(table[-1, -1])
    near = table[-1, :-1] / weight if weight else np.zeros(shift.size)
    totals = Totals(weight, shift + near)
    return Products(totals, table[:-1, :-1] - weight * np.outer(near, near))


def _dense(matrix: Matrix, response: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
    """A shift near the means, and products of [features - shift, response - shift, 1]."""
    first = slice(0, _BLOCK_ROWS)
    near = _means(_rows(matrix, first), None if weights is None else weights[first])
    shift = np.append(near, _means(response, weights))
    table = np.zeros((shift.size + 1, shift.size + 1))
    block = np.ones((min(_BLOCK_ROWS, response.size), shift.size + 1))
    for start in range(0, response.size, _BLOCK_ROWS):
        part = slice(start, start + _BLOCK_ROWS)
        rows = _rows(matrix, part)
        some = block[: len(rows)]
        np.subtract(rows, shift[:-1], out=some[:, :-2])
        np.subtract(response[part], shift[-1], out=some[:, -2])
        if weights is not None:
            some[:, -1] = 1.0
            some *= np.sqrt(weights[part])[:, None]
        table += some.T @ some
    return shift, table


def _means(rows: Any, weights: Floats | None) -> Any:
    """Weighted, as rows of little weight may be far from others; of no weight 0."""
    if weights is None:
        return rows.mean(axis=0)
    total = weights.sum()
    return weights @ rows / total if total > 0.0 else np.zeros(rows.shape[1:])


def _rows(matrix: Matrix, part: slice) -> Any:
    return matrix[part] if isinstance(matrix, np.ndarray) else matrix[part].toarray()


def _sparse(
    matrix: sp.csr_array, response: Floats, weights: Floats | None
) -> tuple[Floats, Floats]:
    """The same, where only columns without zeros have a shift."""
    columns = matrix.shape[1]
    counts = np.bincount(matrix.indices, minlength=columns)
    sums = np.bincount(matrix.indices, matrix.data, columns)
    means = np.where(counts == response.size, sums / max(1, response.size), 0.0)
    shift = np.append(means, _means(response, weights))
    values = matrix.data - means[matrix.indices]
    others = np.column_stack([response - shift[-1], np.ones(response.size)])
    if weights is not None:
        roots = np.sqrt(weights)
        values *= np.repeat(roots, np.diff(matrix.indptr))
        others *= roots[:, None]
    shifted = sp.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)
    table = np.empty((columns + 2, columns + 2))
    table[:columns, :columns] = (shifted.T @ shifted).toarray()
    table[:columns, columns:] = shifted.T @ others
    table[columns:, :columns] = table[:columns, columns:].T
    table[columns:, columns:] = others.T @ others
    return shift, table


class Moments(NamedTuple):
    """Of the labels."""

    mean: float
    deviation: float
    """That of a sample."""


def label_moments(objective: Objective) -> Moments:
    """Of the labels of all rows, which are known since these were read."""
    found = objective.data.label_moments
    freedom = found.weight - found.squares / found.weight
    is_constant = math.sqrt(found.spread / found.weight) <= _CONSTANT * abs(found.mean)
    if is_constant or freedom <= 0.0:
        return Moments(found.mean, 0.0)
    return Moments(found.mean, math.sqrt(found.spread / freedom))


class Factors(NamedTuple):
    """Cholesky's factors of the normal equations, of features times ``scale``."""

    cholesky: tuple[Floats, bool]
    scale: Floats
    means: Floats | None
    """Of the features; None without an intercept."""
    weight: float

    def inverse_diagonal(self) -> Floats:
        """The diagonal of the inverse, the intercept last, in the units of the data.

        Times the variance of the noise, these are the variances of the estimates.
        """
        upper, _ = self.cholesky
        inverse = scipy.linalg.solve_triangular(upper, np.eye(len(upper)))
        spread = np.square(inverse).sum(axis=1) * self.scale**2 / self.weight
        of_features = np.where(self.scale > 0.0, spread, math.inf)
        if self.means is None:
            return of_features
        near = self.means * self.scale
        quotient = near @ scipy.linalg.cho_solve(self.cholesky, near)
        return np.append(of_features, (1.0 + quotient) / self.weight)


class Solution(NamedTuple):
    """Coefficients in the units of the data."""

    coefficients: Floats
    intercept: float
    factors: Factors | None
    """None if the matrix was not factored."""
    history: list[float]
    """The objective at the start and after each iteration; [0.0] without iterations."""

    @property
    def inverse_diagonal(self) -> Floats | None:
        """That of ``factors``; costs more than the solution."""
        return None if self.factors is None else self.factors.inverse_diagonal()


@dataclass(frozen=True)
class LeastSquares:
    """A problem of weighted least squares with an elastic net.

    The features are divided by their standard deviations, and so is the response. The penalty is
    on the coefficients of these, unless ``standardize_features`` or ``standardize_response`` is
    False.
    """

    intercept: bool = True
    strength: float = 0.0
    l1_share: float = 0.0
    standardize_features: bool = True
    standardize_response: bool = True
    max_iterations: int = 100
    tolerance: float = 1e-6

    def solve(self, products: Products) -> Solution:
        """By Cholesky's factors; by quasi-Newton steps with an l1 norm, or if that fails.

        ``ValueError`` for a penalty of a response that is constant and not 0, without intercept.
        """
        weight, means = products.totals.weight, products.totals.means
        deviations = products.deviations
        count, mean, unit = means.size - 1, float(means[-1]), float(deviations[-1])
        if unit == 0.0 and (self.intercept or mean == 0.0):
            return Solution(np.zeros(count), mean, None, [0.0])
        if unit == 0.0:
            if self.strength > 0.0 and self.standardize_response:
                raise ValueError(
                    "The standard deviation of the label is zero. Model cannot be regularized."
                )
            unit = abs(mean)
        scale = np.divide(1.0, deviations[:-1], out=np.zeros(count), where=deviations[:-1] > 0.0)
        whole = products.table / weight
        if not self.intercept:
            whole = whole + np.outer(means, means)
        matrix = whole[:-1, :-1] * np.outer(scale, scale)
        vector = whole[:-1, -1] * scale / unit
        l1, l2 = self._penalties(scale, unit)
        matrix[np.diag_indices(count)] += l2
        factors, history = None, [0.0]
        cholesky = None if l1.any() else _cholesky(matrix)
        if cholesky is None:
            square = float(whole[-1, -1]) / unit**2
            scaled, history = self._by_steps(matrix, vector, square, l1)
        else:
            scaled = scipy.linalg.cho_solve(cholesky, vector) if count else vector
            factors = Factors(cholesky, scale, means[:-1] if self.intercept else None, weight)
        coefficients = scaled * unit * scale
        intercept = mean - float(means[:-1] @ coefficients) if self.intercept else 0.0
        return Solution(coefficients, intercept, factors, history)

    def _penalties(self, scale: Floats, unit: float) -> tuple[Floats, Floats]:
        """Of each scaled coefficient, the factors of its absolute value and of its square."""
        l1 = np.full(scale.size, self.l1_share * self.strength / unit)
        l2 = np.full(scale.size, (1.0 - self.l1_share) * self.strength / unit)
        if not self.standardize_features:
            l1, l2 = l1 * scale, l2 * scale**2
        if not self.standardize_response:
            l2 *= unit
        return l1, l2

    def _by_steps(
        self, matrix: Floats, vector: Floats, square: float, l1: Floats
    ) -> tuple[Floats, list[float]]:
        def function(u: Floats) -> tuple[Any, Floats]:
            product = matrix @ u
            return 0.5 * square - vector @ u + 0.5 * (u @ product), product - vector

        limits: Any = {"max_iterations": self.max_iterations, **tolerances(self.tolerance)}
        solver = OWLQN(l1=l1, **limits) if l1.any() else LBFGS(**limits)
        result = solver.minimize(function, np.zeros(vector.size))
        return np.asarray(result.x), [float(record.value) for record in result.history]


def _cholesky(matrix: Floats) -> tuple[Floats, bool] | None:
    """The factors; None for a matrix that is singular but for rounding."""
    if not matrix.size:
        return matrix, False
    try:
        factors: tuple[Floats, bool] = scipy.linalg.cho_factor(matrix)
    except scipy.linalg.LinAlgError:
        return None
    pivots = np.square(np.diagonal(factors[0]))
    return factors if pivots.min() > _SINGULAR * np.diagonal(matrix).max() else None
