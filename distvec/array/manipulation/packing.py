"""Several numbers as one, and back: indices of several axes, booleans as the bits of bytes.

Lazy, but for the check that all indices are in range.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from distvec.array.core.operators import raise_if_any
from distvec.array.core.shapes import reshape
from distvec.array.elementwise import array_among, clip
from distvec.array.indexing.getitem import get_item
from distvec.array.manipulation.join import concatenate

_ORDERS = {"C": 1, "F": -1}


def ravel_multi_index(
    multi_index: Any, dims: Any, mode: str | tuple[str, ...] = "raise", order: str = "C"
) -> Any:
    """``numpy.ravel_multi_index``. With ``mode="raise"`` an implicit evaluation for each axis."""
    array_among("ravel_multi_index", tuple(multi_index))
    lengths = _lengths(dims)
    _check_size("ravel_multi_index: dims", lengths)
    modes = (mode,) * len(lengths) if isinstance(mode, str) else mode
    if len(multi_index) != len(lengths):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(lengths)}")
    axes = list(zip(map(_integers, multi_index), lengths, modes, strict=True))
    result: Any = 0
    for index, length, how in axes[:: _direction(order)]:
        result = result * length + _in_range(index, length, how)
    return result


def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """``numpy.unravel_index``; an implicit evaluation: ``ValueError`` for an index out of range."""
    lengths = _lengths(shape)
    _check_size("unravel_index: shape", lengths)
    rest, size = _integers(indices), prod(lengths)
    raise_if_any((rest < 0) | (rest >= size), ValueError, f"index is out of bounds for size {size}")
    found = []
    for length in lengths[:: -_direction(order)]:
        found.append(rest % length)
        rest = rest // length
    return tuple(found[:: -_direction(order)])


def _lengths(shape: Any) -> list[int]:
    return [operator.index(one) for one in (shape if isinstance(shape, tuple | list) else (shape,))]


def _check_size(name: str, lengths: list[int]) -> None:
    if prod(lengths) > np.iinfo(np.intp).max:
        raise ValueError(
            f"{name} {tuple(lengths)} has {prod(lengths)} elements, more than a 64-bit index can "
            f"address; use smaller lengths"
        )


def _direction(order: str) -> int:
    if order is None:
        return 1
    if order not in _ORDERS:
        raise ValueError(f"order must be 'C' or 'F', got {order!r}")
    return _ORDERS[order]


def _integers(index: Any) -> Any:
    given = index if hasattr(index, "dtype") else np.asarray(index)
    if given.dtype.kind not in "iub":
        raise TypeError("only int indices permitted")
    return given.astype(np.int64)


def _in_range(index: Any, length: int, mode: str) -> Any:
    if mode == "wrap":
        return index % length
    if mode == "clip":
        return clip(index, 0, length - 1) if hasattr(index, "node") else index.clip(0, length - 1)
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    raise_if_any((index < 0) | (index >= length), ValueError, "invalid entry in coordinates array")
    return index


def ix_(*args: Any) -> tuple[Any, ...]:
    """One vector as it is. ``NotImplementedError`` for several, which NumPy makes an open mesh."""
    if len(args) > 1:
        raise NotImplementedError("ix_: indices must be on the client; write x[rows][:, columns]")
    (given,) = args
    if given.ndim != 1:
        raise ValueError("Cross index must be 1 dimensional")
    return np.nonzero(given) if given.dtype == np.bool_ else (given,)


def triangle_indices(indices: Callable[..., Any]) -> Callable[..., Any]:
    """``indices`` of a triangle, of an array of this shape: the client computes them."""

    def function(arr: Any, k: int = 0) -> Any:
        if arr.ndim != 2:
            raise ValueError("input array must be 2-d")
        return indices(arr.shape[0], k=k, m=arr.shape[1])

    return function


def diagonal_indices(arr: Any) -> Any:
    """As ``numpy.diag_indices_from``: the client computes them."""
    if arr.ndim != 2:
        raise ValueError("input array must be at least 2-d")
    if arr.shape[0] != arr.shape[1]:
        raise ValueError("All dimensions of input must be of equal length")
    return np.diag_indices(len(arr), arr.ndim)


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
            f"{name}: axis= is not supported for a table; leave it out, for all elements row by row"
        )
    return reshape(a, (a.size,))
