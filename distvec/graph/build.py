"""From operands to nodes: dtypes resolved by NumPy's rules, shapes checked and broadcast.

Axis 0 of an array on the servers is split, so what is combined with it must be split in the same
way, or be the same for every slot: a number, or a small array that the client keeps and that
travels with the program. What is in the wrong place for that is brought to the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from distvec.graph.host_eval import MOST_ELEMENTS, value_of
from distvec.graph.node import Graph, Node
from ps_backend.program import ops
from ps_backend.program.spaces import Space
from ps_backend.program.types import (
    DTYPES,
    ArrayType,
    ClientType,
    NodeType,
    array_type,
    client_type,
)

_BOOL = np.dtype(np.bool_)
_FLOAT64 = np.dtype(np.float64)
SUPPORTED = tuple(np.dtype(name) for name in DTYPES)
Operand = np.dtype[Any] | type
"""A dtype, or ``int`` or ``float`` for a Python scalar, whose dtype is weak."""


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """``dtype`` as one of those that servers have, or ``TypeError`` saying which those are."""
    try:
        resolved: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"{dtype!r} is not a dtype; use one of {', '.join(DTYPES)}") from None
    if resolved not in SUPPORTED:
        raise TypeError(
            f"dtype {resolved} is not supported on the servers; use one of {', '.join(DTYPES)}, "
            f"for example .astype('float64') before"
        )
    return resolved


@lru_cache(maxsize=4096)
def resolve(name: str, operands: tuple[Operand, ...]) -> tuple[str, tuple[np.dtype[Any], ...]]:
    """The op that runs, and the dtypes its arguments are cast to followed by that of the result.

    NumPy's promotion, NEP 50 included. ``TypeError`` as NumPy's where it has no loop, and where the
    loop works in a dtype that the servers do not have (such as complex128).
    """
    if not any(isinstance(operand, np.dtype) for operand in operands):
        operands = tuple(np.dtype(operand) for operand in operands)
    dtypes = _of_where(operands) if name == "where" else _of_ufunc(name, operands)
    for dtype in dtypes:
        if dtype not in SUPPORTED:
            given = ", ".join(getattr(o, "name", None) or str(o) for o in operands)
            raise TypeError(
                f"{name} of ({given}) uses {dtype} in NumPy, which is not supported on the "
                "servers; cast first, for example x.astype('float64')"
            )
    return ops.specialise(name, dtypes[0].name), dtypes


def _of_where(operands: tuple[Operand, ...]) -> tuple[np.dtype[Any], ...]:
    choices = [o if isinstance(o, np.dtype) else o(0) for o in operands[1:]]
    common = np.result_type(*choices)
    return (np.dtype(np.bool_), common, common, common)


def _of_floats(operands: tuple[Operand, ...]) -> tuple[np.dtype[Any], ...]:
    """Of a function of our own, which works in the common dtype if that is one of floats."""
    common = np.result_type(*(o if isinstance(o, np.dtype) else o(0) for o in operands))
    common = common if common.kind == "f" else np.dtype(np.float64)
    return (common,) * (len(operands) + 1)


def _of_ufunc(name: str, operands: tuple[Operand, ...]) -> tuple[np.dtype[Any], ...]:
    op = ops.TABLE[name]
    if not op.has_loops:
        return _of_floats(operands)
    resolved = op.loop_for(operands)
    if op.on_bool and all(operand == _BOOL for operand in operands):
        return (*(_BOOL for _ in operands), resolved[-1])
    if not op.separate:
        return resolved
    arguments = zip(operands, resolved, strict=False)
    return (*(o if isinstance(o, np.dtype) else r for o, r in arguments), resolved[-1])


Shape = tuple[int, ...]


@lru_cache(maxsize=1024)
def _broadcast(shapes: tuple[Shape, ...]) -> Shape:
    return np.broadcast_shapes(*shapes)


@lru_cache(maxsize=len(DTYPES))
def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the greatest integer."""
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def common_shape(nodes: Sequence[Node]) -> tuple[Space | None, Shape]:
    """The shape to which ``nodes`` are broadcast, and the space in which the servers have it.

    No space where the client computes the result: no array on the servers has all its rows, so it
    is small. ``ValueError`` as NumPy's.
    """
    shapes = tuple([node.type.shape for node in nodes])
    try:
        shape = _broadcast(shapes)
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
                f"operands could not be broadcast together: both have length {shape[0]}, but are "
                f"partitioned differently ({first}, {type}); copy one: session.array(x) (keyed: "
                f"read both again)"
            )
        first = type
    if first is None and prod(shape) > MOST_ELEMENTS and any(not one.on_client for one in nodes):
        raise NotImplementedError(
            f"a table of shape {shape} needs an operand on the servers with its {shape[0]} rows; "
            f"put the column there: session.array(...)"
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
        kept = collect(graph, node)
        return reshape(graph, kept, own[-1:]) if len(own) == 2 else kept
    return put_on_servers(graph, node, space) if node.on_client else node


def scalar_of(graph: Graph, node: Node) -> Node:
    """The only element of an array as a rank-0 node."""
    if node.on_client:
        return reshape(graph, node, ())
    if node.op == "fill":  # its scalar is enough, as it is not computed yet
        return node.args[0]
    return reshape(graph, collect(graph, node), ())


def collect(graph: Graph, node: Node) -> Node:
    """A small array as one that the client keeps: its elements come with the next answer."""
    if node.on_client:
        return node
    shape = node.type.shape
    if prod(shape) > MOST_ELEMENTS:
        raise NotImplementedError(
            f"an operand of shape {shape} is too large to go through the client to every server, "
            f"at most {MOST_ELEMENTS} elements"
        )
    return graph.collect(node)


def put_on_servers(graph: Graph, node: Node, space: Space) -> Node:
    """An array that the client keeps, one row a slot, as one on the servers."""
    shape = node.type.shape
    return graph.make("slots", (node,), array_type(space, node.dtype, shape[1:]))


def reshape(graph: Graph, node: Node, shape: Shape) -> Node:
    """What the client keeps, in another shape."""
    if node.type.shape == shape:
        return node
    return on_client(graph, "client.reshape", (node,), client_type(node.dtype, shape), shape)


def transpose(graph: Graph, node: Node) -> Node:
    """What the client keeps, with its axes in the other order."""
    type = client_type(node.dtype, node.type.shape[::-1])
    return on_client(graph, "client.transpose", (node,), type)


def on_client(
    graph: Graph, op: str, args: Sequence[Node], type: ClientType, params: tuple[Any, ...] = ()
) -> Node:
    """The node of an operation of the client on what it keeps; at once, if all is known."""
    values = []
    for arg in args:
        if arg.value is None:
            return graph.make(op, tuple(args), type, params)
        values.append(arg.value)
    return graph.known(value_of(op, params, type, values), type)


def broadcast_to(graph: Graph, node: Node, type: NodeType) -> Node:
    """``node`` stretched to the shape of ``type``, in its own dtype."""
    if node.type.shape == type.shape and node.on_client == type.on_client:
        return node
    if type.on_client:
        kept = collect(graph, node)
        if kept.type.shape == type.shape:
            return kept
        return on_client(graph, "client.broadcast", (kept,), type.of(node.dtype), type.shape)  # type: ignore[arg-type]
    fitted = fit(graph, node, type.space, type.shape)
    if fitted.is_scalar:
        return graph.make("fill", (fitted,), type.of(node.dtype))
    if fitted.type.shape == type.shape:
        return fitted
    return graph.make("broadcast", (fitted,), type.of(node.dtype))


NEGATIVE_POWER = "Integers to negative integer powers are not allowed."
_TO_INDEX = {True: np.inf, False: -np.inf}


def elementwise(graph: Graph, name: str, operands: Sequence[Node | int | float]) -> Node:
    """The node of op ``name``; a Python number's dtype is weak. Errors as NumPy's."""
    kinds = tuple([one.dtype if isinstance(one, Node) else type(one) for one in operands])
    weak = bool(graph.weak) and any(operand in graph.weak for operand in operands)
    if weak:
        kinds = tuple(map(partial(_weak_kind, graph), operands, kinds))
    if name in _COMPARISONS:
        operands, kinds = _clamp_out_of_range(list(operands), kinds)
    op, resolved = resolve(name, kinds)
    result = resolved[-1]
    if op == "int_pow" and result.kind == "i":
        _check_integer_exponent(operands[1])
    args: list[Node] = []
    array: NodeType | None = None
    is_aligned = op not in _IDENTITIES
    for operand, dtype in zip(operands, resolved, strict=False):  # the last one is the result's
        if not isinstance(operand, Node):
            # np.where takes the numbers as arrays: numbers out of range wrap around.
            operand = graph.constant(np.asarray(operand) if op == "where" else operand, dtype)
        elif operand.dtype is not dtype:
            operand = cast(graph, operand, dtype)
        args.append(operand)
        if operand.is_scalar or operand.type is array:
            continue
        is_aligned = is_aligned and array is None and not operand.on_client
        array = operand.type
    if is_aligned and array is not None:
        made = graph.make(op, tuple(args), array if array.dtype is result else array.of(result))
    else:
        made = apply(graph, op, args, result)
    if weak and made.value is None and all(isinstance(kind, type) for kind in kinds):
        graph.weak.add(made)
    return made


_IDENTITIES = frozenset(name for name, op in ops.TABLE.items() if op.identity)


_COMPARISONS = frozenset(name for name, op in ops.TABLE.items() if op.compares)


def _weak_kind(graph: Graph, operand: Node | int | float, kind: Any) -> Any:
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
        kept = [arg if arg.on_client else collect(graph, arg) for arg in args]
        return on_client(graph, op, kept, client_type(dtype, shape))
    fitted = [fit(graph, arg, space, shape) for arg in args]
    return graph.make(op, tuple(fitted), array_type(space, dtype, shape[1:]))


def cast(graph: Graph, node: Node, dtype: np.dtype[Any]) -> Node:
    """``node`` converted to ``dtype``; itself where it has it."""
    if node.dtype is dtype or node.dtype == dtype:
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
            least, greatest = _limits(integers[0])
            if not least <= node <= greatest:
                nodes[position] = _TO_INDEX[node > 0]
                kinds = (*kinds[:position], float, *kinds[position + 1 :])
    return nodes, kinds


def _check_integer_exponent(exponent: Any) -> None:
    """NumPy refuses negative exponents of integers; those of arrays were looked at before."""
    value = exponent.value if isinstance(exponent, Node) and exponent.op == "const" else exponent
    if not isinstance(value, Node) and np.any(value < 0):
        raise ValueError(NEGATIVE_POWER)
