"""NumPy's functions that ask for properties of an array, not for values; they send no request."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distvec.array.core.operators import Arithmetic


def size(a: Any, axis: Any = None) -> int:
    """Number of elements, or along ``axis`` (one or several)."""
    if axis is None:
        return int(a.size)
    return math.prod(a.shape[one] for one in normalize_axis_tuple(axis, a.ndim))


def common_type(*arrays: Any) -> Any:
    """The floating dtype that holds all of ``arrays``, as a class: ``numpy.common_type``."""
    return np.common_type(*(np.empty(0, one.dtype) for one in arrays))


def result_type(*given: Any) -> np.dtype[Any]:
    """The dtype of what is computed of arrays, dtypes and numbers, by NumPy's promotion."""
    return np.result_type(*map(dtype_of, given))


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Whether the dtype of an array can be cast."""
    return np.can_cast(dtype_of(from_), dtype_of(to), casting)


def min_scalar_type(a: Any) -> np.dtype[Any]:
    """The dtype of an array; of a number, which only its value tells, it is not available."""
    if not a.ndim:
        raise TypeError(
            "numpy.min_scalar_type of a lazy scalar is not supported, as it depends on the value; "
            "write numpy.min_scalar_type(x.item())"
        )
    dtype: np.dtype[Any] = a.dtype
    return dtype


def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Test whether ``a`` and ``b`` are one array; different arrays never share changes."""
    return a is b


def dtype_of(one: Any) -> Any:
    """The dtype of an array; all else is what NumPy understands by itself."""
    return one.dtype if isinstance(one, Arithmetic | np.ndarray | np.generic) else one
