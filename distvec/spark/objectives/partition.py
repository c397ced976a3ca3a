"""A partition's rows in the process of a task: what they touch is pulled, and pushed.

Both go as a list of coordinates with their values, or as all values of the space: whichever is
fewer bytes.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.spark.data.blocks import Ints, load
from ps_backend.client import Change, Client
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType, array_type

_INDEX_BYTES = 8

Values = npt.NDArray[Any]
Kept = tuple[int, ArrayType]
"""The buffer that has the coordinates of a space, and its type."""


class Partition:
    """The rows in the files of ``path``, mapped; BlockMissing if they are elsewhere."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.block = load(path)
        self._coordinates: dict[tuple[Kept | None, Space, bool], Ints] = {}

    def coordinates(
        self, client: Client, space: Space, *, intercept: bool, kept: Kept | None
    ) -> Ints:
        """Where the rows' columns are in ``space``, sorted; the intercept's last.

        ``kept`` has the global coordinates that the space consists of; None if it has all. One
        message a server, once.
        """
        key = (kept, space, intercept)
        if key not in self._coordinates:
            columns = self.block.columns
            if kept is not None:
                columns = self._ranks(client, kept)
            last = space.length - 1
            self._coordinates = {key: np.append(columns, last) if intercept else columns}
        return self._coordinates[key]

    def _ranks(self, client: Client, kept: Kept) -> Ints:
        """The places of the columns among the coordinates ``kept``; a file for later processes."""
        path = os.path.join(self.path, f"places-{kept[0]}.npy")
        if not os.path.exists(path):
            places = np.searchsorted(client.read(*kept), self.block.columns)
            draft = f"{path}.{os.getpid()}"
            with open(draft, "wb") as file:
                np.save(file, places)
            os.replace(draft, path)
        return np.asarray(np.load(path, mmap_mode="r"))


class WholeVectors:
    """Pulls and contributions, and memory for whole vectors that the partitions of a process share.

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
        """The values of ``buffer`` at sorted ``coordinates``. One message a server.

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

    def contribution(self, space: Space, coordinates: Ints, values: Values) -> Change:
        """What to contribute to add ``values`` at ``coordinates``."""
        if not _is_most(coordinates, array_type(space, values.dtype)):
            return Change(coordinates, values)
        if coordinates.size == space.length:
            return Change(None, values)
        if (self._sum.size, self._sum.dtype) != (space.length, values.dtype):
            self._sum = np.empty(space.length, values.dtype)
        self._sum.fill(0)
        self._sum[coordinates] = values
        return Change(None, self._sum)


def _is_most(coordinates: Ints, type: ArrayType) -> bool:
    """Are all values of the array fewer bytes than coordinates with theirs?"""
    return coordinates.size * (_INDEX_BYTES + type.dtype.itemsize) >= type.nbytes
