"""Products of chosen rows, and rows joined to chosen rows: of tables split either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv

SERVERS = st.sampled_from((1, 2, 3, 7))
COLUMNS = st.sampled_from([1, 5, 1025, 2500])
ROWS = 5
PLACES = st.lists(st.tuples(*[st.integers(-ROWS, ROWS - 1)] * 2), max_size=9)
DTYPES = st.sampled_from(["float64", "float32", "float16", "int8"])
JOINS = ["add", "subtract", "multiply", "minimum", "maximum"]


def made(seed: int, *shape: int, dtype: str = "float64") -> Any:
    return np.random.default_rng(seed).normal(scale=9.0, size=shape).astype(dtype)


def put(ps: dv.Session, host: np.ndarray, split: str) -> Any:
    return ps.space(len(host), split=split).array(host)


def columns_of(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    return first, second


@settings(max_examples=20)
@given(k=COLUMNS, pairs=PLACES, split=st.sampled_from(["rows", "columns"]), seed=st.integers(0, 9))
def test_row_dot_is_that_of_numpy_with_the_same_bits_everywhere(
    sessions: dict[int, dv.Session], k: int, pairs: list[tuple[int, int]], split: str, seed: int
) -> None:
    a, b = made(seed, ROWS, k), made(seed + 10, ROWS, k)
    i, j = columns_of(pairs)
    found = []
    for ps in sessions.values():
        x, y = put(ps, a, split), put(ps, b, split)
        found.append(dv.row_dot(x, i, y, j).numpy())
        assert found[-1].shape == (len(i),)
    np.testing.assert_allclose(found[0], np.vecdot(a[i], b[j]), rtol=1e-9, atol=1e-9)
    assert len({one.tobytes() for one in found}) == 1


@settings(max_examples=30)
@given(
    servers=SERVERS,
    k=COLUMNS,
    pairs=PLACES,
    dtype=DTYPES,
    name=st.sampled_from(JOINS),
    seed=st.integers(0, 9),
)
def test_rows_are_joined_to_rows_with_the_bits_of_numpy(
    sessions: dict[int, dv.Session],
    servers: int,
    k: int,
    pairs: list[tuple[int, int]],
    dtype: str,
    name: str,
    seed: int,
) -> None:
    a, b = made(seed, ROWS, k, dtype=dtype), made(seed + 10, ROWS, k, dtype=dtype)
    i, j = columns_of(pairs)
    g = made(seed, len(i), 1, dtype=dtype)
    A, B = (put(sessions[servers], one, "columns") for one in (a, b))
    old, join = A.copy(), getattr(np, name)
    if len(i):
        join.at(A, i, g * B[j])
    expected = a.copy()
    with np.errstate(all="ignore"):
        join.at(expected, i, g * b[j])
    np.testing.assert_array_equal(A.numpy(), expected, strict=True)
    np.testing.assert_array_equal(old.numpy(), a)


@settings(max_examples=20)
@given(servers=SERVERS, data=st.data())
def test_what_is_joined_may_be_of_the_client_or_the_servers(
    sessions: dict[int, dv.Session], servers: int, data: st.DataObject
) -> None:
    ps, k, i = sessions[servers], 1030, np.array([3, -1, 3, 0])
    shape = data.draw(st.sampled_from([(4, k), (k,), (1, k), (4, 1), (1, 1), (1,), ()]))
    values = made(1, *shape)
    given = values
    if data.draw(st.booleans()) and shape in ((4, k), (k,), (1, k)):
        given = ps.array(values)
    expected, table = np.zeros((ROWS, k)), ps.space(ROWS, split="columns").zeros((ROWS, k))
    np.add.at(expected, i, values)
    np.add.at(table, i, given)
    np.testing.assert_array_equal(table.numpy(), expected)


def test_a_step_of_both_tables_and_the_next_products_are_one_message(ps: dv.Session) -> None:
    a, b = made(1, ROWS, 3000), made(2, ROWS, 3000)
    A, B = put(ps, a, "columns"), put(ps, b, "columns")
    i, j, g = np.array([1, 1, 4]), np.array([0, 2, 2]), np.array([0.5, -1.0, 2.0])
    dv.row_dot(A, i, B, j).numpy()
    ps.counters.reset()
    for _ in range(3):
        first, second = A[i], B[j]
        np.add.at(A, i, g[:, None] * second)
        np.add.at(B, j, g[:, None] * first)
        del first, second
        found = dv.row_dot(A, i, B, j).numpy()
        old = a[i]
        np.add.at(a, i, g[:, None] * b[j])
        np.add.at(b, j, g[:, None] * old)
        np.testing.assert_allclose(found, np.vecdot(a[i], b[j]))
    cost = ps.counters.snapshot()
    assert (cost["messages"], cost["sweeps"], cost["peer_messages"]) == (3, 3, 0)
    assert cost["vectors_written"] == 6
    assert cost["bytes_sent"] + cost["bytes_received"] < 12_000
    np.testing.assert_array_equal(A.numpy(), a)
    np.testing.assert_array_equal(B.numpy(), b)


def test_steps_in_place_have_the_bits_of_steps_on_copies(ps: dv.Session) -> None:
    n, k = 70, 2048  # 1.1 MB, from where on memory is given away
    a, b = made(1, n, k), made(2, n, k)
    A, B = put(ps, a, "columns"), put(ps, b, "columns")
    rng, every = np.random.default_rng(3), np.arange(n)
    for _ in range(4):
        i, j = rng.integers(n, size=(2, 9))
        first, second = A[i], B[j]
        np.add.at(A, i, second)
        np.subtract.at(B, j, first)
        np.multiply.at(B, i, 0.5)  # over what was just made
        np.add.at(A, every[::-1], A)  # of what is written over
        del first, second
        ps.counters.reset()
        dv.evaluate(A, B)
        assert ps.counters.vectors_in_place == 2 * ps.counters.messages
        old = a[i]
        np.add.at(a, i, b[j])
        np.subtract.at(b, j, old)
        np.multiply.at(b, i, 0.5)
        np.add.at(a, every[::-1], a.copy())
    np.testing.assert_array_equal(A.numpy(), a)
    np.testing.assert_array_equal(B.numpy(), b)


def test_indices_travel_once(ps: dv.Session) -> None:
    A = put(ps, made(1, 3, 2000), "columns")
    i = np.arange(10_000) % 3
    A.push(i, A[i])
    ps.counters.reset()
    A.persist()
    assert 2 * i.nbytes < ps.counters.bytes_sent < 2.1 * i.nbytes  # to each of two servers


def test_the_derivative_of_a_push(ps: dv.Session) -> None:
    b, i = made(3, 3, 1100), np.array([2, 0, 2])
    B, g = put(ps, b, "columns"), np.array([1.0, 2.0, 3.0])

    def loss(T: Any) -> Any:
        A = T.T.copy()
        np.subtract.at(A, i, g[:, None] * A[i])
        return (A * B).sum()

    T = ps.array(made(4, 1100, 3))
    expected = b.copy()
    np.subtract.at(expected, i, g[:, None] * b[i])
    np.testing.assert_allclose(dv.grad(loss)(T).numpy(), expected.T)


def test_what_is_refused(ps: dv.Session) -> None:
    host = made(1, ROWS, 6)
    rows, columns = put(ps, host, "rows"), put(ps, host, "columns")
    with pytest.raises(TypeError, match="split by rows and the other by columns"):
        dv.row_dot(rows, [0], columns, [0])
    with pytest.raises(TypeError, match="two tables on the servers, got ndarray"):
        dv.row_dot(columns, [0], host, [0])
    with pytest.raises(ValueError, match="i and j must have the same length, got 1 and 2"):
        dv.row_dot(columns, [0], columns, [0, 1])
    with pytest.raises(ValueError, match="same number of columns, got 6 and 3"):
        dv.row_dot(columns, [0], columns[:, :3], [0])
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        dv.row_dot(columns, [5], columns, [0])
    with pytest.raises(IndexError, match="index -6 is out of bounds"):
        np.add.at(columns, [-6], 1.0)
    with pytest.raises(TypeError, match=r"numpy\.hypot\.at of a transposed table"):
        np.hypot.at(columns, [0], 1.0)
    with pytest.raises(ValueError, match="2 indices but values of shape"):
        np.add.at(columns, [0, 1], columns[[0, 1, 2]])
    with pytest.raises(TypeError, match="Cannot cast"):
        columns.astype(np.int64).push([0], columns[[0]])
    with pytest.raises(TypeError, match="boolean subtract"):
        np.subtract.at(columns > 0, [0], True)
