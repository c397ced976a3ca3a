"""Losses of classes: of two, where a label ``y`` is +1 or -1 and a margin ``m`` says how sure the
model is of +1; and of several, by a table of one column a class.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from distvec.losses.loss import Arrays, Loss, Parameter, Sums, multiply_weights, weights_of
from distvec.losses.row_losses import (
    KinkedLoss,
    RowLoss,
    curvature_at_kink,
    sum_once_rounded,
    two_slopes,
)
from distvec.losses.rows import Floats, Rows, blocks


@dataclass(frozen=True)
class Logistic(RowLoss):
    """``ln(1 + exp(-y m))``: the negative log-likelihood of logistic regression. Convex, smooth.

    With ``e = exp(-|m|)`` no margin overflows: the loss is ``max(-y m, 0) + log1p(e)``, and the
    probability of the other class ``1 / (1 + e)`` or ``e / (1 + e)``.
    """

    labels: ClassVar[str] = "signs"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes; a few roundings off, however far out."""
        against = -labels * margins
        decay = np.exp(-np.abs(against))
        values = np.maximum(against, 0.0)
        values += np.log1p(decay)
        slopes = np.where(against > 0.0, 1.0, decay)
        decay += 1.0
        slopes /= decay
        slopes *= -labels
        return values, slopes

    def probabilities(self, scores: Floats) -> Floats:
        """``1 / (1 + exp(m))`` of the negative class, ``1 / (1 + exp(-m))`` of the positive."""
        decay = np.exp(-np.abs(scores))
        less, more = decay / (1.0 + decay), 1.0 / (1.0 + decay)
        is_positive = scores > 0.0
        found = np.where(is_positive, less, more), np.where(is_positive, more, less)
        return np.column_stack(found)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """``p (1 - p)`` with the probability ``p`` of a class."""
        decay = np.exp(-np.abs(margins))
        return decay / np.square(1.0 + decay)


@dataclass(frozen=True, kw_only=True)
class Hinge(KinkedLoss):
    """``max(0, 1 - y m)``: support vector machines. Convex; the subgradient at ``y m = 1`` is 0.

    With ``smoothing`` g > 0 its Moreau envelope, at most g/2 below: ``(1 - y m)^2 / (2 g)`` for
    ``1 - g < y m < 1`` and linear with slope -1 beyond (Shalev-Shwartz and Zhang 2013, section 4).
    """

    labels: ClassVar[str] = "signs"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        short = np.maximum(1.0 - labels * margins, 0.0)
        values, slopes = two_slopes(short, 0.0, 1.0, self.smoothing)
        return values, -labels * slopes

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1/g where it is quadratic, else 0."""
        return curvature_at_kink(1.0 - labels * margins, 0.0, 1.0, self.smoothing)


@dataclass(frozen=True)
class SquaredHinge(RowLoss):
    """``max(0, 1 - y m)^2``. Convex; its gradient is continuous, its curvature is not."""

    labels: ClassVar[str] = "signs"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        short = np.maximum(1.0 - labels * margins, 0.0)
        return np.square(short), -2.0 * labels * short

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """2 where ``y m < 1``, else 0: a generalised second derivative."""
        return np.where(labels * margins < 1.0, 2.0, 0.0)


@dataclass(frozen=True)
class ModifiedHuber(RowLoss):
    """``max(0, 1 - y m)^2`` where ``y m >= -1``, and ``-4 y m`` below. Convex; its gradient is
    continuous, and bounded: wrong labels weigh less than in the squared hinge (Zhang 2004)."""

    labels: ClassVar[str] = "signs"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        short = np.maximum(1.0 - labels * margins, 0.0)
        near = np.minimum(short, 2.0)
        return near * (2.0 * short - near), -2.0 * labels * near

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """2 where ``-1 < y m < 1``, else 0: a generalised second derivative."""
        return np.where(np.abs(margins) < 1.0, 2.0, 0.0)


_Places: TypeAlias = npt.NDArray[np.intp]

_LARGEST_PIECE = 1 << 24
"""So many margins (128 MiB) are in memory at a time."""


@dataclass(frozen=True)
class Softmax(Loss):
    """``sum c (ln sum_k exp(m_k) - m_y)``: the negative log-likelihood of one class out of K.

    Labels ``y`` are the numbers of classes, 0 to ``classes - 1``; a row has a margin for each,
    ``m = x W [+ intercepts]``. The parameter is the table ``W``, ``(features [+ 1], K)``. Convex
    and smooth, and the same for ``W`` plus any column in all its columns: of the optima, an l2
    penalty takes the one whose rows have the sum 0. An offset, the same for all classes, cancels
    out.

    ``classes`` may be left out where the labels of all rows are known: it is the largest, plus 1.
    """

    classes: int | None = None
    labels: ClassVar[str] = "classes"

    def __post_init__(self) -> None:
        if self.classes is not None and self.classes < 1:
            raise ValueError(f"classes={self.classes}; there must be at least one")

    def bind(self, labels: Sequence[float]) -> Softmax:
        """With as many classes as the largest of ``labels`` says, unless it has been told.

        ValueError for labels that are none, or too large.
        """
        found = np.asarray(labels, dtype=np.float64)
        _as_indices(found, np.inf if self.classes is None else self.classes)
        if self.classes is not None:
            return self
        classes = int(found.max(initial=0.0)) + 1
        absent = np.setdiff1d(np.arange(classes), found)
        if len(absent) and len(found):
            some = ", ".join(map(str, absent[:3])) + ", ..." * (len(absent) > 3)
            warnings.warn(
                f"no row is of class {some}: a column is fitted to it all the same; number the "
                f"classes from 0 without gaps, or say Softmax(classes={classes})",
                stacklevel=2,
            )
        return replace(self, classes=classes)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """One table of a column a class."""
        return (Parameter(row=(self._count,)),)

    @property
    def takes_intercept(self) -> bool:
        """One for each class."""
        return True

    @property
    def has_products(self) -> bool:
        """There are."""
        return True

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        """Two passes over the matrix, and over ``(rows, K)`` margins by blocks of rows."""
        values: list[float] = []

        def slopes_of(piece: Rows) -> Floats:
            slopes = piece.margins(arrays[0], intercept=intercept)
            classes = _as_indices(piece.labels, self._count)
            for part in blocks(len(piece)):
                weights = weights_of(piece, part)
                values.append(_to_slopes(slopes[part], classes[part], weights))
            return slopes

        gradient = self._gradient(rows, slopes_of, intercept=intercept)
        return Sums(sum_once_rounded(values), rows.weight_sum, (gradient,))

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        """``X^T (c P (D - sum_k P D))`` with probabilities ``P`` and ``D = X V``: three passes."""

        def changes_of(piece: Rows) -> Floats:
            margins = piece.margins(arrays[0], intercept=intercept)
            changes = replace(piece, offsets=None).margins(directions[0], intercept=intercept)
            for part in blocks(len(piece)):
                _to_changes(margins[part], changes[part], weights_of(piece, part))
            return changes

        return (self._gradient(rows, changes_of, intercept=intercept),)

    def probabilities(self, scores: Floats) -> Floats:
        """``exp(m_k)`` over their sum."""
        terms = np.exp(scores - scores.max(axis=1, keepdims=True))
        found: Floats = terms / terms.sum(axis=1, keepdims=True)
        return found

    def predictions(self, scores: Floats) -> Floats:
        """The number of the class with the largest score."""
        found: Floats = scores.argmax(axis=1).astype(np.float64)
        return found

    def _gradient(
        self, rows: Rows, slopes_of: Callable[[Rows], Floats], *, intercept: bool
    ) -> npt.NDArray[Any]:
        """``X^T S``, piece by piece."""
        pieces = self._pieces(rows)
        with np.errstate(all="ignore"):
            piece = next(pieces)
            gradient = piece.gradient(slopes_of(piece), intercept=intercept)
            for piece in pieces:
                gradient += piece.gradient(slopes_of(piece), intercept=intercept)
        return gradient

    @property
    def _count(self) -> int:
        if self.classes is None:
            raise ValueError(
                "Softmax() does not know how many classes there are: Softmax(classes=...), or "
                ".bind(labels) with those of all rows"
            )
        return self.classes

    def _pieces(self, rows: Rows) -> Iterator[Rows]:
        """One at least."""
        size = max(_LARGEST_PIECE // self._count, 1)
        for start in range(0, max(len(rows), 1), size):
            yield rows if len(rows) <= size else rows[start : start + size]


def _to_slopes(margins: Floats, classes: _Places, weights: Floats | None) -> float:
    """The weighted sum of the values of a block; its slopes take the place of ``margins``.

    Classes come first here, ``(K, rows)``, for sums over short axes are slow. With ``s`` the sum
    over all classes but the row's own, relative to the largest margin, the slope of the own is
    ``-s / (s + e)``, and the value of a row whose own is largest ``log1p(s)``: both keep their
    digits where a row is told right with certainty.
    """
    terms = _relative(margins)
    own = classes, np.arange(classes.size)
    height = terms[own]
    np.exp(terms, out=terms)
    mine = terms[own]
    terms[own] = 0.0
    others = terms.sum(axis=0)
    mine += others
    values = np.log1p(np.where(height == 0.0, others, mine - 1.0))
    values -= height
    terms /= mine
    others /= mine
    terms[own] = -others
    margins[:] = multiply_weights(terms, weights).T
    return float(multiply_weights(values, weights).sum())


def _to_changes(margins: Floats, changes: Floats, weights: Floats | None) -> None:
    """How much the slopes of a block change, where the margins change by ``changes``: in place."""
    probabilities = _relative(margins)
    np.exp(probabilities, out=probabilities)
    probabilities /= probabilities.sum(axis=0)
    moved = np.ascontiguousarray(changes.T)
    moved -= (probabilities * moved).sum(axis=0)
    moved *= probabilities
    changes[:] = multiply_weights(moved, weights).T


def _relative(margins: Floats) -> Floats:
    """``(K, rows)``: margins minus the largest of the row."""
    turned = margins.T.copy()
    turned -= turned.max(axis=0)
    return turned


def _as_indices(labels: Floats, count: float) -> _Places:
    """Labels as indices. ValueError."""
    wrong = ~((labels >= 0.0) & (labels < count) & (labels == np.floor(labels)))
    if wrong.any():
        most = "" if count == np.inf else f", to {count - 1}: there are {count} classes"
        raise ValueError(
            f"the label is {float(labels[wrong][0])!r}; it must be a whole number from 0{most}"
        )
    return labels.astype(np.intp)
