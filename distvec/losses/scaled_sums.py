"""Sums of numbers too large or too small for a float: each is ``values * exp(heights)``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distvec.losses.rows import Floats

_SPAN = 200.0
"""So much higher than its sum's a term's height may be: exp(200) is 7e86."""


class Scaled(NamedTuple):
    """Numbers ``values[0] * exp(heights)``, none negative, and what goes along with them: rows
    ``values[1:]`` at the same heights. Where ``values[0]`` is 0 all is, whatever the height."""

    values: Floats
    """``(1 or more, n)``"""
    heights: Floats
    """``(n,)``"""

    def at(self, places: slice | np.ndarray) -> Scaled:
        """Some of them."""
        return Scaled(self.values[:, places], self.heights[places])

    def reversed(self) -> Scaled:
        """Last first."""
        return self.at(slice(None, None, -1))


ZERO = Scaled(np.zeros((1, 1)), np.full(1, -np.inf))


def total(terms: Scaled) -> Scaled:
    """Their sum, ``n = 1``."""
    heights = np.where(terms.values[0] == 0.0, -np.inf, terms.heights)
    height = heights.max(initial=-np.inf)
    if height == -np.inf:
        return Scaled(np.zeros((len(terms.values), 1)), ZERO.heights)
    return Scaled((terms.values @ np.exp(heights - height))[:, None], np.array([height]))


def running(terms: Scaled, before: Scaled = ZERO, *, backwards: bool = False) -> Scaled:
    """The sums of ``before`` and the terms up to each; ``backwards`` of those from each on.

    Nothing overflows, whatever the range, and what underflows would not have been seen.
    """
    if not terms.heights.size:
        return terms
    low, high = terms.heights.min(), terms.heights.max()
    if before.values[0, 0] > 0.0:
        low, high = min(low, before.heights[0]), max(high, before.heights[0])
    if low >= high - _SPAN and high != -np.inf:
        return _running_at(high, terms, before, backwards=backwards)
    if backwards:
        return _running_from(terms.reversed(), before).reversed()
    return _running_from(terms, before)


def _running_at(height: float, terms: Scaled, before: Scaled, *, backwards: bool) -> Scaled:
    """All relative to one height. Two passes."""
    scales = terms.heights - height
    np.exp(scales, out=scales)
    sums = terms.values * scales
    line = sums[:, ::-1] if backwards else sums
    line[:, :1] += before.values * np.exp(before.heights - height)
    np.cumsum(line, axis=1, out=line)
    return Scaled(sums, np.full(scales.size, height))


def _running_from(terms: Scaled, before: Scaled) -> Scaled:
    """Relative to the highest so far, and anew where one is higher by 200: some 10 us for each new
    height."""
    masked = Scaled(terms.values, np.where(terms.values[0] == 0.0, -np.inf, terms.heights))
    tops = np.maximum(np.maximum.accumulate(masked.heights), before.heights)
    sums = Scaled(np.zeros(terms.values.shape), tops.copy())
    start = 0
    while start < tops.size:
        stop = int(np.searchsorted(tops, tops[start] + _SPAN, side="right"))
        part = slice(start, stop)
        if tops[start] != -np.inf:
            found = _running_at(tops[start], masked.at(part), before, backwards=False)
            sums.values[:, part], sums.heights[part] = found
        before, start = sums.at(slice(stop - 1, stop)), stop
    return sums
