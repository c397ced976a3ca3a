"""Inner products and linear combinations of any number of vectors: bits against NumPy's."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from ps_backend.kernels import numpy_loops
from ps_backend.kernels.compiled.numba_engine import NumbaKernel
from ps_backend.kernels.lowering import LEAST_DOTS, split
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.program.sweep import Link, Step, Sweep
from ps_backend.program.types import ValueType
from tests.ps_backend.sweeps import (
    BLOCK,
    BOOL,
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

KINDS = pytest.mark.parametrize("kind", [FLOAT, SINGLE], ids=lambda kind: kind.dtype)


@KINDS
@pytest.mark.parametrize("history", [1, 2, 5, 12])
@pytest.mark.parametrize("length", [0, 1, 17, 1024, 5003])
def test_two_loop_recursion(history: int, length: int, kind: ValueType) -> None:
    scalars = np.random.default_rng(1).standard_normal(2 * history + 1).tolist()
    inputs = vectors(2 * history + 2, length, kind=kind)
    assert_numpy(two_loop(history, kind), inputs, scalars)


@KINDS
@given(
    count=st.integers(1, 9),
    length=st.integers(0, 3000),
    data=st.data(),
)
@settings(max_examples=50)
def test_inner_products(count: int, length: int, data: st.DataObject, kind: ValueType) -> None:
    """Each has the bits that the ordinary kernel gives it, whatever others are computed."""
    index = st.integers(0, count - 1)
    pairs = data.draw(st.lists(st.tuples(index, index), min_size=LEAST_DOTS, max_size=40))
    inputs = vectors(count, length, seed=length, kind=kind)
    got = run(kernel_of(gram(count, pairs, kind)), inputs, [], 0, length)
    alone = kernel_of(gram(2, [(0, 1)], kind))
    for (i, j), partial in zip(pairs, got, strict=True):
        assert partial.tobytes() == run(alone, [inputs[i], inputs[j]], [], 0, length)[0].tobytes()
        for number, low in enumerate(range(0, length, BLOCK)):
            terms = inputs[i][low : low + BLOCK] * inputs[j][low : low + BLOCK].astype(np.float64)
            assert abs(partial[number] - terms.sum()) <= 1e-13 * np.abs(terms).sum()


# Few shapes of rests, so that few kernels are compiled, around chains and pairs of every kind.
RESTS = ("plain", "starts late", "two chains", "exponentials")


def random_sweep(
    draw: Any, shape: str, inputs: int, scalars: int, kind: ValueType = FLOAT
) -> Sweep:
    build = Builder(inputs, scalars, kind)

    def vector() -> int:
        return draw(st.integers(0, inputs - 1))

    def scalar() -> int:
        return inputs + draw(st.integers(0, scalars - 1))

    def added(negative: bool) -> Link:
        scaled = draw(st.none() | st.integers(inputs, inputs + scalars - 1))
        return Link("add", vector(), scaled, negative != draw(st.booleans()))

    def chain(value: int, links: int) -> int:
        made = [Link("start", value)]
        if value < inputs:
            made = [Link("start", value, draw(st.none() | st.just(inputs)), draw(st.booleans()))]
        for _ in range(links):
            op = draw(st.sampled_from(["add", "subtract", "from", "scale", "divide", "shift", "-"]))
            if op in ("add", "subtract", "from"):
                made += [Link("negate")] * (op == "from")
                made.append(added(op == "subtract"))
            elif op == "-":
                made.append(Link("negate"))
            else:
                negative = op == "shift" and draw(st.booleans())
                made.append(Link(op, scalar=scalar(), negative=negative))
        for _ in range(4):  # long enough to be taken out, whatever was drawn above
            made.append(added(negative=False))
        return build.combine(*made)

    links = draw(st.integers(0, 12))
    reductions = [("dot", vector(), vector()) for _ in range(LEAST_DOTS)]
    if shape == "plain":
        value = chain(vector(), links)
        return build.sweep([value], [*reductions, ("max", value)])
    if shape == "starts late":
        value = chain(build.step("abs", build.step("multiply", 0, 1)), links)
        return build.sweep([build.step("abs", value), value], [("min", value), *reductions])
    if shape == "two chains":
        first = chain(vector(), links)
        sign = build.step("less", first, 0, type=BOOL)
        second = chain(build.step("where", sign, first, 1), links)
        return build.sweep([second], [*reductions, ("dot", first, second)])
    first = chain(build.step("tanh", 0), links)
    second = chain(build.step("exp", build.step("negative", build.step("abs", first))), links)
    return build.sweep([build.step("log1p", build.step("abs", second)), first], reductions)


@pytest.mark.parametrize(
    "kind", marked([FLOAT, SINGLE], long=[SINGLE]), ids=lambda kind: kind.dtype
)
@given(data=st.data(), shape=st.sampled_from(RESTS), length=st.integers(0, 4000))
def test_random_chains_pairs_and_rests(
    data: st.DataObject, shape: str, length: int, kind: ValueType
) -> None:
    count = data.draw(st.integers(2, 12))
    sweep = random_sweep(data.draw, shape, count, 3, kind)
    inputs = vectors(count, length, seed=count, kind=kind)
    if length:
        inputs[0][:: max(1, length // 3)] = [np.inf, -0.0, np.nan][count % 3]
    assert_numpy(sweep, inputs, [0.7, -1.3, 3.0])


@KINDS
@given(cuts=st.lists(st.integers(0, 7), max_size=3), history=st.integers(2, 6))
@settings(max_examples=20)
def test_ranges_do_not_change_a_bit(cuts: list[int], history: int, kind: ValueType) -> None:
    length = 7 * BLOCK + 333
    sweep = two_loop(history, kind)
    inputs = vectors(len(sweep.inputs), length, kind=kind)
    scalars = [0.5] * len(sweep.scalars)
    products = gram(5, [(0, 1), (0, 2), (1, 1), (3, 2), (4, 0), (2, 2)], kind)
    for kernel, given_scalars in ((kernel_of(sweep), scalars), (kernel_of(products), [])):
        used = inputs[: len(kernel.sweep.inputs)]
        whole = run(kernel, used, given_scalars, 0, length)
        bounds = sorted({0, length, *(cut * BLOCK for cut in cuts)})
        parts = [
            run(kernel, used, given_scalars, low, high) for low, high in itertools.pairwise(bounds)
        ]
        for number, expected in enumerate(whole):
            got = np.concatenate([part[number] for part in parts])
            assert got.tobytes() == expected.tobytes()


def test_float32_keeps_its_special_values() -> None:
    """Sums that leave float32, subnormals, zeros of either sign, infinities, NaN."""
    extremes = np.array([3e38, 1e-45, -0.0, np.inf, np.nan, -3e38, 1e-38], np.float32)
    inputs = [np.roll(np.tile(extremes, 300), shift) for shift in range(8)]
    assert_numpy(two_loop(3, SINGLE), inputs, [2.0, -1.0, 0.5, 1e-3, -2.5, 1e38, 0.1])


def test_products_of_float32_leave_its_range() -> None:
    tiny, huge = np.full(1000, 1e-45, np.float32), np.full(1000, 3e38, np.float32)
    pairs = [(0, 0), (0, 1), (1, 1)] * 2
    got = run(kernel_of(gram(2, pairs, SINGLE)), [tiny, huge], [], 0, 1000)
    wide = [vector.astype(np.float64) for vector in (tiny, huge)]
    for (i, j), partial in zip(pairs, got, strict=True):
        np.testing.assert_allclose(partial, wide[i] @ wide[j], rtol=1e-13)


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = two_loop(4)
    inputs, scalars = vectors(10, 40_000), [0.25] * 9
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        results.append(run(kernel_of(sweep), inputs, scalars, 0, 40_000))
    assert len({tuple(part.tobytes() for part in result) for result in results}) == 1


@KINDS
def test_both_engines_agree(kind: ValueType) -> None:
    sweep = two_loop(6, kind)
    inputs, scalars = vectors(14, 6000, kind=kind), [0.125 * k - 0.75 for k in range(13)]
    ours = run(kernel_of(sweep), inputs, scalars, 0, 6000)
    theirs = run(kernel_of(sweep, NumpyKernel), inputs, scalars, 0, 6000)
    for got, expected in zip(ours[:2], theirs[:2], strict=True):
        assert got.tobytes() == expected.tobytes()
    np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-11)
    assert ours[3].tobytes() == theirs[3].tobytes()


def test_a_numpy_that_hides_its_loops_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(op: str, dtype: str) -> None:
        raise AttributeError("_get_strided_loop")

    numpy_loops.has_loop.cache_clear()
    monkeypatch.setattr(numpy_loops, "loop_of", hidden)
    try:
        value = ValueType("float64")
        sweep = Sweep((value,), (), (Step("exp", (0,), value),), (1,), ())
        assert split(sweep).calls == ()
        x, out = np.linspace(-3, 3, 2000), np.empty(2000)
        NumbaKernel(sweep)([x], [], [out], 0, len(x), 1024)
        np.testing.assert_array_max_ulp(out, np.exp(x), 4)
    finally:
        numpy_loops.has_loop.cache_clear()
