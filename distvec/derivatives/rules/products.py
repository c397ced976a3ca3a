"""Products: ``T @ v``, ``x @ T``, ``T.T @ U``, inner products of rows."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from distvec.array.creation import reshape
from distvec.array.transposed import transpose
from distvec.derivatives.steps import Adjoint, Rule, Step


def _outer(x: Any, y: Any) -> Any:
    """The table of products of two vectors, of which the second is the client's."""
    return reshape(x, (x.shape[0], 1)) * y


def _times(x: Any, adjoint: Any) -> Any:
    """``x @ adjoint`` or, of a vector ``x``, the table of their products."""
    return _outer(x, adjoint) if x.ndim == 1 else x @ adjoint


def _matmul(step: Step, number: int) -> Adjoint:
    """Of a table or small array and a small one."""
    first, second, adjoint = step.arg(0), step.arg(1), step.whole()
    if first.ndim == second.ndim == 1:
        return adjoint * (second if number == 0 else first)
    if number == 1:
        return _outer(first, adjoint) if first.ndim == 1 else transpose(first) @ adjoint
    if second.ndim == 1:
        return _outer(adjoint, second)
    return second @ adjoint if first.ndim == 1 else adjoint @ transpose(second)


def _gram(step: Step, number: int) -> Adjoint:
    """Of ``x.T @ y``, which the client gets: back to where x and y are."""
    mine, other = step.arg(number), step.arg(1 - number)
    adjoint = step.whole()
    if adjoint.ndim == 2 and number == 0:
        adjoint = transpose(adjoint)
    return _outer(other, adjoint) if mine.ndim == 2 and other.ndim == 1 else other @ adjoint


def _row_dot(step: Step, number: int) -> Adjoint:
    adjoint = step.adjoint
    if not step.is_number:
        adjoint = reshape(step.whole(), (step.node.type.shape[0], 1))
    return adjoint * step.arg(1 - number)


_ALL: dict[str, Rule] = {
    "matmul": _matmul,
    "client.matmul": _matmul,
    "gram": _gram,
    "row_dot": _row_dot,
}
RULES = MappingProxyType(_ALL)
