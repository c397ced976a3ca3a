"""Families and links of generalized linear models, in SciPy's terms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from distvec.spark.ml.families import FAMILIES, LINKS, Distribution, Power, Tweedie

MEANS = np.linspace(0.05, 0.95, 7)


@pytest.mark.parametrize("link", [*LINKS.values(), Power(-0.6), Power(2.0)])
def test_links_have_inverses_and_slopes(link):
    predictor = link.predictor(MEANS)
    assert np.allclose(link.mean(predictor), MEANS)
    step = 1e-6
    slopes = (link.predictor(MEANS + step) - link.predictor(MEANS - step)) / (2 * step)
    assert np.allclose(link.slope(MEANS), slopes, rtol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_deviances_and_likelihoods_of_families(name):
    family, _ = FAMILIES[name]
    labels = np.array([0.25, 0.5, 0.75, 1.0]) if name == "binomial" else np.array([1, 2, 3, 5.0])
    means, weights = np.array([0.3, 0.4, 0.9, 0.6]), np.array([4.0, 8.0, 4.0, 2.0])
    found = family.log_likelihood(labels, means, weights, 0.5)
    expected = {
        "gaussian": stats.norm(labels, np.sqrt(0.5 / weights)).logpdf(labels),
        "binomial": stats.binom(weights, means).logpmf(weights * labels),
        "poisson": weights * stats.poisson(means).logpmf(labels),
        "gamma": weights * stats.gamma(2.0, scale=means / 2.0).logpdf(labels),
    }[name]
    # MLlib takes the mean deviance for each row's share in that of the normal distribution.
    expected = expected - 0.5 if name == "gaussian" else expected
    assert np.allclose(found, expected)
    at_best = family.log_likelihood(labels, labels, weights, 0.5)
    if name in ("binomial", "poisson"):
        finite = np.isfinite(at_best)
        deviance = 2.0 * (at_best - found)
        assert np.allclose(family.deviance(labels, means, weights)[finite], deviance[finite])
    step = 1e-6
    change = family.deviance(labels, means + step, weights)
    change -= family.deviance(labels, means - step, weights)
    slopes = -2.0 * weights * (labels - means) / family.variance(means)
    assert np.allclose(change / (2 * step), slopes, rtol=1e-5)
    assert family.within(np.array([-1e9, 1e-3, np.inf]))[1] == 1e-3


def test_tweedie():
    labels, means, weights = np.array([0.0, 1.0, 4.0]), np.array([1.0, 2.0, 3.0]), np.ones(3)
    for power in (1.5, 3.0):
        family, labels = Tweedie(power), labels + (power > 2.0)
        positive = np.maximum(labels, 0.1)  # as MLlib does
        first = labels * (positive ** (1 - power) - means ** (1 - power)) / (1 - power)
        second = (labels ** (2 - power) - means ** (2 - power)) / (2 - power)
        assert np.allclose(family.deviance(labels, means, weights), 2 * (first - second))
    assert Distribution.of_powers(1.6, None).link == Power(1.0 - 1.6)
    assert Distribution.of_powers(1.0, None) == Distribution.of("Poisson", None)
    assert Distribution.of("gaussian", "Identity").is_linear
    assert not Distribution.of("gaussian", "log").is_linear
    assert Distribution.of("binomial", None).mean(np.array([800.0])) < 1.0
    assert np.isclose(Distribution.of("binomial", "probit").mean(0.3), special.ndtr(0.3))


@pytest.mark.parametrize(
    ("distribution", "labels", "message"),
    [
        (Distribution.of("poisson", None), [1.0, -1.0], "Poisson family should be non-neg.*got -1"),
        (Distribution.of("gamma", None), [0.0], "Gamma family should be positive, but got 0"),
        (Distribution.of("binomial", None), [2.0], "Binomial family should be in range"),
        (Distribution.of_powers(1.5, None), [-2.0], r"tweedie\(1\.5\) family should be non-neg"),
        (Distribution.of_powers(2.5, None), [0.0], r"tweedie\(2\.5\) family should be positive"),
    ],
)
def test_labels_out_of_range(distribution, labels, message):
    with pytest.raises(ValueError, match=message):
        distribution.family.start(np.array(labels), np.ones(len(labels)))
    with pytest.raises(ValueError, match="gamma family does not support logit link function"):
        Distribution.of("gamma", "logit")
