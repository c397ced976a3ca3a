"""What the numba engine takes out of sweeps, so that it need not be compiled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps_backend import kernels
from ps_backend.kernels.compiled.source import source_of
from ps_backend.kernels.lowering.chains import ADD, DIVIDE, SCALE, SHIFT, START
from ps_backend.kernels.lowering.split import LEAST_DOTS, split
from ps_backend.program import ops
from ps_backend.program.sweep import Reduction, Step, Sweep
from ps_backend.program.types import ValueType
from tests.ps_backend.sweeps import (
    FLOAT,
    SINGLE,
    Builder,
    assert_numpy,
    gram,
    kernel_of,
    run,
    two_loop,
    vectors,
)


@pytest.mark.parametrize("kind", [FLOAT, SINGLE], ids=lambda kind: kind.dtype)
def test_the_history_does_not_change_what_is_compiled(kind: ValueType) -> None:
    few, many = split(two_loop(3, kind)), split(two_loop(9, kind))
    assert few.rest == many.rest and source_of(few) == source_of(many)
    assert source_of(few) == source_of(split(two_loop(1, kind)))
    assert len(many.chains) == 1 and len(many.rest.inputs) == 3
    pairs = list(itertools.combinations_with_replacement(range(12), 2))
    whole = split(gram(12, pairs, kind))
    assert source_of(whole) == source_of(split(gram(12, pairs[:LEAST_DOTS], kind)))
    assert whole.rest == Sweep((), (), (), (), ()) and whole.dot_dtype == kind.dtype
    assert split(gram(12, pairs[: LEAST_DOTS - 1], kind)).dots == ()


def mixed_products(count: int) -> Sweep:
    """``count`` products of two float32 inputs, ``LEAST_DOTS`` of two float64, one of each."""
    steps = [Step("cast", (0,), FLOAT), Step("cast", (1,), FLOAT)]
    steps += [Step("multiply", (4, 5), FLOAT) for _ in range(count)]
    steps += [Step("multiply", (2, 3), FLOAT) for _ in range(LEAST_DOTS)]
    steps.append(Step("multiply", (4, 2), FLOAT))
    reductions = tuple(Reduction("sum", value) for value in range(6, 4 + len(steps)))
    return Sweep((SINGLE, SINGLE, FLOAT, FLOAT), (), tuple(steps), (), reductions)


@pytest.mark.parametrize(("more", "dtype"), [(-1, "float64"), (0, "float64"), (1, "float32")])
def test_products_of_both_dtypes(more: int, dtype: str) -> None:
    """Those of the dtype that has more are taken out; the others are as right in the rest."""
    sweep = mixed_products(LEAST_DOTS + more)
    parts = split(sweep)
    assert parts.dot_dtype == dtype and len(parts.dots) == max(LEAST_DOTS, LEAST_DOTS + more)
    assert len(parts.rest.reductions) == len(sweep.reductions) - len(parts.dots)
    inputs = [*vectors(2, 3001, kind=SINGLE), *vectors(2, 3001, seed=1)]
    assert_numpy(sweep, inputs, [])


def test_chains_of_both_dtypes() -> None:
    """``x32 + s*(a + b + c + d)`` widened, then a chain in float64."""
    inputs = (SINGLE,) * 5 + (FLOAT,) * 4
    steps = [
        Step("add", (1, 2), SINGLE),
        Step("add", (11, 3), SINGLE),
        Step("add", (12, 4), SINGLE),
    ]
    steps += [Step("multiply", (13, 9), SINGLE), Step("add", (0, 14), SINGLE)]
    steps += [Step("cast", (15,), FLOAT), Step("multiply", (16, 10), FLOAT)]
    steps += [Step("subtract", (17 + k, 5 + k), FLOAT) for k in range(4)]
    sweep = Sweep(inputs, (SINGLE, FLOAT), tuple(steps), (15, 21), (Reduction("sum", 21),))
    parts = split(sweep)
    called = parts.rest.inputs[len(parts.inputs) :]
    assert called == (SINGLE, FLOAT) and len(parts.chains) == 2
    given = [*vectors(5, 2777, kind=SINGLE), *vectors(4, 2777, seed=1)]
    assert_numpy(sweep, given, [0.3, 0.3])


def test_a_long_chain_with_a_short_rest_is_compiled() -> None:
    sweep = two_loop(kernels.NUMBA_MOST_STEPS)
    assert kernels.engine_for(sweep, kernels.NUMBA_FROM_LENGTH) == "numba"


def test_links_of_every_form() -> None:
    build = Builder(5, 3)
    value = build.step("multiply", 5, 0)  # s0*x0
    value = build.step("subtract", 1, value)  # x1 - .
    value = build.step("divide", value, 6)
    value = build.step("subtract", 7, value)  # s2 - .
    value = build.step("subtract", value, build.step("negative", build.step("multiply", 2, 5)))
    value = build.step("negative", value)
    value = build.step("add", build.step("multiply", build.step("negative", 3), 6), value)
    sweep = build.sweep([value], [("sum", value)])
    (links,) = split(sweep).chains
    expected = [START, ADD, DIVIDE, SCALE, SHIFT, ADD, SCALE, ADD]
    assert [link.kind for link in links] == expected
    assert_numpy(sweep, vectors(5, 3333), [1.7, -0.3, 2.9])


def test_a_value_needed_elsewhere_cuts_the_chain() -> None:
    build = Builder(8, 0)
    half = build.step("add", build.step("add", build.step("subtract", 0, 1), 2), 3)
    whole = build.step("add", half, 4)
    for other in (5, 6, 7):
        whole = build.step("subtract", whole, other)
    sweep = build.sweep([whole], [("max", half)])
    parts = split(sweep)
    assert [len(links) for links in parts.chains] == [4, 4]
    assert parts.calls[1].args == (len(parts.inputs),)  # where the first one ends
    assert_numpy(sweep, vectors(8, 2500), [])


def test_short_chains_and_other_dtypes_stay() -> None:
    build = Builder(3, 1)
    value = build.step("add", build.step("add", 0, 1), 2)
    assert split(build.sweep([value])).calls == ()
    build = Builder(6, 0, ValueType("int64"))
    value = 0
    for vector in range(1, 6):
        value = build.step("add", value, vector)
    assert split(build.sweep([value])).calls == ()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("op", ["exp", "expm1", "log", "log1p", "tanh", "sin", "cos"])
def test_exponentials_are_numpys(op: str, dtype: str) -> None:
    kind = ValueType(dtype)
    steps = (Step(op, (0,), kind), Step("negative", (1,), kind), Step(op, (2,), kind))
    sweep = Sweep((kind,), (), steps, (1, 3), ())
    x = vectors(1, 3000)[0].astype(dtype)
    x[:4] = np.inf, -np.inf, np.nan, -0.0
    with np.errstate(all="ignore"):
        first = ops.TABLE[op].numpy(x)
        second = ops.TABLE[op].numpy(-first)
    got = run(kernel_of(sweep), [x], [], 0, len(x))
    np.testing.assert_array_equal(got[0], first)
    np.testing.assert_array_equal(got[1], second)
