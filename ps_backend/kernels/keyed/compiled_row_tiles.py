"""Steps on the rows of chosen slots, compiled once for all row programs.

Some rows at a time are gathered into memory that stays in the innermost cache, computed with by
the interpreter of ``tiles``, and written back: what comes in between is never anywhere else. All
tables and addresses are made by ``row_tiles``.
"""

from __future__ import annotations

from distvec_tiles import run_tiles  # type: ignore[import-not-found]
from numba import njit

from ps_backend.kernels.keyed.memory import (
    ask_for_row,
    copy_row,
    load_8,
    load_16,
    load_32,
    load_64,
    load_integer,
    row_at,
    store_8,
    store_16,
    store_32,
    store_64,
)

_AHEAD = 24
_WORD = 8

_compiled = njit(nogil=True, error_model="numpy", cache=True)


@_compiled
def _gather(gathers, locations, low, high, last):  # type: ignore[no-untyped-def]
    """Copy the rows of slots from ``low`` to ``high``, and ask for what comes next."""
    for i in range(low, high):
        here = load_integer(locations + i * _WORD)
        next = load_integer(locations + min(i + _AHEAD, last - 1) * _WORD)
        for k in range(len(gathers)):
            blocks, size = gathers[k, 0], gathers[k, 1]
            ask_for_row(row_at(blocks, next, size), size)
            copy_row(gathers[k, 2] + (i - low) * size, row_at(blocks, here, size), size)


@_compiled
def _spread(source, target, count, width, size):  # type: ignore[no-untyped-def]
    """Write each of ``count`` elements ``width`` times."""
    for i in range(count):
        start = target + i * width * size
        if size == 4:
            for j in range(width):
                store_32(start + 4 * j, load_32(source + 4 * i))
        elif size == 8:
            for j in range(width):
                store_64(start + 8 * j, load_64(source + 8 * i))
        elif size == 2:
            for j in range(width):
                store_16(start + 2 * j, load_16(source + 2 * i))
        else:
            for j in range(width):
                store_8(start + j, load_8(source + i))


@njit(
    "void(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1],"
    "int64[:, ::1], int64[:, ::1], float64[:, ::1], int64, int64, int64, int64, int64)",
    nogil=True,
    error_model="numpy",
    cache=True,
)
def kernel(  # type: ignore[no-untyped-def]
    gathers,
    spreads,
    scatters,
    narrow,
    narrow_operands,
    wide,
    wide_operands,
    reductions,
    tree,
    scratch,
    locations,
    count,
    rows,
    width,
):
    """Run a row program on ``count`` slots at the addresses ``locations``, some ``rows`` at a time.

    ``gathers``: ``(blocks, size, target)``, for each array that is read the address of the table of
    its blocks, bytes of a row, and where rows are copied to. What is computed once a row is
    ``narrow``, and ``wide`` what is computed ``width`` times: instructions of ``run_tiles``, whose
    registers are at ``scratch``. ``spreads``: ``(source, step, target, size)``, what of the first
    kind the other one needs; ``scatters``: ``(blocks, size, source, step)``. A source moves on by
    ``step`` bytes a row; where that is 0, its memory is used again for each tile. ``reductions``
    and ``tree`` are empty.
    """
    for low in range(0, count, rows):
        high = min(low + rows, count)
        _gather(gathers, locations, low, high, count)
        if len(narrow):
            run_tiles(narrow, narrow_operands, reductions, tree, scratch, low, high, rows, 1, 0)
        for k in range(len(spreads)):
            source = spreads[k, 0] + spreads[k, 1] * low
            _spread(source, spreads[k, 2], high - low, width, spreads[k, 3])
        if len(wide):
            first, last = low * width, high * width
            run_tiles(
                wide, wide_operands, reductions, tree, scratch, first, last, rows * width, 1, 0
            )
        for k in range(len(scatters)):
            blocks, size = scatters[k, 0], scatters[k, 1]
            source = scatters[k, 2] + scatters[k, 3] * low
            for i in range(low, high):
                location = load_integer(locations + i * _WORD)
                copy_row(row_at(blocks, location, size), source + (i - low) * size, size)
