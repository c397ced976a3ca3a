"""New arrays of new nodes: the graph is entered, and the result wrapped, in one place.

Whoever reads a node to make another one of it does so under the lock of the session's live values,
so that no program takes over the memory of what it reads. That of a selection takes evaluations,
which must not be under that lock: they come before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from distvec.array.core.handle import Handle
from distvec.graph import build
from distvec.graph.build import check_dtype
from distvec.graph.node import Graph, Node
from ps_backend.program.types import NodeType

H = TypeVar("H", bound=Handle)


def make(
    like: H, op: str, operands: Sequence[Any], type: NodeType, params: tuple[Any, ...] = ()
) -> H:
    """The array that ``op`` makes of ``operands``, in the session of ``like``; lazy.

    Operands are arrays, or NumPy's, which the client keeps. What an op ``client.*`` makes of known
    values is known.
    """
    _settle(operands)
    session = like.session
    with session.holders.lock:
        graph = session.graph
        args = tuple([node_of(graph, operand) for operand in operands])
        add: Any = build.on_client if op.startswith("client.") else Graph.make
        return like.like(add(graph, op, args, type, params))


def express(like: H, function: Callable[..., Node], *args: Any) -> H:
    """The array of the node ``function(graph, *args)``, which gets the nodes of arrays; lazy."""
    _settle(args)
    session = like.session
    with session.holders.lock:
        nodes = [arg.node if isinstance(arg, Handle) else arg for arg in args]
        return like.like(function(session.graph, *nodes))


def host_array(like: H, values: Any) -> H:
    """A small array that the client keeps, with the values of one of NumPy's."""
    given = np.asarray(values)
    return like.like(like.session.graph.client_value(given, check_dtype(given.dtype)))


def node_of(graph: Graph, operand: Any) -> Node:
    """The node of an array; of NumPy's one that the client keeps."""
    if isinstance(operand, Handle):
        return operand.node
    if isinstance(operand, np.generic):
        return graph.constant(operand, operand.dtype)
    values = np.asarray(operand)
    return graph.client_value(values, check_dtype(values.dtype))


def _settle(operands: Sequence[Any]) -> None:
    for operand in operands:
        if isinstance(operand, Handle) and operand.selects:
            _ = operand.node
