"""Elements that a boolean mask selects: as an array of their own, and back into their places.

Their number decides how the result is split over servers, so the mask is counted first, in a
request of its own. Then each server compacts its elements, and a view splits them like any array
of that length: data moves to a neighbour when it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array.core.handle import SessionBase, express
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import filled
from distvec.diagnostics.profile import measured
from distvec.graph.node import Buffer, Node, view
from ps_backend.program.spaces import DenseSpace, RaggedSpace
from ps_backend.program.sweep import Program, Reduction, Sweep, SweepCall
from ps_backend.program.types import ArrayType, array_type


def elements(values: Arithmetic, mask: Arithmetic) -> Node:
    """The elements (or rows) of ``values`` where ``mask`` is true, as an array on the servers.

    Messages: one that computes what is pending, one that counts the mask unless that is known, and
    one that puts them together.
    """
    session = values.session
    source, chosen = session.compute(values, mask)
    space = _chosen_space(session, chosen)
    row = () if chosen.type.row else source.type.row
    if not space.length:
        return filled(session.graph, (0, *row), 0, source.dtype)
    dense = DenseSpace(space.length)
    servers = range(session.client.servers)
    ends = [dense.range_of(server, len(servers))[1] for server in servers]
    split = dense if [0, *ends] == [*space.cuts] else space  # then they lie where they belong
    target = session.new_buffer(array_type(split, source.dtype, row))
    with measured(session.counters):
        session.client.compress(
            source.value.id, _type(source), chosen.value.id, target.id, split, bool(chosen.type.row)
        )
    leaf = session.graph.leaf(target)
    return leaf if split is dense else view(session.graph, leaf, dense, 0, 1)


def put_where(x: Arithmetic, mask: Arithmetic, values: Arithmetic) -> Any:
    """``x`` with ``values``, as many as ``mask`` is true, put there in their order.

    ``ValueError``, as NumPy's, for another number of them. Messages as of ``elements``, and one
    that brings the values to the servers where they belong.
    """
    session = x.session
    old, chosen = session.compute(x, mask)
    space = _chosen_space(session, chosen)
    if len(values) != space.length:
        raise ValueError(
            f"NumPy boolean array indexing assignment cannot assign {len(values)} input values to "
            f"the {space.length} output values where the mask is true"
        )
    if not space.length:
        return x.copy()
    (given,) = session.compute(express(values, view, values, space, 0, 1))
    target = session.new_buffer(_type(old))
    with measured(session.counters):
        session.client.expand(
            old.value.id,
            _type(old),
            chosen.value.id,
            given.value.id,
            target.id,
            space,
            bool(chosen.type.row),
        )
    return x.like(session.graph.leaf(target))


def _type(node: Node) -> ArrayType:
    buffer: Buffer = node.value
    return buffer.type


def _chosen_space(session: SessionBase, mask: Node) -> RaggedSpace:
    """How many elements of a mask, which is stored, are true on each server."""
    found = session.chosen.get(mask)
    if found is None:
        space, type = mask.type.space, _type(mask).value
        count = Sweep((type,), (), (), (), (Reduction("sum", (0,)),))
        call = SweepCall(count, space, (mask.value.id,), (), ())
        with measured(session.counters):
            answer = session.client.run(Program((call,)))
        assert answer is not None
        blocks = np.cumsum([0, *answer[0][0]])  # how many are true before each block
        servers = session.client.servers
        cuts = [0]
        for server in range(servers):
            _, high = space.range_of(server, servers)
            cuts.append(int(blocks[-(-high // space.block_size)]))
        found = RaggedSpace(cuts[-1], 0, tuple(cuts))
        session.chosen[mask] = found
    return found
