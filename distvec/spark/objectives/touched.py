"""The coordinates that occur in some row. Of a large sparse space that is a small part.

The others have no say in an objective over the rows, so an optimizer need not carry them.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from distvec import DistArray, where
from distvec.array.shaping.joining import concatenate
from distvec.spark.access import Access, join
from distvec.spark.context import PSContext
from distvec.spark.data.blocks import load
from distvec.spark.data.build import Descriptor
from distvec.spark.data.dataset import Dataset, collect
from distvec.spark.rounds.contribute import Contributor
from ps_backend.program.types import ArrayType

_PIECE = 1 << 20
"""So many coordinates go in one message, at most."""


def touched_coordinates(ps: PSContext, data: Dataset) -> DistArray:
    """The features that occur in rows of ``data``, sorted: int64 on the servers.

    Two Spark jobs. The servers need a byte for each of ``data.size`` features meanwhile, and so
    does one task.
    """
    touched = _marks(ps, data)
    coordinates = ps.zeros(int(touched.sum()), np.int64)
    with ps.round(coordinates) as r:
        one = data.spark.sparkContext.parallelize([touched.buffer_id], 1)
        collect(one.map(partial(_list, ps.access, touched.type, r)))
    return coordinates


def at_coordinates(
    model: DistArray, coordinates: DistArray, known: int, start: DistArray, *, intercept: bool
) -> DistArray:
    """The rows of ``model`` at those of ``coordinates`` that are below ``known``; lazy.

    Those of ``start`` elsewhere. With ``intercept`` the last row of ``model`` comes behind them.
    """
    count = len(coordinates)
    found: DistArray = start[:count].astype(np.result_type(model.dtype, np.float32))
    if known and count:
        is_known = coordinates < known
        values = model[where(is_known, coordinates, 0)]
        found = where(is_known[:, None] if model.ndim == 2 else is_known, values, found)
    if intercept:
        found = concatenate([found, model[-1:]])
    return found


def _marks(ps: PSContext, data: Dataset) -> DistArray:
    """True where a feature occurs."""
    touched = ps.zeros(data.size, bool)

    def attempt() -> DistArray:
        with ps.round(touched, op="max") as r:
            data.run_on_blocks(partial(_mark, r))
        return touched

    return data.until_found(attempt)


def _mark(r: Contributor, descriptor: Descriptor) -> None:
    r.push(load(descriptor.path).columns, True)


def _list(access: Access, type: ArrayType, r: Contributor, buffer: int) -> None:
    coordinates = np.flatnonzero(join(access).read(buffer, type))
    for low in range(0, coordinates.size, _PIECE):
        piece = coordinates[low : low + _PIECE]
        r.push(np.arange(low, low + piece.size), piece)
