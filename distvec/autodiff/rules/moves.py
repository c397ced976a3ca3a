"""Elements that change place: slices, index arrays, what goes to the client, and movements, which
servers compute in phases.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.array.collectives.core import scatter
from distvec.array.collectives.scan import linear_recurrence
from distvec.array.core.shapes import reshape
from distvec.array.indexing.getitem import gather, is_inside, take_rows
from distvec.array.indexing.parse_key import Slice
from distvec.array.manipulation.join import row_index
from distvec.autodiff.steps import Adjoint, NotDifferentiable, Rule, Step, shrunk
from distvec.graph import build
from distvec.graph.node import (
    GATHER,
    SPREAD,
    VIEW,
    Node,
    movement,
    params_of,
    phases_of,
    spread,
    view,
)
from ps_backend.program.collectives import (
    ASSIGN,
    LINEAR_RECURRENCE,
    ORDER,
    SCANS,
    SCATTER,
    SORT,
    VALUES,
    WAYS,
)
from ps_backend.program.spaces import DenseSpace


def _view(step: Step, number: int) -> Adjoint:
    """Of a slice: the adjoint where the elements came from, zeros elsewhere."""
    source, node = step.node.args[0], step.node
    if not isinstance(source.type.space, DenseSpace) or not isinstance(node.type.space, DenseSpace):
        raise NotDifferentiable(
            "an array of the elements that a mask selects has no derivative; write "
            "distvec.where(mask, x, 0) instead of x[mask]"
        )
    if source.type.row != node.type.row:  # the same elements in another shape
        return step.adjoint if step.is_number else reshape(step.whole(), source.type.shape)
    start, by = step.params
    part = Slice(start, by, node.type.shape[0])
    if part.is_all(source.type.shape[0]):
        return step.adjoint
    like = step.arg(0)
    here, found = is_inside(like, part), step.adjoint
    if not step.is_number:
        whole = step.whole()
        with like.session.holders.lock:
            space = source.type.space
            found = like.like(spread(like.session.graph, whole.node, space, start, by))
    here = reshape(here, (len(here), 1)) if like.ndim == 2 else here
    return np.where(here, found, 0.0)


def _spread_adjoint(step: Step, number: int) -> Adjoint:
    """The elements elsewhere are nobody's."""
    if step.is_number:
        return step.adjoint
    whole = step.whole()
    start, by = step.params
    with whole.session.holders.lock:
        space = step.node.args[0].type.space
        return whole.like(view(whole.session.graph, whole.node, space, start, by))


def _gather(step: Step, number: int) -> Adjoint:
    """Added up where an element was named more than once: a scatter, in two messages."""
    adjoint = step.adjoint if step.is_number else step.whole()
    return scatter(step.zeros(step.node.args[0]), "add", step.arg(1), adjoint)


# --- between servers and client -------------------------------------------------------------------


def summed_by_place(step: Step, rows: Any, places: Any) -> tuple[Any, Any]:
    """``rows`` of the client, those of the same place added up; and the places, each once."""
    once, at = np.unique(places, return_inverse=True)
    if len(once) == len(places):
        return rows, places
    order = np.argsort(at, kind="stable")
    starts = np.searchsorted(at[order], np.arange(len(once)))
    return np.add.reduceat(rows[order], starts, axis=0), once


def _take(step: Step, number: int) -> Adjoint:
    """Of few elements that came to the client: they go back to their places, among zeros."""
    source, wanted = step.node.args
    if wanted.value is None:
        raise NotDifferentiable("elements at indices that are not known yet have no derivative")
    rows, places = summed_by_place(step, step.whole(), wanted.value)
    return step.made("place", [step.zeros(source), step.constant(places), rows], source.type)


def _place(step: Step, number: int) -> Adjoint:
    """Of values that were put at known places: of a repeated one the last value counts."""
    x, where, given = step.node.args
    whole = step.whole()
    if number == 0:
        zero = step.like.like(step.like.session.graph.constant(0.0, x.dtype))
        return step.made("place", [whole, step.arg(1), zero], x.type)
    backwards = where.value[::-1]
    last = len(backwards) - 1 - np.unique(backwards, return_index=True)[1]
    if not given.type.shape:
        return np.sum(take_rows(whole, where.value[last]))
    counts = np.zeros(len(backwards), np.bool_)
    counts[last] = True
    here = step.constant(counts if len(given.type.shape) == 1 else counts[:, None])
    return np.where(here, take_rows(whole, where.value), 0.0)


def _collect(step: Step, number: int) -> Adjoint:
    """It stays with the client: it travels along where the servers need it."""
    return step.adjoint


def _slots(step: Step, number: int) -> Adjoint:
    if step.is_number:
        return step.adjoint
    whole = step.whole()
    with whole.session.holders.lock:
        return whole.like(build.collect(whole.session.graph, whole.node))


_INDEX: dict[str, Rule] = {
    VIEW: _view,
    SPREAD: _spread_adjoint,
    GATHER: _gather,
    "take": _take,
    "place": _place,
    "collect": _collect,
    "slots": _slots,
}
INDEX_RULES = MappingProxyType(_INDEX)


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
        others = phases_of(node), params_of(node)
        order = step.like.like(movement(graph, SORT, ORDER, node.args, type, *others))
    adjoint = step.adjoint if step.is_number else step.whole()
    return scatter(step.zeros(node.args[0]), "add", order, adjoint)


def _scatter(step: Step, number: int) -> Adjoint | None:
    """Of ``add``, ``subtract`` and assignment; of repeated places the last value counts then."""
    way, has_base = WAYS[params_of(step.node)[0]], params_of(step.node)[1]
    base, index, values = _parts(step.node, has_base)
    if way not in ("add", "subtract", ASSIGN):
        raise NotDifferentiable(f"numpy.{way}.at has no derivative here")
    where, whole = step.of(step.node.args[index]), step.whole()
    if number == base:
        found = scatter(whole, ASSIGN, where, 0.0) if way == ASSIGN else step.adjoint
        return shrunk(step, found, step.node.args[base])
    found = gather(whole, where)
    if way == "subtract":
        found = -found
    if way == ASSIGN:
        numbers = row_index(whole, len(where))
        last = gather(scatter(row_index(whole, len(whole)), ASSIGN, where, numbers), where)
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


_MOVEMENT: dict[str, Rule] = {
    SCANS["add"].kind: _cumsum,
    SCANS["multiply"].kind: _cumprod,
    SORT: _sort,
    SCATTER: _scatter,
    LINEAR_RECURRENCE: _recurrence,
}
MOVEMENT_RULES = MappingProxyType(_MOVEMENT)
