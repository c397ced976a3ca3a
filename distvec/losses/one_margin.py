"""Losses of one margin and one label a row."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distvec.losses.loss import Arrays, Loss, Sums
from distvec.losses.row_blocks import evaluate
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
            found = evaluate(self.row, str(self), ("values", "slopes"), rows, margins)
            for part, (of_block, slopes) in found:
                values.append(float(of_block.sum()))
                all_slopes[part] = slopes
            gradient = rows.gradient(all_slopes, intercept=intercept)
        return Sums(total(values), rows.weight_sum, (gradient,))

    def products(
        self, rows: Rows, arrays: Arrays, directions: Arrays, *, intercept: bool
    ) -> Arrays:
        """``X^T (c f'' * X v)``: three passes over the matrix."""
        if not self.has_products:
            return super().products(rows, arrays, directions, intercept=intercept)
        with np.errstate(all="ignore"):
            margins = rows.margins(arrays[0], intercept=intercept)
            changes = replace(rows, offsets=None).margins(directions[0], intercept=intercept)
            found = evaluate(self._curvature, str(self), ("curvatures",), rows, margins)
            for part, (curvatures,) in found:
                changes[part] *= curvatures
            return (rows.gradient(changes, intercept=intercept),)

    def _curvature(self, margins: Floats, labels: Floats) -> tuple[Any]:
        return (self.curvature(margins, labels),)


def total(values: Sequence[float]) -> float:
    """Their sum, rounded once; also where some are infinite or NaN."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # too large together; infinities of both signs
        return sum(values)
