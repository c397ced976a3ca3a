"""Movements: what servers compute in phases, as elements change place between them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.array.moving.recurrences import linear_recurrence
from distvec.array.moving.scatter import ASSIGN, WAYS, scattered
from distvec.array.pieces import gathered
from distvec.array.shaping.placing import index_of
from distvec.derivatives.errors import NotDifferentiable
from distvec.derivatives.steps import Adjoint, Rule, Step, shrunk
from distvec.graph import moves
from distvec.graph.expr import Node
from ps_backend.program import recurrences, scatters
from ps_backend.program.scans import SCANS
from ps_backend.program.sorting import ORDER, SORT, VALUES
from ps_backend.program.types import array_type


def _cumsum(step: Step, number: int) -> Adjoint:
    return _running_backwards(step.whole())


def _cumprod(step: Step, number: int) -> Adjoint:
    """Of what is not zero."""
    return _running_backwards(step.whole() * step.result) / step.arg(0)


def _running_backwards(x: Any) -> Any:
    return np.cumsum(x[::-1], axis=0)[::-1]


def _sort(step: Step, number: int) -> Adjoint | None:
    """Each element's adjoint goes back to where it was."""
    node = step.node
    if node.params[1] != VALUES:
        return None
    if node.type.row:
        raise NotDifferentiable(
            "the columns of a table, sorted along axis 0, have no derivative here; sort the "
            "columns one by one, or give the gradient yourself: return (value, gradient)"
        )
    with step.like.session.holders.lock:
        graph, type = step.like.session.graph, node.type.of(np.dtype(np.int64))
        others = moves.phases_of(node), moves.params_of(node)
        order = step.like.like(moves.movement(graph, SORT, ORDER, node.args, type, *others))
    adjoint = step.adjoint if step.is_number else step.whole()
    return scattered(step.zeros(node.args[0]), "add", order, adjoint)


def _scatter(step: Step, number: int) -> Adjoint | None:
    """Of ``add``, ``subtract`` and assignment; of repeated places the last value counts then."""
    way, has_base = WAYS[moves.params_of(step.node)[0]], moves.params_of(step.node)[1]
    base, index, values = _parts(step.node, has_base)
    if way not in ("add", "subtract", ASSIGN):
        raise NotDifferentiable(f"numpy.{way}.at has no derivative here")
    where, whole = step.of(step.node.args[index]), step.whole()
    if number == base:
        found = scattered(whole, ASSIGN, where, 0.0) if way == ASSIGN else step.adjoint
        return shrunk(step, found, step.node.args[base])
    found = gathered(whole, where)
    if way == "subtract":
        found = -found
    if way == ASSIGN:
        numbers = index_of(whole, len(where))
        last = gathered(scattered(index_of(whole, len(whole)), ASSIGN, where, numbers), where)
        here = last == numbers
        found = np.where(here.reshape(-1, 1) if whole.ndim == 2 else here, found, 0.0)
    return shrunk(Step(step.like, found.node, found), found, step.node.args[values])


def _parts(node: Node, has_base: int) -> tuple[int, int, int]:
    """The numbers of base, index array and values among the arguments: arrays, then operands."""
    arrays = [k for k, arg in enumerate(node.args) if not arg.on_client]
    operands = [k for k, arg in enumerate(node.args) if arg.on_client]
    base = arrays.pop(0) if has_base else operands.pop(0)
    index = arrays.pop(0)
    return base, index, (arrays or operands)[0]


def _recurrence(step: Step, number: int) -> Adjoint:
    """The recurrence goes backwards, with the factors one further."""
    node = step.node
    term, *rest = range(len(node.args))
    initial = next(k for k in rest if node.args[k].on_client)
    factor = next(k for k in rest if k != initial)
    a, y = step.arg(factor), step.result
    later = a if node.args[factor].on_client else _later(a)
    back = linear_recurrence(_backwards(later), step.whole()[::-1])[::-1]
    if number == term:
        return back
    first = step.arg(initial)
    if number == initial:
        ahead = a if node.args[factor].on_client else a[0]
        found = ahead * back[0]
        return found if found.shape == node.args[initial].type.shape else np.sum(found)
    width = node.type.row
    start = np.broadcast_to(first, width) if width else first
    before = np.concatenate([_one_row(start, width), y[:-1]])
    return shrunk(step, back * before, node.args[factor])


def _backwards(a: Any) -> Any:
    return a if np.ndim(a) == 0 or a.node.on_client else a[::-1]


def _later(a: Any) -> Any:
    """Each row the next one; the last does not matter."""
    return np.concatenate([a[1:], a[-1:]])


def _one_row(x: Any, row: tuple[int, ...]) -> Any:
    return np.reshape(x, (1, *row))


_ALL: dict[str, Rule] = {
    SCANS["add"].kind: _cumsum,
    SCANS["multiply"].kind: _cumprod,
    SORT: _sort,
    scatters.KIND: _scatter,
    recurrences.KIND: _recurrence,
}
RULES = MappingProxyType(_ALL)

__all__ = ["RULES", "array_type"]
