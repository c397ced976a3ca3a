"""Tables split by columns: as those split by rows, with the same bits on any number of servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from optim import minimize
from optim.core.arrays import namespace

SERVERS = st.sampled_from((1, 2, 3, 7))
COLUMNS = st.sampled_from([1, 3, 1025, 2500])

EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "arithmetic": lambda x, y: (2.0 * x + y / 3.0 - 1.0) * x,
    "comparison": lambda x, y: (x < y) | (x == 0.5),
    "functions": lambda x, y: np.sqrt(np.abs(x)) + np.maximum(x, y),
    "choice": lambda x, y: np.where(x > 0, x, -y),
    "clip": lambda x, y: np.clip(x, -0.5, 0.5) + np.round(y, 1),
    "least of columns": lambda x, y: np.min(x, axis=0),
    "largest of rows": lambda x, y: x.max(axis=1, keepdims=True),
    "largest": lambda x, y: np.max(x),
    "where in rows": lambda x, y: x.argmax(axis=1),
    "where in columns": lambda x, y: np.argmin(x, axis=-2),
    "where": lambda x, y: np.argmax(np.round(x)),
    "where, or missing": lambda x, y: np.argmin(np.where(y > 2, np.nan, x), keepdims=True),
    "any": lambda x, y: (x > 1).any(axis=0),
    "all": lambda x, y: np.all(x > -1, axis=1),
    "count": lambda x, y: np.count_nonzero(x > 0, axis=1),
    "sum of integers": lambda x, y: (x * 100).astype(np.int64).sum(axis=1),
    "less the largest": lambda x, y: x - np.max(y, axis=1, keepdims=True),
    "fractions": lambda x, y: np.modf(x)[1] + divmod(y, 2.0)[0],
}
"""What has NumPy's bits however a table is split."""

CLOSE: dict[str, Callable[[Any, Any], Any]] = {
    "sum of rows": lambda x, y: x.sum(axis=1),
    "sum of columns": lambda x, y: np.add.reduce(x),
    "mean": lambda x, y: np.mean(x),
    "std": lambda x, y: x.std(axis=1),
    "standardised": lambda x, y: (x - x.mean(0)) / (1.0 + x.std(0)),
    "norm": lambda x, y: np.linalg.norm(x, axis=1),
    "row products": lambda x, y: np.vecdot(x, y),
    "inner product": lambda x, y: np.vdot(x, y),
    "rows by rows": lambda x, y: x @ y.T,
}
"""What is added up in an order of its own."""


def put(sessions: dict[int, dv.Session], servers: int, host: np.ndarray) -> Any:
    return sessions[servers].space(len(host), split="columns").array(host)


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(EXACT)),
    servers=SERVERS,
    n=st.integers(1, 4),
    k=COLUMNS,
    seed=st.integers(0, 9),
)
def test_what_is_not_added_up_has_the_bits_of_numpy_and_of_the_row_split(
    sessions: dict[int, dv.Session], name: str, servers: int, n: int, k: int, seed: int
) -> None:
    x, y = np.random.default_rng(seed).normal(size=(2, n, k))
    expected = EXACT[name](x, y)
    rows = [sessions[servers].array(one) for one in (x, y)]
    columns = [put(sessions, servers, one) for one in (x, y)]
    for pair in (rows, columns):
        found = EXACT[name](*pair)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(np.asarray(found), expected, strict=True)


@settings(max_examples=20)
@given(name=st.sampled_from(sorted(CLOSE)), n=st.integers(1, 4), k=COLUMNS, seed=st.integers(0, 9))
def test_sums_have_the_same_bits_on_any_number_of_servers(
    sessions: dict[int, dv.Session], name: str, n: int, k: int, seed: int
) -> None:
    x, y = np.random.default_rng(seed).normal(size=(2, n, k))
    found = []
    for servers in sessions:
        columns = [put(sessions, servers, one) for one in (x, y)]
        found.append(np.asarray(CLOSE[name](*columns)))
    np.testing.assert_allclose(found[0], CLOSE[name](x, y), rtol=1e-10, atol=1e-12)
    assert len({one.tobytes() for one in found}) == 1


def test_random_numbers_do_not_depend_on_the_split(ps: dv.Session) -> None:
    rows, columns = ps.space(5), ps.space(5, split="columns")
    for draw in (
        lambda space: space.random.normal((5, 1030), loc=2.0, seed=3),
        lambda space: space.random.uniform((5, 1030), low=-1.0, seed=4),
        lambda space: space.random.integers(0, 99, (5, 1030), seed=5),
    ):
        expected = draw(rows).numpy()
        np.testing.assert_array_equal(draw(columns).numpy(), expected)
        np.testing.assert_array_equal(draw(columns).pull([4, 0, 4]), expected[[4, 0, 4]])


def test_products_of_long_rows_bring_small_results(ps: dv.Session) -> None:
    n, k = 3, 50_000
    rng = np.random.default_rng(0)
    host, weights = rng.normal(size=(n, k)), rng.normal(size=k)
    table, v = ps.space(n, split="columns").array(host), ps.array(weights)
    ps.counters.reset()
    found = (table @ v).numpy()
    np.testing.assert_allclose(found, host @ weights)
    np.testing.assert_allclose((table @ table.T).numpy(), host @ host.T)
    cost = ps.counters.snapshot()
    assert (cost["messages"], cost["sweeps"]) == (2, 2)
    assert cost["bytes_sent"] + cost["bytes_received"] < 10_000
    x = rng.normal(size=n)
    combined = (x @ table - v).persist()
    assert combined.space == v.space
    np.testing.assert_allclose(combined.numpy(), x @ host - weights)
    ps.counters.reset()
    np.testing.assert_array_equal(table.pull([2, -1]), host[[2, 2]])
    assert ps.counters.messages == 2
    assert table.pull([]).shape == (0, k)
    np.testing.assert_array_equal(table.pull(), host)


@settings(max_examples=20)
@given(data=st.data(), servers=SERVERS, n=st.integers(1, 4), k=COLUMNS)
def test_rows_are_pulled_and_pushed(
    sessions: dict[int, dv.Session], data: st.DataObject, servers: int, n: int, k: int
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    host = rng.normal(size=(n, k))
    table = put(sessions, servers, host)
    where = data.draw(st.lists(st.integers(-n, n - 1), max_size=6))
    found = table.pull(where)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, host[np.array(where, int)], strict=True)
    shape = data.draw(st.sampled_from([(len(where), k), (k,), (1, k), (len(where), 1), ()]))
    values = rng.normal(size=shape)
    expected, old = host.copy(), table.copy()
    np.add.at(expected, np.array(where, int), values)
    assert table.push(where, values) is table
    np.testing.assert_array_equal(table.numpy(), expected)
    np.testing.assert_array_equal(old.numpy(), host)


INDICES = [
    0, -1, (1, 2), (-1, -3), slice(1, None), slice(None, None, -2), (slice(0, 2), slice(5, 1000)),
    [2, 0, 2], (slice(None), [7, 1, 7]), ([0, 2], slice(3, None, 700)), (..., 5), (1, ...), ...,
    (slice(None), slice(None, None, -1)), ([2, 1], [0, 1100]), (1, [3, 4]), ([1, 2], 3),
    np.array([True, False, True]), (slice(None), slice(None, 4)), np.int64(2),
]  # fmt: skip


@pytest.mark.parametrize("key", INDICES, ids=repr)
def test_indices_name_what_numpys_name(ps: dv.Session, key: Any) -> None:
    host = np.random.default_rng(0).normal(size=(3, 1200))
    table = ps.space(3, split="columns").array(host)
    np.testing.assert_array_equal(table[key].numpy(), host[key], strict=True)
    both_vectors = isinstance(key, tuple) and all(isinstance(one, list) for one in key)
    if not both_vectors:
        table[key] *= 2.0
        host[key] *= 2.0
        np.testing.assert_array_equal(table.numpy(), host)
        table[key] = 1.0
        host[key] = 1.0
    table[1] += ps.arange(1200)
    host[1] += np.arange(1200)
    table[table.sum(1) > 5] = -1.0
    host[host.sum(1) > 5] = -1.0
    np.testing.assert_array_equal(table.numpy(), host)


def test_tables_change_in_place_and_others_keep_the_old_values(ps: dv.Session) -> None:
    host = np.arange(12.0).reshape(3, 4)
    space = ps.space(3, split="columns")
    table = space.array(host)
    old, same = table.copy(), table
    table += ps.arange(4)
    table *= 2.0
    expected = (host + np.arange(4)) * 2.0
    np.testing.assert_array_equal(table.numpy(), expected)
    assert same is table
    assert np.negative(table, out=table) is table
    table.push(None, np.ones(4)).push(None, host).push(None, [[1.0], [2.0], [3.0]]).push(None, 1)
    expected = -expected + 2.0 + host + [[1.0], [2.0], [3.0]]
    np.testing.assert_array_equal(table.numpy(), expected)
    table[:] = space.ones((3, 4)) * 3.0
    np.testing.assert_array_equal(table.numpy(), np.full((3, 4), 3.0))
    table[...] = host
    np.testing.assert_array_equal(table.numpy(), host)
    table[:, :] = 0
    assert not table.any().item()
    np.testing.assert_array_equal(old.numpy(), host)
    with pytest.raises(TypeError, match="same_kind"):
        ps.space(3, split="columns").zeros((3, 4), np.int64).__iadd__(0.5)


def test_a_table_tells_what_it_is(ps: dv.Session) -> None:
    host = np.arange(6.0).reshape(2, 3)
    space = ps.space(2, split="columns")
    table = space.array(host.tolist(), np.float32)
    assert repr(space) == "<space of 2 rows, split by columns>"
    assert (table.shape, table.dtype, table.nbytes, len(table)) == ((2, 3), np.float32, 24, 2)
    assert repr(table) == repr(ps.array(host, np.float32))
    assert table.tolist() == host.tolist()
    assert str(space.ones((2, 3)) + 0.5) == str(host * 0 + 1.5)
    assert repr(space.full((2, 5000), 7.0)) == repr(ps.full((2, 5000), 7.0))
    assert table.T.space.length == 3
    messages = ps.counters.messages
    assert "(2, 3), split by columns" in (table * 2.0)._repr_html_()
    assert ps.counters.messages == messages
    assert "sweep" in (table + 1.0).explain()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(table)


def test_optimizers_take_tables_split_by_columns(ps: dv.Session) -> None:
    target = np.random.default_rng(2).normal(size=(3, 5))

    def fun(x: Any) -> tuple[Any, Any]:
        xp = namespace(x)
        goal = ps.space(3, split="columns").array(target) if xp is not np else target
        gap = x - goal
        return xp.sum(gap**4) / 4.0 + xp.sum(gap**2) / 2.0, gap**3 + gap

    expected = minimize(fun, np.zeros((3, 5)), method="L-BFGS")
    found = minimize(fun, ps.space(3, split="columns").zeros((3, 5)), method="L-BFGS")
    assert found.success
    assert found.nit == expected.nit
    np.testing.assert_allclose(found.x.numpy(), expected.x, atol=1e-9)


WIDE = np.random.default_rng(5).integers(0, 9, (4, 600)).astype(float)

BY_ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "beside rows": lambda x, y: x + y,
    "beside rows, reflected": lambda x, y: y - x,
    "a choice": lambda x, y: np.where(x > 4, y, x),
    "joined": lambda x, y: np.concatenate([y, x, y]),
    "joined, first": lambda x, y: np.concatenate([x, y], axis=1),
    "rolled": lambda x, y: np.roll(x, 5),
    "turned round": lambda x, y: np.flip(x),
    "repeated": lambda x, y: np.tile(x, (2, 1)),
    "in another shape": lambda x, y: np.reshape(x, (40, 60)),
    "lexsort": lambda x, y: np.lexsort(x),
    "differences": lambda x, y: np.diff(x, axis=0),
}


@pytest.mark.parametrize("name", BY_ROWS)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_what_needs_rows_gets_them_from_server_to_server(
    sessions: dict[int, dv.Session], name: str, count: int
) -> None:
    ps, call = sessions[count], BY_ROWS[name]
    x, y = ps.array(WIDE.T).T, ps.array(WIDE)
    before = ps.implicit_transfers
    result = call(x, y)
    np.testing.assert_array_equal(result.numpy(), call(WIDE, WIDE))
    assert ps.implicit_transfers == before


def test_a_copy_split_by_rows_goes_from_server_to_server(ps: dv.Session) -> None:
    x = ps.array(np.ones((60_000, 4))).persist().T
    ps.counters.reset()
    rows = ps.array(x).persist()
    assert isinstance(rows, dv.DistArray) and rows.shape == x.shape
    assert ps.counters.messages <= 3, "the places, the gather, and the rows made of it"
    assert ps.counters.bytes_received < 4096, "the client sees nothing"
    assert ps.counters.peer_bytes <= 60_000 * 4 * 16, "an element and its index"


REFUSED: dict[str, tuple[Callable[[dv.Session, Any], Any], type[Exception], str]] = {
    "row": (lambda ps, x: x[1:, 2][3], IndexError, "index 3"),
    "rows of others": (lambda ps, x: x[[0, -4]], IndexError, "-4 is out of bounds for axis 0 with"),
    "column": (lambda ps, x: x[0, 4], IndexError, "4 is out of bounds for axis 1 with size 4"),
    "indices": (lambda ps, x: x[0, 1, 2], IndexError, "too many indices"),
    "an axis": (lambda ps, x: x[None], TypeError, "supports a number, a slice, an index vector"),
    "a mask": (lambda ps, x: x[x > 0], TypeError, r"distvec\.where"),
    "push": (lambda ps, x: x.push([0], np.ones(3)), ValueError, r"allowed are \(1, 4\), \(4,\)"),
    "pull": (lambda ps, x: x.pull([3]), IndexError, "index 3 is out of bounds"),
    "axis": (lambda ps, x: x.sum(axis=2), np.exceptions.AxisError, "axis 2"),
    "out": (
        lambda ps, x: np.exp(x, out=ps.ones((3, 4))),
        TypeError,
        "out= must be split by columns",
    ),
    "a running sum": (lambda ps, x: np.cumulative_sum(x), ValueError, "``axis`` argument"),
    "a vector": (lambda ps, x: ps.space(3, split="columns").zeros(3), ValueError, r"\(3, k\)"),
    "rows": (
        lambda ps, x: ps.space(2).zeros((3, 4)),
        ValueError,
        "2 rows must have that many rows",
    ),
    "split": (lambda ps, x: ps.space(2, split="column"), ValueError, "'rows' and 'columns'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_to_type(ps: dv.Session, name: str) -> None:
    call, error, said = REFUSED[name]
    table = ps.space(3, split="columns").ones((3, 4))
    with pytest.raises(error, match=said):
        call(ps, table)


def test_running_results_of_all_elements_in_a_row(ps: dv.Session) -> None:
    host = np.arange(8000).reshape(2, 4000) % 13
    table = ps.array(host.T).T
    np.testing.assert_array_equal(np.cumsum(table).numpy(), np.cumsum(host))
    np.testing.assert_array_equal(table.cumsum().numpy(), host.cumsum())


def test_functions_of_distvec_do_as_numpys_and_move_nothing(
    sessions: dict[int, dv.Session],
) -> None:
    ps, host = sessions[3], np.random.default_rng(0).normal(size=(3, 5000))
    table = ps.space(3, split="columns").array(host).persist()
    ps.counters.reset()
    np.testing.assert_allclose(dv.sum(table, axis=1).numpy(), host.sum(axis=1))
    np.testing.assert_allclose(dv.mean(table, axis=0).numpy(), host.mean(axis=0))
    assert dv.argmax(table).item() == host.argmax()
    np.testing.assert_allclose(
        dv.matmul(table, host.T @ np.ones((3, 2))).numpy(), host @ host.T @ np.ones((3, 2))
    )
    assert ps.counters.peer_bytes == 0


def test_arrays_of_another_shape(ps: dv.Session) -> None:
    table = ps.space(3, split="columns").ones((3, 4))
    assert np.zeros_like(table, shape=(5, 2)).shape == (5, 2)
    with pytest.raises(ValueError, match="same number of dimensions"):
        np.concatenate([table, ps.arange(4)])
