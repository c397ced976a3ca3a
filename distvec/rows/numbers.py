"""What of a call's numbers is computed before it, by the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distvec.graph.host_eval import typed, value_of
from distvec.graph.node import Node, topological
from ps_backend.program.sweep import Scalar
from ps_backend.program.types import NodeType


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    op: str
    params: tuple[Any, ...]
    type: NodeType
    args: tuple[int, ...]
    constant: Any
    """The value, where it is known."""
    argument: str
    """The argument that it is, if it is one."""


class Numbers:
    """The runtime scalars of a sweep, computed from the numbers that a call gives by name.

    ``2 * lr / (1 - beta)`` of numbers costs the servers nothing.
    """

    def __init__(self, wanted: Sequence[Node], arguments: Mapping[Node, str]) -> None:
        order = list(topological(wanted, lambda node: node.known))
        place = {id(node): number for number, node in enumerate(order)}
        self._steps = [
            _Step(
                node.op,
                node.params,
                node.type,
                tuple(place[id(arg)] for arg in node.args),
                node.value,
                arguments.get(node, ""),
            )
            for node in order
        ]
        self._wanted = [place[id(node)] for node in wanted]

    def of(self, given: Mapping[str, Any]) -> tuple[Scalar, ...]:
        """The scalars of a call, in the order of the sweep's."""
        values: list[Any] = []
        for step in self._steps:
            value = step.constant
            if step.argument:
                value = typed(given[step.argument], step.type)
            elif value is None:
                value = value_of(step.op, step.params, step.type, [values[k] for k in step.args])
            values.append(value)
        return tuple([values[k] if values[k].ndim else values[k].item() for k in self._wanted])
