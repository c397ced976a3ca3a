"""Families and links of generalized linear models, as R and MLlib define them.

Tasks import this module, so it needs no Spark.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from scipy import special

from distvec.losses.rows import Floats

_EPSILON = 1e-16
"""Means and probabilities keep such a distance from the ends of their range."""

_DELTA = 0.1
"""Instead of labels of 0, where their logarithm is taken."""

_LARGEST = float(np.finfo(np.float64).max)


class Link(ABC):
    """The linear predictor as a function of the mean."""

    @abstractmethod
    def predictor(self, mean: Floats) -> Floats: ...

    @abstractmethod
    def slope(self, mean: Floats) -> Floats:
        """The derivative of ``predictor``."""

    @abstractmethod
    def mean(self, predictor: Floats) -> Floats:
        """The inverse of ``predictor``."""


@dataclass(frozen=True)
class Power(Link):
    """A power of the mean; 0 is the logarithm."""

    power: float

    def predictor(self, mean: Floats) -> Floats:
        return np.asarray(np.power(mean, self.power) if self.power else np.log(mean))

    def slope(self, mean: Floats) -> Floats:
        return np.asarray((self.power or 1.0) * np.power(mean, self.power - 1.0))

    def mean(self, predictor: Floats) -> Floats:
        found = np.power(predictor, 1.0 / self.power) if self.power else np.exp(predictor)
        return np.asarray(found)


@dataclass(frozen=True)
class Logit(Link):
    """``ln(mean / (1 - mean))``."""

    def predictor(self, mean: Floats) -> Floats:
        return np.asarray(special.logit(mean))

    def slope(self, mean: Floats) -> Floats:
        return 1.0 / (mean * (1.0 - mean))

    def mean(self, predictor: Floats) -> Floats:
        return np.asarray(special.expit(predictor))


@dataclass(frozen=True)
class Probit(Link):
    """The quantile of the normal distribution."""

    def predictor(self, mean: Floats) -> Floats:
        return np.asarray(special.ndtri(mean))

    def slope(self, mean: Floats) -> Floats:
        return math.sqrt(2.0 * math.pi) * np.exp(0.5 * np.square(special.ndtri(mean)))

    def mean(self, predictor: Floats) -> Floats:
        return np.asarray(special.ndtr(predictor))


@dataclass(frozen=True)
class CLogLog(Link):
    """``ln(-ln(1 - mean))``."""

    def predictor(self, mean: Floats) -> Floats:
        return np.log(-np.log1p(-mean))

    def slope(self, mean: Floats) -> Floats:
        return 1.0 / ((mean - 1.0) * np.log1p(-mean))

    def mean(self, predictor: Floats) -> Floats:
        return -np.expm1(-np.exp(predictor))


LINKS = MappingProxyType(
    {
        "identity": Power(1.0),
        "log": Power(0.0),
        "inverse": Power(-1.0),
        "sqrt": Power(0.5),
        "logit": Logit(),
        "probit": Probit(),
        "cloglog": CLogLog(),
    }
)


class Family(ABC):
    """A distribution of labels about a mean."""

    name: ClassVar[str]
    fits_dispersion: ClassVar[bool] = False
    """Whether Akaike's criterion counts one parameter more."""

    @abstractmethod
    def start(self, labels: Floats, weights: Floats) -> Floats:
        """The means that a fit starts from. ``ValueError`` for labels out of range."""

    @abstractmethod
    def variance(self, mean: Floats) -> Floats:
        """The variance over the dispersion."""

    @abstractmethod
    def deviance(self, labels: Floats, mean: Floats, weights: Floats) -> Floats:
        """Of each row."""

    @abstractmethod
    def within(self, mean: Floats) -> Floats:
        """``mean`` within the range of the family."""

    def log_likelihood(
        self, labels: Floats, mean: Floats, weights: Floats, dispersion: float
    ) -> Floats:
        """Of each row, for Akaike's criterion; ``dispersion`` is the mean deviance."""
        raise NotImplementedError(f"the likelihood of {self} is no finite sum")


@dataclass(frozen=True)
class Tweedie(Family):
    """A variance that is a power of the mean, 1 or more."""

    power: float
    name: ClassVar[str] = "tweedie"

    def start(self, labels: Floats, weights: Floats) -> Floats:
        _check(labels, f"tweedie({self.power})", above=self.power >= 2.0)
        return np.where(labels == 0.0, _DELTA, labels)

    def variance(self, mean: Floats) -> Floats:
        return np.asarray(np.power(mean, self.power))

    def deviance(self, labels: Floats, mean: Floats, weights: Floats) -> Floats:
        positive = np.maximum(labels, _DELTA) if self.power < 2.0 else labels
        first = labels * _difference(positive, mean, 1.0 - self.power)
        return 2.0 * weights * (first - _difference(labels, mean, 2.0 - self.power))

    def within(self, mean: Floats) -> Floats:
        return np.clip(mean, _EPSILON, _LARGEST)


def _difference(labels: Floats, mean: Floats, power: float) -> Floats:
    if power == 0.0:
        return np.log(labels / mean)
    return np.asarray((np.power(labels, power) - np.power(mean, power)) / power)


@dataclass(frozen=True)
class Gaussian(Family):
    """The normal distribution."""

    name: ClassVar[str] = "gaussian"
    fits_dispersion: ClassVar[bool] = True

    def start(self, labels: Floats, weights: Floats) -> Floats:
        return labels

    def variance(self, mean: Floats) -> Floats:
        return np.ones(mean.shape)

    def deviance(self, labels: Floats, mean: Floats, weights: Floats) -> Floats:
        return weights * np.square(labels - mean)

    def within(self, mean: Floats) -> Floats:
        return np.clip(mean, -_LARGEST, _LARGEST)

    def log_likelihood(
        self, labels: Floats, mean: Floats, weights: Floats, dispersion: float
    ) -> Floats:
        """With the mean deviance over rows, not over weights."""
        return 0.5 * (np.log(weights) - math.log(2.0 * math.pi * dispersion) - 1.0)


@dataclass(frozen=True)
class Binomial(Family):
    """Shares of successes; weights are numbers of trials."""

    name: ClassVar[str] = "binomial"

    def start(self, labels: Floats, weights: Floats) -> Floats:
        mean = (weights * labels + 0.5) / (weights + 1.0)
        bad = np.flatnonzero(~((mean > 0.0) & (mean < 1.0)))
        if bad.size:
            raise ValueError(
                "The response variable of Binomial family should be in range (0, 1), but got "
                f"{labels[bad[0]]:g}"
            )
        return mean

    def variance(self, mean: Floats) -> Floats:
        return mean * (1.0 - mean)

    def deviance(self, labels: Floats, mean: Floats, weights: Floats) -> Floats:
        others = _y_log(1.0 - labels, 1.0 - mean)
        return 2.0 * weights * (_y_log(labels, mean) + others)

    def within(self, mean: Floats) -> Floats:
        return np.clip(mean, _EPSILON, 1.0 - _EPSILON)

    def log_likelihood(
        self, labels: Floats, mean: Floats, weights: Floats, dispersion: float
    ) -> Floats:
        trials, hits = np.floor(weights + 0.5), np.floor(labels * weights + 0.5)
        ways = special.gammaln(trials + 1.0) - special.gammaln(hits + 1.0)
        ways -= special.gammaln(trials - hits + 1.0)
        found = ways + special.xlogy(hits, mean) + special.xlog1py(trials - hits, -mean)
        return np.where(trials == 0.0, 0.0, found)


def _y_log(labels: Floats, mean: Floats) -> Floats:
    return np.asarray(special.xlogy(labels, labels / mean))


@dataclass(frozen=True)
class Poisson(Tweedie):
    """Counts."""

    power: float = 1.0
    name: ClassVar[str] = "poisson"

    def start(self, labels: Floats, weights: Floats) -> Floats:
        _check(labels, "Poisson")
        return np.maximum(labels, _DELTA)

    def deviance(self, labels: Floats, mean: Floats, weights: Floats) -> Floats:
        return 2.0 * weights * (_y_log(labels, mean) - (labels - mean))

    def log_likelihood(
        self, labels: Floats, mean: Floats, weights: Floats, dispersion: float
    ) -> Floats:
        counts = np.trunc(labels)
        found = special.xlogy(counts, mean) - mean - special.gammaln(counts + 1.0)
        return np.asarray(weights * found)


@dataclass(frozen=True)
class Gamma(Tweedie):
    """Positive numbers."""

    power: float = 2.0
    name: ClassVar[str] = "gamma"
    fits_dispersion: ClassVar[bool] = True

    def start(self, labels: Floats, weights: Floats) -> Floats:
        _check(labels, "Gamma", above=True)
        return labels

    def deviance(self, labels: Floats, mean: Floats, weights: Floats) -> Floats:
        return -2.0 * weights * (np.log(labels / mean) - (labels - mean) / mean)

    def log_likelihood(
        self, labels: Floats, mean: Floats, weights: Floats, dispersion: float
    ) -> Floats:
        shape, scale = 1.0 / dispersion, mean * dispersion
        found = (shape - 1.0) * np.log(labels) - labels / scale - shape * np.log(scale)
        return np.asarray(weights * (found - special.gammaln(shape)))


def _check(labels: Floats, family: str, *, above: bool = False) -> None:
    usable = labels > 0.0 if above else labels >= 0.0
    bad = np.flatnonzero(~usable)
    if bad.size:
        raise ValueError(
            f"The response variable of {family} family should be "
            f"{'positive' if above else 'non-negative'}, but got {labels[bad[0]]:g}"
        )


FAMILIES = MappingProxyType(
    {
        "gaussian": (Gaussian(), ("identity", "log", "inverse")),
        "binomial": (Binomial(), ("logit", "probit", "cloglog")),
        "poisson": (Poisson(), ("log", "identity", "sqrt")),
        "gamma": (Gamma(), ("inverse", "identity", "log")),
    }
)
"""By name, with the links that MLlib has for them, the default first."""

_BY_VARIANCE = {0.0: Gaussian(), 1.0: Poisson(), 2.0: Gamma()}


@dataclass(frozen=True)
class Distribution:
    """A family with a link."""

    family: Family
    link: Link

    @classmethod
    def of(cls, family: str, link: str | None) -> Distribution:
        """Of a family of ``FAMILIES``. ``ValueError`` if it has no such link."""
        found, links = FAMILIES[family.lower()]
        name = links[0] if link is None else link.lower()
        if name not in links:
            raise ValueError(
                f"Generalized Linear Regression with {family} family does not support {link} link "
                f"function; it has {', '.join(links)}"
            )
        return cls(found, LINKS[name])

    @classmethod
    def of_powers(cls, variance: float, link: float | None) -> Distribution:
        """Of the family "tweedie", by the powers of the variance and of the link."""
        family = _BY_VARIANCE.get(variance) or Tweedie(variance)
        return cls(family, Power(1.0 - variance if link is None else link))

    @property
    def is_linear(self) -> bool:
        """Whether least squares fit it in one step."""
        return isinstance(self.family, Gaussian) and self.link == LINKS["identity"]

    def predictor(self, mean: Floats) -> Floats:
        """The linear predictor of a mean."""
        with np.errstate(all="ignore"):
            return self.link.predictor(self.family.within(mean))

    def mean(self, predictor: Any) -> Floats:
        """The mean of a linear predictor, within the range of the family."""
        with np.errstate(all="ignore"):
            return self.family.within(self.link.mean(np.asarray(predictor, np.float64)))
