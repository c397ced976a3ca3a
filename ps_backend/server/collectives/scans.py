"""Scans, linear recurrences and ``ufunc.reduceat``: results along axis 0, in two phases.

In the first one each server leaves the totals of its blocks, which takes one reading of its part.
In the second it fetches those of the blocks before its own, combines them in order, and writes the
running results of each block from what comes before it on. Blocks are those of the space, so the
bits do not depend on the number of servers.

A running sum of floats is that of its block plus the carry, and the carry is a sum of totals, each
of which is the last running sum of a block: so running sums of what is not negative never fall.

Of ``reduceat``, each server reduces pieces in the first phase: what lies between any two of the
indices and of the borders of blocks. In the second one the first server fetches them all and joins
those of each segment in order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives import running
from ps_backend.program.collectives import LINEAR_RECURRENCE, SCANS, Scan
from ps_backend.program.spaces import Space
from ps_backend.server.collectives.phase import (
    BlockRange,
    Phase,
    PhaseFunction,
    RemoteRows,
    block_count,
    for_each_range,
)

Array = npt.NDArray[Any]
_FLOAT, _INT = np.dtype(np.float64), np.dtype(np.int64)


class _Scanning:
    """What both phases of a scan know."""

    def __init__(self, scan: Scan, phase: Phase) -> None:
        (source,) = phase.call.types.inputs
        made = phase.call.types.made
        self.space, self.width = source.space, source.width
        self.elements = self.space.length * self.width
        self.wide = scan.accumulator(made.dtype)
        self.start = np.full(self.width, scan.start(self.wide), self.wide)
        self.is_sum = scan.ufunc is np.add
        self.is_product = scan.ufunc is np.multiply and self.wide.kind == "f"


def _totals(scan: Scan, phase: Phase) -> None:
    """First phase of a scan: what the rows of each block join to."""
    this, (x,) = _Scanning(scan, phase), phase.inputs
    shape = block_count(phase, this.space), this.width
    totals = phase.workspace.new("totals", shape, this.wide)
    totals[...] = this.start
    exponents = phase.workspace.new("exponents", shape, _INT) if this.is_product else totals

    def work(run: BlockRange) -> None:
        some = run.blocks
        if this.is_product:
            totals[some], exponents[some] = running.product(run.of(x), this.elements)
        else:
            running.total(scan, run.of(x), totals[some], this.elements)

    for_each_range(phase, this.space, this.width, work)


def _results(scan: Scan, phase: Phase) -> None:
    """Second phase of a scan."""
    this, (x,), (y,) = _Scanning(scan, phase), phase.inputs, phase.outputs.values()
    names = {"totals": this.wide} | ({"exponents": _INT} if this.is_product else {})
    found = _fetch_rows(phase, this.space, this.width, names)
    if this.is_product:
        carries = running.scaled_recurrence(this.start, (found["totals"], found["exponents"]), None)
    else:
        carries = scan.ufunc.accumulate(np.vstack((this.start, found["totals"])), axis=0)
    carries = carries[_first_block(phase, this.space) :]

    def work(run: BlockRange) -> None:
        entering = carries[run.blocks]
        if this.is_sum:
            running.running_sums(scan, run.of(x), entering, run.of(y), this.elements)
        else:
            running.accumulate(scan, run.of(x), entering, run.of(y), this.elements)

    for_each_range(phase, this.space, this.width, work)


# --- linear recurrences -------------------------------------------------------------------------


class _Recurring:
    """What both phases of a linear recurrence know: ``a`` is an input or an operand."""

    def __init__(self, phase: Phase) -> None:
        source = phase.call.types.inputs[0]
        self.space, self.width = source.space, source.width
        self.elements = self.space.length * self.width
        self.b, *a = phase.inputs
        self.initial = np.zeros(self.width) + phase.operands[0]
        self.is_constant = not a
        """Whether ``a`` is the same in all rows."""
        self.a = a[0] if a else phase.operands[1].astype(np.float64).reshape(1, 1, -1)

    def factors(self, run: BlockRange) -> Array:
        """``a`` in some blocks."""
        return self.a if self.is_constant else run.of(self.a)


def _recurrence_totals(phase: Phase) -> None:
    """First phase: where each block ends that begins with 0, and the product of its factors."""
    this = _Recurring(phase)
    shape = block_count(phase, this.space), this.width
    ends = phase.workspace.new("ends", shape, _FLOAT)
    ends[...] = 0
    if not this.is_constant:
        fractions = phase.workspace.new("fractions", shape, _FLOAT)
        exponents = phase.workspace.new("exponents", shape, _INT)

    def work(run: BlockRange) -> None:
        a = this.factors(run)
        running.recur(a, run.of(this.b), ends[run.blocks], None, this.elements)
        if not this.is_constant:
            found = running.product(a, this.elements)
            fractions[run.blocks], exponents[run.blocks] = found

    for_each_range(phase, this.space, this.width, work)


def _recurrence(phase: Phase) -> None:
    """Second phase: the results."""
    this, (y,) = _Recurring(phase), phase.outputs.values()
    names: dict[str, np.dtype[Any]] = {"ends": _FLOAT}
    if not this.is_constant:
        names |= {"fractions": _FLOAT, "exponents": _INT}
    found = _fetch_rows(phase, this.space, this.width, names)
    if this.is_constant:  # all blocks but the last are as long as each other
        row = np.broadcast_to(this.a[0], (1, this.width))
        factors = running.scaled_power(row, this.space.block_size)
    else:
        factors = found["fractions"], found["exponents"]
    entering = running.scaled_recurrence(this.initial, factors, found["ends"])
    entering = entering[_first_block(phase, this.space) :]

    def work(run: BlockRange) -> None:
        states = entering[run.blocks]
        running.recur(this.factors(run), run.of(this.b), states, run.of(y), this.elements)

    for_each_range(phase, this.space, this.width, work)


# --- what comes before --------------------------------------------------------------------------


def _first_block(phase: Phase, space: Space) -> int:
    return phase.range_of(space)[0] // space.block_size


def _fetch_rows(
    phase: Phase, space: Space, width: int, names: dict[str, np.dtype[Any]]
) -> dict[str, Array]:
    """Rows that the first phase left for the blocks up to the last one here, in order."""
    first, own = _first_block(phase, space), block_count(phase, space)
    found = {name: np.empty((first + own, width), dtype) for name, dtype in names.items()}
    pieces = []
    for server in phase.servers:
        low, _ = phase.range_of(space, server)
        at, count = low // space.block_size, block_count(phase, space, server)
        if count and at < first + own:
            pieces += [
                RemoteRows(server, name, 0, count, into[at : at + count])
                for name, into in found.items()
            ]
    phase.fetch(pieces)
    return found


def _piece_starts(starts: Array, space: Space) -> Array:
    """Where the pieces begin, in order."""
    single = starts[:-1][starts[1:] <= starts[:-1]]  # one element each
    after = single[single < space.length - 1] + 1
    return np.union1d(np.concatenate((starts, after)), np.arange(0, space.length, space.block_size))


def _pieces(scan: Scan, phase: Phase) -> None:
    """First phase: the pieces on this server."""
    (source,), (x,), (starts,) = phase.call.types.inputs, phase.inputs, phase.operands
    made = phase.call.types.made
    low, high = phase.range_of(source.space)
    cuts = _piece_starts(starts, source.space)
    cuts = cuts[np.searchsorted(cuts, low) : np.searchsorted(cuts, high)] - low
    wide = scan.accumulator(made.dtype)
    pieces = phase.workspace.new("pieces", (len(cuts), *source.row), wide)

    def work(rows: slice) -> None:
        first, past = np.searchsorted(cuts, (rows.start, rows.stop))
        own = cuts[first:past] - rows.start
        scan.ufunc.reduceat(x[rows], own, axis=0, dtype=wide, out=pieces[first:past])

    for_each_range(phase, source.space, source.width, lambda run: work(run.rows))


def _segments(scan: Scan, phase: Phase) -> None:
    """Second phase: the segments, on the first server."""
    if phase.here != phase.servers[0]:
        return
    (source,), (starts,) = phase.call.types.inputs, phase.operands
    ((number, made),) = phase.call.types.outputs
    cuts = _piece_starts(starts, source.space)
    wide = scan.accumulator(made.dtype)
    pieces = np.empty((len(cuts) + 1, *source.row), wide)
    pieces[-1] = scan.start(wide)  # past the last one
    wanted = []
    for server in phase.servers:
        first, past = np.searchsorted(cuts, phase.range_of(source.space, server)).tolist()
        wanted.append(RemoteRows(server, "pieces", 0, past - first, pieces[first:past]))
    phase.fetch(wanted)
    ends = np.append(starts[1:], source.space.length)
    ends = np.where(ends > starts, ends, starts + 1)
    between = np.searchsorted(cuts, np.stack((starts, ends), axis=1).ravel())
    phase.results[number] = scan.ufunc.reduceat(pieces, between, axis=0)[::2]


PHASES: dict[str, tuple[PhaseFunction, ...]] = {
    **{one.kind: (partial(_totals, one), partial(_results, one)) for one in SCANS.values()},
    **{one.between: (partial(_pieces, one), partial(_segments, one)) for one in SCANS.values()},
    LINEAR_RECURRENCE: (_recurrence_totals, _recurrence),
}
"""By kind, the functions of the phases."""
