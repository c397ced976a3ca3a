"""The loops over the hash tables of an index, compiled: see ``table_format``.

All arguments are integers, among them addresses of contiguous arrays, so that each loop is
compiled once. A place in a table is a way to the main memory: what is needed ``_AHEAD`` keys later
is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ps_backend.kernels.keyed.memory import (
    ask_for,
    load_64,
    load_integer,
    store_8,
    store_64,
    store_integer,
)
from ps_backend.kernels.keyed.table_format import CROWDED, FACTOR_BITS, FAR_BITS, REST
from ps_backend.program.keys import MULTIPLIERS, SHIFT

_AHEAD = 16
_FIRST, _SECOND = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
_FIRST_BACK, _SECOND_BACK = (np.uint64(pow(one, -1, 1 << 64)) for one in MULTIPLIERS)
_SHIFT = np.uint64(SHIFT)
_REST, _FACTOR_BITS = np.uint64(REST), np.uint64(FACTOR_BITS)
_REST_MASK = np.uint64((1 << REST) - 1)
_0, _1, _2 = np.uint64(0), np.uint64(1), np.uint64(2)
_FAR = np.uint64(64 - FAR_BITS)
_CROWDED = np.uint64((CROWDED + 1) << (64 - FAR_BITS))
_MOST_BEHIND = CROWDED
_LEFT_OUT = np.uint64((1 << 64) - 1)
_SLOT_BITS = np.uint64(32)
_WORD = 8
_OFTEN_PAST = 4 * _WORD
_ROW = 32  # bytes of a row of the directory

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
def _ask_for_home(mixed: Any, directory: Any) -> None:
    row = directory + np.int64(mixed >> _REST) * _ROW
    spread = (mixed & _REST_MASK) * load_64(row + 8)
    place = load_integer(row) + np.int64(spread >> (_REST - load_64(row + 16))) * _WORD
    ask_for(place)
    ask_for(place + _OFTEN_PAST)


@_compiled
def _look(mixed: Any, directory: Any) -> Any:
    """Where a key's entry is, or would be: its address, what is there, and what is looked for.

    The last two without slots, and how many bits these have.
    """
    row = directory + np.int64(mixed >> _REST) * _ROW
    bits = load_64(row + 16)
    slot_bits = bits + _FACTOR_BITS
    spread = (mixed & _REST_MASK) * load_64(row + 8)
    farther = _1 << (_REST - bits)
    place = load_integer(row) + np.int64(spread >> (_REST - bits)) * _WORD
    wanted = (~spread & (farther - _1)) | farther
    there = load_64(place) >> slot_bits
    while there > wanted:
        wanted += farther
        place += _WORD
        there = load_64(place) >> slot_bits
    return place, there, wanted, slot_bits


@_compiled
def find(keys: Any, count: Any, directory: Any, locations: Any) -> None:
    """The location of each key, or -1."""
    for i in range(count):
        _ask_for_home(_mixed(load_64(keys + min(i + _AHEAD, count - 1) * _WORD)), directory)
        mixed = _mixed(load_64(keys + i * _WORD))
        place, there, wanted, slot_bits = _look(mixed, directory)
        location: Any = -1
        if there == wanted:
            slot = load_64(place) & ((_1 << slot_bits) - _1)
            location = np.int64(((mixed >> _REST) << _SLOT_BITS) | slot)
        store_integer(locations + i * _WORD, location)


@_compiled
def remove(keys: Any, count: Any, directory: Any) -> Any:
    """Take the entries of keys out, and return how many were there.

    Those behind an entry that are not at home move one place back.
    """
    nearer = _1 << _FAR
    removed: Any = 0
    for i in range(count):
        _ask_for_home(_mixed(load_64(keys + min(i + _AHEAD, count - 1) * _WORD)), directory)
        mixed = _mixed(load_64(keys + i * _WORD))
        place, there, wanted, _ = _look(mixed, directory)
        if there == wanted:
            behind = load_64(place + _WORD)
            while behind >> _FAR > _1:
                store_64(place, behind - nearer)
                place += _WORD
                behind = load_64(place + _WORD)
            store_64(place, _0)
            removed += 1
    return removed


@_compiled
def count_missing(keys: Any, count: Any, locations: Any, missing: Any) -> None:
    """Add to ``missing``, of each bucket, the keys whose location is -1."""
    for i in range(count):
        if load_integer(locations + i * _WORD) < 0:
            bucket = np.int64(_mixed(load_64(keys + i * _WORD)) >> _REST)
            at = missing + bucket * _WORD
            store_integer(at, load_integer(at) + 1)


@_compiled
def insert(
    keys: Any,
    begin: Any,
    count: Any,
    directory: Any,
    counts: Any,
    locations: Any,
    fresh: Any,
) -> Any:
    """Give slots to those keys from ``begin`` on whose location is -1.

    Returns ``count``; or, after a key that made a table too crowded, how many are done, negative.
    """
    for i in range(begin, count):
        _ask_for_home(_mixed(load_64(keys + min(i + _AHEAD, count - 1) * _WORD)), directory)
        if load_integer(locations + i * _WORD) >= 0:
            continue
        mixed = _mixed(load_64(keys + i * _WORD))
        place, there, wanted, slot_bits = _look(mixed, directory)
        bucket = mixed >> _REST
        if there == wanted:  # it came twice
            slot = load_64(place) & ((_1 << slot_bits) - _1)
            store_integer(locations + i * _WORD, np.int64((bucket << _SLOT_BITS) | slot))
            continue
        at = counts + np.int64(bucket) * _WORD
        slot = load_64(at)
        store_64(at, slot + _1)
        store_8(fresh + i, np.uint8(1))
        store_integer(locations + i * _WORD, np.int64((bucket << _SLOT_BITS) | slot))
        farther = _1 << _FAR
        moving = (wanted << slot_bits) | slot
        farthest = moving
        entry = load_64(place)
        while entry != _0:
            store_64(place, moving)
            moving = entry + farther
            farthest = max(farthest, moving)
            place += _WORD
            entry = load_64(place)
        store_64(place, moving)
        if farthest >= _CROWDED:
            return -1 - i
    return count


@_compiled
def rebuild(rows: Any, new_rows: Any, count: Any, slots: Any) -> Any:
    """Put the entries of some tables into others, empty ones; ``slots``, if not 0, renumbers them.

    ``rows`` are addresses of rows of a directory, ``new_rows`` is that of as many rows; ``slots``
    that of as many addresses, at each of which are the numbers of one table. Entries whose new
    number is -1 are left out. Returns of how many tables, counted from the first, all entries have
    found a place near their homes.
    """
    for k in range(count):
        numbers = load_integer(slots + k * _WORD) if slots != 0 else slots
        if not _rebuild(load_integer(rows + k * _WORD), new_rows + k * _ROW, numbers):
            return k
    return count


@_compiled
def _rebuild(row: Any, new_row: Any, slots: Any) -> Any:
    table, factor, bits = load_integer(row), load_64(row + 8), load_64(row + 16)
    slot_mask = (_1 << (bits + _FACTOR_BITS)) - _1
    new_table, new_factor, new_bits = (
        load_integer(new_row),
        load_64(new_row + 8),
        load_64(new_row + 16),
    )
    new_remainder = _REST - new_bits
    new_mask = (_1 << new_remainder) - _1
    halved, inverse = _to_divide_by(factor)
    free: Any = 0
    for place in range(load_integer(row + 24)):
        entry = load_64(table + place * _WORD)
        slot = entry & slot_mask
        there = entry != _0
        if slots != 0 and there:
            slot = load_64(slots + np.int64(slot) * _WORD)
            there = slot != _LEFT_OUT
        spread = ((_spread_of(entry, place, bits) >> halved) * inverse) * new_factor
        home = np.int64(spread >> new_remainder)
        # Without a branch on what is random: nothing is written where there is nothing.
        free = max(free, home) if there else free
        far = np.uint64(free - home + 1) << new_remainder
        moved = ((far | (~spread & new_mask)) << (new_bits + _FACTOR_BITS)) | slot
        store_64(new_table + free * _WORD, moved if there else _0)
        if there and free - home >= _MOST_BEHIND:
            return False
        free += np.int64(there)
    return True


@_compiled
def _to_divide_by(factor: Any) -> Any:
    """A shift to the right, and then a multiplication: of a multiple of ``factor``."""
    halved = _0
    while factor & _1 == _0:
        factor >>= _1
        halved += _1
    inverse = factor  # modulo 8; each step doubles the bits
    for _ in range(5):
        inverse *= _2 - factor * inverse
    return halved, inverse


@_compiled
def _spread_of(entry: Any, place: Any, bits: Any) -> Any:
    """The mixed key of an entry, without the bits of its bucket, times the factor."""
    remainder_bits = _REST - bits
    home = np.uint64(place) + _1 - (entry >> _FAR)
    return (home << remainder_bits) | (
        ~(entry >> (bits + _FACTOR_BITS)) & ((_1 << remainder_bits) - _1)
    )


@_compiled
def keys_from(directory: Any, begin: Any, end: Any, first: Any, starts: Any, keys: Any) -> None:
    """The keys of slots ``first[b]`` and up of buckets ``begin`` to ``end``, in
    ``keys[starts[b]:]``."""
    for bucket in range(begin, end):
        row = directory + bucket * _ROW
        table, factor, bits = load_integer(row), load_64(row + 8), load_64(row + 16)
        halved, inverse = _to_divide_by(factor)
        slot_mask = (_1 << (bits + _FACTOR_BITS)) - _1
        low = load_integer(first + bucket * _WORD)
        out = keys + (load_integer(starts + bucket * _WORD) - low) * _WORD
        for place in range(load_integer(row + 24)):
            entry = load_64(table + place * _WORD)
            slot = np.int64(entry & slot_mask)
            if entry != _0 and slot >= low:
                rest = (_spread_of(entry, place, bits) >> halved) * inverse
                store_64(out + slot * _WORD, _unmixed((np.uint64(bucket) << _REST) | rest))


@_compiled
def mark_slots(directory: Any, buckets: Any, starts: Any, marks: Any) -> None:
    """Set ``marks[starts[b] + slot]`` of each key of each bucket."""
    for bucket in range(buckets):
        row = directory + bucket * _ROW
        table, bits = load_integer(row), load_64(row + 16)
        slot_mask = (_1 << (bits + _FACTOR_BITS)) - _1
        first = marks + load_integer(starts + bucket * _WORD)
        for place in range(load_integer(row + 24)):
            entry = load_64(table + place * _WORD)
            if entry != _0:
                store_8(first + np.int64(entry & slot_mask), np.uint8(1))
