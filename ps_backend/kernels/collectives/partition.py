"""Indices grouped by the server that holds what they name, and elements at random places.

By NumPy's functions for few; by loops compiled once for more, where numba is installed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.background import in_background, is_in_background
from ps_backend.kernels.kernel import Pause, has_compiler, no_pause

Array = npt.NDArray[Any]

COMPILED_FROM = 1 << 16
"""Indices that compiled loops are used for, if they are not loaded yet: NumPy takes a millisecond
for fewer."""
_PIECE = 1 << 22
"""Indices that are grouped without a pause: some 10 ms."""
_PLAIN = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
"""By their size what elements are copied as, whatever they mean: few loops are compiled then."""


def is_worth_compiling(count: int) -> bool:
    """Whether compiled loops are used for so many indices."""
    return uses_compiled_loops(count, COMPILED_FROM)


_WORTH_WAITING = 64
"""Times as many elements as compiled loops are used for: by then NumPy takes as long as loading."""
_LOADED_PART = 16
"""Loops that are loaded are used from so small a part of the elements on: NumPy's temporaries take
new memory from the system each time."""


def uses_compiled_loops(count: int, least: int) -> bool:
    """Whether a sort, or a move of elements, takes compiled loops, which have NumPy's bits.

    They are for ``least`` elements or more, and fewer once they are loaded. Of fewer than many
    times as many a process that has not loaded them, which takes half a second, leaves them to
    NumPy, and loads them meanwhile.
    """
    if count < least // _LOADED_PART or not has_compiler():
        return False
    loaded, wanted = _loops_of_collectives()
    if loaded.is_set():
        return True
    if count >= _WORTH_WAITING * least or not is_in_background():
        _load_loops_of_collectives()
        return True
    if not wanted.is_set():
        wanted.set()
        in_background(_load_loops_of_collectives)
    return False


@cache
def _loops_of_collectives() -> tuple[threading.Event, threading.Event]:
    """Set once this process has them; and once the thread that makes kernels shall load them."""
    return threading.Event(), threading.Event()


def _load_loops_of_collectives() -> None:
    from ps_backend.kernels.collectives import compiled

    compiled.extremes(np.zeros(1, np.int64))  # the first of them sets numba up
    _loops_of_collectives()[0].set()


def verify_range(
    indices: npt.NDArray[np.int64], length: int, ends: tuple[int, int] | None = None
) -> None:
    """``IndexError`` naming the first index that is not one of ``-length .. length-1``.

    ``ends``: the least and the greatest one, if they are known.
    """
    if not len(indices):
        return
    least, greatest = ends or extremes(indices)
    if least < -length or greatest >= length:
        bad = indices[(indices < -length) | (indices >= length)][0]
        raise IndexError(f"index {bad} is out of range for length {length}")


def extremes(indices: npt.NDArray[np.int64]) -> tuple[int, int]:
    """The least and the greatest of at least one index."""
    if is_worth_compiling(len(indices)):
        from ps_backend.kernels.collectives import compiled

        least, greatest = compiled.extremes(indices)
    else:
        least, greatest = indices.min(), indices.max()
    return int(least), int(greatest)


def group_by_owner(
    indices: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    length: int,
    places: npt.NDArray[np.signedinteger[Any]],
    wanted: npt.NDArray[np.int64],
    pause: Pause = no_pause,
) -> list[int]:
    """Group the indices of ``0 .. length-1`` (or negative ones) by what they lie in.

    ``starts`` tells where each range begins but the first. Written are ``wanted``, the indices from
    0, and ``places``, where each stood: those of the first range first, all in their order. Returns
    where the group of each range begins, and where the last one ends.
    """
    is_compiled = is_worth_compiling(len(indices))
    count, distribute = _loops() if is_compiled else (_count_below, _distribute)
    below = np.zeros(len(starts), np.int64)
    for low in range(0, len(indices), _PIECE):
        count(indices[low : low + _PIECE], starts, length, below)
        pause()
    cursors = np.array([0, *below], np.int64)
    for low in range(0, len(indices), _PIECE):
        distribute(indices[low : low + _PIECE], low, starts, length, cursors, places, wanted)
        pause()
    return [0, *below.tolist(), len(indices)]


def _loops() -> tuple[Callable[..., None], Callable[..., None]]:
    from ps_backend.kernels.collectives import compiled

    return compiled.count_below, compiled.distribute_by_owner


def _count_below(indices: Array, starts: Array, length: int, below: Array) -> None:
    """As the compiled one."""
    owners = _owners(np.where(indices < 0, indices + length, indices), starts)
    below += np.cumsum(np.bincount(owners, minlength=len(starts) + 1))[:-1]


def _distribute(
    indices: Array,
    first: int,
    starts: Array,
    length: int,
    cursors: Array,
    places: Array,
    wanted: Array,
) -> None:
    """As the compiled one."""
    positive = np.where(indices < 0, indices + length, indices)
    owners = _owners(positive, starts)
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=len(starts) + 1)
    low = 0
    for owner in np.flatnonzero(counts):
        group = order[low : low + counts[owner]]
        into = slice(cursors[owner], cursors[owner] + len(group))
        places[into], wanted[into] = group + first, positive[group]
        cursors[owner] += len(group)
        low += len(group)


def _owners(positive: Array, starts: Array) -> Array:
    return np.searchsorted(starts, positive, side="right").astype(np.uint16)


def scatter(values: Array, places: Array, out: Array) -> None:
    """``out[places] = values``, elements or rows."""
    if values.ndim > 1 or not is_worth_compiling(len(values)):
        out[places] = values
        return
    from ps_backend.kernels.collectives import compiled

    compiled.scatter(plain(values), places, plain(out))


def plain(array: Array) -> Array:
    """The same memory as unsigned integers of the size of the elements."""
    return array.view(_PLAIN[array.itemsize])


_ADDED = (np.dtype(np.float64), np.dtype(np.int64))
"""Dtypes of which a loop that adds is compiled."""


_NEAR_BYTES = 1 << 20
"""Elements of so many bytes are in a processor's own caches."""
_SAMPLES = 64
_PAGE_BYTES = 1 << 12
"""Indices that name elements of one page, one after the other, find them in the caches."""


def take(source: Array, low: int, wanted: Array, out: Array, length: int = 0) -> None:
    """``out[:] = source[wanted - low]``, elements or rows, all of which are there.

    With a ``length`` indices may be negative: they count from there.
    """
    if source.ndim == 1 and is_worth_compiling(len(wanted)):
        from ps_backend.kernels.collectives import compiled

        is_near = source.nbytes <= _NEAR_BYTES or _is_in_order(wanted, source.itemsize)
        loop = compiled.take if is_near else compiled.take_far
        loop(plain(source), low, wanted, length, plain(out))
        return
    wanted = _from_zero(wanted.astype(np.int64, copy=False), length)
    np.take(source, wanted - low if low else wanted, axis=0, out=out, mode="clip")  # "raise" copies


def _is_in_order(wanted: Array, size: int) -> bool:
    """Whether most indices of a sample name elements, of ``size`` bytes, near those before."""
    some = slice(None, None, max(1, len(wanted) // _SAMPLES))
    moves = np.abs(wanted[1:][some] - wanted[:-1][some]) * size
    return bool(2 * np.count_nonzero(moves < _PAGE_BYTES) > len(moves))


def _from_zero(wanted: Array, length: int) -> Array:
    """Indices of which negative ones count from ``length``, if there is one."""
    has_negative = length and wanted.size and wanted.min() < 0
    return np.where(wanted < 0, wanted + length, wanted) if has_negative else wanted


def compress(mask: npt.NDArray[np.bool_], source: Array, out: Array) -> None:
    """``out[:] = source[mask]``, elements or rows, of which there are as many as ``out`` has."""
    if source.ndim == 1 and is_worth_compiling(len(source)):
        from ps_backend.kernels.collectives import compiled

        compiled.compress(mask, plain(source), plain(out))
    else:
        np.compress(mask, source, axis=0, out=out)


def put(
    out: Array, low: int, wanted: Array, values: Array, ufunc: np.ufunc | None, length: int = 0
) -> None:
    """Join each of ``values``, or the one that they are, to ``out[wanted - low]``, in their order.

    By ``ufunc``; without one it replaces what is there. With a ``length`` indices may be negative.
    """
    is_compiled = out.ndim == 1 and is_worth_compiling(len(wanted))
    if is_compiled and ufunc is None:
        from ps_backend.kernels.collectives import compiled

        given = np.broadcast_to(np.asarray(values, out.dtype), wanted.shape)
        compiled.assign_at(plain(out), low, wanted, length, plain(given))
    elif is_compiled and ufunc is np.add and values.dtype == out.dtype and out.dtype in _ADDED:
        from ps_backend.kernels.collectives import compiled

        compiled.add_at(out, low, wanted, length, np.broadcast_to(values, wanted.shape))
    else:
        places = _from_zero(wanted, length) - low
        if ufunc is None:
            out[places] = values
        else:
            ufunc.at(out, places, values)
