"""Reverse mode: the gradient of a lazy number, as nodes of the same graph.

Adjoints go from the number back through what it was computed from, in the reverse of a topological
order; those of an argument are added in that order, so the bits are always the same, as the terms
stand in the formula. A number that
an adjoint is multiplied by is kept apart until the end: rules are linear, and so ``0.5 * x**2``
comes back as x, and sums as linear combinations.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from distvec.array.core.operators import Arithmetic
from distvec.autodiff.logarithms import LOGARITHMS, Terms
from distvec.autodiff.rules import rule_of
from distvec.autodiff.steps import Adjoint, One, Step, in_dtype, shrunk
from distvec.graph.node import Node, depending


class Scaled(NamedTuple):
    """An adjoint: a number times an array, or, of all elements alike, a number."""

    factor: float
    array: Arithmetic | None = None

    @property
    def value(self) -> Adjoint:
        """The product."""
        if self.array is None or self.factor == 0.0:
            return self.factor
        if abs(self.factor) == 1.0:
            return self.array if self.factor > 0 else -self.array
        return self.factor * self.array

    def plus(self, other: Scaled) -> Scaled:
        """The sum."""
        mine, its = self.array, other.array
        if mine is None and its is None:
            return Scaled(self.factor + other.factor)
        if mine is not None and its is not None and abs(self.factor) == abs(other.factor):
            return Scaled(self.factor, mine + its if self.factor == other.factor else mine - its)
        if other.factor == -1.0 and its is not None:
            return Scaled(1.0, self.value - its)
        if self.factor == -1.0 and mine is not None:
            return Scaled(1.0, other.value - mine)
        return Scaled(1.0, self.value + other.value)


def gradients(value: Arithmetic, variables: Sequence[Node]) -> list[Any]:
    """Of the rank-0 array ``value`` with respect to ``variables``; lazy.

    Of their shapes and dtypes. What servers reduce, as ``T.T @ u``, stays with the client, as it
    would by hand.
    """
    with np.errstate(all="ignore"):  # of numbers that are known here
        found = _adjoints(value, variables)
        return [_like(value, node, _sum(found.get(id(node), [])).value) for node in variables]


def _like(value: Arithmetic, node: Node, adjoint: Adjoint) -> Any:
    if isinstance(adjoint, Arithmetic) and adjoint.shape == node.type.shape:
        return adjoint
    return Step(value, node, adjoint).whole()


def _sum(terms: Sequence[Scaled]) -> Scaled:
    """Of what came last first: of the first term of a formula."""
    return reduce(Scaled.plus, reversed(terms)) if terms else Scaled(0.0)


def _adjoints(value: Arithmetic, variables: Sequence[Node]) -> dict[int, list[Scaled]]:
    """By id of the node, in parts: of the variables that ``value`` depends on."""
    active = [node for node in depending([value.node], variables) if node.dtype.kind == "f"]
    among = {id(node) for node in active}
    ends = {id(node) for node in variables}
    still = value.session.graph.still
    found = {id(value.node): [Scaled(1.0)]}
    for node in reversed(active):
        if id(node) in ends or id(node) not in found:
            continue
        factor, array = _sum(found.pop(id(node)))
        if node in still:
            continue
        adjoint: Adjoint = array
        if array is None:  # it stands in the place of the array: c / x is one operation
            factor, adjoint = 1.0, One(1) if factor == 1.0 else factor
        step = Step(value, node, adjoint)
        for arg, back in _of_logarithm(step, among, ends) or _of_arguments(step, among):
            found.setdefault(id(arg), []).append(_scale(factor, in_dtype(back, arg)))
    return found


def _of_arguments(step: Step, among: Container[int]) -> Iterator[tuple[Node, Adjoint]]:
    """What goes back to each argument."""
    rule = rule_of(step.node)
    for number, arg in enumerate(step.node.args):
        back = rule(step, number) if id(arg) in among else None
        if back is not None:
            yield arg, back


def _of_logarithm(
    step: Step, among: Container[int], ends: Container[int]
) -> list[tuple[Node, Adjoint]] | None:
    """What goes back from a logarithm to what its argument was computed from, past what may be
    infinite; None of all others."""
    if step.node.op not in LOGARITHMS:
        return None
    still = step.like.session.graph.still

    def parts(node: Node) -> tuple[str, Sequence[Node]] | None:
        return None if id(node) in ends or node in still else (node.op, node.args)

    terms = Terms(parts, step.of, lambda node: id(node) in among)
    pairs = terms.of_logarithm(step.node.op, step.node.args[0], step.adjoint)
    return pairs and [(node, shrunk(step, back, node)) for node, back in pairs]


def _scale(factor: float, adjoint: Adjoint) -> Scaled:
    """``factor`` times an adjoint, of which known numbers and signs join the factor."""
    while isinstance(adjoint, Arithmetic):
        split = _split(adjoint.node)
        if split is None:
            return Scaled(factor, adjoint)
        number, node = split
        factor, adjoint = factor * number, adjoint.like(node)
    return Scaled(factor * float(adjoint))


def _split(node: Node) -> tuple[float, Node] | None:
    """A number and what it multiplies, if ``node`` is their product."""
    if node.op == "negative":
        return -1.0, node.args[0]
    if node.op != "multiply":
        return None
    for one, other in (node.args, node.args[::-1]):
        known = one.op == "const" and one.is_scalar and math.isfinite(one.value)
        if known and other.type.shape == node.type.shape and other.on_client == node.on_client:
            return float(one.value), other
    return None
