"""Losses of real labels ``y``: functions of the residual ``r``, that of a margin from its label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distvec.losses.checks import check_number
from distvec.losses.kink import KinkedLoss, kink_curvature, kinked
from distvec.losses.one_margin import RowLoss
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
        return kinked(margins - labels, -1.0, 1.0, self.smoothing)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1/g where it is quadratic, else 0."""
        return kink_curvature(margins - labels, -1.0, 1.0, self.smoothing)


@dataclass(frozen=True, kw_only=True)
class Huber(RowLoss):
    """``(m - y)^2 / 2`` where ``|m - y| < t``, the ``threshold``, and ``t |m - y| - t^2 / 2``
    beyond. Convex; its gradient is continuous and bounded (Huber 1964)."""

    threshold: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "threshold", self.threshold > 0.0, "a number above 0")

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """Values and slopes."""
        return kinked(margins - labels, -self.threshold, self.threshold, 1.0)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1 where it is quadratic, else 0: a generalised second derivative."""
        return kink_curvature(margins - labels, -self.threshold, self.threshold, 1.0)


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
        return kinked(margins - labels, -self.quantile, 1.0 - self.quantile, self.smoothing)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1/g where it is quadratic, else 0."""
        low, high = -self.quantile, 1.0 - self.quantile
        return kink_curvature(margins - labels, low, high, self.smoothing)


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
        values, slopes = kinked(excess, 0.0, 1.0, self.smoothing)
        return values, np.copysign(slopes, residuals)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        """1/g where it is quadratic, else 0."""
        excess = np.abs(margins - labels) - self.epsilon
        return kink_curvature(excess, 0.0, 1.0, self.smoothing)


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
