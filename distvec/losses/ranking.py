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
    """``sum over pairs of a group with y_i > y_j of sqrt(c_i c_j) f(m_i - m_j)``.

    With ``f = ln(1 + exp(-m))``, ``row=Logistic()``, this is RankNet (Burges et al. 2005), the
    "rank:pairwise" of XGBoost; with ``row=SquaredHinge()`` a ranking SVM. ``f`` is any loss of two
    classes, for the label +1. ``rows.groups`` says which rows are compared with one another, for
    instance the documents of a query; labels are grades, of which only the order counts.

    Rows of a group that all have the weight ``c`` have pairs of weight ``c``, so the weight of a
    query is given to each of its rows; a row of weight 0 is in no pair. The objective is the mean
    over pairs. There is no intercept, which would cancel out: the parameter does not take one.

    An evaluation costs two passes over the matrix, and some 10 ns a pair; a group of n rows has up
    to n^2 / 2 pairs, of which few are in memory at a time. Rows are sorted once.
    """

    row: RowLoss = field(default_factory=Logistic)
    order: ClassVar[str] = "group"

    def __post_init__(self) -> None:
        if not isinstance(self.row, RowLoss):
            raise TypeError(f"row={self.row!r}; it must be a loss of one margin, as Logistic()")
        if self.row.labels != "signs":
            raise ValueError(
                f"row={self.row!r} takes {self.row.labels!r} labels; it must be a loss of two "
                "classes, as Logistic() or SquaredHinge()"
            )

    @property
    def has_products(self) -> bool:
        """Where ``row`` has a curvature."""
        return self.row.has_products

    @property
    def has_kinks(self) -> bool:
        """Where ``row`` has some."""
        return self.row.has_kinks

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """One vector, without an intercept."""
        return (Parameter(takes_intercept=False),)

    def weight(self, rows: Rows) -> float:
        """The sum of the weights of the pairs."""
        return rows.pairs.weight

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        """Two passes over the matrix, and one by blocks over the pairs.

        ValueError without groups. LossError if ``row`` raises, or gives other shapes.
        """
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
        """Three passes over the matrix, and one by blocks over the pairs."""
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
        """The margins, ``(rows,)``: in a group, the highest comes first."""
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
