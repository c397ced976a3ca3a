"""All engines against NumPy, on every op of the table, every dtype and every special value."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from ps_backend import kernels
from ps_backend.kernels import numexpr_engine, numpy_engine
from ps_backend.kernels.compiled import linear_tables, machine_code, mixed_engine, numba_engine
from ps_backend.kernels.compiled.machine_code import cache_folder
from ps_backend.kernels.lowering import for_numba, split
from ps_backend.program import ops
from ps_backend.program.reducers import PUBLIC, REDUCERS
from ps_backend.program.sweep import Reduction, Step, Sweep, partial_dtypes
from ps_backend.program.types import DTYPES, ValueType
from ps_backend.server.state.memory import _allocate_aligned
from tests.ps_backend.sweeps import gram, two_loop
from tests.samples import marked


def each_step_by_numexpr(sweep: Sweep) -> kernels.Kernel:
    """Also single ones, which NumPy's functions would compute."""
    with mock.patch.object(numexpr_engine, "_LEAST_STEPS", 1):
        return numexpr_engine.NumexprKernel(sweep)


ENGINES = {
    "numba": numba_engine.NumbaKernel,
    "mixed": mixed_engine.MixedKernel,
    "numexpr": each_step_by_numexpr,
    "numpy": numpy_engine.NumpyKernel,
}
EXACT = {"add", "subtract", "multiply", "divide", "sqrt", "negative", "abs", "square", "maximum"}
BLOCK = 1024


def special(dtype: str) -> np.ndarray:
    """Every pair of special values appears when this is combined with its own permutations."""
    if dtype == "bool":
        return np.array([False, True])
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        values = (0, 1, -1, 2, 7, -7, limits.max, limits.min, limits.min + 1)
        return np.array([value for value in values if value >= limits.min], dtype)
    limits = np.finfo(dtype)
    return np.array(
        [
            0.0,
            -0.0,
            1,
            -1,
            0.5,
            -2.5,
            3,
            np.inf,
            -np.inf,
            np.nan,
            limits.max,
            limits.tiny,
            1e-3,
            40,
        ],
        dtype,
    )


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    first, second = zip(*itertools.product(special(dtype), repeat=2), strict=True)
    rng = np.random.default_rng(0)
    extra = rng.standard_normal(2000) * 10
    extra = (np.abs(extra) if dtype.startswith("uint") else extra).astype(dtype)
    return (
        np.concatenate([np.array(first, dtype), extra]),
        np.concatenate([np.array(second, dtype), extra[::-1]]),
    )


def elementwise_ops(dtype: str) -> list[tuple[str, str, str]]:
    """(row that runs, name in the table, dtype of the result) of all ops on ``dtype``."""
    found = []
    for name, op in ops.TABLE.items():
        if op.internal or op.arity not in (1, 2) or name == "pow":
            continue
        kind = np.dtype(dtype)
        try:
            resolved = op.numpy.resolve_dtypes((*[kind] * op.arity, None))
        except TypeError:
            continue
        if resolved[0] == kind and resolved[-1].name in DTYPES:
            found.append((ops.specialise(name, dtype), name, resolved[-1].name))
    return found


LONG = ("float64", "float32", "int64", "int32", "bool")
COMPILED = (*LONG, "uint64", "uint8")
"""Compiling takes long: here it is what all integers have in common, and of the last two only what
has a text."""
TOGETHER = 16
"""Ops in a sweep: to compile all of a dtype in one takes half as long again."""
RUNS = [(engine, dtype) for engine in ENGINES for dtype in DTYPES if engine != "numba"]
RUNS = marked(
    [*RUNS, *(("numba", dtype) for dtype in COMPILED)],
    long=[("numba", dtype) for dtype in ("float32", "int32", "uint64", "uint8")],
)


@pytest.mark.parametrize(("engine", "dtype"), RUNS)
def test_every_op_on_special_values(engine: str, dtype: str) -> None:
    a, b = pairs(dtype)
    table = elementwise_ops(dtype)
    if engine == "numba" and dtype not in LONG:
        table = [some for some in table if not ops.TABLE[some[0]].loop]
    steps = tuple(
        Step(row, (0, 1)[: ops.TABLE[row].arity], ValueType(result)) for row, _, result in table
    )
    kind = ValueType(dtype)
    outputs = [np.empty(len(a), result) for _, _, result in table]
    for k in range(0, len(steps), TOGETHER):
        some = steps[k : k + TOGETHER]
        sweep = Sweep((kind, kind), (), some, tuple(range(2, 2 + len(some))), ())
        ENGINES[engine](sweep)([a, b], [], outputs[k : k + TOGETHER], 0, len(a), BLOCK)
    for (_, name, _), got in zip(table, outputs, strict=True):
        with np.errstate(all="ignore"):
            expected = ops.TABLE[name].numpy(*(a, b)[: ops.TABLE[name].arity])
        if name in EXACT or expected.dtype.kind != "f":
            np.testing.assert_array_equal(got, expected, err_msg=f"{name} {dtype}")
        else:
            assert (np.isnan(got) == np.isnan(expected)).all(), name
            both = np.isfinite(expected) & np.isfinite(got)
            np.testing.assert_array_equal(got[~both], expected[~both], err_msg=name)
            np.testing.assert_array_max_ulp(got[both], expected[both], 4)


@pytest.mark.parametrize(("engine", "dtype"), RUNS)
def test_casts(engine: str, dtype: str) -> None:
    """Of floats within the range of int32: further out C leaves it open what an integer is."""
    a, _ = pairs(dtype)
    if dtype.startswith("float"):
        most = min(1e9, float(np.finfo(dtype).max))
        a = np.clip(np.nan_to_num(a), -most, most)
    targets = COMPILED if engine == "numba" else DTYPES
    steps = tuple(Step("cast", (0,), ValueType(target)) for target in targets)
    sweep = Sweep((ValueType(dtype),), (), steps, tuple(range(1, 1 + len(steps))), ())
    outputs = [np.empty(len(a), target) for target in targets]
    ENGINES[engine](sweep)([a], [], outputs, 0, len(a), BLOCK)
    for got in outputs:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, a.astype(got.dtype), err_msg=f"{got.dtype}")


@pytest.mark.parametrize(("engine", "dtype"), RUNS)
@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 5000])
def test_reductions_per_block(engine: str, dtype: str, length: int) -> None:
    rng = np.random.default_rng(length)
    a = rng.standard_normal(length) * 5
    a = (np.abs(a) if dtype.startswith("uint") else a).astype(dtype)
    if dtype.startswith("float") and length > 1100:
        a[[1030, 1040]] = np.nan
    kind = ValueType(dtype)
    sweep = Sweep(
        (kind,),
        (),
        (),
        (),
        tuple(Reduction(name, (0,)) for name in PUBLIC),
    )
    partials = iter(ENGINES[engine](sweep)([a], [], [], 2048, length, BLOCK))
    blocks = [a[low : low + BLOCK] for low in range(0, length, BLOCK)]
    for reduction in sweep.reductions:
        got = [next(partials) for _ in partial_dtypes(reduction, kind)]
        assert all(len(one) == len(blocks) for one in got)
        for number, block in enumerate(blocks):
            wide = block.astype(REDUCERS["sum"].accumulators(dtype)[0])
            with np.errstate(all="ignore"):
                expected: Any = getattr(np, reduction.op)(wide)
            if reduction.op.startswith("arg"):
                assert got[1][number] == 2048 + number * BLOCK + expected
                expected = wide[expected]
            np.testing.assert_allclose(got[0][number], expected, rtol=1e-12, atol=1e-12)


@given(
    length=st.integers(0, 5000),
    cuts=st.lists(st.integers(0, 5), max_size=3),
    engine=st.sampled_from(sorted(ENGINES)),
)
def test_the_range_a_server_holds_does_not_change_a_bit(
    length: int, cuts: list[int], engine: str
) -> None:
    """Any split at block boundaries gives the outputs and partials of the whole."""
    value = ValueType("float64")
    index = ValueType("int64")
    sweep = Sweep(
        (value,),
        (value, index),
        (
            Step("exp", (0,), value),
            Step("iota", (), index),
            Step("uniform", (2, 4), value),
            Step("multiply", (3, 5), value),
            Step("subtract", (6, 1), value),
        ),
        (7,),
        (Reduction("sum", (7,)), Reduction("max", (6,)), Reduction("argmin", (7,))),
    )
    kernel = ENGINES[engine](sweep)
    x = np.sin(np.arange(length) * 0.7)

    def run(low: int, high: int) -> list[np.ndarray]:
        out = np.empty(high - low)
        return [out, *kernel([x[low:high]], [0.25, 9], [out], low, high - low, BLOCK)]

    whole = run(0, length)
    bounds = sorted({0, length, *(min(cut * BLOCK, length) for cut in cuts)})
    parts = [run(low, high) for low, high in itertools.pairwise(bounds)] or [run(0, 0)]
    for number, expected in enumerate(whole):
        got = np.concatenate([part[number] for part in parts])
        assert got.tobytes() == expected.tobytes()


def test_the_engine_depends_on_structure_and_global_length_alone() -> None:
    value = ValueType("float64")
    short = Sweep((value,), (), (Step("multiply", (0, 0), value),), (1,), ())
    called = Sweep((value,), (), (Step("exp", (0,), value),), (1,), ())
    steps = tuple(Step("exp", (k,), value) for k in range(kernels.NUMBA_MOST_STEPS + 1))
    long = Sweep((value,), (), steps, (len(steps),), ())
    assert kernels.engine_for(short, kernels.NUMBA_FROM_LENGTH) == "numba"
    assert kernels.engine_for(short, kernels.NUMBA_FROM_LENGTH - 1) == "mixed"
    assert kernels.engine_for(called, kernels.NUMBA_FROM_LENGTH) == "mixed", "NumPy's own loop"
    assert kernels.engine_for(long, 1 << 24) == "mixed"
    assert kernels.engine_for(short, kernels.LINEAR_FROM_LENGTH - 1) == "numpy"
    many = gram(4, list(itertools.combinations(range(4), 2)))
    for linear in (many, two_loop(3)):
        expected = "numba" if not split(for_numba(linear)).steps else "mixed"
        assert kernels.engine_for(linear, kernels.LINEAR_FROM_LENGTH) == expected
        assert kernels.engine_for(linear, kernels.LINEAR_FROM_LENGTH - 1) == "numpy"
    assert split(many).steps == 0 < split(for_numba(two_loop(3))).steps, "both cases were there"


@pytest.mark.parametrize("sweep", [gram(2, [(0, 1)]), two_loop(3)], ids=["dots", "chains"])
def test_what_cannot_be_compiled_fails_before_memory_is_given_away(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("no room for machine code")

    for module in (mixed_engine, linear_tables):
        monkeypatch.setattr(module, "linear_loops", fail)
    with pytest.raises(OSError, match="no room"):
        mixed_engine.MixedKernel(sweep)


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    value = ValueType("float64")
    sweep = Sweep((value,), (), (Step("multiply", (0, 0), value),), (1,), (Reduction("sum", (1,)),))
    kernel = numba_engine.NumbaKernel(sweep)
    x = np.random.default_rng(1).standard_normal(40_000)
    results = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        out = np.empty_like(x)
        results.append((out, *kernel([x], [], [out], 0, len(x), BLOCK)))
    assert len({tuple(part.tobytes() for part in result) for result in results}) == 1


@given(length=st.integers(1, 3000), out=st.sampled_from([0, 8]))
def test_outputs_stored_past_the_caches_have_the_same_bits(length: int, out: int) -> None:
    """Of all widths, at the start of a cache line (``out`` = 0) or not."""
    value, mask = ValueType("float64"), ValueType("bool")
    short, whole = ValueType("float32"), ValueType("uint8")
    steps = (
        Step("add", (0, 0), value),
        Step("less", (0, 1), mask),
        Step("cast", (1,), short),
        Step("cast", (2,), whole),
    )
    kernel = numba_engine.NumbaKernel(Sweep((value,), (), steps, (1, 2, 3, 4), ()))
    x = np.random.default_rng(length).standard_normal(length)
    expected = [x + x, x < x + x, (x + x).astype("f4"), (x < x + x).astype("u1")]
    memory = [_allocate_aligned(8 * length + 8) for _ in expected]
    streamed = []
    for least in (0, 1 << 40):
        with mock.patch.object(numba_engine, "_LEAST_STREAMED", least):
            outputs = [
                np.ndarray(length, one.dtype, place, out)
                for one, place in zip(expected, memory, strict=True)
            ]
            streamed.append(numba_engine._streams([x.ctypes.data], outputs))
            assert not numba_engine._streams([outputs[0].ctypes.data], outputs)
            kernel([x], [], outputs, 0, length, BLOCK)
        for found, one in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(found, one)
            found.fill(0)
    assert streamed == [out == 0, False]


def test_a_second_process_finds_the_machine_code(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("DISTVEC_CACHE", str(tmp_path))
    cache_folder.cache_clear()
    value = ValueType("float64")
    sweep = Sweep((value,), (), (Step("negative", (0,), value),), (1,), ())
    try:
        numba_engine.NumbaKernel(sweep)
        monkeypatch.setattr(machine_code, "_loaded", {})
        again = numba_engine.NumbaKernel(sweep)
        assert sum(again._function.stats.cache_hits.values()) == 1
    finally:
        cache_folder.cache_clear()
