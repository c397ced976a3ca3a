"""Keys as a caller gives them, and as servers get them: different ones, in ascending order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ps_backend.client.lent_memory import lent
from ps_backend.client.selection import Selection
from ps_backend.kernels.keyed import repeated
from ps_backend.program.keys import Partition, check_keys

Keys = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyBatch:
    """The different ones of some keys. ``keys[inverse]`` are those that were given."""

    keys: Keys
    inverse: npt.NDArray[np.int64] | None
    """None where the given ones are ``keys`` themselves."""
    count: int
    """How many were given."""

    @classmethod
    def of(cls, given: npt.ArrayLike) -> KeyBatch:
        """Of integers of shape ``(n,)``; ``TypeError``, ``ValueError`` for what are no keys."""
        keys = check_keys(given)
        if np.all(keys[1:] > keys[:-1]):
            return cls(keys, None, len(keys))
        different, inverse = repeated.distinct(keys)
        return cls(different, inverse, len(keys))

    def combined(self, rows: npt.NDArray[np.generic], op: str) -> npt.NDArray[np.generic]:
        """A row for each different key: those of a repeated one are joined, in their order.

        ``rows``: one for each key as it was given. Of ``"replace"`` the last one stays.
        """
        if self.inverse is None:
            return rows
        return repeated.combined(self.inverse, len(self.keys), rows, op)

    def expanded(self, rows: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """A row for each key as it was given, of those for the different ones."""
        if self.inverse is None:
            return rows
        out: npt.NDArray[np.generic] = lent((self.count, *rows.shape[1:]), rows.dtype)
        return np.take(rows, self.inverse, axis=0, out=out, mode="clip")  # "raise" copies first

    def shares(self, servers: int, partition: Partition) -> Mapping[int, Selection]:
        """Which of ``keys`` each server holds, of those that hold any.

        ``IndexError`` for keys that are not in the range that ``partition`` is of.
        """
        partition.check(self.keys)
        if servers == 1:
            return {0: slice(None)} if len(self.keys) else {}
        holders = partition.server_of(self.keys, servers)
        masks = {server: holders == server for server in range(servers)}
        return {server: mask for server, mask in masks.items() if mask.any()}
