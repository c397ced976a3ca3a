"""The loops over the hash tables of an index, compiled: see ``layout``.

All arguments are integers, among them addresses of contiguous arrays, so that each loop is
compiled once. A place in a table is a way to the main memory: what is needed ``_AHEAD`` keys later
is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ps_backend.kernels.keyed.layout import CROWDED, FACTOR_BITS, REST
from ps_backend.kernels.keyed.memory import (
    ask_for,
    load_64,
    load_integer,
    store_8,
    store_64,
    store_integer,
)
from ps_backend.program.keys import MULTIPLIERS, SHIFT

_AHEAD = 24
_FIRST, _SECOND = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
_FIRST_BACK, _SECOND_BACK = (np.uint64(pow(one, -1, 1 << 64)) for one in MULTIPLIERS)
_SHIFT = np.uint64(SHIFT)
_REST, _FACTOR_BITS = np.uint64(REST), np.uint64(FACTOR_BITS)
_REST_MASK = np.uint64((1 << REST) - 1)
_0, _1, _3 = np.uint64(0), np.uint64(1), np.uint64(3)
_WORD = 8
_ROW = 32  # bytes of a row of the directory
_32 = 32

_compiled = njit(nogil=True, cache=True)


@_compiled
def _mixed(key: Any) -> Any:
    """As ``program.keys.mixed``."""
    key = (key ^ (key >> _SHIFT)) * _FIRST
    key = (key ^ (key >> _SHIFT)) * _SECOND
    return key ^ (key >> _SHIFT)


@_compiled
def _unmixed(bits: Any) -> Any:
    bits = (bits ^ (bits >> _SHIFT)) * _SECOND_BACK
    bits = (bits ^ (bits >> _SHIFT)) * _FIRST_BACK
    return bits ^ (bits >> _SHIFT)


@_compiled
def _ask_for_home(key: Any, directory: Any) -> None:
    bits = _mixed(key)
    row = directory + np.int64(bits >> _REST) * _ROW
    spread = (bits & _REST_MASK) * load_64(row + 8)
    ask_for(load_integer(row) + np.int64(spread >> (_REST - load_64(row + 16))) * _WORD)


@_compiled
def find(keys: Any, count: Any, directory: Any, locations: Any) -> None:
    """The location of each key, or -1."""
    last = keys + (count - 1) * _WORD
    for i in range(min(count, _AHEAD)):
        _ask_for_home(load_64(keys + i * _WORD), directory)
    for i in range(count):
        at = keys + i * _WORD
        _ask_for_home(load_64(min(at + _AHEAD * _WORD, last)), directory)
        mixed = _mixed(load_64(at))
        bucket = np.int64(mixed >> _REST)
        row = directory + bucket * _ROW
        table, bits = load_integer(row), load_64(row + 16)
        end = table + load_integer(row + 24) * _WORD
        spread = (mixed & _REST_MASK) * load_64(row + 8)
        farther = _1 << (_REST - bits)
        place = table + np.int64(spread >> (_REST - bits)) * _WORD
        floor = farther
        wanted = (spread & (farther - _1)) | floor
        slot_bits = bits + _FACTOR_BITS
        location: Any = -1
        while True:
            entry = load_64(place)
            without = entry >> slot_bits
            if without == wanted:
                slot = entry & ((_1 << slot_bits) - _1)
                location = (bucket << _32) | np.int64(slot)
                break
            if without < floor:
                break
            wanted += farther
            floor += farther
            place += _WORD
            if place == end:
                place = table
        store_integer(locations + i * _WORD, location)


@_compiled
def insert(
    keys: Any,
    places: Any,
    begin: Any,
    count: Any,
    directory: Any,
    counts: Any,
    locations: Any,
    fresh: Any,
) -> Any:
    """Give slots to the keys at ``places[begin:count]``; a key that has one keeps it.

    Ends before ``count``, and says where, after a key that made a table too crowded.
    """
    for j in range(begin, count):
        later = load_integer(places + min(j + _AHEAD, count - 1) * _WORD)
        _ask_for_home(load_64(keys + later * _WORD), directory)
        i = load_integer(places + j * _WORD)
        mixed = _mixed(load_64(keys + i * _WORD))
        bucket = np.int64(mixed >> _REST)
        row = directory + bucket * _ROW
        slot = load_integer(counts + bucket * _WORD)
        spread = (mixed & _REST_MASK) * load_64(row + 8)
        found, farthest = _put(row, spread, np.uint64(slot))
        if found < 0:
            store_integer(counts + bucket * _WORD, slot + 1)
            store_8(fresh + i, np.uint8(1))
            found = slot
        store_integer(locations + i * _WORD, (bucket << _32) | found)
        if farthest >= CROWDED:
            return j + 1
    return count


@_compiled
def _put(row: Any, spread: Any, slot: Any) -> Any:
    """Add an entry to a table that has room for it, unless its key is there.

    Returns the slot that the key has already, or -1, and how far from home any entry came.
    """
    table, bits = load_integer(row), load_64(row + 16)
    end = table + load_integer(row + 24) * _WORD
    slot_bits = bits + _FACTOR_BITS
    farther = _1 << (_REST - bits)
    place = table + np.int64(spread >> (_REST - bits)) * _WORD
    floor = farther
    wanted = (spread & (farther - _1)) | floor
    distance = 0
    while True:
        entry = load_64(place)
        without = entry >> slot_bits
        if without == wanted:
            return np.int64(entry & ((_1 << slot_bits) - _1)), distance
        if without < floor:
            break
        wanted += farther
        floor += farther
        distance += 1
        place += _WORD
        if place == end:
            place = table
    farthest: Any = distance
    moving = (wanted << slot_bits) | slot
    far = np.uint64(64 - 7)
    while True:
        # `moving` takes the place of an entry nearer to its home, which moves on.
        store_64(place, moving)
        if entry == _0:
            return -1, farthest
        moving = entry
        while True:
            moving += farther << slot_bits
            farthest = max(farthest, np.int64(moving >> far) - 1)
            place += _WORD
            if place == end:
                place = table
            entry = load_64(place)
            if (entry >> far) < (moving >> far):
                break


@_compiled
def rebuild(row: Any, new_row: Any, slots: Any) -> Any:
    """Put the entries of one table into another, empty one; ``slots``, if not 0, renumbers them.

    Entries whose new number is -1 are left out. Returns how far from home any entry came, and
    stops where that is too far.
    """
    table, factor, bits = load_integer(row), load_64(row + 8), load_64(row + 16)
    new_factor = load_64(new_row + 8)
    slot_mask = (_1 << (bits + _FACTOR_BITS)) - _1
    capacity = load_integer(row + 24)
    farthest: Any = 0
    for place in range(capacity):
        entry = load_64(table + place * _WORD)
        if entry == _0:
            continue
        slot = np.int64(entry & slot_mask)
        if slots != 0:
            slot = load_integer(slots + slot * _WORD)
            if slot < 0:
                continue
        rest = _rest_of(entry, place, factor, bits, capacity)
        _, distance = _put(new_row, rest * new_factor, np.uint64(slot))
        farthest = max(farthest, distance)
        if farthest >= CROWDED:
            return farthest
    return farthest


@_compiled
def _rest_of(entry: Any, place: Any, factor: Any, bits: Any, capacity: Any) -> Any:
    """The mixed key of an entry, without the bits of its bucket."""
    home = place - (np.int64(entry >> np.uint64(57)) - 1)
    if home < 0:
        home += capacity
    remainder = (entry >> (bits + _FACTOR_BITS)) & ((_1 << (_REST - bits)) - _1)
    return ((np.uint64(home) << (_REST - bits)) | remainder) // factor


@_compiled
def keys_from(directory: Any, buckets: Any, first: Any, starts: Any, keys: Any) -> None:
    """The keys of slots ``first[b]`` and up of each bucket, in ``keys[starts[b]:]``."""
    for bucket in range(buckets):
        row = directory + bucket * _ROW
        table, factor, bits = load_integer(row), load_64(row + 8), load_64(row + 16)
        capacity = load_integer(row + 24)
        slot_mask = (_1 << (bits + _FACTOR_BITS)) - _1
        low = load_integer(first + bucket * _WORD)
        out = keys + (load_integer(starts + bucket * _WORD) - low) * _WORD
        for place in range(capacity):
            entry = load_64(table + place * _WORD)
            slot = np.int64(entry & slot_mask)
            if entry != _0 and slot >= low:
                rest = _rest_of(entry, place, factor, bits, capacity)
                key = _unmixed((np.uint64(bucket) << _REST) | rest)
                store_64(out + slot * _WORD, key)
