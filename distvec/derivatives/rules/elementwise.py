"""Elementwise operations: what the op table says."""

from __future__ import annotations

from distvec.derivatives.steps import Adjoint, Step, shrunk
from ps_backend.program import ops


def back(step: Step, number: int) -> Adjoint | None:
    """The adjoint times the partial derivative, summed where the argument was broadcast."""
    node = step.node
    derivative = ops.TABLE[node.op].derivatives[number]
    if derivative is None:
        return None
    args = [step.arg(k) for k in range(len(node.args))]
    return shrunk(step, derivative(step.adjoint, step.result, *args), node.args[number])
