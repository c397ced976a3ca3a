"""Elements at random places of one server's part of an array: read, written, joined to others.

By NumPy's functions, or for many elements of vectors by compiled loops that ask for memory ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.moving.partition import is_worth_compiling, plain

Array = npt.NDArray[Any]

_ADDED = (np.dtype(np.float64), np.dtype(np.int64))
"""Dtypes of which a loop that adds is compiled."""


def take(source: Array, low: int, wanted: Array, out: Array) -> None:
    """``out[:] = source[wanted - low]``, elements or rows, all of which are there."""
    if source.ndim == 1 and is_worth_compiling(len(wanted)):
        from ps_backend.kernels.moving import compiled_random_access

        compiled_random_access.take(plain(source), low, wanted, plain(out))
        return
    np.take(source, wanted - low, axis=0, out=out, mode="clip")  # "raise" would copy first


def put(out: Array, low: int, wanted: Array, values: Array, ufunc: np.ufunc | None) -> None:
    """Join each of ``values``, or the one that they are, to ``out[wanted - low]``, in their order.

    By ``ufunc``; without one it replaces what is there.
    """
    is_compiled = out.ndim == 1 and is_worth_compiling(len(wanted))
    if is_compiled and ufunc is None:
        from ps_backend.kernels.moving import compiled_random_access

        given = np.broadcast_to(np.asarray(values, out.dtype), wanted.shape)
        compiled_random_access.assign(plain(out), low, wanted, plain(given))
    elif is_compiled and ufunc is np.add and values.dtype == out.dtype and out.dtype in _ADDED:
        from ps_backend.kernels.moving import compiled_random_access

        compiled_random_access.add(out, low, wanted, np.broadcast_to(values, wanted.shape))
    elif ufunc is None:
        out[wanted - low] = values
    else:
        ufunc.at(out, wanted - low, values)
