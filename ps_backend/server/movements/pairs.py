"""Indices, and what goes with them, on their way to the servers that hold what they name.

In one phase each server leaves them grouped by owner; in the next one the owners take them, those
of the first server first: so in the order in which they stand in the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.moving.partition import by_owner, verify_range
from ps_backend.program.spaces import Space
from ps_backend.server.movements.phase import Phase, Piece

Array = npt.NDArray[Any]

_CHUNK_BYTES = 8 << 20
"""Of indices and values that an owner takes at a time: large messages, and little memory."""
_PIECE = 1 << 20
"""Rows that are copied without a pause."""


def leave_pairs(phase: Phase, index: Array, values: Array | None, space: Space) -> None:
    """Group ``index``, into an array over ``space``, and ``values`` with it.

    Raises ``IndexError`` naming the first index here that is out of range, ``OutOfBudget``.
    """
    count = len(index)
    verify_range(index, space.length)
    starts = np.array([phase.range_of(space, k)[0] for k in range(1, phase.count)], np.int64)
    kind = np.int32 if count <= np.iinfo(np.int32).max else np.int64
    places = phase.scratch(count, kind)
    wanted = phase.workspace.new("indices", count, np.int64)
    bounds = by_owner(index, starts, space.length, places, wanted, phase.pause)
    phase.workspace.put("cuts", np.array(bounds, np.int64))
    if values is None:
        return
    left = phase.workspace.new("values", (count, *values.shape[1:]), values.dtype)
    for low in range(0, count, _PIECE):
        some = slice(low, low + _PIECE)
        np.take(values, places[some], axis=0, out=left[some], mode="clip")
        phase.pause()


def taken_pairs(
    phase: Phase, values: tuple[tuple[int, ...], Any] | None
) -> Iterator[tuple[Array, Array | None]]:
    """The indices of what is here, chunk by chunk in their order, and what goes with them.

    ``values``: row and dtype of those. What one step gives is gone with the next.
    """
    row, dtype = values or ((), np.dtype(np.int64))
    size = 8 + (int(np.prod(row)) * dtype.itemsize if values else 0)
    cuts = phase.get_all("cuts", phase.count + 1, np.int64)
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
                pieces = [Piece(server, "indices", low, here.stop, indices[here])]
                if values:
                    pieces.append(Piece(server, "values", low, here.stop, room[here]))
                phase.fetch(pieces)
                yield indices[here], room[here] if values else None
            phase.pause()
