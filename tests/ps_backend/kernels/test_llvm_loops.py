"""Selections, conversions and reductions on tiles: the bits of NumPy's functions on chunks."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from ps_backend.kernels.compiled.mixed_engine import MixedKernel, plan_of
from ps_backend.kernels.compiled.tile_program import TILE
from ps_backend.kernels.lowering import for_loops
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import Reduction, Step, Sweep
from ps_backend.program.types import ValueType

DTYPES = ("float64", "float32", "int64", "int32", "bool", "uint8", "int16", "uint64")
REDUCTIONS = ("sum", "min", "max", "nanmin", "nanmax", "any", "all")
LENGTHS = (0, 1, TILE - 1, TILE + 1, 5 * TILE + 130)
FLAG = ValueType("bool")


@st.composite
def sweeps(draw: Any) -> Sweep:
    """An input of each dtype and two masks; conversions, selections, comparisons; reductions."""
    inputs = tuple(map(ValueType, DTYPES))
    scalars = (ValueType("float64"), ValueType("int64"))
    steps: list[Step] = []
    types = [*inputs, *scalars]

    def value(dtype: str) -> int:
        return draw(st.sampled_from([k for k, one in enumerate(types) if one.dtype == dtype]))

    for _ in range(draw(st.integers(1, 8))):
        dtype = draw(st.sampled_from(DTYPES))
        op = draw(st.sampled_from(["where", "cast", "less", "add", "sigmoid", "iota"]))
        if op == "iota":
            step = Step(op, (), ValueType("int64"))
        elif op == "sigmoid":
            dtype = draw(st.sampled_from(["float64", "float32"]))
            step = Step(op, (value(dtype),), ValueType(dtype))
        elif op == "cast":
            source = draw(st.integers(0, len(types) - 1))
            if types[source].dtype.startswith("float") and not dtype.startswith("float"):
                dtype = "float64"
            step = Step(op, (source,), ValueType(dtype))
        elif op == "where":
            step = Step(op, (value("bool"), value(dtype), value(dtype)), ValueType(dtype))
        elif op == "less" or dtype == "bool":
            step = Step("less", (value(dtype), value(dtype)), FLAG)
        else:
            step = Step("add", (value(dtype), value(dtype)), ValueType(dtype))
        steps.append(step)
        types.append(step.type)
    places = st.integers(len(inputs) + 2, len(types) - 1)
    outputs = draw(st.lists(places, max_size=2, unique=True))
    reduced = draw(
        st.lists(st.tuples(st.sampled_from(REDUCTIONS), st.integers(0, len(types) - 1)), max_size=3)
    )
    kept = [
        Reduction(op, (k,))
        for op, k in reduced
        if types[k].dtype != "bool" or op in ("sum", "any", "all")
    ]
    return Sweep(inputs, scalars, tuple(steps), tuple(outputs), tuple(kept))


def given_arrays(length: int) -> list[np.ndarray]:
    """One of each dtype; the floats with zeros of both signs, infinities and a NaN."""
    rng = np.random.default_rng(length)
    made = rng.standard_normal(length) * 100
    made[rng.random(length) < 0.1] = 0.0
    made[rng.random(length) < 0.1] = -0.0
    made[: length // 50 : 7] = np.inf
    with np.errstate(invalid="ignore"):
        arrays = [
            (np.where(np.isfinite(made), made, 1.0) if np.dtype(d).kind in "iu" else made)
            .astype("int64" if np.dtype(d).kind == "u" else d)
            .astype(d)
            for d in DTYPES
        ]
    arrays[1][length // 2 : length // 2 + 1] = np.nan
    arrays[DTYPES.index("bool")] = rng.random(length) < 0.5
    return arrays


@given(sweep=sweeps(), length=st.sampled_from(LENGTHS), block=st.sampled_from([1024, 3000]))
def test_two_engines_have_the_same_bits(sweep: Sweep, length: int, block: int) -> None:
    arrays = given_arrays(length)
    found = []
    for engine in (MixedKernel, NumpyKernel):
        outputs = [np.empty(length, sweep.types[value].dtype) for value in sweep.outputs]
        partials = engine(sweep)(arrays, [0.75, 3], outputs, 0, length, block)
        found.append([*outputs, *partials])
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
        if one.dtype.kind == "f":
            real = ~np.isnan(one)
            np.testing.assert_array_equal(np.signbit(one)[real], np.signbit(other)[real])


@pytest.mark.parametrize("op", ["sum", "max", "any"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "bool"])
def test_a_reduction_of_a_selection_is_one_program_without_arrays(op: str, dtype: str) -> None:
    if dtype == "bool" and op == "max":
        return
    kind = ValueType(dtype)
    steps = (Step("where", (1, 0, 2), kind),)
    sweep = Sweep((kind, FLAG), (kind,), steps, (), (Reduction(op, (3,)),))
    plan = plan_of(for_loops(sweep))
    assert plan.is_one_program and plan.reduced == {0} and plan.most_alive == 0
    arrays = given_arrays(70_000)
    x, mask = arrays[DTYPES.index(dtype)], arrays[DTYPES.index("bool")]
    x = np.where(np.isfinite(x), x, 0).astype(dtype)
    (partials,) = MixedKernel(sweep)([x, mask], [0], [], 0, len(x), 1024)
    expected = REDUCERS[op].numpy.reduce(np.where(mask, x, x.dtype.type(0)))
    np.testing.assert_allclose(REDUCERS[op].combine(partials), expected, rtol=1e-5)
