"""Sweeps that assign to slices, part by part, beside a kernel of the whole sweep."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from ps_backend import kernels
from ps_backend.kernels import slices
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.program.sweep import Reduction, Step, Sweep
from ps_backend.program.types import ValueType

F8, I8, BOOL = (ValueType(name) for name in ("float64", "int64", "bool"))
STEPS = [
    Step("iota", (), I8),
    Step("greater_equal", (6, 2), BOOL),
    Step("less_equal", (6, 3), BOOL),
    Step("bitwise_and", (7, 8), BOOL),
    Step("add", (0, 5), F8),
    Step("where", (9, 10, 1), F8),
    Step("greater", (6, 4), BOOL),
    Step("where", (12, 5, 11), F8),
]
TWICE = Sweep((F8, F8), (I8, I8, I8, F8), tuple(STEPS), (13,), ())
"""``u[a:b] = x + s``, then ``u[c:] = s``."""


@pytest.mark.parametrize("target", ["apart", "x", "u"])
def test_parts_are_the_same_as_the_whole(monkeypatch, target):
    monkeypatch.setattr(slices, "_LEAST_LENGTH", 1)
    kernel, whole = kernels.compile_sweep(TWICE, 300), NumpyKernel(TWICE)
    assert isinstance(kernel, slices.SlicedKernel)
    ends = st.integers(-5, 310)

    @settings(max_examples=40, deadline=None)
    @given(ends, ends, ends, st.sampled_from([0, 64]), st.integers(1, 130))
    def check(first, last, after, offset, length):
        rng = np.random.default_rng(0)
        x, u = rng.random(length), rng.random(length)
        expected, scalars = np.empty(length), (first, last, after, 0.5)
        whole([x, u], scalars, [expected], offset, length, 64)
        out = {"apart": np.empty(length), "x": x, "u": u}[target]
        kernel([x, u], scalars, [out], offset, length, 64)
        assert out.tobytes() == expected.tobytes()

    check()


def test_rows_of_tables():
    row, one = ValueType("float64", (5,)), ValueType("bool", (1,))
    steps = (
        Step("iota", (), I8),
        Step("greater_equal", (4, 2), BOOL),
        Step("less_equal", (4, 3), BOOL),
        Step("bitwise_and", (5, 6), BOOL),
        Step("as_column", (7,), one),
        Step("add", (0, 1), row),
        Step("where", (8, 9, 1), row),
    )
    sweep = Sweep((row, row), (I8, I8), steps, (10,), ())
    kernel = kernels.compile_sweep(sweep, 4000)
    assert isinstance(kernel, slices.SlicedKernel)
    x, u = np.random.default_rng(0).random((2, 4000, 5))
    expected = u.copy()
    expected[7:3900] = (x + u)[7:3900]
    kernel([x, u], (7, 3899), [u], 0, 4000, 1024)
    assert u.tobytes() == expected.tobytes()


def test_other_sweeps_are_whole():
    """Those with sums, several results, conditions on values, and other dtypes or functions."""
    assert slices.sliced(TWICE)
    reduced = Sweep(*_but_outputs(TWICE), (13,), (Reduction("sum", (13,)),))
    several = Sweep(*_but_outputs(TWICE), (13, 10), ())
    plain = Sweep(*_but_outputs(TWICE), (10,), ())
    of_values = [*STEPS[:4], Step("greater", (0, 5), BOOL), Step("where", (10, 0, 1), F8)]
    by_value = Sweep(TWICE.inputs, TWICE.scalars, tuple(of_values), (11,), ())
    assert not any(map(slices.sliced, (reduced, several, plain, by_value)))


def _but_outputs(sweep):
    return sweep.inputs, sweep.scalars, sweep.steps
