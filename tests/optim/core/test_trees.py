"""Parameters in several arrays: every solver goes the way that it goes on one vector."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optim import (
    LBFGS,
    SAG,
    SGD,
    ConjugateGradient,
    FiniteSum,
    Minibatches,
    TruncatedNewton,
    check_gradient,
    conjugate_gradient,
    hessian_product,
    with_l2,
)
from optim.core.arrays import fetch, max_norm, namespace, vdot
from optim.core.trees import Structure, Tree, as_start, as_tree, is_structure
from tests.optim.registry import START, Case, cases, ill_conditioned
from tests.optim.trees import STRUCTURES, Cut, Model, cosh_of, cuts, joined

TWO = Cut(((4,), (4, 2)), lambda p: {"w": p[0], "V": p[1]})
WHOLE = Cut(((12,),), lambda p: {"w": p[0]})


def split(x: Any) -> Any:
    """A user's loss of a dict: sum (w - 1)^2 + sum (V + 2)^4."""
    w, table = x["w"], x["V"]
    value = np.sum((w - 1.0) ** 2) + np.sum((table + 2.0) ** 4)
    return value, {"w": 2.0 * (w - 1.0), "V": 4.0 * (table + 2.0) ** 3}


@pytest.mark.parametrize("case", cases(), ids=str)
@settings(deadline=None, max_examples=3)
@given(cut=cuts())
@example(cut=Cut(((1,), (3,), (8,)), STRUCTURES[3][0]))
def test_the_same_path_as_on_one_vector(case: Case, cut: Cut) -> None:
    """Sums over the pieces round otherwise: what ends by a tolerance may end a call sooner."""
    solver = case.make(max_iterations=8)
    ours = solver.minimize(ill_conditioned, START)
    theirs = solver.minimize(cosh_of(cut), cut.of(START))
    assert Structure.of(theirs.x) == Structure.of(theirs.jac) == Structure.of(cut.of(START))
    assert [leaf.shape for leaf in as_tree(theirs.x).leaves] == list(cut.shapes)
    assert (theirs.nit, theirs.outcome) == (ours.nit, ours.outcome)
    assert abs(theirs.nfev - ours.nfev) <= 1
    for one, other in zip(ours.history, theirs.history, strict=True):
        assert other.value == pytest.approx(one.value, rel=1e-9)
    np.testing.assert_allclose(joined(theirs.x), ours.x, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(joined(theirs.jac), ours.jac, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_one_array_in_a_dict_goes_the_same_way_bit_for_bit(case: Case) -> None:
    solver = case.make(max_iterations=25)
    alone = list(solver.iterations(ill_conditioned, START))
    inside = list(solver.iterations(cosh_of(WHOLE), WHOLE.of(START)))
    assert [state.value for state in alone] == [state.value for state in inside]
    for one, other in zip(alone, inside, strict=True):
        np.testing.assert_array_equal(other.x["w"], one.x)
        np.testing.assert_array_equal(other.gradient["w"], one.gradient)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_states_are_resumed_and_pickled(case: Case) -> None:
    solver, fun = case.make(max_iterations=8), cosh_of(TWO)
    states = list(solver.iterations(fun, TWO.of(START)))
    resumed = list(solver.iterations(fun, pickle.loads(pickle.dumps(states[3]))))
    assert [state.value for state in resumed] == [state.value for state in states[3:]]
    for one, other in zip(states[3:], resumed, strict=True):
        np.testing.assert_array_equal(joined(other.x), joined(one.x))
    result = solver.minimize(fun, resume=states[3])
    assert set(result.x) == {"w", "V"}


def test_callbacks_and_progress_see_the_users_structure() -> None:
    seen: list[Any] = []
    LBFGS(max_iterations=3).minimize(
        split,
        {"w": np.zeros(3), "V": np.zeros((2, 2))},
        callback=lambda state: seen.append((state.x, state.gradient)),
        progress=lambda state: seen.append((state.x, state.gradient)),
    )
    assert len(seen) > 4
    assert all(list(x) == list(g) == ["w", "V"] for x, g in seen)


def test_an_objective_that_fills_the_same_buffers() -> None:
    """A history must not change with them."""
    buffers = {"w": np.zeros(3), "V": np.zeros((2, 2))}

    def fun(x: Any) -> Any:
        value, gradient = split(x)
        for name, buffer in buffers.items():
            buffer[...] = gradient[name]
        return value, buffers

    start = {"w": np.zeros(3), "V": np.zeros((2, 2))}
    filled, fresh = LBFGS().minimize(fun, start), LBFGS().minimize(split, start)
    assert filled.nit == fresh.nit
    np.testing.assert_array_equal(joined(filled.x), joined(fresh.x))
    assert not joined(start).any(), "the start was written to"


# What is a structure, and what is one array.


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"w": 1.0},
        (np.zeros(2),),
        [np.zeros(2), [1.0, 2.0]],
        [[np.zeros((1, 1))]],
        Model([1.0], {"a": 2.0}),
    ],
    ids=str,
)
def test_dicts_and_sequences_of_arrays_are_structures(value: Any) -> None:
    assert is_structure(value)


@pytest.mark.parametrize(
    "value", [1.0, [1.0, 2.0], (1, 2), [[1.0], [2.0]], [np.float64(1.0)], np.zeros(3), []], ids=str
)
def test_numbers_in_lists_are_one_array(value: Any) -> None:
    assert not is_structure(value)


def test_lists_of_numbers_inside_are_vectors_and_integers_become_floats() -> None:
    result = LBFGS().minimize(split, {"w": [1, 2, 3], "V": np.zeros((2, 2), np.float32)})
    assert result.x["w"].dtype == np.float64
    assert result.x["V"].dtype == np.float32
    np.testing.assert_allclose(result.x["w"], 1.0)


@pytest.mark.parametrize("solver", [LBFGS(), ConjugateGradient(), SGD(step_size=0.01)], ids=repr)
def test_each_array_keeps_its_dtype(solver: Any) -> None:
    def fun(x: Any) -> Any:
        value, gradient = split(x)
        return value, {name: g.astype(x[name].dtype) for name, g in gradient.items()}

    start = {"w": np.zeros(3), "V": np.ones((2, 2), np.float32)}
    for state in solver.iterations(fun, start):
        assert [a.dtype for a in state.x.values()] == [np.float64, np.float32]
        assert [a.dtype for a in state.gradient.values()] == [np.float64, np.float32]
        for leaf in _trees_in(state.memory):
            assert [a.dtype for a in leaf.leaves] == [np.float64, np.float32]
    assert state.value < fun(start)[0]


def _trees_in(memory: Any) -> list[Tree]:
    """All trees in the fields of a memory."""
    if isinstance(memory, Tree):
        return [memory]
    parts = memory if isinstance(memory, tuple) else getattr(memory, "__dict__", {}).values()
    return [tree for part in parts for tree in _trees_in(part)]


# The tree as an array.


@settings(deadline=None, max_examples=30)
@given(cut=cuts(size=12), seed=st.integers(0, 2**32 - 1))
def test_operators_and_reductions_are_those_of_the_vector(cut: Cut, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, 12))
    a, b = as_tree(cut.of(x)), as_tree(cut.of(y))
    xp = namespace(a)
    pairs = [
        (2.0 * a - b / 3.0, 2.0 * x - y / 3.0),
        (1.0 / (a * a + 1.0) ** 0.5, 1.0 / (x * x + 1.0) ** 0.5),
        (np.float64(2.0) - a, 2.0 - x),
        (xp.where((a > b) | (b == 0.0), a, -b), np.where(x > y, x, -y)),
        (xp.maximum(xp.minimum(a, 0.5), b), np.maximum(np.minimum(x, 0.5), y)),
        (xp.astype((a < 0.0) & (b >= 0.0), a.dtype), ((x < 0.0) & (y >= 0.0)).astype(float)),
    ]
    for tree, vector in pairs:
        np.testing.assert_array_equal(joined(tree.arranged()), vector)
    scalars = fetch(vdot(a, b), xp.sum(a), xp.max(a), xp.min(a), max_norm(b), also=(a, b))
    assert scalars == pytest.approx((x @ y, x.sum(), x.max(), x.min(), np.abs(y).max()), rel=1e-12)
    assert a.shape == (12,)


def test_what_a_tree_refuses() -> None:
    x = as_start({"w": np.zeros(3), "V": np.zeros((2, 2))})
    with pytest.raises(ValueError, match="the other operand must be a dict with the keys 'w', 'V'"):
        x + as_start({"w": np.zeros(3), "U": np.zeros((2, 2))})
    with pytest.raises(TypeError, match=r"the other operand is one array of shape \(3,\)"):
        x * np.ones(3)
    with pytest.raises(ValueError, match="broadcast") as caught:
        x + as_start({"w": np.zeros(4), "V": np.zeros((2, 2))})
    assert caught.value.__notes__ == ["The error is in the array ['w'] of the parameters."]
    with pytest.raises(AttributeError, match="cumsum is not defined for parameters in several"):
        namespace(x).cumsum(x)
    with pytest.raises(TypeError, match="the truth value of several arrays"):
        bool(x == x)


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        ({}, ValueError, "x0 must hold at least one array"),
        ({"w": 0.0, "V": np.zeros(2)}, ValueError, r"x0\['w'\] must be .* give a single number as"),
        ((np.zeros(2), np.zeros(0)), ValueError, r"x0\[1\] must be an array with at least one"),
        (Model(np.zeros(2), np.zeros(2, complex)), TypeError, r"x0.table must hold real numbers"),
        ({"w": {"a": np.array(["b"])}}, TypeError, r"x0\['w'\]\['a'\] must hold real numbers"),
    ],
    ids=str,
)
def test_starts_that_are_refused(start: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LBFGS().minimize(split, start)


@pytest.mark.parametrize(
    ("gradient", "error", "message"),
    [
        (
            lambda g: {"w": g["w"], "V": g["V"][:, :1]},
            ValueError,
            r"gradient\['V'\] has shape \(2, 1\), but x\['V'\] has \(2, 2\)",
        ),
        (
            lambda g: {"w": g["w"]},
            ValueError,
            "gradient must be a dict with the keys 'w', 'V', but has 'w'",
        ),
        (lambda g: g["w"], TypeError, r"gradient must be a dict .* but is a ndarray of shape"),
        (lambda g: {"w": g, "V": g["V"]}, TypeError, r"gradient\['w'\] must be one array"),
        (lambda g: {"w": 1.0, "V": g["V"]}, TypeError, r"gradient\['w'\] must be an array like x"),
        (lambda g: tuple(g.values()), TypeError, "gradient must be a dict .* but is a tuple"),
    ],
)
def test_gradients_that_are_refused(gradient: Any, error: type[Exception], message: str) -> None:
    start = {"w": np.zeros(3), "V": np.zeros((2, 2))}
    with pytest.raises(error, match=message):
        LBFGS().minimize(lambda x: (split(x)[0], gradient(split(x)[1])), start)


def test_gradients_that_have_other_parts_than_a_tuple() -> None:
    with pytest.raises(ValueError, match="gradient must be a tuple of 2 parts, but has 1 parts"):
        LBFGS().minimize(lambda x: (0.0, (x[0],)), (np.zeros(2), np.zeros(3)))


# What else takes parameters.


def test_gradient_checks_name_the_array_and_the_element() -> None:
    start = {"w": np.zeros(3), "V": np.arange(8.0).reshape(4, 2)}
    assert check_gradient(split, start)

    def wrong(x: Any) -> Any:
        value, gradient = split(x)
        gradient["V"][3, 1] *= 1.5
        return value, gradient

    check = check_gradient(wrong, start)
    bad = [one.direction for one in check.derivatives if not one.ok]
    assert [name for name in bad if name.startswith("x")] == ["x['V'][3, 1]"]


def test_products_with_the_hessian() -> None:
    x = {"w": np.ones(3), "V": np.array([[1.0], [2.0]])}
    v = {"V": np.array([[1.0], [-1.0]]), "w": np.arange(3.0)}
    expected = {"w": 2.0 * v["w"], "V": 12.0 * (x["V"] + 2.0) ** 2 * v["V"]}
    product = hessian_product(split, x)(v)
    for name, exact in expected.items():
        np.testing.assert_allclose(product[name], exact, rtol=1e-5)

    def hessp(x: Any, v: Any) -> Any:
        return {"w": 2.0 * v["w"], "V": 12.0 * (x["V"] + 2.0) ** 2 * v["V"]}

    result = TruncatedNewton(hessp=hessp).minimize(split, x)
    np.testing.assert_allclose(joined(result.x), [1.0] * 3 + [-2.0] * 2, atol=1e-2)
    assert result.success
    short = TruncatedNewton(hessp=lambda x, v: {"w": v["w"][:1], "V": v["V"]})
    with pytest.raises(ValueError, match=r"hessp\(x, v\)\['w'\] has shape \(1,\)"):
        short.minimize(split, x)


@pytest.mark.parametrize("case", [case for case in cases() if case.stochastic], ids=str)
def test_batches_of_a_factorization_machine(case: Case) -> None:
    """Any stochastic solver on minibatches, in a dict as in one vector."""
    rng = np.random.default_rng(3)
    rows, labels = rng.standard_normal((40, 3)), rng.choice([-1.0, 1.0], 40)
    cut = Cut(((3,), (3, 2)), lambda p: {"w": p[0], "V": p[1]})
    loss = _factorization_machine

    def in_one(x: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> Any:
        value, gradient = loss(cut.of(x), rows, labels)
        return value, joined(gradient)

    def objective(loss: Any) -> Any:
        if case.cls is SAG:
            part = [np.arange(i, 40, 5) for i in range(5)]
            return FiniteSum(lambda x, i: loss(x, rows[part[i]], labels[part[i]]), 5)
        return Minibatches.of(loss, rows, labels, batch_size=8)

    start = rng.standard_normal(9) * 0.1
    solver = case.make(max_iterations=12)
    ours = solver.minimize(objective(in_one), start)
    theirs = solver.minimize(objective(loss), cut.of(start))
    assert theirs.fun == pytest.approx(ours.fun, rel=1e-12)
    np.testing.assert_allclose(joined(theirs.x), ours.x, rtol=1e-10, atol=1e-13)


def _factorization_machine(x: Any, rows: np.ndarray, labels: np.ndarray) -> Any:
    """Mean logistic loss of rows @ w + (|rows @ V|^2 - rows^2 @ |V|^2) / 2."""
    w, table = x["w"], x["V"]
    sums = rows @ table
    margins = labels * (rows @ w + 0.5 * ((sums**2).sum(1) - (rows**2 @ table**2).sum(1)))
    slopes = -labels * 0.5 * (1.0 - np.tanh(0.5 * margins)) / len(labels)
    products = rows.T @ (slopes[:, None] * sums) - table * ((rows**2).T @ slopes)[:, None]
    return np.logaddexp(0.0, -margins).mean(), {"w": rows.T @ slopes, "V": products}


def test_linear_systems() -> None:
    b = {"w": np.ones(3), "V": np.arange(4.0).reshape(2, 2)}
    diagonal = {"V": np.full((2, 2), 4.0), "w": np.arange(1.0, 4.0)}

    def matvec(v: Any) -> Any:
        return {name: diagonal[name] * v[name] for name in diagonal}

    for x0 in (None, b):
        solved = conjugate_gradient(matvec, b, x0, rtol=1e-12)
        assert solved.success
        for name, exact in b.items():
            np.testing.assert_allclose(solved.x[name], exact / diagonal[name], rtol=1e-10)
            np.testing.assert_allclose(solved.residual[name], 0.0, atol=1e-10)
    with pytest.raises(ValueError, match=r"matvec\(v\) must be a dict with the keys 'w', 'V', but"):
        conjugate_gradient(lambda v: {"w": v["w"]}, b)
    with pytest.raises(ValueError, match=r"x0\['w'\] has shape \(2,\), but x\['w'\] has \(3,\)"):
        conjugate_gradient(matvec, b, {"w": np.ones(2), "V": np.ones((2, 2))})


def test_a_weight_for_each_array_of_sag() -> None:
    weights = np.repeat([0.1, 0.5], [4, 8])
    solver = SAG(step_size=0.05, l2={"w": 0.1, "V": 0.5}, max_iterations=10)
    found = solver.minimize(cosh_of(TWO), TWO.of(START))
    own = SGD(step_size=0.05, max_iterations=10)
    alone = own.minimize(with_l2(ill_conditioned, weights), START)
    np.testing.assert_allclose(joined(found.x), alone.x, rtol=1e-12)
    assert found.fun == pytest.approx(alone.fun, rel=1e-12)
