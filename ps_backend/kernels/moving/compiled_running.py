"""Compiled loops in which each row depends on the one before: block by block, of ``(blocks, rows,
width)``.

``states`` are what the blocks go on from, ``(blocks, width)``, in the dtype that is computed in;
where a row is one number it stays in a register. Inputs may be of other dtypes than results.
"""

from __future__ import annotations

from math import frexp

from numba import njit

JOINS = {"add": 0, "multiply": 1, "maximum": 2, "minimum": 3, "fmax": 4, "fmin": 5}
"""By the name of a ufunc its number; a loop is compiled once for all, as it tests that outside."""

_LARGE, _SMALL = 1e150, 1e-150
"""Between them no product of two factors leaves the range of floats."""

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
def total(number, x, states):  # type: ignore[no-untyped-def]
    """Join the rows of each block to its state."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        if width == 1:
            last = states[k, 0]
            for i in range(rows):
                last = _joined(number, last, x[k, i, 0])
            states[k, 0] = last
        else:
            for i in range(rows):
                for j in range(width):
                    states[k, j] = _joined(number, states[k, j], x[k, i, j])


@_compiled
def accumulate(number, x, states, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: the state of the block joined to the rows of ``x`` so far."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        if width == 1:
            last = states[k, 0]
            for i in range(rows):
                last = _joined(number, last, x[k, i, 0])
                y[k, i, 0] = last
        else:
            for i in range(rows):
                for j in range(width):
                    states[k, j] = _joined(number, states[k, j], x[k, i, j])
                    y[k, i, j] = states[k, j]


@_compiled
def running_sums(x, states, carries, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: the sum of the rows of ``x`` so far, with the carry into the block."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        if width == 1:
            last, carry = states[k, 0], carries[k, 0]
            for i in range(rows):
                last += x[k, i, 0]
                y[k, i, 0] = carry + last
        else:
            for i in range(rows):
                for j in range(width):
                    states[k, j] += x[k, i, j]
                    y[k, i, j] = carries[k, j] + states[k, j]


@_compiled
def products(x, fractions, exponents):  # type: ignore[no-untyped-def]
    """The product of the rows of each block, as ``scaled.product``."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        for j in range(width):
            fraction, exponent = 1.0, 0
            for i in range(rows):
                factor = x[k, i, j]
                if not _SMALL < abs(factor) < _LARGE:
                    factor, shift = frexp(factor)
                    exponent += shift
                fraction *= factor
                if not _SMALL < abs(fraction) < _LARGE:
                    fraction, shift = frexp(fraction)
                    exponent += shift
            fraction, shift = frexp(fraction)
            fractions[k, j], exponents[k, j] = fraction, exponent + shift


@_compiled
def recur_to_the_end(a, b, states):  # type: ignore[no-untyped-def]
    """Let each state be the last row of the recurrence that begins with it; see ``recur``."""
    blocks, rows, width = b.shape
    outer = 1 if a.shape[0] == blocks else 0
    down = 1 if a.shape[1] == rows else 0
    right = 1 if a.shape[2] == width else 0
    for k in range(blocks):
        if width == 1:
            last = states[k, 0]
            for i in range(rows):
                last = a[k * outer, i * down, 0] * last + b[k, i, 0]
            states[k, 0] = last
        else:
            for i in range(rows):
                for j in range(width):
                    factor = a[k * outer, i * down, j * right]
                    states[k, j] = factor * states[k, j] + b[k, i, j]


@_compiled
def recur(a, b, states, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: ``a`` times the row before, that of ``states`` at first, plus that of ``b``.

    ``a`` is like ``b``, or has extents of 1 instead.
    """
    blocks, rows, width = b.shape
    outer = 1 if a.shape[0] == blocks else 0
    down = 1 if a.shape[1] == rows else 0
    right = 1 if a.shape[2] == width else 0
    for k in range(blocks):
        if width == 1:
            last = states[k, 0]
            for i in range(rows):
                last = a[k * outer, i * down, 0] * last + b[k, i, 0]
                y[k, i, 0] = last
        else:
            for i in range(rows):
                for j in range(width):
                    factor = a[k * outer, i * down, j * right]
                    states[k, j] = factor * states[k, j] + b[k, i, j]
                    y[k, i, j] = states[k, j]
