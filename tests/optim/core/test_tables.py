"""Tables: every solver goes the way that it goes on the vector of their elements, at its cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from optim import (
    ADMM,
    OWLQN,
    Box,
    GroupLasso,
    Hyperplane,
    L1Ball,
    L1Norm,
    L2Ball,
    L2Norm,
    ProximalGradient,
    Simplex,
    SpectralProjectedGradient,
    check_gradient,
    conjugate_gradient,
    minimize,
)
from optim.core.arrays import namespace, vdot
from tests.optim.registry import START, Case, cases

SHAPE = (4, 3)
CURVATURE = np.logspace(0.0, 0.75, 12)
LABELS = np.arange(12) % 3

# Beside the solvers, whatever else takes inner products: by a function of the shape of x.
SETS = {
    "Simplex": lambda shape: Simplex(),
    "L1Ball": lambda shape: L1Ball(2.0),
    "L2Ball": lambda shape: L2Ball(2.0),
    "L2Norm": lambda shape: L2Norm(0.5),
    "Hyperplane": lambda shape: Hyperplane(np.reshape(CURVATURE, shape), 1.0),
    "GroupLasso": lambda shape: GroupLasso(np.reshape(LABELS, shape), 3, 0.5),
}


def convex(shape: tuple[int, ...]) -> Any:
    """2 sum of cosh(root (x - 1) / 3) with a root for each element; on any array library."""

    def fun(x: Any) -> tuple[Any, Any]:
        xp = namespace(x)
        root = xp.asarray(CURVATURE.reshape(shape))
        up, down = xp.exp(root * (x - 1.0) / 3.0), xp.exp(-root * (x - 1.0) / 3.0)
        return xp.sum(up + down), root * (up - down) / 3.0

    return fun


def close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(np.ravel(one), np.ravel(other), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", cases(), ids=str)
@given(shape=st.sampled_from([(12, 1), (1, 12), (4, 3), (2, 6), (2, 3, 2)]), seed=st.integers(0, 9))
@settings(max_examples=5, deadline=None)
def test_the_path_of_the_vector(case: Case, shape: tuple[int, ...], seed: int) -> None:
    start = START + 0.1 * np.random.default_rng(seed).standard_normal(12)
    solver = case.make(max_iterations=8)
    flat = solver.iterations(convex((12,)), start)
    for one, other in zip(
        flat, solver.iterations(convex(shape), start.reshape(shape)), strict=True
    ):
        assert other.x.shape == other.gradient.shape == shape
        np.testing.assert_array_equal(other.x.ravel(), one.x)
        assert (other.value, other.outcome) == (one.value, one.outcome)


@pytest.fixture(scope="module", params=[1, 3], ids="servers={}".format)
def ps(request: Any) -> Iterator[dv.Session]:
    with dv.local(servers=request.param, in_process=True) as session:
        yield session


@pytest.mark.parametrize("case", cases(), ids=str)
def test_on_servers_at_the_cost_of_the_vector(ps: dv.Session, case: Case) -> None:
    solver = case.make(max_iterations=6)
    expected = solver.minimize(convex(SHAPE), START.reshape(SHAPE))
    results, costs = [], []
    for shape in (12,), SHAPE:
        start, fun = ps.array(START.reshape(shape)), convex(shape)
        before = ps.counters.snapshot()
        results.append(solver.minimize(fun, start))
        after = ps.counters.snapshot()
        costs.append({name: after[name] - before[name] for name in ("messages", "sweeps")})
    vector, table = results
    assert isinstance(table.x, dv.DistArray)
    assert table.x.shape == table.jac.shape == SHAPE
    assert costs[0] == costs[1]
    assert (table.nit, table.nfev, table.outcome) == (vector.nit, vector.nfev, vector.outcome)
    np.testing.assert_allclose(table.x.numpy().ravel(), vector.x.numpy(), rtol=1e-12, atol=1e-14)
    close(table.x.numpy(), expected.x)


@pytest.mark.parametrize("name", SETS)
def test_sets_and_penalties_of_tables(name: str) -> None:
    found = []
    for shape in (12,), SHAPE:
        penalty, start = SETS[name](shape), START.reshape(shape)
        solvers = [ProximalGradient(penalty=penalty), ADMM(penalty=penalty, terms=(L1Norm(0.1),))]
        if callable(penalty):
            solvers.append(SpectralProjectedGradient(projection=penalty))
        found.append([solver.minimize(convex(shape), start).x for solver in solvers])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other.ravel(), one, rtol=1e-12, atol=1e-14)


def local(x: Any) -> np.ndarray:
    return x.numpy() if isinstance(x, dv.DistArray) else x


@pytest.mark.parametrize("method", ["L-BFGS-B", "OWL-QN"])
@pytest.mark.parametrize(
    "values", [0.5 + np.arange(3.0) / 4, np.linspace(0.2, 1.4, 4)[:, None]], ids=["row", "column"]
)
def test_one_bound_or_weight_for_a_column_or_row(
    ps: dv.Session, method: str, values: np.ndarray
) -> None:
    start, fun = START.reshape(SHAPE), convex(SHAPE)

    def minimum(x0: Any, values: np.ndarray) -> np.ndarray:
        options = {"l1": values} if method == "OWL-QN" else {"bounds": Box(-1.0, values)}
        return local(minimize(fun, x0, method=method, options=options).x)

    expected = minimum(start, np.broadcast_to(values, SHAPE).copy())
    np.testing.assert_array_equal(minimum(start, values), expected)
    close(minimum(ps.array(start), values), expected)


def test_bounds_and_weights_that_do_not_fit() -> None:
    start = START.reshape(SHAPE)
    with pytest.raises(ValueError, match=r"upper has shape \(4,\), but x has \(4, 3\)"):
        minimize(convex(SHAPE), start, bounds=Box(0.0, np.ones(4)))
    with pytest.raises(ValueError, match=r"l1 has shape \(4, 3, 1\), but x has \(4, 3\)"):
        OWLQN(l1=np.ones((4, 3, 1))).minimize(convex(SHAPE), start)


def test_scipys_arguments() -> None:
    fun, start = convex(SHAPE), START.reshape(SHAPE)
    expected = minimize(fun, start).x

    def value(x: np.ndarray) -> Any:
        return fun(x)[0]

    def hess(x: np.ndarray) -> np.ndarray:
        root = CURVATURE.reshape(SHAPE)
        curvatures = root**2 * 2.0 * np.cosh(root * (x - 1.0) / 3.0) / 9.0
        return np.diag(curvatures.ravel()).reshape(SHAPE * 2)

    for jac in ("2-point", "3-point", lambda x: fun(x)[1]):
        result = minimize(value, start.tolist(), jac=jac)
        assert result.x.shape == result.jac.shape == SHAPE
        np.testing.assert_allclose(result.x, expected, atol=1e-5)
    close(minimize(fun, start, method="trust-ncg", hess=hess).x, expected)
    bounds = [(-1.0, 0.5), (None, 0.7), (0.0, None)]  # of each column
    bounded = minimize(value, start, bounds=bounds).x
    np.testing.assert_allclose(bounded, np.broadcast_to([0.5, 0.7, 1.0], SHAPE), atol=1e-5)
    one = minimize(lambda x: (x[0, 0] - 2.0) ** 2, [[0.0]], jac=lambda x: 2.0 * (x[0, 0] - 2.0))
    np.testing.assert_allclose(one.x, [[2.0]])


def test_gradient_checks_name_rows_and_columns(ps: dv.Session) -> None:
    start = START.reshape(SHAPE)
    for x in (start, ps.array(start)):
        assert check_gradient(convex(SHAPE), x)
        wrong = check_gradient(lambda x: (convex(SHAPE)(x)[0], 2.0 * convex(SHAPE)(x)[1]), x)
        assert not wrong
        assert wrong.derivatives[5].direction == "x[1, 2]"


def test_linear_systems_of_tables(ps: dv.Session) -> None:
    diagonal, b = CURVATURE.reshape(SHAPE), START.reshape(SHAPE)
    on_servers = ps.array(diagonal)
    solved = conjugate_gradient(lambda v: diagonal * v, b, rtol=1e-12)
    close(solved.x, b / diagonal)
    assert solved.success
    close(conjugate_gradient(lambda v: on_servers * v, ps.array(b), rtol=1e-12).x.numpy(), solved.x)


def test_inner_products_of_any_rank() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    for one, other in ((x, y), (x[0], y[0]), (x.T, y.T), (x[0, 0], y[0, 0])):
        assert vdot(one, other) == pytest.approx(np.sum(one * other), rel=1e-13)
        own = strict.asarray(one.copy()), strict.asarray(other.copy())
        assert float(vdot(*own)) == pytest.approx(np.sum(one * other), rel=1e-13)
