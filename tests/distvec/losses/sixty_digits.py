"""The losses of the shelf once more, in 60 digits, as textbooks write them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import NamedTuple

from distvec import losses

DIGITS = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
D = Decimal


class Exact(NamedTuple):
    """What a row contributes; ``terms`` are the sizes of what value, slope and curvature are
    differences of, ``kinks`` the margins where the curvature (or already the slope) jumps."""

    value: Decimal
    slope: Decimal
    curvature: Decimal
    terms: tuple[Decimal, Decimal, Decimal] = (D(0), D(0), D(0))
    kinks: tuple[Decimal, ...] = ()


def exact(loss: losses.RowLoss, margin: float, label: float) -> Exact:
    """Of one row."""
    with localcontext(DIGITS):
        return _FORMULAS[type(loss)](loss, D(margin), D(label))


def _logistic(loss, m, y):
    z = y * m
    e = (-abs(z)).exp()
    log1p = e - e * e / 2 if e < D("1e-40") else (1 + e).ln()
    wrong = 1 / (1 + e) if z < 0 else e / (1 + e)
    return Exact(max(-z, D(0)) + log1p, -y * wrong, e / (1 + e) ** 2)


def _envelope(r, low, high, g):
    """Value, slope and curvature by r of the Moreau envelope of max(low r, high r)."""
    for slope in (low, high):
        if (r >= g * slope if slope == high else r <= g * slope) and (g or r):
            return slope * r - g * slope**2 / 2, slope, D(0)
    return (r * r / (2 * g), r / g, 1 / g) if g else (D(0), D(0), D(0))


def _hinge(loss, m, y):
    g = D(loss.smoothing)
    value, slope, curvature = _envelope(1 - y * m, D(0), D(1), g)
    return Exact(value, -y * slope, curvature, kinks=(y, y * (1 - g)))


def _squared_hinge(loss, m, y):
    short = max(1 - y * m, D(0))
    return Exact(short**2, -2 * y * short, D(2) if short else D(0), kinks=(y,))


def _modified_huber(loss, m, y):
    if y * m >= -1:
        return _squared_hinge(loss, m, y)._replace(kinks=(y, -y))
    return Exact(-4 * y * m, -4 * y, D(0), kinks=(y, -y))


def _squared(loss, m, y):
    return Exact((m - y) ** 2 / 2, m - y, D(1))


def _absolute(loss, m, y):
    g = D(loss.smoothing)
    return Exact(*_envelope(m - y, D(-1), D(1), g), kinks=(y - g, y + g))


def _huber(loss, m, y):
    t, r = D(loss.threshold), m - y
    kinks = (y - t, y + t)
    if abs(r) < t:
        return Exact(r * r / 2, r, D(1), kinks=kinks)
    return Exact(t * abs(r) - t * t / 2, t if r > 0 else -t, D(0), kinks=kinks)


def _quantile(loss, m, y):
    q, g = D(loss.quantile), D(loss.smoothing)
    value, slope, curvature = _envelope(y - m, q - 1, q, g)
    return Exact(value, -slope, curvature, kinks=(y - g * q, y + g * (1 - q)))


def _epsilon_insensitive(loss, m, y):
    epsilon, g, r = D(loss.epsilon), D(loss.smoothing), m - y
    value, slope, curvature = _envelope(abs(r) - epsilon, D(0), D(1), g)
    kinks = tuple(y + sign * far for sign in (-1, 1) for far in (epsilon, epsilon + g))
    return Exact(value, slope if r > 0 else -slope, curvature, kinks=kinks)


def _squared_epsilon_insensitive(loss, m, y):
    epsilon, r = D(loss.epsilon), m - y
    excess = max(abs(r) - epsilon, D(0))
    slope = 2 * excess if r > 0 else -2 * excess
    kinks = (y - epsilon, y + epsilon)
    return Exact(excess**2, slope, D(2) if excess else D(0), kinks=kinks)


def _poisson(loss, m, y):
    mean = m.exp()
    return Exact(mean - y * m, mean - y, mean, (mean + abs(y * m), mean + y, D(0)))


def _gamma(loss, m, y):
    ratio = y * (-m).exp()
    return Exact(m + ratio, 1 - ratio, ratio, (abs(m) + ratio, 1 + ratio, D(0)))


def _tweedie(loss, m, y):
    p = D(loss.power)
    mean, label = ((2 - p) * m).exp(), y * ((1 - p) * m).exp() if y else D(0)
    value, curvature = mean / (2 - p) + label / (p - 1), (2 - p) * mean + (p - 1) * label
    spread = 1 + abs(m)  # exponents are rounded
    terms = (value * spread, (mean + label) * spread, curvature * spread)
    return Exact(value, mean - label, curvature, terms)


_FORMULAS: dict[type, Callable[..., Exact]] = {
    losses.Logistic: _logistic,
    losses.Hinge: _hinge,
    losses.SquaredHinge: _squared_hinge,
    losses.ModifiedHuber: _modified_huber,
    losses.Squared: _squared,
    losses.Absolute: _absolute,
    losses.Huber: _huber,
    losses.Quantile: _quantile,
    losses.EpsilonInsensitive: _epsilon_insensitive,
    losses.SquaredEpsilonInsensitive: _squared_epsilon_insensitive,
    losses.Poisson: _poisson,
    losses.Gamma: _gamma,
    losses.Tweedie: _tweedie,
}
