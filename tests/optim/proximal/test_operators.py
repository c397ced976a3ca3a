"""Proximal operators: against their optimality condition and against a search by SciPy."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize_scalar

from optim import ElasticNet, GroupLasso, Huber, L1Norm, L2Norm, SquaredL2Norm
from tests.optim.lazy_array import LazyNamespace

LABELS = np.array([0, 0, 1, -1, 1, 2])
PENALTIES = [
    L1Norm(0.7),
    L1Norm(np.array([0.0, 1.0, 2.0, 0.5, 0.0, 3.0])),
    L1Norm(0.0),
    L2Norm(2.0),
    L2Norm(0.0),
    ElasticNet(0.5, 3.0),
    SquaredL2Norm(3.0),
    SquaredL2Norm(np.arange(6.0)),
    ElasticNet(0.0, np.arange(6.0)),
    Huber(2.0, threshold=0.5),
    Huber(),
    GroupLasso(LABELS, groups=3, weight=1.5),
]
every_penalty = pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: repr(p)[:40])
vectors = arrays(np.float64, 6, elements=st.floats(-100.0, 100.0))
steps = st.floats(1e-3, 1e3)


@every_penalty
@settings(max_examples=60, deadline=None)
@given(x=vectors, step=steps, seed=st.integers(0, 10**6))
def test_nothing_is_lower_than_the_prox(penalty, x, step, seed):
    """Strong convexity: any u is higher by |u - p|^2 / (2 * step) at least."""

    def objective(u):
        return float(penalty.value(u)) + (u - x) @ (u - x) / (2.0 * step)

    p = penalty.prox(x, step)
    rng = np.random.default_rng(seed)
    for u in p + rng.normal(size=(20, 6)) * 10.0 ** rng.uniform(-6.0, 1.0, (20, 1)):
        rounding = 1e-13 * (objective(p) + objective(u))
        assert objective(u) >= objective(p) + (u - p) @ (u - p) / (2.0 * step) - rounding


@pytest.mark.parametrize("penalty", [L1Norm(0.7), ElasticNet(0.5, 3.0), Huber(2.0, 0.5)], ids=repr)
@settings(max_examples=30, deadline=None)
@given(x=st.floats(-20.0, 20.0), step=st.floats(1e-2, 1e2))
def test_separable_penalties_against_a_search(penalty, x, step):
    def objective(u):
        return float(penalty.value(np.array([u]))) + (u - x) ** 2 / (2.0 * step)

    found = minimize_scalar(objective, bounds=(-21.0, 21.0), method="bounded").x
    assert penalty.prox(np.array([x]), step)[0] == pytest.approx(found, abs=1e-4)


@every_penalty
@settings(max_examples=40, deadline=None)
@given(x=vectors, y=vectors, step=steps)
def test_firmly_not_expansive(penalty, x, y, step):
    p, q = penalty.prox(x, step), penalty.prox(y, step)
    assert (p - q) @ (p - q) <= (p - q) @ (x - y) + 1e-10 * (1.0 + (x - y) @ (x - y))


def test_values_by_hand():
    x = np.array([3.0, -4.0, 0.0, 1.0, 2.0, -0.5])
    assert L1Norm(2.0).value(x) == 21.0
    assert L2Norm(2.0).value(x[:2]) == 10.0
    assert ElasticNet(1.0, 2.0).value(x) == 10.5 + 30.25
    assert Huber(2.0, 1.0).value(x) == 2.0 * (2.5 + 3.5 + 0.5 + 1.5 + 0.125)
    assert GroupLasso(LABELS, 3, 2.0).value(x) == 2.0 * (5.0 + 2.0 + 0.5)


def test_groups_vanish_together_and_the_label_of_none_is_free():
    p = GroupLasso(LABELS, groups=3).prox(np.array([3.0, 4.0, 0.3, 5.0, 0.4, 0.0]), 1.0)
    np.testing.assert_allclose(p, [2.4, 3.2, 0.0, 5.0, 0.0, 0.0], rtol=1e-15)
    np.testing.assert_array_equal(L2Norm().prox(np.zeros(3), 1.0), 0.0)


@every_penalty
def test_lazy_arrays_pay_nothing_and_float32_stays(penalty):
    x = np.array([3.0, -4.0, 0.3, 1.0, 2.0, -0.5])
    xp = LazyNamespace()
    kept = {k: xp.array(v) if isinstance(v, np.ndarray) else v for k, v in vars(penalty).items()}
    lazy = type(penalty)(**kept)
    paid = xp.messages
    p, value = lazy.prox(xp.array(x), 0.5), lazy.value(xp.array(x))
    assert xp.messages == paid
    np.testing.assert_array_equal(p.compute(), penalty.prox(x, 0.5))
    assert value.compute() == penalty.value(x)
    kept = {
        k: strict.asarray(v.tolist(), dtype=strict.int64 if v.dtype == int else strict.float32)
        if isinstance(v, np.ndarray)
        else v
        for k, v in vars(penalty).items()
    }
    other = type(penalty)(**kept).prox(strict.asarray(x, dtype=strict.float32), 0.5)
    assert other.dtype == strict.float32
    np.testing.assert_allclose(np.asarray(other), penalty.prox(x, 0.5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: L1Norm(-1.0), ValueError, r"L1Norm\(weight\) holds -1.0; weights must be finite"),
        (lambda: L1Norm(np.array([1.0, -2.0])), ValueError, "holds -2.0"),
        (lambda: L1Norm([1.0]), TypeError, r"got list; give for instance numpy.asarray\(weight\)"),
        (lambda: ElasticNet(1.0, np.nan), ValueError, r"ElasticNet\(l2\) holds nan"),
        (lambda: Huber(1.0, 0.0), ValueError, r"Huber\(threshold=0.0\): must be a positive"),
        (lambda: GroupLasso(LABELS, 0), ValueError, r"GroupLasso\(groups=0\)"),
    ],
)
def test_refusals_speak(make, error, message):
    with pytest.raises(error, match=message):
        make()
