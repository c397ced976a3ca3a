"""Sweeps that read columns of tables, beside a kernel of whole rows."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from ps_backend import kernels
from ps_backend.kernels import columns
from ps_backend.kernels.columns import ColumnKernel, columns_of
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.program.sweep import Combination, Link, Reduction, Step, Sweep
from ps_backend.program.types import ValueType

F8, TABLE, I8, NUMBERS = (
    ValueType("float64"),
    ValueType("float64", (4,)),
    ValueType("int64"),
    ValueType("int64", (3,)),
)
STEPS = (
    Step("column", (1,), F8, (2,)),
    Step("column", (1,), F8, (0,)),
    Combination((Link("start", 4, 3), Link("add", 0)), F8),
    Step("column", (2,), I8, (1,)),
    Step("column", (1,), F8, (2,)),
    Step("multiply", (8, 6), F8),
)
INPUTS = (F8, TABLE, NUMBERS)
REDUCTIONS = (Reduction("dot", (6, 5)), Reduction("argmax", (9,)), Reduction("min", (7,)))
COUNTS = (Reduction("weighted_bincount", (7, 0), None, 9), Reduction("bincount", (7,), None, 9))


@pytest.mark.parametrize("reductions", [REDUCTIONS, (*REDUCTIONS, *COUNTS)])
def test_columns_are_the_same_as_whole_rows(monkeypatch, reductions):
    monkeypatch.setattr(columns, "_CHUNK", 100)
    monkeypatch.setattr(columns, "_TILE", 7)
    sweep = Sweep(INPUTS, (F8,), STEPS, (6, 9), reductions)
    kernel, whole = kernels.compile_sweep(sweep, 300), NumpyKernel(sweep)
    assert isinstance(kernel, ColumnKernel)

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from([0, 64]), st.integers(0, 330), st.booleans())
    def check(offset, length, is_over):
        rng = np.random.default_rng(length)
        x, table = rng.standard_normal(length), rng.standard_normal((length, 4))
        inputs = [x, table, rng.integers(0, 9, (length, 3))]
        expected = [np.empty(length), np.empty(length)]
        partials = whole(inputs, (0.5,), expected, offset, length, 32)
        outputs = [x if is_over else np.empty(length), np.empty(length)]
        found = kernel(inputs, (0.5,), outputs, offset, length, 32)
        assert [one.tobytes() for one in outputs] == [one.tobytes() for one in expected]
        assert [one.tobytes() for one in found] == [one.tobytes() for one in partials]
        assert [one.shape for one in found] == [one.shape for one in partials]

    check()


def test_each_column_is_read_once():
    """And all columns of a table have one sweep, so one kernel."""
    sweep = Sweep(INPUTS, (F8,), STEPS, (6, 9), REDUCTIONS)
    parts = columns_of(sweep)
    assert parts.sources == ((0, None), (1, 2), (1, 0), (2, 1))
    assert parts.vectors.is_flat and parts.vectors.inputs == (F8, F8, F8, I8)
    dots = [
        Sweep((F8, TABLE), (), (Step("column", (1,), F8, (j,)),), (), (Reduction("dot", (0, 2)),))
        for j in range(4)
    ]
    assert len({columns_of(dot).vectors for dot in dots}) == 1


def test_other_sweeps_read_whole_rows():
    """Those that read a table besides, make rows, multiply by matrices, or read no column."""
    column = Step("column", (1,), F8, (2,))
    also = Sweep((F8, TABLE), (), (column,), (), (Reduction("sum", (1,)),))
    stored = Sweep((F8, TABLE), (), (column,), (1, 2), ())
    scaled = Step("multiply", (1, 1), TABLE)
    computed = Sweep((F8, TABLE), (), (scaled, Step("column", (2,), F8, (2,))), (3,), ())
    rows = Sweep(
        (F8, TABLE), (), (column, Step("as_column", (2,), ValueType("float64", (1,)))), (3,), ()
    )
    none = Sweep((F8,), (), (), (), (Reduction("sum", (0,)),))
    assert not any(map(columns_of, (also, stored, computed, rows, none)))


def test_memory_is_counted():
    """The copies of a part, and what the kernel takes of it."""
    sweep = Sweep(
        (F8, TABLE), (), (Step("column", (1,), F8, (2,)),), (), (Reduction("dot", (0, 2)),)
    )
    kernel = kernels.compile_sweep(sweep, 1 << 24)
    short, long = (kernel.working_bytes(n, 1 << 14) for n in (1 << 12, 1 << 24))
    assert 8 << 12 <= short < 8 << 20 <= long < 8 << 22
