"""Random vectors whose bits depend on seed and index alone, not on the number of servers."""

from __future__ import annotations

import math
import operator
import secrets
from typing import Any

import numpy as np

from distvec.array.creation import shape_of, type_of
from distvec.array.dist_array import DistArray
from distvec.array.handle import Home


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
        unit: DistArray = self._unit(size, _key(seed, 0))
        return unit if (low, high) == (0.0, 1.0) else low + (high - low) * unit

    def normal(
        self, size: Any, *, loc: float = 0.0, scale: float = 1.0, seed: int | None = None
    ) -> DistArray:
        """``size`` normal float64 numbers. Source: Box and Muller (1958), the cosine branch."""
        seed = secrets.randbits(62) if seed is None else seed
        radius = np.sqrt(-2.0 * np.log(1.0 - self._unit(size, _key(seed, 1))))
        angle = 2.0 * math.pi * self._unit(size, _key(seed, 2))
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
        steps: Any = np.floor(self._unit(size, _key(seed, 3)) * float(high - low))
        result: DistArray = low + steps.astype(np.int64)
        return result

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


def _key(seed: Any, stream: int) -> int:
    """A 63-bit key: the seed's sequence, told apart by stream. ``TypeError`` unless an integer."""
    if seed is not None and not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be an integer or None, got {seed!r}")
    entropy = None if seed is None else [int(seed) & (2**64 - 1), stream]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))
