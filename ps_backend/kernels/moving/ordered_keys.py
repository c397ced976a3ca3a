"""Unsigned integers in the order of the elements: what sorts compare instead of them.

The order is total, so a sort has the same bits whoever does which part of it: NaN, which is one
key, comes last; -0.0 comes before 0.0, or is equal to it. Integers are compared at once, in vector
registers, where floats would need care.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.compiler import has_compiler

Array = npt.NDArray[Any]

COMPILED_FROM = 1 << 16
"""Elements from which compiled loops are used: NumPy takes a millisecond or two for fewer."""


def is_worth_compiling(count: int) -> bool:
    """Whether loops over so many elements should be compiled, and can be."""
    return count >= COMPILED_FROM and has_compiler()


def key_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Of the keys of elements of ``dtype``: as wide as these."""
    return np.dtype(f"u{dtype.itemsize}")


def encode(x: Array, keys: Array, *, descending: bool = False, equal_zeros: bool = False) -> None:
    """Write the key of each element of the vector ``x`` to ``keys``.

    ``descending``: in the opposite order. ``equal_zeros``: -0.0 has the key of 0.0.
    """
    bits, dtype = x.view(keys.dtype), keys.dtype
    sign, flip = _sign(x.dtype), _all_ones(dtype) if descending else dtype.type(0)
    if x.dtype.kind != "f":
        np.bitwise_xor(bits, sign ^ flip, out=keys)
        return
    if not bits.flags.c_contiguous:  # a column: loops are compiled for what lies side by side
        np.copyto(keys, bits)
        bits = keys
    infinity = np.array(np.inf, x.dtype).view(dtype)[()]
    if is_worth_compiling(len(x)):
        from ps_backend.kernels.moving import compiled_sorting

        compiled_sorting.encode(bits, keys, sign, infinity, flip, equal_zeros)
        return
    magnitude = bits & ~sign
    number = np.where(magnitude > infinity, infinity | (infinity >> dtype.type(1)), bits)
    if equal_zeros:
        number[magnitude == 0] = 0
    keys[...] = np.where(number & sign, ~number, number | sign) ^ flip


def decode(keys: Array, x: Array, *, descending: bool = False) -> None:
    """Write the elements that have ``keys`` to the vector ``x``, which may be the same memory."""
    bits, dtype = x.view(keys.dtype), keys.dtype
    sign, flip = _sign(x.dtype), _all_ones(dtype) if descending else dtype.type(0)
    if x.dtype.kind != "f":
        np.bitwise_xor(keys, sign ^ flip, out=bits)
    elif is_worth_compiling(len(x)) and bits.flags.c_contiguous:
        from ps_backend.kernels.moving import compiled_sorting

        compiled_sorting.decode(keys, bits, sign, flip)
    else:
        number = keys ^ flip
        bits[...] = np.where(number & sign, number & ~sign, ~number)


def _sign(dtype: np.dtype[Any]) -> Any:
    """What makes unsigned integers of what ``dtype`` has: its sign, if there is one."""
    unsigned = key_dtype(dtype)
    return unsigned.type(1 << (8 * dtype.itemsize - 1) if dtype.kind in "if" else 0)


def _all_ones(dtype: np.dtype[Any]) -> Any:
    return dtype.type(np.iinfo(dtype).max)
