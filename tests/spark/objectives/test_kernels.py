"""The local loss against the formula written in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distvec.spark.objectives.kernels import logistic, margins


@st.composite
def problems(draw):
    rows, columns = draw(st.integers(0, 12)), draw(st.integers(0, 9))
    numbers = st.floats(-8, 8, width=32)
    dense = draw(hnp.arrays(np.float64, (rows, columns), elements=numbers | st.just(0.0)))
    labels = draw(hnp.arrays(np.float64, rows, elements=st.sampled_from([-1.0, 1.0])))
    weights = draw(st.none() | hnp.arrays(np.float64, rows, elements=st.floats(0, 5)))
    intercept = draw(st.booleans())
    w = draw(hnp.arrays(np.float64, columns + intercept, elements=numbers))
    return dense, labels, weights, w, intercept


@given(problems())
def test_loss_and_gradient_are_the_formula(problem):
    dense, labels, weights, w, intercept = problem
    loss, gradient = logistic(sp.csr_array(dense), labels, weights, w, intercept=intercept)
    x = np.column_stack([dense, np.ones(len(labels))]) if intercept else dense
    c = np.ones(len(labels)) if weights is None else weights
    m = labels * (x @ w)
    np.testing.assert_allclose(loss, np.sum(c * np.logaddexp(0, -m)), rtol=1e-13, atol=1e-300)
    sigmoid = np.exp(-np.logaddexp(0, m))
    np.testing.assert_allclose(gradient, x.T @ (-c * labels * sigmoid), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("margin", [-1e4, -745.2, -40.0, 0.0, 40.0, 745.2, 1e4])
def test_no_margin_overflows(margin):
    one = sp.csr_array([[1.0]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        loss, gradient = logistic(one, np.ones(1), None, np.array([margin]), intercept=False)
    assert loss == pytest.approx(max(-margin, 0.0) + np.log1p(np.exp(-abs(margin))), rel=1e-15)
    assert -1.0 <= gradient[0] <= 0.0


def test_the_gradient_is_the_derivative_of_the_loss():
    rng = np.random.default_rng(1)
    x, y, w = (
        sp.csr_array(rng.normal(size=(20, 5))),
        np.sign(rng.normal(size=20)),
        rng.normal(size=6),
    )
    gradient = logistic(x, y, None, w, intercept=True).gradient
    for k, step in enumerate(1e-6 * np.eye(6)):
        above = logistic(x, y, None, w + step, intercept=True).loss
        below = logistic(x, y, None, w - step, intercept=True).loss
        assert (above - below) / 2e-6 == pytest.approx(gradient[k], abs=1e-7)


def test_margins_add_the_intercept_to_every_row():
    x = sp.csr_array([[1.0, 2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(
        margins(x, np.array([3.0, 4.0, 5.0]), intercept=True), [16.0, 5.0]
    )
    np.testing.assert_array_equal(margins(x, np.array([3.0, 4.0]), intercept=False), [11.0, 0.0])
