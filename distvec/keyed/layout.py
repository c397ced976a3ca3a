"""The order in which a keyed space has its keys at one moment, as spaces of plain arrays.

By bucket, and within a bucket in the order in which keys were inserted. Buckets go to servers in
ranges, so each server has one piece of this order: a ragged space, which a view cuts as arrays of
that length are cut. Nothing in it depends on the number of servers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from ps_backend.client import SpaceState
from ps_backend.program.spaces import DenseSpace, RaggedSpace


@dataclass(frozen=True)
class Layout:
    """Of the space ``number``: how many keys each server has, and which version of its slots."""

    number: int
    counts: tuple[int, ...]
    versions: tuple[int, ...]
    is_range: bool = False
    """Whether the keys are 0, 1, 2, ...: then it is the order of every plain array as long."""

    @classmethod
    def of(cls, number: int, states: Sequence[SpaceState], is_range: bool) -> Layout:
        """Of what the servers say."""
        counts = tuple(state.keys for state in states)
        return cls(number, counts, tuple(state.version for state in states), is_range)

    @property
    def length(self) -> int:
        """How many keys there are."""
        return sum(self.counts)

    @cached_property
    def id(self) -> int:
        """Tells apart the spaces of different layouts: arrays of two of them are not aligned."""
        if self.is_range:
            return 0
        data = np.array([self.number, *self.versions, *self.counts], "<u8").tobytes()
        digest = hashlib.blake2b(data, digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1 | 1

    @cached_property
    def aligned(self) -> DenseSpace:
        """The space of arrays in this order."""
        return DenseSpace(self.length, self.id)

    @property
    def spaces(self) -> tuple[DenseSpace, ...]:
        """Those of arrays that may be in this order: they have its id, or none."""
        return self.aligned, DenseSpace(self.length)

    @cached_property
    def held(self) -> RaggedSpace:
        """The same, as servers have their keys."""
        return RaggedSpace(self.length, self.id, (0, *accumulate(self.counts)))
