"""Elementwise operations: what the op table says."""

from __future__ import annotations

import numpy as np

from distvec.array.operators import Arithmetic
from distvec.derivatives.logarithms import GROWING
from distvec.derivatives.steps import Adjoint, One, Step, shrunk
from ps_backend.program import ops


def back(step: Step, number: int) -> Adjoint | None:
    """The adjoint times the partial derivative, summed where the argument was broadcast."""
    node = step.node
    derivative = ops.TABLE[node.op].derivatives[number]
    if derivative is None:
        return None
    args = [step.arg(k) for k in range(len(node.args))]
    adjoint = step.adjoint
    if node.op in GROWING and _is_computed(adjoint):
        # What comes after may be constant there, as 1 / (1 + exp(x)) is: so 0 * inf is 0 here, also
        # for derivatives of this.
        local = derivative(One(1), step.result, *args)
        return shrunk(step, adjoint * np.where(adjoint == 0.0, 0.0, local), node.args[number])
    return shrunk(step, derivative(adjoint, step.result, *args), node.args[number])


def _is_computed(adjoint: Adjoint) -> bool:
    return isinstance(adjoint, Arithmetic) and bool(adjoint.node.args)
