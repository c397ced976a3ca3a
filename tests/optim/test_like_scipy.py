"""The same calls of `minimize` here and in SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize as scipy

import optim
from distvec import local

METHODS = ["L-BFGS-B", "CG"]


def value(x):
    return np.sum((x[:-1] - 1.0) ** 2) + 10.0 * np.sum((x[1:] - x[:-1] ** 2) ** 2)


def gradient(x):
    g = np.zeros_like(x)
    g[:-1] = 2.0 * (x[:-1] - 1.0) - 40.0 * (x[1:] - x[:-1] ** 2) * x[:-1]
    g[1:] += 20.0 * (x[1:] - x[:-1] ** 2)
    return g


def both(x):
    return value(x), gradient(x)


START = np.array([-1.2, 1.0, 0.5])

CALLS = {
    "no gradient": ((value, START), {}),
    "jac=None": ((value, START), {"jac": None}),
    "2-point": ((value, START), {"jac": "2-point"}),
    "3-point": ((value, START), {"jac": "3-point"}),
    "cs": ((value, START), {"jac": "cs"}),
    "callable": ((value, START), {"jac": gradient}),
    "pair": ((both, START), {"jac": True}),
    "lists": ((lambda x: (value(x), gradient(x).tolist()), list(START)), {"jac": True}),
    "value of shape (1,)": ((lambda x: np.array([value(x)]), START), {"jac": gradient}),
    "args": ((lambda x, a: value(x - a), START, (0.5,)), {"jac": lambda x, a: gradient(x - a)}),
    "args, no tuple": ((lambda x, a: value(x - a), START, 0.5), {}),
    "positional": ((value, START, (), "CG", gradient, None, None, None, (), 1e-7), {}),
    "scalar x0": ((lambda x: (x[0] - 2.0) ** 2, 0.0), {}),
    "options": ((value, START), {"jac": gradient, "options": {"maxiter": 200, "gtol": 1e-7}}),
    "bounds, pairs": (
        (value, START),
        {"jac": gradient, "bounds": [(-2, 0.5), (None, 1), (0, None)]},
    ),
    "bounds, scalar": ((value, START), {"jac": gradient, "bounds": scipy.Bounds(-2, 0.8)}),
    "bounds, no gradient": ((value, START * 0.5), {"bounds": [(-0.6, 0.5)] * 3}),
    "Hessian": (
        (lambda x: np.cosh(x).sum(), START),
        {"jac": np.sinh, "hess": lambda x: np.diag(np.cosh(x)), "method": "trust-ncg"},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_call_finds_the_same(name):
    positional, named = CALLS[name]
    ours, theirs = optim.minimize(*positional, **named), scipy.minimize(*positional, **named)
    np.testing.assert_allclose(ours.x, theirs.x, atol=2e-4)
    assert ours.fun == pytest.approx(theirs.fun, abs=1e-7)
    assert type(ours.fun) is float
    assert ours.x.shape == theirs.x.shape
    assert ours.nit > 0


@pytest.mark.parametrize("minimise", [optim.minimize, scipy.minimize], ids=["optim", "SciPy"])
class TestCallbacks:
    def test_of_x(self, minimise):
        seen = []
        result = minimise(
            value, START, jac=gradient, method="CG", callback=lambda xk: seen.append(xk)
        )
        assert len(seen) == result.nit
        np.testing.assert_array_equal(seen[-1], result.x)

    def test_of_the_intermediate_result(self, minimise):
        seen = []

        def callback(intermediate_result):
            seen.append(intermediate_result.fun)
            if len(seen) == 3:
                raise StopIteration

        result = minimise(value, START, jac=gradient, method="L-BFGS-B", callback=callback)
        assert (len(seen), result.nit, result.success) == (3, 3, False)

    def test_writing_to_x_changes_nothing(self, minimise):
        def fun(x):
            found = value(x)
            x[:] = 7.0
            return found

        result = minimise(fun, START, jac=gradient, callback=lambda xk: xk.fill(3.0))
        np.testing.assert_allclose(result.x, 1.0, atol=1e-4)

    @pytest.mark.parametrize("options", [{"maxiter": 2}, {"maxfun": 4}])
    def test_limits(self, minimise, options):
        result = minimise(value, START, jac=gradient, method="L-BFGS-B", options=options)
        assert not result.success
        assert result.nfev <= 10


@pytest.mark.parametrize("kind", ["2-point", "3-point"])
def test_differences_stay_in_the_box(kind):
    def inside(x):
        assert np.all((x >= 0.0) & (x <= 1.0)), x
        return np.sum((x - np.array([-1.0, 0.5, 2.0])) ** 2)

    result = optim.minimize(inside, np.full(3, 0.3), jac=kind, bounds=[(0, 1)] * 3)
    np.testing.assert_allclose(result.x, [0.0, 0.5, 1.0], atol=1e-6)


def test_calls_of_differences_are_counted():
    calls = []
    result = optim.minimize(lambda x: calls.append(1) or value(x), START, jac="3-point")
    assert result.nfev == len(calls) > 6 * result.nit


def test_disp_prints_how_it_ended(capsys):
    result = optim.minimize(value, START, jac=gradient, options={"disp": True})
    assert result.message in capsys.readouterr().out


def test_scalar_bounds_and_pairs_on_servers():
    with local(servers=2, in_process=True) as session:
        x0 = session.array(np.array([0.5, 0.2, 0.9]))

        def fun(x):
            return (x - 2.0) @ (x - 2.0), 2.0 * (x - 2.0)

        for bounds in (scipy.Bounds(0, 1), [(0, 1)] * 3, [(None, 1)] * 3):
            result = optim.minimize(fun, x0, jac=True, bounds=bounds)
            np.testing.assert_array_equal(result.x.numpy(), 1.0)
        with pytest.raises(ValueError, match=r"NumPy arrays only.*jac="):
            optim.minimize(lambda x: x @ x, x0, jac="2-point")
        found = optim.minimize(lambda x: (x - 2.0) @ (x - 2.0), x0)  # the gradient is the servers'
        np.testing.assert_allclose(found.x.numpy(), 2.0, rtol=1e-8)
