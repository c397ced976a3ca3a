"""Losses of real labels ``y``, functions of the residual ``r``, and of labels that are not
negative, whose mean is ``exp(m)``: generalised linear models with a log link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distvec.losses.loss import check_number
from distvec.losses.row_losses import KinkedLoss, RowLoss, curvature_at_kink, two_slopes
from distvec.losses.rows import Floats


@dataclass(frozen=True)
class Squared(RowLoss):
    """``(m - y)^2 / 2``: least squares. Convex, smooth."""

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        residuals = margins - labels
        return 0.5 * residuals * residuals, residuals

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1."""
        return np.ones(margins.shape)


@dataclass(frozen=True, kw_only=True)
class Absolute(KinkedLoss):
    """``|m - y|``: least absolute deviations, whose constant is the median. Convex; the subgradient
    at ``m = y`` is 0.

    With ``smoothing`` g > 0 its Moreau envelope, at most g/2 below: ``(m - y)^2 / (2 g)`` where
    ``|m - y| < g``, and ``|m - y| - g/2`` beyond.
    """

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        return two_slopes(margins - labels, -1.0, 1.0, self.smoothing)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1/g where it is quadratic, else 0."""
        return curvature_at_kink(margins - labels, -1.0, 1.0, self.smoothing)


@dataclass(frozen=True, kw_only=True)
class Huber(RowLoss):
    """``(m - y)^2 / 2`` where ``|m - y| < t``, the ``threshold``, and ``t |m - y| - t^2 / 2``
    beyond. Convex; its gradient is continuous and bounded (Huber 1964)."""

    threshold: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "threshold", self.threshold > 0.0, "a number above 0")

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        return two_slopes(margins - labels, -self.threshold, self.threshold, 1.0)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1 where it is quadratic, else 0: a generalised second derivative."""
        return curvature_at_kink(margins - labels, -self.threshold, self.threshold, 1.0)


@dataclass(frozen=True, kw_only=True)
class Quantile(KinkedLoss):
    """``q (y - m)`` where ``m < y``, and ``(1 - q) (m - y)`` where ``m > y``: quantile regression,
    ``q`` the ``quantile`` (Koenker and Bassett 1978). Convex; the subgradient at ``m = y`` is 0.

    With ``smoothing`` g > 0 its Moreau envelope, at most ``g max(q, 1 - q)^2 / 2`` below:
    quadratic where ``-g (1 - q) < y - m < g q``.
    """

    quantile: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "quantile", 0.0 < self.quantile < 1.0, "a number above 0 and below 1")

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        return two_slopes(margins - labels, -self.quantile, 1.0 - self.quantile, self.smoothing)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1/g where it is quadratic, else 0."""
        low, high = -self.quantile, 1.0 - self.quantile
        return curvature_at_kink(margins - labels, low, high, self.smoothing)


@dataclass(frozen=True, kw_only=True)
class EpsilonInsensitive(KinkedLoss):
    """``max(0, |m - y| - epsilon)``: support vector regression. Convex; the subgradient at
    ``|m - y| = epsilon`` is 0.

    With ``smoothing`` g > 0 its Moreau envelope, at most g/2 below: ``(|m - y| - epsilon)^2 /
    (2 g)`` where ``epsilon < |m - y| < epsilon + g``, and linear beyond.
    """

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "epsilon", self.epsilon >= 0.0, "a number of at least 0")

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        residuals = margins - labels
        excess = np.maximum(np.abs(residuals) - self.epsilon, 0.0)
        values, slopes = two_slopes(excess, 0.0, 1.0, self.smoothing)
        return values, np.copysign(slopes, residuals)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1/g where it is quadratic, else 0."""
        excess = np.abs(margins - labels) - self.epsilon
        return curvature_at_kink(excess, 0.0, 1.0, self.smoothing)


@dataclass(frozen=True, kw_only=True)
class SquaredEpsilonInsensitive(RowLoss):
    """``max(0, |m - y| - epsilon)^2``. Convex; its gradient is continuous."""

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        check_number(self, "epsilon", self.epsilon >= 0.0, "a number of at least 0")

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        residuals = margins - labels
        excess = np.maximum(np.abs(residuals) - self.epsilon, 0.0)
        return np.square(excess), np.copysign(2.0 * excess, residuals)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """2 where ``|m - y| > epsilon``, else 0: a generalised second derivative."""
        return np.where(np.abs(margins - labels) > self.epsilon, 2.0, 0.0)


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
