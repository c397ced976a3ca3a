"""How adjoints go back through each operation of the graph.

A rule takes a step and the number of an argument, and gives the argument's adjoint, broadcastable
to its shape. Those of the op table follow from its column of derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from distvec.autodiff.rules import arithmetic as columns
from distvec.autodiff.rules import arithmetic as elementwise
from distvec.autodiff.rules import arithmetic as products
from distvec.autodiff.rules import arithmetic as reductions
from distvec.autodiff.rules import host as client
from distvec.autodiff.rules import host as small_linear_algebra
from distvec.autodiff.rules import moves as moving
from distvec.autodiff.rules import moves as places
from distvec.autodiff.steps import NotDifferentiable, Rule, why_not
from distvec.graph.node import Node
from distvec.graph.view_nodes import MOVEMENT
from ps_backend.program import ops

_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **products.RULES,
        **columns.RULES,
        **places.RULES,
        **client.RULES,
    }
)
"""By op of a node."""


_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "order_statistics": "a quantile or median",
        "triangle": "the QR decomposition of a table",
        "interpolated": "numpy.interp",
        "histogram": "a histogram",
        "client.statistic": "a statistic of a small array",
        "client.einsum": "einsum of small arrays",
    }
)
"""What users call an operation whose name they have not seen."""


def rule_of(node: Node) -> Rule:
    """How adjoints go back through ``node``. ``NotDifferentiable`` names what has no derivative."""
    row = ops.TABLE.get(node.op)
    if row is not None and row.derivatives:
        return elementwise.back
    name, found = node.op, reductions.rule_of(node)
    if node.op == MOVEMENT:
        name = node.params[0]
        found = moving.RULES.get(name)
    elif node.op == "client.linalg":
        name = node.params[-2]
        found = small_linear_algebra.RULES.get(name)
    elif found is None:
        found = _RULES.get(node.op)
    if found is None:
        raise NotDifferentiable(
            f"{_NAMES.get(name, name)} has no derivative here{why_not(name)}; write the function "
            f"with others, or give the gradient yourself: return (value, gradient)"
        )
    return found
