"""``grad``, ``value_and_grad`` and ``hessian_product``: arguments, results, refusals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import distvec as dv
from distvec.autodiff.steps import NotDifferentiable
from distvec.testing import assert_plan

X = np.random.default_rng(0).standard_normal(3000)


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def test_value_gradient_and_hessian_product_of_rosenbrock(ps: dv.Session) -> None:
    x, v = ps.array(X), ps.array(X[::-1])
    value, gradient = dv.value_and_grad(rosenbrock)(x)
    product = dv.hessian_product(rosenbrock)(x, v)
    assert_plan(value, gradient, product, messages=1)
    assert value.item() == pytest.approx(rosen(X), rel=1e-14)
    np.testing.assert_allclose(gradient.numpy(), rosen_der(X), rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(product.numpy(), rosen_hess_prod(X, X[::-1]), rtol=1e-11, atol=1e-10)


def test_derivatives_of_derivatives(ps: dv.Session) -> None:
    x = ps.array([0.5, 2.0])

    def third(x: Any) -> Any:
        return dv.grad(lambda x: dv.grad(lambda x: np.sum(x**4))(x).sum())(x).sum()

    assert dv.grad(third)(x).numpy().tolist() == [12.0, 48.0]
    along = dv.grad(lambda x: x @ dv.grad(lambda y: np.sum(y**3) * x[0])(x))(x)
    assert along.numpy().tolist() == [4 * 3 * 0.5**3 + 3 * 8, 0.5 * 9 * 4.0]


def test_arguments_by_number_and_what_is_returned_besides(ps: dv.Session) -> None:
    x, y = ps.array([1.0, 2.0]), ps.array([3.0, 4.0])
    function = lambda x, y, *, scale: scale * (x @ y) + x[0]  # noqa: E731
    value, (first, second) = dv.value_and_grad(function, argnums=(1, 0))(x, y, scale=2.0)
    assert value.item() == 23.0
    assert first.numpy().tolist() == [2.0, 4.0] and second.numpy().tolist() == [7.0, 8.0]
    assert dv.grad(function, argnums=-1)(x, y, scale=1.0).numpy().tolist() == [1.0, 2.0]
    squares = lambda x: (np.sum(x**2), {"squares": x**2, "name": "it"})  # noqa: E731
    (value, more), gradient = dv.value_and_grad(squares, has_aux=True)(x)
    assert_plan(value, gradient, more["squares"], messages=1, sweeps=1, vectors_read=1)
    assert more["squares"].numpy().tolist() == [1.0, 4.0] and more["name"] == "it"
    gradient, more = dv.grad(squares, has_aux=True)(x)
    assert gradient.numpy().tolist() == [2.0, 4.0]
    with pytest.raises(TypeError, match="there is no positional argument 2; got 2"):
        dv.grad(function, argnums=2)(x, y, scale=1.0)


class Model(NamedTuple):
    weights: Any
    factors: Any


def test_arguments_of_several_arrays(ps: dv.Session) -> None:
    T = ps.array(np.arange(6.0).reshape(3, 2))
    tree = {"w": ps.array([1.0, 2.0]), "more": [Model(T, (ps.array(3.0),)), T.T]}

    def function(tree: Any) -> Any:
        model, turned = tree["more"]
        return np.sum((model.weights @ tree["w"]) ** 2) * model.factors[0] + np.sum(turned**2)

    found = dv.grad(function)(tree)
    w, (model, turned) = found["w"], found["more"]
    host = np.arange(6.0).reshape(3, 2)
    margins = host @ [1.0, 2.0]
    np.testing.assert_allclose(w.numpy(), 6 * host.T @ margins)
    np.testing.assert_allclose(model.weights.numpy(), 6 * np.outer(margins, [1.0, 2.0]))
    assert type(model) is Model and model.factors[0].item() == margins @ margins
    assert turned.shape == (2, 3)
    np.testing.assert_allclose(turned.numpy(), 2 * host.T)
    hessian = dv.hessian_product(function)(tree, tree)
    np.testing.assert_allclose(hessian["more"][1].numpy(), 2 * host.T)


def test_what_does_not_depend_on_an_argument_is_zero(ps: dv.Session) -> None:
    x, y = ps.array([1.0, 2.0]), ps.ones(2)
    assert dv.grad(lambda x: y.sum())(x).numpy().tolist() == [0.0, 0.0]
    assert dv.grad(lambda x: np.sum(np.floor(x) + (x > 1)))(x).numpy().tolist() == [0.0, 0.0]
    assert dv.grad(lambda s: s)(x.sum()).item() == 1.0


def test_what_looks_like_the_argument_is_not_the_argument(ps: dv.Session) -> None:
    """Equal nodes are one object; but only what comes from the argument is differentiated."""
    zeros = ps.zeros(3)
    assert (
        dv.grad(lambda x: np.sum(np.exp(x) * (ps.zeros(3) + 2)))(zeros).numpy().tolist()
        == [2.0] * 3
    )
    x = ps.array([1.0, 2.0])
    pending = x + 1
    assert dv.grad(lambda y: y @ (x + 1) + y @ pending)(pending).numpy().tolist() == [4.0, 6.0]


def test_the_argument_stays_and_what_the_function_keeps_can_be_read_later(ps: dv.Session) -> None:
    x, kept = ps.array([1.0, 2.0]), []

    def function(x: Any) -> Any:
        x += 1
        kept.append(x * 2)
        return np.sum(x**2)

    pending = x * 3
    gradients = [dv.grad(function)(one) for one in (x, pending)]
    assert (x + 0).numpy().tolist() == [1.0, 2.0]
    assert [one.numpy().tolist() for one in gradients] == [[4.0, 6.0], [8.0, 14.0]]
    assert [one.numpy().tolist() for one in kept] == [[4.0, 6.0], [8.0, 14.0]]


def test_float32_stays_and_what_is_cast_goes_back(ps: dv.Session) -> None:
    x = ps.array(np.array([1.5, 2.5], np.float32))
    gradient = dv.grad(lambda x: np.sum(x.astype(np.float64) ** 2) * np.linalg.norm(x))(x)
    assert gradient.dtype == np.float32
    h = np.array([1.5, 2.5])
    expected = 2 * h * np.linalg.norm(h) + h @ h * h / np.linalg.norm(h)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-6)


def test_extremes_are_shared_by_those_that_are_equal(ps: dv.Session) -> None:
    x = ps.array([1.0, 3.0, 3.0])
    assert dv.grad(np.max)(x).numpy().tolist() == [0.0, 0.5, 0.5]
    assert dv.grad(lambda x: np.sum(np.maximum(x, 3.0)))(x).numpy().tolist() == [0.0, 0.5, 0.5]
    assert dv.grad(lambda x: np.prod(x - 1))(x).numpy().tolist() == [4.0, 0.0, 0.0]


def test_a_function_may_evaluate_what_does_not_depend_on_its_argument(ps: dv.Session) -> None:
    x, y = ps.array([1.0, 2.0]), ps.array([3.0, 4.0])
    function = lambda x: np.sum(x * 2) * float(np.linalg.norm(y + 2))  # noqa: E731
    assert dv.grad(function)(x).numpy() == pytest.approx([2 * np.hypot(5, 6)] * 2)


def test_long_functions_are_not_sent_off_half_way(ps: dv.Session) -> None:
    x = ps.array([0.5, 0.25])

    def function(x: Any) -> Any:
        for _ in range(2 * ps.pending_depth):
            x = x * 0.999 + 0.001
        return np.sum(x)

    assert dv.grad(function)(x).numpy() == pytest.approx([0.999 ** (2 * ps.pending_depth)] * 2)


READ = r"needs a value that depends on its argument, for float\(\), .item\(\)"
REFUSED = [
    (lambda x: float(x.sum()), NotDifferentiable, READ),
    (lambda x: x.sum().item(), NotDifferentiable, READ),
    (lambda x: np.sum(x * x.numpy()), NotDifferentiable, READ),
    (lambda x: x.sum() if x[0] > 0 else -x.sum(), NotDifferentiable, READ),
    (lambda x: x[x > 0][0], NotDifferentiable, r"write distvec.where|Write distvec.where"),
    (lambda x: np.sum(x.persist()), NotDifferentiable, READ),
    (lambda x: 3.0, NotDifferentiable, "returned a float, which has no graph"),
    (
        lambda x: x * 2,
        ValueError,
        r"must return a scalar, got shape \(2,\); return its sum: result.sum\(\)",
    ),
    (lambda x: (x.sum(), x), TypeError, "a scalar, got a tuple.*has_aux=True"),
    (lambda x: np.sum(x > 0), TypeError, "must return a float, as int64 has no derivative"),
    (
        lambda x: np.median(x),
        NotDifferentiable,
        "a quantile or median has no derivative here; write",
    ),
    (lambda x: np.sum(np.nextafter(x, 1)), NotDifferentiable, "nextafter has no derivative here"),
    (
        lambda x: np.linalg.cond(x[:, None].T @ x[:, None]),
        NotDifferentiable,
        "cond has no derivative here",
    ),
    (lambda x: np.maximum.reduce(np.logaddexp.accumulate(x)), NotDifferentiable, "accumulate_loga"),
]


@pytest.mark.parametrize(("function", "error", "message"), REFUSED)
def test_what_has_no_gradient_says_so(
    ps: dv.Session, function: Any, error: type[Exception], message: str
) -> None:
    x = ps.array([1.0, 2.0])
    with pytest.raises(error, match=message):
        dv.grad(function)(x)
    assert (x + 1).numpy().tolist() == [2.0, 3.0], "the session goes on"


def test_arguments_that_are_no_arrays_of_floats(ps: dv.Session) -> None:
    with pytest.raises(TypeError, match=r"of type ndarray; copy it there: session.array\(x\)"):
        dv.grad(np.sum)(X)
    with pytest.raises(TypeError, match="arrays of floats, got int64; convert it"):
        dv.grad(np.sum)(ps.array([1, 2]))
    with pytest.raises(TypeError, match="these arguments contain no array on the servers"):
        dv.grad(np.sum)({})
    with dv.local(1, in_process=True) as other, pytest.raises(ValueError, match="two sessions"):
        dv.grad(lambda pair: np.sum(pair[0]))((ps.ones(2), other.ones(2)))


def test_the_namespace_of_an_array_has_them(ps: dv.Session) -> None:
    xp = ps.ones(2).__array_namespace__()
    assert xp.value_and_grad is dv.value_and_grad and xp.hessian_product is dv.hessian_product
