"""Order statistics: the elements that a sort would put at some ranks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ps_backend.kernels.moving import ordered_keys
from ps_backend.program.sorting import ORDER_STATISTICS
from ps_backend.server.movements import phase as movement_phase
from ps_backend.server.movements.phase import Phase
from ps_backend.server.movements.runs import Runs
from ps_backend.server.movements.sorting import sort_part


def phases() -> Mapping[str, tuple[movement_phase.Run, ...]]:
    """The functions of each phase, by kind."""
    return {ORDER_STATISTICS: (leave_run, find)}


def leave_run(phase: Phase) -> None:
    """Sort this server's part."""
    sort_part(phase, len(phase.inputs[0]), None, ranks=_ranks(phase))


def find(phase: Phase) -> None:
    """The first server looks at the runs of all around each rank."""
    if phase.here != phase.servers[0]:
        return
    (source,), (given,) = phase.call.types.inputs, phase.operands
    lengths = {}
    for server in phase.servers:
        low, high = phase.range_of(source.space, server)
        lengths[server] = high - low
    last = source.space.length - 1
    ranks = np.broadcast_to(np.clip(given, 0, last), (len(given), source.width))
    dtype = ordered_keys.key_dtype(source.dtype)
    runs = Runs(phase, lengths, source.width, dtype, _ranks(phase))
    keys = runs.at(ranks).ravel()
    found = np.empty(len(keys), source.dtype)
    ordered_keys.decode(keys, found)
    phase.results[0] = found.reshape(len(given), *source.row)


def _ranks(phase: Phase) -> int:
    """How many are to be found in each column."""
    return phase.call.types.operands[0].row[0]
