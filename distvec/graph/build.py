"""From operands to nodes: dtypes resolved, shapes checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distvec.graph import dtypes
from distvec.graph.expr import Graph, Node
from ps_backend.program import ops
from ps_backend.program.types import NodeType, scalar_type

_TO_INDEX = {True: np.inf, False: -np.inf}


def elementwise(graph: Graph, name: str, operands: Sequence[Node | int | float]) -> Node:
    """The node of op ``name``; a Python number's dtype is weak. Errors as NumPy's."""
    nodes = list(operands)
    kinds = tuple([node.dtype if isinstance(node, Node) else type(node) for node in nodes])
    if ops.TABLE[name].compares:
        nodes, kinds = _clamp_out_of_range(nodes, kinds)
    op, resolved = dtypes.resolve(name, kinds)
    if op == "int_pow":
        _check_integer_exponent(nodes[1])
    arguments = [
        cast(graph, node, dtype) if isinstance(node, Node) else graph.constant(node, dtype)
        for node, dtype in zip(nodes, resolved[:-1], strict=True)
    ]
    return apply(graph, op, broadcast(graph, arguments), resolved[-1])


def apply(graph: Graph, op: str, args: list[Node], dtype: np.dtype[Any]) -> Node:
    """The node of ``op`` on nodes that already have the dtypes and shapes it works on."""
    if ops.TABLE[op].identity:
        return args[0]
    type = type_of(args, dtype)
    if type.is_scalar and all(arg.known for arg in args):
        with np.errstate(all="ignore"):
            value = ops.TABLE[op].numpy(*(arg.value for arg in args))
        return graph.constant(value, dtype)
    return graph.make(op, tuple(args), type)


def type_of(args: list[Node], dtype: np.dtype[Any]) -> NodeType:
    """The type of an elementwise result in ``dtype``: an array if one of ``args`` is one."""
    for arg in args:
        if not arg.is_scalar:
            return arg.type.of(dtype)
    return scalar_type(dtype)


def cast(graph: Graph, node: Node, dtype: np.dtype[Any]) -> Node:
    """``node`` converted to ``dtype``; itself where it has it."""
    if node.dtype == dtype:
        return node
    if node.is_scalar and node.known:
        return graph.constant(node.value, dtype)
    return graph.make("cast", (node,), node.type.of(dtype))


def broadcast(graph: Graph, nodes: list[Node]) -> list[Node]:
    """Arguments of one common shape. Scalars stay scalars; a vector of length 1 becomes one."""
    first: NodeType | None = None
    for node in nodes:
        if node.is_scalar or node.type is first:
            continue
        if first is not None and not _are_aligned(first, node.type):
            break
        first = node.type
    else:
        return nodes
    wide = [node.type for node in nodes if node.type.shape not in ((), (1,))]
    for type in wide:
        if not _are_aligned(type, wide[0]):
            shapes = " ".join(str(node.type.shape) for node in nodes)
            raise ValueError(
                f"operands could not be broadcast together with shapes {shapes}: vectors of "
                f"different length live in different spaces, here {wide[0]} and {type}"
            )
    return [scalar_of(graph, node) if node.type.shape == (1,) else node for node in nodes]


def _are_aligned(a: NodeType, b: NodeType) -> bool:
    return (a.space is b.space or a.space == b.space) and a.row == b.row


def scalar_of(graph: Graph, node: Node) -> Node:
    """The only element of a vector of length 1 as a rank-0 node."""
    accumulator = np.dtype(np.float64 if node.dtype.kind == "f" else np.int64)
    return cast(graph, graph.make("max", (node,), scalar_type(accumulator)), node.dtype)


def _clamp_out_of_range(nodes: list[Any], kinds: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """Compare with a Python integer that the other dtype cannot hold as NumPy does: exactly."""
    integers = [kind for kind in kinds if isinstance(kind, np.dtype) and kind.kind == "i"]
    for position, node in enumerate(nodes):
        if type(node) is int and integers:
            limits = np.iinfo(integers[0])
            if not limits.min <= node <= limits.max:
                nodes[position] = _TO_INDEX[node > 0]
                kinds = (*kinds[:position], float, *kinds[position + 1 :])
    return nodes, kinds


def _check_integer_exponent(exponent: Any) -> None:
    """NumPy refuses negative exponents of integers; only a known exponent can be checked."""
    value = exponent.value if isinstance(exponent, Node) and exponent.op == "const" else exponent
    if isinstance(value, Node):
        if value.dtype.kind == "b":
            return
        raise NotImplementedError(
            "integer ** integer array: the exponents, which must not be negative, are not known "
            "here; cast the base first, as in x.astype('float64') ** k"
        )
    if value < 0:
        raise ValueError("Integers to negative integer powers are not allowed.")
