"""Dtypes: what they are, and what becomes of them (array API standard)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from distvec.array.core.operators import Arithmetic
from distvec.array.standard.info import check_device


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """``x`` in another dtype; itself with ``copy=False`` if it has it. Lazy."""
    check_device(device)
    if not copy and x.dtype == dtype:
        return x
    return x.astype(dtype)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether values of a dtype (or array) can be of another without loss, as in NumPy."""
    return bool(np.can_cast(_dtype_of(from_), to))


@dataclass(frozen=True)
class FloatLimits:
    """What ``finfo`` returns; all numbers are Python's, as the standard has it."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


def finfo(type: Any, /) -> FloatLimits:
    """Limits of a floating dtype."""
    found = np.finfo(_dtype_of(type))
    return FloatLimits(
        bits=int(found.bits),
        eps=float(found.eps),
        max=float(found.max),
        min=float(found.min),
        smallest_normal=float(found.smallest_normal),
        dtype=np.dtype(found.dtype),
    )


def iinfo(type: Any, /) -> Any:
    """Limits of an integer dtype."""
    return np.iinfo(_dtype_of(type))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether ``dtype`` is of ``kind``, as in NumPy."""
    return bool(np.isdtype(dtype, kind))


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype of an operation on these, by NumPy's promotion."""
    return np.result_type(*map(_dtype_of, arrays_and_dtypes))


def _dtype_of(one: Any) -> Any:
    """The dtype of an array; all else is what NumPy understands by itself."""
    is_array = isinstance(one, Arithmetic | np.ndarray | np.generic)
    return one.dtype if is_array else one
