"""Row programs on tiles of rows: the bits of NumPy's functions on whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.kernels.keyed import row_tiering as hot_rows
from ps_backend.kernels.keyed.index import KeyIndex
from ps_backend.kernels.keyed.row_tiering import HotRows
from ps_backend.kernels.keyed.row_tiles import RowTiles, has_tiles
from ps_backend.kernels.keyed.rows import RowStore
from ps_backend.kernels.tiering import HOT_RUNS, HOT_SECONDS
from ps_backend.program import ops
from ps_backend.program.initializers import Constant
from ps_backend.program.row_program import RowProgram, Scatter
from ps_backend.program.sweep import Step, Sweep
from ps_backend.program.types import ValueType

OPS = {"add": 2, "multiply": 2, "subtract": 2, "sqrt": 1, "exp": 1, "maximum": 2, "sign": 1}
TABLE, VECTOR, GIVEN, NUMBER, KEYS, SCALAR = range(6)
"""The values of a program before its steps; then come columns of those in the middle."""


def kinds(width: int, dtype: str) -> tuple[ValueType, ...]:
    wide, narrow = ValueType(dtype, (width,)), ValueType(dtype)
    return wide, narrow, wide, narrow, ValueType("int64")


@st.composite
def programs(draw: Any) -> RowProgram:
    """A table and a vector are read and written; rows, numbers and a column of them come back."""
    width, dtype = draw(st.sampled_from([1, 3, 16, 700])), draw(st.sampled_from(["f4", "f8"]))
    dtype = np.dtype(dtype).name
    column, wide = ValueType(dtype, (1,)), ValueType(dtype, (width,))
    inputs = kinds(width, dtype)
    steps = [Step("as_column", (k,), column) for k in (VECTOR, NUMBER)]
    steps.append(Step("as_column", (KEYS,), ValueType("int64", (1,))))
    steps.append(Step("cast", (8,), ValueType("float64", (1,))))
    steps.append(Step("cast", (9,), column))
    values = {"narrow": [6, 7, 10], "wide": [TABLE, GIVEN]}
    for _ in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from(sorted(OPS)))
        kind = draw(st.sampled_from(["narrow", "wide"]))
        args = [draw(st.sampled_from(values[kind]))]
        if OPS[op] == 2:
            args.append(draw(st.sampled_from([SCALAR, *values["narrow"], *values[kind]])))
        steps.append(Step(op, tuple(args), column if kind == "narrow" else wide))
        values[kind].append(len(steps) + 5)
    steps.append(Step("multiply", (values["wide"][-1], values["narrow"][-1]), wide))
    steps.append(Step("add", (values["narrow"][-1], SCALAR), column))
    new_row, new_column = len(steps) + 4, len(steps) + 5
    steps.append(Step("as_vector", (new_column,), ValueType(dtype)))
    outputs = (new_row, len(steps) + 5, values["wide"][-1], new_column)
    returns = draw(st.sampled_from([(), (3,), (1, 0)]))
    if values["wide"][-1] not in (TABLE, GIVEN):
        returns = draw(st.sampled_from([returns, (2, 3)]))
    scatters = draw(st.sampled_from([(Scatter(0, 0), Scatter(1, 1)), (Scatter(2, 0),)]))
    sweep = Sweep(inputs, (ValueType(dtype),), tuple(steps), outputs, ())
    return RowProgram(sweep, (0, 1), scatters, returns, with_keys=True)


def by_numpy(sweep: Sweep, values: list[Any]) -> list[Any]:
    """All values of a sweep."""
    shapes = {"as_column": lambda x: x[:, None], "as_vector": lambda x: x[:, 0]}
    for step in sweep.steps:
        args = [values[arg] for arg in step.args]
        if step.op == "cast":
            values.append(args[0].astype(step.type.dtype))
        else:
            values.append((shapes.get(step.op) or ops.TABLE[step.op].numpy)(*args))
    return values


@settings(max_examples=40, deadline=None)
@given(program=programs(), count=st.sampled_from([1, 5, 300, 1100]))
def test_they_have_the_bits_of_numpy(program: RowProgram, count: int) -> None:
    assert has_tiles(program)
    sweep, rng = program.sweep, np.random.default_rng(count)
    dtype, width = sweep.inputs[TABLE].dtype, sweep.inputs[TABLE].row[0]
    index = KeyIndex()
    stores = [RowStore(dtype, row, Constant(0)) for row in ((width,), ())]
    keys = rng.choice(10_000, count, replace=False)
    locations, _ = index.insert(keys)
    rows = [rng.standard_normal((count, *store.row)).astype(dtype) for store in stores]
    for store, some in zip(stores, rows, strict=True):
        store.grow(index, np.zeros_like(index.counts))
        store.scatter(locations, some, "replace")
    along = [rng.standard_normal((count, width)).astype(dtype), rng.random(count).astype(dtype)]
    out = [np.empty((count, *type.row), type.dtype) for type in program.returned]
    scalar = np.dtype(dtype).type(0.75)
    with np.errstate(all="ignore"):
        expected = by_numpy(sweep, [*rows, *along, keys, scalar])
        RowTiles(program).run(stores, locations, [*along, keys], [0.75], out)
    for output, found in zip(program.returns, out, strict=True):
        assert_same(found, expected[sweep.outputs[output]])
    for scatter in program.scatters:
        rows[scatter.array] = expected[sweep.outputs[scatter.output]]
    for store, some in zip(stores, rows, strict=True):
        there = np.empty_like(some)
        store.gather(locations, keys, there)
        assert_same(there, some)


def assert_same(found: Any, expected: Any) -> None:
    """Bits, but for those of NaN."""
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    known = ~np.isnan(found)
    assert found[known].tobytes() == np.ascontiguousarray(expected)[known].tobytes()


FLOAT = ValueType("float64", (3,))


@pytest.mark.parametrize(
    ("step", "op"),
    [
        (Step("add", (0, 0), FLOAT), "add"),  # joined to rows by the store
        (Step("row_sort", (0,), FLOAT, (0, 0)), "replace"),
        (Step("iota", (), ValueType("int64")), "replace"),
    ],
)
def test_what_runs_otherwise(step: Step, op: str) -> None:
    program = RowProgram(Sweep((FLOAT,), (), (step,), (1,), ()), (0,), (Scatter(0, 0, op),))
    assert not has_tiles(program)


def test_only_what_is_hot_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; by a thread of its own."""
    asked: list[Any] = []
    monkeypatch.setattr(hot_rows, "in_background", asked.append)
    step = Step("add", (0, 0), FLOAT)
    hot = HotRows(RowProgram(Sweep((FLOAT,), (), (step,), (1,), ()), (0,), (Scatter(0, 0),)))
    hot.ran(HOT_SECONDS)
    assert not asked and hot.tiles is None
    for _ in range(HOT_RUNS):
        hot.ran(HOT_SECONDS)
    assert len(asked) == 1
    asked[0]()
    assert hot.tiles is not None
