"""Tall tables: QR by a tree, and what follows from the triangle; NumPy's as the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import distvec as dv

COUNTS = (1, 2, 3, 7)
RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((5000, 4)) * [1.0, 10.0, 100.0, 1.0]
VALUES = RNG.standard_normal(5000)
FLAWED = np.column_stack([POINTS, POINTS[:, 1] - POINTS[:, 2]])
"""Of rank 4."""


@pytest.fixture(scope="module", autouse=True)
def _threads_of_blas() -> Iterator[None]:
    """Several, which the tests' environment does not allow: the bits must not depend on them."""
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.fixture(scope="module")
def ps() -> Iterator[dv.Session]:
    with dv.local(servers=2, in_process=True) as session:
        yield session


def distance(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest element."""
    return float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-300))


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray:
    """Tall ones, of less than full rank too, with columns of very different sizes."""
    k = draw(st.sampled_from([1, 2, 3, 8, 33]))
    n = k + draw(st.sampled_from([0, 1, 7, 1023, 1024, 2500, 7000]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    table = rng.standard_normal((n, k)) * 10.0 ** rng.integers(-12, 12, k)
    kind = draw(st.sampled_from(["full", "full", "one column twice", "rank one", "zero", "sparse"]))
    if kind == "one column twice":
        table[:, -1] = table[:, 0]
    elif kind == "rank one":
        table = table[:, :1] * np.arange(k)
    elif kind == "zero":
        table = np.zeros((n, k))
    elif kind == "sparse":
        table[rng.random((n, k)) < 0.9] = 0
    dtype = draw(st.sampled_from([np.float64, np.float64, np.float32, np.int32]))
    return np.clip(table, -1e9, 1e9).astype(dtype)


@given(table=tables())
@settings(max_examples=15)
def test_qr_on_any_servers(sessions: dict[int, dv.Session], table: np.ndarray) -> None:
    k = table.shape[1]
    bits = set()
    for count in COUNTS:
        q, r = np.linalg.qr(sessions[count].array(table))
        upper = np.linalg.qr(sessions[count].array(table), mode="r").numpy()
        expected = np.linalg.qr(table)
        assert (q.shape, q.dtype) == (expected.Q.shape, expected.Q.dtype)
        assert (r.shape, r.dtype) == (expected.R.shape, expected.R.dtype)
        dv.evaluate(q, r)
        bits.add((q.numpy().tobytes(), r.numpy().tobytes(), upper.tobytes()))
    eps = np.finfo(q.dtype).eps
    big, right = q.numpy().astype(float), r.numpy().astype(float)
    scale = np.maximum(np.linalg.norm(table.astype(float), axis=0), 1e-300)
    assert np.abs((big @ right - table) / scale).max() < 100 * eps
    assert np.abs(big.T @ big - np.eye(k)).max() < 100 * eps
    assert np.array_equal(right, np.triu(right)) and (np.diagonal(right) >= 0).all()
    assert (
        np.abs((upper.T.astype(float) @ upper - right.T @ right) / scale / scale[:, None]).max()
        < 1000 * eps
    )
    assert len(bits) == 1


def test_threads_share_the_pieces(sessions: dict[int, dv.Session]) -> None:
    table = RNG.standard_normal((60_000, 3))
    found = [np.linalg.qr(sessions[count].array(table)) for count in (1, 7)]
    (q, r), (p, s) = ((one.numpy() for one in pair) for pair in found)
    assert q.tobytes() == p.tobytes() and r.tobytes() == s.tobytes()
    assert distance(q @ r, table) < 1e-14


def test_too_little_memory_loses_nothing() -> None:
    table = RNG.standard_normal((60_000, 16))
    with dv.local(servers=2, in_process=True, memory=3 * table.nbytes // 4) as ps:
        x = ps.array(table)
        q, _ = np.linalg.qr(x)
        with pytest.raises(dv.OutOfBudget, match="a tsqr"):
            q.persist()
        np.testing.assert_array_equal(x.numpy(), table)
        assert distance(np.linalg.svdvals(x).numpy(), np.linalg.svdvals(table)) < 1e-13


def test_the_triangle_is_numpys_but_for_signs(ps: dv.Session) -> None:
    expected = np.linalg.qr(POINTS).R
    for found in (np.linalg.qr(ps.array(POINTS)).R, np.linalg.qr(ps.array(POINTS), mode="r")):
        assert distance(np.abs(found.numpy()), np.abs(expected)) < 1e-13


def test_a_table_of_more_columns_than_a_piece_has_rows(ps: dv.Session) -> None:
    table = RNG.standard_normal((1060, 1040))
    q, r = np.linalg.qr(ps.array(table))
    dv.evaluate(q, r)
    assert distance(q.numpy() @ r.numpy(), table) < 1e-12
    assert np.abs(q.numpy().T @ q.numpy() - np.eye(1040)).max() < 1e-13


def test_nan_and_infinity(ps: dv.Session) -> None:
    table = POINTS.copy()
    table[4000, 2] = np.nan
    q, r = np.linalg.qr(ps.array(table))
    assert np.isnan(r.numpy()).any() and np.isnan(q.numpy()).any()
    with pytest.raises(np.linalg.LinAlgError, match="did not converge"):
        np.linalg.svdvals(ps.array(table)).numpy()


OF_TABLE: dict[str, Callable[[Any], Any]] = {
    "svdvals": lambda t: np.linalg.svdvals(t),
    "svd, values alone": lambda t: np.linalg.svd(t, compute_uv=False),
    "svd, full, values alone": lambda t: np.linalg.svd(t, True, False),
    "matrix_rank": lambda t: np.linalg.matrix_rank(t),
    "matrix_rank, tol": lambda t: np.linalg.matrix_rank(t, 100.0),
    "matrix_rank, rtol": lambda t: np.linalg.matrix_rank(t, rtol=0.05),
    "norm": lambda t: np.linalg.norm(t),
    "norm fro": lambda t: np.linalg.norm(t, "fro"),
    "norm 1": lambda t: np.linalg.norm(t, 1),
    "norm -1": lambda t: np.linalg.norm(t, -1),
    "norm 2": lambda t: np.linalg.norm(t, 2),
    "norm inf": lambda t: np.linalg.norm(t, np.inf),
    "norm -inf": lambda t: np.linalg.norm(t, -np.inf, keepdims=True),
    "norm nuc": lambda t: np.linalg.norm(t, "nuc", keepdims=True),
    "norm, both axes": lambda t: np.linalg.norm(t, 1, axis=(1, 0)),
    "norm, an axis": lambda t: np.linalg.norm(t, 1, axis=0),
    "matrix_norm": lambda t: np.linalg.matrix_norm(t),
    "matrix_norm 2": lambda t: np.linalg.matrix_norm(t, ord=2),
    "vector_norm": lambda t: np.linalg.vector_norm(t, ord=1),
    "vector_norm, an axis": lambda t: np.linalg.vector_norm(t, axis=1, ord=np.inf),
    "trace": lambda t: np.trace(t),
    "trace, offset": lambda t: np.trace(t, -2, dtype=np.float32),
    "trace of nothing": lambda t: np.trace(t, 99),
    "diagonal": lambda t: np.diagonal(t),
    "diagonal, axes": lambda t: np.diagonal(t, 1, 1, 0),
    "diagonal, offset": lambda t: np.linalg.diagonal(t, offset=1),
    "diag": lambda t: np.diag(t, -3),
    "linalg.trace": lambda t: np.linalg.trace(t, offset=1),
    "multi_dot": lambda t: np.linalg.multi_dot([t.T, t, t.T, t, np.arange(1.0, 1 + t.shape[1])]),
}
"""Of tall tables, and of their transposes."""


@pytest.mark.parametrize("name", OF_TABLE)
@pytest.mark.parametrize("kind", ["tall", "split by columns", "float32", "int64", "on the client"])
def test_as_numpys(ps: dv.Session, name: str, kind: str) -> None:
    host = FLAWED[:7] if kind == "on the client" else FLAWED
    host = host.T if kind == "split by columns" else host
    host = host.astype(kind) if kind in ("float32", "int64") else host
    if kind == "on the client":
        found = OF_TABLE[name](small(ps, host))
    elif kind == "split by columns":
        found = OF_TABLE[name](ps.array(FLAWED).T)
    else:
        found = OF_TABLE[name](ps.array(host))
    expected = OF_TABLE[name](host)
    assert found.shape == np.shape(expected)
    assert found.dtype == np.asarray(expected).dtype
    tolerance = 1e-4 if host.dtype == np.float32 else 1e-11
    largest = np.abs(expected).max(initial=0) or 1.0
    np.testing.assert_allclose(found.numpy() / largest, expected / largest, atol=tolerance)


def small(ps: dv.Session, values: np.ndarray) -> Any:
    """An array that the client keeps."""
    return ps.array(np.eye(len(values))).T @ ps.array(values)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_svd(ps: dv.Session, dtype: str) -> None:
    host = FLAWED.astype(dtype)
    for x in (ps.array(host), ps.array(host).T):
        expected = np.linalg.svd(x.numpy(), full_matrices=False)
        found = np.linalg.svd(x, full_matrices=False)
        assert type(found) is type(expected)
        dv.evaluate(*found)
        for one, other in zip(found, expected, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
        u, s, vh = (one.numpy() for one in found)
        eps = np.finfo(u.dtype).eps
        assert distance(u * s @ vh, x.numpy()) < 1000 * eps
        assert np.abs(s - expected.S).max() < 1000 * eps * s.max()
        assert np.abs(u.T @ u - np.eye(5)).max() < 100 * eps
        assert np.abs(vh @ vh.T - np.eye(5)).max() < 100 * eps


def test_qr_of_what_is_split_by_columns(ps: dv.Session) -> None:
    single = FLAWED.T.astype(np.float32)
    for host in (FLAWED.T, np.ones((3, 2000)), np.zeros((2, 1500)), single):
        x = ps.space(len(host), split="columns").array(host)
        q, r = np.linalg.qr(x)
        assert (q.dtype, r.dtype) == (host.dtype, host.dtype)
        assert (q.shape, r.shape) == (np.linalg.qr(host).Q.shape, np.linalg.qr(host).R.shape)
        eps = np.finfo(host.dtype).eps
        assert distance(q.numpy() @ r.numpy(), host) < 100 * eps
        assert np.abs(q.numpy().T @ q.numpy() - np.eye(len(host))).max() < 100 * eps
        assert np.array_equal(r.numpy(), np.triu(r.numpy()))
        assert np.array_equal(np.linalg.qr(x, mode="r").numpy(), r.numpy())


@pytest.mark.parametrize("rcond", [None, -1, 1e-3])
@pytest.mark.parametrize("host", [POINTS, FLAWED, POINTS[:4], POINTS[:5]])
def test_lstsq(ps: dv.Session, host: np.ndarray, rcond: Any) -> None:
    b = VALUES[: len(host)]
    if rcond == -1 and host is FLAWED:
        return  # whatever rounding makes of the smallest singular value
    for right in (b, np.column_stack([b, host[:, 0], b])):
        expected = np.linalg.lstsq(host, right, rcond=rcond)
        found = np.linalg.lstsq(ps.array(host), ps.array(right), rcond=rcond)
        for one, other in zip(found, expected, strict=True):
            assert (one.shape, one.dtype) == (np.shape(other), np.asarray(other).dtype)
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-9, atol=1e-9)


def test_lstsq_of_fewer_equations_than_unknowns(ps: dv.Session) -> None:
    for host in (POINTS.T, FLAWED.T):
        b = np.arange(float(len(host)))
        expected = np.linalg.lstsq(host, b)
        found = np.linalg.lstsq(ps.array(host.T).T, b)
        for one, other in zip(found, expected, strict=True):
            assert (one.shape, one.dtype) == (np.shape(other), np.asarray(other).dtype)
            np.testing.assert_allclose(one.numpy(), other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("host", [POINTS, FLAWED, POINTS.astype(np.float32)])
def test_pinv(ps: dv.Session, host: np.ndarray) -> None:
    for keywords in ({}, {"rcond": 0.05}, {"rtol": None}, {"rtol": 1e-3}):
        if host is FLAWED and not keywords:
            continue  # whether rounding leaves more than 1e-15 is a matter of luck
        expected = np.linalg.pinv(host, **keywords)
        found = np.linalg.pinv(ps.array(host), **keywords)
        again = np.linalg.pinv(ps.array(host).T, **keywords)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        tolerance = 1e-4 if host.dtype == np.float32 else 1e-10
        assert distance(found.numpy(), expected) < tolerance
        assert distance(again.numpy().T, expected) < tolerance


def test_cross(ps: dv.Session) -> None:
    a, b = RNG.standard_normal((2, 2000, 3))
    x, y = ps.array(a), ps.array(b)
    for found, expected in (
        (np.cross(x, y), np.cross(a, b)),
        (np.cross(x, b[0]), np.cross(a, b[0])),
        (np.linalg.cross(x, x.sum(0)), np.linalg.cross(a, a.sum(0))),
        (np.cross(x.sum(0), y.sum(0)), np.cross(a.sum(0), b.sum(0))),
    ):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-10)


def test_solve_for_all_rows(ps: dv.Session) -> None:
    matrix = POINTS[:4]
    found = np.linalg.solve(small(ps, matrix), ps.array(POINTS).T)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(matrix, POINTS.T), rtol=1e-9)
    with pytest.raises(ValueError, match="are not aligned"):
        np.linalg.solve(small(ps, matrix[:3, :3]), ps.array(POINTS).T)


def test_selected_rows(ps: dv.Session) -> None:
    x, mask = ps.array(POINTS), POINTS[:, 0] > 0
    chosen = x[x[:, 0] > 0]
    np.testing.assert_allclose(np.linalg.svdvals(chosen).numpy(), np.linalg.svdvals(POINTS[mask]))
    q, r = np.linalg.qr(chosen)
    assert distance(q.numpy() @ r.numpy(), POINTS[mask]) < 1e-13


# --- what it costs --------------------------------------------------------------------------------


def test_costs(ps: dv.Session) -> None:
    n, k = 40_000, 8
    x, y = ps.random.normal((n, k)).persist(), ps.random.normal(n).persist()
    costs: dict[str, tuple[Callable[[], Any], int, int]] = {
        "qr": (lambda: np.linalg.qr(2 * x - 1), 2, 2),
        "r": (lambda: np.linalg.qr(2 * x - 1, mode="r"), 1, 0),
        "svd": (lambda: np.linalg.svd(x, full_matrices=False), 3, 2),
        "svdvals and norms": (
            lambda: (np.linalg.svdvals(x), np.linalg.norm(x, 2), np.linalg.norm(x, 1)), 1, 0,
        ),
        "lstsq": (lambda: np.linalg.lstsq(x, y), 1, 0),
    }  # fmt: skip
    for name, (make, messages, phases) in costs.items():
        ps.counters.reset()
        found = make()
        dv.evaluate(*(found if isinstance(found, tuple) else (found,)))
        assert (ps.counters.programs, ps.counters.phases) == (messages, phases), name
        assert ps.counters.messages == messages, name
        assert ps.counters.vectors_written == phases, name
        if phases:  # of 40 blocks one server has 16 + 4, the other one 4 + 8 + 8
            assert ps.counters.peer_messages == 2
            assert ps.counters.peer_bytes == (2 + 3) * k * k * 8, name


# --- what is refused ------------------------------------------------------------------------------


def long(x: Any) -> Any:
    return x.session.ones((3000, 2))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: np.linalg.qr(long(x), mode="complete"), NotImplementedError, "mode='reduced'"),
        (lambda x: np.linalg.qr(x.T, mode="raw"), NotImplementedError, "mode='reduced'"),
        (lambda x: np.linalg.svd(long(x)), NotImplementedError, "full_matrices=False"),
        (lambda x: np.linalg.inv(x), np.linalg.LinAlgError, "square"),
        (lambda x: np.linalg.inv(x.T), np.linalg.LinAlgError, "square"),
        (lambda x: np.linalg.eigh(x.session.ones((3000, 3000))), NotImplementedError, "x.numpy()"),
        (lambda x: np.linalg.qr(x.session.ones((4000, 2049))), NotImplementedError, "2048"),
        (lambda x: np.linalg.qr(x.session.ones((3, 2_000_000))), NotImplementedError, "'columns'"),
        (lambda x: np.linalg.qr(x.session.ones((3, 2_000_000)).T), NotImplementedError, "'rows'"),
        (lambda x: np.linalg.det(x.session.ones((3, 2_000_000))), np.linalg.LinAlgError, "square"),
        (lambda x: np.linalg.qr(x.astype("float16")), TypeError, "float16"),
        (lambda x: np.linalg.lstsq(x, VALUES), TypeError, r"session.array\(b\)"),
        (lambda x: np.linalg.lstsq(x, x[:9]), np.linalg.LinAlgError, "Incompatible"),
        (lambda x: np.linalg.norm(x, 3), ValueError, "Invalid norm order"),
        (lambda x: np.linalg.cond(x, 1), np.linalg.LinAlgError, "square"),
        (lambda x: np.linalg.eigvals(x.T @ x), TypeError, "eigvalsh"),
        (lambda x: np.cross(x, x), ValueError, "must be 3"),
    ],
)  # fmt: skip
def test_refused(ps: dv.Session, call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call(ps.array(POINTS))
