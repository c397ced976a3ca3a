"""Someone adds two ops: the rows below, given to ``register``, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import distvec as dv
from distvec.session import Session
from distvec.testing import assert_plan
from docs.make_operations import page
from ps_backend import kernels
from ps_backend.program import ops
from tests.architecture.apart import used

COMPILED_FROM = 1 << 17
X = np.random.default_rng(0).standard_normal(300_000)
SMALL = X[:5000]


def signed_square(x):
    return x * abs(x)


BY_ITS_UFUNC = ops.Op("erfinv", 1, special.erfinv, loop=True, costly=True)
BY_A_TEXT = ops.Op(
    "signed_square",
    1,
    signed_square,
    "{0} * abs({0})",
    "({0} * abs({0}))",
    derivatives=(lambda t, y, x: t * (2 * abs(x)),),
)


def register() -> None:
    ops.register(BY_ITS_UFUNC)
    ops.register(BY_A_TEXT)
    kernels.NUMBA_FROM_LENGTH = kernels.LINEAR_FROM_LENGTH = COMPILED_FROM  # else it takes 32 MiB
    kernels.compiled_at_once().__enter__()


def use(ps: Session) -> None:
    for values in (SMALL, X):
        x = ps.array(values)
        check_functions(ps, x, values)
        check_fusion(x, values)
        check_gradient(x, values)
    x = ps.array([0.5, -0.5])
    assert special.erfinv(x).numpy().tobytes() == special.erfinv([0.5, -0.5]).tobytes()
    assert x.__array_namespace__().signed_square(x).numpy().tolist() == [0.25, -0.25]
    assert {"erfinv", "signed_square"} <= set(dir(dv))
    assert "| `erfinv` | 1 | `erfinv` | float64 | float32 |" in page()
    assert "| `signed_square` | 1 | `signed_square` | float64 | float32 |" in page()


def check_functions(ps: Session, x: dv.DistArray, values: np.ndarray) -> None:
    for dtype in (np.float64, np.float32):
        typed = values.astype(dtype)
        assert dv.signed_square(x.astype(dtype)).numpy().tobytes() == signed_square(typed).tobytes()
    unit = values / 10
    assert dv.erfinv(ps.array(unit)).numpy().tobytes() == special.erfinv(unit).tobytes()


def check_gradient(x: dv.DistArray, values: np.ndarray) -> None:
    """Of the op that brings its derivative along; the other one has none."""
    gradient = dv.grad(lambda x: np.sum(dv.signed_square(x)))(x)
    assert_plan(gradient, messages=1, sweeps=1)
    assert gradient.numpy().tobytes() == (2 * abs(values)).tobytes()
    with pytest.raises(TypeError, match="erfinv has no derivative here; write the function with"):
        dv.grad(lambda x: np.sum(dv.erfinv(x)))(x)


def check_fusion(x: dv.DistArray, values: np.ndarray) -> None:
    y = 2 * dv.signed_square(x) + dv.erfinv(dv.signed_square(x / 10)) - 1
    assert_plan(y, messages=1, sweeps=1)
    expected = 2 * signed_square(values) + special.erfinv(signed_square(values / 10)) - 1
    assert y.numpy().tobytes() == expected.tobytes()


def test_it_is_a_function_fuses_with_others_and_has_numpys_bits_on_two_servers():
    used("test_a_new_op")


def test_its_name_is_its_own():
    with pytest.raises(ValueError, match="there is an op 'erf' already"):
        ops.register(ops.Op("erf", 1, special.erf))
