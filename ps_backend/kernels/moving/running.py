"""Running results along axis 0 of a piece of a table, chunk by chunk of what fits the cache.

Pieces are of shape ``(rows, width)``; ``state`` is the row ``(width,)`` that a piece goes on from,
and holds what the next one goes on from afterwards. Nothing here depends on where pieces are cut.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.program import recurrences
from ps_backend.program.scans import Scan

Array = npt.NDArray[Any]
Loop = Callable[[Array, Array, Array], None]
"""``(x, state, y)``: the rows of ``y`` from those of ``x``, of one dtype; may be one array."""

COMPILED_FROM = 1 << 18
"""Elements of an array, on all servers together, from which compiled loops are used."""
CHUNK = 1 << 15
"""Elements that are computed at once."""


def chunk_rows(width: int) -> int:
    """Rows of a chunk."""
    return max(1, CHUNK // width)


def is_compiled(elements: int) -> bool:
    """Whether an array of so many ``elements`` is worth it, and there is a compiler."""
    return elements >= COMPILED_FROM and _has_compiler()


@cache
def _has_compiler() -> bool:
    return importlib.util.find_spec("numba") is not None


def loop_of(scan: Scan, wide: np.dtype[Any], elements: int) -> Loop:
    """What computes a scan in ``wide``, of an array of so many ``elements`` in all."""
    if wide.itemsize == 8 and is_compiled(elements):
        from ps_backend.kernels.moving import compiled_running

        number = compiled_running.JOINS.get(scan.name)
        if number is not None:
            return partial(compiled_running.accumulate, number)
    return partial(_accumulate, scan.ufunc)


def _accumulate(ufunc: np.ufunc, x: Array, state: Array, y: Array) -> None:
    """As the compiled loop, by NumPy."""
    if len(y):
        if x is not y:
            np.copyto(y, x)
        ufunc(state, y[0], out=y[0])
        ufunc.accumulate(y, axis=0, out=y)
        state[:] = y[-1]


def advance(loop: Loop, x: Array, state: Array, scratch: Array) -> None:
    """Let ``state`` be what it is after the rows of ``x``; ``scratch`` has room for a chunk."""
    for low, high in _chunks(len(x), len(scratch)):
        some, into = x[low:high], scratch[: high - low]
        loop(_wide(some, into), state, into)


def write(
    loop: Loop, x: Array, state: Array, y: Array, scratch: Array, carry: Array | None = None
) -> None:
    """Running results of ``x`` into ``y``, of any dtype; ``carry`` is added to each row."""
    for low, high in _chunks(len(x), len(scratch)):
        some, out = x[low:high], y[low:high]
        into = out if out.dtype == scratch.dtype else scratch[: high - low]
        loop(_wide(some, into), state, into)
        if carry is not None:
            np.add(into, carry, out=into)
        if into is not out:
            np.copyto(out, into, casting="unsafe")


def _wide(x: Array, into: Array) -> Array:
    """``x`` in the dtype of ``into``: there, if it was another one."""
    if x.dtype == into.dtype:
        return x
    np.copyto(into, x, casting="unsafe")
    return into


def _chunks(rows: int, most: int) -> Iterator[tuple[int, int]]:
    for low in range(0, rows, most):
        yield low, min(low + most, rows)


# --- linear recurrences -------------------------------------------------------------------------


def recur(a: Array, b: Array, state: Array, y: Array, elements: int) -> None:
    """Rows of ``y``: ``a`` times the row before, ``state`` at first, plus that of ``b``.

    Computed in float64, the dtype of ``state``. ``a`` has as many rows and columns as ``b``, or one
    of them. A ``y`` with fewer rows than ``b`` is written over and over.
    """
    most = min(chunk_rows(b.shape[1]), len(y))
    loop = recurrences.recur
    if is_compiled(elements):
        from ps_backend.kernels.moving import compiled_running

        loop = compiled_running.recur
    for low, high in _chunks(len(b), most):
        out = y[low:high] if len(y) >= len(b) else y[: high - low]
        factors = a[low:high] if len(a) == len(b) else a
        into = out if out.dtype == state.dtype else np.empty(out.shape)
        loop(_as_float(factors), _as_float(b[low:high]), state, into)
        if into is not out:
            np.copyto(out, into, casting="unsafe")


def _as_float(x: Array) -> Array:
    return x.astype(np.float64, copy=False)
