"""What is said of what cannot be differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import reshape
from distvec.graph import build
from distvec.graph.node import Node, NotDifferentiable
from ps_backend.program import ops
from ps_backend.program.types import NodeType, client_type

__all__ = ["NotDifferentiable", "name_of", "why_not"]


def why_not(op: str) -> str:
    """Why the op has no derivative."""
    row = ops.TABLE.get(op)
    return f": {row.no_derivative}" if row is not None and row.no_derivative else ""


def name_of(function: Any) -> str:
    """What users call a function of NumPy's or SciPy's."""
    return getattr(function, "__name__", None) or repr(function)


Adjoint: TypeAlias = Any


class Step:
    """The adjoint of a node on its way to those of its arguments."""

    def __init__(self, like: Arithmetic, node: Node, adjoint: Adjoint) -> None:
        self.like = like
        self.node = node
        self.adjoint = adjoint
        self.params = node.params

    def of(self, node: Node) -> Any:
        """A node as operand: an array, or the number that it is known to be."""
        if node.op == "const" and node.is_scalar:
            return node.value
        return self.like.like(node)

    @property
    def result(self) -> Any:
        """What the node computes."""
        return self.of(self.node)

    def arg(self, number: int) -> Any:
        """One of its arguments."""
        return self.of(self.node.args[number])

    def whole(self) -> Any:
        """The adjoint, as an array of the shape, in the place and of the dtype of the node."""
        return self.fitted(self.adjoint, self.node)

    def fitted(self, adjoint: Adjoint, node: Node) -> Any:
        """``adjoint`` written out as an array like that of ``node``."""
        graph = self.like.session.graph
        with self.like.session.holders.lock:
            if not isinstance(adjoint, Arithmetic):
                constant = graph.constant(node.dtype.type(adjoint), node.dtype)
                return self.like.like(build.broadcast_to(graph, constant, node.type))
            type = node.type.of(adjoint.dtype)
            found = self.like.like(build.broadcast_to(graph, adjoint.node, type))
        return found if found.dtype == node.dtype else found.astype(node.dtype)

    def zeros(self, node: Node) -> Any:
        """Zeros, as an array like that of ``node``; lazy."""
        return self.fitted(0.0, node)

    def made(self, op: str, args: Sequence[Any], type: NodeType, params: Any = ()) -> Any:
        """The array of an operation on arrays of the servers."""
        with self.like.session.holders.lock:
            nodes = tuple([arg.node for arg in args])
            return self.like.like(self.like.session.graph.make(op, nodes, type, tuple(params)))

    def on_client(
        self, op: str, args: Sequence[Any], shape: tuple[int, ...], params: Any = ()
    ) -> Any:
        """The array of an operation of the client, in the dtype of the first argument."""
        with self.like.session.holders.lock:
            nodes = [arg.node for arg in args]
            type = client_type(nodes[0].dtype, shape)
            graph = self.like.session.graph
            return self.like.like(build.on_client(graph, op, nodes, type, tuple(params)))

    def constant(self, values: Any) -> Any:
        """A small array of NumPy's as one that the client keeps."""
        array = np.asarray(values)
        return self.like.like(self.like.session.graph.client_value(array, array.dtype))

    @property
    def is_number(self) -> bool:
        """Whether the adjoint is one number for all elements."""
        return np.ndim(self.adjoint) == 0


Rule: TypeAlias = Callable[[Step, int], "Adjoint | None"]
"""From a step and the number of an argument its adjoint; None: the result does not follow it."""


def shrunk(step: Step, adjoint: Adjoint, target: Node) -> Adjoint:
    """``adjoint``, of the shape of the step's node, summed where ``target`` was broadcast to it."""
    shape, own = step.node.type.shape, target.type.shape
    if own == shape:
        return adjoint
    axes = _repeated_axes(own, shape)
    if np.ndim(adjoint) == 0:
        return adjoint * prod([shape[axis] for axis in axes])
    whole = step.fitted(adjoint, step.node)
    total = np.sum(whole) if len(axes) == len(shape) else np.sum(whole, axis=axes[0])
    if total.shape == own:
        return total
    if target.on_client:
        return step.on_client("client.reshape", (total,), own, own)
    return reshape(total, own)


def _repeated_axes(own: tuple[int, ...], shape: tuple[int, ...]) -> list[int]:
    """The axes of ``shape`` along which an array of shape ``own`` is repeated."""
    missing = len(shape) - len(own)
    return [
        axis
        for axis, extent in enumerate(shape)
        if axis < missing or (own[axis - missing] == 1 and extent != 1)
    ]


def in_dtype(adjoint: Adjoint, node: Node) -> Adjoint:
    """``adjoint`` in the dtype of ``node``, to which it belongs; a Python number as it is."""
    if isinstance(adjoint, np.generic):
        return float(adjoint)
    if isinstance(adjoint, Arithmetic) and adjoint.dtype != node.dtype:
        return adjoint.astype(node.dtype)
    return adjoint


class One(float):
    """The adjoint to begin with: what is multiplied by it stays itself, and takes no operation."""

    __slots__ = ()

    def __mul__(self, other: Any) -> Any:
        return other

    __rmul__ = __mul__
