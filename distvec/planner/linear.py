"""Inner products of linear combinations, expanded into inner products of their terms.

``s @ (g - a*y)`` cannot start before the scalar ``a`` is known; ``s @ g - a * (s @ y)`` can. In the
two-loop recursion of L-BFGS each coefficient waits for the one before, so 2m inner products take 2m
messages one after the other; expanded, all of them come from inner products of the stored vectors,
which leave in one message, and those known from earlier ones do not leave at all.

Forms are of float64 and of float32 vectors; coefficients and inner products are float64. The forms
of float32 vectors leave out their roundings, so they serve only products that are rounded to
float32 themselves. What mixes both dtypes widens float32 vectors, which is exact.

An expansion is made only where it lets a scalar be known earlier, and only into vectors that need
one answer at most (``_LATEST``). It may cancel: the evaluation compares it with the sum of its
terms' magnitudes and falls back on the product itself.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSet, Sequence, Set
from functools import cached_property
from typing import Any

import numpy as np

from distvec.graph.host_eval import value_of
from distvec.graph.node import Buffer, Graph, Node
from distvec.planner.forms import Discoveries, Origin
from distvec.planner.pending import Walk, inner_of, product_of
from ps_backend.program.types import NodeType, client_type

_LATEST = 1
"""Vectors of a higher level are no part of an expansion: each step of a loop would be expanded into
the vectors of all steps before it, at the square of their number in products, and cancel."""
_MOST_TERMS = 400
_MOST_VECTORS = 128

_FLOAT, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)
_NUMBER = client_type(_FLOAT)

Form = dict[int, tuple[Node, Node | None]]
"""A linear combination: by the id of a vector, that vector and its coefficient (None is 1)."""


def inner_of_terms(arguments: Sequence[Any]) -> tuple[Any, Any]:
    """``sum(c * d)`` over ``(c1, d1, c2, d2, ...)``, and the sum of the terms' magnitudes."""
    total = magnitude = np.float64(0.0)
    for coefficient, product in zip(arguments[::2], arguments[1::2], strict=True):
        term = coefficient * product
        total += term
        magnitude += abs(term)
    return total, magnitude


def cancels(total: Any, magnitude: Any, limit: float) -> bool:
    """Whether so many digits were lost, or so much overflowed, that it must be done directly."""
    return magnitude != 0.0 and not (magnitude <= limit * abs(total) and np.isfinite(magnitude))


class InnerProductExpansion:
    """One walk over a graph, from its leaves up; what depends on expanded products is rebuilt."""

    def __init__(
        self,
        graph: Graph,
        walk: Walk,
        stored: Set[int],
        exact: MutableSet[Node],
        limit: float,
        discoveries: Discoveries,
    ) -> None:
        """``stored``: ids of vectors that will be stored; ``exact``: products not to expand.

        What is made is added to ``walk``, what the result depends on to ``discoveries``.
        """
        self._graph, self._stored, self._exact, self._limit = graph, stored, exact, limit
        self._level, self._discoveries = walk.level, discoveries
        self._folded: dict[tuple[Any, ...], Node] = {}
        self._one, self._minus_one = self._constant(1.0), self._constant(-1.0)
        self._new: dict[int, Node] = {}
        self._order: Sequence[Node] = ()
        self._forms: dict[int, Form | None] = {}
        self.expanded = 0
        """How many inner products were expanded."""

    def run(self, order: Sequence[Node]) -> dict[int, Node]:
        """The node that replaces each node of ``order`` (arguments first), by its id."""
        self._order = order
        for node in order:
            new = node if node.known else self._rebuilt(node)
            self._new[id(node)] = new
            self._level(new)  # so ``walk`` has it
            if not new.on_client and new.dtype in (_FLOAT, _SINGLE):
                self._forms[id(new)] = self._form(node, new)
        return self._new

    def _rebuilt(self, node: Node) -> Node:
        args = tuple([self._new[id(arg)] for arg in node.args])
        factors = product_of(node, self._stored)
        if factors is not None and node.dtype == _FLOAT and node not in self._exact:
            expanded = self._expand(node, *[self._new[id(factor)] for factor in factors])
            if expanded is not None:
                self.expanded += 1
                return expanded
        if node.on_client and all(arg.on_client and arg.known for arg in args):
            return self._folding(node.op, args, node.type, node.params)
        if args == node.args:
            return node
        return self._make(node.op, args, node.type, node.params)

    # --- linear forms ---

    def _form(self, old: Node, node: Node) -> Form | None:
        """None if it contains a vector that is known too late to be of use."""
        level = self._level(node)
        if node.known or (id(old) in self._stored and level == 0):
            return _alone(node)
        combine = _LINEAR.get(node.op)
        if combine is not None and all(
            arg.on_client or self._forms.get(id(arg)) is not None for arg in node.args
        ):
            form = combine(self, *node.args)
            if form is not None and len(form) <= _MOST_VECTORS:
                return form
        return _alone(node) if level <= _LATEST else None

    def _sum(self, a: Node, b: Node) -> Form | None:
        return self._merge(a, b, lambda coefficient: coefficient)

    def _difference(self, a: Node, b: Node) -> Form | None:
        return self._merge(a, b, self._negate)

    def _merge(self, a: Node, b: Node, change: Callable[[Node | None], Node | None]) -> Form | None:
        if a.on_client or b.on_client or a.type.row != b.type.row:
            return None  # a vector plus a number is no linear combination of vectors
        form = dict(self._of(a))
        for key, (vector, coefficient) in self._of(b).items():
            changed = change(coefficient)
            if key in form:
                present = self._or_one(form[key][1])
                changed = self._scalar("add", present, self._or_one(changed))
            form[key] = (vector, changed)
        return form

    def _scale(self, a: Node, b: Node) -> Form | None:
        vector, factor = (a, b) if b.is_scalar else (b, a)
        if not factor.is_scalar or vector.on_client:
            return None
        factor = self._double(factor)
        return self._each(vector, lambda coefficient: self._product(coefficient, factor))

    def _divide(self, a: Node, b: Node) -> Form | None:
        if not b.is_scalar or a.on_client:
            return None
        divisor = self._double(b)
        return self._each(a, lambda c: self._scalar("divide", self._or_one(c), divisor))

    def _opposite(self, a: Node) -> Form:
        return self._each(a, self._negate)

    def _each(self, vector: Node, change: Callable[[Node | None], Node | None]) -> Form:
        form = self._of(vector)
        return {key: (one, change(coefficient)) for key, (one, coefficient) in form.items()}

    def _of(self, vector: Node) -> Form:
        form = self._forms[id(vector)]
        assert form is not None  # or ``_form`` would not have asked
        return form

    def _widen(self, a: Node) -> Form | None:
        """The float32 vector itself, not what it is made of: that would leave out its roundings."""
        return _alone(a) if a.dtype == _SINGLE else None

    # --- expansion of a product ---

    def _expand(self, node: Node, u: Node, v: Node) -> Node | None:
        """The product by terms, or None where that is no gain, too long, or loses digits."""
        depth = max(self._level(u), self._level(v))
        if depth == 0:
            return None
        first, second = self._form_within(node, u), self._form_within(node, v)
        if first is None or second is None or len(first) * len(second) > _MOST_TERMS:
            return None
        vectors = [vector for form in (first, second) for vector, _ in form.values()]
        if max(map(self._level, vectors)) >= min(depth, _LATEST + 1):
            return None
        arguments: list[Node] = []
        for a, a_coefficient in first.values():
            for b, b_coefficient in second.values():
                coefficient = self._product(a_coefficient, b_coefficient)
                arguments += (self._or_one(coefficient), self._inner(a, b))
        if all(argument.known for argument in arguments):
            self._discoveries.by_values = True
            total, magnitude = inner_of_terms([argument.value for argument in arguments])
            if cancels(total, magnitude, self._limit):
                self._exact.add(node)
                return None
            return self._graph.constant(total, _FLOAT)
        expanded = self._make("inner", tuple(arguments), _NUMBER)
        if self._level(expanded) > depth:
            return None
        expanded.direct = node
        return expanded

    def _form_within(self, product: Node, factor: Node) -> Form | None:
        """What ``factor`` is made of, as far as ``product`` may know: see the top of this file."""
        if factor.dtype == _SINGLE and id(product) in self._needed_exactly:
            return _alone(factor)
        return self._forms[id(factor)]

    @cached_property
    def _needed_exactly(self) -> set[int]:
        """Ids of the nodes that are needed as they are, not just rounded to float32.

        Norms of float32 vectors are rounded after the square root, which magnifies no error.
        """
        found = set(self._stored)
        for node in reversed(self._order):
            rounds = node.op == "cast" and node.dtype == _SINGLE
            if not rounds and (node.op != "sqrt" or id(node) in found):
                found.update(map(id, node.args))
        return found

    def _inner(self, a: Node, b: Node) -> Node:
        first, second = a.value, b.value
        if isinstance(first, Buffer) and isinstance(second, Buffer):
            known = first.products.get(second.id)
            self._discoveries.asked[a, b] = known is not None
            if known is not None:
                return self._discovered(known, Origin("", (), _NUMBER, (a, b)))
        return inner_of(self._graph, a, b)

    # --- scalars ---

    def _or_one(self, coefficient: Node | None) -> Node:
        return self._one if coefficient is None else coefficient

    def _product(self, a: Node | None, b: Node | None) -> Node | None:
        if a is None or b is None:
            return b if a is None else a
        return self._scalar("multiply", a, b)

    def _double(self, scalar: Node) -> Node:
        return scalar if scalar.dtype == _FLOAT else self._scalar("cast", scalar)

    def _negate(self, coefficient: Node | None) -> Node:
        if coefficient is None:
            return self._minus_one
        return self._scalar("negative", coefficient)

    def _scalar(self, op: str, *args: Node) -> Node:
        if [arg for arg in args if arg.value is None]:
            return self._make(op, args, _NUMBER)
        return self._folding(op, args, _NUMBER)

    def _folding(
        self, op: str, args: Sequence[Node], type: NodeType, params: tuple[Any, ...] = ()
    ) -> Node:
        """An operation on values that the client knows.

        Not looked up by its value: that others have the same by chance must not change the plan.
        """
        key = op, params, id(type), *map(id, args)
        found = self._folded.get(key)
        if found is None:
            value = value_of(op, params, type, [arg.value for arg in args])
            found = self._discovered(value, Origin(op, params, type, tuple(args)))
            self._folded[key] = found
        return found

    def _constant(self, value: float) -> Node:
        number = np.float64(value)
        return self._discovered(number, Origin("const", (), _NUMBER, (), number))

    def _discovered(self, value: Any, origin: Origin) -> Node:
        node = self._graph.number(value, origin.type)
        self._discoveries.origins[node] = origin
        return node

    def _make(
        self, op: str, args: tuple[Node, ...], type: NodeType, params: tuple[Any, ...] = ()
    ) -> Node:
        node = self._graph.make(op, args, type, params)
        self._level(node)  # so ``walk`` has it
        return node


def _alone(vector: Node) -> Form:
    """The form of a vector that is not seen through."""
    return {id(vector): (vector, None)}


_LINEAR: dict[str, Callable[..., Form | None]] = {
    "add": InnerProductExpansion._sum,
    "subtract": InnerProductExpansion._difference,
    "multiply": InnerProductExpansion._scale,
    "divide": InnerProductExpansion._divide,
    "negative": InnerProductExpansion._opposite,
    "cast": InnerProductExpansion._widen,
}
