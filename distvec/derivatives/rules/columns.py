"""Rows in other shapes, and what is done within each row."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.array.moving.scatter import scattered
from distvec.array.pieces import columns_at
from distvec.array.shaping.placing import index_of
from distvec.derivatives.errors import NotDifferentiable
from distvec.derivatives.steps import Adjoint, Rule, Step
from ps_backend.program.row_ops.shapes import JOINS
from ps_backend.program.types import NodeType


def _reshaped(step: Step, number: int) -> Adjoint:
    return step.adjoint if step.is_number else reshape(step.whole(), step.arg(0).shape)


def _broadcast(step: Step, number: int) -> Adjoint:
    """A vector, or a table of one column, was repeated along the rows."""
    own = step.node.args[0].type.shape
    if own == step.node.type.shape:
        return step.adjoint
    total = step.whole().sum(axis=1)
    return reshape(total, own)


def _back_to_columns(step: Step, places: Any) -> Adjoint:
    """The adjoint of columns as that of the table in which they had these ``places``."""
    count = step.node.args[0].type.shape[1]
    here, source = np.zeros(count, np.bool_), np.zeros(count, np.int64)
    here[places], source[places] = True, np.arange(len(places))
    if step.is_number:
        return np.where(step.constant(here), step.adjoint, 0.0)
    found = columns_at(step.whole(), source) if len(places) > 1 else _one_column(step)
    return np.where(step.constant(here), found, 0.0)


def _one_column(step: Step) -> Any:
    return reshape(step.whole(), (step.node.type.shape[0], 1))


def _column(step: Step, number: int) -> Adjoint:
    return _back_to_columns(step, np.array(step.params))


def _columns(step: Step, number: int) -> Adjoint:
    start, stop, by = step.params
    count = step.node.args[0].type.shape[1]
    return _back_to_columns(step, np.arange(count)[start : None if stop < 0 else stop : by])


def _take_columns(step: Step, number: int) -> Adjoint:
    places = step.node.args[1].value
    if places is not None and len(np.unique(places)) == len(places):
        return _back_to_columns(step, places)
    if places is None:
        raise NotDifferentiable("columns at indices that are not known yet have no derivative")
    count = step.node.args[0].type.shape[1]
    dtype = step.node.dtype
    return step.whole() @ step.constant((places[:, None] == np.arange(count)).astype(dtype))


def _scatter_columns(step: Step, number: int) -> Adjoint:
    join, places = JOINS[step.params[0]], step.node.args[2].value
    if join not in ("add", "subtract") or places is None:
        raise NotDifferentiable(f"{join}.at of columns has no derivative; add and subtract have")
    if number == 0:
        return step.adjoint
    adjoint = step.adjoint if step.is_number else columns_at(step.whole(), places)
    return adjoint if join == "add" else -adjoint


def _join_columns(step: Step, number: int) -> Adjoint:
    if step.is_number:
        return step.adjoint
    first = step.node.args[0].type.shape[1]
    whole = step.whole()
    return whole[:, :first] if number == 0 else whole[:, first:]


# --- in each row ----------------------------------------------------------------------------------


def _row_sort(step: Step, number: int) -> Adjoint:
    """Each element's adjoint goes back to where it was."""
    if step.is_number:
        return step.adjoint
    places = step.node.type.of(np.dtype(np.int64))
    order = step.made("row_argsort", [step.arg(0)], places, step.params)
    back = step.made("row_argsort", [order], places, (0, 1))
    return step.made("row_take", [step.whole(), back], step.node.type)


def _row_take(step: Step, number: int) -> Adjoint:
    """Added up where a place was named more than once: a scatter over all elements."""
    source, (rows, width) = step.node.args[0], step.node.args[0].type.shape
    row = reshape(index_of(step.like, rows), (rows, 1))
    flat = reshape(row * width + step.arg(1), (-1,))
    zeros = reshape(step.zeros(source), (-1,))
    adjoint = step.adjoint if step.is_number else reshape(step.whole(), (-1,))
    return reshape(scattered(zeros, "add", flat, adjoint), source.type.shape)


def _row_put(step: Step, number: int) -> Adjoint:
    """Of places that are named once in each row."""
    table, _, given = step.node.args
    at = step.arg(1)
    if number == 0:
        return step.made("row_put", [step.whole(), at, step.zeros(given)], table.type)
    return step.made("row_take", [step.whole(), at], given.type)


def _row_cumsum(step: Step, number: int) -> Adjoint:
    return _backwards_in_rows(step, step.whole(), step.node.type)


def _row_cumprod(step: Step, number: int) -> Adjoint:
    """Of what is not zero."""
    return _backwards_in_rows(step, step.whole() * step.result, step.node.type) / step.arg(0)


def _backwards_in_rows(step: Step, x: Any, type: NodeType) -> Any:
    return step.made("row_accumulate_add", [x[:, ::-1]], type)[:, ::-1]


_ALL: dict[str, Rule] = {
    "as_column": _reshaped,
    "as_vector": _reshaped,
    "broadcast": _broadcast,
    "column": _column,
    "columns": _columns,
    "take_columns": _take_columns,
    "scatter_columns": _scatter_columns,
    "join_columns": _join_columns,
    "row_sort": _row_sort,
    "row_take": _row_take,
    "row_put": _row_put,
    "row_accumulate_add": _row_cumsum,
    "row_accumulate_multiply": _row_cumprod,
}
RULES = MappingProxyType(_ALL)
