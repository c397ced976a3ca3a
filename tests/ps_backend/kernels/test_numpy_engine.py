"""The NumPy engine on its own: how it cuts its work changes no bit, and what it need not do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from ps_backend.kernels import numpy_engine
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.program import partials, row_ops
from ps_backend.program.partials import Run
from ps_backend.program.row_ops import RowOp
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Step, Sweep, SweepCall
from ps_backend.program.types import ValueType
from ps_backend.serial_blas import serial_blas
from tests.ps_backend.rows import Rows

BLOCK = 1024
N = 9 * BLOCK + 100


def many_things(width: int) -> tuple[Rows, list[int], list[Any]]:
    """A sweep that does something of every kind."""
    rng = np.random.default_rng(width)
    x, y = rng.standard_normal((N, width)), rng.standard_normal(N)
    places = rng.integers(0, N, 50)
    scalars = [rng.standard_normal(width), rng.standard_normal((width, 2)), places]
    rows = Rows([x, y], scalars)
    moved = rows.step("exp", rows.step("subtract", 0, 2))
    small = rows.step("matmul", moved, 3, row=(2,))
    least = rows.step("row_min", moved, row=())
    column = rows.step("as_column", rows.step("add", least, 1), row=(1,))
    product = rows.step("multiply", moved, column)
    total = rows.step("row_sum", product, row=())
    reductions = [
        ("sum", (product,), 0),
        ("argmax", (moved,), 0),
        ("gram", (moved, small), None),
        ("dot", (product, moved), None),
        ("argmin", (product,), None),
        ("take", (small, 4), None),
        ("take", (0, 4), None),
        ("collect", (total,), None),
    ]
    return rows, [product, total, small], reductions


def run(rows: Rows, outputs: Any, reductions: Any, low: int = 0, high: int = N) -> Run:
    kernel = NumpyKernel(rows.sweep(outputs, reductions))
    stored = [np.empty((high - low, *rows.types[v].row), rows.types[v].dtype) for v in outputs]
    parts = [array[low:high] for array in rows.inputs]
    found = kernel(parts, rows.scalars, stored, low, high - low, BLOCK)
    return Run(low, high - low, [*found, *stored])


@pytest.mark.parametrize("width", [3, 300])
def test_neither_threads_nor_slices_nor_cuts_change_a_bit(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, outputs, reductions = many_things(width)
    call = SweepCall(rows.sweep(outputs, reductions), DenseSpace(N), (), tuple(rows.scalars), ())
    whole = run(rows, outputs, reductions)
    count = len(whole.arrays) - len(outputs)
    for threads, slice_work in (("1", 1), ("2", 1), ("3", 1 << 24)):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        monkeypatch.setattr(numpy_engine, "_SLICE_WORK", slice_work)
        again = run(rows, outputs, reductions)
        for got, expected in zip(again.arrays, whole.arrays, strict=True):
            assert got.tobytes() == expected.tobytes()
    for cuts in ((1, 2, 5), (3,), (8, 9)):
        ends = [0, *(cut * BLOCK for cut in cuts), N]
        parts = [run(rows, outputs, reductions, *pair) for pair in itertools.pairwise(ends)]
        for k in range(len(outputs)):
            stored = np.concatenate([part.arrays[count + k] for part in parts])
            assert stored.tobytes() == whole.arrays[count + k].tobytes()
        runs = [Run(part.first, part.length, part.arrays[:count]) for part in parts]
        together = partials.finished(call, partials.concatenate(call, runs))
        alone = partials.finished(call, whole.arrays[:count])
        for got, expected in zip(together, alone, strict=True):
            assert got.tobytes() == expected.tobytes()


def test_pauses_come_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_engine, "_SLICE_WORK", 1)
    rows = Rows([np.zeros((N, 100))])
    kernel = NumpyKernel(rows.sweep([], [("sum", (rows.step("exp", 0),), 0)]))
    pauses: list[None] = []
    kernel(rows.inputs, (), (), 0, N, BLOCK, lambda: pauses.append(None))
    assert len(pauses) >= 5


def test_blocks_that_nothing_is_taken_of_are_not_computed() -> None:
    """Of so many slots none could be looked at."""
    seen: list[int] = []

    def look(out: Any, place: Any, x: Any) -> Any:
        seen.append(place.first)
        return x

    name = "look_at_rows"
    row_ops.TABLE[name] = RowOp(name, 1, lambda values, _: values[0], look, view=True)
    try:
        length = 1 << 40
        space = DenseSpace(length)
        rows = Rows([], [np.array([length - 1, 5, 5, 1 << 30])], length=length)
        index = rows.step("iota", dtype="int64")
        rows.step(name, index, row=(), dtype="int64")
        kernel = NumpyKernel(rows.sweep([], [("take", (2, 0), None)]))
        (found,) = kernel([], rows.scalars, [], 0, length, space.block_size)
    finally:
        del row_ops.TABLE[name]
    assert found.tolist() == [length - 1, 5, 5, 1 << 30]
    assert len(seen) == 3


def blas_threads() -> list[int]:
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


@threadpool_limits.wrap(limits=2, user_api="blas")
def test_the_users_setting_of_blas_stays_as_it_was() -> None:
    before = blas_threads()
    assert set(before) == {2}
    with serial_blas():
        with serial_blas():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
    rows = Rows([np.ones((N, 3))])
    run(rows, [], [("gram", (0, 0), None)])
    assert blas_threads() == before


OPS = (
    *("add", "subtract", "negative", "backwards"),
    *("row_accumulate_add", "row_sort", "least", "chosen"),
)


def step(rows: Rows, values: list[np.ndarray], op: str, a: int, b: int) -> None:
    """One more step of tables, and what NumPy makes of it."""
    x, y = values[a], values[b]
    match op:
        case "backwards":
            rows.step("columns", a, params=(x.shape[1] - 1, -1, -1), row=x.shape[1:])
            values.append(x[:, ::-1])
        case "least":
            column = rows.step("as_column", rows.step("row_min", a, row=()), row=(1,))
            values.append(x.min(axis=1))
            values.append(values[-1][:, None])
            rows.step("broadcast", column, row=x.shape[1:])
            values.append(np.broadcast_to(values[-1], x.shape))
        case "chosen":
            least, first = (
                rows.step("row_min", a, row=()),
                rows.step("column", a, params=(0,), row=()),
            )
            column = rows.step(
                "as_column", rows.step("equal", least, first, dtype="bool"), row=(1,)
            )
            values.extend([x.min(axis=1), x[:, 0]])
            values.append(values[-2] == values[-1])
            values.append(values[-1][:, None])
            rows.step("where", column, a, b, dtype="float64", row=x.shape[1:])
            values.append(np.where(values[-1], x, y))
        case "row_sort":
            rows.step(op, a, params=(0, 0))
            values.append(np.sort(x, axis=1))
        case "negative" | "row_accumulate_add":
            rows.step(op, a)
            values.append(-x if op == "negative" else np.cumsum(x, axis=1))
        case _:
            rows.step(op, a, b)
            values.append(getattr(np, op)(x, y))


@given(data=st.data(), width=st.sampled_from([2, 5]), length=st.sampled_from([3, 2500]))
@settings(max_examples=60)
def test_any_steps_in_any_memory(data: st.DataObject, width: int, length: int) -> None:
    """Views, values that are written over others, outputs where inputs were."""
    rng = np.random.default_rng(length)
    inputs = [rng.integers(-9, 9, (length, width)).astype(float) for _ in range(3)]
    row = rng.integers(-9, 9, width).astype(float)
    rows, values = Rows(inputs, [row]), [*(one.copy() for one in inputs), row]
    for _ in range(data.draw(st.integers(1, 7))):
        tables = [k for k, one in enumerate(values) if k != 3 and one.shape[1:] == (width,)]
        op, a = data.draw(st.sampled_from(OPS)), data.draw(st.sampled_from(tables))
        step(rows, values, op, a, data.draw(st.sampled_from([*tables, 3])))
    made = [k for k, one in enumerate(values) if k > 3 and one.shape[1:] == (width,)]
    outputs = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
    memory = data.draw(st.permutations([0, 1, 2, None, None, None]))[: len(outputs)]
    given_arrays = [one.copy() for one in inputs]
    stored = [
        np.empty((length, width)) if place is None else given_arrays[place] for place in memory
    ]
    kernel = NumpyKernel(rows.sweep(outputs, [("sum", (made[0],), 0)]))
    (total,) = kernel(given_arrays, [row], stored, 0, length, BLOCK)
    for value, got in zip(outputs, stored, strict=True):
        np.testing.assert_array_equal(got, values[value])
    if length <= BLOCK:
        np.testing.assert_array_equal(total[0], values[made[0]].sum(axis=0))


@pytest.mark.parametrize("source", [0, 1])
def test_a_selection_may_be_written_where_it_is_read(source):
    """It read what it had written, where the output lay in the place of its first operand."""
    table, mask = ValueType("float64", (4,)), ValueType("bool", (4,))
    steps = (Step("greater", (0, 2), mask), Step("where", (3, 0, 1), table))
    kernel = NumpyKernel(Sweep((table, table), (table,), steps, (4,), ()))
    x = np.arange(4000.0).reshape(1000, 4)
    inputs, limits = [x, -x], np.array([200.0, 400, 600, 800])
    expected = np.where(x > limits, x, -x)
    kernel(inputs, [limits], [inputs[source]], 0, 1000, 1024)
    np.testing.assert_array_equal(inputs[source], expected)
