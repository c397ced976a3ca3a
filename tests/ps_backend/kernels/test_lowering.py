"""What the numba engine takes out of sweeps, so that it need not be compiled."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ps_backend import kernels
from ps_backend.kernels.compiled.mixed_engine import MixedKernel
from ps_backend.kernels.compiled.numba_engine import NumbaKernel
from ps_backend.kernels.compiled.source import source_of
from ps_backend.kernels.lowering import LEAST_DOTS, Split, cost_of, for_numba, split
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.program import ops
from ps_backend.program.sweep import Combination, Link, Reduction, Step, Sweep
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
from tests.samples import marked


def split_of(sweep: Sweep) -> Split:
    return split(for_numba(sweep))


@pytest.mark.parametrize("kind", [FLOAT, SINGLE], ids=lambda kind: kind.dtype)
def test_the_history_does_not_change_what_is_compiled(kind: ValueType) -> None:
    few, many = split_of(two_loop(3, kind)), split_of(two_loop(9, kind))
    assert few.rest == many.rest and source_of(few) == source_of(many)
    assert source_of(few) == source_of(split_of(two_loop(1, kind)))
    assert len(many.combinations) == 1 and len(many.rest.inputs) == 3
    pairs = list(itertools.combinations_with_replacement(range(12), 2))
    whole = split(gram(12, pairs, kind))
    assert source_of(whole) == source_of(split(gram(12, pairs[:LEAST_DOTS], kind)))
    assert whole.rest == Sweep((), (), (), (), ()) and whole.dot_dtype == kind.dtype
    assert split(gram(12, pairs[: LEAST_DOTS - 1], kind)).dots == ()


def mixed_products(count: int) -> Sweep:
    """``count`` products of two float32 inputs, ``LEAST_DOTS`` of two float64, and a sum of one."""
    reductions = [("dot", 0, 1)] * count + [("dot", 2, 3)] * LEAST_DOTS
    steps = (Step("cast", (0,), FLOAT), Step("multiply", (4, 2), FLOAT))
    made = tuple(Reduction(op, tuple(args)) for op, *args in [*reductions, ("sum", 5)])
    return Sweep((SINGLE, SINGLE, FLOAT, FLOAT), (), steps, (), made)


@pytest.mark.parametrize(
    ("more", "dtype"),
    marked([(-1, "float64"), (0, "float64"), (1, "float32")], long=[(-1, "float64")]),
)
def test_products_of_both_dtypes(more: int, dtype: str) -> None:
    """Those of the dtype that has more are taken out; the others are as right in the rest."""
    sweep = mixed_products(LEAST_DOTS + more)
    parts = split(sweep)
    assert parts.dot_dtype == dtype and len(parts.dots) == max(LEAST_DOTS, LEAST_DOTS + more)
    assert len(parts.rest.reductions) == len(sweep.reductions) - len(parts.dots)
    inputs = [*vectors(2, 3001, kind=SINGLE), *vectors(2, 3001, seed=1)]
    assert_numpy(sweep, inputs, [])


def test_combinations_of_both_dtypes() -> None:
    """``s*(a + b + c + d) + x32`` widened, then one in float64."""
    inputs = (SINGLE,) * 5 + (FLOAT,) * 4
    single = Combination(
        (
            Link("start", 1),
            *(Link("add", k) for k in (2, 3, 4)),
            Link("scale", scalar=9),
            Link("add", 0),
        ),
        SINGLE,
    )
    double = Combination(
        (
            Link("start", 12),
            Link("scale", scalar=10),
            *(Link("add", 5 + k, negative=True) for k in range(4)),
        ),
        FLOAT,
    )
    steps = (single, Step("cast", (11,), FLOAT), double)
    sweep = Sweep(inputs, (SINGLE, FLOAT), steps, (11, 13), (Reduction("sum", (13,)),))
    parts = split(sweep)
    called = parts.rest.inputs[len(parts.inputs) :]
    assert called == (SINGLE, FLOAT) and len(parts.combinations) == 2
    given = [*vectors(5, 2777, kind=SINGLE), *vectors(4, 2777, seed=1)]
    assert_numpy(sweep, given, [0.3, 0.3])


def test_a_long_chain_with_a_short_rest_is_compiled() -> None:
    sweep = two_loop(kernels.NUMBA_MOST_STEPS)
    assert kernels.engine_for(sweep, kernels.NUMBA_FROM_LENGTH) == "numba"


@pytest.mark.parametrize("engine", [NumbaKernel, MixedKernel, NumpyKernel])
def test_links_of_every_form(engine: Any) -> None:
    links = (
        Link("start", 0, 5, negative=True),
        Link("add", 1),
        Link("divide", scalar=6),
        Link("negate"),
        Link("shift", scalar=7),
        Link("negate"),
        Link("add", 2, 5, negative=True),
        Link("negate"),
        Link("negate"),
        Link("shift", scalar=5, negative=True),
        Link("negate"),
        Link("add", 3, 6),
        Link("scale", scalar=7),
        Link("negate"),
    )
    for length in range(1, len(links) + 1):  # short ones are compiled with the steps around them
        build = Builder(5, 3)
        value = build.combine(*links[:length])
        sweep = build.sweep([value], [("sum", value)])
        assert_numpy(sweep, vectors(5, 3333), [1.7, -0.3, 2.9], engine)


def test_a_combination_goes_on_from_another() -> None:
    build = Builder(8, 0)
    half = build.combine(
        Link("start", 0), Link("add", 1, None, True), Link("add", 2), Link("add", 3)
    )
    whole = build.combine(Link("start", half), *(Link("add", k, None, True) for k in (4, 5, 6, 7)))
    sweep = build.sweep([whole], [("max", half)])
    parts = split(sweep)
    assert [len(links) for links in parts.combinations] == [4, 4]
    assert parts.calls[1].args == (len(parts.inputs),)  # where the first one ends
    assert_numpy(sweep, vectors(8, 2500), [])


def test_short_combinations_are_compiled_as_steps() -> None:
    build = Builder(3, 1)
    sweep = build.sweep([build.combine(Link("start", 0), Link("add", 1), Link("add", 2))])
    parts = split(for_numba(sweep))
    assert parts.calls == () and [step.op for step in parts.rest.steps] == ["add", "add"]


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


@pytest.mark.parametrize("op", ["int_remainder", "int_floor_divide", "int_pow"])
def test_divisions_of_integers_count_as_exponentials(op):
    """Threads share them out from as few elements on."""
    assert cost_of(Step(op, (0, 1), ValueType("int64"))) == cost_of(Step("exp", (0,), FLOAT)) > 1
