"""Random expressions, evaluated by NumPy and on servers by the same function."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis.extra import numpy as hnp
from scipy.special import expit

import distvec as dv

DTYPES = ("float64", "float32", "int64", "int32", "bool")
LENGTHS = (0, 1, 2, 1023, 1024, 1025, 3000)
SPECIAL = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 1e308, 0.5)


def vectors(length: int, dtype: str) -> st.SearchStrategy[np.ndarray]:
    """Vectors of ordinary and special values: a few drawn ones, repeated to the length."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        width = 8 * kind.itemsize
        elements = st.sampled_from(SPECIAL).map(
            lambda v: float(
                kind.type(np.clip(v, -1e38, 1e38) if width == 32 and math.isfinite(v) else v)
            )
        )
        elements |= st.floats(-1e6, 1e6, width=width)
    elif kind.kind == "i":
        limits = np.iinfo(kind)
        elements = st.integers(-20, 20) | st.sampled_from((int(limits.min), int(limits.max)))
    else:
        elements = st.booleans()
    few = hnp.arrays(kind, st.integers(1, 17), elements=elements)
    return few.map(lambda values: np.resize(values, length))


@dataclass(frozen=True)
class Operation:
    """One operation in three spellings of the same thing, and how exact it must be."""

    name: str
    arity: int
    numpy: Callable[..., Any]
    ours: Callable[..., Any]
    ulps: int = 0


def _same(name: str, arity: int, function: Callable[..., Any], ulps: int = 0) -> Operation:
    return Operation(name, arity, function, function, ulps)


OPERATIONS = (
    *(
        _same(name, 2, getattr(operator, name))
        for name in "add sub mul truediv lt le gt ge eq ne floordiv mod".split()
    ),
    *(_same(name, 1, getattr(operator, name)) for name in "neg pos abs".split()),
    *(
        _same(name, 1, getattr(np, name))
        for name in "sqrt sign square floor ceil trunc rint isnan isfinite isinf".split()
    ),
    *(_same(name, 1, getattr(np, name), 4) for name in "exp expm1 log log1p tanh".split()),
    _same("logical_not", 1, np.logical_not),
    Operation("sigmoid", 1, expit, dv.sigmoid, 4),
    _same("pow", 2, operator.pow, 4),
    *(
        _same(name, 2, getattr(np, name))
        for name in "maximum minimum logical_and logical_or logical_xor".split()
    ),
    _same("where", 3, lambda c, a, b: np.where(c != 0, a, b)),
)


def outcome(function: Callable[..., Any], *operands: Any) -> tuple[Any, type[Exception] | None]:
    """The value of ``function``, or the exception it raised."""
    try:
        with np.errstate(all="ignore"):
            return function(*operands), None
    except (TypeError, ValueError, OverflowError, ZeroDivisionError, NotImplementedError) as error:
        return None, type(error)


def assert_close(ours: np.ndarray, theirs: np.ndarray, ulps: int, what: str) -> None:
    """Equal dtypes and shapes, and values at most ``ulps`` apart; bits where 0, but for NaN's."""
    assert ours.dtype == theirs.dtype, what
    assert ours.shape == theirs.shape, what
    if ulps == 0 or theirs.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs, err_msg=what)
        return
    assert (np.isnan(ours) == np.isnan(theirs)).all(), what
    fine = np.isfinite(theirs) & np.isfinite(ours)
    np.testing.assert_array_equal(ours[~fine], theirs[~fine], err_msg=what)
    spacing = np.spacing(np.maximum(np.abs(theirs[fine]), np.finfo(theirs.dtype).tiny))
    distance = np.abs(ours[fine].astype(np.longdouble) - theirs[fine])
    assert (distance <= ulps * spacing).all(), f"{what}: off by {(distance / spacing).max()} ulp"
