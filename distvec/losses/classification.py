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
    """Logistic loss ``ln(1 + exp(-y m))``: the negative log-likelihood of logistic regression.

    Labels are two classes. The loss is convex and smooth.

    See Also
    --------
    Softmax : The same for several classes.

    Notes
    -----
    With ``e = exp(-|m|)`` no margin overflows. The loss is ``max(-y m, 0) + log1p(e)``, and the
    probability of the positive class ``1 / (1 + exp(-m))``.

    Examples
    --------
    >>> from distvec.losses import Logistic, Objective
    >>> X, y = [[1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [1.0, 3.0]], [1, 1, 0, 0]
    >>> objective = Objective((X, y), loss=Logistic(), penalty=optim.SquaredL2Norm(0.1))
    >>> model = objective.fit()
    >>> model.predict(X), model.probabilities([[1.0, 1.0]]).round(2)
    (array([1., 1., 0., 0.]), array([[0.46, 0.54]]))
    """

    formula: ClassVar[str] = "ln(1 + exp(-y m))"
    labels: ClassVar[str] = "signs"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
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
        decay = np.exp(-np.abs(scores))
        less, more = decay / (1.0 + decay), 1.0 / (1.0 + decay)
        is_positive = scores > 0.0
        found = np.where(is_positive, less, more), np.where(is_positive, more, less)
        return np.column_stack(found)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        decay = np.exp(-np.abs(margins))
        return decay / np.square(1.0 + decay)


@dataclass(frozen=True, kw_only=True)
class Hinge(KinkedLoss):
    """Hinge loss ``max(0, 1 - y m)`` of support vector machines.

    Labels are two classes. The loss is convex. Its subgradient at ``y m = 1`` is 0.

    Parameters
    ----------
    smoothing : float, default 0.0
        If it is a number g > 0, the loss is replaced by its Moreau envelope, at most g/2 below:
        ``(1 - y m)^2 / (2 g)`` for ``1 - g < y m < 1``, and linear with slope -1 beyond.

    References
    ----------
    S. Shalev-Shwartz and T. Zhang, "Stochastic dual coordinate ascent methods for regularized
    loss minimization", 2013, section 4.

    Examples
    --------
    >>> from distvec.losses import Hinge
    >>> Hinge().row(np.array([0.25, 2.0]), np.array([1.0, 1.0]))
    (array([0.75, 0.  ]), array([-1., -0.]))
    """

    formula: ClassVar[str] = "max(0, 1 - y m); with `smoothing=g` within g/2 of it"
    labels: ClassVar[str] = "signs"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        short = np.maximum(1.0 - labels * margins, 0.0)
        values, slopes = two_slopes(short, 0.0, 1.0, self.smoothing)
        return values, -labels * slopes

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return curvature_at_kink(1.0 - labels * margins, 0.0, 1.0, self.smoothing)


@dataclass(frozen=True)
class SquaredHinge(RowLoss):
    """Squared hinge loss ``max(0, 1 - y m)^2``.

    Labels are two classes. The loss is convex. Its gradient is continuous, its curvature is not.

    Examples
    --------
    >>> from distvec.losses import SquaredHinge
    >>> SquaredHinge().row(np.array([0.5, 2.0]), np.array([1.0, 1.0]))
    (array([0.25, 0.  ]), array([-1., -0.]))
    """

    formula: ClassVar[str] = "max(0, 1 - y m)^2"
    labels: ClassVar[str] = "signs"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        short = np.maximum(1.0 - labels * margins, 0.0)
        return np.square(short), -2.0 * labels * short

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return np.where(labels * margins < 1.0, 2.0, 0.0)


@dataclass(frozen=True)
class ModifiedHuber(RowLoss):
    """Modified Huber loss ``max(0, 1 - y m)^2``, linear below ``y m = -1``.

    For ``y m < -1`` it is ``-4 y m``. Labels are two classes. The loss is convex. Its gradient is
    continuous and bounded, so wrong labels weigh less than in the squared hinge.

    References
    ----------
    T. Zhang, "Solving large scale linear prediction problems using stochastic gradient descent
    algorithms", 2004.

    Examples
    --------
    >>> from distvec.losses import ModifiedHuber
    >>> ModifiedHuber().row(np.array([0.5, -3.0]), np.array([1.0, 1.0]))
    (array([ 0.25, 12.  ]), array([-1., -4.]))
    """

    formula: ClassVar[str] = "max(0, 1 - y m)^2 for y m >= -1, -4 y m below"
    labels: ClassVar[str] = "signs"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        short = np.maximum(1.0 - labels * margins, 0.0)
        near = np.minimum(short, 2.0)
        return near * (2.0 * short - near), -2.0 * labels * near

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return np.where(np.abs(margins) < 1.0, 2.0, 0.0)


_Places: TypeAlias = npt.NDArray[np.intp]

_LARGEST_PIECE = 1 << 24
"""So many margins (128 MiB) are in memory at a time."""


@dataclass(frozen=True)
class Softmax(Loss):
    """Multinomial logistic loss ``sum c (ln sum_k exp(m_k) - m_y)`` of K classes.

    Labels are 0 to ``classes - 1``. A row has a margin for each class, ``m = x W [+ intercepts]``.
    The parameter is the table ``W``, ``(features [+ 1], K)``. The loss is convex and smooth.

    Parameters
    ----------
    classes : int, optional
        The number of classes. By default the largest label plus 1.

    Raises
    ------
    ValueError
        If ``classes`` is less than 1.

    Notes
    -----
    The loss stays the same if a column is added to all columns of ``W``. Of these optima, an l2
    penalty selects the table whose rows have the sum 0. An offset, the same for all classes,
    cancels out. An evaluation makes two passes over the matrix. A product with the Hessian makes
    three.

    Examples
    --------
    >>> from distvec.losses import Objective, Softmax
    >>> X, y = np.eye(3), [0, 1, 2]
    >>> objective = Objective((X, y), loss=Softmax(), penalty=optim.SquaredL2Norm(0.01))
    >>> model = objective.fit()
    >>> model.coefficients.shape, model.predict(X)
    ((3, 3), array([0., 1., 2.]))
    """

    formula: ClassVar[str] = "ln sum over k of exp(m_k) - m_y, a margin for each class"
    classes: int | None = None
    labels: ClassVar[str] = "classes"

    def __post_init__(self) -> None:
        if self.classes is not None and self.classes < 1:
            raise ValueError(f"classes={self.classes}; must be 1 or more")

    def bind(self, labels: Sequence[float]) -> Softmax:
        found = np.asarray(labels, dtype=np.float64)
        _as_indices(found, np.inf if self.classes is None else self.classes)
        if self.classes is not None:
            return self
        classes = int(found.max(initial=0.0)) + 1
        absent = np.setdiff1d(np.arange(classes), found)
        if len(absent) and len(found):
            some = ", ".join(map(str, absent[:3])) + ", ..." * (len(absent) > 3)
            warnings.warn(
                f"no row has the label {some}, but each class has a column; number the classes "
                f"from 0 without gaps, or pass Softmax(classes={classes})",
                stacklevel=2,
            )
        return replace(self, classes=classes)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(row=(self._count,)),)

    @property
    def takes_intercept(self) -> bool:
        return True

    @property
    def has_products(self) -> bool:
        return True

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
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
        def changes_of(piece: Rows) -> Floats:
            margins = piece.margins(arrays[0], intercept=intercept)
            changes = replace(piece, offsets=None).margins(directions[0], intercept=intercept)
            for part in blocks(len(piece)):
                _to_changes(margins[part], changes[part], weights_of(piece, part))
            return changes

        return (self._gradient(rows, changes_of, intercept=intercept),)

    def probabilities(self, scores: Floats) -> Floats:
        terms = np.exp(scores - scores.max(axis=1, keepdims=True))
        found: Floats = terms / terms.sum(axis=1, keepdims=True)
        return found

    def predictions(self, scores: Floats) -> Floats:
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
                "Softmax() does not know the number of classes; pass Softmax(classes=...), or call "
                ".bind(labels) with the labels of all rows"
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
        most = "" if count == np.inf else f" to {count - 1}, for {count} classes"
        raise ValueError(
            f"label {float(labels[wrong][0])!r} is not allowed; labels must be whole numbers from "
            f"0{most}"
        )
    return labels.astype(np.intp)
