"""Losses of two classes: labels are +1 and -1, a margin is how sure the model is of +1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distvec.losses.row_loss import RowLoss
from distvec.losses.rows import Floats


@dataclass(frozen=True)
class Logistic(RowLoss):
    """``ln(1 + exp(-y m))``: the negative log-likelihood of logistic regression. Convex, smooth.

    With ``e = exp(-|m|)`` no margin overflows: the loss is ``max(-y m, 0) + log1p(e)``, and the
    probability of the other class ``1 / (1 + e)`` or ``e / (1 + e)``.
    """

    labels: ClassVar[str] = "signs"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes; relative errors are a few units of rounding, however far out."""
        against = -labels * margins
        decay = np.exp(-np.abs(against))
        values = np.maximum(against, 0.0)
        values += np.log1p(decay)
        slopes = np.where(against > 0.0, 1.0, decay)
        decay += 1.0
        slopes /= decay
        slopes *= -labels
        return values, slopes

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """``p (1 - p)`` with the probability ``p`` of a class."""
        decay = np.exp(-np.abs(margins))
        return decay / np.square(1.0 + decay)
