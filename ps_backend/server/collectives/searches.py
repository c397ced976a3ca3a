"""Searches: each value goes to the server whose part of the sorted array it belongs in.

What is first in each part says which one that is. Values travel in their order, and their places
come back in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.program.collectives import SEARCH
from ps_backend.server.collectives.phase import Phase, PhaseFunction, RemoteRows

Array = npt.NDArray[Any]

_PIECE = 1 << 18
"""Values that are looked up without a pause: some 20 ms."""
_CHUNK = 1 << 20
"""Values that an owner takes at a time."""


def _leave_first(phase: Phase) -> None:
    phase.workspace.put("first", phase.inputs[0][:1])


def _leave_values(phase: Phase) -> None:
    """Group the values by who holds what is before and after them."""
    values, workspace = phase.inputs[1], phase.workspace
    owners, firsts = _owners(phase, values.dtype)
    count = len(values)
    numbers = phase.scratch(count, np.uint16)
    for low in range(0, count, _PIECE):
        some = slice(low, low + _PIECE)
        before = np.searchsorted(firsts, values[some], side=_side(phase))
        numbers[some] = np.maximum(before, 1) - 1
        phase.pause()
    order = workspace.new("order", count, np.int64)
    order[:] = np.argsort(numbers, kind="stable")
    sent = workspace.new("values", count, values.dtype)
    np.take(values, order, out=sent, mode="clip")
    counts = np.zeros(phase.count, np.int64)
    counts[owners] = np.bincount(numbers, minlength=len(owners))
    workspace.put("cuts", np.concatenate(([0], np.cumsum(counts))))


def _owners(phase: Phase, dtype: np.dtype[Any]) -> tuple[list[int], Array]:
    """Who holds some of the sorted array, in order, and the first of each."""
    space = phase.call.types.inputs[0].space
    owners = space.holders(phase.count) if space.length else [phase.servers[0]]
    firsts = np.empty(len(owners), dtype)
    if space.length:
        phase.fetch(RemoteRows(k, "first", 0, 1, firsts[i : i + 1]) for i, k in enumerate(owners))
    else:
        firsts = firsts[:0]
    return owners, firsts


def _side(phase: Phase) -> Any:
    return "right" if phase.params[0] else "left"


def _look_up(phase: Phase) -> None:
    """Places of the values that belong here, those of the first server first."""
    table, (_, values_type) = phase.inputs[0], phase.call.types.inputs
    low, _ = phase.range_of(phase.call.types.inputs[0].space)
    cuts = phase.allgather("cuts", phase.count + 1, np.int64)
    starts = {server: int(found[phase.here]) for server, found in cuts.items()}
    counts = {server: int(found[phase.here + 1]) - starts[server] for server, found in cuts.items()}
    places = phase.workspace.new("places", sum(counts.values()), np.int64)
    room = phase.scratch(min(_CHUNK, max(counts.values(), default=0)), values_type.dtype)
    done, begins = 0, np.zeros(phase.count, np.int64)
    for server, count in counts.items():
        begins[server] = done
        for first in range(0, count, _CHUNK):
            some = room[: min(_CHUNK, count - first)]
            phase.fetch([RemoteRows(server, "values", starts[server] + first, len(some), some)])
            for k in range(0, len(some), _PIECE):
                piece = some[k : k + _PIECE]
                into = places[done : done + len(piece)]
                np.add(np.searchsorted(table, piece, side=_side(phase)), low, out=into)
                done += len(piece)
                phase.pause()
    phase.workspace.put("begins", begins)


def _take_places(phase: Phase) -> None:
    """The places of the values here, from who found them, back in their order."""
    out, order, cuts = phase.outputs[0], phase.workspace["order"], phase.workspace["cuts"]
    begins = phase.allgather("begins", phase.count, np.int64)
    room = phase.scratch(min(_CHUNK, len(order)), np.int64)
    for server in phase.servers:
        low, high = int(cuts[server]), int(cuts[server + 1])
        for first in range(low, high, _CHUNK):
            some = room[: min(_CHUNK, high - first)]
            start = int(begins[server][phase.here]) + first - low
            phase.fetch([RemoteRows(server, "places", start, len(some), some)])
            out[order[first : first + len(some)]] = some
            phase.pause()


PHASES: dict[str, tuple[PhaseFunction, ...]] = {
    SEARCH: (_leave_first, _leave_values, _look_up, _take_places)
}
"""By kind, the functions of the phases."""
