"""What lazy arrays pay: messages and the depth of the graph, counted; and other array libraries."""

from __future__ import annotations

import itertools

import array_api_strict as strict
import numpy as np
import pytest

from optim import (
    ADMM,
    LBFGS,
    LBFGSB,
    OWLQN,
    SGD,
    Box,
    ConjugateGradient,
    Counted,
    GradientDescent,
    HagerZhang,
    L1Ball,
    L1Norm,
    L2Ball,
    ProjectedQuasiNewton,
    ProximalGradient,
    Simplex,
    SpectralProjectedGradient,
    StrongWolfe,
    TruncatedNewton,
    conjugate_gradient,
    minimize,
)
from optim.core.arrays import fetch, persist
from tests.optim.lazy_array import LazyNamespace
from tests.optim.problems import quadratic, quartic

SOLVERS = [
    LBFGS(gradient_tolerance=1e-8),
    LBFGS(history=3),
    LBFGS(history=0, max_iterations=50),
    LBFGSB(),
    LBFGSB(bounds=Box(-1.0, 0.5)),
    LBFGSB(bounds=[(-1.0, 0.5 if i % 2 else None) for i in range(12)], history=3),
    OWLQN(l1=0.3),
    OWLQN(l1=0.0),
    ConjugateGradient(),
    ConjugateGradient(search=HagerZhang(c2=0.4)),
    TruncatedNewton(),
    SGD(step_size=1e-9, max_iterations=40),
    SGD(step_size=1e-9, momentum=0.9, nesterov=True, average=True, max_iterations=40),
    GradientDescent(max_iterations=60),
    SpectralProjectedGradient(projection=Box(-1.0, 0.5)),
    SpectralProjectedGradient(projection=Simplex()),
    ProjectedQuasiNewton(projection=L2Ball()),
    ProjectedQuasiNewton(projection=L1Ball(2.0)),
    ProximalGradient(penalty=L1Norm(0.3)),
    ProximalGradient(penalty=Simplex(), accelerated=False),
    ADMM(penalty=L1Norm(0.3)),
]


def ill_conditioned(x):
    """sum of cosh along stretched axes; works on any array library."""
    xp = x.__array_namespace__()
    weights = xp.asarray(np.logspace(0.0, 2.0, 12)) if xp is not strict else STRICT_WEIGHTS
    up, down = xp.exp(x), xp.exp(-x)
    return xp.sum(weights * (up + down)), weights * (up - down)


def hessian_of_ill_conditioned(x):
    """Its diagonal."""
    xp = x.__array_namespace__()
    return xp.asarray(np.logspace(0.0, 2.0, 12)) * (xp.exp(x) + xp.exp(-x))


STRICT_WEIGHTS = strict.asarray(np.logspace(0.0, 2.0, 12).tolist())
START = np.linspace(-2.0, 3.0, 12)


@pytest.mark.parametrize(
    "solver", [LBFGS(), LBFGSB(), OWLQN(l1=0.5), OWLQN(l1=0.0)], ids=lambda s: type(s).__name__
)
def test_two_messages_per_iteration(solver):
    """One to judge each trial, one per direction; nothing else."""
    xp = LazyNamespace()
    result = solver.minimize(ill_conditioned, xp.array(START))
    assert result.success
    assert result.nit > 10
    assert xp.messages == result.nfev + result.nit
    assert xp.messages <= 1 + 2.2 * result.nit
    assert xp.deepest < 40 + 8 * solver.history


@pytest.mark.parametrize("search", [StrongWolfe(c2=0.2), HagerZhang(c2=0.2)])
def test_conjugate_gradients_take_a_message_per_trial_and_one_per_direction(search):
    xp = LazyNamespace()
    result = ConjugateGradient(search=search).minimize(ill_conditioned, xp.array(START))
    assert result.success
    assert result.nit > 10
    assert xp.messages == result.nfev + result.nit
    assert xp.deepest < 12


def test_bounds_cost_a_message_more_where_other_coordinates_are_held():
    xp = LazyNamespace()
    solver = LBFGSB(bounds=[(low, None) for low in np.linspace(-0.5, 0.5, 12)])
    states = list(solver.iterations(ill_conditioned, xp.array(START)))
    last = states[-1]
    masks = [state.memory.held.compute() for state in states]
    changes = sum(np.any(a != b) for a, b in itertools.pairwise(masks))
    assert 1 < changes < last.iteration / 2
    assert xp.messages == 1 + last.evaluations + last.iteration + changes  # bounds are checked once


def test_a_message_per_product_with_the_hessian():
    xp = LazyNamespace()
    products = Counted(lambda x, v: hessian_of_ill_conditioned(x) * v)
    solver = TruncatedNewton(hessp=products)
    result = solver.minimize(ill_conditioned, xp.array(START))
    assert result.success
    assert result.nfev - 1 <= 1.5 * result.nit
    # The start takes two, a trial two, a product one, and one more at the region's boundary.
    least = 2 + 2 * (result.nfev - 1) + products.calls
    assert least <= xp.messages <= least + result.nfev - 1


@pytest.mark.parametrize("max_norm", [float("inf"), 0.1])
def test_a_message_per_iteration_of_linear_conjugate_gradients(max_norm):
    xp = LazyNamespace()
    diagonal, b = xp.array(np.logspace(0.0, 2.0, 12)), xp.array(START)
    solved = conjugate_gradient(lambda v: diagonal * v, b, max_norm=max_norm)
    assert solved.success is (max_norm == float("inf"))
    assert xp.messages == 1 + solved.iterations + (not solved.success)
    assert xp.deepest < 12


def test_vector_weights_cost_one_message_more():
    xp = LazyNamespace()
    weights = xp.array(np.where(np.arange(12) % 3, 0.5, 0.0))
    result = OWLQN(l1=weights).minimize(ill_conditioned, xp.array(START))
    assert xp.messages == 1 + result.nfev + result.nit


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_message_per_sgd_step(momentum):
    xp = LazyNamespace()
    solver = SGD(step_size=1e-4, momentum=momentum, average=True, max_iterations=50)
    result = solver.minimize(ill_conditioned, xp.array(START))
    assert xp.messages == 1 + 50 + 1  # the start, the steps, the mean
    assert result.nfev == 52
    assert xp.deepest < 30  # the graph does not grow with the iterations


def test_a_numpy_value_beside_lazy_gradients():
    xp = LazyNamespace()
    result = LBFGS().minimize(
        lambda x: (float(quadratic(x)[0]), quadratic(x)[1]), xp.array(np.zeros(3))
    )
    np.testing.assert_allclose(result.x.compute(), 3.0)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("fun", [quadratic, quartic, ill_conditioned])
def test_same_path_on_every_library(solver, fun):
    ours = solver.minimize(fun, START)
    other = solver.minimize(fun, strict.asarray(START.tolist()))
    lazy = solver.minimize(fun, LazyNamespace().array(START))
    for result, x in ((other, np.asarray(other.x)), (lazy, lazy.x.compute())):
        values = [record.value for record in result.history[:10]]
        expected = [record.value for record in ours.history[:10]]
        np.testing.assert_allclose(values, expected, rtol=1e-8)
        assert result.outcome is ours.outcome
        assert result.fun == pytest.approx(ours.fun, rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(x, ours.x, rtol=1e-4, atol=1e-6)
    assert type(other.x) is type(strict.asarray([1.0]))


def test_strict_arrays_keep_dtype_and_integers_become_float64():
    x0 = strict.asarray([1.0, 2.0], dtype=strict.float32)
    for solver in (LBFGS(), OWLQN(l1=strict.asarray([0.0, 1.0])), SGD(max_iterations=3)):
        assert solver.minimize(quadratic, x0).x.dtype == strict.float32
    assert minimize(quadratic, strict.asarray([1, 2])).x.dtype == strict.float64


class _Handle:
    """An array of a library without evaluate: it can only be persisted by itself."""

    def __init__(self):
        self.persisted = 0

    def persist(self):
        self.persisted += 1


def test_persist_and_fetch():
    xp, other = LazyNamespace(), LazyNamespace()
    a, b = xp.array([1.0, 2.0]) + 1.0, xp.array([1.0]) * 2.0
    assert persist(a, b, np.ones(1))[:2] == (a, b)
    assert (xp.messages, a.pending, b.pending) == (1, False, False)
    handle = _Handle()
    numbers = fetch(a @ a, 2, np.float32(1.5), other.array(4.0) + 1.0, also=(handle, a * 2.0))
    assert numbers == (13.0, 2.0, 1.5, 5.0)
    assert (xp.messages, other.messages, handle.persisted) == (2, 1, 1)
