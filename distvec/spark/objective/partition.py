"""A partition's rows in the process of a task: what they touch is pulled, and pushed.

Both go as a list of coordinates with their values, or as all values of the space: whichever is
fewer bytes. Memory for vectors is kept from one evaluation to the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.spark.data.blocks import Ints, load
from ps_backend.client import Client
from ps_backend.space import DenseSpace

_INDEX_BYTES = 8

Values = npt.NDArray[Any]


class Partition:
    """The rows in the files of ``path``, mapped; FileNotFoundError if they are elsewhere."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.block = load(path)
        self._coordinates: dict[tuple[int | None, int, bool], Ints] = {}
        self._whole: Values | None = None
        self._sum: Values | None = None
        self._sum_of: Ints | None = None

    def coordinates(
        self, client: Client, length: int, *, intercept: bool, kept: int | None
    ) -> Ints:
        """Where the rows' columns are in a space of ``length``, sorted; the intercept's last.

        ``kept`` is the buffer with the global coordinates that the space consists of; None if it
        has all. One message a server, once.
        """
        key = (kept, length, intercept)
        if key not in self._coordinates:
            columns = self.block.columns
            if kept is not None:
                size = DenseSpace(length - intercept)
                columns = self._ranks(kept, lambda: client.read(kept, size, np.int64))
            self._coordinates = {key: np.append(columns, length - 1) if intercept else columns}
        return self._coordinates[key]

    def pull(
        self, client: Client, buffer: int, space: DenseSpace, dtype: str, coordinates: Ints
    ) -> Values:
        """The values at ``coordinates``, to be used until the next pull. One message a server."""
        kind = np.dtype(dtype)
        if not _is_most(coordinates, space, kind):
            return client.gather(buffer, space, kind, coordinates)
        if self._whole is None or (self._whole.size, self._whole.dtype) != (space.length, kind):
            self._whole = np.empty(space.length, kind)
        client.read(buffer, space, kind, out=self._whole)
        return self._whole if coordinates.size == space.length else self._whole[coordinates]

    def contribution(
        self, space: DenseSpace, coordinates: Ints, values: Values
    ) -> tuple[Ints | None, Values]:
        """What to stage to add ``values`` at ``coordinates``; valid until the next one."""
        if not _is_most(coordinates, space, values.dtype):
            return coordinates, values
        if coordinates.size == space.length:
            return None, values
        total = self._sum
        if total is None or total.dtype != values.dtype or self._sum_of is not coordinates:
            total = self._sum = np.zeros(space.length, values.dtype)
            self._sum_of = coordinates  # all others stay 0
        total[coordinates] = values
        return None, total

    def _ranks(self, kept: int, read: Callable[[], Ints]) -> Ints:
        """The places of the columns among the coordinates ``kept``; a file for later processes."""
        path = os.path.join(self.path, f"places-{kept}.npy")
        if not os.path.exists(path):
            draft = f"{path}.{os.getpid()}"
            with open(draft, "xb") as file:
                np.save(file, np.searchsorted(read(), self.block.columns))
            os.replace(draft, path)
        return np.asarray(np.load(path, mmap_mode="r"))


def pull(client: Client, buffer: int, space: DenseSpace, dtype: str, coordinates: Ints) -> Values:
    """The values of ``buffer`` at sorted ``coordinates``. One message a server."""
    kind = np.dtype(dtype)
    if _is_most(coordinates, space, kind):
        return client.read(buffer, space, kind)[coordinates]
    return client.gather(buffer, space, kind, coordinates)


def _is_most(coordinates: Ints, space: DenseSpace, dtype: np.dtype[Any]) -> bool:
    """Are all values of the space fewer bytes than coordinates with theirs?"""
    return coordinates.size * (_INDEX_BYTES + dtype.itemsize) >= space.length * dtype.itemsize
