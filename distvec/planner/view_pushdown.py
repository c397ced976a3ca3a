"""Views of expressions become expressions of views: the reading moves down to what is stored.

``(2*x + y)[1:]`` is ``2*x[1:] + y[1:]``, computed in the sweep that needs it; otherwise the sum
would be stored in a program before. A view is moved down where that is cheap: computing again what
stands below must cost less than to store it and read it back. What is stored in any case is read
from there, unless it is made of one array: to read that instead costs no more, and saves a message.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from math import prod

import numpy as np

from distvec.graph.node import GATHER, MOVEMENT, MOVES, SPREAD, VIEW, Graph, Node, spread, view
from distvec.planner.forms import Discoveries, Origin
from distvec.planner.pending import Walk
from ps_backend.program import ops
from ps_backend.program.spaces import Space
from ps_backend.program.types import Row, array_type, client_type

_MOST_STEPS = 8
"""So many operations at most are computed again for a view of their result."""
_MOST_SPREAD = 64
"""What is assigned to a slice is computed once, so it may take more."""
_TOO_MANY = _MOST_SPREAD + 1

_OF_SLOTS = frozenset(("as_column", "as_vector", "broadcast", "column", "columns", "join_columns"))
"""Row ops that cost little, and like those of the op table look at one slot alone."""

_INT = np.dtype(np.int64)


class ViewPushdown:
    """One walk over a graph, from its leaves up; what depends on views moved down is rebuilt."""

    def __init__(
        self, graph: Graph, walk: Walk, stored: Set[int], discoveries: Discoveries
    ) -> None:
        """``stored``: ids of arrays that will be stored.

        What is made is added to ``walk``, numbers that follow from slices to ``discoveries``.
        """
        self._graph, self._walk, self._stored = graph, walk, stored
        self._discoveries = discoveries
        self._numbers: dict[int, Node] = {}
        self._new: dict[int, Node] = {}
        self._steps: dict[int, int] = {}
        self._sources: dict[int, frozenset[int]] = {}
        self._made: dict[tuple[int, Space, int, int, str], Node] = {}
        self._in_other_rows: set[int] = set()
        """Ids of what reads an array in rows of another width: no steps fit that but 1."""
        self.moved = 0
        """How many views of expressions were moved down."""

    def run(self, order: Sequence[Node]) -> dict[int, Node]:
        """The node that replaces each node of ``order`` (arguments first), by its id."""
        for node in order:
            new = node if node.known else self._rebuilt(node)
            self._new[id(node)] = new
            self._note(new)
            if id(node) in self._stored and not self._is_made_of_one(new):
                self._steps[id(new)], self._sources[id(new)] = 0, frozenset((id(new),))
                self._in_other_rows.discard(id(new))
        return self._new

    def _note(self, node: Node) -> None:
        """Add what was made to the walk, and what it takes to compute it."""
        self._walk.add((node,))
        for arg in () if node.known else node.args:
            if id(arg) not in self._steps:
                self._note(arg)
        self._steps[id(node)] = self._count(node)
        self._sources[id(node)] = self._read_for(node)
        if not node.known and (
            (node.op == VIEW and not _has_one_width(node))
            or any(id(arg) in self._in_other_rows for arg in node.args)
        ):
            self._in_other_rows.add(id(node))

    def _read_for(self, node: Node) -> frozenset[int]:
        """Ids of the arrays that computing ``node`` reads; two stand for more."""
        if node.known or node.on_client:
            return frozenset(() if node.on_client else (id(node),))
        found = frozenset[int]().union(*[self._sources[id(arg)] for arg in node.args])
        return found if len(found) <= 2 else frozenset(list(found)[:2])

    def _is_made_of_one(self, node: Node) -> bool:
        """Whether it is computed from one array, or none, and in few steps."""
        few = self._steps[id(node)] <= _MOST_STEPS
        return few and len(self._sources[id(node)]) <= 1

    def _rebuilt(self, node: Node) -> Node:
        args = tuple([self._new[id(arg)] for arg in node.args])
        if node.op in (VIEW, SPREAD) and node.type.row == args[0].type.row:
            start, step = node.params
            move = self._view if node.op == VIEW else self._spread
            new = move(args[0], node.type.space, start, step)
            self.moved += new.op != node.op
            return new
        if node.op == VIEW:
            new = self._reshape(args[0], node.type.space, node.type.row, node.params[0])
            self.moved += new.op != node.op
            return new
        if args == node.args:
            return node
        return self._graph.make(node.op, args, node.type, node.params)

    def _count(self, node: Node) -> int:
        """Operations that computing ``node`` takes beyond reading what is stored, or too many."""
        if node.known or node.on_client:
            return 0
        if node.op in MOVES:
            joins = node.op == SPREAD and abs(node.params[1]) == 1 and _has_one_width(node)
            return 0 if joins or node.op == VIEW else _TOO_MANY
        row = ops.TABLE.get(node.op)
        if row.costly if row is not None else node.op not in _OF_SLOTS:
            return _TOO_MANY
        return min(_TOO_MANY, 1 + sum(self._steps.get(id(arg), 0) for arg in node.args))

    def _is_cheap(self, node: Node, most: int, *, in_order: bool = False) -> bool:
        """Whether a view of ``node`` is to be moved down: it is an expression, and a short one.

        ``in_order``: the view leaves nothing out between the first slot and the last.
        """
        fits = in_order or id(node) not in self._in_other_rows
        return fits and not node.known and 0 < self._steps.get(id(node), _TOO_MANY) <= most

    # --- slices -------------------------------------------------------------------------------

    def _view(self, source: Node, space: Space, start: int, step: int) -> Node:
        """``view``, as low as it goes."""
        if source.op == VIEW and not source.known:
            base, (first, stride) = source.args[0], source.params
            if _has_one_width(source):
                return self._view(base, space, first + stride * start, stride * step)
            if step == 1:
                first += start * _width(source)
                return self._reshape(base, space, source.type.row, first)
        if (start, step) == (0, 1) and space == source.type.space:
            return source
        if source.op == SPREAD and not source.known and _are_units(step, source.params[1]):
            first, stride = source.params
            return self._shift(source.args[0], space, step * (first - start), step * stride)
        if source.op == "iota" and (step == 1 or not source.type.row):
            return self._line(space, start * _width(source), step, source.type.row)
        if source.op == "iota" or not self._is_cheap(source, _MOST_STEPS, in_order=step == 1):
            return view(self._graph, source, space, start, step)
        return self._each(source, space, start, step, VIEW)

    def _reshape(self, source: Node, space: Space, row: Row, start: int) -> Node:
        """A view in rows of another width, that begins at element ``start``, as low as it goes."""
        if source.op == VIEW and not source.known and source.params[1] == 1:
            base, first = source.args[0], source.params[0]
            first = start + first * (_width(base) if _has_one_width(source) else 1)
            if base.type.row != row:
                return self._reshape(base, space, row, first)
            if first % _width(base) == 0:
                return self._view(base, space, first // _width(base), 1)
        if self._is_cheap(source, _MOST_STEPS, in_order=True) and _is_of_elements(source):
            if source.op == "iota":
                return self._line(space, start, 1, row)
            args = [
                arg if arg.on_client else self._reshape(arg, space, row, start)
                for arg in source.args
            ]
            type = array_type(space, source.dtype, row)
            found = self._graph.make(source.op, tuple(args), type, source.params)
            self._note(found)
            return found
        type = array_type(space, source.dtype, row)
        return self._graph.make(VIEW, (source,), type, (start, 1))

    def _line(self, space: Space, start: int, step: int, row: Row = ()) -> Node:
        """``start + step * i`` at slot ``i``, or in rows at element ``i``."""
        type = array_type(space, _INT, row)
        node = self._graph.make("iota", (), type)
        for op, number, neutral in (("multiply", step, 1), ("add", start, 0)):
            if number != neutral:
                node = self._graph.make(op, (node, self._number(number)), type)
        self._note(node)
        return node

    def _number(self, number: int) -> Node:
        """A constant of its own: of graphs of one form those that users write differ."""
        found = self._numbers.get(number)
        if found is None:
            type = client_type(_INT)
            found = self._numbers[number] = self._graph.number(_INT.type(number), type)
            self._discoveries.origins[found] = Origin("const", (), type, (), found.value)
        return found

    # --- values that are assigned to slices ---------------------------------------------------

    def _spread(self, source: Node, space: Space, start: int, step: int) -> Node:
        """``spread``, as low as it goes."""
        if source.op == VIEW and not source.known and _has_one_width(source):
            first, stride = source.params
            base = source.args[0]
            if stride == step:
                return self._shift(base, space, start - first, 1)
            if _are_units(step, stride):
                return self._shift(base, space, start - step * stride * first, step * stride)
        if source.op == SPREAD and not source.known and _are_units(step, source.params[1]):
            first, stride = source.params
            return self._shift(source.args[0], space, start + step * first, step * stride)
        most = _MOST_SPREAD if 2 * source.type.space.length >= space.length else _MOST_STEPS
        if source.op == "iota" and step == 1:
            return self._line(space, -start * _width(source), 1, source.type.row)
        if source.op == "iota" or not self._is_cheap(source, most):
            return spread(self._graph, source, space, start, step)
        return self._each(source, space, start, step, SPREAD)

    def _shift(self, base: Node, space: Space, by: int, step: int) -> Node:
        """Slot ``by + step * i`` reads slot ``i`` of ``base``, where there is one."""
        if (by, step) == (0, 1) and base.type.space == space:
            return base
        return spread(self._graph, base, space, by, step)

    # --- both ---------------------------------------------------------------------------------

    def _each(self, source: Node, space: Space, start: int, step: int, kind: str) -> Node:
        """The operation of ``source`` on its arguments, each read so."""
        key = id(source), space, start, step, kind
        found = self._made.get(key)
        if found is None:
            move = self._view if kind == VIEW else self._spread
            args = [arg if arg.on_client else move(arg, space, start, step) for arg in source.args]
            type = array_type(space, source.dtype, source.type.row)
            found = self._graph.make(source.op, tuple(args), type, source.params)
            self._note(found)
            self._made[key] = found
        return found


def _are_units(*steps: int) -> bool:
    """Whether all are 1 or -1: then no slot is left out."""
    return all(abs(step) == 1 for step in steps)


def _width(node: Node) -> int:
    """Elements of a row."""
    return prod(node.type.row)


def _is_of_elements(node: Node) -> bool:
    """Whether each element is computed from one of each argument, and of numbers."""
    return node.op in ops.TABLE and all(
        arg.is_scalar or (not arg.on_client and arg.type.row == node.type.row) for arg in node.args
    )


def _has_one_width(node: Node) -> bool:
    return node.type.row == node.args[0].type.row


def view_sources(order: Sequence[Node]) -> dict[int, str]:
    """By id, the arrays that must be stored since they are read at other slots, and why."""
    found: dict[int, str] = {}
    for node in order:
        if node.op == MOVEMENT and not node.known:
            found |= {id(arg): _MOVED for arg in node.args if not arg.known and not arg.on_client}
        if node.op in MOVES and not node.known:
            for number, arg in enumerate(node.args):
                if not arg.known:
                    is_index = node.op == GATHER and number
                    found[id(arg)] = "servers take indices from it" if is_index else _READ
    return found


_MOVED = "its elements change place"
_READ = "read at other slots, and too much to be computed again for that"
