"""Forward mode: first and second derivatives of elementwise functions on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from scipy import special

from distvec.autodiff.forward import derivatives
from distvec.autodiff.steps import NotDifferentiable

UNARY = (np.exp, np.tanh, np.sin, np.square, np.arctan, np.expm1)
BINARY = (np.add, np.subtract, np.multiply, np.logaddexp, np.hypot, np.maximum)
Function = Callable[[Any, Any], Any]


@st.composite
def functions(draw: st.DrawFn, depth: int = 3) -> tuple[str, Function]:
    """Smooth functions of ``(x, c)`` but for ``maximum`` and masks, with what they are."""
    if depth == 0:
        return draw(
            st.sampled_from(
                [("x", lambda x, c: x), ("c", lambda x, c: c), ("2.5", lambda x, c: 2.5)]
            )
        )
    first, f = draw(functions(depth=depth - 1))
    kind = draw(st.sampled_from(["unary", "binary", "where", "scaled"]))
    if kind == "unary":
        u = draw(st.sampled_from(UNARY))
        return f"{u.__name__}(0.3 * {first})", lambda x, c: u(0.3 * f(x, c))
    if kind == "scaled":
        return f"{first} / (1 + {first}**2)", lambda x, c: f(x, c) / (1 + f(x, c) ** 2)
    second, g = draw(functions(depth=depth - 1))
    if kind == "where":
        return f"where(c > 0, {first}, {second})", lambda x, c: np.where(c > 0, f(x, c), g(x, c))
    b = draw(st.sampled_from(BINARY))
    return f"{b.__name__}({first}, {second} + 0.1)", lambda x, c: b(f(x, c), g(x, c) + 0.1)


@settings(deadline=None, max_examples=35)
@given(
    named=functions(),
    x=arrays(float, 5, elements=st.floats(-2, 2)),
    c=arrays(float, 5, elements=st.floats(-2, 2)),
)
def test_random_functions_against_differences(
    named: tuple[str, Function], x: np.ndarray, c: np.ndarray
) -> None:
    _, function = named

    def at(distance: float) -> Any:
        return np.broadcast_to(function(x + distance, c), x.shape)

    values, first, second = derivatives(function, x, c, order=2)
    assert values.tobytes() == np.asarray(at(0.0), float).tobytes()
    assert all(map(np.array_equal, derivatives(function, x, c), (values, first)))
    h, d = 1e-3, {k: at(k * 1e-3) for k in (-2, -1, 0, 1, 2)}
    left, right = (d[0] - d[-1]) / h, (d[1] - d[0]) / h
    bent = 16 * (d[1] + d[-1]) - (d[2] + d[-2]) - 30 * d[0]
    smooth = np.abs(right - left) < 1e-2 * (1 + np.abs(right))  # no kink in between
    slope = (8 * (d[1] - d[-1]) - (d[2] - d[-2])) / (12 * h)
    size = 1 + np.abs(values) + np.abs(second)
    assert np.all((np.abs(first - slope) <= 1e-4 * size) | ~smooth)
    assert np.all((np.abs(second - bent / (12 * h * h)) <= 1e-4 * size) | ~smooth)


def test_a_logistic_loss_is_that_which_one_writes_by_hand() -> None:
    margins, labels = np.linspace(-40, 40, 101), np.sign(np.sin(np.arange(101) + 0.5))
    values, first, second = derivatives(
        lambda m, y: np.logaddexp(0, -y * m), margins, labels, order=2
    )
    probability = special.expit(-labels * margins)
    assert values.tobytes() == np.logaddexp(0, -labels * margins).tobytes()
    np.testing.assert_allclose(first, -labels * probability, rtol=1e-15)
    expected = probability * special.expit(labels * margins)
    np.testing.assert_allclose(second, expected, rtol=1e-14)


def test_masks_assignments_and_in_place_operators() -> None:
    def huber(m: Any, y: Any) -> Any:
        r = m - y
        r *= 2.0
        loss = np.zeros_like(r)
        near = np.abs(r) <= 1
        loss[near] = 0.5 * r[near] ** 2
        loss[~near] = np.abs(r[~near]) - 0.5
        loss += 1
        return loss

    m, y = np.array([0.0, 0.2, 3.0, -3.0]), np.array([0.1, 0.0, 0.0, 0.0])
    before = m.copy()
    values, first, second = derivatives(huber, m, y, order=2)
    np.testing.assert_allclose(values, special.huber(1.0, 2 * (m - y)) + 1)
    np.testing.assert_allclose(first, 2 * np.clip(2 * (m - y), -1, 1))
    np.testing.assert_allclose(second, [4, 4, 0, 0])
    assert m.tobytes() == before.tobytes()


def test_what_is_assigned_to_a_copy_does_not_change_the_other() -> None:
    def function(m: Any) -> Any:
        other = m + 0
        other[other > 0] = 7.0
        return m * m

    assert derivatives(function, np.array([1.0, -2.0]))[1].tolist() == [2.0, -4.0]


def test_dtypes_and_constant_functions() -> None:
    x = np.arange(3, dtype=np.float32)
    assert {one.dtype.name for one in derivatives(np.exp, x, order=2)} == {"float32"}
    assert {one.dtype.name for one in derivatives(np.exp, [1, 2], order=2)} == {"float64"}
    values, first = derivatives(lambda x: np.sign(x) + 3.0, [1.0, -1.0])
    assert values.tolist() == [4.0, 2.0] and first.tolist() == [0.0, 0.0]
    parts = derivatives(lambda x: np.modf(x)[0] + np.divmod(x, 2.0)[1], [1.25, 3.5])
    assert parts[1].tolist() == [2.0, 2.0]
    chosen = derivatives(lambda x: np.select([x > 1, x > 0], [x**2, 3 * x], -x), [2.0, 0.5, -1.0])
    assert chosen[1].tolist() == [4.0, 3.0, -1.0]


def test_what_is_not_taken_is_not_looked_at() -> None:
    """No NaN of the other choice, and no warning of it."""
    found = derivatives(lambda x: np.where(x > 0, np.log(x) * x, 0.0), [-1.0, 0.0, 1.0], order=2)
    assert [one.tolist() for one in found] == [[0, 0, 0], [0, 0, 1], [0, 0, 1]]


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda m: np.sum(m), "sum has no derivative here"),
    (lambda m: m.sum(), r"method \.sum has no derivative"),
    (lambda m: np.add.reduce(m), "add.reduce has no derivative here: it is not elementwise"),
    (lambda m: np.cumsum(m), "cumsum has no derivative"),
    (lambda m: np.nextafter(m, 1), "nextafter has no derivative here: it goes from one float"),
    (lambda m: special.zeta(m, 1.0), "zeta has no derivative"),
    (lambda m: m - m[0], "only masks can select elements"),
    (lambda m: m if m else 0, "write np.where"),
    (lambda m: float(m) * 2, "a number read from an array"),
    (lambda m: np.array([m]), "copied into a NumPy array"),
    (lambda m: np.ones(2).__iadd__(m), "in place; write y = y"),
]


@pytest.mark.parametrize(("function", "message"), REFUSED)
def test_what_has_no_derivative_is_named_with_what_to_do(
    function: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(NotDifferentiable, match=message) as raised:
        derivatives(function, np.ones(2))
    if "where" not in message:
        assert "give the derivative: return (values, slopes)" in str(raised.value)


def test_wrong_results_and_orders() -> None:
    with pytest.raises(ValueError, match=r"elementwise: for an argument of shape \(2,\)"):
        derivatives(lambda m: 3.0 + np.zeros(3), np.ones(2))
    with pytest.raises(ValueError, match="order must be 1 or 2, got 3"):
        derivatives(np.exp, np.ones(2), order=3)
    with pytest.raises(TypeError, match="an array of values, got tuple"):
        derivatives(lambda m: (m, m), np.ones(2))


FAR = np.array([-1e4, -1000.0, -30.0, -0.5, 0.5, 30.0, 1000.0, 1e4])
LIMITS: dict[str, tuple[Any, Any]] = {
    "log cosh": (lambda x: np.log(np.cosh(x)), np.tanh),
    "log1p exp": (lambda x: np.log1p(np.exp(x)), special.expit),
    "log of a sum with 1": (lambda x: np.log(1 + np.exp(x)), special.expit),
    "log2": (lambda x: np.log2(1 + np.exp(-x)), lambda x: -special.expit(-x) / np.log(2)),
    "log of a sum": (
        lambda x: np.log(np.exp(x) + np.exp(-2 * x)),
        lambda x: special.expit(3 * x) - 2 * special.expit(-3 * x),
    ),
    "log of a power": (
        lambda x: np.log((3 * np.exp(x) + np.cosh(x)) ** 2),
        lambda x: 2 * (special.expit(2 * x + np.log(7)) - special.expit(-2 * x - np.log(7))),
    ),
    "log of a quotient": (lambda x: -np.log(1 / (1 + np.exp(-x))), lambda x: -special.expit(-x)),
    "log sinh": (lambda x: np.log(np.abs(np.sinh(x))), lambda x: 1 / np.tanh(x)),
    "log of what grows and what does not": (
        lambda x: np.log(1 + 2 * np.exp(x) + x**2),
        lambda x: np.where(
            x > 600, 1.0, (2 * np.exp(x) + 2 * x) / (1 + 2 * np.exp(np.minimum(x, 600)) + x**2)
        ),
    ),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: special.expit(x) * special.expit(-x)),
    "Gompertz": (
        lambda x: np.exp(-np.exp(x)),
        lambda x: -np.exp(np.minimum(x, 600) - np.exp(np.minimum(x, 600))),
    ),
    "arctan": (lambda x: np.arctan(np.exp(x)), lambda x: 0.5 / np.cosh(np.clip(x, -700, 700))),
}
"""Functions of which something on the way is no float at ``FAR``, and their derivatives."""


@pytest.mark.parametrize("name", LIMITS)
def test_a_derivative_beyond_the_floats_is_its_limit(name: str) -> None:
    function, slope = LIMITS[name]
    with np.errstate(all="ignore"):
        values, expected = function(FAR), slope(FAR)
        curvatures = (slope(FAR + 1e-5) - slope(FAR - 1e-5)) / 2e-5
    found = derivatives(function, FAR, order=2)
    np.testing.assert_array_equal(found[0], values)
    np.testing.assert_allclose(found[1], expected, rtol=1e-13, atol=1e-150)
    np.testing.assert_array_equal(found[1], derivatives(function, FAR)[1])
    np.testing.assert_allclose(found[2], curvatures, rtol=1e-4, atol=1e-8)


def test_limits_come_from_what_was_there_when_it_was_computed() -> None:
    def function(x: Any) -> Any:
        grown = np.exp(x)
        y = np.log1p(grown[...])
        grown[x > 0] = 0.0
        x[x > 0] = 7.0
        return y + x + np.log1p(grown)

    found = derivatives(function, np.array([1000.0, -1.0]))
    p = special.expit(-1.0)
    np.testing.assert_allclose(found[1], [1.0, 1 + 2 * p], rtol=1e-14)


def test_where_a_derivative_has_no_limit_it_is_not_made_up() -> None:
    _, slopes = derivatives(lambda x: np.sqrt(x) * np.sqrt(x) + np.abs(x) ** 0.5, np.zeros(1))
    assert np.isnan(slopes).all()
    assert not np.isfinite(derivatives(np.exp, np.array([1000.0]))[1]).any()
