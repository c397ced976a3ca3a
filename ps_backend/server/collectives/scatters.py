"""Scatters: each server sends its pairs of an index and a value to the owner of the place.

In one phase each server leaves them grouped by owner; in the next one the owners take them, those
of the first server first: so in the order in which they stand in the arrays. The bits are NumPy's,
and the number of servers does not show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives.partition import group_by_owner, put, verify_range
from ps_backend.program.collectives import SCATTER, ufunc_of
from ps_backend.program.spaces import Space
from ps_backend.server.collectives.phase import Phase, PhaseFunction, RemoteRows

Array = npt.NDArray[Any]

_CHUNK_BYTES = 8 << 20
"""Of indices and values that an owner takes at a time: large messages, and little memory."""
_PIECE = 1 << 20
"""Rows that are copied without a pause."""


def leave_pairs(
    phase: Phase,
    index: Array,
    values: Array | None,
    space: Space,
    ends: tuple[int, int] | None = None,
) -> None:
    """Group ``index``, into an array over ``space``, and ``values`` with it.

    ``ends``: the least and the greatest index, if they are known. Raises ``IndexError`` naming the
    first index here that is out of range, ``OutOfBudget``.
    """
    count = len(index)
    verify_range(index, space.length, ends)
    starts = np.array([phase.range_of(space, k)[0] for k in range(1, phase.count)], np.int64)
    kind = np.int32 if count <= np.iinfo(np.int32).max else np.int64
    places = phase.scratch(count, kind)
    wanted = phase.workspace.new("indices", count, np.int64)
    bounds = group_by_owner(index, starts, space.length, places, wanted, phase.pause)
    phase.workspace.put("cuts", np.array(bounds, np.int64))
    if values is None:
        return
    left = phase.workspace.new("values", (count, *values.shape[1:]), values.dtype)
    for low in range(0, count, _PIECE):
        some = slice(low, low + _PIECE)
        np.take(values, places[some], axis=0, out=left[some], mode="clip")
        phase.pause()


def take_pairs(
    phase: Phase, values: tuple[tuple[int, ...], Any] | None
) -> Iterator[tuple[Array, Array | None]]:
    """The indices of what is here, chunk by chunk in their order, and what goes with them.

    ``values``: row and dtype of those. What one step gives is gone with the next.
    """
    row, dtype = values or ((), np.dtype(np.int64))
    size = 8 + (int(np.prod(row)) * dtype.itemsize if values else 0)
    cuts = phase.allgather("cuts", phase.count + 1, np.int64)
    counts = {
        server: int(found[phase.here + 1] - found[phase.here]) for server, found in cuts.items()
    }
    others = max([count for server, count in counts.items() if server != phase.here], default=0)
    chunk = max(1, _CHUNK_BYTES // size)
    most = min(others, chunk)
    indices = phase.scratch(most, np.int64)
    room = phase.scratch((most, *row) if values else 0, dtype)
    for server, count in counts.items():
        begin = int(cuts[server][phase.here])
        for low in range(begin, begin + count, chunk):
            some = slice(low, min(low + chunk, begin + count))
            if server == phase.here:
                left = phase.workspace
                yield left["indices"][some], left["values"][some] if values else None
            else:
                here = slice(0, some.stop - low)
                pieces = [RemoteRows(server, "indices", low, here.stop, indices[here])]
                if values:
                    pieces.append(RemoteRows(server, "values", low, here.stop, room[here]))
                phase.fetch(pieces)
                yield indices[here], room[here] if values else None
            phase.pause()


_APPLIED = 1 << 20
"""Elements that are applied, or copied, without a pause."""


def _leave(phase: Phase) -> None:
    _, has_base = phase.params
    index, *values = phase.buffers[has_base:]
    made, ends = phase.call.types.made, index.extremes if len(index.array) else None
    if _is_alone(phase):
        verify_range(index.array, made.space.length, ends)
        return
    leave_pairs(phase, index.array, values[0].array if values else None, made.space, ends)


def _apply(phase: Phase) -> None:
    way, has_base = phase.params
    types = phase.call.types
    sent = types.inputs[has_base + 1 :]
    out, made = phase.outputs[0], types.made
    _begin(phase, out, phase.inputs[0] if has_base else phase.operands[0])
    low, _ = phase.range_of(made.space)
    ufunc = ufunc_of(way)
    if _is_alone(phase):
        index, *given = phase.inputs[has_base:]
        for part in _pieces(len(index)):
            some = given[0][part] if given else phase.operands[-1]
            put(out, low, index[part], some, ufunc, made.space.length)
            phase.pause()
        return
    for indices, values in take_pairs(phase, (sent[0].row, sent[0].dtype) if sent else None):
        put(out, low, indices, phase.operands[-1] if values is None else values, ufunc)


def _is_alone(phase: Phase) -> bool:
    """Whether one server has all of it, and both phases in one call: pairs stay where they are."""
    return phase.call.whole and len(phase.servers) == 1


def _pieces(count: int) -> Iterator[slice]:
    return (slice(low, min(low + _APPLIED, count)) for low in range(0, count, _APPLIED))


def _begin(phase: Phase, out: Array, base: Array) -> None:
    """What is there before."""
    step = max(1, _APPLIED // max(1, int(np.prod(out.shape[1:]))))
    for low in range(0, len(out), step):
        some = slice(low, low + step)
        np.copyto(out[some], base[some] if base.shape == out.shape else base)
        phase.pause()


PHASES: dict[str, tuple[PhaseFunction, ...]] = {SCATTER: (_leave, _apply)}
"""By kind, the functions of the phases."""
