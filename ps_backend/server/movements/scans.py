"""Scans and linear recurrences: running results along axis 0, in two phases.

In the first one each server leaves the totals of its blocks, which takes one reading of its part.
In the second it fetches those of the blocks before its own, combines them in order, and writes the
running results of each block from what comes before it on. Blocks are those of the space, so the
bits do not depend on the number of servers.

A running sum of floats is that of its block plus the carry, and the carry is a sum of totals, each
of which is the last running sum of a block: so running sums of what is not negative never fall.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.moving import running, scaled
from ps_backend.program import recurrences
from ps_backend.program.scans import SCANS, Scan
from ps_backend.program.spaces import Space
from ps_backend.server.movements.blocks import as_table, blocks_of, each_block
from ps_backend.server.movements.phase import Phase, Piece, Run

Array = npt.NDArray[Any]
_FLOAT, _INT = np.dtype(np.float64), np.dtype(np.int64)


def phases() -> dict[str, tuple[Run, ...]]:
    """By kind, the functions of the phases."""
    scans = {
        scan.kind: (partial(_totals, scan), partial(_results, scan)) for scan in SCANS.values()
    }
    return {**scans, recurrences.KIND: (_recurrence_totals, _recurrence)}


class _Scanning:
    """What both phases of a scan know."""

    def __init__(self, scan: Scan, phase: Phase) -> None:
        (source,) = phase.call.types.inputs
        ((_, made),) = phase.call.types.outputs
        self.space, self.width = source.space, source.width
        self.wide = scan.accumulator(made.dtype)
        self.start = np.full(self.width, scan.start(self.wide), self.wide)
        self.loop = running.loop_of(scan, self.wide, self.space.length * self.width)
        self.x = as_table(phase.inputs[0])
        self.scratch = (_rows(self.space, self.width), self.width), self.wide
        is_float = self.wide.kind == "f"
        self.is_sum = is_float and scan.ufunc is np.add
        self.is_product = is_float and scan.ufunc is np.multiply
        self.is_exact = scan.is_exact(self.wide)


def _rows(space: Space, width: int) -> int:
    """Of a chunk."""
    return min(space.block_size, running.chunk_rows(width))


def _totals(scan: Scan, phase: Phase) -> None:
    """First phase of a scan: what the rows of each block join to."""
    this = _Scanning(scan, phase)
    shape = blocks_of(phase, this.space), this.width
    totals = phase.workspace.new("totals", shape, this.wide)
    exponents = phase.workspace.new("exponents", shape, _INT) if this.is_product else totals

    def work(block: int, rows: slice, scratch: Array) -> None:
        x = this.x[rows]
        if this.is_product:
            totals[block], exponents[block] = scaled.product(x)
        elif this.is_exact and this.width == 1:
            totals[block] = scan.ufunc.reduce(x[:, 0], dtype=this.wide)
        else:
            totals[block] = this.start
            running.advance(this.loop, x, totals[block], scratch)

    each_block(phase, this.space, this.scratch, work)


def _results(scan: Scan, phase: Phase) -> None:
    """Second phase of a scan."""
    this = _Scanning(scan, phase)
    (made,) = phase.outputs.values()
    y = as_table(made)
    names = {"totals": this.wide} | ({"exponents": _INT} if this.is_product else {})
    found = _fetched(phase, this.space, this.width, names)
    if this.is_product:
        carries = _carries(this.start, (found["totals"], found["exponents"]), None)
    else:
        carries = scan.ufunc.accumulate(np.vstack((this.start, found["totals"])), axis=0)
    carries = carries[_first_block(phase, this.space) :]

    def work(block: int, rows: slice, scratch: Array) -> None:
        if this.is_sum:
            state, carry = this.start.copy(), carries[block]
            running.write(this.loop, this.x[rows], state, y[rows], scratch, carry)
        else:
            running.write(this.loop, this.x[rows], carries[block], y[rows], scratch)

    each_block(phase, this.space, this.scratch, work)


# --- linear recurrences -------------------------------------------------------------------------


class _Recurring:
    """What both phases of a linear recurrence know: ``a`` is an input or an operand."""

    def __init__(self, phase: Phase) -> None:
        source = phase.call.types.inputs[0]
        self.space, self.width = source.space, source.width
        self.elements = self.space.length * self.width
        self.b = as_table(phase.inputs[0])
        self.initial = np.zeros(self.width) + phase.operands[0]
        self.is_constant = len(phase.inputs) == 1
        """Whether ``a`` is the same in all rows."""
        if self.is_constant:
            self.a = phase.operands[1].reshape(1, -1).astype(_FLOAT)
        else:
            self.a = as_table(phase.inputs[1])
        self.scratch = (_rows(self.space, self.width), self.width), _FLOAT

    def factors(self, rows: slice) -> Array:
        """``a`` in some rows."""
        return self.a if self.is_constant else self.a[rows]


def _recurrence_totals(phase: Phase) -> None:
    """First phase: where each block ends that begins with 0, and the product of its factors."""
    this = _Recurring(phase)
    shape = blocks_of(phase, this.space), this.width
    ends = phase.workspace.new("ends", shape, _FLOAT)
    ends[...] = 0
    if not this.is_constant:
        fractions = phase.workspace.new("fractions", shape, _FLOAT)
        exponents = phase.workspace.new("exponents", shape, _INT)

    def work(block: int, rows: slice, scratch: Array) -> None:
        a = this.factors(rows)
        running.recur(a, this.b[rows], ends[block], scratch, this.elements)
        if not this.is_constant:
            fractions[block], exponents[block] = scaled.product(a)

    each_block(phase, this.space, this.scratch, work)


def _recurrence(phase: Phase) -> None:
    """Second phase: the results."""
    this = _Recurring(phase)
    (made,) = phase.outputs.values()
    y = as_table(made)
    names: dict[str, np.dtype[Any]] = {"ends": _FLOAT}
    if not this.is_constant:
        names |= {"fractions": _FLOAT, "exponents": _INT}
    found = _fetched(phase, this.space, this.width, names)
    if this.is_constant:  # all blocks but the last are as long as each other
        shape = found["ends"].shape
        power = scaled.power(this.a[0], this.space.block_size)
        factors = np.broadcast_to(power[0], shape), np.broadcast_to(power[1], shape)
    else:
        factors = found["fractions"], found["exponents"]
    carries = _carries(this.initial, factors, found["ends"])[_first_block(phase, this.space) :]

    def work(block: int, rows: slice, scratch: Array) -> None:
        running.recur(this.factors(rows), this.b[rows], carries[block], y[rows], this.elements)

    each_block(phase, this.space, this.scratch, work)


# --- what comes before --------------------------------------------------------------------------


def _first_block(phase: Phase, space: Space) -> int:
    return phase.range_of(space)[0] // space.block_size


def _fetched(
    phase: Phase, space: Space, width: int, names: dict[str, np.dtype[Any]]
) -> dict[str, Array]:
    """Rows that the first phase left for the blocks up to the last one here, in order."""
    first, own = _first_block(phase, space), blocks_of(phase, space)
    found = {name: np.empty((first + own, width), dtype) for name, dtype in names.items()}
    pieces = []
    for server in phase.servers:
        low, _ = phase.range_of(space, server)
        at, count = low // space.block_size, blocks_of(phase, space, server)
        if count and at < first + own:
            pieces += [
                Piece(server, name, 0, count, into[at : at + count]) for name, into in found.items()
            ]
    phase.fetch(pieces)
    return found


def _carries(initial: Array, factors: scaled.Scaled, terms: Array | None) -> Array:
    """What each block goes on from: ``initial``, and then by ``factors`` and ``terms``."""
    found = np.empty((len(factors[0]) + 1, len(initial)))
    found[0] = initial
    for block, factor in enumerate(zip(*factors, strict=True)):
        found[block + 1] = scaled.times(found[block], factor)
        if terms is not None:
            found[block + 1] += terms[block]
    return found
