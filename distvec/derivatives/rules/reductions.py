"""Reductions: of all elements, along axis 0 or 1, on the servers or of what the client keeps."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.derivatives.steps import Adjoint, Rule, Step
from distvec.graph.expr import Node
from ps_backend.program.reducers import REDUCERS, Reducer

_CLIENT = "client.reduce"
_ALONG_ROWS = "row_"


def rule_of(node: Node) -> Rule | None:
    """How adjoints go back through a reduction; None if ``node`` is none that has a derivative."""
    row = _row_of(node)
    return None if row is None or row.derivative is None else _back


def _row_of(node: Node) -> Reducer | None:
    name = node.params[0] if node.op == _CLIENT else node.op.removeprefix(_ALONG_ROWS)
    return REDUCERS.get(name)


def _back(step: Step, number: int) -> Adjoint:
    """As the table of reductions says."""
    row, axis = _row_of(step.node), _axis(step)
    assert row is not None and row.derivative is not None  # or there were no such rule

    def beside(one: Any) -> Any:
        """A result as an operand beside the values."""
        return one if np.ndim(one) == 0 or axis != 1 else reshape(one, (one.shape[0], 1))

    def fold(function: Any, values: Any) -> Any:
        return beside(function(values, axis=axis))

    return row.derivative(beside(step.adjoint), beside(step.result), step.arg(0), fold)


def _axis(step: Step) -> int | None:
    node = step.node
    if node.op == _CLIENT:
        axis: int | None = node.params[1]
        return axis
    if node.op.startswith(_ALONG_ROWS):
        return 1
    return 0 if node.params else None
