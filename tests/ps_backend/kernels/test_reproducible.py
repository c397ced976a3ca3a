"""Digests of what is computed: equal on every processor and in every engine, as far as is said."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from ps_backend.kernels import reproducible
from ps_backend.kernels.compiled.mixed_engine import MixedKernel
from ps_backend.kernels.compiled.numba_engine import NumbaKernel
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.kernels.reproducible import has_same_bits
from ps_backend.program import ops
from ps_backend.program.sweep import Reduction, Step, Sweep
from ps_backend.program.types import ValueType
from tests.samples import marked

NEWER = "X86_V3 X86_V4 AVX512_ICL"
"""Loops of NumPy for processors with AVX2, with AVX-512, and with more of that."""
PROCESSORS: dict[str, dict[str, str]] = {
    "AVX2": {"NUMBA_CPU_NAME": "x86-64-v3", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL"},
    "SSE4": {"NUMBA_CPU_NAME": "x86-64-v2", "NPY_DISABLE_CPU_FEATURES": NEWER},
}
EXACT = ("add", "subtract", "multiply", "divide", "sqrt", "less", "equal", "maximum", "minimum")


def exact_sweep() -> Sweep:
    """What a kernel compiled for the processor must not change: arithmetic, and what adds up."""
    kind = ValueType("float64")
    steps = [
        Step(name, (0, 1)[: ops.TABLE[name].arity], ValueType("bool" if k in (5, 6) else "float64"))
        for k, name in enumerate(EXACT)
    ]
    steps.append(Step("add", (4, 1), kind))  # x * y + y, which might be contracted
    reductions = [Reduction(name, (0,)) for name in ("sum", "prod", "min", "argmax")]
    reductions += [Reduction("dot", pair) for pair in ((0, 0), (0, 1), (1, 1))]
    reductions += [Reduction("sum", (2 + len(EXACT),))]
    return Sweep((kind, kind), (), tuple(steps), tuple(range(2, 2 + len(steps))), tuple(reductions))


def exact_bits(engine: type) -> str:
    """A digest of ``exact_sweep``, where nothing is infinite."""
    rng = np.random.Generator(np.random.Philox(7))
    x, y = (rng.random(3000) * 4 - 2 for _ in range(2))
    sweep = exact_sweep()
    outputs = [np.empty(len(x), sweep.types[value].dtype) for value in sweep.outputs]
    partials = engine(sweep)([x, y], [], outputs, 0, len(x), 1024)
    return reproducible._digest(iter([*outputs, *partials]))


def described() -> str:
    """What a process says of itself: the digest of the probe, and those of the compiled engines."""
    engines = (NumpyKernel, MixedKernel, NumbaKernel)
    return " ".join([reproducible.digests().bits, *map(exact_bits, engines)])


def on(processor: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import described; print(described())"],
        env=os.environ | processor,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("processor", marked(PROCESSORS, long=["AVX2"]))
def test_bits_are_the_same_on_every_processor(processor: str) -> None:
    if "X86_V3" not in np._core._multiarray_umath.__cpu_dispatch__:
        pytest.skip("this NumPy was not built for x86-64")
    with on(PROCESSORS[processor]) as other:
        here = described()
        there, errors = other.communicate()
    assert other.returncode == 0, errors
    assert there.strip() == here
    assert len(set(here.split()[1:])) == 1, "the engines differ"


def test_all_engines_but_the_compiling_one_agree_on_everything() -> None:
    expected = list(reproducible.results(NumpyKernel))
    assert {name.split()[0] for name, _ in expected} >= {*ops.VARYING, "add", "reduction"}
    for (name, one), (_, other) in zip(expected, reproducible.results(MixedKernel), strict=True):
        assert reproducible.canonical(one).tobytes() == reproducible.canonical(other).tobytes(), (
            name
        )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_compiled_kernels_agree_where_they_have_a_text_of_their_own(dtype: str) -> None:
    """Of what they call NumPy's loops for, these: a sigmoid, and powers by a number."""
    kind = ValueType(dtype)
    names = [name for name in ops.PUBLIC if ops.TABLE[name].numba and not ops.TABLE[name].loop]
    x, y = reproducible._values(dtype)
    steps, outputs = [], []
    for name in [*names, "sigmoid"]:
        op = ops.TABLE[name]
        if op.arity in (1, 2) and op.has_loops:
            try:
                *_, result = op.loop_for((np.dtype(dtype),) * op.arity)
            except TypeError:
                continue
            steps.append(Step(name, (0, 1)[: op.arity], ValueType(result.name)))
    steps += [Step("pow", (0, 2), kind), Step("pow", (0, 1), kind)]
    places = tuple(range(3, 3 + len(steps)))
    sweep = Sweep((kind, kind), (kind,), tuple(steps), places, ())
    assert has_same_bits(sweep)
    found = []
    for engine in (NumpyKernel, NumbaKernel):
        kernel = engine(sweep)
        for exponent in (0.5, -1.0, 2.0, 1.5):
            outputs = [np.empty(len(x), step.type.dtype) for step in steps]
            kernel([x, y], [exponent], outputs, 0, len(x), 1024)
            found.append([reproducible.canonical(one).tobytes() for one in outputs])
    for ours, theirs in zip(found[:4], found[4:], strict=True):
        for step, one, other in zip(steps, ours, theirs, strict=True):
            assert one == other, step.op
