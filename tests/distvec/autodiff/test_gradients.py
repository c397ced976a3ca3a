"""Gradients by reverse mode: against differences, and the same bits on any number of servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import special

import distvec as dv
from tests.distvec.autodiff.functions import BY, FUNCTIONS, inputs
from tests.distvec.autodiff.test_forward import FAR, LIMITS

COUNTS = (1, 2, 7)
KINKED = {"clip and abs", "norm of the largest", "extremes", "sort", "masks", "along places"}
"""Here steps are so short that no kink lies in between."""


@pytest.fixture(scope="module")
def host() -> dict[str, np.ndarray]:
    return inputs()


@pytest.fixture(scope="module")
def on_servers(sessions: dict[int, dv.Session], host: Any) -> dict[int, dict[str, Any]]:
    found = {}
    for count in COUNTS:
        arrays = {name: sessions[count].array(values) for name, values in host.items()}
        found[count] = arrays | {"S": host["S"]}
    return found


def differentiated(name: str, arrays: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    def function(by: dict[str, Any]) -> Any:
        return FUNCTIONS[name](SimpleNamespace(**{**arrays, **by}))

    value, gradients = dv.value_and_grad(function)({name: arrays[name] for name in BY})
    dv.evaluate(value, *gradients.values())
    return value, gradients


@pytest.mark.parametrize("name", FUNCTIONS)
def test_along_any_direction_the_value_changes_as_the_gradient_says(
    name: str, host: dict[str, np.ndarray], on_servers: dict[int, dict[str, Any]]
) -> None:
    value, gradients = differentiated(name, on_servers[2])
    expected = float(FUNCTIONS[name](SimpleNamespace(**host)))
    assert float(value) == pytest.approx(expected, rel=1e-10)
    rng, step = np.random.default_rng(1), 1e-8 if name in KINKED else 1e-4
    for by in BY:
        slope, direction = gradients[by].numpy(), rng.uniform(0.5, 1, host[by].shape)
        direction *= np.where(rng.random(host[by].shape) < 0.5, -1, 1)
        assert slope.shape == host[by].shape and slope.dtype == host[by].dtype

        def at(distance: float, by: str = by, along: Any = direction) -> float:
            moved = host | {by: host[by] + distance * along}
            return float(FUNCTIONS[name](SimpleNamespace(**moved)))

        found = (8 * (at(step) - at(-step)) - at(2 * step) + at(-2 * step)) / (12 * step)
        size = np.sum(np.abs(slope * direction)) + abs(expected) * 1e-3 + 1e-3
        assert abs(np.sum(slope * direction) - found) <= 3e-5 * size
        assert slope.any() == (found != 0.0) or abs(found) <= 1e-9 * abs(expected)


EXCHANGING = (
    "norms", "inner products", "x @ T", "T.T @ U", "along axis 0", "softmax", "logsumexp", "slices",
    "gathers", "masks", "concatenate", "neighbours", "cumsum", "sort", "reshape", "recurrence",
    "assigned", "added at",
)  # fmt: skip
"""Here servers exchange elements, or their results are joined."""


@pytest.mark.parametrize("name", EXCHANGING)
def test_the_bits_are_the_same_on_any_number_of_servers(
    name: str, on_servers: dict[int, dict[str, Any]]
) -> None:
    found = []
    for count in COUNTS:
        value, gradients = differentiated(name, on_servers[count])
        parts = [value.item().hex(), *(one.numpy().tobytes() for one in gradients.values())]
        found.append(parts)
    assert found[0] == found[1] == found[2]


TWICE = (
    "powers", "norms", "T @ w", "T.T @ T", "logsumexp", "slices", "elements", "gathers", "cumsum",
    "recurrence", "small linear algebra",
)  # fmt: skip


@pytest.mark.parametrize("name", TWICE)
def test_along_any_direction_the_gradient_changes_as_the_hessian_says(
    name: str, sessions: dict[int, dv.Session], on_servers: dict[int, dict[str, Any]], host: Any
) -> None:
    ps, arrays = sessions[2], on_servers[2]

    def function(by: dict[str, Any]) -> Any:
        return FUNCTIONS[name](SimpleNamespace(**{**arrays, **by}))

    rng, step = np.random.default_rng(0), 1e-5
    along = {by: rng.uniform(-1, 1, host[by].shape) for by in BY}
    there = {by: ps.array(one) for by, one in along.items()}
    products = dv.hessian_product(function)({by: arrays[by] for by in BY}, there)
    ends = [
        dv.grad(function)({by: arrays[by] + distance * there[by] for by in BY})
        for distance in (step, -step)
    ]
    for by in BY:
        after, before = (one[by].numpy() for one in ends)
        found, slope = products[by].numpy(), (after - before) / (2 * step)
        error = np.abs(found - slope)
        assert np.all(error <= 1e-4 * (1 + np.abs(slope)) + 1e-6 * np.max(np.abs(after)))


@pytest.mark.parametrize("name", LIMITS)
def test_a_gradient_beyond_the_floats_is_its_limit(
    name: str, sessions: dict[int, dv.Session]
) -> None:
    function, slope = LIMITS[name]
    with np.errstate(all="ignore"):
        expected = slope(FAR)
        curvatures = (slope(FAR + 1e-5) - slope(FAR - 1e-5)) / 2e-5
    for dtype, digits in (("float64", 1e-13), ("float32", 1e-5)):
        x = sessions[2].array(FAR.astype(dtype))
        gradient = dv.grad(lambda x: np.sum(function(x) * 2.0))(x)
        assert gradient.dtype == dtype
        floor = 1e-150 if dtype == "float64" else 1e-30
        np.testing.assert_allclose(gradient.numpy(), 2 * expected, rtol=digits, atol=floor)
    if name != "arctan":
        x = sessions[2].array(FAR)
        product = dv.hessian_product(lambda x: np.sum(function(x)))(x, np.ones_like(x))
        np.testing.assert_allclose(product.numpy(), curvatures, rtol=1e-4, atol=1e-8)


def test_limits_reach_what_is_broadcast_and_stop_at_what_is_differentiated_by(
    sessions: dict[int, dv.Session],
) -> None:
    ps = sessions[2]
    T, w = ps.array(np.array([[800.0, -2.0], [900.0, 1000.0]])), ps.array(np.array([[3.0, -4.0]]))
    by_w = dv.grad(lambda w: np.sum(np.log1p(np.exp(T + w))))(w)
    expected = special.expit(T.numpy() + w.numpy()).sum(axis=0, keepdims=True)
    np.testing.assert_allclose(by_w.numpy(), expected, rtol=1e-14)
    grown = np.exp(ps.array(np.array([1.0, 2.0])))
    by_grown = dv.grad(lambda y: np.sum(np.log1p(y)))(grown)
    np.testing.assert_allclose(by_grown.numpy(), 1 / (1 + grown.numpy()), rtol=1e-15)


@pytest.mark.parametrize("place", ["servers", "NumPy", "NumPy, in place", "two"])
def test_an_iteration_over_a_table_is_one_message(ps: dv.Session, place: str) -> None:
    """Logistic regression as everybody types it; also the bits do not depend on the place."""
    rng = np.random.default_rng(0)
    table, labels = rng.standard_normal((5000, 6)), rng.random(5000) < 0.5
    X, y = ps.array(table), ps.array(labels * 1.0)

    def loss(w: Any) -> Any:
        w, b = w if place == "two" else (w, 0.0)
        z = X @ w + b
        return np.mean(np.logaddexp(0, z) - y * z)

    w: Any = ps.zeros(6) if place == "servers" else np.zeros(6)
    w = (w, 0.0) if place == "two" else w
    for _ in range(3):
        ps.counters.reset()
        value, g = dv.value_and_grad(loss)(w)
        if place == "NumPy, in place":
            w -= 0.1 * g
        elif place == "two":
            w = (w[0] - 0.1 * g[0], w[1] - 0.0 * g[1])
        else:
            w = w - 0.1 * g
        float(value)
        assert ps.counters.messages == 1
    expected = np.zeros(6)
    for _ in range(3):
        expected = expected - 0.1 * (
            table.T @ (1 / (1 + np.exp(-(table @ expected))) - labels) / 5000
        )
    np.testing.assert_allclose(np.asarray(w[0] if place == "two" else w), expected, rtol=1e-10)


def test_a_client_computes_its_copies_with_the_bits_of_servers(ps: dv.Session) -> None:
    x = ps.array(np.linspace(0.1, 3, 50))
    table = ps.array(np.ones((4000, 50)))
    float((table @ x).sum())  # the client has a copy of x from here on
    steps = np.asarray(np.bincount(ps.array(np.arange(4000) % 50), weights=ps.full(4000, 0.3)))
    y = x
    for _ in range(3):
        y = np.sqrt(y * y + steps / 7) - 0.3 * (y / (-x))
    ps.counters.reset()
    total = (table @ y).sum()
    copy = total.node.args[0].args[1]
    float(total)
    assert ps.counters.messages == 1
    assert copy.value.tobytes() == y.numpy().tobytes()


@pytest.mark.parametrize("on_client", [False, True])
def test_of_values_assigned_to_the_same_element_the_last_one_counts(
    ps: dv.Session, on_client: bool
) -> None:
    def function(x: Any) -> Any:
        y = np.zeros_like(x)
        y[[1, 3, 1]] = x[:3]
        return (y**2).sum()

    x = ps.array(np.arange(1.0, 6.0), on_client=on_client)
    assert dv.grad(function)(x).numpy().tolist() == [0.0, 4.0, 6.0, 0.0, 0.0]
