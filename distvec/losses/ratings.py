"""One side of a factorization of ratings: least squares for many rows at a time.

Row ``u`` with ratings ``r`` of columns with factors ``V`` gets the minimizer of ``|V x - r|^2 +
regularization * n * |x|^2``, ``n`` its number of ratings (Zhou, Wilkinson, Schreiber, Pan:
Large-scale parallel collaborative filtering for the Netflix Prize, 2008). Of implicit feedback,
ratings are confidences (Hu, Koren, Volinsky: Collaborative filtering for implicit feedback
datasets, 2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.losses.rows import Floats, Ints

_PIECE = 4096
"""Longer rows are added up in pieces of so many ratings."""
_TOGETHER = 1 << 18
"""So many numbers of factors are gathered at a time."""
_WIDTHS = sorted({k * 2**shift for k in (4, 5, 6, 7) for shift in range(11)} | {1, 2, 3, _PIECE})
"""Rows are filled up with zeros to one of these lengths, so that one call multiplies many of them.

The length depends on the row alone, and so do the bits of its products.
"""
_ROUNDING = 1e-12
_PATIENCE = 3


@dataclass(frozen=True)
class Factorization:
    """What is minimized."""

    regularization: float
    is_implicit: bool = False
    alpha: float = 1.0
    """Confidences grow by so much with a rating of 1."""
    is_nonnegative: bool = False


class SolvedRows(NamedTuple):
    """The factors of some rows, and sums over these rows."""

    factors: Floats
    """``(rows, rank)``."""
    value: float
    """The least value, with the penalty."""
    penalty: float


def solve_rows(
    ratings: sp.csr_array, factors: npt.NDArray[np.float64], problem: Factorization, gram: Floats
) -> SolvedRows:
    """Solve the rows, which have a rating each.

    ``factors`` has a row for each column of ``ratings``. ``gram`` is the product of the factors of
    all columns with themselves; only implicit feedback needs it. Each row's bits depend on its own
    ratings alone.
    """
    count, rank = ratings.shape[0], factors.shape[1]
    solved, values, penalties = np.empty((count, rank)), np.empty(count), np.empty(count)
    for rows, systems in _systems(ratings, factors, problem, gram):
        found = _solve(systems, problem)
        solved[rows] = found
        values[rows] = systems.constants - (systems.sides * found).sum(axis=1)
        penalties[rows] = problem.regularization * systems.counts * np.square(found).sum(axis=1)
    return SolvedRows(solved, float(values.sum()), float(penalties.sum()))


class _Systems(NamedTuple):
    """The normal equations of some rows."""

    matrices: Floats
    """``(rows, rank, rank)``."""
    sides: Floats
    """``(rows, rank)``."""
    constants: Floats
    """The values at 0."""
    counts: Floats
    """The numbers of ratings that the penalties count."""


def _systems(
    ratings: sp.csr_array, factors: Floats, problem: Factorization, gram: Floats
) -> Iterator[tuple[Ints, _Systems]]:
    """Rows of about one length at a time."""
    starts, rank = ratings.indptr.astype(np.int64), factors.shape[1]
    lengths = np.diff(starts)
    widths = np.take(_WIDTHS, np.searchsorted(_WIDTHS, np.minimum(lengths, _PIECE)))
    order = np.argsort(widths, kind="stable")
    begins = np.flatnonzero(np.diff(widths[order], prepend=0))
    for rows in np.split(order, begins[1:]):
        width = int(widths[rows[0]])
        together = max(1, _TOGETHER // (width * rank))
        for first in range(0, rows.size, together):
            some = rows[first : first + together]
            yield (
                some,
                _normal_equations(
                    ratings, starts[some], lengths[some], width, factors, problem, gram
                ),
            )


def _normal_equations(
    ratings: sp.csr_array,
    starts: Ints,
    lengths: Ints,
    width: int,
    factors: Floats,
    problem: Factorization,
    gram: Floats,
) -> _Systems:
    rank = factors.shape[1]
    matrices, sides = np.zeros((starts.size, rank, rank)), np.zeros((starts.size, rank))
    counts, constants = np.zeros(starts.size), np.zeros(starts.size)
    for done in range(0, int(lengths.max()), width):  # more than once only for the longest rows
        places = done + np.arange(width)
        is_there = places < lengths[:, None]
        each = np.where(is_there, starts[:, None] + places, 0)
        values = np.where(is_there, ratings.data[each], 0.0)
        vectors = factors[ratings.indices[each]]
        if problem.is_implicit:
            is_liked = values > 0.0
            weights = problem.alpha * np.abs(values)
            targets = np.where(is_liked, 1.0 + weights, 0.0)
            counts += is_liked.sum(axis=1)
            constants += targets.sum(axis=1)
        else:
            weights, targets = np.where(is_there, 1.0, 0.0), values
            counts += is_there.sum(axis=1)
            constants += np.square(values).sum(axis=1)
        transposed = vectors.transpose(0, 2, 1)
        matrices += transposed @ (weights[:, :, None] * vectors)
        sides += (transposed @ targets[:, :, None])[:, :, 0]
    if problem.is_implicit:
        matrices += gram
    matrices[:, range(rank), range(rank)] += (problem.regularization * counts)[:, None]
    return _Systems(matrices, sides, constants, counts)


def _solve(systems: _Systems, problem: Factorization) -> Floats:
    if problem.is_nonnegative:
        return _solve_nonnegative(systems)
    if problem.regularization > 0.0:
        return _solve_linear(systems.matrices, systems.sides)
    # Rows of few ratings leave some directions free: the shortest solution.
    inverses = np.linalg.pinv(systems.matrices, rcond=_ROUNDING, hermitian=True)
    found: Floats = (inverses @ systems.sides[:, :, None])[:, :, 0]
    return found


def _solve_linear(matrices: Floats, sides: Floats) -> Floats:
    return np.asarray(np.linalg.solve(matrices, sides[:, :, None])[:, :, 0], np.float64)


def _solve_nonnegative(systems: _Systems) -> Floats:
    """Least squares with solutions of 0 or more, by block principal pivoting.

    Each row has a set of free elements; the others are 0. Elements on the wrong side change sets,
    all of them while their number falls, else the last one, which ends (Kim, Park: Fast nonnegative
    matrix factorization, 2011).
    """
    matrices, sides = systems.matrices, systems.sides
    count, rank = sides.shape
    found, slopes = np.zeros_like(sides), -sides
    is_free = np.zeros(sides.shape, bool)
    fewest, patience = np.full(count, rank + 1), np.full(count, _PATIENCE)
    slack = _ROUNDING * np.abs(sides).max(axis=1, keepdims=True)
    while True:
        is_wrong = np.where(is_free, found < 0.0, slopes < -slack)
        wrong = is_wrong.sum(axis=1)
        rows = np.flatnonzero(wrong)
        if not rows.size:
            return np.where(is_free, found, 0.0)
        has_fallen = wrong < fewest
        fewest = np.where(has_fallen, wrong, fewest)
        patience = np.where(has_fallen, _PATIENCE, patience - 1)
        last = rank - 1 - is_wrong[:, ::-1].argmax(axis=1)
        single = np.arange(rank) == last[:, None]
        is_free ^= is_wrong & np.where(patience[:, None] >= 0, True, single)
        free = is_free[rows]
        both = free[:, :, None] & free[:, None, :]
        reduced = np.where(both, matrices[rows], np.eye(rank))
        found[rows] = _solve_linear(reduced, np.where(free, sides[rows], 0.0))
        products = (matrices[rows] @ found[rows][:, :, None])[:, :, 0]
        slopes[rows] = np.where(free, 0.0, products - sides[rows])
