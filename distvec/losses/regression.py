"""Losses of real labels ``y``, functions of the residual ``r``, and of labels that are not
negative, whose mean is ``exp(m)``: generalised linear models with a log link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distvec.losses.loss import (
    Arrays,
    Loss,
    Parameter,
    Sums,
    check_number,
    multiply_weights,
    weights_of,
)
from distvec.losses.row_losses import (
    KinkedLoss,
    RowLoss,
    curvature_at_kink,
    sum_once_rounded,
    two_slopes,
)
from distvec.losses.rows import Floats, Rows, blocks


@dataclass(frozen=True)
class Squared(RowLoss):
    """Squared loss ``(m - y)^2 / 2`` of least squares.

    Labels are real numbers. The loss is convex and smooth.

    Examples
    --------
    >>> from distvec.losses import Squared
    >>> Squared().row(np.array([3.0]), np.array([1.0]))
    (array([2.]), array([2.]))
    """

    formula: ClassVar[str] = "(m - y)^2 / 2"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        residuals = margins - labels
        return 0.5 * residuals * residuals, residuals

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return np.ones(margins.shape)


@dataclass(frozen=True, kw_only=True)
class Absolute(KinkedLoss):
    """Absolute loss ``|m - y|`` of least absolute deviations.

    Labels are real numbers. The best constant is the median. The loss is convex. Its subgradient
    at ``m = y`` is 0.

    Parameters
    ----------
    smoothing : float, default 0.0
        If it is a number g > 0, the loss is replaced by its Moreau envelope, at most g/2 below:
        ``(m - y)^2 / (2 g)`` for ``|m - y| < g``, and ``|m - y| - g/2`` beyond.

    Examples
    --------
    >>> from distvec.losses import Absolute
    >>> Absolute().row(np.array([3.0, 1.0]), np.array([1.0, 1.0]))
    (array([2., 0.]), array([1., 0.]))
    """

    formula: ClassVar[str] = "|m - y|; with `smoothing=g` within g/2 of it"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        return two_slopes(margins - labels, -1.0, 1.0, self.smoothing)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return curvature_at_kink(margins - labels, -1.0, 1.0, self.smoothing)


@dataclass(frozen=True, kw_only=True)
class Huber(RowLoss):
    """Huber loss: squared near the label, linear far from it.

    For ``|m - y| < t`` it is ``(m - y)^2 / 2``, beyond ``t |m - y| - t^2 / 2``. Labels are real
    numbers. The loss is convex. Its gradient is continuous and bounded.

    Parameters
    ----------
    threshold : float, default 1.0
        The residual ``t > 0`` beyond which the loss is linear.

    References
    ----------
    P. J. Huber, "Robust estimation of a location parameter", 1964.

    Examples
    --------
    >>> from distvec.losses import Huber
    >>> Huber().row(np.array([0.5, 3.0]), np.array([0.0, 0.0]))
    (array([0.125, 2.5  ]), array([0.5, 1. ]))
    """

    formula: ClassVar[str] = (
        "(m - y)^2 / 2 for |m - y| < t (`threshold`), t |m - y| - t^2 / 2 beyond"
    )
    threshold: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "threshold", self.threshold > 0.0, "a number above 0")

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        return two_slopes(margins - labels, -self.threshold, self.threshold, 1.0)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return curvature_at_kink(margins - labels, -self.threshold, self.threshold, 1.0)


@dataclass(frozen=True, kw_only=True)
class ScaledHuber(Loss):
    """Huber loss with a scale ``s`` of the residuals that is fitted, too.

    For ``|m - y| < e s`` it is ``(s + (m - y)^2 / s) / 2``, beyond
    ``(s + 2 e |m - y| - e^2 s) / 2``. The parameters are a dict: ``"w"``, ``(features [+ 1],)``,
    and ``"log_scale"``, ``(1,)``, which is ``ln s``.

    Parameters
    ----------
    epsilon : float, default 1.35
        The residual ``e > 1`` over the scale beyond which the loss is linear.

    References
    ----------
    P. J. Huber, "Robust Statistics", 1981, section 7.8. A. B. Owen, "A robust hybrid of lasso and
    ridge regression", 2007.
    """

    epsilon: float = 1.35

    def __post_init__(self) -> None:
        check_number(self, "epsilon", self.epsilon > 1.0, "a number above 1")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("w"), Parameter("log_scale", rows=1)

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        with np.errstate(all="ignore"):
            scale = np.exp(float(arrays[1][0]))
            margins = rows.margins(arrays[0], intercept=intercept)
            values, by_log_scale, slopes = [], [], np.empty(len(rows))
            for part in blocks(len(rows)):
                weights = weights_of(rows, part)
                residuals = (margins[part] - rows.labels[part]) / scale
                near = np.clip(residuals, -self.epsilon, self.epsilon)
                value = 0.5 * scale * (1.0 + near * (2.0 * residuals - near))
                values.append(float(multiply_weights(value, weights).sum()))
                along = 0.5 * scale * (1.0 - near * near)
                by_log_scale.append(float(multiply_weights(along, weights).sum()))
                slopes[part] = multiply_weights(near, weights)
            gradient = rows.gradient(slopes, intercept=intercept)
        shared = np.array([sum_once_rounded(by_log_scale)])
        return Sums(sum_once_rounded(values), rows.weight_sum, (gradient, shared))


@dataclass(frozen=True, kw_only=True)
class Quantile(KinkedLoss):
    """Quantile loss: ``q (y - m)`` below the label, ``(1 - q) (m - y)`` above it.

    Labels are real numbers. The best constant is the ``q``-quantile. The loss is convex. Its
    subgradient at ``m = y`` is 0.

    Parameters
    ----------
    smoothing : float, default 0.0
        If it is a number g > 0, the loss is replaced by its Moreau envelope, at most
        ``g max(q, 1 - q)^2 / 2`` below: quadratic for ``-g (1 - q) < y - m < g q``.
    quantile : float, default 0.5
        The quantile ``q``, between 0 and 1.

    References
    ----------
    R. Koenker and G. Bassett, "Regression quantiles", 1978.

    Examples
    --------
    >>> from distvec.losses import Quantile
    >>> Quantile(quantile=0.75).row(np.array([0.0, 2.0]), np.array([1.0, 1.0]))
    (array([0.75, 0.25]), array([-0.75,  0.25]))
    """

    formula: ClassVar[str] = (
        "q (y - m) for m < y (`quantile`), (1 - q) (m - y) for m > y; `smoothing=`"
    )
    quantile: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "quantile", 0.0 < self.quantile < 1.0, "a number above 0 and below 1")

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        return two_slopes(margins - labels, -self.quantile, 1.0 - self.quantile, self.smoothing)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        low, high = -self.quantile, 1.0 - self.quantile
        return curvature_at_kink(margins - labels, low, high, self.smoothing)


@dataclass(frozen=True, kw_only=True)
class EpsilonInsensitive(KinkedLoss):
    """Epsilon-insensitive loss ``max(0, |m - y| - epsilon)`` of support vector regression.

    Labels are real numbers. The loss is convex. Its subgradient at ``|m - y| = epsilon`` is 0.

    Parameters
    ----------
    smoothing : float, default 0.0
        If it is a number g > 0, the loss is replaced by its Moreau envelope, at most g/2 below:
        ``(|m - y| - epsilon)^2 / (2 g)`` for ``epsilon < |m - y| < epsilon + g``, and linear
        beyond.
    epsilon : float, default 0.1
        The residual up to which the loss is 0.

    Examples
    --------
    >>> from distvec.losses import EpsilonInsensitive
    >>> EpsilonInsensitive(epsilon=0.5).row(np.array([0.25, 2.0]), np.zeros(2))
    (array([0. , 1.5]), array([0., 1.]))
    """

    formula: ClassVar[str] = "max(0, |m - y| - e) (`epsilon`); with `smoothing=g` within g/2 of it"
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "epsilon", self.epsilon >= 0.0, "a number of at least 0")

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        residuals = margins - labels
        excess = np.maximum(np.abs(residuals) - self.epsilon, 0.0)
        values, slopes = two_slopes(excess, 0.0, 1.0, self.smoothing)
        return values, np.copysign(slopes, residuals)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        excess = np.abs(margins - labels) - self.epsilon
        return curvature_at_kink(excess, 0.0, 1.0, self.smoothing)


@dataclass(frozen=True, kw_only=True)
class SquaredEpsilonInsensitive(RowLoss):
    """Squared epsilon-insensitive loss ``max(0, |m - y| - epsilon)^2``.

    Labels are real numbers. The loss is convex. Its gradient is continuous.

    Parameters
    ----------
    epsilon : float, default 0.1
        The residual up to which the loss is 0.

    Examples
    --------
    >>> from distvec.losses import SquaredEpsilonInsensitive
    >>> SquaredEpsilonInsensitive(epsilon=0.5).row(np.array([0.25, 2.0]), np.zeros(2))
    (array([0.  , 2.25]), array([0., 3.]))
    """

    formula: ClassVar[str] = "max(0, |m - y| - e)^2"
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        check_number(self, "epsilon", self.epsilon >= 0.0, "a number of at least 0")

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        residuals = margins - labels
        excess = np.maximum(np.abs(residuals) - self.epsilon, 0.0)
        return np.square(excess), np.copysign(2.0 * excess, residuals)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return np.where(np.abs(margins - labels) > self.epsilon, 2.0, 0.0)


_LARGEST = float(np.finfo(np.float64).max)
_OVERFLOW = 710.0
"""exp of it is infinite."""


@dataclass(frozen=True)
class Poisson(RowLoss):
    """Poisson loss ``exp(m) - y m`` of counts: a negative log-likelihood without ``ln(y!)``.

    Labels are 0 or more, their mean is ``exp(m)``. The loss is convex and smooth. Half the
    deviance has the further term ``y ln(y) - y``.

    Examples
    --------
    >>> from distvec.losses import Poisson
    >>> Poisson().row(np.array([0.0]), np.array([3.0]))
    (array([1.]), array([-2.]))
    """

    formula: ClassVar[str] = "exp(m) - y m"
    labels: ClassVar[str] = "counts"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        means = np.exp(margins)
        # Where the mean is infinite so is the value, however large the label is.
        return means - labels * np.clip(margins, -_LARGEST, _OVERFLOW), means - labels

    def predictions(self, scores: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(scores)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return np.exp(margins)


@dataclass(frozen=True)
class Gamma(RowLoss):
    """Gamma loss ``m + y exp(-m)``: a negative log-likelihood divided by the shape.

    Labels are positive, their mean is ``exp(m)``. The loss is convex and smooth. Half the
    deviance has the further term ``-ln(y) - 1``.

    Examples
    --------
    >>> from distvec.losses import Gamma
    >>> Gamma().row(np.array([0.0]), np.array([3.0]))
    (array([3.]), array([-2.]))
    """

    formula: ClassVar[str] = "m + y exp(-m)"
    labels: ClassVar[str] = "positive"

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        ratios = labels * np.exp(-margins)
        return np.maximum(margins, -_LARGEST) + ratios, 1.0 - ratios

    def predictions(self, scores: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(scores)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        return labels * np.exp(-margins)


@dataclass(frozen=True, kw_only=True)
class Tweedie(RowLoss):
    """Tweedie loss ``exp((2 - p) m) / (2 - p) + y exp((1 - p) m) / (p - 1)``.

    It suits sums of a Poisson number of gamma variables, such as insurance claims. Labels are 0 or
    more, their mean is ``exp(m)``, their variance is proportional to the mean to the power ``p``.
    The loss is convex and smooth.

    Parameters
    ----------
    power : float, default 1.5
        The power ``p``, above 1 and below 2. Use ``Poisson`` for 1 and ``Gamma`` for 2: the slopes
        agree there.

    Notes
    -----
    Half the deviance has the further term ``-y^(2 - p) / ((p - 1) (2 - p))``.

    Examples
    --------
    >>> from distvec.losses import Tweedie
    >>> Tweedie(power=1.5).row(np.array([0.0]), np.array([3.0]))
    (array([8.]), array([-2.]))
    """

    formula: ClassVar[str] = (
        "exp((2 - p) m) / (2 - p) + y exp((1 - p) m) / (p - 1), 1 < p < 2 (`power`)"
    )
    labels: ClassVar[str] = "counts"
    power: float = 1.5

    def __post_init__(self) -> None:
        instead = "above 1 and below 2; for 1 write Poisson(), for 2 Gamma()"
        check_number(self, "power", 1.0 < self.power < 2.0, instead)

    def row(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        mean, label = self._terms(margins, labels)
        return mean / (2.0 - self.power) + label / (self.power - 1.0), mean - label

    def predictions(self, scores: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(scores)

    def curvature(self, margins: Floats, labels: Floats) -> Floats:
        mean, label = self._terms(margins, labels)
        return (2.0 - self.power) * mean + (self.power - 1.0) * label

    def _terms(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """``mean^(2 - p)`` and ``y mean^(1 - p)``, which is 0 for y = 0 whatever the mean."""
        label = labels * np.exp((1.0 - self.power) * margins)
        return np.exp((2.0 - self.power) * margins), np.where(labels > 0.0, label, 0.0)
