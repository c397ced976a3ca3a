"""How adjoints go back through each operation of the graph.

A rule takes a step and the number of an argument, and gives the argument's adjoint, broadcastable
to its shape. Those of the op table follow from its column of derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from distvec.derivatives.errors import NotDifferentiable, why_not
from distvec.derivatives.rules import (
    client,
    columns,
    elementwise,
    moving,
    places,
    products,
    reductions,
    small_linear_algebra,
)
from distvec.derivatives.steps import Rule
from distvec.graph.expr import Node
from distvec.graph.moves import MOVEMENT
from ps_backend.program import ops

_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **reductions.RULES,
        **products.RULES,
        **columns.RULES,
        **places.RULES,
        **client.RULES,
    }
)
"""By op of a node."""


def rule_of(node: Node) -> Rule:
    """How adjoints go back through ``node``. ``NotDifferentiable`` names what has no derivative."""
    row = ops.TABLE.get(node.op)
    if row is not None and row.derivatives:
        return elementwise.back
    if node.op == MOVEMENT:
        found, name = moving.RULES.get(node.params[0]), node.params[0]
    elif node.op == "client.linalg":
        found, name = small_linear_algebra.RULES.get(node.params[0]), node.params[0]
    else:
        found, name = _RULES.get(node.op), node.op
    if found is None:
        raise NotDifferentiable(
            f"{name} has no derivative here{why_not(node.op)}; write the function with others, or "
            f"give the gradient yourself: return (value, gradient)"
        )
    return found
