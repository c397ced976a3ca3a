"""Random vectors whose bits depend on seed and index alone, not on the number of servers."""

from __future__ import annotations

import math
import operator
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.creation import length_of, reshape, shape_of, type_of
from distvec.array.dist_array import DistArray
from distvec.array.handle import Home, refuse_window
from distvec.array.items import get_item
from distvec.array.operators import Arithmetic
from ps_backend.program import philox

_NEAR_ONE = 1e-8
"""So far from 1 may probabilities sum up: what NumPy allows."""


class Random:
    """Counter-based generators (Philox4x32-10 on the global index). All lazy: drawn in the pass
    that uses them, and again with the same values in any other.
    """

    def __init__(self, session: Home) -> None:
        self._session = session

    def uniform(
        self, size: Any, *, low: float = 0.0, high: float = 1.0, seed: int | None = None
    ) -> DistArray:
        """``size`` float64 numbers uniform in ``[low, high)``, from 53 random bits each."""
        unit: DistArray = self._unit(size, key_of(seed, 0))
        return unit if (low, high) == (0.0, 1.0) else low + (high - low) * unit

    def normal(
        self, size: Any, *, loc: float = 0.0, scale: float = 1.0, seed: int | None = None
    ) -> DistArray:
        """``size`` normal float64 numbers. Source: Box and Muller (1958), the cosine branch."""
        seed = secrets.randbits(62) if seed is None else seed
        radius = np.sqrt(-2.0 * np.log(1.0 - self._unit(size, key_of(seed, 1))))
        angle = 2.0 * math.pi * self._unit(size, key_of(seed, 2))
        result: DistArray = loc + scale * (radius * np.cos(angle))
        return result

    def integers(
        self, low: int, high: int | None = None, size: Any = None, *, seed: int | None = None
    ) -> DistArray:
        """``size`` int64 numbers uniform in ``[low, high)``, or in ``[0, low)``."""
        if size is None:
            raise TypeError("integers: say how many: integers(low, high, size)")
        if high is None:
            low, high = 0, low
        low, high = operator.index(low), operator.index(high)
        if not low < high <= low + 2**53:
            raise ValueError(f"integers: need low < high <= low + 2**53, got {low} and {high}")
        steps: Any = np.floor(self._unit(size, key_of(seed, 3)) * float(high - low))
        result: DistArray = low + steps.astype(np.int64)
        return result

    def permutation(self, x: Any, axis: int = 0, *, seed: int | None = None) -> Any:
        """``0, ..., x - 1`` in random order, or of an array the elements (rows; columns).

        Of a number a lazy vector of int64 that is computed where it is used: see
        ``ps_backend.program.permutation``. Rows of an array are gathered by it: two messages.
        """
        if isinstance(x, Arithmetic):
            return permuted_array(x, axis, partial(self.permutation, seed=seed))
        if np.ndim(x):
            given = self._session.array(x)
            return permuted_array(given, axis, partial(self.permutation, seed=seed))
        length = length_of(x, "permutation")
        return self._places(length, length, key_of(seed, 4))

    def shuffle(self, x: Any, axis: int = 0, *, seed: int | None = None) -> None:
        """Let ``x`` have its elements (rows; columns) in random order, as of ``permutation``."""
        refuse_window(x)
        with x.turn:
            x.assign(self.permutation(x, axis, seed=seed), "shuffle")

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, *,
        seed: int | None = None,
    ) -> Any:  # fmt: skip
        """``size`` of the numbers below ``a``, or of the elements (rows) of an array; lazy.

        Without replacement the first ones of a permutation. ``p``: how likely each is, in all 1, on
        the client or on the servers. It is looked at before, in one message; places are looked up
        in its running sums, or without replacement a random key of each is sorted.
        """
        if size is None:
            raise TypeError("choice: say how many: choice(a, size)")
        array: Any = a if isinstance(a, Arithmetic) or not np.ndim(a) else self._session.array(a)
        count = len(array) if isinstance(array, Arithmetic) else length_of(array, "choice")
        shape = shape_of(size)
        wanted = math.prod(shape)
        if wanted and not count:
            raise ValueError("a must be a positive integer unless no samples are taken")
        if not replace and wanted > count:
            raise ValueError("Cannot take a larger sample than population when replace is False")
        if p is not None:
            places = self._weighted(count, wanted, replace, p, seed)
        elif replace and wanted:
            places = self.integers(0, count, wanted, seed=seed)
        else:
            places = self._places(wanted, count, key_of(seed, 4))
        if not isinstance(array, Arithmetic):
            return reshape(places, shape)
        found = get_item(array, places)
        return found if len(shape) == 1 else reshape(found, (*shape, *array.shape[1:]))

    def _weighted(self, count: int, wanted: int, replace: bool, p: Any, seed: int | None) -> Any:
        """Places drawn with the probabilities ``p``: where numbers in [0, 1) are in their sums.

        Without replacement those that happen first, each at a rate of ``p``. Source: Efraimidis and
        Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97
        (2006).
        """
        weights: Any = p if isinstance(p, Arithmetic) else self._session.array(p, np.float64)
        if weights.shape != (count,):
            raise ValueError("a and p must have same size")
        least, total = np.min(weights), np.sum(weights)
        likely: Any = np.count_nonzero(weights)
        self._session.evaluate(least, total, likely)
        if not float(least) >= 0:
            raise ValueError("Probabilities are not non-negative")
        if not abs(float(total) - 1.0) <= _NEAR_ONE:
            raise ValueError("Probabilities do not sum to 1. See Notes section of docstring.")
        if replace:
            sums: Any = np.cumsum(weights)
            highest = np.nextafter(sums[-1], 0.0)  # the product may round up to the sum
            drawn = np.minimum(self._unit(wanted, key_of(seed, 3)) * sums[-1], highest)
            return np.searchsorted(sums, drawn, side="right")
        if int(likely) < wanted:
            raise ValueError("Fewer non-zero entries in p than size")
        times: Any = -np.log(1.0 - self._unit(count, key_of(seed, 5))) / weights
        order: Any = np.argsort(times)
        return order[:wanted]

    def _places(self, count: int, length: int, key: int) -> DistArray:
        """The first ``count`` indices of a permutation of ``length``."""
        graph, type = self._session.graph, type_of((count,), np.dtype(np.int64))
        names = (graph.constant(key, type.dtype), graph.constant(length, type.dtype))
        node = graph.make("permuted", (*names, graph.make("iota", (), type)), type)
        return DistArray(self._session, node)

    def _unit(self, size: Any, key: int) -> Any:
        graph = self._session.graph
        shape = shape_of(size)
        if not shape:
            raise TypeError("size must be an integer, got (): draw one and take .item()")
        index = self._index(shape)
        arguments = (graph.constant(key, index.dtype), index.node)
        node = graph.make("uniform", arguments, index.type.of(np.dtype(np.float64)))
        return DistArray(self._session, node)

    def _index(self, shape: tuple[int, ...]) -> DistArray:
        """The number of each element: of a table, these are counted, not the rows."""
        type = type_of(shape, np.dtype(np.int64))
        return DistArray(self._session, self._session.graph.make("iota", (), type))


def permuted_array(x: Any, axis: int, permutation: Callable[[int], Any]) -> Any:
    """The elements, rows or columns of ``x`` in the order that ``permutation`` of a length says."""
    along = normalize_axis_index(axis, x.ndim)
    order = permutation(x.shape[along])
    if along or x.node.on_client:
        return np.take(x, order.numpy(), axis=along)
    return x[order]


def uniform_at(counters: Any, seed: int = 0) -> Any:
    """A number uniform in ``[0, 1)`` for each of ``counters``: integers, on servers or in NumPy.

    It depends on ``seed`` and the counter alone (Philox4x32-10), 53 random bits each; lazy of lazy
    arrays. ``TypeError`` for counters that are no integers.
    """
    if not isinstance(counters, Arithmetic):
        given = np.asarray(counters)
        if given.dtype.kind not in "iu":
            raise TypeError(f"counters must be integers, got {given.dtype}")
        return philox.uniform(key_of(seed, 6), given)
    if counters.dtype.kind not in "iu":
        raise TypeError(f"counters must be integers, got {counters.dtype}")
    index = counters.astype(np.int64)
    graph, type = index.session.graph, index.node.type.of(np.dtype(np.float64))
    with index.session.holders.lock:
        name = graph.constant(key_of(seed, 6), index.dtype)
        return index.like(graph.make("uniform", (name, index.node), type))


def key_of(seed: Any, stream: int) -> int:
    """A 63-bit key: the seed's sequence, told apart by stream. ``TypeError`` unless an integer."""
    if seed is not None and not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be an integer or None, got {seed!r}")
    entropy = None if seed is None else [int(seed) & (2**64 - 1), stream]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
