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
    """``sum c f(m, y)`` over rows: weights ``c``, margins ``m = <x, w> [+ intercept] [+ offset]``,
    labels ``y``.

    One that has a ``curvature`` has products with its Hessian.
    """

    @abstractmethod
    def row(self, margins: Floats, labels: Floats) -> tuple[Any, Any]:
        """``f`` and its derivative by the margin, ``(rows,)`` each, of a block of rows.

        The arguments may not be written to. A margin is infinite or NaN where a solver went too far
        out.
        """

    def curvature(self, margins: Floats, labels: Floats) -> Any:
        """The second derivative of ``f`` by the margin, ``(rows,)``."""
        raise NotImplementedError(f"{self} has no second derivative")

    @property
    def has_products(self) -> bool:
        """Whether there is a ``curvature``."""
        return type(self).curvature is not RowLoss.curvature

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        """Two passes over the matrix, and one by blocks of rows over margins and labels.

        LossError, if ``row`` raises or gives other shapes; ``NotFinite``, which is one, for NaN
        where margin and value are finite.
        """
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
        """``X^T (c f'' * X v)``: three passes over the matrix."""
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
        """Where it is smooth."""
        return self.smoothing > 0.0

    @property
    def has_kinks(self) -> bool:
        """Without smoothing."""
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
        raise NotImplementedError("what has a kink has no second derivative; give it smoothing=")
    place = r / smoothing
    return np.where((place > low) & (place < high), 1.0 / smoothing, 0.0)
