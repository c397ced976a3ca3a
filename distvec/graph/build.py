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
    kinds: tuple[Any, ...] = ()
    for operand in operands:
        kinds += (operand.dtype if isinstance(operand, Node) else type(operand),)
    if ops.TABLE[name].compares:
        operands, kinds = _clamp_out_of_range(list(operands), kinds)
    op, resolved = dtypes.resolve(name, kinds)
    if op == "int_pow":
        _check_integer_exponent(operands[1])
    args = []
    for operand, dtype in zip(operands, resolved, strict=False):  # the last one is the result's
        if not isinstance(operand, Node):
            operand = graph.constant(operand, dtype)
        elif operand.dtype is not dtype:
            operand = cast(graph, operand, dtype)
        args.append(operand)
    return apply(graph, op, args, resolved[-1])


def apply(graph: Graph, op: str, args: Sequence[Node], dtype: np.dtype[Any]) -> Node:
    """The node of ``op`` on nodes of the dtypes it works on, in their common shape."""
    if ops.TABLE[op].identity:
        return args[0]
    array = None
    for arg in args:
        if arg.is_scalar or arg.type is array:
            continue
        if array is not None and not _are_aligned(arg.type, array):
            return apply(graph, op, broadcast(graph, args), dtype)
        array = arg.type
    if array is not None:
        return graph.make(op, tuple(args), array if array.dtype is dtype else array.of(dtype))
    values = [arg.value for arg in args]
    if None in values:
        return graph.make(op, tuple(args), scalar_type(dtype))
    with np.errstate(all="ignore"):
        return graph.constant(ops.TABLE[op].numpy(*values), dtype)


def cast(graph: Graph, node: Node, dtype: np.dtype[Any]) -> Node:
    """``node`` converted to ``dtype``; itself where it has it."""
    if node.dtype == dtype:
        return node
    if node.is_scalar and node.known:
        return graph.constant(node.value, dtype)
    return graph.make("cast", (node,), node.type.of(dtype))


def broadcast(graph: Graph, nodes: Sequence[Node]) -> Sequence[Node]:
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
            why = "vectors of different length live in different spaces"
            if type.space.length == wide[0].space.length:
                why = f"not aligned are {wide[0]} and {type}"
            raise ValueError(
                f"operands could not be broadcast together with shapes {shapes}: {why}"
            )
    return [scalar_of(graph, node) if node.type.shape == (1,) else node for node in nodes]


def _are_aligned(a: NodeType, b: NodeType) -> bool:
    return (a.space is b.space or a.space == b.space) and a.row == b.row


def scalar_of(graph: Graph, node: Node) -> Node:
    """The only element of a vector of length 1 as a rank-0 node."""
    if node.op == "fill":  # not computed yet, and then that of which it is made will do
        return cast(graph, node.args[0], node.dtype)
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
