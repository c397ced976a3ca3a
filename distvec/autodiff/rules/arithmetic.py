"""Elementwise operations, reductions, products, and rows in other shapes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.array.collectives.core import scatter
from distvec.array.core.operators import Arithmetic
from distvec.array.core.shapes import on_servers, reshape
from distvec.array.indexing.getitem import gather, take_columns
from distvec.array.manipulation.join import row_index
from distvec.array.transposed import transpose
from distvec.autodiff.logarithms import GROWING
from distvec.autodiff.steps import Adjoint, NotDifferentiable, One, Rule, Step, shrunk
from distvec.graph.node import Node
from ps_backend.program import ops
from ps_backend.program.reducers import REDUCERS, Reducer
from ps_backend.program.row_ops import JOINS
from ps_backend.program.types import NodeType


def elementwise_rule(step: Step, number: int) -> Adjoint | None:
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


_CLIENT = "client.reduce"
_ALONG_ROWS = "row_"


def reduction_rule(node: Node) -> Rule | None:
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

    def as_operand(one: Any) -> Any:
        """A result as an operand beside the values."""
        return one if np.ndim(one) == 0 or axis != 1 else reshape(one, (one.shape[0], 1))

    def fold(function: Any, values: Any) -> Any:
        return as_operand(function(values, axis=axis))

    return row.derivative(as_operand(step.adjoint), as_operand(step.result), step.arg(0), fold)


def _axis(step: Step) -> int | None:
    node = step.node
    if node.op == _CLIENT:
        axis: int | None = node.params[1]
        return axis
    if node.op.startswith(_ALONG_ROWS):
        return 1
    return 0 if node.params else None


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


def _weights(step: Step, number: int) -> Adjoint:
    """Of the weights of numbers: each has the adjoint of its sum."""
    return gather(on_servers(step.whole()), step.arg(0))


def _row_dot(step: Step, number: int) -> Adjoint:
    adjoint = step.adjoint
    if not step.is_number:
        adjoint = reshape(step.whole(), (step.node.type.shape[0], 1))
    return adjoint * step.arg(1 - number)


_PRODUCT: dict[str, Rule] = {
    "matmul": _matmul,
    "client.matmul": _matmul,
    "gram": _gram,
    "row_dot": _row_dot,
    "weighted_bincount": _weights,
}
PRODUCT_RULES = MappingProxyType(_PRODUCT)


def _reshape_adjoint(step: Step, number: int) -> Adjoint:
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
    found = take_columns(step.whole(), source) if len(places) > 1 else _one_column(step)
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
    adjoint = step.adjoint if step.is_number else take_columns(step.whole(), places)
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
    row = reshape(row_index(step.like, rows), (rows, 1))
    flat = reshape(row * width + step.arg(1), (-1,))
    zeros = reshape(step.zeros(source), (-1,))
    adjoint = step.adjoint if step.is_number else reshape(step.whole(), (-1,))
    return reshape(scatter(zeros, "add", flat, adjoint), source.type.shape)


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


_ROW: dict[str, Rule] = {
    "as_column": _reshape_adjoint,
    "as_vector": _reshape_adjoint,
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
ROW_RULES = MappingProxyType(_ROW)
