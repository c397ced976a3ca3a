"""Wrappers of objectives, products with the Hessian, the check of gradients, the plot."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from optim import (
    LBFGS,
    OWLQN,
    Cached,
    Counted,
    check_gradient,
    hessian_product,
    minimize,
    with_l1,
    with_l2,
)
from tests.optim.lazy_array import LazyNamespace
from tests.optim.problems import breeze_start, quadratic, rosenbrock


def test_l2():
    """Breeze's: half the weight, on every coordinate, or on some."""
    result = LBFGS().minimize(with_l2(quadratic, 1.0), np.arange(10.0))
    np.testing.assert_allclose(result.x, 2.0, atol=1e-6)
    some = with_l2(quadratic, np.array([0.0, 1.0, 4.0]))
    np.testing.assert_allclose(LBFGS().minimize(some, np.zeros(3)).x, [3.0, 2.0, 1.0], atol=1e-6)
    assert some(np.array([1.0, 2.0, 3.0]))[0] == 5.0 + 0.5 * (4.0 + 36.0)
    assert check_gradient(some, np.array([1.0, 2.0, 3.0]))


def test_l1_is_what_owlqn_minimises():
    weight = np.array([0.0, 1.0, 8.0])
    result = OWLQN(l1=weight).minimize(quadratic, np.ones(3))
    value, gradient = with_l1(quadratic, weight)(result.x)
    assert value == pytest.approx(result.fun)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
    assert result.x[2] == 0.0


def test_penalties_work_on_lazy_arrays_and_pass_arguments_on():
    xp = LazyNamespace()
    fun = with_l1(with_l2(lambda x, shift: quadratic(x - shift), 2.0), 0.5)
    value, gradient = fun(xp.array([1.0, -1.0]), 1.0)
    assert xp.messages == 0
    assert float(value) == 9.0 + 25.0 + 2.0 + 1.0
    np.testing.assert_allclose(gradient.compute(), [-6.0 + 2.0 + 0.5, -10.0 - 2.0 - 0.5])


@pytest.mark.parametrize("wrap", [with_l1, with_l2])
def test_weights_are_checked(wrap):
    with pytest.raises(ValueError, match=r"weight=-1.0\): must be 0 or more"):
        wrap(quadratic, -1.0)
    with pytest.raises(TypeError, match=r"numpy\.asarray"):
        wrap(quadratic, [1.0])


def test_cached_evaluates_once_for_value_and_gradient():
    counted = Counted(rosenbrock)
    cached = Cached(counted)
    result = minimize(cached.value, breeze_start(4), jac=cached.gradient)
    assert result.success
    assert counted.calls == cached.hits == result.nfev


def test_cached_compares_identity():
    counted = Counted(lambda x, a: quadratic(x - a))
    cached = Cached(counted)
    x = np.ones(2)
    for _ in range(3):
        assert cached(x, 1.0)[0] == 18.0
    cached(x.copy(), 1.0)
    cached(x, 2.0)
    assert (counted.calls, cached.hits) == (3, 2)


def test_hessian_products_of_breeze():
    product = hessian_product(rosenbrock, np.ones(2))
    columns = np.array([product(column) for column in np.eye(2)])
    np.testing.assert_allclose(columns, [[802.0, -400.0], [-400.0, 200.0]], rtol=1e-5)
    x = np.array([3.56, -1.09, -0.31, 1.12, -1.52])
    product = hessian_product(lambda x: (np.exp(x).sum(), np.exp(x)), x)
    np.testing.assert_allclose(product(np.ones(5)), np.exp(x), rtol=1e-5)


@pytest.mark.parametrize("length", [1e-8, 1e8])
def test_hessian_products_are_linear_whatever_the_length(length):
    product = hessian_product(rosenbrock, breeze_start(4))
    v = np.array([1.0, -2.0, 0.5, 3.0])
    np.testing.assert_allclose(product(length * v), length * product(v), rtol=1e-5)


def test_hessian_products_need_only_the_gradient():
    values = Counted(lambda x: rosenbrock(x)[0])
    gradients = Counted(lambda x: rosenbrock(x)[1])
    hessian_product(values, np.ones(2), jac=gradients)(np.ones(2))
    assert (values.calls, gradients.calls) == (0, 2)


@pytest.mark.parametrize("n", [4, 200])
def test_right_gradients_pass(n):
    check = check_gradient(rosenbrock, breeze_start(n))
    assert check, check
    assert "0 of" in str(check)
    assert len(check.derivatives) == min(n, 20) + 5


@pytest.mark.parametrize("n", [4, 200])
def test_one_wrong_element_is_found(n):
    def wrong(x):
        value, gradient = rosenbrock(x)
        gradient[1] *= 1.01
        return value, gradient

    check = check_gradient(wrong, breeze_start(n))
    assert not check
    assert check.worst.error > check.worst.allowed
    assert "derivatives differ" in str(check)
    if n == 4:
        (partial,) = [one for one in check.derivatives if one.direction[0] == "x" and not one.ok]
        assert partial.direction == "x[1]"
        right, given = rosenbrock(breeze_start(n))[1][1], wrong(breeze_start(n))[1][1]
        assert partial.by_differences == pytest.approx(right, rel=1e-6)
        assert partial.by_gradient == given
        assert "x[1]" in str(check)


def test_gradients_that_are_not_numbers_do_not_pass():
    assert not check_gradient(lambda x: (x @ x, np.nan * x), np.ones(2))


def test_gradient_check_on_lazy_arrays():
    xp = LazyNamespace()
    check = check_gradient(quadratic, xp.array(np.arange(5.0)), coordinates=2, directions=1)
    assert check
    assert xp.messages == 1 + 3


def test_plot():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    result = LBFGS().minimize(rosenbrock, breeze_start(4))
    axes = result.plot(figure.subplots())
    (line,) = axes.lines
    np.testing.assert_array_equal(line.get_ydata(), [record.value for record in result.history])
    assert axes.get_xlabel() == "evaluations"
    assert axes.get_title() == result.message
    (norms,) = figure.axes[1].lines
    assert norms.get_ydata()[-1] == result.history[-1].gradient_norm


def test_plot_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        LBFGS().minimize(quadratic, np.zeros(2)).plot()
