"""NumPy arrays and lists beside arrays on the servers, as everybody types them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distvec as dv
from distvec.testing import vectors

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "add reflected": lambda x, y: y + x,
    "compare": lambda x, y: x < y,
    "ufunc": lambda x, y: np.hypot(x, y),
    "where": lambda x, y: np.where(x > 0, y, x),
    "clip": lambda x, y: np.clip(x, y, y + 1),
    "dot": lambda x, y: np.dot(y, x),
    "vdot": lambda x, y: np.vdot(x, y),
    "table": lambda x, y: x[:, None] * y[:, None],
    "einsum": lambda x, y: np.einsum("i,i->", x, y),
    "allclose": lambda x, y: np.allclose(x, y),
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(data=st.data())
def test_it_gives_numpys_result(
    sessions: dict[int, dv.Session], name: str, data: st.DataObject
) -> None:
    drawn = vectors(data.draw(st.integers(2, 50)), data.draw(st.sampled_from(["float64", "int32"])))
    x, y = data.draw(drawn), data.draw(drawn)
    with np.errstate(all="ignore"):
        expected = OPERATIONS[name](x, y)
        found = OPERATIONS[name](sessions[2].array(x), y)
    np.testing.assert_allclose(np.asarray(found), expected)


def test_numpy_arrays_change_in_place_by_results_of_the_client(ps: dv.Session) -> None:
    rng = np.random.default_rng(1)
    host, y = rng.standard_normal((40, 3)), rng.standard_normal(40)

    def typed(X: Any, y: Any) -> list[Any]:
        w, narrow, rows = np.zeros(3), np.zeros(3, "float32"), np.ones((2, 3))
        alias, product, total = w, np.empty(3), np.array(0.0)
        for _ in range(3):
            w -= 0.1 * (X.T @ (X @ w - y))
        narrow += X.mean(axis=0)
        rows *= X.max(axis=0)
        total += X.sum()
        np.dot(X.T, y, out=product)
        np.std(X, axis=0, out=rows[1])
        for change in (lambda: np.zeros(3, int).__iadd__(X.sum(0)), lambda: w.__isub__(X.T @ X)):
            with pytest.raises((TypeError, ValueError)):
                change()
        assert alias is w
        return [w, narrow, rows, product, total]

    for found, expected in zip(typed(ps.array(host), ps.array(y)), typed(host, y), strict=True):
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, expected, rtol=1e-6 if found.dtype == "f4" else 1e-12)
    w = np.zeros(3)
    with ps.strict(), pytest.raises(RuntimeError, match="evaluates an array"):
        w += ps.array(host).sum(axis=0)


def test_lists_and_single_elements_broadcast(ps: dv.Session) -> None:
    x = ps.array(np.arange(4.0))
    assert (x - [1, 2, 3, 4]).numpy().tolist() == [-1.0] * 4
    assert (x * np.array([2.0])).numpy().tolist() == [0.0, 2.0, 4.0, 6.0]
    table = ps.array(np.arange(8.0).reshape(4, 2))
    for other in (np.ones((4, 2)), np.ones((4, 1)), np.ones(2), [[1.0, 2.0]]):
        np.testing.assert_array_equal((table + other).numpy(), table.numpy() + np.asarray(other))


def test_the_copy_is_one_message_that_is_counted_and_explained(ps: dv.Session) -> None:
    x = ps.array(np.arange(1000.0))
    before = ps.implicit_uploads
    ps.counters.reset()
    y = x + np.ones(1000)
    assert (ps.counters.messages, ps.implicit_uploads - before) == (1, 1)
    assert "note: 1 operands (8,000 bytes) were copied to the servers" in y.explain()
    y.persist()
    assert ps.counters.messages == 2


def test_a_limit_and_a_strict_section_refuse_it(ps: dv.Session) -> None:
    x = ps.array(np.arange(1000.0))
    ps.upload_limit = 4000
    with pytest.raises(ValueError, match=r"8,000 bytes .* more than session.upload_limit"):
        x + np.ones(1000)
    with ps.strict(), pytest.raises(RuntimeError, match=r"write session.array\(values\) before"):
        x + np.ones(1000, np.float32)
    np.testing.assert_array_equal((x + np.ones(1000, np.float32)).numpy(), np.arange(1.0, 1001.0))


def test_a_wrong_length_is_numpys_error(ps: dv.Session) -> None:
    with pytest.raises(ValueError, match="broadcast together"):
        ps.ones(4) + np.ones(3)


def test_gradients_by_functions_of_client_data(ps: dv.Session) -> None:
    data = np.arange(6.0)
    value, gradient = dv.value_and_grad(lambda w: ((w - data) ** 2).sum())(ps.ones(6))
    assert float(value) == ((1 - data) ** 2).sum()
    np.testing.assert_array_equal(gradient.numpy(), 2 * (1 - data))
