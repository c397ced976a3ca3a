"""Compiled loops in which each row depends on the one before: block by block, of ``(blocks, rows,
width)``.

``states`` are what the blocks go on from, ``(blocks, width)``, in the dtype that is computed in;
where a row is one number it stays in a register. Inputs may be of other dtypes than results.
"""

from __future__ import annotations

from math import frexp

from numba import njit

PICKS = {"maximum": 0, "minimum": 1, "fmax": 2, "fmin": 3}
"""Ufuncs that give one of two floats, by name: a loop is compiled once for all of them."""

_LARGE, _SMALL = 1e150, 1e-150
"""Between them no product of two factors leaves the range of floats."""

_compiled = njit(nogil=True, error_model="numpy", cache=True)


@_compiled
def sums(x, states):  # type: ignore[no-untyped-def]
    """Add the rows of each block to its state."""
    blocks, rows, width = x.shape
    done = 0
    if width == 1:
        done = blocks // 4 * 4
        for k in range(0, done, 4):  # side by side, as each waits for its own last result
            a, b, c, d = states[k, 0], states[k + 1, 0], states[k + 2, 0], states[k + 3, 0]
            for i in range(rows):
                a += x[k, i, 0]
                b += x[k + 1, i, 0]
                c += x[k + 2, i, 0]
                d += x[k + 3, i, 0]
            states[k, 0], states[k + 1, 0], states[k + 2, 0], states[k + 3, 0] = a, b, c, d
    for k in range(done, blocks):
        for i in range(rows):
            for j in range(width):
                states[k, j] += x[k, i, j]


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
def running_products(x, states, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: the state of the block times the rows of ``x`` so far."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        if width == 1:
            last = states[k, 0]
            for i in range(rows):
                last *= x[k, i, 0]
                y[k, i, 0] = last
        else:
            for i in range(rows):
                for j in range(width):
                    states[k, j] *= x[k, i, j]
                    y[k, i, j] = states[k, j]


@njit(inline="always", error_model="numpy")
def _picked(number, a, b):  # type: ignore[no-untyped-def]
    if number == 0:
        return a if a >= b or a != a else b
    if number == 1:
        return a if a <= b or a != a else b
    if number == 2:
        return a if a >= b or b != b else b
    return a if a <= b or b != b else b


@_compiled
def pick(number, x, states, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: what is picked of the state of the block and the rows of ``x`` so far."""
    blocks, rows, width = x.shape
    for k in range(blocks):
        if width == 1:
            last = states[k, 0]
            fours = rows // 4 * 4
            for i in range(0, fours, 4):  # picked among themselves first: the same, but sooner
                a = x[k, i, 0]
                b = _picked(number, a, x[k, i + 1, 0])
                c = _picked(number, b, x[k, i + 2, 0])
                d = _picked(number, c, x[k, i + 3, 0])
                y[k, i, 0] = _picked(number, last, a)
                y[k, i + 1, 0] = _picked(number, last, b)
                y[k, i + 2, 0] = _picked(number, last, c)
                last = _picked(number, last, d)
                y[k, i + 3, 0] = last
            for i in range(fours, rows):
                last = _picked(number, last, x[k, i, 0])
                y[k, i, 0] = last
        else:
            for i in range(rows):
                for j in range(width):
                    states[k, j] = _picked(number, states[k, j], x[k, i, j])
                    y[k, i, j] = states[k, j]


@_compiled
def recur(a, b, states, y):  # type: ignore[no-untyped-def]
    """Rows of ``y``: ``a`` times the row before, that of ``states`` at first, plus that of ``b``.

    ``a`` is like ``b``, or has extents of 1 instead. A ``y`` with no rows gets none; the last ones
    are left in ``states``.
    """
    blocks, rows, width = b.shape
    outer = 1 if a.shape[0] == blocks else 0
    down = 1 if a.shape[1] == rows else 0
    right = 1 if a.shape[2] == width else 0
    stores = y.shape[1] > 0
    done = 0
    if width == 1:
        done = blocks // 4 * 4
        for k in range(0, done, 4):  # side by side, as each waits for its own last result
            p, q, r, s = states[k, 0], states[k + 1, 0], states[k + 2, 0], states[k + 3, 0]
            for i in range(rows):
                at = i * down
                p = a[k * outer, at, 0] * p + b[k, i, 0]
                q = a[(k + 1) * outer, at, 0] * q + b[k + 1, i, 0]
                r = a[(k + 2) * outer, at, 0] * r + b[k + 2, i, 0]
                s = a[(k + 3) * outer, at, 0] * s + b[k + 3, i, 0]
                if stores:
                    y[k, i, 0], y[k + 1, i, 0], y[k + 2, i, 0], y[k + 3, i, 0] = p, q, r, s
            states[k, 0], states[k + 1, 0], states[k + 2, 0], states[k + 3, 0] = p, q, r, s
    for k in range(done, blocks):
        for i in range(rows):
            for j in range(width):
                factor = a[k * outer, i * down, j * right]
                states[k, j] = factor * states[k, j] + b[k, i, j]
                if stores:
                    y[k, i, j] = states[k, j]
