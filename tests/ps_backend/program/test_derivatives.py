"""The column of derivatives: every op has its own, checked by differences, or says why not."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

from ps_backend.program import ops, reducers

POSITIVE, UNIT = (0.2, 3.0), (0.1, 0.9)
DOMAINS: dict[str, tuple[tuple[float, float], ...]] = {
    **dict.fromkeys("sqrt log log2 log10 gammaln entr".split(), (POSITIVE,)),
    **dict.fromkeys("kl_div rel_entr pow float_power".split(), (POSITIVE, POSITIVE)),
    **dict.fromkeys("huber pseudo_huber".split(), (POSITIVE, (-5.0, 5.0))),
    **dict.fromkeys("logit log1p atanh".split(), (UNIT,)),
    **dict.fromkeys("asin acos".split(), ((-0.9, 0.9),)),
    **dict.fromkeys("remainder fmod".split(), ((5.2, 5.8), (2.0, 2.5))),
    **dict.fromkeys("cbrt reciprocal".split(), (POSITIVE,)),
    "divide": ((-3.0, 3.0), POSITIVE),
    "acosh": ((1.1, 4.0),),
    "tan": ((-1.2, 1.2),),
    "xlogy": ((-3.0, 3.0), POSITIVE),
    "xlog1py": ((-3.0, 3.0), UNIT),
}
STEP = 1e-3


def points(op: ops.Op) -> list[Any]:
    rng = np.random.default_rng(7)
    domains = DOMAINS.get(op.name, ((-3.0, 3.0),) * op.arity)
    found: list[Any] = [rng.uniform(*domain, 40) for domain in domains]
    if op.name == "where":
        found[0] = found[0] > 0
    if op.name == "ldexp":
        found[1] = found[1].astype(int)
    return found


def difference(op: ops.Op, args: list[Any], number: int, step: float) -> Any:
    """The derivative by differences, of fourth order."""

    def at(distance: float) -> Any:
        moved = [*args]
        moved[number] = args[number] + distance
        with np.errstate(all="ignore"):
            return np.asarray(op.numpy(*moved)).astype(float)

    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


def of_integers(op: ops.Op, args: list[Any]) -> bool:
    try:
        return op.integral or op.numpy(*args) is None
    except TypeError:
        return True


@pytest.mark.parametrize("name", sorted(ops.TABLE))
def test_each_op_has_derivatives_as_differences_say_or_a_reason(name: str) -> None:
    op = ops.TABLE[name]
    if op.no_derivative or not op.derivatives:
        assert op.no_derivative and not op.derivatives
        return
    assert len(op.derivatives) == op.arity
    args = points(op)
    if name.endswith("_of_some"):
        args[1] = 40
    if of_integers(op, args):
        assert set(op.derivatives) == {None}
        return
    result = op.numpy(*args)
    for number, derivative in enumerate(op.derivatives):
        if np.asarray(args[number]).dtype.kind != "f":
            assert derivative is None
        elif derivative is None:  # constant, but for jumps, which so short a step seldom meets
            assert np.count_nonzero(difference(op, args, number, 1e-7)) <= 1
        else:
            expected = difference(op, args, number, STEP)
            found = derivative(1.0, result, *args)
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(
                derivative(np.full(40, -2.5), result, *args), -2.5 * found, rtol=1e-14
            )


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", sorted(reducers.PUBLIC))
def test_each_reduction_has_a_derivative_as_differences_say(name: str, axis: int | None) -> None:
    row = reducers.PUBLIC[name]
    if row.truth or row.locates:  # no floats
        assert row.derivative is None
        return
    assert row.derivative is not None
    x = np.random.default_rng(2).uniform(0.5, 1.5, (4, 3))
    x[0, 0] = 0.0  # of a product the others count

    def fold(function: Any, values: Any) -> Any:
        return function(values, axis=axis, keepdims=True)

    result = fold(row.numpy.reduce, x)
    t = np.random.default_rng(3).standard_normal(result.shape)
    found = np.broadcast_to(row.derivative(t, result, x, fold), x.shape)
    for place in np.ndindex(*x.shape):
        ends = []
        for distance in (1e-6, -1e-6):
            moved = x.copy()
            moved[place] += distance
            ends.append(np.sum(t * fold(row.numpy.reduce, moved)))
        assert found[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)


def test_kinks_are_where_pytorch_and_jax_have_them() -> None:
    at, zero = ops.TABLE, np.zeros(1)
    assert at["abs"].derivatives[0](1.0, zero, zero) == 0
    for name in ("maximum", "minimum", "fmax", "fmin"):
        both = [derivative(1.0, zero, zero, zero) for derivative in at[name].derivatives]
        assert both == [0.5, 0.5]
    base = np.array([0.0, -2.0, -2.0, 3.0])
    power = np.array([0.0, 2.0, 3.0, 0.0])
    first, _ = at["pow"].derivatives
    assert first(1.0, base**power, base, power).tolist() == [0.0, -4.0, 12.0, 0.0]
    assert [float(first(1.0, -8.0, -2.0, k)) for k in (0, 1, 2, 3)] == [0.0, 1.0, -4.0, 12.0]
    number = np.array([np.nan, 1.0])
    assert at["fmax"].derivatives[0](1.0, None, np.ones(2) * 2, number).tolist() == [1.0, 1.0]


EXTREME = (-700.0, -40.0, -1e-9, 1e-9, 36.0, 700.0)
REFERENCES = {
    "sigmoid": lambda x: 1 / (mpmath.exp(x) + 2 + mpmath.exp(-x)),
    "log_expit": lambda x: 1 / (1 + mpmath.exp(x)),
    "log_ndtr": lambda x: mpmath.npdf(x) / mpmath.ncdf(x),
    "tanh": lambda x: mpmath.sech(x) ** 2,
    "expm1": mpmath.exp,
}


@pytest.mark.parametrize("name", REFERENCES)
def test_far_out_all_digits_are_right(name: str) -> None:
    op, x = ops.TABLE[name], np.array(EXTREME)
    (derivative,) = op.derivatives
    with np.errstate(all="ignore"):
        found = derivative(1.0, op.numpy(x), x)
    with mpmath.workdps(400):
        expected = [float(REFERENCES[name](mpmath.mpf(one))) for one in EXTREME]
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-307)


def test_the_loss_of_a_margin_has_the_slope_that_one_writes_by_hand() -> None:
    margins = np.array([-800.0, -3.0, 0.0, 40.0, 800.0])
    _, slope = ops.TABLE["logaddexp"].derivatives
    found = slope(1.0, np.logaddexp(0, margins), 0, margins)
    assert found.tobytes() == special.expit(margins).tobytes()


def test_a_row_may_bring_its_own_derivative() -> None:
    """Else the columns of ``derivatives`` have it."""

    def slope(t: Any, y: Any, x: Any) -> Any:
        return t * x

    own = ops.complete(ops.Op("softsign", 1, np.tanh, derivatives=(slope,)))
    assert own.derivatives == (slope,)
    assert ops.complete(ops.Op("softsign", 1, np.tanh, no_derivative="steps")).no_derivative
    assert ops.complete(ops.Op("tanh", 1, np.tanh)).derivatives == ops.TABLE["tanh"].derivatives
    known = reducers.REDUCERS["sum"]
    assert reducers.complete(known) == known
