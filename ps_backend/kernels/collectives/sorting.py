"""Sorted runs of keys: unsigned integers in the order of the elements, sorted and merged.

The order of keys is total, so a sort has the same bits whoever does which part of it: NaN, which is
one key, comes last; -0.0 comes before 0.0, or is equal to it. Integers are compared at once, in
vector registers, where floats would need care. A run may carry the index of each key along; then
equal keys stay in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives.partition import uses_compiled_loops

Array = npt.NDArray[Any]

COMPILED_FROM = 1 << 16
"""Elements that compiled loops are used for, if they are not loaded yet: NumPy takes a millisecond
or two for fewer."""


def is_worth_compiling(count: int) -> bool:
    """Whether loops over so many elements should be compiled, and can be."""
    return uses_compiled_loops(count, COMPILED_FROM)


def key_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Of the keys of elements of ``dtype``: as wide as these."""
    return np.dtype(f"u{dtype.itemsize}")


def encode_keys(
    x: Array, keys: Array, *, descending: bool = False, equal_zeros: bool = False
) -> None:
    """Write the key of each element of the vector ``x`` to ``keys``.

    ``descending``: in the opposite order. ``equal_zeros``: -0.0 has the key of 0.0.
    """
    dtype = keys.dtype
    sign, flip = _sign(x.dtype), _all_ones(dtype) if descending else dtype.type(0)
    if x.dtype.kind != "f":
        np.bitwise_xor(x.view(dtype), sign ^ flip, out=keys)
        return
    infinity = np.array(np.inf, x.dtype).view(dtype)[()]
    nan = infinity | (infinity >> dtype.type(1)) | sign
    for low in range(0, len(x), _NEAR):
        floats, block = x[low : low + _NEAR], keys[low : low + _NEAR]
        is_nan = np.isnan(floats)
        if equal_zeros:
            np.add(floats, 0.0, out=block.view(x.dtype))  # of -0.0 that is 0.0
        else:
            np.copyto(block, floats.view(dtype))
        mask = _all_ones_if_signed(block)
        mask |= sign
        block ^= mask
        if is_nan.any():
            block[is_nan] = nan
    if descending:
        np.invert(keys, out=keys)


def decode_keys(keys: Array, x: Array, *, descending: bool = False) -> None:
    """Write the elements that have ``keys`` to the vector ``x``, which may be the same memory."""
    bits, dtype = x.view(keys.dtype), keys.dtype
    sign, flip = _sign(x.dtype), _all_ones(dtype) if descending else dtype.type(0)
    if x.dtype.kind != "f":
        np.bitwise_xor(keys, sign ^ flip, out=bits)
        return
    for low in range(0, len(x), _NEAR):
        number, block = keys[low : low + _NEAR], bits[low : low + _NEAR]
        if descending:
            number = ~number
        mask = _all_ones_if_signed(number)
        np.invert(mask, out=mask)
        mask |= sign
        np.bitwise_xor(number, mask, out=block)


def _all_ones_if_signed(numbers: Array) -> Array:
    """Of unsigned integers: all bits where the first one is set, else none."""
    signed = numbers.view(f"i{numbers.itemsize}")
    shifted: Array = (signed >> signed.dtype.type(8 * numbers.itemsize - 1)).view(numbers.dtype)
    return shifted


def _sign(dtype: np.dtype[Any]) -> Any:
    """What makes unsigned integers of what ``dtype`` has: its sign, if there is one."""
    unsigned = key_dtype(dtype)
    return unsigned.type(1 << (8 * dtype.itemsize - 1) if dtype.kind in "if" else 0)


def _all_ones(dtype: np.dtype[Any]) -> Any:
    return dtype.type(np.iinfo(dtype).max)


_NEAR = 1 << 14
"""Keys that are computed in one go: they stay in the nearest cache."""
_BLOCK = 1 << 18
"""Keys that are merged in one go: they stay in the caches for who decodes them."""
_BYTE = np.dtype(np.uint8)


class SortedRun(NamedTuple):
    """Keys, and an index for each, or None."""

    keys: Array
    indices: Any = None

    def part(self, low: int, high: int) -> SortedRun:
        """Those from ``low`` to ``high``."""
        return SortedRun(
            self.keys[low:high], None if self.indices is None else self.indices[low:high]
        )


def sort(keys: Array) -> None:
    """Sort keys in place."""
    # NumPy's quick sort is vectorised from 16 bits on; of bytes its radix sort is the quick one.
    keys.sort(kind="stable" if keys.itemsize == _BYTE.itemsize else None)


def sorts_elements(dtype: np.dtype[Any], *, descending: bool) -> bool:
    """Whether ``sort_into`` sorts elements of ``dtype`` as quickly as their keys."""
    return not descending and dtype != np.float16


def sort_into(x: Array, out: Array, *, equal_zeros: bool = False) -> None:
    """Write the elements of ``x`` to ``out`` in the order of their keys, with the same bits."""
    np.copyto(out, x)
    sort(out)
    if out.dtype.kind == "f":
        zero, nan = out.dtype.type(0), out.dtype.type(np.nan)
        out[np.searchsorted(out, nan) :] = nan  # keys tell no NaN from another
        zeros = out[np.searchsorted(out, zero) : np.searchsorted(out, zero, "right")]
        zeros[:] = 0.0
        if len(zeros) and not equal_zeros:  # counted before: vectorised sorts lose their signs
            bits = x.view(key_dtype(x.dtype))
            zeros[: np.count_nonzero(bits == _sign(x.dtype))] = -0.0


_FEW_RANKS = 8
"""So many are selected one by one; to sort all takes less time for more."""


def at_ranks(x: Array, ranks: npt.NDArray[np.int64], room: Array) -> Array:
    """The elements of ``x`` at ``ranks`` of the order of their keys; ``room`` for a copy of it."""
    np.copyto(room, x)
    different = np.unique(ranks)
    if len(different) > _FEW_RANKS:
        sort(room)
    else:
        _select(room, different)
    found: Array = room[ranks]
    if x.dtype.kind == "f":
        found[np.isnan(found)] = np.nan  # keys tell no NaN from another
        is_zero = found == 0
        if is_zero.any():
            bits = x.view(key_dtype(x.dtype))
            below = np.count_nonzero(x < 0) + np.count_nonzero(bits == _sign(x.dtype))
            found[is_zero] = np.where(ranks[is_zero] < below, -0.0, 0.0)
    return found


def _select(x: Array, ranks: npt.NDArray[np.int64]) -> None:
    """Put at ascending ``ranks`` what a sort does. NumPy selects one rank in vector registers."""
    if not len(ranks):
        return
    middle = len(ranks) // 2
    rank = int(ranks[middle])
    x.partition(rank)
    _select(x[:rank], ranks[:middle])
    _select(x[rank + 1 :], ranks[middle + 1 :] - (rank + 1))


def find_order(keys: Array, order: npt.NDArray[np.uint64]) -> None:
    """Write to ``order`` where each key stands: ``np.argsort(keys, kind="stable")``.

    The leading bits of a key, counted from the first that is not the same in all, and behind them
    the place of the key make one number. Vectorised sorts take numbers alone. Keys that such
    numbers do not tell apart are few, as a rule, and sorted once more.
    """
    count = len(keys)
    if not count:
        return
    bits = (count - 1).bit_length()
    least, mask = keys.min(), np.uint64((1 << bits) - 1)
    free = 64 - int(keys.max() - least).bit_length()
    for low in range(0, count, _BLOCK):
        block = order[low : low + _BLOCK]
        np.subtract(keys[low : low + _BLOCK], least, out=block)
        np.left_shift(block, np.uint64(min(free, 63)), out=block)  # by 64: all of them are 0
        np.bitwise_and(block, ~mask, out=block)
        block |= np.arange(low, low + len(block), dtype=np.uint64)
    order.sort()
    if free < bits:
        _order_alike(keys, order, mask, bits - free)
    np.bitwise_and(order, mask, out=order)


def _order_alike(keys: Array, order: npt.NDArray[np.uint64], mask: np.uint64, cut: int) -> None:
    """Put in order those with equal leading bits; the last ``cut`` bits of keys are not there."""
    is_like_last = np.zeros(len(order), np.bool_)
    for low in range(1, len(order), _BLOCK):
        block = order[low : low + _BLOCK]
        before = order[low - 1 : low - 1 + len(block)]
        np.less_equal(block ^ before, mask, out=is_like_last[low : low + len(block)])
    is_alike = is_like_last.copy()
    is_alike[:-1] |= is_like_last[1:]
    alike = np.flatnonzero(is_alike)
    numbers = order[alike]
    some = keys[(numbers & mask).view(np.int64)]
    if (some[1:] >= some[:-1]).all():  # they are equal, or it happens so
        return
    groups = np.cumsum(~is_like_last[alike], dtype=np.uint64)
    bits = (len(alike) - 1).bit_length()
    if int(groups[-1]).bit_length() + cut + bits > 64:
        order[alike] = numbers[np.argsort(some, kind="stable")]
        return
    last = (some - keys.min()) & some.dtype.type((1 << cut) - 1)
    places = np.arange(len(alike), dtype=np.uint64)
    again = (groups << np.uint64(cut) | last) << np.uint64(bits) | places
    again.sort()
    order[alike] = numbers[(again & np.uint64((1 << bits) - 1)).view(np.int64)]


def least_keys(keys: Array, count: int, spare: Array) -> npt.NDArray[np.int64]:
    """Where the ``count`` least keys are, of equal ones the first; in order of their places.

    ``spare``: room for as many keys.
    """
    np.copyto(spare, keys)
    spare.partition(count - 1)
    limit = spare[count - 1]
    below = np.flatnonzero(keys < limit)
    equal = np.flatnonzero(keys == limit)[: count - len(below)]
    return np.sort(np.concatenate((below, equal)))


def merge(runs: Sequence[SortedRun], new: Callable[[str, int], SortedRun]) -> Iterator[SortedRun]:
    """What sorted ``runs`` are together, block after block, each good until the next one.

    Of equal keys those of earlier runs come first. ``new`` makes room for a run, by
    a name and a length.
    """
    runs = [run for run in runs if len(run.keys)]
    length = sum(len(run.keys) for run in runs)
    if len(runs) < 2:
        for low in range(0, length, _BLOCK):
            yield runs[0].part(low, low + _BLOCK)
    elif not is_worth_compiling(length):
        yield _sorted_together(runs)
    else:
        spare = new("spare", length) if len(runs) > 2 else runs[0].part(0, 0)
        other = new("other", length) if len(runs) > 4 else spare
        half, middle = _halves(runs)
        first = _merge(runs[:half], spare.part(0, middle), other.part(0, middle))
        second = _merge(runs[half:], spare.part(middle, length), other.part(middle, length))
        block = new("block", min(length, _BLOCK))
        for low, high, i, i_end in _cuts(first, second):
            target = block.part(0, high - low)
            _merge_two(first.part(i, i_end), second.part(low - i, high - i_end), target)
            yield target


def _halves(runs: Sequence[SortedRun]) -> tuple[int, int]:
    """Half the number of runs, and how many keys these have."""
    half = len(runs) // 2
    return half, sum(len(run.keys) for run in runs[:half])


def _merge(runs: Sequence[SortedRun], target: SortedRun, spare: SortedRun) -> SortedRun:
    """The runs merged, in ``target`` if they are several; ``spare`` is for three and more."""
    if len(runs) == 1:
        return runs[0]
    half, middle = _halves(runs)
    length = len(target.keys)
    first = _merge(runs[:half], spare.part(0, middle), target.part(0, middle))
    second = _merge(runs[half:], spare.part(middle, length), target.part(middle, length))
    _merge_two(first, second, target)
    return target


def _cuts(a: SortedRun, b: SortedRun) -> Iterator[tuple[int, int, int, int]]:
    """Blocks of what two runs are together: from where to where, and which part is of ``a``."""
    from ps_backend.kernels.collectives import compiled

    length = len(a.keys) + len(b.keys)
    i = 0
    for low in range(0, length, _BLOCK):
        high = min(low + _BLOCK, length)
        i_end = compiled.split(a.keys, b.keys, high)
        yield low, high, i, i_end
        i = i_end


def _merge_two(a: SortedRun, b: SortedRun, out: SortedRun) -> None:
    from ps_backend.kernels.collectives import compiled

    compiled.merge(a.keys, b.keys, out.keys, a.indices, b.indices, out.indices)


def _sorted_together(runs: Sequence[SortedRun]) -> SortedRun:
    keys = np.concatenate([run.keys for run in runs])
    if runs[0].indices is None:
        sort(keys)
        return SortedRun(keys)
    order = np.argsort(keys, kind="stable")
    return SortedRun(keys[order], np.concatenate([run.indices for run in runs])[order])
