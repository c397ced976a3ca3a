"""Losses of labels that are not negative, whose mean is ``exp(m)``: generalised linear models with
a logarithmic link.

Each value is half the unit deviance of the label ``y``, without the terms that no margin is in: as
scikit-learn has it, so that penalties mean the same. Twice the difference of two values is that of
the deviances. With offsets ``ln(exposure)``, or with labels divided by the exposure and weights
multiplied by it, they model rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distvec.losses.checks import check_number
from distvec.losses.one_margin import RowLoss
from distvec.losses.rows import Floats

_LARGEST = float(np.finfo(np.float64).max)
_OVERFLOW = 710.0
"""exp of it is infinite."""


@dataclass(frozen=True)
class Poisson(RowLoss):
    """``exp(m) - y m``: the negative log-likelihood of Poisson counts without ``ln(y!)``. Convex,
    smooth.

    As half a deviance it lacks ``y ln(y) - y``.
    """

    labels: ClassVar[str] = "counts"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes; both infinite where the mean is."""
        means = np.exp(margins)
        # Where the mean is infinite so is the value, however large the label is.
        return means - labels * np.clip(margins, -_LARGEST, _OVERFLOW), means - labels

    def predictions(self, scores: Floats) -> Floats:
        """The mean, ``exp(m)``."""
        with np.errstate(over="ignore"):
            return np.exp(scores)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """The mean."""
        return np.exp(margins)


@dataclass(frozen=True)
class Gamma(RowLoss):
    """``m + y exp(-m)``: the negative log-likelihood of gamma variables, over their shape. Convex,
    smooth.

    As half a deviance it lacks ``-ln(y) - 1``.
    """

    labels: ClassVar[str] = "positive"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        ratios = labels * np.exp(-margins)
        return np.maximum(margins, -_LARGEST) + ratios, 1.0 - ratios

    def predictions(self, scores: Floats) -> Floats:
        """The mean, ``exp(m)``."""
        with np.errstate(over="ignore"):
            return np.exp(scores)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """The label over its mean."""
        return labels * np.exp(-margins)


@dataclass(frozen=True, kw_only=True)
class Tweedie(RowLoss):
    """``exp((2 - p) m) / (2 - p) + y exp((1 - p) m) / (p - 1)``: sums of a Poisson number of gamma
    variables, with variances like mean^p, p the ``power``. Convex, smooth.

    As half a deviance it lacks ``-y^(2 - p) / ((p - 1) (2 - p))``. For p = 1 and p = 2 there are
    ``Poisson`` and ``Gamma``; the slopes are theirs there.
    """

    labels: ClassVar[str] = "counts"
    power: float = 1.5

    def __post_init__(self) -> None:
        instead = "above 1 and below 2; for 1 write Poisson(), for 2 Gamma()"
        check_number(self, "power", 1.0 < self.power < 2.0, instead)

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        mean, label = self._terms(margins, labels)
        return mean / (2.0 - self.power) + label / (self.power - 1.0), mean - label

    def predictions(self, scores: Floats) -> Floats:
        """The mean, ``exp(m)``."""
        with np.errstate(over="ignore"):
            return np.exp(scores)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """Positive."""
        mean, label = self._terms(margins, labels)
        return (2.0 - self.power) * mean + (self.power - 1.0) * label

    def _terms(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """``mean^(2 - p)`` and ``y mean^(1 - p)``, which is 0 for y = 0 whatever the mean."""
        label = labels * np.exp((1.0 - self.power) * margins)
        return np.exp((2.0 - self.power) * margins), np.where(labels > 0.0, label, 0.0)
