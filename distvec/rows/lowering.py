"""From the nodes that a function has made to a row program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distvec.array.handle import Handle, broadcasts
from distvec.graph import build
from distvec.graph.build import check_dtype
from distvec.graph.node import Graph, Node, topological
from distvec.planner.emit import sweep_of
from distvec.planner.fuse import Traversal
from distvec.rows.tracing import ARGUMENT, BATCH, NotTraceable
from ps_backend.program.row_program import RowProgram, Scatter
from ps_backend.program.sweep import Sweep
from ps_backend.program.types import NodeType


def fitted(graph: Graph, node: Node, type: NodeType, name: str) -> Node:
    """``node`` in the dtype and with the rows of ``type``, those of the array called ``name``.

    ``TypeError`` where its dtype does not fit, as for ``x[:] = values``; ``ValueError`` where its
    shape does not.
    """
    if not np.can_cast(node.dtype, type.dtype, "same_kind"):
        raise TypeError(
            f"new rows of {name!r} are {node.dtype}, and the array is of {type.dtype}; convert "
            f"them: .astype({type.dtype.name!r})"
        )
    if not broadcasts(node.type.shape, type.shape):
        own = node.type.shape if node.on_client else ("n", *node.type.row)
        raise ValueError(
            f"new rows of {name!r} have shape {_printed(own)}, which does not fit the array's, "
            f"{_printed(('n', *type.row))}, of n keys"
        )
    return build.cast(graph, build.broadcast_to(graph, node, type), type.dtype)


def _printed(shape: tuple[object, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def per_key(graph: Graph, value: Any) -> Node:
    """What is returned for each key. ``TypeError`` for what is the same for all."""
    node = as_node(graph, value)
    if node.on_client:
        raise TypeError(
            f"a value of shape {node.type.shape} is returned that does not depend on any row: "
            f"return what there is for each key, computed of rows or of what is given per key"
        )
    return node


@dataclass(frozen=True)
class Lowered:
    """A row program, and the nodes of what a call of it needs, each in the program's order."""

    program: RowProgram
    arrays: Sequence[Node]
    given: Sequence[Node]
    scalars: Sequence[Node]


def lowered(
    rows: Sequence[Node],
    given: Sequence[Node],
    keys: Node | None,
    scatters: Sequence[tuple[Node, Node, str]],
    returned: Sequence[Node],
) -> Lowered:
    """The program that computes ``returned``, and new rows: ``scatters`` of ``(new, old, op)``.

    ``rows``, ``given`` and ``keys`` are the arguments; those that nothing is made of are left out.
    """
    stores = list(dict.fromkeys([*(new for new, _, _ in scatters), *returned]))
    order = list(topological(stores, lambda node: node.known))
    used = {id(node) for node in order if node.op == ARGUMENT and not node.on_client}
    position = {id(node): number for number, node in enumerate(order)}
    traversal = Traversal(0, BATCH, stores, reasons={id(node): "" for node in stores})
    planned = sweep_of(traversal, used, position)
    gathered = [node for node in rows if id(node) in used]
    along = [node for node in given if id(node) in used]
    with_keys = [keys] if keys is not None and id(keys) in used else []
    at = {number: place for place, number in enumerate(planned.inputs)}
    places = [at[position[id(node)]] for node in (*gathered, *along, *with_keys)]
    written = {id(old) for _, old, _ in scatters}
    arrays = [node for node in rows if id(node) in used or id(node) in written]
    number = {id(node): place for place, node in enumerate(arrays)}
    output = {id(node): place for place, node in enumerate(stores)}
    if scatters and planned.structure.may_fail:
        raise NotTraceable(
            "indices along the rows may be out of bounds, which only shows where they are used: "
            "one server would have written then, and another one not. Return what they give, and "
            "write it by another function; or write numpy.where(columns == index, new, old)"
        )
    program = RowProgram(
        _reordered(planned.structure, places),
        gathers=tuple([number[id(node)] for node in gathered]),
        scatters=tuple(
            [Scatter(output[id(new)], number[id(old)], op) for new, old, op in scatters]
        ),
        returns=tuple([output[id(node)] for node in returned]),
        with_keys=bool(with_keys),
    )
    program.verify()
    return Lowered(program, arrays, along, [order[place] for place in planned.scalars])


def _reordered(sweep: Sweep, inputs: Sequence[int]) -> Sweep:
    """``sweep`` with its inputs in another order."""
    number: dict[int, int] = {old: new for new, old in enumerate(inputs)}
    number |= {value: value for value in range(len(inputs), len(sweep.types))}
    return replace(
        sweep,
        inputs=tuple(sweep.inputs[old] for old in inputs),
        steps=tuple(step.renumbered(number) for step in sweep.steps),
        outputs=tuple(number[value] for value in sweep.outputs),
    )


def as_node(graph: Graph, value: Any) -> Node:
    """What a function returned, as a node: of a tracer, or of numbers that are the same for all."""
    if isinstance(value, Handle):
        return value.node
    host = np.asarray(value)
    return graph.client_value(host, check_dtype(host.dtype))
