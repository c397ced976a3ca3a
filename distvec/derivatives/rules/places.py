"""Elements read or put at other places: slices, index arrays, and what goes to the client."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.array.keys import Slice
from distvec.array.moving.scatter import scattered
from distvec.array.pieces import inside, rows_at
from distvec.derivatives.errors import NotDifferentiable
from distvec.derivatives.steps import Adjoint, Rule, Step
from distvec.graph import moves, shapes
from ps_backend.program.spaces import DenseSpace


def _view(step: Step, number: int) -> Adjoint:
    """Of a slice: the adjoint where the elements came from, zeros elsewhere."""
    source, node = step.node.args[0], step.node
    if not isinstance(source.type.space, DenseSpace) or not isinstance(node.type.space, DenseSpace):
        raise NotDifferentiable(
            "the elements that a mask chose have no derivative as an array of their own; write "
            "distvec.where(mask, x, 0) instead of x[mask]"
        )
    if source.type.row != node.type.row:  # the same elements in another shape
        return step.adjoint if step.is_number else reshape(step.whole(), source.type.shape)
    start, by = step.params
    part = Slice(start, by, node.type.shape[0])
    if part.is_all(source.type.shape[0]):
        return step.adjoint
    like = step.arg(0)
    here, found = inside(like, part), step.adjoint
    if not step.is_number:
        whole = step.whole()
        with like.session.holders.lock:
            space = source.type.space
            found = like.like(moves.spread(like.session.graph, whole.node, space, start, by))
    here = reshape(here, (len(here), 1)) if like.ndim == 2 else here
    return np.where(here, found, 0.0)


def _spread(step: Step, number: int) -> Adjoint:
    """The elements elsewhere are nobody's."""
    if step.is_number:
        return step.adjoint
    whole = step.whole()
    start, by = step.params
    with whole.session.holders.lock:
        space = step.node.args[0].type.space
        return whole.like(moves.view(whole.session.graph, whole.node, space, start, by))


def _gather(step: Step, number: int) -> Adjoint:
    """Added up where an element was named more than once: a scatter, in two messages."""
    adjoint = step.adjoint if step.is_number else step.whole()
    return scattered(step.zeros(step.node.args[0]), "add", step.arg(1), adjoint)


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
        return np.sum(rows_at(whole, where.value[last]))
    counts = np.zeros(len(backwards), np.bool_)
    counts[last] = True
    here = step.constant(counts if len(given.type.shape) == 1 else counts[:, None])
    return np.where(here, rows_at(whole, where.value), 0.0)


def _collect(step: Step, number: int) -> Adjoint:
    """It stays with the client: it travels along where the servers need it."""
    return step.adjoint


def _slots(step: Step, number: int) -> Adjoint:
    if step.is_number:
        return step.adjoint
    whole = step.whole()
    with whole.session.holders.lock:
        return whole.like(shapes.collected(whole.session.graph, whole.node))


_ALL: dict[str, Rule] = {
    moves.VIEW: _view,
    moves.SPREAD: _spread,
    moves.GATHER: _gather,
    "take": _take,
    "place": _place,
    "collect": _collect,
    "slots": _slots,
}
RULES = MappingProxyType(_ALL)
