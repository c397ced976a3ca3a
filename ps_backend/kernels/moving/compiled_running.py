"""Compiled loops in which each row depends on the one before.

Tables are ``(rows, width)``, C-contiguous; where they have one column, what is carried stays in a
register. Two arguments may be the same array: each element is read before it is written.
"""

from __future__ import annotations

from numba import njit

JOINS = {"add": 0, "multiply": 1, "maximum": 2, "minimum": 3, "fmax": 4, "fmin": 5}
"""By the name of a ufunc its number; a loop is compiled once for all, as it tests that outside."""

_compiled = njit(nogil=True, error_model="numpy", cache=True)


@njit(inline="always", error_model="numpy")
def _joined(number, a, b):  # type: ignore[no-untyped-def]
    if number == 0:
        return a + b
    if number == 1:
        return a * b
    if number == 2:
        return a if a >= b or a != a else b
    if number == 3:
        return a if a <= b or a != a else b
    if number == 4:
        return a if a >= b or b != b else b
    return a if a <= b or b != b else b


@_compiled
def accumulate(number, x, state, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: ``state`` joined to the rows of ``x`` so far; the last one is left in it."""
    rows, width = x.shape
    if width == 1:
        last = state[0]
        for i in range(rows):
            last = _joined(number, last, x[i, 0])
            y[i, 0] = last
        state[0] = last
    else:
        for i in range(rows):
            for j in range(width):
                state[j] = _joined(number, state[j], x[i, j])
                y[i, j] = state[j]


@_compiled
def recur(a, b, state, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: ``a`` times the row before, ``state`` at first, plus that of ``b``.

    ``a`` has as many rows and columns as ``b``, or one. The last row is left in ``state``.
    """
    rows, width = b.shape
    down = 1 if a.shape[0] == rows else 0
    right = 1 if a.shape[1] == width else 0
    if width == 1:
        last = state[0]
        for i in range(rows):
            last = a[i * down, 0] * last + b[i, 0]
            y[i, 0] = last
        state[0] = last
    else:
        for i in range(rows):
            for j in range(width):
                state[j] = a[i * down, j * right] * state[j] + b[i, j]
                y[i, j] = state[j]
