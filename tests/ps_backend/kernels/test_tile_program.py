"""Chains and graphs of steps by NumPy's inner loops: NumPy's bits, few registers, no chunks."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from ps_backend.kernels.compiled.mixed_engine import MixedKernel, plan_of
from ps_backend.kernels.compiled.tile_program import TILE
from ps_backend.kernels.lowering import for_loops
from ps_backend.program.sweep import Step, Sweep
from tests.ps_backend.sweeps import BLOCK, BOOL, FLOAT, Builder, kernel_of, numpy_values, vectors

OPS = {"add": 2, "multiply": 2, "subtract": 2, "sqrt": 1, "exp": 1, "maximum": 2, "tanh": 1}
LENGTHS = (0, 1, TILE - 1, TILE, TILE + 1, 70_001)


def chain(steps: int) -> Sweep:
    build = Builder(2, 0)
    value = 0
    for number in range(steps):
        value = build.step("add", value, 0) if number % 2 else build.step("multiply", value, 1)
    return build.sweep([value])


@st.composite
def graphs(draw: Any) -> Sweep:
    """Steps on two vectors and a scalar; among them comparisons and selections, which take turns
    with the loops."""
    build = Builder(2, 1)
    values, masks = [0, 1, 2], []
    for _ in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from([*OPS, "less", *(["where"] if masks else [])]))
        if op == "less":
            args = draw(st.lists(st.sampled_from(values), min_size=2, max_size=2))
            masks.append(build.step("less", *args, type=BOOL))
            continue
        count = 2 if op == "where" else OPS[op]
        args = draw(st.lists(st.sampled_from(values), min_size=count, max_size=count))
        if op == "where":
            args = [draw(st.sampled_from(masks)), *args]
        values.append(build.step(op, *args))
    outputs = draw(st.lists(st.sampled_from(values[3:] + masks), min_size=1, max_size=3))
    sums = [("sum", value) for value in draw(st.sets(st.sampled_from(values), max_size=1))]
    return build.sweep(outputs, sums)


@given(sweep=graphs(), length=st.sampled_from(LENGTHS), place=st.sampled_from([None, 0, 1]))
def test_graphs_have_the_bits_of_numpy(sweep: Sweep, length: int, place: int | None) -> None:
    """Also where the first output lies where an input was."""
    x, y = vectors(2, length)
    values = numpy_values(sweep, [x, y], [0.75])
    kernel = MixedKernel(sweep)
    inputs = [x.copy(), y.copy()]
    outputs = [np.empty(length, sweep.types[v].dtype) for v in sweep.outputs]
    # What is given away is no output itself.
    if place is not None and outputs[0].dtype == np.float64 and place not in sweep.outputs:
        outputs[0] = inputs[place]
    kernel(inputs, [0.75], outputs, 0, length, BLOCK)
    for value, got in zip(sweep.outputs, outputs, strict=True):
        expected = np.broadcast_to(values[value], (length,))
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("steps", [1, 2, 64])
def test_a_chain_needs_one_register_and_no_chunks(steps: int) -> None:
    plan = plan_of(for_loops(chain(steps)))
    assert plan.is_one_program and plan.most_alive == 0
    assert plan.registers == min(steps - 1, 1)


def test_a_register_serves_elements_of_one_size_only_while_it_is_read() -> None:
    build = Builder(1, 0)
    mask = build.step("less", build.step("exp", 0), 0, type=BOOL)
    last = build.step("logical_not", build.step("logical_not", mask, type=BOOL), type=BOOL)
    sweep = build.sweep([last])
    assert plan_of(sweep).registers == 2
    (x,) = vectors(1, 3 * TILE)
    kernel, out = kernel_of(sweep, MixedKernel), np.empty(3 * TILE, bool)
    kernel([x], [], [out], 0, len(x), BLOCK)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, np.exp(x) < x)


def test_threads_share_the_work_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, (x, y) = chain(16), vectors(2, 300_000)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        out = np.empty_like(x)
        MixedKernel(sweep)([x, y], [], [out], 0, len(x), BLOCK)
        found.append(out.tobytes())
    assert found[0] == found[1] == numpy_values(sweep, [x, y], [])[-1].tobytes()


def test_what_is_computed_of_scalars_alone_is_computed_once() -> None:
    steps = (Step("exp", (1,), FLOAT), Step("multiply", (0, 2), FLOAT))
    sweep = Sweep((FLOAT,), (FLOAT,), steps, (3, 2), ())
    (x,) = vectors(1, 2000)
    outputs = [np.empty(2000), np.empty(2000)]
    MixedKernel(sweep)([x], [0.5], outputs, 0, 2000, BLOCK)
    np.testing.assert_array_equal(outputs[0], x * np.exp(0.5))
    assert (outputs[1] == np.exp(0.5)).all()
