"""Arrays of a keyed space as plain ones in the order of a layout, and such as servers have keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distvec.array.dist_array import DistArray
from distvec.array.handle import Home
from distvec.diagnostics.profile import measured
from distvec.graph import view_nodes
from distvec.graph.node import Buffer
from distvec.keyed.array import KeyedArray
from distvec.keyed.layout import Layout
from ps_backend.client import KEYS, KeySpace, StoredArray
from ps_backend.program.types import ValueType, array_type


def freeze(
    session: Home, remote: KeySpace, layout: Layout, arrays: Sequence[KeyedArray | None]
) -> list[DistArray]:
    """Copies of ``arrays``, None for the keys, each aligned to the others; one message a server.

    ``LayoutChanged`` where ``layout`` is not that of now.
    """
    kinds = [ValueType("int64") if one is None else one.type for one in arrays]
    if not layout.length:
        return [session.array(np.zeros((0, *kind.row), kind.dtype)) for kind in kinds]
    sources = [KEYS if one is None else one.number for one in arrays]
    types = [array_type(layout.held, kind.dtype, kind.row) for kind in kinds]
    buffers = [session.new_buffer(type) for type in types]
    targets = [StoredArray(one.id, type) for one, type in zip(buffers, types, strict=True)]
    with measured(session.counters):
        remote.freeze(layout.versions, sources, targets)
    graph = session.graph
    leaves = [graph.leaf(buffer) for buffer in buffers]
    views = [view_nodes.view(graph, leaf, layout.aligned, 0, 1) for leaf in leaves]
    return [DistArray(session, view) for view in views]


def stored(values: DistArray, layout: Layout) -> Buffer:
    """An array in the order of a layout, as a buffer that lies as the servers have keys."""
    session = values.session
    type = array_type(layout.held, values.dtype, values.node.type.row)
    with session.holders.lock:
        node = session.graph.make(view_nodes.VIEW, (values.node,), type, (0, 1))
        moved = values.like(node)
    (given,) = session.compute(moved)
    buffer: Buffer = given.value
    return buffer
