"""numexpr has NumPy's bits, whatever the steps, the dtype and the values."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distvec as dv
from ps_backend import kernels
from ps_backend.kernels.numexpr_engine import TEXTS, NumexprKernel, available, fused, is_exact
from ps_backend.kernels.numpy_engine import NumpyKernel
from ps_backend.kernels.reproducible import canonical
from ps_backend.program import ops
from ps_backend.program.sweep import Reduction, Step, Sweep
from ps_backend.program.types import ValueType

LENGTH, BLOCK = 2500, 1024
DTYPES = ("int32", "int64", "float32", "float64")
TESTS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
TESTS |= {"isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_xor", "logical_not"}


def vectors(dtype: str, rng: np.random.Generator) -> list[np.ndarray]:
    """Two of all sizes and of special values, in any order."""
    if np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        special = np.array([0, 1, -1, 7, limits.max, limits.min, limits.min + 1], dtype)
        made = [rng.integers(limits.min, limits.max, LENGTH, dtype) for _ in range(2)]
    else:
        info = np.finfo(dtype)
        least = info.smallest_subnormal
        special = np.array(
            [0.0, -0.0, 1, -1, 0.5, -2.5, np.inf, -np.inf, np.nan, info.max, info.tiny, 3 * least],
            dtype,
        )
        sizes = 10.0 ** rng.integers(-20, 20, (2, LENGTH))
        made = [*(rng.standard_normal((2, LENGTH)) * sizes).astype(dtype)]
    for one in made:
        some = rng.random(LENGTH) < 0.5
        one[some] = rng.choice(special, some.sum())
    return made


def a_sweep(dtype: str, rng: random.Random) -> Sweep:
    """Steps of numbers and of masks; some values are read twice, or stored."""
    kind, mask = ValueType(dtype), ValueType("bool")
    numbers, masks = [0, 1, 3], [2]
    steps: list[Step] = []
    for _ in range(rng.randrange(2, 24)):
        op = rng.choice([op for op, (_, dtypes) in TEXTS.items() if {dtype, "bool"} & {*dtypes}])
        is_mask = dtype not in TEXTS[op][1] or (op.startswith("bitwise") and rng.random() < 0.5)
        given = [rng.choice(masks if is_mask else numbers) for _ in range(ops.TABLE[op].arity)]
        if op == "where":
            given[0] = rng.choice(masks)
        gives_mask = is_mask or op in TESTS
        steps.append(Step(op, tuple(given), mask if gives_mask else kind))
        (masks if gives_mask else numbers).append(3 + len(steps))
    last = 3 + len(steps)
    outputs = {last, *rng.sample(range(4, last + 1), min(2, len(steps)))}
    return Sweep((kind, kind, mask), (kind,), tuple(steps), tuple(sorted(outputs)), ())


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(0, 2**32))
def test_any_steps_have_the_bits_of_numpy(dtype: str, seed: int) -> None:
    sweep, rng = a_sweep(dtype, random.Random(seed)), np.random.default_rng(seed)
    inputs = [*vectors(dtype, rng), rng.random(LENGTH) < 0.5]
    found = []
    for engine in (NumpyKernel, NumexprKernel):
        outputs = [np.empty(LENGTH, sweep.types[value].dtype) for value in sweep.outputs]
        engine(sweep)(inputs, [3], outputs, 0, LENGTH, BLOCK)
        found.append([canonical(one).tobytes() for one in outputs])
    assert found[0] == found[1]


def test_chains_become_expressions_and_others_stay() -> None:
    kind = ValueType("float64")
    steps = [Step("multiply", (0, 1), kind), Step("add", (2, 0), kind), Step("exp", (3,), kind)]
    steps += [Step("subtract", (4, 0), kind), Step("abs", (5,), kind), Step("sqrt", (6,), kind)]
    sweep = Sweep((kind, kind), (), tuple(steps), (5, 7), (Reduction("sum", (7,)),))
    assert fused(sweep).keys() == {3, 7}
    made = NumexprKernel(sweep)._recipe.instructions
    assert [one.target for one in made] == [3, 4, 5, 7]
    assert is_exact(sweep, 2) and not is_exact(sweep, 4)
    assert available() == TEXTS.keys()


def test_an_output_may_lie_where_an_input_does() -> None:
    kind = ValueType("float64")
    steps = (
        Step("multiply", (0, 0), kind),
        Step("add", (1, 0), kind),
        Step("negative", (2,), kind),
    )
    x = np.arange(1e5)
    expected = -(x * x + x)
    NumexprKernel(Sweep((kind,), (), steps, (3,), ()))([x], [], [x], 0, len(x), BLOCK)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("in_process", [True, False])
def test_sessions_choose_it_and_explain_names_it(in_process: bool) -> None:
    n = kernels.NUMEXPR_FROM_LENGTH
    x = np.linspace(-3, 3, n)
    with dv.local(servers=2, in_process=in_process, engine="numexpr") as ps:
        y = ps.array(x)
        made = abs(2 * y + y * y - 0.5)
        assert (
            "runs by numexpr, and NumPy for what has other bits there, as the ser" in made.explain()
        )
        np.testing.assert_array_equal(made.numpy(), abs(2 * x + x * x - 0.5))
        assert "runs by an interpreter" in (2 * y[: n // 2]).explain()
    with pytest.raises(ValueError, match=r"engine='numba'; allowed are 'auto', 'numexpr'"):
        dv.local(engine="numba")


def test_it_is_taken_where_numba_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ValueType("float64")
    steps = (Step("multiply", (0, 0), kind), Step("add", (1, 0), kind))
    sweep = Sweep((kind,), (), steps, (2,), ())

    def chosen() -> Any:
        return type(kernels.compile_sweep(sweep, kernels.NUMBA_FROM_LENGTH))

    monkeypatch.setattr(kernels, "has_compiler", lambda: False)
    assert chosen() is NumexprKernel
    assert "as numba is not installed" in kernels.explained(sweep, kernels.NUMBA_FROM_LENGTH)
    assert kernels.engine_for(sweep, kernels.NUMEXPR_FROM_LENGTH - 1) == "numpy"
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ps_backend.kernels.compiled.numba_engine", None)
    assert isinstance(kernels._compile(sweep, "numba"), NumexprKernel)
