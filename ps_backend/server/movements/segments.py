"""``ufunc.reduceat``: what lies between indices, reduced, in two phases.

In the first one each server reduces pieces: what lies between any two of the indices and of the
borders of blocks. In the second one the first server fetches them all and joins those of each
segment in order, so the bits do not depend on the number of servers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.program.scans import SCANS, Scan
from ps_backend.program.spaces import Space
from ps_backend.server.movements.blocks import each_run
from ps_backend.server.movements.phase import Phase, Piece
from ps_backend.server.movements.phase import Run as Function

Array = npt.NDArray[Any]


def phases() -> dict[str, tuple[Function, ...]]:
    """By kind, the functions of the phases."""
    return {
        scan.between: (partial(_pieces, scan), partial(_segments, scan)) for scan in SCANS.values()
    }


def _cuts(starts: Array, space: Space) -> Array:
    """Where the pieces begin, in order."""
    single = starts[:-1][starts[1:] <= starts[:-1]]  # one element each
    after = single[single < space.length - 1] + 1
    return np.union1d(np.concatenate((starts, after)), np.arange(0, space.length, space.block_size))


def _pieces(scan: Scan, phase: Phase) -> None:
    """First phase: the pieces on this server."""
    (source,), (x,), (starts,) = phase.call.types.inputs, phase.inputs, phase.operands
    ((_, made),) = phase.call.types.outputs
    low, high = phase.range_of(source.space)
    cuts = _cuts(starts, source.space)
    cuts = cuts[np.searchsorted(cuts, low) : np.searchsorted(cuts, high)] - low
    wide = scan.accumulator(made.dtype)
    pieces = phase.workspace.new("pieces", (len(cuts), *source.row), wide)

    def work(rows: slice) -> None:
        first, past = np.searchsorted(cuts, (rows.start, rows.stop))
        own = cuts[first:past] - rows.start
        scan.ufunc.reduceat(x[rows], own, axis=0, dtype=wide, out=pieces[first:past])

    each_run(phase, source.space, source.width, lambda run: work(run.rows))


def _segments(scan: Scan, phase: Phase) -> None:
    """Second phase: the segments, on the first server."""
    if phase.here != phase.servers[0]:
        return
    (source,), (starts,) = phase.call.types.inputs, phase.operands
    ((number, made),) = phase.call.types.outputs
    cuts = _cuts(starts, source.space)
    wide = scan.accumulator(made.dtype)
    pieces = np.empty((len(cuts) + 1, *source.row), wide)
    pieces[-1] = scan.start(wide)  # past the last one
    wanted = []
    for server in phase.servers:
        first, past = np.searchsorted(cuts, phase.range_of(source.space, server)).tolist()
        wanted.append(Piece(server, "pieces", 0, past - first, pieces[first:past]))
    phase.fetch(wanted)
    ends = np.append(starts[1:], source.space.length)
    ends = np.where(ends > starts, ends, starts + 1)
    between = np.searchsorted(cuts, np.stack((starts, ends), axis=1).ravel())
    phase.results[number] = scan.ufunc.reduceat(pieces, between, axis=0)[::2]
