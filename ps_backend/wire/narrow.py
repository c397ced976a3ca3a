"""Rows of floats that travel in fewer bytes than they are kept in.

==========  ======================================================================================
"float32"   of float64 rows half the bytes
"float16"   half or a quarter; what is beyond 65,504 becomes that
"int8"      a quarter or an eighth: integers from -127 to 127, times a float32 for every 256 columns
            of a row, the largest of which becomes 127; all of those are NaN where one is none,
            or infinite
==========  ======================================================================================

What is pushed may be rounded up or down at random, so that the mean of many pushes is right. The
random bits are Philox's of a key that the sender draws once, so a repeat has the same bits; and
each row is rounded by itself, so the number of servers does not show. What is not narrowed by a
kind, such as integers, travels as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.program.types import FLOATS, ValueType

Array = npt.NDArray[Any]

KINDS = ("float32", "float16", "int8")
_GROUP = 256
"""Columns that have one scale in common."""
_AT_ONCE = 1 << 18
"""Bytes of rows that are narrowed at a time, on servers: what this takes besides is a few of it."""
_LARGEST_16 = 65504.0
_MOST_8 = 127


def check_kind(kind: str) -> str:
    """``kind``, or ``InvalidProgram`` for none; empty for what is not narrowed."""
    if kind and kind not in KINDS:
        raise InvalidProgram(f"rows do not travel as {kind!r}, but as {', '.join(KINDS)}")
    return kind


def travelling(type: ValueType, kind: str) -> tuple[ValueType, ...]:
    """The types of what travels for rows of ``type``, one array of rows after the other."""
    if not _narrows(type, kind):
        return (type,)
    if kind != "int8":
        return (ValueType(kind, type.row),)
    return ValueType("float32", (-(-type.row[0] // _GROUP),)), ValueType("int8", type.row)


def _narrows(type: ValueType, kind: str) -> bool:
    if type.dtype not in FLOATS or not kind:
        return False
    if kind == "int8":
        return bool(type.row)
    return np.dtype(kind).itemsize < np.dtype(type.dtype).itemsize


def narrowed(
    rows: Array, type: ValueType, kind: str, key: int | None = None
) -> list[npt.NDArray[Any]]:
    """What travels for ``rows``; rounded at random by the bits of ``key``, or to the nearest."""
    if not _narrows(type, kind):
        return [rows]
    bits = None if key is None else np.random.Philox(key=key)
    with np.errstate(all="ignore"):
        if kind == "int8":
            return _as_integers(rows, bits)
        return [_as_floats(rows, np.dtype(kind), bits)]


def narrow(rows: Array, type: ValueType, kind: str, parts: Sequence[Array]) -> None:
    """Write what travels for ``rows``, rounded to the nearest, into ``parts``; some at a time."""
    step = max(1, _AT_ONCE // max(1, type.row_bytes))
    for low in range(0, len(rows), step):
        some = slice(low, low + step)
        for part, found in zip(parts, narrowed(rows[some], type, kind), strict=True):
            part[some] = found


def widened(parts: Sequence[Array], type: ValueType, kind: str) -> Array:
    """The rows that ``parts`` stand for."""
    if not _narrows(type, kind):
        return parts[0]
    rows = np.empty((len(parts[0]), *type.row), type.dtype)
    widen(parts, type, kind, rows)
    return rows


def widen(parts: Sequence[Array], type: ValueType, kind: str, rows: Array) -> None:
    """Write the rows that ``parts`` stand for, which are narrower, into ``rows``."""
    if kind != "int8":
        rows[...] = parts[0]
        return
    scales, integers = parts
    with np.errstate(invalid="ignore"):
        for group in range(scales.shape[1]):
            some = np.s_[:, group * _GROUP : (group + 1) * _GROUP]
            scale = scales[:, group : group + 1]
            np.multiply(integers[some], scale, out=rows[some], dtype=type.dtype)


def _as_floats(rows: Array, kind: np.dtype[Any], bits: np.random.Philox | None) -> Array:
    if bits is not None:
        rows = _shaken(rows, kind, bits)
    if kind == np.float16:
        rows = np.where(np.isfinite(rows), np.clip(rows, -_LARGEST_16, _LARGEST_16), rows)
    return rows.astype(kind)


def _shaken(rows: Array, kind: np.dtype[Any], bits: np.random.Philox) -> Array:
    """Rows whose digits that ``kind`` has not are gone: rounded up as often as they are large."""
    wide = rows.dtype.itemsize * 8
    lost = np.finfo(rows.dtype).nmant - np.finfo(kind).nmant
    words = np.dtype(f"uint{wide}")
    drawn = bits.random_raw(-(-rows.size * wide // 64)).view(words)[: rows.size]
    drawn = drawn.reshape(rows.shape)
    mask = words.type((1 << lost) - 1)
    pattern = np.ascontiguousarray(rows).view(words)
    moved = ((pattern + (drawn & mask)) & ~mask).view(rows.dtype)
    moved = np.where(np.isfinite(rows), moved, rows)
    small = (np.abs(rows) < float(np.finfo(kind).tiny)) & (rows != 0)
    if small.any():  # of fewer digits in ``kind``: they are rounded to multiples of its least
        least = float(np.finfo(kind).smallest_subnormal)
        below_one = (drawn[small] >> words.type(wide - 32)) * 2.0**-32
        moved[small] = np.floor(rows[small] / least + below_one) * least
    return moved


def _as_integers(rows: Array, bits: np.random.Philox | None) -> list[Array]:
    count, columns = rows.shape
    groups = -(-columns // _GROUP)
    starts = np.arange(0, columns, _GROUP)
    largest = np.maximum.reduceat(np.abs(rows), starts, axis=1) if count else np.zeros((0, groups))
    most = np.where(np.isfinite(largest), np.finfo(np.float32).max, np.inf)
    scales = np.minimum(largest / _MOST_8, most).astype(np.float32)
    wide = np.repeat(scales, _GROUP, axis=1)[:, :columns] if groups > 1 else scales
    ratios = np.divide(rows, wide, out=np.zeros_like(rows), where=wide > 0)
    if bits is None:
        whole = np.rint(ratios)
    else:
        drawn = bits.random_raw(-(-rows.size // 2)).view(np.uint32)[: rows.size]
        whole = np.floor(ratios + drawn.reshape(rows.shape) * rows.dtype.type(2.0**-32))
    whole = np.where(np.isfinite(whole), np.clip(whole, -_MOST_8, _MOST_8), 0)
    return [scales, whole.astype(np.int8)]
