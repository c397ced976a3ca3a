"""Rows of floats that travel in fewer bytes than they are kept in.

==========  ======================================================================================
"float32"   of float64 rows half the bytes
"float16"   half or a quarter
"int8"      a quarter or an eighth: integers from -127 to 127, times a float32, the scale, for every
            256 columns of a row, the largest of which becomes 127
==========  ======================================================================================

Of every kind, NaN and infinities arrive as what they are, and change nothing else of their row. A
number beyond the largest one of the kind becomes infinite, as by NumPy's ``astype``: of float16
from 65,520 on, of the others, as rows are float64, beyond float32's largest or 127 times that. A
scale whose sign bit is set is of columns with such values: there -128 stands for NaN, and 127 and
-127 for the infinities, while the largest finite number becomes 126.

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
_MOST_8 = 127
_MOST_BESIDE_OTHERS = 126
"""The largest integer for a finite number in columns that hold others, too."""
_NAN_8 = -128
_LARGEST_32 = float(np.finfo(np.float32).max)


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
    with np.errstate(invalid="ignore", over="ignore"):  # of what stands for no number
        for group in range(scales.shape[1]):
            some = np.s_[:, group * _GROUP : (group + 1) * _GROUP]
            scale = scales[:, group : group + 1]
            np.multiply(integers[some], np.abs(scale), out=rows[some], dtype=type.dtype)
            marked = np.signbit(scale)
            if marked.any():
                for integer, value in _NOT_FINITE.items():
                    np.copyto(rows[some], value, where=marked & (integers[some] == integer))


_NOT_FINITE = {_NAN_8: np.nan, _MOST_8: np.inf, -_MOST_8: -np.inf}
"""By the integer that stands for it."""


def _as_floats(rows: Array, kind: np.dtype[Any], bits: np.random.Philox | None) -> Array:
    if bits is not None:
        rows = _shaken(rows, kind, bits)
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
    moved = np.where(np.abs(rows) <= float(np.finfo(kind).max), moved, rows)
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
    limit = rows.dtype.type(min(_MOST_8 * _LARGEST_32, float(np.finfo(rows.dtype).max)))
    sizes = np.abs(rows)
    largest = np.maximum.reduceat(sizes, starts, axis=1) if count else np.zeros((0, groups))
    marked, most = ~(largest <= limit), np.full((count, groups), _MOST_8, np.int8)
    others = None
    if marked.any():
        others = ~(sizes <= limit)
        sizes[others] = 0
        largest = np.maximum.reduceat(sizes, starts, axis=1)
        most[marked] = _MOST_BESIDE_OTHERS
    scales = np.minimum(largest / most, _LARGEST_32).astype(np.float32)
    own = scales.astype(rows.dtype)
    beyond = np.isinf(own * most.astype(rows.dtype))  # rounded up, where nothing is above
    scales[beyond] = np.nextafter(own[beyond], rows.dtype.type(0))
    wide = _repeat_groups(scales, columns)
    ratios = np.divide(rows, wide, out=np.zeros_like(rows), where=wide > 0)
    if bits is None:
        whole = np.rint(ratios)
    else:
        drawn = bits.random_raw(-(-rows.size // 2)).view(np.uint32)[: rows.size]
        whole = np.floor(ratios + drawn.reshape(rows.shape) * rows.dtype.type(2.0**-32))
    most = _repeat_groups(most, columns)
    whole = np.clip(whole, -most, most)
    if others is not None:
        whole[others] = np.where(np.isnan(rows), _NAN_8, np.copysign(_MOST_8, rows))[others]
        scales[marked] = -scales[marked]
    return [scales, whole.astype(np.int8)]


def _repeat_groups(groups: Array, columns: int) -> Array:
    """What is said of groups of columns, for each column."""
    return np.repeat(groups, _GROUP, axis=1)[:, :columns] if groups.shape[1] > 1 else groups
