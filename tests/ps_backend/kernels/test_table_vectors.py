"""Sweeps that read tables through vectors, part by part, beside a kernel of whole rows."""

from __future__ import annotations

import sys

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from ps_backend import kernels
from ps_backend.kernels.kernel import thread_count, together
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.kernels.table_vectors import TableVectorKernel, through_vectors
from ps_backend.program.sweep import Combination, Link, Reduction, Step, Sweep
from ps_backend.program.types import ValueType

F8, I8 = ValueType("float64"), ValueType("int64")
TABLE, NUMBERS = ValueType("float64", (4,)), ValueType("int64", (3,))
INPUTS, SCALARS = (F8, TABLE, NUMBERS), (F8, TABLE)
STEPS = (
    Step("column", (1,), F8, (2,)),
    Step("column", (1,), F8, (0,)),
    Combination((Link("start", 5, 3), Link("add", 0)), F8),
    Step("column", (2,), I8, (1,)),
    Step("matmul", (1, 4), F8),
    Step("multiply", (9, 7), F8),
    Step("column", (1,), F8, (2,)),
    Step("add", (10, 11), F8),
    Step("row_max", (2,), I8),
)
OF_VECTORS = (Reduction("dot", (7, 6)), Reduction("argmax", (12,)), Reduction("min", (13,)))
OF_TABLES = (
    Reduction("gram", (1, 0)),
    Reduction("gram", (1, 10)),
    Reduction("gram", (1, 9)),
    Reduction("gram", (1, 7)),
    Reduction("gram", (1, 1)),
    Reduction("sum", (2,), 0),
)
COUNTS = (Reduction("weighted_bincount", (8, 0), None, 9), Reduction("bincount", (8,), None, 9))
MODULE = "ps_backend.kernels.table_vectors"


@pytest.fixture
def small_parts(monkeypatch):
    """Several parts, tiles, threads and pauses for some hundred slots."""
    for name, value in {
        "LEAST_ELEMENTS": 1,
        "_CHUNK": 230,
        "_LEAST_ROWS": 32,
        "_SHARED": 700,
        "_TILE": 7,
        "_PARTS_AT_ONCE": 3,
    }.items():
        monkeypatch.setattr(sys.modules[MODULE], name, value)
    monkeypatch.setattr(kernels, "LEAST_ELEMENTS", 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")


@pytest.mark.parametrize("outputs", [(), (7, 12), (12, 10, 7, 7)])
@pytest.mark.parametrize("counts", [(), COUNTS])
def test_parts_are_the_same_as_whole_rows(small_parts, outputs, counts):
    reductions = (OF_TABLES[0], *OF_VECTORS, *OF_TABLES[1:], *counts)
    sweep = Sweep(INPUTS, SCALARS, STEPS, outputs, reductions)
    kernel, whole = kernels.compile_sweep(sweep, 300), NumpyKernel(sweep)
    assert isinstance(kernel, TableVectorKernel)
    weights = np.arange(4.0)

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from([0, 64]), st.integers(0, 330), st.booleans())
    def check(offset, length, is_over):
        rng = np.random.default_rng(length)
        x, table = rng.standard_normal(length), rng.standard_normal((length, 4))
        inputs = [x, table, rng.integers(0, 9, (length, 3))]
        expected = [np.empty(length) for _ in outputs]
        partials = whole(inputs, (0.5, weights), expected, offset, length, 32)
        written = [x if is_over and k == 0 else np.empty(length) for k in range(len(outputs))]
        found = kernel(inputs, (0.5, weights), written, offset, length, 32)
        assert [one.tobytes() for one in written] == [one.tobytes() for one in expected]
        assert [one.tobytes() for one in found] == [one.tobytes() for one in partials]
        assert [one.shape for one in found] == [one.shape for one in partials]

    check()


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("reductions", [(), (Reduction("bincount", (3,), None, 9),)])
def test_pauses_come_between_parts(small_parts, monkeypatch, reductions, threads):
    """An exception of a pause ends the run."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    steps = (Step("column", (0,), F8, (0,)), Step("column", (1,), I8, (0,)))
    sweep = Sweep((TABLE, NUMBERS), (), steps, (2,), reductions)
    kernel = kernels.compile_sweep(sweep, 300)
    inputs = [np.ones((300, 4)), np.zeros((300, 3), np.int64)]
    out = np.zeros(300)

    def pause():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        kernel(inputs, [], [out], 0, 300, 32, pause)
    assert np.count_nonzero(out) < 300


def test_each_vector_is_made_once():
    """And all columns of a table have one sweep, so one kernel."""
    sweep = Sweep(INPUTS, SCALARS, STEPS, (7, 12), (*OF_VECTORS, *OF_TABLES))
    parts = through_vectors(sweep)
    assert parts.sources == (0, STEPS[0], STEPS[1], STEPS[3], STEPS[4], STEPS[8])
    assert parts.vectors.is_flat and parts.vectors.inputs == (F8, F8, F8, I8, F8, I8)
    assert parts.extra == (10,) and parts.scalars == (0,)
    dots = [
        Sweep((F8, TABLE), (), (Step("column", (1,), F8, (j,)),), (), (Reduction("dot", (0, 2)),))
        for j in range(4)
    ]
    assert len({through_vectors(dot).vectors for dot in dots}) == 1


def test_other_sweeps_read_whole_rows():
    """Those that compute on rows, store or sum up all of a table, or look at no vector of one."""
    column, scaled = Step("column", (1,), F8, (2,)), Step("multiply", (1, 1), TABLE)
    row = Step("as_column", (2,), ValueType("float64", (1,)))
    of_rows = Step("matmul", (1, 2), ValueType("float64", (5,)))
    constant = Reduction("gram", (1, 2))
    others = (
        Sweep((F8, TABLE), (F8,), (Step("column", (1,), F8, (2,)),), (3,), (constant,)),
        Sweep((F8, TABLE), (), (column,), (), (Reduction("sum", (1,)),)),
        Sweep((F8, TABLE), (), (column,), (1, 2), ()),
        Sweep((F8, TABLE), (), (scaled, Step("column", (2,), F8, (2,))), (3,), ()),
        Sweep((F8, TABLE), (), (scaled,), (), (Reduction("gram", (2, 0)),)),
        Sweep((F8, TABLE), (), (column, row), (3,), ()),
        Sweep((F8, TABLE), (ValueType("float64", (4, 5)),), (of_rows,), (3,), ()),
        Sweep((TABLE,), (), (), (), (Reduction("gram", (0, 0)),)),
        Sweep((F8,), (), (Step("square", (0,), F8),), (1,), ()),
    )
    assert not any(map(through_vectors, others))


def test_short_tables_are_read_by_rows():
    sweep = Sweep((F8, TABLE), (), (Step("column", (1,), F8, (2,)),), (2,), ())
    assert not isinstance(kernels.compile_sweep(sweep, 1000), TableVectorKernel)
    assert isinstance(kernels.compile_sweep(sweep, 100_000), TableVectorKernel)
    assert kernels.explained(sweep, 100_000).startswith("vectors of the tables, part by part; ")
    assert "whole rows" in kernels.explained(sweep, 1000)


def test_memory_is_counted():
    """The vectors of a part, of each thread, and the memory of the kernel."""
    sweep = Sweep(
        (F8, TABLE), (F8,), (Step("column", (1,), F8, (2,)),), (), (Reduction("dot", (0, 3)),)
    )
    kernel = kernels.compile_sweep(sweep, 1 << 24)
    assert isinstance(kernel, TableVectorKernel)
    short, long = (kernel.working_bytes(n, 1 << 14) for n in (1 << 12, 1 << 24))
    assert 8 << 14 <= short < 8 << 18 <= thread_count() * (8 << 18) <= long < 8 << 22


def test_threads_at_work_have_no_threads_of_their_own(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert together(lambda _: thread_count(), range(2)) == [1, 1]
    assert thread_count() == 2
