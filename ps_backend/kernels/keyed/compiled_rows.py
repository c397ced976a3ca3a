"""Compiled loops over rows: at locations, sums of those of each key, and random initial values.

Rows are bytes, but for those that are added. All arguments are integers, among them addresses, so
that each loop is compiled once. What is needed ``_AHEAD`` rows later is asked for. Initial values
are computed operation for operation as in ``ps_backend.program.initializers``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from ps_backend.kernels.keyed.memory import (
    add_row,
    ask_for_row,
    copy_row,
    load_8,
    load_64,
    load_integer,
    row_at,
    store_double,
)
from ps_backend.program import philox
from ps_backend.program.initializers import (
    CENTRAL,
    CENTRE,
    FAR,
    LOG_2,
    LOG_TERMS,
    MIDDLE,
    OUTER,
    SMALLEST,
)

_AHEAD = 16
_WORD = 8

_compiled = njit(nogil=True, cache=True, error_model="numpy")


@_compiled
def _ask_ahead(blocks: Any, locations: Any, i: Any, count: Any, size: Any) -> None:
    location = load_integer(locations + min(i + _AHEAD, count - 1) * _WORD)
    if location >= 0:
        ask_for_row(row_at(blocks, location, size), size)


@_compiled
def gather(blocks: Any, locations: Any, count: Any, size: Any, rows: Any) -> None:
    """Copy the row at each location into ``rows``, but at -1 nothing."""
    for i in range(count):
        _ask_ahead(blocks, locations, i, count, size)
        location = load_integer(locations + i * _WORD)
        if location >= 0:
            copy_row(rows + i * size, row_at(blocks, location, size), size)


@_compiled
def replace(blocks: Any, locations: Any, count: Any, size: Any, rows: Any) -> None:
    """Copy each of ``rows`` to its location, but to -1 nothing."""
    for i in range(count):
        _ask_ahead(blocks, locations, i, count, size)
        location = load_integer(locations + i * _WORD)
        if location >= 0:
            copy_row(row_at(blocks, location, size), rows + i * size, size)


@_compiled
def add(blocks: Any, locations: Any, count: Any, size: Any, rows: Any, zero: Any) -> None:
    """Add each of ``rows``, of the type of ``zero``, to the row at its location."""
    for i in range(count):
        _ask_ahead(blocks, locations, i, count, size)
        location = load_integer(locations + i * _WORD)
        if location >= 0:
            add_row(row_at(blocks, location, size), rows + i * size, size, zero)


@_compiled
def sum_rows(which: Any, count: Any, size: Any, rows: Any, sums: Any, zero: Any) -> None:
    """``sums[which[k]] += rows[k]``, of the type of ``zero``, one after the other."""
    for k in range(count):
        target = sums + load_integer(which + k * _WORD) * size
        add_row(target, rows + k * size, size, zero)


@_compiled
def fill(blocks: Any, first: Any, counts: Any, row: Any, buckets: Any, size: Any) -> None:
    """Copy one row to the slots from ``first[b]`` to ``counts[b]`` of each bucket."""
    for bucket in range(buckets):
        block = load_integer(blocks + bucket * _WORD)
        low = load_integer(first + bucket * _WORD)
        for slot in range(low, load_integer(counts + bucket * _WORD)):
            copy_row(block + slot * size, row, size)


@_compiled
def keep(blocks: Any, starts: Any, counts: Any, low: Any, high: Any, size: Any, mask: Any) -> None:
    """Move the rows that ``mask`` names to the front of the blocks of buckets ``low`` to ``high``.

    The mask of bucket ``b`` is at ``starts[b]``, for its ``counts[b]`` rows.
    """
    for bucket in range(low, high):
        block = load_integer(blocks + bucket * _WORD)
        chosen = mask + load_integer(starts + bucket * _WORD)
        target = block
        for slot in range(load_integer(counts + bucket * _WORD)):
            if load_8(chosen + slot) != 0:
                source = block + slot * size
                if source != target:
                    copy_row(target, source, size)
                target += size


_M0, _M1 = (np.uint64(one) for one in philox.MULTIPLIERS)
_W0, _W1 = (np.uint64(one) for one in philox.WEYL)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_21, _11, _0 = np.uint64(21), np.uint64(11), np.uint64(0)
_ROUNDS, _TO_UNIT = philox.ROUNDS, philox.TO_UNIT


@_compiled
def fill_random(
    keys: Any,
    count: Any,
    columns: Any,
    seed: Any,
    is_normal: Any,
    offset: Any,
    scale: Any,
    numbers: Any,
) -> None:
    """``offset + scale * x`` of each key and column, float64, at the address ``numbers``."""
    k0, k1 = np.uint64(seed) & _LOW, np.uint64(seed) >> _32
    for i in range(count):
        key = load_64(keys + i * _WORD)
        out = numbers + i * columns * _WORD
        for column in range(0, columns, 2):
            first, second = _uniforms(key, np.uint64(column // 2), k0, k1)
            if is_normal:
                first = _normal(first)
            store_double(out + column * _WORD, first * scale + offset)
            if column + 1 < columns:
                if is_normal:
                    second = _normal(second)
                store_double(out + (column + 1) * _WORD, second * scale + offset)


@_compiled
def _uniforms(key: Any, half: Any, k0: Any, k1: Any) -> Any:
    c0, c1, c2, c3 = key & _LOW, key >> _32, half & _LOW, _0
    for _ in range(_ROUNDS):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    first, second = (c0 << _21) ^ (c1 >> _11), (c2 << _21) ^ (c3 >> _11)
    return np.float64(first) * _TO_UNIT, np.float64(second) * _TO_UNIT


@_compiled
def _normal(u: Any) -> Any:
    q = u - 0.5
    if abs(q) <= CENTRE:
        x = CENTRE * CENTRE - q * q
        return q * (_polynomial(CENTRAL[0], x) / _polynomial(CENTRAL[1], x))
    p = u if q < 0.0 else 1.0 - u
    r = math.sqrt(-_log(max(p, SMALLEST)))
    if r <= FAR:
        tail = _polynomial(MIDDLE[0], r - 1.6) / _polynomial(MIDDLE[1], r - 1.6)
    else:
        tail = _polynomial(OUTER[0], r - FAR) / _polynomial(OUTER[1], r - FAR)
    return -tail if q < 0.0 else tail


@_compiled
def _polynomial(coefficients: Any, x: Any) -> Any:
    value = coefficients[0]
    for k in range(1, len(coefficients)):
        value = value * x + coefficients[k]
    return value


@_compiled
def _log(x: Any) -> Any:
    mantissa, exponent = math.frexp(x)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    return exponent * LOG_2 + z * _polynomial(LOG_TERMS, z * z)
