"""Reductions: of all elements, along axis 0 or 1, on the servers or of what the client keeps."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.derivatives.errors import NotDifferentiable
from distvec.derivatives.steps import Adjoint, Rule, Step

_CLIENT = "client.reduce"


def _axis(step: Step) -> int | None:
    node = step.node
    if node.op == _CLIENT:
        axis: int | None = node.params[1]
        return axis
    if node.op.startswith("row_"):
        return 1
    return 0 if node.params else None


def _beside(step: Step, one: Any) -> Any:
    """``one``, of the shape of the result, as an operand beside the argument."""
    if np.ndim(one) == 0 or _axis(step) != 1:
        return one
    return reshape(one, (one.shape[0], 1))


def _sum(step: Step, number: int) -> Adjoint:
    return _beside(step, step.adjoint)


def _extreme(step: Step, number: int) -> Adjoint:
    """In equal parts for the elements that are the least or greatest, as in PyTorch and JAX."""
    x = step.arg(0)
    chosen = x == _beside(step, step.result)
    share = step.adjoint / np.sum(chosen, axis=_axis(step))
    return np.where(chosen, _beside(step, share), 0.0)


def _prod(step: Step, number: int) -> Adjoint:
    """The product of the others: also where one of them, or the element itself, is zero."""
    x, axis = step.arg(0), _axis(step)
    is_zero = x == 0.0
    zeros = _beside(step, np.sum(is_zero, axis=axis))
    others = np.where(is_zero, 1.0, x)
    rest = _beside(step, np.prod(others, axis=axis))
    found = np.where(zeros == 0, rest / others, np.where((zeros == 1) & is_zero, rest, 0.0))
    return _beside(step, step.adjoint) * found


_OF_TABLE: dict[str, Rule] = {
    "sum": _sum,
    "prod": _prod,
    **dict.fromkeys(("min", "max", "nanmin", "nanmax"), _extreme),
}


def _of_client(step: Step, number: int) -> Adjoint:
    name = step.params[0]
    if name not in _OF_TABLE:
        raise NotDifferentiable(f"{name} has no derivative here")
    return _OF_TABLE[name](step, number)


RULES = MappingProxyType(
    {
        **_OF_TABLE,
        **{f"row_{name}": rule for name, rule in _OF_TABLE.items()},
        _CLIENT: _of_client,
    }
)
