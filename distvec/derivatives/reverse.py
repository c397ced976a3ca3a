"""Reverse mode: the gradient of a lazy number, as nodes of the same graph.

Adjoints go from the number back through what it was computed from, in the reverse of a topological
order; those of an argument are added in that order, so the bits are always the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distvec.array.operators import Arithmetic
from distvec.derivatives.rules import rule_of
from distvec.derivatives.steps import Adjoint, One, Step, in_dtype
from distvec.graph.expr import Node
from distvec.graph.variables import depending


def gradients(value: Arithmetic, variables: Sequence[Node]) -> list[Any]:
    """Of the rank-0 array ``value`` with respect to ``variables``; lazy.

    Of their shapes and dtypes. What servers reduce, as ``T.T @ u``, stays with the client, as it
    would by hand.
    """
    with np.errstate(all="ignore"):  # of numbers that are known here
        found = _adjoints(value, variables)
    return [_like(value, node, found.get(id(node), 0.0)) for node in variables]


def _like(value: Arithmetic, node: Node, adjoint: Adjoint) -> Any:
    if isinstance(adjoint, Arithmetic) and adjoint.shape == node.type.shape:
        return adjoint
    return Step(value, node, adjoint).whole()


def _adjoints(value: Arithmetic, variables: Sequence[Node]) -> dict[int, Adjoint]:
    """By id of the node: of the variables that ``value`` depends on."""
    active = [node for node in depending([value.node], variables) if node.dtype.kind == "f"]
    among = {id(node) for node in active}
    ends = {id(node) for node in variables}
    still = value.session.graph.still
    found: dict[int, Adjoint] = {id(value.node): One(1)}
    for node in reversed(active):
        adjoint = found.get(id(node)) if id(node) in ends else found.pop(id(node), None)
        if adjoint is None or id(node) in ends or node in still:
            continue
        step, rule = Step(value, node, adjoint), rule_of(node)
        for number, arg in enumerate(node.args):
            if id(arg) not in among:
                continue
            back = rule(step, number)
            if back is not None:
                back, before = in_dtype(back, arg), found.get(id(arg))
                found[id(arg)] = back if before is None else before + back
    return found
