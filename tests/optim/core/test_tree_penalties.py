"""Penalties, sets, bounds and wrappers for parameters in several arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds

from optim import (
    ADMM,
    FTRL,
    LBFGS,
    LBFGSB,
    OWLQN,
    AdaGrad,
    Box,
    Cached,
    ElasticNet,
    FiniteSum,
    GroupLasso,
    Huber,
    Hyperplane,
    L1Ball,
    L1Norm,
    L2Ball,
    L2Norm,
    NonNegative,
    ProjectedQuasiNewton,
    ProximalGradient,
    Separable,
    Simplex,
    SmoothTerm,
    Solver,
    SpectralProjectedGradient,
    minimize,
    with_l1,
    with_l2,
)
from optim.core.trees import as_start
from tests.optim.registry import START, ill_conditioned
from tests.optim.trees import Cut, cosh_of, joined

CUT = Cut(((4,), (4, 2)), lambda p: {"w": p[0], "V": p[1]})
FUN = cosh_of(CUT)
LABELS = np.arange(12) % 3
WEIGHTS = np.linspace(0.0, 0.6, 12)

# By name: a solver of one vector, and the same of the pieces.
PAIRS: dict[str, tuple[Solver, Solver]] = {
    "OWLQN, an array each": (OWLQN(l1=WEIGHTS), OWLQN(l1=CUT.of(WEIGHTS))),
    "OWLQN, a number each": (
        OWLQN(l1=np.repeat([0.3, 0.0], [4, 8])),
        OWLQN(l1={"V": 0.0, "w": 0.3}),
    ),
    "OWLQN, an array and a number": (
        OWLQN(l1=np.r_[WEIGHTS[:4], np.full(8, 0.2)]),
        OWLQN(l1={"w": WEIGHTS[:4], "V": 0.2}),
    ),
    "AdaGrad": (
        AdaGrad(step_size=0.5, l1=WEIGHTS, max_iterations=40),
        AdaGrad(step_size=0.5, l1=CUT.of(WEIGHTS), max_iterations=40),
    ),
    "FTRL": (
        FTRL(step_size=0.5, l1=WEIGHTS, l2=np.repeat([0.1, 0.5], [4, 8]), max_iterations=40),
        FTRL(step_size=0.5, l1=CUT.of(WEIGHTS), l2={"w": 0.1, "V": 0.5}, max_iterations=40),
    ),
    "LBFGSB, pairs": (
        LBFGSB(bounds=[(-1.0, 0.5)] * 4 + [(None, 0.7), (None, 2.0)] * 4),
        LBFGSB(bounds={"w": [(-1.0, 0.5)] * 4, "V": [(None, 0.7), (None, 2.0)]}),
    ),
    "LBFGSB, a Box, and none": (
        LBFGSB(bounds=[(-1.0, 0.5)] * 4 + [(None, None)] * 8),
        LBFGSB(bounds={"w": Box(-1.0, 0.5), "V": None}),
    ),
    "LBFGSB, SciPy's": (
        LBFGSB(bounds=Bounds(-1.0, np.repeat([0.5, 3.0], [4, 8]))),
        LBFGSB(bounds={"w": Bounds(-1.0, 0.5), "V": Bounds(-1.0, 3.0)}),
    ),
    "LBFGSB, one Box": (
        LBFGSB(bounds=Box(np.repeat([0.0, -1.0], [4, 8]), 0.5)),
        LBFGSB(bounds=Box({"w": 0.0, "V": -1.0}, 0.5)),
    ),
    "ElasticNet": (
        ProximalGradient(penalty=ElasticNet(np.repeat([0.3, 0.0], [4, 8]), 0.1)),
        ProximalGradient(penalty=ElasticNet(l1={"w": 0.3, "V": 0.0}, l2=0.1)),
    ),
    "ADMM": (
        ADMM(penalty=L1Norm(WEIGHTS)),
        ADMM(penalty=L1Norm(CUT.of(WEIGHTS))),
    ),
    "GroupLasso": (
        ProximalGradient(penalty=GroupLasso(LABELS, 3, 0.5)),
        ProximalGradient(penalty=GroupLasso(CUT.of(LABELS), 3, 0.5)),
    ),
    "a penalty each": (
        ProximalGradient(penalty=GroupLasso(np.r_[np.full(4, -1), LABELS[4:]], 3, 0.5)),
        ProximalGradient(penalty={"w": None, "V": GroupLasso(LABELS[4:].reshape(4, 2), 3, 0.5)}),
    ),
    "a set each": (
        SpectralProjectedGradient(projection=Box(np.repeat([0.0, -np.inf], [4, 8]), 0.5)),
        SpectralProjectedGradient(projection={"w": Box(0.0, 0.5), "V": Box(upper=0.5)}),
    ),
    "a set and none": (
        ProjectedQuasiNewton(projection=Box(np.repeat([0.0, -np.inf], [4, 8]))),
        ProjectedQuasiNewton(projection={"w": NonNegative(), "V": None}),
    ),
    "a user's projection": (
        SpectralProjectedGradient(projection=lambda x: np.maximum(x, 0.2)),
        SpectralProjectedGradient(
            projection=lambda x: {name: np.maximum(part, 0.2) for name, part in x.items()}
        ),
    ),
    "one set of all elements": (
        ProjectedQuasiNewton(projection=L1Ball(2.0)),
        ProjectedQuasiNewton(projection=L1Ball(2.0)),
    ),
    "Hyperplane": (
        SpectralProjectedGradient(projection=Hyperplane(WEIGHTS, 1.0)),
        SpectralProjectedGradient(projection=Hyperplane(CUT.of(WEIGHTS), 1.0)),
    ),
    "terms": (
        ADMM(penalty=L1Norm(0.3), terms=(SmoothTerm(ill_conditioned),)),
        ADMM(penalty=L1Norm(0.3), terms=(SmoothTerm(FUN),)),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_path_as_on_one_vector(name: str) -> None:
    of_vector, of_pieces = (replace(solver, max_iterations=20) for solver in PAIRS[name])
    ours = of_vector.minimize(ill_conditioned, START)
    theirs = of_pieces.minimize(FUN, CUT.of(START))
    for one, other in zip(ours.history[:8], theirs.history[:8], strict=True):
        assert other.value == pytest.approx(one.value, rel=1e-9)
    assert theirs.fun == pytest.approx(ours.fun, rel=1e-10)
    np.testing.assert_allclose(joined(theirs.x), ours.x, rtol=1e-6, atol=1e-7)


SINGLE = {
    "L1Norm": L1Norm(0.3),
    "L2Norm": L2Norm(0.5),
    "ElasticNet": ElasticNet(0.3, 0.1),
    "Huber": Huber(0.5, 0.7),
    "Box": Box(-0.5, 0.5),
    "NonNegative": NonNegative(),
    "Simplex": Simplex(),
    "L1Ball": L1Ball(2.0),
    "L2Ball": L2Ball(2.0),
}


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), step=st.floats(0.01, 10.0))
def test_one_operator_for_all_elements(seed: int, step: float) -> None:
    x = np.random.default_rng(seed).standard_normal(12)
    tree = as_start(CUT.of(x))
    for penalty in SINGLE.values():
        inner = penalty.prox(tree, step)
        np.testing.assert_allclose(joined(inner.arranged()), penalty.prox(x, step), atol=1e-12)
        assert float(penalty.value(inner)) == pytest.approx(
            float(penalty.value(penalty.prox(x, step))), rel=1e-12
        )


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), step=st.floats(0.01, 10.0))
def test_an_operator_for_each_array(seed: int, step: float) -> None:
    """Nested, with a term for a whole part."""
    x = np.random.default_rng(seed).standard_normal(12)
    start = as_start({"a": x[:3], "b": [x[3:5], x[5:7]], "c": {"d": x[7:10], "e": x[10:]}})
    terms = {"c": {"d": Simplex(), "e": None}, "b": L2Norm(0.7), "a": L1Norm(0.2)}
    penalty = Separable(terms)
    expected = [L1Norm(0.2).prox(x[:3], step), L2Norm(0.7).prox(x[3:7], step)]
    expected += [Simplex()(x[7:10]), x[10:]]
    found = penalty.prox(start, step)
    np.testing.assert_allclose(joined(found.arranged()), np.concatenate(expected), atol=1e-12)
    np.testing.assert_allclose(joined(penalty.feasible(start).arranged())[7:10], expected[2])
    value = L1Norm(0.2).value(expected[0]) + L2Norm(0.7).value(expected[1])
    assert float(penalty.value(found)) == pytest.approx(value)
    assert float(penalty.value(start)) == np.inf


def test_weights_of_wrappers() -> None:
    weights = np.repeat([0.4, 0.1], [4, 8])
    for wrapper in (with_l1, with_l2):
        ours = wrapper(ill_conditioned, weights)(START)
        value, gradient = wrapper(FUN, {"w": 0.4, "V": np.full((4, 2), 0.1)})(CUT.of(START))
        assert value == pytest.approx(ours[0], rel=1e-14)
        assert set(gradient) == {"w", "V"}
        in_order = {name: gradient[name] for name in ("w", "V")}
        np.testing.assert_allclose(joined(in_order), ours[1], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(
        joined(LBFGS().minimize(with_l2(FUN, {"w": 0.4, "V": 0.1}), CUT.of(START)).x),
        LBFGS().minimize(with_l2(ill_conditioned, weights), START).x,
        atol=1e-7,
    )


def test_cached_knows_the_arrays_of_a_structure_again() -> None:
    cached = Cached(FUN)
    result = minimize(cached.value, CUT.of(START), jac=cached.gradient)
    assert result.success
    assert cached.hits == result.nfev
    pieces = CUT.of(START)
    cached(pieces)
    cached({"w": pieces["w"], "V": pieces["V"]})
    assert cached.hits == result.nfev + 1
    cached({"w": pieces["w"].copy(), "V": pieces["V"]})
    assert cached.hits == result.nfev + 1


def test_the_whole_of_a_finite_sum() -> None:
    total = FiniteSum(lambda x, i: (float(i), {"w": x["w"] * i, "V": x["V"]}), 3)
    value, gradient = total({"w": np.ones(2), "V": np.ones((2, 2))})
    assert value == 1.0
    np.testing.assert_array_equal(gradient["w"], np.ones(2))
    np.testing.assert_array_equal(gradient["V"], np.ones((2, 2)))


# SciPy's interface.


def test_minimize_takes_what_scipy_allows() -> None:
    exact = LBFGS().minimize(FUN, CUT.of(START)).x

    def value(x: Any) -> float:
        return float(FUN(x)[0])

    def gradient_in_lists(x: Any) -> Any:
        return {name: g.tolist() for name, g in FUN(x)[1].items()}

    def hessp(x: Any, v: Any, scale: float) -> Any:
        roots = CUT.of(np.logspace(0.0, 0.75, 12))
        return {
            name: scale * 2.0 / 9.0 * root**2 * np.cosh(root * (x[name] - 1.0) / 3.0) * v[name]
            for name, root in roots.items()
        }

    for arguments in (
        {},
        {"jac": "3-point"},
        {"jac": gradient_in_lists},
        {"jac": "2-point", "options": {"eps": {"w": 1e-7, "V": np.full((4, 2), 1e-8)}}},
    ):
        result = minimize(value, CUT.of(START), **arguments)
        assert list(result.x) == list(result.jac) == ["w", "V"]
        np.testing.assert_allclose(joined(result.x), joined(exact), atol=1e-5)
    newton = minimize(
        lambda x, scale: FUN(x), CUT.of(START), args=(1.0,), method="trust-ncg", hessp=hessp
    )
    assert newton.success
    np.testing.assert_allclose(joined(newton.x), joined(exact), atol=1e-6)


def test_differences_stay_inside_the_bounds() -> None:
    def value(x: Any) -> float:
        assert x["w"].min() >= 0.0
        assert x["V"].max() <= 0.0
        return float(FUN(x)[0])

    start = {"w": np.zeros(4), "V": np.zeros((4, 2))}
    bounds = {"w": Box(lower=0.0), "V": [(None, 0.0), (-1.0, 0.0)]}
    result = minimize(value, start, jac="3-point", bounds=bounds)
    np.testing.assert_allclose(joined(result.x), [1.0] * 4 + [0.0] * 8, atol=1e-5)


def test_callbacks_get_copies_in_the_structure() -> None:
    seen: list[Any] = []

    def callback(x: Any) -> None:
        seen.append({name: part.copy() for name, part in x.items()})
        x["w"][:] = 77.0

    spoiled = minimize(FUN, CUT.of(START), callback=callback)
    assert len(seen) == spoiled.nit
    np.testing.assert_array_equal(joined(spoiled.x), joined(minimize(FUN, CUT.of(START)).x))
    results: list[Any] = []
    minimize(
        FUN,
        CUT.of(START),
        callback=lambda intermediate_result: results.append(intermediate_result.x),
    )
    assert [list(x) for x in results] == [["w", "V"]] * len(results)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: OWLQN(l1={"w": 0.1}), ValueError, "l1 must be a dict with the keys 'w', 'V', but"),
        (
            lambda: OWLQN(l1=np.ones(12)),
            TypeError,
            "l1 must be a dict .* but is a ndarray",
        ),
        (lambda: OWLQN(l1={"w": np.ones(3), "V": 0.0}), ValueError, r"l1 has shape \(3,\), but x"),
        (lambda: OWLQN(l1={"w": -1.0, "V": 0.0}), ValueError, "weights must be 0 or more"),
        (lambda: LBFGSB(bounds=[(0.0, 1.0)] * 12), TypeError, "bounds must be a dict with the key"),
        (
            lambda: LBFGSB(bounds={"w": Box(1.0)}),
            ValueError,
            "bounds must be .* but has 'w'",
        ),
        (lambda: LBFGSB(bounds={"w": Box(np.ones(3)), "V": None}), ValueError, "lower has shape"),
        (lambda: ElasticNet({"w": -0.1, "V": 1.0}), ValueError, r"ElasticNet\(l1\) holds -0.1"),
        (lambda: L2Norm({"w": 1.0}), TypeError, "must be a number or an array like x, got dict"),
        (lambda: Box({"w": 1.0}, 0.0), ValueError, "lower exceeds upper by 1.0"),
        (lambda: Box({"w": "low"}), TypeError, r"Box\(lower\['w'\]\) must be a number or an array"),
        (lambda: GroupLasso({"w": 1}, 3), TypeError, r"labels\['w'\]\) must be an array like x"),
        (lambda: Hyperplane({"w": 1.0}), TypeError, r"normal\['w'\]\) must be an array like x"),
        (lambda: with_l2(FUN, {"w": -1.0}), ValueError, r"with_l2\(weight\['w'\]=-1.0\)"),
        (lambda: Separable({"w": 0.1}), TypeError, r"must be an optim.Proximal"),
        (
            lambda: ProximalGradient(penalty={"w": L1Norm(0.1)}),
            ValueError,
            "the penalty must be a dict with the keys 'w', 'V', but has 'w'",
        ),
        (
            lambda: SpectralProjectedGradient(projection={"w": Simplex(), "V": L1Norm(0.1)}),
            TypeError,
            r"projection\['V'\]=L1Norm\(weight=0.1\)\): must be a ConvexSet",
        ),
        (
            lambda: SpectralProjectedGradient(projection=lambda x: {"w": x["w"], "V": x["w"]}),
            ValueError,
            r"projection\(x\)\['V'\] has shape \(4,\), but x\['V'\] has \(4, 2\)",
        ),
    ],
)
def test_refusals_speak(make: Any, error: type[Exception], message: str) -> None:
    def run() -> None:
        made = make()
        if isinstance(made, Solver):
            made.minimize(FUN, CUT.of(START))

    with pytest.raises(error, match=message):
        run()


def test_a_penalty_for_each_array_needs_several() -> None:
    with pytest.raises(TypeError, match=r"Separable is for parameters in several arrays, but x is"):
        ProximalGradient(penalty={"w": L1Norm(0.1)}).minimize(ill_conditioned, START)
    with pytest.raises(TypeError, match="give products with it, hessp="):
        minimize(FUN, CUT.of(START), method="trust-ncg", hess=lambda x: np.eye(12))
