"""What the numba engine takes out of sweeps, so that it need not be compiled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps_backend import kernels, ops
from ps_backend.kernels.chains import ADD, DIVIDE, SCALE, SHIFT, START
from ps_backend.kernels.source import source_of
from ps_backend.kernels.split import LEAST_DOTS, split
from ps_backend.program import Step, Sweep, ValueType
from tests.ps_backend.sweeps import Builder, assert_numpy, gram, kernel_of, run, two_loop, vectors


def test_the_history_does_not_change_what_is_compiled() -> None:
    few, many = split(two_loop(3)), split(two_loop(9))
    assert few.rest == many.rest and source_of(few) == source_of(many)
    assert source_of(few) == source_of(split(two_loop(1)))
    assert len(many.chains) == 1 and len(many.rest.inputs) == 3
    pairs = list(itertools.combinations_with_replacement(range(12), 2))
    assert source_of(split(gram(12, pairs))) == source_of(split(gram(12, pairs[:LEAST_DOTS])))
    assert split(gram(12, pairs)).rest == Sweep((), (), (), (), ())
    assert split(gram(12, pairs[: LEAST_DOTS - 1])).dots == ()


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
    assert parts.calls[1].start == len(parts.inputs)  # where the first one ends
    assert_numpy(sweep, vectors(8, 2500), [])


def test_short_chains_and_other_dtypes_stay() -> None:
    build = Builder(3, 1)
    value = build.step("add", build.step("add", 0, 1), 2)
    assert split(build.sweep([value])).calls == ()
    single = ValueType("float32")
    steps = tuple(Step("add", (k - 1 if k > 6 else 0, k - 5), single) for k in range(6, 11))
    sweep = Sweep((single,) * 6, (), steps, (10,), ())
    assert split(sweep).calls == ()


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
