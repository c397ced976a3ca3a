"""Linear algebra of small arrays that the client keeps: NumPy's, of what comes in one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distvec as dv

RNG = np.random.default_rng(0)
POINTS, VALUES = RNG.standard_normal((200, 4)), RNG.standard_normal(200)

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "solve": np.linalg.solve,
    "solve of many": lambda a, b: np.linalg.solve(a, a + 1.0),
    "solve beside NumPy's": lambda a, b: np.linalg.solve(a, np.arange(4.0)),
    "lstsq": lambda a, b: np.linalg.lstsq(a[:, :2], b),
    "inv": lambda a, b: np.linalg.inv(a) @ b,
    "pinv": lambda a, b: np.linalg.pinv(a, hermitian=True),
    "cholesky": lambda a, b: np.linalg.cholesky(a),
    "eigh": lambda a, b: np.linalg.eigh(a).eigenvalues,
    "eigvalsh": lambda a, b: np.linalg.eigvalsh(a),
    "svd": lambda a, b: np.linalg.svd(a[:3])[1],
    "qr": lambda a, b: abs(np.linalg.qr(a).R),
    "det": lambda a, b: np.linalg.det(a),
    "slogdet": lambda a, b: np.linalg.slogdet(a).logabsdet,
    "matrix_rank": lambda a, b: np.linalg.matrix_rank(a),
    "matrix_power": lambda a, b: np.linalg.matrix_power(a, 3),
    "trace": lambda a, b: np.trace(a),
    "diag": lambda a, b: np.diag(a) + np.diagonal(a) + np.diag(b)[0],
}


@pytest.fixture(scope="module")
def ps() -> Iterator[dv.Session]:
    with dv.local(servers=2, in_process=True) as session:
        yield session


@pytest.mark.parametrize("name", CASES)
def test_as_numpys(ps: dv.Session, name: str) -> None:
    x, y = ps.array(POINTS), ps.array(VALUES)
    found = CASES[name](x.T @ x, x.T @ y)
    expected = CASES[name](POINTS.T @ POINTS, POINTS.T @ VALUES)
    parts = [v if isinstance(v, tuple) else (v,) for v in (found, expected)]
    for one, other in zip(*parts, strict=True):
        assert isinstance(one, dv.DistArray)
        assert (one.shape, one.dtype) == (np.shape(other), np.asarray(other).dtype)
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-9, atol=1e-9)


def test_products_come_in_one_message(ps: dv.Session) -> None:
    x, y = ps.array(POINTS), ps.array(VALUES)
    before = ps.counters.messages
    w = np.linalg.solve(x.T @ x, x.T @ y)
    assert ps.counters.messages == before  # lazy
    np.testing.assert_allclose(w.numpy(), np.linalg.lstsq(POINTS, VALUES)[0])
    assert ps.counters.messages - before == 1
    assert float((x @ w - y).mean()) == pytest.approx(np.mean(POINTS @ w.numpy() - VALUES))


def test_a_vector_on_the_servers_beside_it(ps: dv.Session) -> None:
    x, b = ps.array(POINTS), np.arange(4.0)
    expected = np.linalg.solve(POINTS.T @ POINTS, b)
    np.testing.assert_allclose(np.linalg.solve(x.T @ x, ps.array(b)).numpy(), expected)


def test_errors(ps: dv.Session) -> None:
    x = ps.array(POINTS)
    inverse = np.linalg.inv((x * 0).T @ x)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        inverse.numpy()
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        np.linalg.inv((x.T @ x)[:2])
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        np.linalg.inv(x)
    with pytest.raises(TypeError, match="float16"):
        np.linalg.inv((x.T @ x).astype("float16"))
    with pytest.raises(ValueError, match="mismatch"):
        np.linalg.solve(x.T @ x, np.arange(3.0))


def test_what_cannot_be_computed_is_in_nobodys_way(ps: dv.Session) -> None:
    x = ps.array(POINTS)
    inverse = np.linalg.inv((x * 0).T @ x)
    assert float(x.sum()) == pytest.approx(POINTS.sum())
    ps.flush()
    assert float((x + 1).sum()) == pytest.approx((POINTS + 1).sum())
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        inverse.numpy()


def test_several_results_are_computed_once(ps: dv.Session) -> None:
    x = ps.array(POINTS)
    values, vectors = np.linalg.eigh(x.T @ x)
    ps.counters.reset()
    expected = np.linalg.eigh(POINTS.T @ POINTS)
    np.testing.assert_allclose(values.numpy(), expected.eigenvalues)
    np.testing.assert_allclose(abs(vectors.numpy()), abs(expected.eigenvectors))
    assert ps.counters.messages == 1


def test_small_square_tables_on_the_servers(ps: dv.Session) -> None:
    gram = POINTS.T @ POINTS
    table = ps.array(gram)
    ps.counters.reset()
    inverse, sign = np.linalg.inv(table), np.linalg.slogdet(table).sign
    dv.evaluate(inverse, sign, np.linalg.cholesky(table, upper=True))
    assert ps.counters.messages == 0, "the client keeps a copy of small values"
    np.testing.assert_allclose(inverse.numpy(), np.linalg.inv(gram))
    np.testing.assert_allclose(np.linalg.matrix_power(table.T, 3).numpy(), gram.T @ gram.T @ gram.T)
    np.testing.assert_allclose(np.linalg.cond(table, 1).numpy(), np.linalg.cond(gram, 1))
