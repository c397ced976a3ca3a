"""The loops over rows at locations, compiled: rows are bytes, but for those that are added.

All arguments are integers, among them addresses, so that each loop is compiled once. What is
needed ``_AHEAD`` rows later is asked for.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from ps_backend.kernels.keyed.memory import (
    ask_for,
    copy,
    load_8,
    load_16,
    load_32,
    load_64,
    load_double,
    load_integer,
    load_single,
    store_8,
    store_16,
    store_32,
    store_64,
    store_double,
    store_integer,
    store_single,
)

_AHEAD = 16
_LINE, _LONGEST = 64, 512  # bytes
_SLOT_BITS, _SLOT_MASK = 32, (1 << 32) - 1
_WORD = 8

_compiled = njit(nogil=True, cache=True)


@_compiled
def _place(blocks: Any, location: Any, size: Any) -> Any:
    """Where a row lies."""
    block = load_integer(blocks + (location >> _SLOT_BITS) * _WORD)
    return block + (location & _SLOT_MASK) * size


@_compiled
def _ask_for_row(blocks: Any, locations: Any, i: Any, count: Any, size: Any) -> None:
    location = load_integer(locations + min(i + _AHEAD, count - 1) * _WORD)
    if location >= 0:
        place = _place(blocks, location, size)
        for more in range(0, min(size, _LONGEST), _LINE):
            ask_for(place + more)
        ask_for(place + size - 1)


@_compiled
def _move(target: Any, source: Any, size: Any) -> None:
    """Copy a row."""
    if size == 8:
        store_64(target, load_64(source))
    elif size == 4:
        store_32(target, load_32(source))
    elif size == 2:
        store_16(target, load_16(source))
    elif size == 1:
        store_8(target, load_8(source))
    elif size == 64:
        copy(target, source, 64)
    else:
        copy(target, source, size)


@_compiled
def gather(blocks: Any, locations: Any, count: Any, size: Any, rows: Any) -> None:
    """Copy the row at each location into ``rows``, but at -1 nothing."""
    for i in range(count):
        _ask_for_row(blocks, locations, i, count, size)
        location = load_integer(locations + i * _WORD)
        if location >= 0:
            _move(rows + i * size, _place(blocks, location, size), size)


@_compiled
def replace(blocks: Any, locations: Any, count: Any, size: Any, rows: Any) -> None:
    """Copy each of ``rows`` to its location, but to -1 nothing."""
    for i in range(count):
        _ask_for_row(blocks, locations, i, count, size)
        location = load_integer(locations + i * _WORD)
        if location >= 0:
            _move(_place(blocks, location, size), rows + i * size, size)


@_compiled
def add_double(blocks: Any, locations: Any, count: Any, size: Any, rows: Any) -> None:
    """Add rows of float64."""
    for i in range(count):
        _ask_for_row(blocks, locations, i, count, size)
        location = load_integer(locations + i * _WORD)
        if location >= 0:
            target, source = _place(blocks, location, size), rows + i * size
            for at in range(0, size, 8):
                store_double(target + at, load_double(target + at) + load_double(source + at))


@_compiled
def add_single(blocks: Any, locations: Any, count: Any, size: Any, rows: Any) -> None:
    """Add rows of float32."""
    for i in range(count):
        _ask_for_row(blocks, locations, i, count, size)
        location = load_integer(locations + i * _WORD)
        if location >= 0:
            target, source = _place(blocks, location, size), rows + i * size
            for at in range(0, size, 4):
                store_single(target + at, load_single(target + at) + load_single(source + at))


@_compiled
def add_integer(blocks: Any, locations: Any, count: Any, size: Any, rows: Any) -> None:
    """Add rows of int64 or uint64."""
    for i in range(count):
        _ask_for_row(blocks, locations, i, count, size)
        location = load_integer(locations + i * _WORD)
        if location >= 0:
            target, source = _place(blocks, location, size), rows + i * size
            for at in range(0, size, 8):
                total = load_integer(target + at) + load_integer(source + at)
                store_integer(target + at, total)


@_compiled
def fill(blocks: Any, first: Any, counts: Any, row: Any, buckets: Any, size: Any) -> None:
    """Copy one row to the slots from ``first[b]`` to ``counts[b]`` of each bucket."""
    for bucket in range(buckets):
        block = load_integer(blocks + bucket * _WORD)
        low = load_integer(first + bucket * _WORD)
        for slot in range(low, load_integer(counts + bucket * _WORD)):
            _move(block + slot * size, row, size)
