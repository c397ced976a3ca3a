"""Losses of one margin and one label a row; those with a kink, and smooth ones in their place."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distvec.losses.loss import Arrays, Loss, Sums, check_smoothing, evaluate_by_blocks
from distvec.losses.rows import Floats, Rows


class RowLoss(Loss):
    """Base class of losses that sum ``c f(m, y)`` over rows.

    A row has a weight ``c``, a label ``y`` and a margin ``m = <x, w> [+ intercept] [+ offset]``.
    Subclasses implement ``row``. With ``curvature`` they also have products with the Hessian.

    See Also
    --------
    row_loss : Make such a loss of a function.

    Examples
    --------
    >>> from distvec.losses import Logistic, RowLoss, Softmax
    >>> isinstance(Logistic(), RowLoss), isinstance(Softmax(), RowLoss)
    (True, False)
    """

    @abstractmethod
    def row(self, margins: Floats, labels: Floats) -> tuple[Any, Any]:
        """Evaluate the loss and its slope for a block of rows.

        Parameters
        ----------
        margins : array of float64, (rows,)
            Margins, read-only. They are infinite or NaN after too long a step of a solver.
        labels : array of float64, (rows,)
            Labels, read-only. They are +1 and -1 for two classes.

        Returns
        -------
        values : array of float64, (rows,)
            The loss of each row.
        slopes : array of float64, (rows,)
            Its derivative by the margin.
        """

    def curvature(self, margins: Floats, labels: Floats) -> Any:
        """Return the second derivative by the margin for a block of rows.

        Parameters
        ----------
        margins : array of float64, (rows,)
            Margins, read-only.
        labels : array of float64, (rows,)
            Labels, read-only.

        Returns
        -------
        array of float64, (rows,)
            The second derivatives.

        Raises
        ------
        NotImplementedError
            If the loss has no second derivative.
        """
        raise NotImplementedError(f"{self} has no second derivative")

    @property
    def has_products(self) -> bool:
        return type(self).curvature is not RowLoss.curvature

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        with np.errstate(all="ignore"):
            margins = rows.margins(arrays[0], intercept=intercept)
            values, all_slopes = [], np.empty(len(rows))
            found = evaluate_by_blocks(self.row, str(self), ("values", "slopes"), rows, margins)
            for part, (of_block, slopes) in found:
                values.append(float(of_block.sum()))
                all_slopes[part] = slopes
            gradient = rows.gradient(all_slopes, intercept=intercept)
        return Sums(sum_once_rounded(values), rows.weight_sum, (gradient,))

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        if not self.has_products:
            return super().products(rows, arrays, directions, intercept=intercept)
        with np.errstate(all="ignore"):
            margins = rows.margins(arrays[0], intercept=intercept)
            changes = replace(rows, offsets=None).margins(directions[0], intercept=intercept)
            found = evaluate_by_blocks(self._curvature, str(self), ("curvatures",), rows, margins)
            for part, (curvatures,) in found:
                changes[part] *= curvatures
            return (rows.gradient(changes, intercept=intercept),)

    def _curvature(self, margins: Floats, labels: Floats) -> tuple[Any]:
        return (self.curvature(margins, labels),)


def sum_once_rounded(values: Sequence[float]) -> float:
    """Their sum, rounded once; also where some are infinite or NaN."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large together; infinities of both signs
        return sum(values)


@dataclass(frozen=True, kw_only=True)
class KinkedLoss(RowLoss):
    """A loss with kinks, unless ``smoothing`` g > 0 puts its Moreau envelope in its place."""

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_smoothing(self)

    @property
    def has_products(self) -> bool:
        return self.smoothing > 0.0

    @property
    def has_kinks(self) -> bool:
        return self.smoothing == 0.0


def two_slopes(r: Floats, low: float, high: float, smoothing: float) -> tuple[Floats, Floats]:
    """``max(low r, high r)`` and its derivative by ``r``, or the Moreau envelope of it.

    The envelope, ``min_t max(low t, high t) + (t - r)^2 / (2 smoothing)``, is ``r^2 / (2
    smoothing)`` where ``low < r / smoothing < high`` and linear outside, less than the function by
    at most ``smoothing max(low^2, high^2) / 2``. Without smoothing the subgradient at 0 is 0, which
    must lie between ``low`` and ``high``.
    """
    if smoothing == 0.0:
        slopes = np.where(r > 0.0, high, np.where(r < 0.0, low, 0.0))
        return slopes * r, slopes
    slopes = np.clip(r / smoothing, low, high)
    return slopes * (r - 0.5 * smoothing * slopes), slopes


def curvature_at_kink(r: Floats, low: float, high: float, smoothing: float) -> Floats:
    """The second derivative of the envelope; 0 where it does not exist.

    NotImplementedError without smoothing.
    """
    if smoothing == 0.0:
        raise NotImplementedError(
            "a loss with kinks has no second derivative; pass smoothing=1e-3, for instance"
        )
    place = r / smoothing
    return np.where((place > low) & (place < high), 1.0 / smoothing, 0.0)
