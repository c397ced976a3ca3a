"""Counting: how often each of the numbers 0, 1, ... is there, or what weights go with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.array.handle import Home, check_session
from distvec.array.moving.core import move
from distvec.array.moving.extremes import extremes
from distvec.array.moving.scatter import scattered
from distvec.array.operators import Arithmetic
from ps_backend.program.counts import COUNT
from ps_backend.program.types import client_type

MOST_KEPT = 1 << 14
"""So many counts are kept by the client; more stay on the servers."""


def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """How often each number is in ``x``, integers of 0 or more; or the sum of its weights.

    As long as the greatest number asks for: an implicit evaluation of one message, the first time
    that a stored ``x`` is counted. Up to 16,384 counts are kept by the client: two messages to each
    server, lazily. More make an array on the servers: each 1, or weight, goes to who holds the
    place, in the order of ``x``, so with NumPy's bits; two messages, and 16 bytes for each weight
    that changes servers. (Of few numbers weights are added block by block: same bits on any number
    of servers, but the last ones may not be NumPy's.)
    """
    session = session_of(x, weights, "bincount")
    numbers = _numbers(session, x)
    weight = None if weights is None else _weights(session, weights, numbers)
    least = int(minlength)
    if least < 0:
        raise ValueError("'minlength' must not be negative")
    length = max(least, _length(numbers))
    if numbers.size == 0:
        return session.array(np.zeros(length, np.int64))  # with weights, too
    kind = np.dtype(np.int64 if weight is None else np.float64)
    if 0 < length <= MOST_KEPT:
        arrays = [numbers] if weight is None else [numbers, weight]
        return move(COUNT, arrays, (), [client_type(kind, (length,))])[0]
    zeros: Any = session.namespace.zeros(length, dtype=kind)
    return scattered(zeros, "add", numbers, np.int64(1) if weight is None else weight)


def _numbers(session: Home, x: Any) -> Any:
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


def _weights(session: Home, weights: Any, numbers: Arithmetic) -> Any:
    found = as_vector(session, weights)
    if np.ndim(weights) != 1 or len(found) != len(numbers):
        raise ValueError("The weights and list don't have the same length.")
    return found.astype(np.float64)


def _length(numbers: Any) -> int:
    """One more than the greatest number."""
    if numbers.size == 0:
        return 0
    least, greatest = extremes(numbers, "bincount()")
    if least < 0 or greatest > np.iinfo(np.int64).max:  # as what NumPy counts, that is negative
        raise ValueError("'list' argument must have no negative elements")
    return int(greatest) + 1


def session_of(first: Any, second: Any, name: str) -> Any:
    """The session of those of both that are ours."""
    ours = [one for one in (first, second) if isinstance(one, Arithmetic)]
    if not ours:
        raise TypeError(f"{name}: needs an array on the servers; use numpy.{name} for others")
    for one in ours:
        check_session(ours[0].session, one, name)
    return ours[0].session


def as_vector(session: Home, x: Any) -> Any:
    """All elements of ``x``, on the servers, one after the other."""
    found = x.made() if isinstance(x, Arithmetic) else session.array(x)
    if found.ndim != 1:
        found = reshape(found, (found.size,))
    return session.array(found) if found.node.on_client else found


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.bincount: bincount}
