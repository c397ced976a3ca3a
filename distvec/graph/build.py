"""From operands to nodes: dtypes resolved, shapes checked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from distvec.graph import dtypes
from distvec.graph.expr import Graph, Node
from distvec.graph.shapes import collected, common_shape, fit, on_client
from ps_backend.program import ops
from ps_backend.program.types import NodeType, array_type, client_type

NEGATIVE_POWER = "Integers to negative integer powers are not allowed."
_TO_INDEX = {True: np.inf, False: -np.inf}


def elementwise(graph: Graph, name: str, operands: Sequence[Node | int | float]) -> Node:
    """The node of op ``name``; a Python number's dtype is weak. Errors as NumPy's."""
    kinds: tuple[Any, ...] = ()
    for operand in operands:
        kinds += (operand.dtype if isinstance(operand, Node) else type(operand),)
    weak = bool(graph.weak) and any(operand in graph.weak for operand in operands)
    if weak:
        kinds = tuple(map(partial(_weakened, graph), operands, kinds))
    if ops.TABLE[name].compares:
        operands, kinds = _clamp_out_of_range(list(operands), kinds)
    op, resolved = dtypes.resolve(name, kinds)
    if op == "int_pow" and resolved[-1].kind == "i":
        _check_integer_exponent(operands[1])
    args = []
    for operand, dtype in zip(operands, resolved, strict=False):  # the last one is the result's
        if not isinstance(operand, Node):
            # np.where takes the numbers as arrays: what is out of range wraps around.
            operand = graph.constant(np.asarray(operand) if op == "where" else operand, dtype)
        elif operand.dtype is not dtype:
            operand = cast(graph, operand, dtype)
        args.append(operand)
    made = apply(graph, op, args, resolved[-1])
    if weak and made.value is None and all(isinstance(kind, type) for kind in kinds):
        graph.weak.add(made)
    return made


def _weakened(graph: Graph, operand: Node | int | float, kind: Any) -> Any:
    """The kind of an operand; of a node that stands for Python numbers ``int`` or ``float``."""
    if operand not in graph.weak or kind.kind not in "if":
        return kind
    return int if kind.kind == "i" else float


def apply(graph: Graph, op: str, args: Sequence[Node], dtype: np.dtype[Any]) -> Node:
    """The node of ``op`` on nodes of the dtypes it works on, in their common shape."""
    if ops.TABLE[op].identity:
        return args[0]
    array = None
    for arg in args:
        if arg.is_scalar or arg.type is array:
            continue
        if arg.on_client or (array is not None and not _are_aligned(arg.type, array)):
            return _apply_broadcast(graph, op, args, dtype)
        array = arg.type
    if array is not None:
        return graph.make(op, tuple(args), array if array.dtype is dtype else array.of(dtype))
    return on_client(graph, op, args, client_type(dtype))


def _apply_broadcast(graph: Graph, op: str, args: Sequence[Node], dtype: np.dtype[Any]) -> Node:
    """``apply`` for arguments of several shapes, or small arrays of the client."""
    space, shape = common_shape(args)
    if space is None:
        kept = [arg if arg.on_client else collected(graph, arg) for arg in args]
        return on_client(graph, op, kept, client_type(dtype, shape))
    fitted = [fit(graph, arg, space, shape) for arg in args]
    return graph.make(op, tuple(fitted), array_type(space, dtype, shape[1:]))


def cast(graph: Graph, node: Node, dtype: np.dtype[Any]) -> Node:
    """``node`` converted to ``dtype``; itself where it has it."""
    if node.dtype == dtype:
        return node
    if node.on_client and node.known:
        return graph.client_value(node.value, dtype)
    return graph.make("cast", (node,), node.type.of(dtype))


def _are_aligned(a: NodeType, b: NodeType) -> bool:
    return (a.space is b.space or a.space == b.space) and a.row == b.row


def _clamp_out_of_range(nodes: list[Any], kinds: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """Compare with a Python integer that the other dtype cannot hold as NumPy does: exactly."""
    integers = [kind for kind in kinds if isinstance(kind, np.dtype) and kind.kind in "iu"]
    for position, node in enumerate(nodes):
        if type(node) is int and integers:
            limits = np.iinfo(integers[0])
            if not limits.min <= node <= limits.max:
                nodes[position] = _TO_INDEX[node > 0]
                kinds = (*kinds[:position], float, *kinds[position + 1 :])
    return nodes, kinds


def _check_integer_exponent(exponent: Any) -> None:
    """NumPy refuses negative exponents of integers; those of arrays were looked at before."""
    value = exponent.value if isinstance(exponent, Node) and exponent.op == "const" else exponent
    if not isinstance(value, Node) and value < 0:
        raise ValueError(NEGATIVE_POWER)
