"""Sweeps with rows against NumPy: values, dtypes, and the same bits on any number of servers."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ps_backend.in_process import connect_in_process
from ps_backend.program.reducers import PUBLIC, REDUCERS
from ps_backend.program.types import widest
from tests.ps_backend.rows import Rows

SERVERS = (1, 2, 3, 7)
LENGTHS = (0, 1, 5, 1024, 1025, 5000)
SHAPES = [*((n, 3) for n in LENGTHS), (1025, 1), (5000, 64), (1100, 3000)]
DTYPES = ("float64", "float32", "int64", "int32", "bool")

some = st.sampled_from(LENGTHS[1:])
quick = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def clients():
    with ExitStack() as stack:
        yield [stack.enter_context(connect_in_process(n, memory=1 << 30)) for n in SERVERS]


def table(n: int, *row: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Numbers; among floats NaN and infinities, if there are enough."""
    rng = np.random.default_rng(seed)
    made = (rng.standard_normal((n, *row)) * 5).astype(dtype)
    if dtype.startswith("float") and made.size > 4000:
        made.reshape(-1)[rng.integers(0, made.size, 4)] = [np.nan, np.inf, -np.inf, np.nan]
    return made


def run(clients, rows: Rows, outputs=(), reductions=()):
    """On all numbers of servers, which must not change a bit."""
    results = [rows.run(client, outputs, reductions) for client in clients]
    for stored, found in results[1:]:
        for got, first in zip((*stored, *found), (*results[0][0], *results[0][1]), strict=True):
            assert got.tobytes() == first.tobytes() and got.shape == first.shape
    return results[0]


def close(got: np.ndarray, expected: np.ndarray, exact: bool = False) -> None:
    expected = np.asarray(expected)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    if exact or expected.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
    else:
        rtol, atol = (2e-5, 1e-3) if expected.dtype == np.float32 else (1e-11, 1e-11)
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


@pytest.fixture(autouse=True)
def special_values():
    with np.errstate(all="ignore"):
        yield


# --- elementwise, with what the client holds ------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_rows_of_the_client_are_broadcast_over_those_of_a_table(clients, n, k):
    x, mean, scale = table(n, k), table(1, k, seed=1)[0], table(1, k, seed=2)[0]
    rows = Rows([x], [mean, scale])
    moved = rows.step("subtract", 0, 1)
    divided = rows.step("divide", moved, 2)
    (got, both), _ = run(clients, rows, [divided, moved])
    assert got.tobytes() == ((x - mean) / scale).tobytes()
    assert both.tobytes() == (x - mean).tobytes()


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_a_vector_is_made_a_column_and_a_column_a_vector(clients, n, k):
    x, y = table(n, k), table(n, seed=3)
    rows = Rows([x, y], [np.float64(0.5)])
    column = rows.step("as_column", 1, row=(1,))
    product = rows.step("multiply", 0, column, row=(k,))
    half = rows.step("multiply", column, 2)
    back = rows.step("as_vector", half, row=())
    wide = rows.step("broadcast", half, row=(k,))
    (a, b, c), _ = run(clients, rows, [product, back, wide])
    assert a.tobytes() == (x * y[:, None]).tobytes()
    assert b.tobytes() == (y * 0.5).tobytes()
    assert c.tobytes() == np.broadcast_to((y * 0.5)[:, None], (n, k)).tobytes()


def test_constants_are_every_row(clients):
    rows = Rows([], [np.array([1.0, 2.0, 3.0]), np.float64(0.5)], length=5000)
    row = rows.step("multiply", 0, 1)
    filled = rows.step("fill", row)
    index = rows.step("iota", row=(3,), dtype="int64")
    slot = rows.step("iota", dtype="int64")
    reductions = [("sum", (row,), 0), ("max", (row,), None), ("collect", (filled,), None)]
    (a, b, c), (sums, most, all_rows) = run(clients, rows, [filled, index, slot], reductions)
    np.testing.assert_array_equal(a, np.broadcast_to([0.5, 1.0, 1.5], (5000, 3)))
    np.testing.assert_array_equal(b, np.arange(15_000).reshape(5000, 3))
    np.testing.assert_array_equal(c, np.arange(5000))
    np.testing.assert_array_equal(sums, [2500.0, 5000.0, 7500.0])
    assert most.max() == 1.5 and all_rows.tobytes() == a.tobytes()


def test_random_rows_are_those_of_the_flat_kernels(clients):
    tables = []
    for with_row in (False, True):
        rows = Rows([], [np.int64(7), np.zeros(3)], length=3000)
        index = rows.step("iota", row=(3,), dtype="int64")
        value = rows.step("uniform", 0, index, row=(3,), dtype="float64")
        if with_row:
            value = rows.step("add", value, 1)
        tables.append(run(clients, rows, [value])[0][0])
    assert tables[0].tobytes() == tables[1].tobytes()


@pytest.mark.parametrize("donated", [False, True])
def test_an_output_takes_over_the_memory_of_an_input(clients, donated):
    from ps_backend.program.spaces import DenseSpace
    from ps_backend.program.sweep import Program, SweepCall
    from ps_backend.program.types import array_type
    from tests.ps_backend.helpers import put

    x, mean = table(3000, 4), np.arange(4.0)
    rows = Rows([x], [mean])
    moved = rows.step("subtract", 0, 1)
    backwards = rows.step("columns", 0, params=(3, -1, -1))
    twice = rows.step("add", moved, 0)
    sweep = rows.sweep([moved, backwards, twice])
    space, type = DenseSpace(3000), array_type(DenseSpace(3000), float, (4,))
    for client in clients:
        given, other = put(client, space, x), put(client, space, x)
        made = tuple(client.new_id() for _ in range(3))
        donors = (other, given, client.new_id()) if donated else ()
        if donated:
            third = put(client, space, x)
            sweep = Rows([x, x, x], [mean])
            moved = sweep.step("subtract", 0, 3)
            backwards = sweep.step("columns", 0, params=(3, -1, -1))
            twice = sweep.step("add", moved, 0)
            call = SweepCall(
                sweep.sweep([moved, backwards, twice]),
                space,
                (given, other, third),
                (mean,),
                made,
                (other, given, third),
            )
        else:
            call = SweepCall(sweep, space, (given,), (mean,), made, donors)
        client.run(Program((call,)))
        for number, expected in zip(made, (x - mean, x[:, ::-1], x - mean + x), strict=True):
            assert client.read(number, type).tobytes() == np.ascontiguousarray(expected).tobytes()


# --- along the rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "k"), [(0, 3), (1, 1), (1025, 3), (5000, 64), (40, 3000)])
def test_reductions_along_the_rows(clients, n, k, dtype):
    x = table(n, k, dtype=dtype)
    rows = Rows([x])
    values = []
    for name in PUBLIC:
        result = REDUCERS[name].result(x.dtype).name
        values.append(rows.step(f"row_{name}", 0, row=(), dtype=result))
    got, _ = run(clients, rows, values)
    for name, one in zip(PUBLIC, got, strict=True):
        expected = getattr(np, name)(x, axis=1)
        if dtype == "float32" and name in ("sum", "prod"):
            expected = getattr(np, name)(x.astype(float), axis=1).astype(dtype)
        if dtype == "int32" and name in ("sum", "prod"):
            expected = getattr(np, name)(x.astype(int), axis=1)
        close(one, expected)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_softmax_is_one_sweep(clients, n, k):
    x = np.clip(np.nan_to_num(table(n, k)), -50, 50)
    rows = Rows([x])
    most = rows.step("as_column", rows.step("row_max", 0, row=()), row=(1,))
    power = rows.step("exp", rows.step("subtract", 0, most))
    total = rows.step("as_column", rows.step("row_sum", power, row=()), row=(1,))
    (got,), _ = run(clients, rows, [rows.step("divide", power, total)])
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    close(got, powers / powers.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize(("n", "k"), [(0, 3), (5, 1), (1025, 3), (5000, 64), (1100, 3000)])
def test_products(clients, n, k, dtype):
    x, y = np.nan_to_num(table(n, k), posinf=1, neginf=2).astype(dtype), table(n, k, seed=1)
    y = np.nan_to_num(y, posinf=1, neginf=2).astype(dtype)
    v, matrix = table(k, seed=2).astype(dtype), table(k, 4, seed=3).astype(dtype)
    rows = Rows([x, y], [v, matrix])
    outputs = [
        rows.step("matmul", 0, 2, row=()),
        rows.step("matmul", 0, 3, row=(4,)),
        rows.step("row_dot", 0, 1, row=()),
    ]
    got, _ = run(clients, rows, outputs)
    expected = (x @ v, x @ matrix, np.vecdot(x.astype(float), y.astype(float)).astype(dtype))
    scale = np.abs(x).astype(float).sum(initial=1, axis=1, where=True).max(initial=1) * 20
    for one, wanted in zip(got, expected, strict=True):
        assert one.dtype == wanted.dtype and one.shape == wanted.shape
        eps = np.finfo(dtype).eps if dtype.startswith("float") else 0
        np.testing.assert_allclose(one, wanted, rtol=0, atol=scale * eps * 100)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "bool"])
@pytest.mark.parametrize(("n", "k"), [(0, 3), (1, 1), (1025, 3), (3000, 64)])
def test_what_is_done_within_each_row(clients, n, k, dtype):
    x = np.round(table(n, k, dtype=dtype).astype(float)).astype(dtype)
    running = dtype if dtype.startswith("float") else "int64"
    rows = Rows([x])
    outputs = [
        rows.step("row_sort", 0, params=(0, 0)),
        rows.step("row_sort", 0, params=(1, 1)),
        rows.step("row_argsort", 0, params=(0, 1), dtype="int64"),
        rows.step("row_argsort", 0, params=(1, 1), dtype="int64"),
        rows.step("row_accumulate_add", 0, dtype=running),
        rows.step("row_accumulate_multiply", 0, dtype=running),
    ]
    got, _ = run(clients, rows, outputs)
    backwards = np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
    expected = [
        np.sort(x, axis=1),
        np.sort(x, axis=1)[:, ::-1],
        np.argsort(x, axis=1, kind="stable"),
        k - 1 - backwards,
        np.cumsum(x, axis=1, dtype=running),
        np.cumprod(x, axis=1, dtype=running),
    ]
    for one, wanted in zip(got, expected, strict=True):
        close(one, wanted)


@pytest.mark.parametrize("n", LENGTHS)
def test_columns(clients, n):
    x, y = table(n, 7), table(n, 2, seed=1)
    chosen = np.array([6, 0, 0, 3])
    rows = Rows([x, y], [chosen])
    outputs = [
        rows.step("column", 0, row=(), params=(3,)),
        rows.step("columns", 0, row=(3,), params=(1, 7, 2)),
        rows.step("columns", 0, row=(3,), params=(4, -1, -2)),
        rows.step("join_columns", 0, 1, row=(9,)),
        rows.step("take_columns", 0, 2, row=(4,)),
    ]
    got, _ = run(clients, rows, outputs)
    expected = (x[:, 3], x[:, 1:7:2], x[:, 4::-2], np.hstack([x, y]), x[:, chosen])
    for one, wanted in zip(got, expected, strict=True):
        close(one, wanted, exact=True)


# --- what the client holds by slot ----------------------------------------------------------------


@pytest.mark.parametrize("row", [(), (3,)])
@pytest.mark.parametrize("n", LENGTHS)
def test_a_small_array_of_the_client_is_a_value_of_the_sweep(clients, n, row):
    x, held = table(n, *row), table(n, *row, seed=1)
    rows = Rows([x], [held])
    value = rows.step("slots", 1, row=row)
    (got,), _ = run(clients, rows, [rows.step("add", 0, value)])
    close(got, x + held, exact=True)


@quick
@given(
    n=some,
    row=st.sampled_from([(), (3,)]),
    one=st.booleans(),
    data=st.data(),
)
def test_rows_are_placed_at_slots_and_the_last_one_stays(clients, n, row, one, data):
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=12)), np.int64)
    x, given = table(n, *row), table(len(places), *row, seed=5)
    given = np.float64(4.5) if one else given
    expected = x.copy()
    for k, place in enumerate(places):
        expected[place] = given if one else given[k]
    rows = Rows([x], [places, given])
    (got,), _ = run(clients, rows, [rows.step("place", 0, 1, 2)])
    close(got, expected, exact=True)


@quick
@given(n=some, row=st.sampled_from([(), (3,)]), data=st.data())
def test_rows_are_taken_in_the_order_of_the_list(clients, n, row, data):
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=12)), np.int64)
    x = table(n, *row)
    rows = Rows([x], [places])
    twice = rows.step("add", 0, 0)
    reductions = [("take", (twice, 1), None), ("take", (0, 1), None)]
    _, (got, plain) = run(clients, rows, (), reductions)
    close(got, (x + x)[places], exact=True)
    close(plain, x[places], exact=True)
    stored, (beside,) = run(clients, rows, [twice], reductions[:1])
    close(stored[0], x + x, exact=True)
    close(beside, (x + x)[places], exact=True)


@pytest.mark.parametrize("row", [(), (3,)])
@pytest.mark.parametrize("n", LENGTHS)
def test_all_rows_are_collected(clients, n, row):
    x = table(n, *row)
    rows = Rows([x])
    _, (got,) = run(clients, rows, (), [("collect", (rows.step("add", 0, 0),), None)])
    close(got, x + x, exact=True)


# --- along the slots ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 3), (5000, 3), (5000, 64), (1100, 400)])
def test_reductions_along_axis_0(clients, n, k, dtype):
    x = table(n, k, dtype=dtype)
    rows = Rows([x])
    _, found = run(clients, rows, (), [(name, (0,), 0) for name in PUBLIC])
    arrays = iter(found)
    wide = np.float64 if dtype.startswith("float") else np.int64
    for name in PUBLIC:
        got = next(arrays)
        expected = getattr(np, name)(x.astype(wide), axis=0)
        if not REDUCERS[name].locates:
            assert got.shape == (k,)
            np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-9, err_msg=name)
            continue
        where = next(arrays)
        close(where, expected)
        np.testing.assert_array_equal(got, x[expected, np.arange(k)])


def test_reductions_along_axis_0_of_no_slots(clients):
    rows = Rows([table(0, 3)])
    _, (sums, any_of, all_of) = run(
        clients, rows, (), [("sum", (0,), 0), ("any", (0,), 0), ("all", (0,), 0)]
    )
    assert sums.tolist() == [0, 0, 0] and any_of.tolist() == [0] * 3 and all_of.tolist() == [1] * 3
    with pytest.raises(ValueError, match="reduction operation minimum which has no identity"):
        rows.run(clients[1], (), [("min", (0,), 0)])


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_reductions_of_all_elements_beside_those_of_rows(clients, n, k):
    x = np.nan_to_num(table(n, k), posinf=3, neginf=-7)
    rows = Rows([x])
    total = rows.step("row_sum", 0, row=())
    reductions = [
        ("sum", (0,), None),
        ("argmin", (0,), None),
        ("dot", (0, 0), None),
        ("sum", (total,), None),
    ]
    (stored,), (sums, least, where, squares, totals) = run(clients, rows, [total], reductions)
    close(stored, x.sum(axis=1))
    assert len(sums) == -(-n // 1024)
    np.testing.assert_allclose([sums.sum(), totals.sum()], x.sum(), atol=1e-7)
    np.testing.assert_allclose(squares.sum(), (x * x).sum(), rtol=1e-11)
    if n:
        assert where[least.argmin()] == x.argmin() and least.min() == x.min()


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "bool"])
@pytest.mark.parametrize(("n", "k"), [(0, 3), (1, 1), (1025, 3), (5000, 64), (1100, 400)])
def test_gram_matrices(clients, n, k, dtype):
    x = np.nan_to_num(table(n, k), posinf=1, neginf=2).astype(dtype)
    u = np.nan_to_num(table(n, 5, seed=1), posinf=1, neginf=2).astype(dtype)
    y = table(n, seed=2)
    rows = Rows([x, u, y])
    pairs = [(0, 0), (0, 1), (0, 2), (2, 1)]
    _, found = run(clients, rows, (), [("gram", pair, None) for pair in pairs])
    a, b = x.astype(float), u.astype(float)
    for got, expected in zip(found, (a.T @ a, a.T @ b, a.T @ y, y @ b), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-8, equal_nan=True)
    assert [got.dtype for got in found] == [widest(dtype)] * 2 + [np.float64] * 2
    assert (found[0] == found[0].T).all()
