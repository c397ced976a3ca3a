"""``bincount``: how often each number occurs, or the sum of its weights.

The length of the result depends on the greatest number. Bounds of an expression of integers follow
from those of the arrays that it is made of, which are found once: so most counts are lazy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distvec.array import reductions
from distvec.array.collectives.core import (
    as_vector,
    common_session,
    least_and_greatest,
    scatter,
)
from distvec.array.core.handle import SessionBase, host_array, kept_value, make
from distvec.array.core.operators import Arithmetic
from distvec.graph.node import GATHER, VIEW, Node, topological
from ps_backend.program.types import client_type

MOST_KEPT = 1 << 14
"""So many counts are kept by the client; more stay on the servers."""


def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """Count how often each number occurs in ``x``, integers of 0 or more; or sum its weights.

    The result is one longer than the greatest number. Finding it is an implicit evaluation of one
    request, the first time that a stored ``x`` is counted; with ``minlength``, only if the numbers
    are not known to be below it. Up to 16,384 counts are stored on the client: lazy, one request
    per server, and all counts of arrays of one length share one pass. More counts make an array on
    the servers: each 1, or weight, goes to the server that holds the place, in the order of ``x``,
    so the result is bitwise equal to NumPy's; two requests, and 16 bytes for each weight that
    changes servers. (Few counts of weights are summed block by block: bitwise identical for any
    number of servers, but the last bits can differ from NumPy's.)
    """
    session = common_session(x, weights, "bincount")
    values = kept_value(x)
    if values is not None and values.dtype.kind in "iub" and values.ndim == 1:
        weight = kept_value(weights)
        if weight is not None or weights is None:
            counts = np.bincount(values.astype(np.int64, copy=False), weight, minlength)
            like = x if isinstance(x, Arithmetic) else weights
            return host_array(like, counts)
    numbers = _numbers(session, x)
    weight = None if weights is None else weights_of(numbers, weights)
    least = int(minlength)
    if least < 0:
        raise ValueError("'minlength' must not be negative")
    length = least if _are_below(numbers, least) else max(least, _length(numbers))
    if numbers.size == 0:
        return session._put(np.zeros(length, np.int64))  # with weights, too
    return counts_below(length, numbers, weight)


def counts_below(length: int, numbers: Any, weight: Any) -> Any:
    """``bincount`` of a vector on the servers, whose elements are ``0 .. length-1``; lazy."""
    kind = np.dtype(np.int64 if weight is None else np.float64)
    if 0 < length <= MOST_KEPT:
        name, arrays = "bincount", [numbers]
        if weight is not None:
            name, arrays = "weighted_bincount", [numbers, weight]
        return make(numbers, name, arrays, client_type(kind, (length,)), (None, length))
    zeros: Any = numbers.session.namespace.zeros(length, dtype=kind)
    return scatter(zeros, "add", numbers, np.int64(1) if weight is None else weight)


def _numbers(session: SessionBase, x: Any) -> Any:
    given = x if isinstance(x, Arithmetic) else np.asarray(x)
    if given.ndim != 1:
        depth = "object of too small depth for" if given.ndim == 0 else "object too deep for"
        raise ValueError(f"{depth} desired array")
    is_list = not isinstance(x, np.ndarray | Arithmetic)  # an empty one is of floats
    if given.dtype.kind not in "iub" and (given.size or not is_list):
        raise TypeError(
            f"Cannot cast array data from {given.dtype!r} to dtype('int64') according to the rule "
            f"'safe'; write x.astype('int64')"
        )
    found = as_vector(session, given)
    return found.astype(np.uint8) if found.dtype == np.bool_ else found


def weights_of(numbers: Arithmetic, weights: Any) -> Any:
    """One for each of ``numbers``, on the servers, in float64."""
    found = as_vector(numbers.session, weights)
    if np.ndim(weights) != 1 or len(found) != len(numbers):
        raise ValueError("The weights and list don't have the same length.")
    return found.astype(np.float64)


def _length(numbers: Any) -> int:
    """One more than the greatest number."""
    if numbers.size == 0:
        return 0
    least, greatest = least_and_greatest(numbers, "bincount()")
    if least < 0 or greatest > np.iinfo(np.int64).max:  # negative in NumPy's int64
        raise ValueError("'list' argument must have no negative elements")
    return int(greatest) + 1


# --- bounds ---------------------------------------------------------------------------------------

Bounds = tuple[int, int]
"""The least and the greatest value that the elements of an expression may have."""
Rule = Callable[[Node, Sequence[Bounds]], Bounds]


def _are_below(numbers: Arithmetic, end: int) -> bool:
    """Whether ``numbers`` are known to be ``0 .. end-1``, from the arrays that they are made of.

    The least and greatest elements of these are found together, the first time that they decide.
    """
    session, root = numbers.session, numbers.node
    if end <= 0 or root.known:
        return False
    known = session.bounds
    if _follow(_steps(root, known), known, end, known):
        return True
    steps = _steps(root, {})  # as they are now: what is evaluated forgets its arguments
    leaves = [one.node for one in steps if one.rule is None and one.node.dtype.kind in "iu"]
    leaves = [node for node in leaves if not node.on_client]
    if not leaves or not all(node.known and prod(node.type.shape) for node in leaves):
        return False
    missing = [numbers.like(node) for node in leaves if node not in session.extremes]
    if missing:
        ends = [(reductions.min(one), reductions.max(one)) for one in missing]
        first, *others = [each for pair in ends for each in pair]
        session.evaluate_implicitly(first, "bincount()", *others)
        for one, (least, greatest) in zip(missing, ends, strict=True):
            session.extremes[one.node] = least.node.value, greatest.node.value
    return _follow(steps, {node: _of_stored(session, node) for node in leaves}, end, known)


class _Step(NamedTuple):
    """A node, and how its bounds follow from those of its arguments; None of leaves."""

    node: Node
    rule: Rule | None
    args: tuple[Node, ...]


def _steps(root: Node, known: Container[Node]) -> list[_Step]:
    """Arguments first, from those that are ``known`` on."""

    def rule_of(node: Node) -> Rule | None:
        is_leaf = node.known or node.dtype.kind not in "iu" or node in known
        return None if is_leaf else _RULES.get(node.op)

    order = topological([root], lambda node: rule_of(node) is None)
    return [_Step(node, rule_of(node), node.args) for node in order]


def _of_stored(session: SessionBase, node: Node) -> Bounds:
    least, greatest = map(int, session.extremes[node])
    low, high = session.bounds.get(node, (least, greatest))
    return max(least, low), min(greatest, high)


def _follow(
    steps: Sequence[_Step],
    known: Mapping[Node, Bounds],
    end: int,
    kept: MutableMapping[Node, Bounds],
) -> bool:
    """Whether the last one is between 0 and ``end``; the bounds that say so are ``kept``."""
    found: dict[Node, Bounds] = {}
    for node, rule, args in steps:
        least, greatest = low, high = _of_dtype(node.dtype)
        if node in known:
            low, high = known[node]
        elif rule is not None:
            low, high = rule(node, [found[arg] for arg in args])
        elif node.on_client and node.known and node.dtype.kind in "iub" and np.size(node.value):
            low, high = int(np.min(node.value)), int(np.max(node.value))
        found[node] = (low, high) if least <= low and high <= greatest else (least, greatest)
    low, high = found[steps[-1].node]
    if not 0 <= low <= high < end:
        return False
    kept.update({node: pair for node, pair in found.items() if node.dtype.kind in "iu"})
    return True


_ANY = -(1 << 1100), 1 << 1100
"""Beyond all floats, which are not followed."""


def _of_dtype(dtype: np.dtype[Any]) -> Bounds:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min), int(limits.max)
    return (0, 1) if dtype.kind == "b" else _ANY


def _at_corners(function: Callable[[int, int], int]) -> Rule:
    """Of a function that has its least and greatest values where both arguments have theirs."""

    def rule(node: Node, given: Sequence[Bounds]) -> Bounds:
        values = [function(x, y) for x, y in product(*given)]
        return min(values), max(values)

    return rule


def _same(node: Node, given: Sequence[Bounds]) -> Bounds:
    return given[0]


def _either(node: Node, given: Sequence[Bounds]) -> Bounds:
    (low, high), (other_low, other_high) = given[-2:]
    return min(low, other_low), max(high, other_high)


def _index(node: Node, given: Sequence[Bounds]) -> Bounds:
    return 0, max(node.type.space.length - 1, 0)


def _remainder(node: Node, given: Sequence[Bounds]) -> Bounds:
    low, high = given[1]
    return (0, high - 1) if low > 0 else _ANY


def _quotient(node: Node, given: Sequence[Bounds]) -> Bounds:
    return _at_corners(operator.floordiv)(node, given) if given[1][0] > 0 else _ANY


_RULES: dict[str, Rule] = {
    "add": _at_corners(operator.add),
    "subtract": _at_corners(operator.sub),
    "multiply": _at_corners(operator.mul),
    "maximum": _at_corners(max),
    "minimum": _at_corners(min),
    "int_remainder": _remainder,
    "int_floor_divide": _quotient,
    "where": _either,
    "iota": _index,
    **dict.fromkeys(("copy", "cast", "positive", "fill", VIEW, GATHER), _same),
    **dict.fromkeys(("column", "columns", "take_columns"), _same),
}
"""By op the bounds of a node, from those of its arguments."""
