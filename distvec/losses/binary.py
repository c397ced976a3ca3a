"""Losses of two classes: a label ``y`` is +1 or -1, a margin ``m`` how sure the model is of +1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distvec.losses.kink import KinkedLoss, kink_curvature, kinked
from distvec.losses.one_margin import RowLoss
from distvec.losses.rows import Floats


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
        values, slopes = kinked(short, 0.0, 1.0, self.smoothing)
        return values, -labels * slopes

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1/g where it is quadratic, else 0."""
        return kink_curvature(1.0 - labels * margins, 0.0, 1.0, self.smoothing)


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
