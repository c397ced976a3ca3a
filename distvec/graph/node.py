"""The one node type: an operation on other nodes, interned, evaluated at most once.

A node points at its arguments, and that is the graph. Within a session equal nodes are the same
object, so common subexpressions are found by identity. Once a node has its value it lets go of its
arguments, so that a loop does not drag its history along.

Variables are nodes that stand for the arguments of a function that is being differentiated. While
the function runs they have no value, so that the result still has its graph. Then the nodes made of
them are made of the arguments.

Some nodes read an array at other slots than their own: slices, assignments to slices, index arrays.
Servers fetch the rows from each other while they run the sweep that reads them, so the array must
be stored before. Through cheap expressions the planner moves the reading down to their arguments.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distvec.graph.host_eval import cast_value
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.spaces import Space
from ps_backend.program.types import ArrayType, ClientType, NodeType, array_type, client_type

_FLOAT = client_type(np.dtype(np.float64))

_MOST_PRODUCTS = 512
"""Far more than the pairs of a quasi-Newton history, and little beside a vector."""


class Buffer:
    """A materialised array on the servers. When nobody holds it, its id is noted to be freed."""

    __slots__ = ("__weakref__", "_free", "id", "products", "type")

    def __init__(self, id: int, type: ArrayType, free: Callable[[list[int]], None]) -> None:
        self.id = id
        self.type = type
        self.products: dict[int, Any] = {}
        """Known inner products with other buffers, by id: buffers never change, so these hold."""
        self._free = free

    def remember_product(self, other: int, value: Any) -> None:
        """Keep the inner product with the buffer ``other``; the oldest are forgotten."""
        if len(self.products) >= _MOST_PRODUCTS:
            del self.products[next(iter(self.products))]
        self.products[other] = value

    def __del__(self) -> None:
        self._free([self.id])


class Node:
    """One operation of the graph.

    ``op`` is a row of the op table, a reduction, or one of the leaves ``"const"`` (a scalar that
    the client knows) and ``"buffer"``. ``params`` are its fixed arguments, such as an axis.
    """

    __slots__ = (
        "__weakref__", "args", "depth", "direct", "dtype", "is_scalar", "key", "on_client",
        "op", "origin", "params", "serial", "type", "value",
    )  # fmt: skip

    def __init__(
        self,
        op: str,
        args: tuple[Node, ...],
        type: NodeType,
        key: Any = None,
        params: tuple[Any, ...] = (),
        serial: int = 0,
        value: Any = None,
    ) -> None:
        self.op = op
        self.args = args
        self.params = params
        self.type = type
        self.dtype = type.dtype
        self.is_scalar = type.is_scalar
        """Whether the value is a number, which the client keeps."""
        self.on_client = type.on_client
        """Whether the client keeps the value, a number or a small array; else servers do."""
        self.key = key
        self.value = value
        """A NumPy scalar or array if it is ``on_client``, else a ``Buffer``, once known."""
        self.origin: Any = None
        """The plan that computed the value, for ``explain``."""
        self.direct: Node | None = None
        """Of an inner product expanded into others: the node that it stands for."""
        self.serial = serial
        """Where the node stands in the order of their making."""
        below: int = -1
        for arg in args:
            if arg.depth > below:
                below = arg.depth
        self.depth: int = below + 1

    @property
    def known(self) -> bool:
        """Whether the value is there already."""
        return self.value is not None

    @property
    def is_reduction(self) -> bool:
        """Whether this is what the client gets of arrays that servers reduce."""
        return self.op in REDUCERS

    def __repr__(self) -> str:
        return f"<{self.op} {self.dtype}{list(self.type.shape)}>"


class NodeSnapshot(NamedTuple):
    """What a node was before it got its value, or another one."""

    op: str
    args: tuple[Node, ...]
    direct: Node | None
    depth: int
    value: Any


_FEW = 1024
"""So many may be noted of which nobody knows how many are gone."""


COLLECT = "collect"
"""The op of a client's copy of an array on the servers."""
MOST_COPIED = 1 << 12
"""Elements of an array of the servers of which the client keeps a copy that it has."""
_MOST_COMPUTED = 16
"""So deep is looked for copies of what an array is made of."""
_MOST_COMPARED = 1 << 10
"""Bytes of a value of the client that is looked up among the others."""
_SAME_BITS = frozenset(("add", "subtract", "multiply", "divide", "negative", "square", "sqrt"))
"""Ops of floats that NumPy rounds as all engines do."""


class Graph:
    """The interned nodes of one session."""

    def __init__(self) -> None:
        # Weak, keyed by the operation and its arguments. Entries of dead nodes are removed later,
        # many together: a callback for each costs as much as the node.
        self.nodes: dict[Any, weakref.ref[Node]] = {}
        """With entries of nodes that are gone: see ``holds``."""
        self._crowded = _FEW
        self._serials = itertools.count(1)
        self.still: weakref.WeakSet[Node] = weakref.WeakSet()
        """What derivatives take as constant: the result does not change with it."""
        self.collected: weakref.WeakKeyDictionary[Node, Node] = weakref.WeakKeyDictionary()
        """By node of a small array on the servers the client's copy of it, where there is one."""
        self.weak: set[Node] = set()
        """What stands for Python numbers, and takes the dtype of what it meets, as these do."""
        self.client_limit = 0
        """New arrays of at most so many elements are the client's."""

    def keeps(self, shape: tuple[int, ...]) -> bool:
        """Whether a new array of this shape is the client's."""
        return 0 < prod(shape) <= self.client_limit

    def __len__(self) -> int:
        """Nodes alive whose value is not known."""
        for key, reference in list(self.nodes.items()):
            if reference() is None and self.nodes.get(key) is reference:
                self.nodes.pop(key, None)
        return len(self.nodes)

    def holds(self, count: int) -> bool:
        """Whether so many nodes are alive whose value is not known."""
        return len(self.nodes) >= count and len(self) >= count

    def make(
        self, op: str, args: tuple[Node, ...], type: NodeType, params: tuple[Any, ...] = ()
    ) -> Node:
        """The node of this operation: the existing one where there is one.

        A table without columns has nothing for servers to keep: it is a value of the client.
        """
        key: tuple[Any, ...] = (op, id(type), *map(id, args))  # the node keeps these alive
        if params:
            key = (*key, params)
        nodes = self.nodes
        known = nodes.get(key)
        if known is not None and (node := known()) is not None:
            return node
        if not type.on_client and type.shape[1:] == (0,):
            return self.client_value(np.empty(type.shape, type.dtype), type.dtype)
        node = Node(op, args, type, key, params, next(self._serials))
        nodes[key] = weakref.ref(node)
        if len(nodes) > self._crowded:
            self._crowded = _FEW + 2 * len(self)
        return node

    def inner(self, a: Node, b: Node) -> Node:
        """The inner product of two float64 (or int64) vectors: the same node in either order."""
        factors = (a, b) if a.serial <= b.serial else (b, a)
        product = self.make("multiply", factors, a.type)
        return self.make("sum", (product,), client_type(a.dtype))

    def collect(self, node: Node) -> Node:
        """A small array on the servers as one of the client: it comes with the next answer.

        The client computes it by itself if it has copies of what the array is made of, and the
        operations have the same bits there.
        """
        return self._copy_of(node, _MOST_COMPUTED) or self.make(
            COLLECT, (node,), client_type(node.dtype, node.type.shape)
        )

    def _copy_of(self, node: Node, depth: int) -> Node | None:
        found = self.collected.get(node)
        if found is not None or node.known or not depth:
            return found
        shape, op = node.type.shape, node.op
        if op == "slots":
            return node.args[0]
        if prod(shape) > MOST_COPIED or any(arg.type.shape not in ((), shape) for arg in node.args):
            return None
        type, args = client_type(node.dtype, shape), node.args
        if op == "fill":
            found = self.make("client.broadcast", args, type, shape)
        elif op in _SAME_BITS:
            copies: list[Node] = []
            for arg in args:
                copy = arg if arg.on_client else self._copy_of(arg, depth - 1)
                if copy is None:
                    return None
                copies.append(copy)
            found = self.make(op, tuple(copies), type)
        if found is not None:
            self.collected[node] = found
        return found

    def number(self, value: Any, type: NodeType = _FLOAT) -> Node:
        """A constant that is not looked up among the others: quicker for one use."""
        return Node("const", (), type, value=value)

    @property
    def newest(self) -> int:
        """A serial number that is greater than all before, and less than all later ones."""
        return next(self._serials)

    def constant(self, value: Any, dtype: np.dtype[Any]) -> Node:
        """A rank-0 node whose value the client knows. ``OverflowError`` as NumPy's for integers."""
        return self._constant(dtype.type(value), client_type(dtype))

    def client_value(self, values: Any, dtype: np.dtype[Any]) -> Node:
        """The same of a small array, of any rank."""
        shape = np.shape(values)
        type = client_type(dtype, shape) if shape else client_type(dtype)
        return self._constant(cast_value(values, type), type)

    def known(self, value: Any, type: ClientType) -> Node:
        """What the client has computed, of ``type``: equal small values are the same node."""
        if value.nbytes > _MOST_COMPARED:
            return self.number(value, type)
        return self._constant(value, type)

    def _constant(self, value: Any, type: ClientType) -> Node:
        key = "const", id(type), value.tobytes()
        known = self.nodes.get(key)
        if known is not None and (node := known()) is not None:
            return node
        node = Node("const", (), type, key)
        node.value = value
        self.nodes[key] = weakref.ref(node)
        if len(self.nodes) > self._crowded:
            self._crowded = _FEW + 2 * len(self)
        return node

    def leaf(self, buffer: Buffer) -> Node:
        """A node that stands for a buffer."""
        node = Node("buffer", (), buffer.type)
        node.serial = next(self._serials)
        node.value = buffer
        return node

    def placeholder(self, op: str, type: NodeType) -> Node:
        """A node that is equal to no other one."""
        node = Node(op, (), type)
        node.serial = next(self._serials)
        return node

    def settle(self, node: Node, value: Any, origin: Any) -> None:
        """Give ``node`` its value and let go of the arguments it was computed from."""
        node.value = value
        node.origin = origin
        if node.op == "const":
            return
        if node.op == COLLECT and prod(node.type.shape) <= MOST_COPIED:
            self.collected[node.args[0]] = node
        # The key holds ids of arguments, which may be reused from here on.
        self.nodes.pop(node.key, None)
        node.args = ()
        node.direct = None
        node.op = "value" if node.on_client else "buffer"
        node.depth = 0

    def snapshot(self, node: Node) -> NodeSnapshot:
        """For ``restore``; it holds what ``node`` is computed from."""
        return NodeSnapshot(node.op, node.args, node.direct, node.depth, node.value)

    def restore(self, node: Node, before: NodeSnapshot) -> None:
        """Make ``node`` what it was."""
        node.op, node.args, node.direct, node.depth, node.value = before
        node.origin = None
        if node.op == COLLECT:
            self.collected.pop(node.args[0], None)
        if node.value is None:  # its key holds ids of arguments, which the snapshot kept alive
            self.nodes.setdefault(node.key, weakref.ref(node))


def topological(
    roots: Iterable[Node], stop: Callable[[Node], bool], done: set[int] | None = None
) -> Iterator[Node]:
    """All nodes below ``roots``, arguments first; nodes for which ``stop`` holds are not entered.

    Nodes whose ids are in ``done`` are left out; it is kept up to date. Iterative, so a chain of
    any depth is walked without recursion.
    """
    done = set() if done is None else done
    for root in roots:
        stack = [root]
        while stack:
            node = stack[-1]
            if id(node) not in done:
                waiting = [] if stop(node) else [arg for arg in node.args if id(arg) not in done]
                if waiting:
                    stack += reversed(waiting)
                    continue
                done.add(id(node))
                yield node
            stack.pop()


VARIABLE = "variable"
"""The op of such nodes."""


class NotDifferentiable(TypeError):
    """A function uses an operation without a derivative, or reads values of its argument."""


def variable(graph: Graph, argument: Node) -> Node:
    """A node of the type of ``argument`` that has no value yet."""
    node = graph.placeholder(VARIABLE, argument.type)
    node.depth = argument.depth
    return node


def bind_variable(variable: Node, argument: Node) -> None:
    """Let ``variable`` be ``argument``: somebody may have kept what was made of it."""
    variable.op, variable.args = "copy", (argument,)
    variable.depth = argument.depth + 1


def depending(roots: Iterable[Node], on: Sequence[Node] | None = None) -> list[Node]:
    """The nodes below ``roots`` that depend on variables, or on those of ``on``; arguments first.

    Not entered is what has a value.
    """
    wanted = None if on is None else {id(one) for one in on}
    found: list[Node] = []
    among: set[int] = set()
    for node in topological(roots, lambda node: node.value is not None):
        is_one = node.op == VARIABLE if wanted is None else id(node) in wanted
        if is_one or (node.value is None and any(id(arg) in among for arg in node.args)):
            among.add(id(node))
            found.append(node)
    return found


def substitute(graph: Graph, roots: Sequence[Node], instead: Mapping[Node, Node]) -> list[Node]:
    """``roots`` made of other nodes, where they are made of the keys of ``instead``."""
    new = {id(old): node for old, node in instead.items()}
    for node in depending(roots, list(instead)):
        if id(node) not in new:
            args = tuple([new.get(id(arg), arg) for arg in node.args])
            made = graph.collect(*args) if node.op == COLLECT else None
            made = made or graph.make(node.op, args, node.type, node.params)
            new[id(node)] = made
            if node in graph.still:
                graph.still.add(made)
    return [new.get(id(root), root) for root in roots]


def refuse_variables(roots: Sequence[Node]) -> None:
    """``NotDifferentiable`` if ``roots`` depend on a variable: they have no values yet."""
    if depending(roots):
        raise NotDifferentiable(
            "a function that is differentiated needs a value that depends on its argument, for "
            "float(), .item(), .numpy(), persist() or if; this would lose the gradient. "
            "Write distvec.where(condition, x, y) for a condition, "
            "distvec.where(mask, x, 0) for the elements x[mask]; or return the array and read it "
            "after the call: value_and_grad(f, has_aux=True)"
        )


VIEW, SPREAD, GATHER = "view", "spread", "gather"
MOVES = frozenset((VIEW, SPREAD, GATHER))
"""The ops of such nodes."""

MOVEMENT = "movement"
"""The op of what a movement makes: see ``ps_backend.program.collectives``."""


def view(graph: Graph, source: Node, space: Space, start: int, step: int) -> Node:
    """Slot ``i`` of ``space`` is slot ``start + step * i`` of ``source``."""
    type = array_type(space, source.dtype, source.type.row)
    return graph.make(VIEW, (source,), type, (start, step))


def spread(graph: Graph, source: Node, space: Space, start: int, step: int) -> Node:
    """Slot ``start + step * j`` of ``space`` is slot ``j`` of ``source``; others are undefined."""
    type = array_type(space, source.dtype, source.type.row)
    return graph.make(SPREAD, (source,), type, (start, step))


def gather(graph: Graph, source: Node, index: Node) -> Node:
    """Slot ``i`` of the space of ``index``, of integers, is slot ``index[i]`` of ``source``."""
    type = array_type(index.type.space, source.dtype, source.type.row)
    return graph.make(GATHER, (source, index), type)


def movement(
    graph: Graph,
    kind: str,
    number: int,
    args: Sequence[Node],
    type: NodeType,
    phases: int,
    params: Sequence[int] = (),
) -> Node:
    """Output ``number`` of a movement of ``args``: arrays, then what the client holds.

    It takes so many ``phases``: one where a single server has all of the arrays.
    """
    return graph.make(MOVEMENT, tuple(args), type, (kind, number, phases, *params))


def phases_of(node: Node) -> int:
    """In how many phases a movement is computed."""
    phases: int = node.params[2]
    return phases


def params_of(node: Node) -> tuple[int, ...]:
    """The integers that a movement takes."""
    return node.params[3:]


def first_level(node: Node, level: int) -> int:
    """The level of the first phase of a movement, which is itself of ``level``."""
    return level - node.on_client - (phases_of(node) - 1)


def movement_key(node: Node) -> tuple[object, ...]:
    """What the outputs of one movement have in common."""
    kind, _, *others = node.params
    return kind, tuple(others), *map(id, node.args)
