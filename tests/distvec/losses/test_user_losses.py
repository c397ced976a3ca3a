"""Losses that users write: of one margin a row, with and without slopes; and of anything."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyspark import cloudpickle

from distvec.losses import (
    Huber,
    Logistic,
    LossError,
    NotFinite,
    Objective,
    Parameter,
    Rows,
    block_loss,
    row_loss,
)
from optim import SquaredL2Norm


@row_loss(labels="signs")
def logistic(margins, labels):
    """The logistic loss, not as it should be written."""
    return np.log1p(np.exp(-labels * margins))


@row_loss
def huber(margins, labels, threshold=1.0):
    residuals = np.abs(margins - labels)
    return np.where(
        residuals < threshold, 0.5 * residuals**2, threshold * (residuals - 0.5 * threshold)
    )


@row_loss
def huber_with_slopes(margins, labels, threshold=1.0):
    residuals = margins - labels
    slopes = np.clip(residuals, -threshold, threshold)
    return slopes * (residuals - 0.5 * slopes), slopes


@block_loss
def squares(X, y, weights, params):
    residuals = X @ params - y
    return 0.5 * weights @ residuals**2, X.T @ (weights * residuals)


@block_loss(parameters={"location": (), "scale": ()})
def gaussian(X, y, weights, params):
    residuals = y - X @ params["location"]
    log_scales = X @ params["scale"]
    scaled = residuals * np.exp(-log_scales)
    value = weights @ (log_scales + 0.5 * scaled**2)
    location = X.T @ (-weights * scaled * np.exp(-log_scales))
    return value, {"location": location, "scale": X.T @ (weights * (1.0 - scaled**2))}


@st.composite
def problems(draw, labels):
    count, columns = draw(st.integers(0, 9)), draw(st.integers(1, 5))
    numbers = st.floats(-4, 4, width=32)
    column = hnp.arrays(np.float64, count, elements=st.floats(0, 3))
    matrix = draw(hnp.arrays(np.float64, (count, columns), elements=numbers | st.just(0.0)))
    y = draw(hnp.arrays(np.float64, count, elements=labels))
    rows = Rows(
        sp.csr_array(matrix) if draw(st.booleans()) else matrix, y, draw(st.none() | column)
    )
    intercept = draw(st.booleans())
    w, v = draw(hnp.arrays(np.float64, (2, columns + intercept), elements=numbers))
    return rows, w, v, intercept


def assert_alike(found, expected):
    assert found.value == pytest.approx(expected.value, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(found.gradients[0], expected.gradients[0], rtol=1e-10, atol=1e-10)
    assert found.weight == expected.weight


@settings(deadline=None, max_examples=40)
@given(problem=problems(st.sampled_from([-1.0, 1.0])))
def test_values_alone_are_differentiated_twice(problem):
    rows, w, v, intercept = problem
    assert_alike(
        logistic.sums(rows, (w,), intercept=intercept),
        Logistic().sums(rows, (w,), intercept=intercept),
    )
    assert logistic.has_products
    found, expected = (
        loss.products(rows, (w,), (v,), intercept=intercept)[0] for loss in (logistic, Logistic())
    )
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(problem=problems(st.floats(-3, 3)), threshold=st.floats(0.1, 3))
def test_further_parameters_are_of_the_loss(problem, threshold):
    rows, w, _, intercept = problem
    expected = Huber(threshold=threshold).sums(rows, (w,), intercept=intercept)
    for loss in (huber, huber_with_slopes):
        assert_alike(loss(threshold=threshold).sums(rows, (w,), intercept=intercept), expected)


@settings(deadline=None, max_examples=40)
@given(problem=problems(st.floats(-3, 3)))
def test_a_block_loss_sees_rows_weights_and_a_column_of_ones(problem):
    rows, w, _, intercept = problem
    x = rows.matrix if isinstance(rows.matrix, np.ndarray) else rows.matrix.toarray()
    x = np.column_stack([x, np.ones(len(rows))]) if intercept else x
    c = np.ones(len(rows)) if rows.weights is None else rows.weights
    found = squares.sums(rows, (w,), intercept=intercept)
    residuals = x @ w - rows.labels
    assert found.value == pytest.approx(0.5 * c @ residuals**2)
    np.testing.assert_allclose(found.gradients[0], x.T @ (c * residuals), rtol=1e-9, atol=1e-9)
    both = gaussian.sums(rows, (w, 0.0 * w), intercept=intercept)
    assert both.value == pytest.approx(found.value)
    np.testing.assert_allclose(both.gradients[0], found.gradients[0], rtol=1e-9, atol=1e-9)


def test_parameters_have_names_and_say_what_they_take():
    assert [one.name for one in gaussian.parameters] == ["location", "scale"]
    pair = [Parameter("linear"), Parameter("factors", (4,), takes_intercept=False, spread=0.1)]
    assert block_loss(parameters=pair)(lambda *_: None).parameters == tuple(pair)


@pytest.mark.parametrize("loss", [logistic, huber(threshold=0.5), huber_with_slopes, squares])
def test_they_travel_by_value(loss):
    rows, w = Rows(np.eye(2), np.array([1.0, -1.0])), (np.array([0.5, 0.25]),)
    expected = loss.sums(rows, w, intercept=False)
    again = pickle.loads(cloudpickle.dumps(loss))
    assert again.sums(rows, w, intercept=False).value == expected.value
    assert (again.labels, str(again)) == (loss.labels, str(loss))


def test_names_and_docstrings_are_those_of_the_functions():
    assert str(huber(threshold=0.5)) == "huber(threshold=0.5)"
    assert str(squares) == "squares"
    assert logistic.__doc__ == "The logistic loss, not as it should be written."


def test_slopes_that_are_given_have_no_products():
    assert huber.has_products and not huber_with_slopes.has_products


def sums(loss, params=None):
    rows = Rows(np.ones((3, 1)), np.array([1.0, 2.0, 3.0]))
    params = (np.array([0.5]),) if params is None else params
    return loss.sums(rows, params, intercept=False)


def raising(*_):
    raise KeyError("what")


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (
            row_loss(raising),
            r"loss raising .* row block 0, rows 0 to 2: KeyError: 'what' \(.*raise",
        ),
        (row_loss(lambda m, y: None), r"returned NoneType, but it must return \(values, slopes\)"),
        (row_loss(lambda m, y: np.sort(m)), "NotDifferentiable: sort has no derivative here"),
        (block_loss(raising), r"raising failed in row block 0, rows 0 to 2: KeyError"),
        (block_loss(lambda X, y, c, w: 1.0), r"returned float, but it must return \(value, grad"),
        (block_loss(lambda X, y, c, w: (1.0, y)), r"gradient has the shape \(3,\), the .* \(1,\)"),
        (block_loss(lambda X, y, c, w: (np.nan, w)), "value is NaN, where all parameters are"),
        (block_loss(lambda X, y, c, w: (0.0, w * np.nan)), r"gradient is NaN at \[0\]"),
        (block_loss(lambda X, y, c, w: (0.0, w * 1j)), "gradient has the dtype complex128"),
        (block_loss(lambda X, y, c, w: (0.0, np.add(w, w, out=w))), "ValueError: .*read-only"),
    ],
)
def test_what_they_do_wrong_is_said(loss, said):
    with pytest.raises(LossError, match=said):
        sums(loss)


def test_names_of_gradients_are_those_of_parameters():
    loss = block_loss(parameters={"a": (), "b": (2,)})(lambda X, y, c, w: (0.0, {"a": w["a"]}))
    with pytest.raises(LossError, match=r"a dict with \['a', 'b'\], got \['a'\]"):
        sums(loss, (np.zeros(1), np.zeros((1, 2))))


def test_infinite_values_are_left_to_the_solver():
    assert sums(block_loss(lambda X, y, c, w: (np.inf, w))).value == np.inf
    nan = block_loss(lambda X, y, c, w: (np.nan, w))
    assert np.isnan(sums(nan, (np.array([np.inf]),)).value)


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: huber(delta=0.5), TypeError, "huber: got an unexpected keyword argument 'delta'"),
        (lambda: row_loss(labels="sign")(raising), ValueError, "labels='sign'; allowed are"),
        (lambda: block_loss(labels="?")(raising), ValueError, r"labels='\?'; allowed are"),
        (lambda: block_loss(parameters={})(raising), TypeError, "a dict of names to shapes"),
        (lambda: block_loss(parameters={"a": 3})(raising), TypeError, r"parameters\['a'\]=3: must"),
        (
            lambda: block_loss(parameters=[Parameter("a"), Parameter("a")])(raising),
            ValueError,
            "names must differ",
        ),
        (lambda: sums_with_offsets(squares), ValueError, "squares gets no offsets"),
    ],
)
def test_refusals(make, kind, said):
    with pytest.raises(kind, match=said):
        make()


def sums_with_offsets(loss):
    rows = Rows(np.ones((1, 1)), np.zeros(1), offsets=np.ones(1))
    return loss.sums(rows, (np.zeros(1),), intercept=False)


def test_a_loss_that_raises_does_so_where_it_meets_rows():
    with pytest.raises(LossError, match="rows 0 to 1: KeyError"):
        Objective((np.eye(2), [1.0, 2.0]), loss=row_loss(raising)).minimize()


def test_losses_come_without_optimizers():
    code = "import sys, distvec.losses as l; print('optim' in sys.modules, l.Objective.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "Objective"]


def test_a_loss_with_some_parameters_takes_others():
    @row_loss
    def two(margins, labels, first=1.0, second=2.0):
        return first * margins + second * labels

    assert str(two(first=3.0)(second=4.0)) == "two(first=3.0, second=4.0)"
    assert str(two(first=3.0)(first=5.0)) == "two(first=5.0)"


@row_loss
def log_cosh(margins, labels):
    return np.log(np.cosh(margins - labels))


@row_loss(labels="signs")
def by_hand(margins, labels):
    return np.log1p(np.exp(-labels * margins))


@row_loss
def within(margins, labels):
    return -np.log(2.0 - margins / labels)  # NaN beyond


@row_loss
def raising_far_out(margins, labels):
    if np.abs(margins).max() > 400.0:
        raise OverflowError("math range error")
    return (margins - labels) ** 2, 2.0 * (margins - labels)


@pytest.mark.parametrize("method", ["L-BFGS", "trust-ncg", "gradient-descent"])
@pytest.mark.parametrize(
    ("loss", "reference"),
    [
        (log_cosh, row_loss(lambda m, y: (np.logaddexp(m - y, y - m) - np.log(2), np.tanh(m - y)))),
        (by_hand, Logistic()),
        (raising_far_out, row_loss(lambda m, y: (m - y) ** 2)),
    ],
    ids=str,
)
def test_a_step_too_far_out_is_shortened(loss, reference, method):
    rng = np.random.default_rng(0)
    X = 100.0 * rng.normal(size=(60, 3))
    y = 100.0 * rng.normal(size=60)
    y = np.sign(y) if loss is by_hand else y
    objective = Objective((X, y), loss=loss, penalty=SquaredL2Norm(1e-2))
    far = np.array([4.0, -4.0, 4.0]) if loss is not raising_far_out else np.zeros(3)
    if method == "L-BFGS" and loss is not raising_far_out:
        value, gradient = objective(3.0 * far)
        assert value == np.inf and np.isfinite(gradient).all()
    result = objective.minimize(method=method, max_iterations=2000)
    assert result.success, result.message
    best = Objective((X, y), loss=reference, penalty=SquaredL2Norm(1e-2)).minimize()
    assert result.fun == pytest.approx(best.fun, rel=1e-6)


def test_at_the_start_what_is_not_finite_is_an_error():
    X = np.eye(2)
    with pytest.raises(NotFinite, match=r"failed in x0: the value is inf .* give another x0"):
        Objective((X, [1e4, 0.0]), loss=log_cosh).minimize()
    with pytest.raises(NotFinite, match=r"values are NaN in row 1, where the margin is 5\.0"):
        Objective((X, [1.0, 1.0]), loss=within).minimize(np.array([0.0, 5.0]))
    objective = Objective((X, [1.0, 1.0]), loss=within, penalty=SquaredL2Norm(0.1))
    result = objective.minimize(np.array([1.9, 1.9]))
    assert np.isfinite(result.fun) and result.nit > 0
