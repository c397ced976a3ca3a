"""What generated kernels call. Each is defined for all values, also where machine code is not."""

from __future__ import annotations

import ctypes
from typing import Any

from numba import njit

_compiled = njit(nogil=True, error_model="numpy", inline="never")

_LEAST = -(2**63)
_BEYOND = float(2**63)
_MONOTONIC = 1

_clock_gettime = ctypes.CDLL(None).clock_gettime
_clock_gettime.argtypes = [ctypes.c_int, ctypes.c_void_p]
_clock_gettime.restype = ctypes.c_int


@_compiled
def floor_divided(a: Any, b: Any) -> Any:
    """Of integers as NumPy's: by 0 it is 0, and the least one by -1 is itself."""
    return 0 if b == 0 else (-a if b == -1 else a // b)


@_compiled
def remainder(a: Any, b: Any) -> Any:
    """Of integers as NumPy's: by 0 it is 0."""
    return 0 if b == 0 or b == -1 else a % b


@_compiled
def smaller(a: Any, b: Any) -> Any:
    """NaN if one is."""
    return a if a < b or a != a else b


@_compiled
def larger(a: Any, b: Any) -> Any:
    """NaN if one is."""
    return a if a > b or a != a else b


@_compiled
def magnitude(a: Any) -> Any:
    """Of the least integer it is itself."""
    return -a if a < 0 else (a if a != 0 else a * a)


@_compiled
def truncated(x: Any) -> Any:
    """The integer part; the least integer for what has none in 64 bits."""
    return int(x) if -_BEYOND <= x < _BEYOND else _LEAST


@_compiled
def rounds(start: Any, stop: Any, step: Any) -> Any:
    """How often a loop over a range runs; what does not fit 64 bits is the largest integer."""
    if step > 0:
        if stop <= start:
            return 0
        length = stop - start
        return ((length if length > 0 else 2**63 - 1) - 1) // step + 1
    if start <= stop:
        return 0
    if step == _LEAST:
        return 1
    length = start - stop
    return ((length if length > 0 else 2**63 - 1) - 1) // -step + 1


@njit(nogil=True)
def is_late(clock: Any) -> Any:
    """Whether the moment ``clock[2:]``, seconds and nanoseconds, is over; writes ``clock[:2]``."""
    _clock_gettime(_MONOTONIC, clock.ctypes)
    return clock[0] > clock[2] or (clock[0] == clock[2] and clock[1] >= clock[3])
