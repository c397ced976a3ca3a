"""Linear algebra of small matrices that the client keeps."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.array.transposed import transpose
from distvec.derivatives.steps import Adjoint, Rule, Step
from distvec.graph.matrices import name_of


def _inv(step: Step, number: int) -> Adjoint:
    turned = transpose(step.result)
    return -(turned @ step.whole() @ turned)


def _solve(step: Step, number: int) -> Adjoint:
    right = np.linalg.solve(transpose(step.arg(0)), step.whole())
    if number == 1:
        return right
    result = step.result
    if result.ndim == 1:
        return -(right.reshape(-1, 1) * result)
    return -(right @ transpose(result))


def _det(step: Step, number: int) -> Adjoint:
    return step.adjoint * step.result * transpose(np.linalg.inv(step.arg(0)))


_ALL: dict[Any, Rule] = {np.linalg.inv: _inv, np.linalg.solve: _solve, np.linalg.det: _det}
RULES = MappingProxyType({name_of(function): rule for function, rule in _ALL.items()})
