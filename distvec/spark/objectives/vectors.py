"""What tasks pull of an array, and push: a list of coordinates with their rows, or the whole array,
whichever is fewer bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.losses.rows import Ints
from ps_backend.client import Change, Client
from ps_backend.program.types import ArrayType

_INDEX_BYTES = 8

Values = npt.NDArray[Any]


class WholeVectors:
    """Pulls and contributions, and memory for whole arrays that the partitions of a process share.

    What ``pull`` and ``contribution`` return may be overwritten by the next call.
    """

    def __init__(self) -> None:
        self._values = self._sum = np.empty(0)
        self._source: object = None
        self._type: ArrayType

    def give_way(self) -> tuple[ArrayType, Values] | None:
        """Forget the values; returns their type and memory, for others to come there.

        None if not all values of an array were pulled.
        """
        if self._source is None:
            return None
        self._source = None
        return self._type, self._values

    def came(self, client: Client, buffer: int) -> None:
        """All values of ``buffer`` are in that memory now."""
        self._source = (client, buffer)

    def pull(self, client: Client, buffer: int, type: ArrayType, coordinates: Ints) -> Values:
        """The rows of ``buffer`` at sorted ``coordinates``. One message a server.

        None if all values came for another partition before.
        """
        if not _is_most(coordinates, type):
            return client.gather(buffer, type, coordinates)
        if (source := (client, buffer)) != self._source:
            self._source = None
            if (self._values.shape, self._values.dtype) != (type.shape, type.dtype):
                self._values = np.empty(type.shape, type.dtype)
            client.read(buffer, type, out=self._values)
            self._source, self._type = source, type
        return self._values if coordinates.size == type.space.length else self._values[coordinates]

    def contribution(self, type: ArrayType, coordinates: Ints, values: Values) -> Change:
        """What to contribute to an array of ``type`` to add ``values`` at ``coordinates``."""
        if not _is_most(coordinates, type):
            return Change(coordinates, values)
        if coordinates.size == type.space.length:
            return Change(None, values)
        if (self._sum.shape, self._sum.dtype) != (type.shape, type.dtype):
            self._sum = np.empty(type.shape, type.dtype)
        self._sum.fill(0)
        self._sum[coordinates] = values
        return Change(None, self._sum)


def _is_most(coordinates: Ints, type: ArrayType) -> bool:
    """Are all values of the array fewer bytes than coordinates with theirs?"""
    row_bytes = type.nbytes // max(type.space.length, 1)
    return coordinates.size * (_INDEX_BYTES + row_bytes) >= type.nbytes
