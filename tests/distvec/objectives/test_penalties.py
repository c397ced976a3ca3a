"""Penalties on objectives over NumPy arrays: values, derivatives, minima."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses.classification import Hinge, Logistic
from distvec.losses.loss import Arrays, Loss, Parameter, Sums
from distvec.losses.rows import Floats, Rows
from distvec.objectives.local import Objective
from optim import (
    Box,
    ElasticNet,
    GroupLasso,
    Huber,
    L1Norm,
    L2Norm,
    NonNegative,
    Outcome,
    Simplex,
    SquaredL2Norm,
    check_gradient,
)

FEATURES = 5


@dataclass(frozen=True)
class SoftmaxOfTwo(Loss):
    """A table of weights."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(row=(2,)),)

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        margins = rows.margins(arrays[0], intercept=intercept)
        chances = np.exp(margins - np.logaddexp.reduce(margins, axis=1, keepdims=True))
        first = rows.labels > 0
        value = -np.log(np.where(first, chances[:, 0], chances[:, 1])).sum()
        slopes = chances - np.stack([first, ~first], axis=1)
        return Sums(float(value), rows.weight_sum, (rows.gradient(slopes, intercept=intercept),))


@dataclass(frozen=True)
class Two(Loss):
    """A vector with an intercept, and one without whose margins add up with the others."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Parameter("w"), Parameter("v", takes_intercept=False)

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        w, v = arrays
        both = w.copy()
        both[:FEATURES] += np.tanh(v)
        value, weight, (gradient,) = Logistic().sums(rows, (both,), intercept=intercept)
        return Sums(value, weight, (gradient, gradient[:FEATURES] / np.cosh(v) ** 2))


def objective_of(
    rows: Rows, loss: Loss, penalty: Any = None, *, intercept: bool = True, **options: Any
) -> Objective:
    """With an intercept unless said otherwise."""
    return Objective(rows, loss=loss, penalty=penalty, intercept=intercept, **options)


def some_rows(seed: int = 0, count: int = 40) -> Rows:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(count, FEATURES)) * [1.0, 0.3, 3.0, 1.0, 0.5] + [0, 1, 0, -1, 0]
    margins = matrix @ [1.0, -2.0, 0.5, 0.0, 0.0] + 0.7 + rng.logistic(size=count)
    return Rows(matrix, np.where(margins > 0, 1.0, -1.0))


LOSSES = [Logistic(), SoftmaxOfTwo(), Two()]
ROWS = some_rows()
weights = st.sampled_from([0.0, 1e-3, 0.05, 0.3])
points = st.integers(0, 2**32 - 1)


def point(objective: Objective, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=one.shape) for one in objective._arrays(objective.start())]
    return objective._given(arrays)


def flat(objective: Objective, x: Any) -> Floats:
    return np.concatenate([np.ravel(array) for array in objective._arrays(x)])


@given(st.sampled_from(LOSSES), weights, weights, st.booleans(), st.booleans(), points)
@settings(deadline=None, max_examples=60)
def test_elastic_net_is_what_its_formula_says(
    loss: Loss, l1: float, l2: float, intercept: bool, standard: bool, seed: int
) -> None:
    bare = objective_of(ROWS, loss, intercept=intercept)
    objective = objective_of(
        ROWS, loss, ElasticNet(l1, l2), intercept=intercept, standardization=standard
    )
    x = point(objective, seed)
    smooth, whole = 0.0, 0.0
    for array in objective._arrays(x):
        kept = array[:FEATURES]
        sigma = ROWS.matrix.std(axis=0, ddof=1) if standard else np.ones(FEATURES)
        kept = (kept.T * sigma).T
        smooth += 0.5 * l2 * (kept**2).sum()
        whole += l1 * np.abs(kept).sum()
    np.testing.assert_allclose(objective(x)[0], bare(x)[0] + smooth, rtol=1e-13)
    np.testing.assert_allclose(objective.penalty_value(x), smooth + whole, rtol=1e-13)
    np.testing.assert_allclose(objective.total(x), bare(x)[0] + smooth + whole, rtol=1e-13)
    if not isinstance(x, dict):
        assert (check := check_gradient(objective, x, seed=seed)), check


@given(weights, st.booleans(), st.booleans(), points)
@settings(deadline=None, max_examples=30)
def test_products_with_the_hessian_are_differences_of_gradients(
    l2: float, intercept: bool, standard: bool, seed: int
) -> None:
    penalty = SquaredL2Norm(l2)
    objective = objective_of(
        ROWS, Logistic(), penalty, intercept=intercept, standardization=standard
    )
    x, v = point(objective, seed), point(objective, seed + 1)
    step = 1e-5
    differences = (objective(x + step * v)[1] - objective(x - step * v)[1]) / (2.0 * step)
    np.testing.assert_allclose(objective.hessp(x, v), differences, atol=1e-8)


@given(weights, weights, st.booleans(), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=25)
def test_minima_meet_the_conditions_of_l1(
    l1: float, l2: float, intercept: bool, standard: bool, table: bool
) -> None:
    """Where a coefficient is 0 the gradient is at most the weight; else it is -weight * sign."""
    loss = SoftmaxOfTwo() if table else Logistic()
    objective = objective_of(
        ROWS, loss, ElasticNet(l1, l2 + 0.01), intercept=intercept, standardization=standard
    )
    result = objective.minimize(gradient_tolerance=1e-9)
    assert result.outcome is Outcome.CONVERGED_GRADIENT
    x, (_, gradient) = result.x, objective(result.x)
    sigma = ROWS.matrix.std(axis=0, ddof=1) if standard else np.ones(FEATURES)
    allowed = np.zeros(x.shape)
    allowed[:FEATURES] = (l1 * sigma)[:, None] if table else l1 * sigma
    zero = x == 0.0
    assert np.all(np.abs(gradient[zero]) <= allowed[zero] + 1e-7)
    np.testing.assert_allclose(gradient[~zero], (-allowed * np.sign(x))[~zero], atol=1e-7)
    np.testing.assert_allclose(result.fun, objective.total(x), rtol=1e-12)


@given(st.sampled_from([0.01, 0.1, 0.2, 1.0]), weights, st.booleans(), st.booleans())
@settings(deadline=None, max_examples=20)
def test_minima_meet_the_conditions_of_group_lasso(
    weight: float, l1: float, intercept: bool, standard: bool
) -> None:
    """The gradient by the scaled coefficients is -weight * u / |u|, or at most weight where a group
    is 0, beside what soft thresholding takes."""
    labels = np.array([0, 0, 1, 1, -1])
    penalty = [L1Norm(l1), GroupLasso(labels, groups=2, weight=weight)]
    objective = objective_of(
        ROWS, Logistic(), penalty, intercept=intercept, standardization=standard
    )
    result = objective.minimize(gradient_tolerance=1e-10, max_iterations=5000)
    sigma = ROWS.matrix.std(axis=0, ddof=1) if standard else np.ones(FEATURES)
    u = result.x[:FEATURES] * sigma
    g = objective(result.x)[1]
    if intercept:
        assert abs(g[-1]) < 1e-7  # values tell no more
    g = g[:FEATURES] / sigma
    rest = np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)
    for group in range(2):
        of, own = labels == group, u[labels == group]
        if not own.any():
            assert np.linalg.norm(rest[of]) <= weight + 1e-7
        else:
            expected = -weight * own / np.linalg.norm(own) - l1 * np.sign(own)
            np.testing.assert_allclose(g[of][own != 0], expected[own != 0], atol=1e-7)
            assert np.all(np.abs(g[of][own == 0]) <= l1 + 1e-7)


@given(weights, weights, st.booleans())
@settings(deadline=None, max_examples=15)
def test_bounds_hold_in_the_coefficients_themselves(l1: float, l2: float, standard: bool) -> None:
    """Numbers bound the features alone."""
    objective = objective_of(ROWS, Logistic(), ElasticNet(l1, l2), standardization=standard)
    result = objective.minimize(bounds=Box(-0.2, 0.1), gradient_tolerance=1e-9)
    x, g = result.x, objective(result.x)[1]
    w = x[:FEATURES]
    assert np.all((w >= -0.2 - 1e-15) & (w <= 0.1 + 1e-15))
    assert abs(g[-1]) < 1e-8 and x[-1] < -0.2
    sigma = ROWS.matrix.std(axis=0, ddof=1) if standard else np.ones(FEATURES)
    low, high = g[:FEATURES] - l1 * sigma, g[:FEATURES] + l1 * sigma
    low, high = np.where(w > 0, high, low), np.where(w < 0, low, high)
    inside = (w > -0.2 + 1e-12) & (w < 0.1 - 1e-12)
    assert np.all(low[inside] < 1e-7) and np.all(high[inside] > -1e-7)
    assert np.all(high[w <= -0.2 + 1e-12] > -1e-7) and np.all(low[w >= 0.1 - 1e-12] < 1e-7)


def test_at_the_kinks_of_a_loss_a_solver_stops_with_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match=r"Hinge\(smoothing=1e-3\)"):
        result = objective_of(ROWS, Hinge(), SquaredL2Norm(0.1)).minimize()
    smoothed = objective_of(ROWS, Hinge(smoothing=1e-4), SquaredL2Norm(0.1)).minimize()
    assert smoothed.outcome is Outcome.CONVERGED_GRADIENT
    np.testing.assert_allclose(result.fun, smoothed.fun, atol=1e-4)


MISTAKES = {
    "a number": (0.1, TypeError, r"penalty=0.1: must be a penalty of optim, such as"),
    "a set": (Simplex(), TypeError, r"is a set; bounds go to objective.minimize\(bounds=...\)"),
    "names": ({"w": L1Norm()}, TypeError, "there is only one array of parameters"),
    "length": (L1Norm(np.ones(4)), ValueError, r"weight has shape \(4,\).*has \(6,\)"),
    "labels": (GroupLasso(np.zeros(4, int), 1), ValueError, r"labels has shape \(4,\)"),
    "two groups": ([GroupLasso(np.zeros(5), 1), L2Norm()], NotImplementedError, "the sum of"),
    "no order": ([Huber(), L1Norm()], NotImplementedError, "the sum of Huber and an l1 norm"),
}


@pytest.mark.parametrize(("penalty", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_no_penalty_is_refused(penalty: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        objective_of(ROWS, Logistic(), penalty)
    with pytest.raises(error, match=message):
        objective_of(ROWS, Logistic()).with_penalty(penalty)


def test_solvers_that_do_not_fit_are_refused() -> None:
    groups = objective_of(ROWS, Logistic(), GroupLasso(np.zeros(5), 1))
    kinked = groups.with_penalty(L1Norm(0.1))
    with pytest.raises(ValueError, match=r"takes no penalty with kinks.*or OWL-QN"):
        kinked.minimize(method="L-BFGS")
    with pytest.raises(ValueError, match=r"takes no penalty with kinks.*'proximal-gradient'$"):
        groups.minimize(method="OWL-QN")
    with pytest.raises(ValueError, match="FTRL takes no penalty with kinks"):
        kinked.minimize(method="FTRL")  # whose l1 is another
    with pytest.raises(ValueError, match="takes no bounds"):
        groups.with_penalty(None).minimize(method="CG", bounds=Box(0.0, 1.0))
    with pytest.raises(ValueError, match=r"takes no bounds.*method='proximal-gradient'$"):
        kinked.minimize(method="OWL-QN", bounds=Box(0.0, 1.0))  # L-BFGS-B takes no l1 norm
    with pytest.raises(NotImplementedError, match=r"optim\.ADMM"):
        groups.minimize(bounds=Box(0.0, 1.0))
    with pytest.raises(ValueError, match="method='Newton' is not one of L-BFGS"):
        groups.minimize(method="Newton")
    with pytest.raises(ValueError, match="unknown option 'steps' for OWLQN; allowed are"):
        kinked.minimize(steps=3)
    softmax = objective_of(ROWS, SoftmaxOfTwo())
    with pytest.raises(NotImplementedError, match="SoftmaxOfTwo has no products"):
        softmax.hessp(softmax.start(), softmax.start())


@pytest.mark.parametrize("standard", [False, True])
def test_floats_of_32_bits_stay_so(standard: bool) -> None:
    weights = np.linspace(0.1, 0.2, 6)
    for penalty in (ElasticNet(weights / 10.0, weights), L1Norm(weights / 10.0)):
        objective = objective_of(ROWS, Logistic(), penalty, standardization=standard)
        exact = objective.minimize().x
        for bounds in (None, Box(-10.0, 10.0)):  # by OWL-QN, and by proximal gradients
            found = objective.minimize(np.zeros(6, np.float32), bounds=bounds)
            assert found.x.dtype == found.jac.dtype == np.float32
            np.testing.assert_allclose(found.x, exact, atol=2e-2)
        assert objective(found.x)[1].dtype == np.float32
        assert objective.hessp(found.x, found.x).dtype == np.float32


def test_solvers_by_name_find_the_same_minimum() -> None:
    objective = objective_of(ROWS, Logistic(), ElasticNet(0.02, 0.05), standardization=True)
    expected = objective.minimize(gradient_tolerance=1e-10).x
    for method in ("proximal-gradient", "ADMM"):
        found = objective.minimize(method=method, max_iterations=3000)
        np.testing.assert_allclose(found.x, expected, atol=1e-4)
    smooth = objective.with_penalty(SquaredL2Norm(0.05))
    expected = smooth.minimize(gradient_tolerance=1e-10).x
    for method in ("trust-ncg", "CG", "proximal-gradient", "gradient-descent"):
        found = smooth.minimize(method=method, max_iterations=3000)
        np.testing.assert_allclose(found.x, expected, atol=1e-5)
    for method in ("SPG", "PQN"):
        bounded = smooth.minimize(bounds=Box(-0.3, 0.3)).x
        found = smooth.minimize(method=method, bounds=Box(-0.3, 0.3))
        np.testing.assert_allclose(found.x, bounded, atol=1e-5)


def test_a_start_of_integers_or_in_lists_is_one_of_floats() -> None:
    penalty = ElasticNet(np.linspace(0.01, 0.05, 6), 0.01)
    for standard in (False, True):
        objective = objective_of(ROWS, Logistic(), penalty, standardization=standard)
        for bounds in (None, Box(np.full(6, -0.25), np.full(6, 0.75))):
            expected = objective.minimize(bounds=bounds).x
            for x0 in (np.zeros(6, int), [0] * 6):
                found = objective.minimize(x0, bounds=bounds).x
                np.testing.assert_array_equal(found, expected)


TWO = {
    "one for all": (ElasticNet(0.01, 0.1), (0.01, 0.01), (0.1, 0.1)),
    "weights by names": (ElasticNet({"w": 0.01, "v": 0.0}, 0.1), (0.01, 0.0), (0.1, 0.1)),
    "by names": (
        {"w": L1Norm(0.02), "v": [SquaredL2Norm(0.1), L1Norm(0.01)]},
        (0.02, 0.01),
        (0.0, 0.1),
    ),
    "of one": ({"v": SquaredL2Norm(0.2)}, (0.0, 0.0), (0.0, 0.2)),
}


@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize(("penalty", "l1", "l2"), TWO.values(), ids=TWO)
def test_parameters_in_several_arrays(penalty: Any, l1: Any, l2: Any, standard: bool) -> None:
    objective = objective_of(ROWS, Two(), penalty, standardization=standard)
    x = point(objective, 1)
    sigma = ROWS.matrix.std(axis=0, ddof=1) if standard else np.ones(FEATURES)
    w, v = sigma * x["w"][:FEATURES], sigma * x["v"]
    smooth = 0.5 * (l2[0] * w @ w + l2[1] * v @ v)
    rough = l1[0] * np.abs(w).sum() + l1[1] * np.abs(v).sum()
    bare = objective_of(ROWS, Two())
    np.testing.assert_allclose(objective(x)[0], bare(x)[0] + smooth, rtol=1e-13)
    np.testing.assert_allclose(objective.penalty_value(x), smooth + rough, rtol=1e-13)
    assert (check := check_gradient(objective, x)), check
    result = objective.minimize(gradient_tolerance=1e-9)
    assert result.outcome is Outcome.CONVERGED_GRADIENT
    gradient = objective(result.x)[1]
    assert abs(gradient["w"][-1]) < 1e-8
    for name, weight in zip(("w", "v"), l1, strict=True):
        u, g = result.x[name][:FEATURES], gradient[name][:FEATURES]
        np.testing.assert_allclose(g[u != 0], (-weight * sigma * np.sign(u))[u != 0], atol=1e-7)
        assert np.all(np.abs(g[u == 0]) <= (weight * sigma)[u == 0] + 1e-7)


def test_groups_and_bounds_of_several_arrays() -> None:
    groups = GroupLasso(np.array([0, 0, 1, 1, 1]), groups=2, weight=0.05)
    grouped = objective_of(ROWS, Two(), {"w": groups, "v": SquaredL2Norm(0.1)}).minimize()
    assert grouped.outcome is Outcome.CONVERGED_GRADIENT
    w = grouped.x["w"]
    assert not w[:2].any() and w[2:5].all() and w[5]
    smooth = objective_of(ROWS, Two(), SquaredL2Norm(0.1), standardization=True)
    for bounds in ({"v": NonNegative()}, Box({"w": -np.inf, "v": 0.0})):
        bounded = smooth.minimize(bounds=bounds)
        assert bounded.outcome is Outcome.CONVERGED_GRADIENT
        assert bounded.x["v"].min() == 0.0 and bounded.x["w"].min() < 0.0
    kinked = smooth.with_penalty(ElasticNet(0.01, 0.1)).minimize(bounds={"v": NonNegative()})
    assert kinked.x["v"].min() == 0.0 and kinked.x["w"].min() < 0.0
    labels = {"w": np.zeros(6, int), "v": np.zeros(5, int)}
    with pytest.raises(NotImplementedError, match="give a GroupLasso for each"):
        smooth.with_penalty(GroupLasso(labels, groups=1))
    with pytest.raises(ValueError, match=r"penalty has \['b'\]; the parameters are \['w', 'v'\]"):
        smooth.with_penalty({"b": L1Norm(0.1)})
    with pytest.raises(TypeError, match=r"bounds are a dict by parameters, of \['w', 'v'\]"):
        smooth.minimize(bounds={"b": NonNegative()})


def test_callbacks_see_the_coefficients_themselves() -> None:
    seen: list[Any] = []
    objective = objective_of(ROWS, Logistic(), SquaredL2Norm(0.1), standardization=True)
    result = objective.minimize(np.ones(6), callback=seen.append, progress=seen.append)
    np.testing.assert_allclose(seen[0].x, np.ones(6), rtol=1e-15)
    np.testing.assert_array_equal(seen[-1].x, result.x)
    for state in seen:
        value, gradient = objective(state.x)
        np.testing.assert_allclose(state.value, value, rtol=1e-12)
        np.testing.assert_allclose(state.gradient, gradient, atol=1e-12)
    np.testing.assert_allclose(result.jac, objective(result.x)[1], atol=1e-12)


def test_features_that_are_the_same_in_all_rows_have_no_part() -> None:
    """As in MLlib: their coefficients are 0, with an intercept and without."""
    rows = some_rows()
    matrix = rows.matrix.copy()
    matrix[:, 2] = 0.3
    rows = Rows(matrix, rows.labels)
    others = Rows(np.delete(matrix, 2, axis=1), rows.labels)
    for intercept in (False, True):
        words = {"intercept": intercept, "standardization": True}
        objective = objective_of(rows, Logistic(), ElasticNet(0.01, 0.1), **words)
        small = objective_of(others, Logistic(), ElasticNet(0.01, 0.1), **words)
        x = np.arange(5.0 + intercept)
        value, gradient = objective(x)
        expected = small(np.delete(x, 2))
        np.testing.assert_allclose(value, expected[0], rtol=1e-14)
        np.testing.assert_allclose(gradient, np.insert(expected[1], 2, 0.0), rtol=1e-12)
        found = objective.minimize(x)
        np.testing.assert_allclose(found.x, np.insert(small.minimize().x, 2, 0.0), atol=1e-6)
        assert found.x[2] == 0.0
