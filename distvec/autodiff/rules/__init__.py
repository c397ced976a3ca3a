"""How adjoints go back through each operation of the graph.

A rule takes a step and the number of an argument, and gives the argument's adjoint, broadcastable
to its shape. Those of the op table follow from its column of derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from distvec.autodiff.rules.arithmetic import (
    PRODUCT_RULES,
    ROW_RULES,
    elementwise_rule,
    reduction_rule,
)
from distvec.autodiff.rules.host import HOST_RULES, LINEAR_ALGEBRA_RULES
from distvec.autodiff.rules.moves import INDEX_RULES, MOVEMENT_RULES
from distvec.autodiff.steps import NotDifferentiable, Rule, why_not
from distvec.graph.node import MOVEMENT, Node
from ps_backend.program import ops

_RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **PRODUCT_RULES,
        **ROW_RULES,
        **INDEX_RULES,
        **HOST_RULES,
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
        return elementwise_rule
    name, found = node.op, reduction_rule(node)
    if node.op == MOVEMENT:
        name = node.params[0]
        found = MOVEMENT_RULES.get(name)
    elif node.op == "client.linalg":
        name = node.params[-2]
        found = LINEAR_ALGEBRA_RULES.get(name)
    elif found is None:
        found = _RULES.get(node.op)
    if found is None:
        is_on_client = node.op.startswith("client.")
        instead = "store the array on the servers, x.move_to_servers(), " if is_on_client else ""
        raise NotDifferentiable(
            f"{_NAMES.get(name, name)} has no derivative here{why_not(name)}; {instead}write the "
            f"function with others, or give the gradient yourself: return (value, gradient)"
        )
    return found
