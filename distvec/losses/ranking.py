"""Learning to rank: a loss of each pair of rows in a group that have different labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

import numpy as np

from distvec.losses.classification import Logistic
from distvec.losses.loss import Arrays, Loss, Parameter, Sums, loss_error, multiply_weights
from distvec.losses.row_losses import RowLoss, sum_once_rounded
from distvec.losses.rows import Floats, PairBlock, Pairs, Rows

_PairFunction: TypeAlias = Callable[[Floats, Floats], tuple[Floats, ...]]


@dataclass(frozen=True)
class PairwiseRanking(Loss):
    """Pairwise ranking loss: ``sqrt(c_i c_j) f(m_i - m_j)`` summed over pairs with ``y_i > y_j``.

    Pairs are rows of one group, for instance the documents of a query. Labels are grades, of which
    only the order counts. With ``f = ln(1 + exp(-m))`` this is RankNet, the "rank:pairwise" of
    XGBoost. With ``row=SquaredHinge()`` it is a ranking SVM.

    Parameters
    ----------
    row : RowLoss, optional
        The loss ``f`` of a pair, for the label +1: a loss of two classes. By default
        ``Logistic()``.

    Raises
    ------
    TypeError, ValueError
        If ``row`` is not a loss of two classes.

    Notes
    -----
    An intercept would cancel out, so the parameter has none. Rows of a group that all have the
    weight ``c`` have pairs of weight ``c``, so give the weight of a query to each of its rows. A
    row of weight 0 is in no pair. The objective is the mean over pairs.

    An evaluation makes two passes over the matrix and takes some 10 ns for each pair. A group of n
    rows has up to n^2 / 2 pairs, of which few are in memory together. Rows are sorted once.

    References
    ----------
    C. Burges et al., "Learning to rank using gradient descent", 2005.

    Examples
    --------
    >>> from distvec.losses import Objective, PairwiseRanking, Rows
    >>> rows = Rows(np.array([[3.0], [1.0], [2.0]]), [2, 0, 1], groups=[7, 7, 7])
    >>> objective = Objective(rows, loss=PairwiseRanking())
    >>> value, gradient = objective(np.zeros(1))
    >>> round(float(value), 4), gradient.round(4)
    (0.6931, array([-0.6667]))
    """

    formula: ClassVar[str] = "a loss (`row`) of m_i - m_j, for each pair of a group with y_i > y_j"
    row: RowLoss = field(default_factory=Logistic)
    order: ClassVar[str] = "group"

    def __post_init__(self) -> None:
        if not isinstance(self.row, RowLoss):
            raise TypeError(f"row={self.row!r}; must be a loss of one margin, such as Logistic()")
        if self.row.labels != "signs":
            raise ValueError(
                f"row={self.row!r} takes {self.row.labels!r} labels; must be a loss of two "
                "classes, such as Logistic() or SquaredHinge()"
            )

    @property
    def has_products(self) -> bool:
        return self.row.has_products

    @property
    def has_kinks(self) -> bool:
        return self.row.has_kinks

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(takes_intercept=False),)

    def weight(self, rows: Rows) -> float:
        return rows.pairs.weight

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        pairs, values = rows.pairs, []
        with np.errstate(all="ignore"):
            margins = rows.margins(arrays[0], intercept=False)[pairs.order]
            slopes = np.zeros(len(rows))
            for block, weights, found in self._evaluate(self.row.row, pairs, margins):
                values.append(float(multiply_weights(found[0], weights).sum()))
                pairs.add(multiply_weights(found[1], weights), block, slopes)
            gradient = rows.gradient(_in_place(slopes, pairs), intercept=False)
        return Sums(sum_once_rounded(values), pairs.weight, (gradient,))

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        if not self.has_products:
            return super().products(rows, arrays, directions, intercept=intercept)
        pairs = rows.pairs
        with np.errstate(all="ignore"):
            margins = rows.margins(arrays[0], intercept=False)[pairs.order]
            plain = replace(rows, offsets=None)
            moved = plain.margins(directions[0], intercept=False)[pairs.order]
            changes = np.zeros(len(rows))
            for block, weights, found in self._evaluate(self._curvature, pairs, margins):
                bends = multiply_weights(found[0], weights) * pairs.differences(moved, block)
                pairs.add(bends, block, changes)
            return (rows.gradient(_in_place(changes, pairs), intercept=False),)

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        return rows.margins(arrays[0], intercept=False)

    def _curvature(self, margins: Floats, labels: Floats) -> tuple[Floats]:
        return (self.row.curvature(margins, labels),)

    def _evaluate(
        self,
        function: Callable[[Floats, Floats], tuple[Floats, ...]],
        pairs: Pairs,
        margins: Floats,
    ) -> Iterator[tuple[PairBlock, Floats | None, tuple[Floats, ...]]]:
        """By blocks of pairs: their weights, and what a function says of their differences."""
        for number, block in enumerate(pairs.blocks()):
            differences = pairs.differences(margins, block)
            try:
                found = function(differences, np.ones(differences.size))
            except Exception as error:
                raise loss_error(str(self), f"pair block {number}", error) from error
            yield block, pairs.weights(block), found


def _in_place(sorted_numbers: Floats, pairs: Pairs) -> Floats:
    """For each row what is at its place in the order of the pairs."""
    numbers = np.empty_like(sorted_numbers)
    numbers[pairs.order] = sorted_numbers
    return numbers
