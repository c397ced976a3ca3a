"""Someone adds two reductions: the rows below, given to ``register``, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import distvec as dv
from distvec.session import Session
from distvec.testing import assert_plan
from docs.make_operations import page
from ps_backend import kernels
from ps_backend.program import reducers
from ps_backend.program.reducers import Reducer
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Reduction, Step, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from tests.architecture.apart import used

COMPILED_FROM = 1 << 17
X = np.random.default_rng(0).standard_normal(300_000)
SMALL = X[:5000]

LARGEST_NUMBER = Reducer(
    "largest_number",
    np.fmax,
    "np.nanmax({})",
    "_largest({})",
    "np.fmax({a}, {b})",
    "max({a}, {b})",
    picks=True,
    doc="Return the largest element that is a number.",
)
LOG_OF_SUM = Reducer(
    "log_of_sum",
    np.logaddexp,
    "np.max({0}) + np.log(np.sum(np.exp({0} - np.max({0}))))",
    "",
    "np.logaddexp({a}, {b})",
    accumulator="float64",
    doc="Logarithm of the sum of the exponentials.",
    derivative=lambda t, y, x, fold: t * np.exp(x - y),
)


TABLE = np.random.default_rng(1).standard_normal((3000, 5))


def register() -> None:
    reducers.register(LARGEST_NUMBER)
    reducers.register(LOG_OF_SUM)
    kernels.NUMBA_FROM_LENGTH = kernels.LINEAR_FROM_LENGTH = COMPILED_FROM  # else it takes 32 MiB
    kernels.compiled_at_once().__enter__()


def use(ps: Session) -> None:
    for values in (SMALL, X):
        check_numbers(ps, np.where(values > 1, np.nan, values))
        check_logarithms(ps, values)
    check_axes(ps)
    assert {"largest_number", "log_of_sum"} <= set(dir(dv))
    assert dv.largest_number.__doc__.startswith(LARGEST_NUMBER.doc)
    assert "`argmax`, `largest_number`, `log_of_sum`. Built from these" in page()


def check_axes(ps: Session) -> None:
    """Along the slots, and along the rows."""
    row, number = ValueType("float64", (5,)), ValueType("float64")
    values = np.where(TABLE > 1, np.nan, TABLE)
    space, made = DenseSpace(len(values)), ps.client.new_id()
    given = ps.client.new_id()
    ps.client.write(given, space, values)
    steps = (Step("row_largest_number", (0,), number),)
    reductions = (Reduction("largest_number", (0,), 0), Reduction("log_of_sum", (0,), 0))
    sweep = Sweep((row,), (), steps, (1,), reductions)
    call = SweepCall(sweep, space, (given,), (), (made,))
    ((most, logarithms),) = ps.client.run(Program((call,)))
    stored = ps.client.read(made, array_type(space, float))
    assert most.tobytes() == np.nanmax(values, axis=0).tobytes()
    assert stored.tobytes() == np.nanmax(values, axis=1).tobytes()
    assert np.isnan(logarithms).all()


def check_numbers(ps: Session, values: np.ndarray) -> None:
    with pytest.raises(TypeError, match="largest_number has no derivative here"):
        dv.grad(dv.largest_number)(ps.array(values))
    for dtype in (np.float64, np.float32):
        x, typed = ps.array(values.astype(dtype)), values.astype(dtype)
        found = dv.largest_number(x)
        assert found.dtype == dtype
        assert found.numpy().tobytes() == np.nanmax(typed).tobytes()
        assert np.nanmax(x).numpy().tobytes() == np.fmax.reduce(x).numpy().tobytes()
    whole = ps.array((SMALL * 100).astype(np.int32))
    assert dv.largest_number(whole).numpy() == whole.numpy().max()
    assert dv.largest_number(whole).dtype == np.int32
    with pytest.raises(ValueError, match="reduction operation fmax which has no identity"):
        dv.largest_number(ps.array([]))


def check_logarithms(ps: Session, values: np.ndarray) -> None:
    x = ps.array(values)
    found = dv.log_of_sum(2 * x)
    assert_plan(found, x.sum(), messages=1, sweeps=1)
    expected = np.logaddexp.reduce(2 * values)
    assert np.isclose(float(found), expected, rtol=1e-13, atol=0)
    gradient = dv.grad(dv.log_of_sum)(x).numpy()
    assert np.allclose(gradient, np.exp(values - np.logaddexp.reduce(values)), rtol=1e-10, atol=0)
    integers = dv.log_of_sum(ps.array(np.arange(10)))
    assert integers.dtype == np.float64
    assert np.isclose(float(integers), np.logaddexp.reduce(np.arange(10.0)), rtol=1e-15, atol=0)
    with dv.local(1, in_process=True) as alone:
        assert float(dv.log_of_sum(2 * alone.array(values))) == float(found)


def test_it_is_a_function_shares_a_sweep_and_gives_the_same_bits_on_any_servers():
    used("test_a_new_reduction")


def test_its_name_is_its_own():
    for name in ("sum", "exp"):
        with pytest.raises(ValueError, match="is there already"):
            reducers.register(Reducer(name, np.hypot, "", ""))
