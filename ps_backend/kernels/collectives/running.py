"""Running results within blocks: arrays are ``(blocks, rows, width)``, by compiled loops or NumPy.

``states``, ``(blocks, width)``, are what the blocks go on from, in the dtype that is computed in;
they are written over. The results do not depend on how many blocks are computed at once. Products
of many floats are kept as a fraction and an exponent of two, in whose range they stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import frexp, inf, ldexp
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives.partition import uses_compiled_loops
from ps_backend.kernels.kernel import has_compiler
from ps_backend.program import collectives
from ps_backend.program.collectives import Scan

Floats = npt.NDArray[np.float64]
Scaled = tuple[Floats, npt.NDArray[np.int64]]
"""``(fraction, exponent)``: the value of each is their ``np.ldexp``."""

_TOGETHER = 512
"""Fractions, each at least 1/2, whose product is no subnormal number."""


def scaled_product(factors: npt.NDArray[Any]) -> Scaled:
    """The products along axis 1, which is not empty, of ``(blocks, rows, width)``."""
    some = factors.astype(np.float64, copy=False)
    exponent = np.zeros((len(factors), factors.shape[2]), np.int64)
    while True:
        some, shifts = np.frexp(some)
        exponent += shifts.sum(axis=1, dtype=np.int64)
        if some.shape[1] == 1:
            return some[:, 0], exponent
        some = np.multiply.reduceat(some, np.arange(0, some.shape[1], _TOGETHER), axis=1)


def scaled_power(base: Floats, count: int) -> Scaled:
    """``base`` to the power of ``count``."""
    total: Scaled = np.ones(base.shape), np.zeros(base.shape, np.int64)
    own, shifts = np.frexp(base)
    square = own, shifts.astype(np.int64)
    while count:
        if count & 1:
            total = _multiply_scaled(total, square)
        square, count = _multiply_scaled(square, square), count >> 1
    return total


def _multiply_scaled(a: Scaled, b: Scaled) -> Scaled:
    fraction, shift = np.frexp(a[0] * b[0])
    return fraction, a[1] + b[1] + shift


def scaled_recurrence(initial: Floats, factors: Scaled, terms: Floats | None) -> Floats:
    """Row 0 is ``initial``, each other one the row before times its factor, plus its term.

    ``factors`` and ``terms`` are ``(blocks, width)``, or one row of factors for all.
    """
    blocks = len(factors[0]) if terms is None else len(terms)
    found = np.empty((blocks + 1, len(initial)))
    for column in range(len(initial)):
        fractions, exponents = ((one[:, column].tolist() * blocks)[:blocks] for one in factors)
        added = None if terms is None else terms[:, column].tolist()
        value = float(initial[column])
        values = [value]
        for k in range(blocks):
            value = times_scaled(value, fractions[k], exponents[k])
            if added is not None:
                value += added[k]
            values.append(value)
        found[:, column] = values
    return found


def times_scaled(value: float, fraction: float, exponent: int) -> float:
    """``value`` times a product: infinite or 0 only where that is out of the range of floats."""
    own, shift = frexp(value)
    try:
        return ldexp(own * fraction, shift + exponent)
    except OverflowError:
        return inf if own * fraction > 0 else -inf


Array = npt.NDArray[Any]

COMPILED_FROM = 1 << 18
"""Elements of an array, on all servers together, that compiled loops are used for, if they are not
loaded yet."""
RECURRED_FROM = 1 << 16
"""The same of recurrences, of which NumPy has no loop: Python's is slower."""
_FLOATS = frozenset(("float64", "float32"))
"""Of which there are compiled loops: NumPy's wait for each result."""
_SUMMED = _FLOATS | {"int64", "bool"}
"""Of which running sums are compiled."""
_CHUNK = 1 << 15
"""Elements that NumPy computes at once: they fit the cache."""
_SIDE_BY_SIDE = 1024
"""Elements of so many short rows are joined to each other side by side."""


def _loops(
    elements: int, *arrays: Array, dtypes: frozenset[str] = _FLOATS, least: int | None = None
) -> ModuleType | None:
    """The compiled loops, if they are used for such arrays of so many ``elements`` in all."""
    if least is None:
        is_used = uses_compiled_loops(elements, COMPILED_FROM)
    else:  # Python's are not used meanwhile
        is_used = elements >= least and has_compiler()
    if not is_used or not dtypes.issuperset(one.dtype.name for one in arrays):
        return None
    from ps_backend.kernels.collectives import compiled

    return compiled


# --- scans --------------------------------------------------------------------------------------


def total(scan: Scan, x: Array, states: Array, elements: int) -> None:
    """Join the rows of each block to its state."""
    loops = _loops(elements, x)
    if scan.is_exact(states.dtype):
        scan.ufunc(states, _reduce_rows(scan.ufunc, x, states.dtype), out=states)
    elif loops is not None and scan.ufunc is np.add:
        loops.sums(x, states)
    else:
        for blocks, rows in _chunks(x):
            _accumulate(scan.ufunc, x[blocks, rows].astype(states.dtype), states[blocks])


def _reduce_rows(ufunc: np.ufunc, x: Array, dtype: np.dtype[Any]) -> Array:
    """The rows of each block, in any order."""
    blocks, rows, width = x.shape
    if width == 1:
        return ufunc.reduce(x, axis=1, dtype=dtype)  # type: ignore[no-any-return]
    together = 1
    while rows % (2 * together) == 0 and together * width < _SIDE_BY_SIDE:
        together *= 2
    found = ufunc.reduce(x.reshape(blocks, -1, together * width), axis=1, dtype=dtype)
    joined: Array = ufunc.reduce(found.reshape(blocks, together, width), axis=1, dtype=dtype)
    return joined


def accumulate(scan: Scan, x: Array, states: Array, y: Array, elements: int) -> None:
    """Rows of ``y``, of any dtype: the state of the block joined to the rows so far."""
    loops = _loops(elements, x, y)
    if loops is not None and scan.ufunc is np.multiply:
        loops.running_products(x, states, y)
    elif loops is not None and scan.name in loops.PICKS:
        loops.pick(loops.PICKS[scan.name], x, states, y)
    else:
        for blocks, rows in _chunks(x):
            into = _wide(x[blocks, rows], y[blocks, rows], states.dtype)
            _accumulate(scan.ufunc, into, states[blocks])
            _store(into, y[blocks, rows])


def running_sums(scan: Scan, x: Array, carries: Array, y: Array, elements: int) -> None:
    """Rows of ``y``, of any dtype: the sum of the rows of the block so far, and the carry."""
    states = np.full(carries.shape, scan.start(carries.dtype))
    loops = _loops(elements, x, y, dtypes=_SUMMED)
    if loops is not None and y.dtype.kind != "b":
        loops.running_sums(x, states, carries, y)
    else:
        for blocks, rows in _chunks(x):
            into = _wide(x[blocks, rows], y[blocks, rows], carries.dtype)
            _accumulate(scan.ufunc, into, states[blocks])
            np.add(into, carries[blocks, None], out=into)
            _store(into, y[blocks, rows])


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


def _chunks(x: Array) -> Iterator[tuple[slice, slice]]:
    """Some blocks at once, or some rows of one."""
    blocks, rows, width = x.shape
    together, most = max(1, _CHUNK // (rows * width)), max(1, _CHUNK // width)
    for k in range(0, blocks, together):
        for low in range(0, rows, most):
            yield slice(k, k + together), slice(low, low + most)


# --- products and linear recurrences --------------------------------------------------------------


def product(x: Array, elements: int) -> Scaled:
    """The product of the rows of each block, ``(blocks, width)``."""
    loops = _loops(elements, x)
    if loops is None:
        return scaled_product(x)
    shape = len(x), x.shape[2]
    found = np.empty(shape), np.empty(shape, np.int64)
    loops.products(x, *found)
    return found


def recur(a: Array, b: Array, states: Array, y: Array | None, elements: int) -> None:
    """Rows of ``y``: ``a`` times the row before, that of ``states`` at first, plus that of ``b``.

    ``a`` is like ``b``, or has extents of 1 instead. Without a ``y`` the last rows are wanted, in
    ``states``.
    """
    loops = _loops(elements, a, b, least=RECURRED_FROM)
    if loops is not None:
        loops.recur(a, b, states, b[:, :0] if y is None else y)
    else:
        for k in range(len(b)):
            found = np.empty(b.shape[1:])
            collectives.recur(a[k if len(a) > 1 else 0], b[k], states[k], found)
            if y is not None:
                np.copyto(y[k], found, casting="unsafe")
