"""The sums that principal components are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distvec.losses.loss import Arrays, Loss, Parameter, Sums
from distvec.losses.rows import Floats, Rows


@dataclass(frozen=True)
class Components(Loss):
    """``sum c |x V|^2 / 2`` of a table ``V`` with one column for each component.

    Its gradient is ``X^T X V``. With the intercepts ``-mean V`` rows are centered.
    """

    count: int
    _needs_labels: ClassVar[bool] = False

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(row=(self.count,)),)

    @property
    def takes_intercept(self) -> bool:
        return True

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        margins = rows.margins(arrays[0], intercept=intercept)
        slopes = margins if rows.weights is None else margins * rows.weights[:, None]
        value = 0.5 * float(np.vdot(margins, slopes))
        return Sums(value, rows.weight_sum, (rows.gradient(slopes, intercept=intercept),))

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        """The coordinates of rows."""
        return rows.margins(arrays[0], intercept=intercept)
