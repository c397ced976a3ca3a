"""Arrays of a keyed space as plain ones, in the order of its keys at one moment."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from distvec.array.array import DistArray
from distvec.array.core.handle import SessionBase
from distvec.diagnostics.profile import measured
from distvec.graph.node import VIEW, Buffer
from distvec.graph.node import view as view_node
from distvec.keyed.array import KeyedArray
from ps_backend.client import KEYS, KeySpace, SpaceState, StoredArray
from ps_backend.program.spaces import DenseSpace, RaggedSpace
from ps_backend.program.types import ValueType, array_type


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


def freeze(
    session: SessionBase, remote: KeySpace, layout: Layout, arrays: Sequence[KeyedArray | None]
) -> list[DistArray]:
    """Copies of ``arrays``, None for the keys, each aligned to the others; one message a server.

    ``LayoutChanged`` where ``layout`` is not that of now.
    """
    kinds = [ValueType("int64") if one is None else one.type for one in arrays]
    if not layout.length:
        return [session._put(np.zeros((0, *kind.row), kind.dtype)) for kind in kinds]
    sources = [KEYS if one is None else one.number for one in arrays]
    types = [array_type(layout.held, kind.dtype, kind.row) for kind in kinds]
    buffers = [session.new_buffer(type) for type in types]
    targets = [StoredArray(one.id, type) for one, type in zip(buffers, types, strict=True)]
    with measured(session.counters):
        remote.freeze(layout.versions, sources, targets)
    graph = session.graph
    leaves = [graph.leaf(buffer) for buffer in buffers]
    views = [view_node(graph, leaf, layout.aligned, 0, 1) for leaf in leaves]
    return [DistArray(session, view) for view in views]


def store_in_layout(values: DistArray, layout: Layout) -> Buffer:
    """An array in the order of a layout, as a buffer that lies as the servers have keys."""
    session = values.session
    type = array_type(layout.held, values.dtype, values.node.type.row)
    with session.holders.lock:
        node = session.graph.make(VIEW, (values.node,), type, (0, 1))
        moved = values.like(node)
    (given,) = session.compute(moved)
    buffer: Buffer = given.value
    return buffer
