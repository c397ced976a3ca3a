"""Running results within blocks: arrays are ``(blocks, rows, width)``, by compiled loops or NumPy.

``states``, ``(blocks, width)``, are what the blocks go on from, in the dtype that is computed in;
they are written over. The results do not depend on how many blocks are computed at once.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.moving import scaled
from ps_backend.program import recurrences
from ps_backend.program.scans import Scan

Array = npt.NDArray[Any]

COMPILED_FROM = 1 << 18
"""Elements of an array, on all servers together, from which compiled loops are used."""
_DTYPES = ("float64", "float32", "int64", "bool")
"""Of inputs for which loops are compiled: a second for each when it is first met."""
_CHUNK = 1 << 15
"""Elements that NumPy computes at once: they fit the cache."""


@cache
def _has_compiler() -> bool:
    return importlib.util.find_spec("numba") is not None


def _loops(elements: int, *inputs: Array) -> ModuleType | None:
    """The compiled loops, if they are used for such inputs of so many ``elements`` in all."""
    if elements < COMPILED_FROM or not _has_compiler():
        return None
    if any(one.dtype.name not in _DTYPES for one in inputs):
        return None
    from ps_backend.kernels.moving import compiled_running

    return compiled_running


# --- scans --------------------------------------------------------------------------------------


def total(scan: Scan, x: Array, states: Array, elements: int) -> None:
    """Join the rows of each block to its state."""
    if scan.is_exact(states.dtype) and x.shape[2] == 1:
        found = scan.ufunc.reduce(x[:, :, 0], axis=1, dtype=states.dtype)
        scan.ufunc(states, found[:, None], out=states)
        return
    loops = _loops(elements, x)
    if loops is not None and scan.name in loops.JOINS:
        loops.total(loops.JOINS[scan.name], x, states)
        return
    for low, high in _chunks(x):
        some = x[:, low:high].astype(states.dtype)
        _accumulate(scan.ufunc, some, states)


def accumulate(scan: Scan, x: Array, states: Array, y: Array, elements: int) -> None:
    """Rows of ``y``, of any dtype: the state of the block joined to the rows so far."""
    loops = _loops(elements, x)
    if loops is not None and scan.name in loops.JOINS and y.dtype.kind != "b":
        loops.accumulate(loops.JOINS[scan.name], x, states, y)
        return
    for low, high in _chunks(x):
        into = _wide(x[:, low:high], y[:, low:high], states.dtype)
        _accumulate(scan.ufunc, into, states)
        _store(into, y[:, low:high])


def running_sums(scan: Scan, x: Array, carries: Array, y: Array, elements: int) -> None:
    """Rows of ``y``: the sum of the rows of the block so far, and the carry into it, as floats."""
    states = np.full(carries.shape, scan.start(carries.dtype))
    loops = _loops(elements, x)
    if loops is not None and y.dtype.kind == "f":
        loops.running_sums(x, states, carries, y)
        return
    for low, high in _chunks(x):
        into = _wide(x[:, low:high], y[:, low:high], carries.dtype)
        _accumulate(scan.ufunc, into, states)
        np.add(into, carries[:, None], out=into)
        _store(into, y[:, low:high])


def _accumulate(ufunc: np.ufunc, rows: Array, states: Array) -> None:
    """Running results in place, from the states on."""
    ufunc(states, rows[:, 0], out=rows[:, 0])
    ufunc.accumulate(rows, axis=1, out=rows)
    states[...] = rows[:, -1]


def _wide(x: Array, y: Array, dtype: np.dtype[Any]) -> Array:
    """``x`` in ``dtype``: in ``y``, if that is of it."""
    if y.dtype != dtype:
        return x.astype(dtype)
    np.copyto(y, x, casting="unsafe")
    return y


def _store(rows: Array, y: Array) -> None:
    if rows is not y:
        np.copyto(y, rows, casting="unsafe")


def _chunks(x: Array) -> list[tuple[int, int]]:
    """Of the rows of all blocks: where each begins and ends."""
    blocks, rows, width = x.shape
    most = max(1, _CHUNK // (blocks * width))
    return [(low, min(low + most, rows)) for low in range(0, rows, most)]


# --- products and linear recurrences --------------------------------------------------------------


def product(x: Array, elements: int) -> scaled.Scaled:
    """The product of the rows of each block, ``(blocks, width)``."""
    loops = _loops(elements, x)
    if loops is None or x.dtype.kind != "f":
        return scaled.product(x)
    shape = len(x), x.shape[2]
    found = np.empty(shape), np.empty(shape, np.int64)
    loops.products(x, *found)
    return found


def recur(a: Array, b: Array, states: Array, y: Array | None, elements: int) -> None:
    """Rows of ``y``: ``a`` times the row before, that of ``states`` at first, plus that of ``b``.

    ``a`` is like ``b``, or has extents of 1 instead. Without a ``y`` the last rows are wanted, in
    ``states``.
    """
    loops = _loops(elements, a, b)
    if loops is not None:
        loops.recur(a, b, states, b[:, :0] if y is None else y)
    else:
        for k in range(len(b)):
            found = np.empty(b.shape[1:])
            recurrences.recur(a[k if len(a) > 1 else 0], b[k], states[k], found)
            if y is not None:
                np.copyto(y[k], found, casting="unsafe")
