"""Arrays in other shapes: broadcasting, and what moves between servers and client for it.

Axis 0 of an array on the servers is split, so what is combined with it must be split in the same
way, or be the same for every slot: a number, or a small array that the client keeps and that
travels with the program. What is in the wrong place for that is brought to the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from distvec.graph.client_values import MOST_ELEMENTS, value_of
from distvec.graph.expr import Graph, Node
from ps_backend.program.spaces import Space
from ps_backend.program.types import (
    ArrayType,
    ClientType,
    NodeType,
    array_type,
    client_type,
)

Shape = tuple[int, ...]


def common_shape(nodes: Sequence[Node]) -> tuple[Space | None, Shape]:
    """The shape to which ``nodes`` are broadcast, and the space in which the servers have it.

    No space where the client computes the result: no array on the servers has all its rows, so it
    is small. ``ValueError`` as NumPy's.
    """
    shapes = [node.type.shape for node in nodes]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        given = " ".join(map(str, shapes))
        why = ""
        if len({node.type.shape for node in nodes if node.type.shape}) > 1:
            why = ": vectors of different length live in different spaces"
        raise ValueError(
            f"operands could not be broadcast together with shapes {given}{why}"
        ) from None
    first: ArrayType | None = None
    for node in nodes:
        type = node.type
        if not isinstance(type, ArrayType) or type.shape[0] != shape[0]:
            continue
        if len(type.shape) < len(shape):
            continue
        if first is not None and type.space != first.space:
            raise ValueError(
                f"operands could not be broadcast together: not aligned are {first} and {type}"
            )
        first = type
    if first is None and prod(shape) > MOST_ELEMENTS and any(not one.on_client for one in nodes):
        raise NotImplementedError(
            f"a table of shape {shape} needs an operand on the servers that has its {shape[0]} "
            f"rows; put the column there: session.array(...)"
        )
    return None if first is None else first.space, shape


def fit(graph: Graph, node: Node, space: Space, shape: Shape) -> Node:
    """``node`` as an operand of what is computed over ``space``, of which ``shape`` is one.

    A number, a row that the client keeps, or an array over ``space`` with rows of ``shape`` or of
    length 1.
    """
    own = node.type.shape
    if node.is_scalar:
        return node
    if prod(own) == 1:
        return scalar_of(graph, node)
    along = len(own) == len(shape) and own[0] == shape[0]
    if not along:
        kept = collected(graph, node)
        return reshaped(graph, kept, own[-1:]) if len(own) == 2 else kept
    return spread(graph, node, space) if node.on_client else node


def scalar_of(graph: Graph, node: Node) -> Node:
    """The only element of an array as a rank-0 node."""
    if node.on_client:
        return reshaped(graph, node, ())
    if node.op == "fill":  # not computed yet, and then that of which it is made will do
        return node.args[0]
    return reshaped(graph, collected(graph, node), ())


def collected(graph: Graph, node: Node) -> Node:
    """A small array as one that the client keeps: its elements come with the next answer."""
    if node.on_client:
        return node
    shape = node.type.shape
    if prod(shape) > MOST_ELEMENTS:
        raise NotImplementedError(
            f"an operand of shape {shape} would have to travel to the client, and from there to "
            f"every server; at most {MOST_ELEMENTS} elements may"
        )
    return graph.make("collect", (node,), client_type(node.dtype, shape))


def spread(graph: Graph, node: Node, space: Space) -> Node:
    """An array that the client keeps, one row a slot, as one on the servers."""
    shape = node.type.shape
    return graph.make("slots", (node,), array_type(space, node.dtype, shape[1:]))


def reshaped(graph: Graph, node: Node, shape: Shape) -> Node:
    """What the client keeps, in another shape."""
    if node.type.shape == shape:
        return node
    return on_client(graph, "client.reshape", (node,), client_type(node.dtype, shape), shape)


def transposed(graph: Graph, node: Node) -> Node:
    """What the client keeps, with its axes in the other order."""
    type = client_type(node.dtype, node.type.shape[::-1])
    return on_client(graph, "client.transpose", (node,), type)


def on_client(
    graph: Graph, op: str, args: Sequence[Node], type: ClientType, params: tuple[Any, ...] = ()
) -> Node:
    """The node of an operation of the client on what it keeps; at once, if all is known."""
    values = [arg.value for arg in args]
    if any(value is None for value in values):
        return graph.make(op, tuple(args), type, params)
    return graph.client_value(value_of(op, params, type, values), type.dtype)


def broadcast_to(graph: Graph, node: Node, type: NodeType) -> Node:
    """``node`` stretched to the shape of ``type``, in its own dtype."""
    if node.type.shape == type.shape and node.on_client == type.on_client:
        return node
    if type.on_client:
        kept = collected(graph, node)
        if kept.type.shape == type.shape:
            return kept
        return on_client(graph, "client.broadcast", (kept,), type.of(node.dtype), type.shape)  # type: ignore[arg-type]
    fitted = fit(graph, node, type.space, type.shape)
    if fitted.is_scalar:
        return graph.make("fill", (fitted,), type.of(node.dtype))
    if fitted.type.shape == type.shape:
        return fitted
    return graph.make("broadcast", (fitted,), type.of(node.dtype))
