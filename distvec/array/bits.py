"""Booleans as the bits of bytes, and back: ``numpy.packbits`` and ``unpackbits``; lazy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.array.functions import array_among
from distvec.array.items import get_item
from distvec.array.shaping.joining import concatenate

_BYTE = np.dtype(np.uint8)


def packbits(a: Any, /, axis: Any = None, bitorder: str = "big") -> Any:
    """Eight elements a byte, all of them row by row; the last byte is filled up with zeros."""
    array_among("packbits", (a,))
    if a.dtype.kind not in "iub":
        raise TypeError("Expected an input array of integer or boolean data type")
    bits = (_as_vector("packbits", a, axis) != 0).astype(_BYTE)
    missing = -len(bits) % 8
    if missing:
        bits = concatenate([bits, np.zeros(missing, _BYTE)])
    if not len(bits):
        return bits
    weighted = reshape(bits, (len(bits) // 8, 8)) << _shifts(bitorder)
    return weighted.sum(axis=1).astype(_BYTE)


def unpackbits(a: Any, /, axis: Any = None, count: int | None = None, bitorder: str = "big") -> Any:
    """The bits of bytes, of all row by row; the first ``count``, or without the last ``-count``."""
    if array_among("unpackbits", (a,)).dtype != _BYTE:
        raise TypeError("Expected an input array of unsigned byte data type")
    given = _as_vector("unpackbits", a, axis)
    bits = (reshape(given, (len(given), 1)) >> _shifts(bitorder)) & _BYTE.type(1)
    found = reshape(bits, (bits.size,))
    if count is None:
        return found
    wanted = operator.index(count)
    if wanted > len(found):
        return concatenate([found, np.zeros(wanted - len(found), _BYTE)])
    if -wanted > len(found):
        raise ValueError("-ve count larger than number of elements")
    return get_item(found, slice(0, wanted if wanted >= 0 else len(found) + wanted)).copy()


def _shifts(bitorder: str) -> Any:
    if bitorder not in ("big", "little"):
        raise ValueError("'bitorder' must be either 'little' or 'big'")
    return np.arange(8, dtype=_BYTE)[:: -1 if bitorder == "big" else 1].copy()


def _as_vector(name: str, a: Any, axis: Any) -> Any:
    if axis is not None and a.ndim != 1:
        raise NotImplementedError(
            f"{name}: along an axis of a table is not available on the servers; "
            f"leave axis out, for all elements row by row"
        )
    return reshape(a, (a.size,))


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.packbits: packbits, np.unpackbits: unpackbits}
