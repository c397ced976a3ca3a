"""Addresses for compiled code to call and to read: NumPy's own inner loops, and arrays.

NumPy has vector code for exponentials that LLVM has not: five times as fast, and its bits are
NumPy's by construction. ``ufunc._get_strided_loop`` is NumPy's interface for compilers such as
numba (NEP 43); the layout of its answer is in that method's documentation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.program import ops


def address_of(array: npt.NDArray[Any]) -> int:
    """Where its first element lies."""
    address: int = array.__array_interface__["data"][0]
    return address


def addresses_of(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Where the arrays lie; one entry more, of no meaning."""
    return np.array([*map(address_of, arrays), 0], np.int64)


class _CallInfo(ctypes.Structure):
    """Named ``numpy_1.24_ufunc_call_info``."""

    _fields_ = (
        ("strided_loop", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("auxdata", ctypes.c_void_p),
        ("requires_pyapi", ctypes.c_bool),
        ("no_floatingpoint_errors", ctypes.c_bool),
    )


_capsules: list[Any] = []
"""NumPy keeps a loop alive as long as its capsule."""


@cache
def has_loop(op: str, dtypes: tuple[str, ...]) -> bool:
    """Whether this NumPy hands out the loop; the interface is not among its stable ones."""
    if not isinstance(ops.TABLE[op].numpy, np.ufunc):
        return False
    try:
        loop_of(op, dtypes)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return False
    return True


@cache
def loop_of(
    op: str, dtypes: tuple[str, ...], strides: tuple[int, ...] | None = None
) -> npt.NDArray[np.int64]:
    """Addresses of the loop of ``op`` on contiguous arrays, its context and its data.

    ``dtypes``: of the arguments, then of the result. ``strides``, from one element to the next in
    bytes, where some of the arrays are one element repeated.
    """
    ufunc: Any = ops.TABLE[op].numpy
    kinds = tuple(map(np.dtype, dtypes))
    resolved, capsule = ufunc._resolve_dtypes_and_context((*kinds[:-1], None))
    if tuple(resolved) != kinds:
        raise TypeError(f"{op} has no loop for {dtypes}, only for {resolved}")
    strides = strides or tuple(kind.itemsize for kind in kinds)
    ufunc._get_strided_loop(capsule, fixed_strides=strides)
    _capsules.append(capsule)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    info = _CallInfo.from_address(pointer(capsule, b"numpy_1.24_ufunc_call_info"))
    if info.requires_pyapi:
        raise NotImplementedError(f"{op} on {dtypes} needs the interpreter lock")
    return np.array([info.strided_loop, info.context, info.auxdata or 0], np.int64)
