"""Each loss against its formula in 60 digits: rows however far out, and sums over rows."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distvec import losses
from distvec.losses.regression import ScaledHuber
from tests.distvec.losses.sixty_digits import DIGITS, exact

SHELF = [
    losses.Logistic(),
    losses.Hinge(),
    losses.Hinge(smoothing=0.5),
    losses.SquaredHinge(),
    losses.ModifiedHuber(),
    losses.Squared(),
    losses.Absolute(),
    losses.Absolute(smoothing=0.1),
    losses.Huber(threshold=1.35),
    losses.Quantile(quantile=0.9),
    losses.Quantile(quantile=0.25, smoothing=0.01),
    losses.EpsilonInsensitive(epsilon=0.25),
    losses.EpsilonInsensitive(epsilon=0.5, smoothing=2.0),
    losses.SquaredEpsilonInsensitive(epsilon=0.25),
    losses.Poisson(),
    losses.Gamma(),
    losses.Tweedie(power=1.5),
    losses.Tweedie(power=1.0625),
]

LABELS = {
    "signs": st.sampled_from([-1.0, 1.0]),
    "real": st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, -0.5]),
    "counts": st.sampled_from([0.0, 1.0, 3.0]) | st.floats(0.0, 1e6),
    "positive": st.floats(1e-6, 1e6),
}

EPSILON = Decimal(2.0**-53)
LARGEST = Decimal(np.finfo(float).max)

every_loss = pytest.mark.parametrize("loss", SHELF, ids=repr)


@st.composite
def rows(draw, loss, farthest=1e300):
    """A margin and a label, often near where something bends."""
    label = draw(LABELS[loss.labels])
    near = [float(kink) for kink in exact(loss, 0.0, label).kinks] or [label, 0.0]
    places = st.sampled_from(near).flatmap(lambda at: st.just(at) | st.floats(at - 1e-3, at + 1e-3))
    return draw(places | st.floats(-50, 50) | st.floats(-farthest, farthest)), label


def agrees(found, expected, allowed):
    """Whether a float is within ``allowed``; of what floats cannot hold, infinity is right."""
    if abs(expected) > LARGEST / 4 and math.isinf(found):
        return (found > 0) == (expected > 0)
    return abs(Decimal(found) - expected) <= allowed + Decimal("5e-324")


def check(loss, margin, label):
    """AssertionError unless value, slope and curvature of one row are right to a few roundings."""
    expected = exact(loss, margin, label)
    with np.errstate(all="ignore"):
        (value,), (slope,) = loss.row(np.array([margin]), np.array([label]))
    with localcontext(DIGITS):
        # Margins, labels and residuals are rounded, to these units; the logistic loss has none.
        moved = EPSILON * (1 + abs(Decimal(margin)) + abs(Decimal(label)))
        moved = 4 * moved if loss.labels == "real" or expected.kinks else Decimal(0)
        terms = [EPSILON * term for term in expected.terms]
        in_value = 8 * (EPSILON * abs(expected.value) + terms[0]) + moved * abs(expected.slope)
        assert agrees(value, expected.value, in_value + moved**2)
        is_near = any(abs(Decimal(margin) - kink) <= moved for kink in expected.kinks)
        if Decimal(margin) in expected.kinks and not loss.has_products:
            assert slope == expected.slope  # the subgradient that is documented
        elif not is_near:
            in_slope = 8 * (EPSILON * abs(expected.slope) + terms[1])
            assert agrees(slope, expected.slope, in_slope + moved * expected.curvature)
        if loss.has_products and not is_near:
            with np.errstate(all="ignore"):
                (curvature,) = loss.curvature(np.array([margin]), np.array([label]))
            in_curvature = 8 * (EPSILON * expected.curvature + terms[2])
            assert agrees(curvature, expected.curvature, in_curvature)


@every_loss
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_row(loss, data):
    check(loss, *data.draw(rows(loss)))


@st.composite
def some_rows(draw, loss):
    """Rows, parameters, a direction, an intercept or none: all of few digits, margins exact."""
    count, columns = draw(st.integers(0, 8)), draw(st.integers(1, 4))
    eighths = st.integers(-40, 40).map(lambda k: k / 8)
    kind = draw(st.sampled_from([np.float64, np.float32]))
    matrix = draw(hnp.arrays(kind, (count, columns), elements=eighths | st.just(0.0)))

    def column(values):
        return draw(hnp.arrays(np.float64, count, elements=values))

    rows = losses.Rows(
        sp.csr_array(matrix) if draw(st.booleans()) else matrix,
        column(LABELS[loss.labels]),
        draw(st.none() | st.builds(column, st.just(st.sampled_from([0.0, 1.0, 0.5, 3.0])))),
        draw(st.none() | st.builds(column, st.just(eighths))),
    )
    intercept = draw(st.booleans())
    w, v = draw(hnp.arrays(np.float64, (2, columns + intercept), elements=eighths))
    return rows, matrix, w, v, intercept


@settings(deadline=None, max_examples=80)
@given(loss=st.sampled_from(SHELF), data=st.data())
def test_sums_over_rows(loss, data):
    rows, matrix, w, v, intercept = data.draw(some_rows(loss))
    count = len(rows)
    x = np.column_stack([matrix, np.ones(count)]) if intercept else matrix.astype(float)
    offsets = 0.0 if rows.offsets is None else rows.offsets
    c = np.ones(count) if rows.weights is None else rows.weights
    m = x @ w + offsets
    each = [exact(loss, *pair) for pair in zip(m.tolist(), rows.labels.tolist(), strict=True)]
    values, slopes, curvatures = (
        np.array([float(getattr(one, name)) for one in each])
        for name in ("value", "slope", "curvature")
    )
    sizes = np.abs(values) + np.abs(slopes) * (np.abs(m) + 1) + np.abs(rows.labels * m) + 1
    found = loss.sums(rows, (w,), intercept=intercept)
    assert found.weight == c.sum()
    assert abs(found.value - math.fsum(c * values)) <= 1e-14 * (c @ sizes)
    rounding = 1e-14 if matrix.dtype == np.float64 else 1e-6
    scale = (np.abs(slopes) + np.abs(rows.labels) * loss.labels.startswith("r") + 1) * (1 + abs(m))
    allowed = rounding * (np.abs(x).T @ (c * scale))
    assert (np.abs(found.gradients[0] - x.T @ (c * slopes)) <= allowed).all()
    if loss.has_products and not any(
        Decimal(at) in one.kinks for at, one in zip(m, each, strict=True)
    ):
        (product,) = loss.products(rows, (w,), (v,), intercept=intercept)
        expected = x.T @ (c * curvatures * (x @ v))
        allowed = rounding * (np.abs(x).T @ (c * curvatures * (1 + abs(m)) * (np.abs(x) @ abs(v))))
        assert (np.abs(product - expected) <= allowed).all()


@every_loss
def test_no_value_is_nan_however_far_out(loss):
    labels = {"signs": [-1.0, 1.0], "real": [-1e12, 0.0, 1.0], "positive": [1e-12, 1e12]}
    for label in labels.get(loss.labels, [0.0, 1.0, 1e12]):
        margins = np.array([-np.inf, -1e300, 1e300, np.inf])
        with np.errstate(all="ignore"):
            values, slopes = loss.row(margins, np.full(4, label))
        assert not np.isnan(values).any() and not np.isnan(slopes).any()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: losses.Huber(threshold=0.0), r"Huber\(threshold=0\.0\): must be a number above 0"),
        (lambda: losses.Hinge(smoothing=-1.0), r"Hinge\(smoothing=-1\.0\): must be 0 or more"),
        (lambda: losses.Quantile(quantile=1.0), "above 0 and below 1"),
        (lambda: losses.EpsilonInsensitive(epsilon=math.nan), "a number of at least 0"),
        (lambda: losses.SquaredEpsilonInsensitive(epsilon=-0.5), "of at least 0"),
        (lambda: losses.Tweedie(power=2.0), r"for 1 write Poisson\(\), for 2 Gamma\(\)"),
    ],
)
def test_what_a_loss_cannot_be_made_with(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.Absolute(), losses.Quantile()], ids=repr)
def test_a_kink_has_no_curvature(loss):
    assert not loss.has_products
    with pytest.raises(NotImplementedError, match="pass smoothing="):
        loss.curvature(np.zeros(1), np.ones(1))


def test_huber_with_a_scale_is_its_definition():
    """Values by the formula, gradients by differences."""
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=(40, 3)), rng.random(40)
    rows = losses.Rows(x, x @ [1.0, 2.0, 3.0] + rng.standard_cauchy(40), c)
    loss, point = ScaledHuber(epsilon=1.5), (rng.normal(size=4), np.array([0.3]))

    def value(w, log_scale):
        far, scale = abs(x @ w[:3] + w[3] - rows.labels), np.exp(log_scale[0])
        beyond = scale + 3.0 * far - 2.25 * scale
        return c @ np.where(far < 1.5 * scale, scale + far**2 / scale, beyond) / 2.0

    found = loss.sums(rows, point, intercept=True)
    assert found.value == pytest.approx(value(*point)) and found.weight == c.sum()
    for k, gradient in enumerate(found.gradients):
        for i, slope in enumerate(gradient):
            ends = [[one.copy() for one in point] for _ in range(2)]
            ends[0][k][i] += 1e-6
            ends[1][k][i] -= 1e-6
            difference = value(*ends[0]) - value(*ends[1])
            assert slope == pytest.approx(difference / 2e-6, abs=1e-6)
    with pytest.raises(ValueError, match=r"ScaledHuber\(epsilon=1\.0\): must be a number above 1"):
        ScaledHuber(epsilon=1.0)
