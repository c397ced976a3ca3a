"""The best splits of nodes by their histograms, and the limits of trees.

T. Chen, C. Guestrin, XGBoost: a scalable tree boosting system, 2016: gains, and the side of missing
values. W. Fisher, On grouping for maximum homogeneity, 1958: sets of categories.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from distvec.losses.boosting import (
    EDGES,
    FIRST,
    FIRST_EDGE,
    IS_CATEGORICAL,
    ZERO_BIN,
)
from distvec.losses.rows import Floats
from distvec.losses.trees import (
    BITS,
    CATEGORICAL,
    FEATURE,
    GAIN,
    MISSING_LEFT,
    SLOT,
    THRESHOLD,
    Nodes,
)

_NOISE = 1e-9
"""Relative; smaller gains come from rounding."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Growth:
    """What trees are fitted to, and their limits."""

    kind: str
    outputs: int = 1
    rounds: int = 20
    step_size: float = 0.1
    first_step: float = 1.0
    """Of the first round."""
    leaf_factor: float = 1.0
    """Of the values of leaves, beside Newton's."""
    max_depth: int = 5
    max_leaves: int = 0
    """0: no limit."""
    min_rows: int = 1
    min_weight: float = 0.0
    """The least sum of curvatures of a node."""
    min_share: float = 0.0
    """The least share of a node in the sum of curvatures."""
    min_gain: float = 0.0
    """Per unit of curvature, as the variance in MLlib."""
    l2: float = 0.0
    row_share: float = 1.0
    features_per_node: int = 0
    """Drawn for each node; 0: all."""
    seed: int = 0
    patience: Callable[[list[float]], int] | None = None
    """Of the losses of the rows held out: how many trees to keep, or 0 to go on."""
    memory: int = 1 << 28
    """Bytes of histograms that one question asks for."""


class Split(NamedTuple):
    """The best split of a node, and the sums of the rows that go left."""

    gain: float
    feature: int
    bin: int
    """The last one that goes left."""
    missing_left: bool
    left: Counts
    categories: tuple[int, ...] = ()
    """Those that go left, of a categorical feature."""


class Splitter:
    """Finds splits in the histograms of nodes."""

    def __init__(self, bins: Nodes, growth: Growth) -> None:
        self._bins, self._growth = bins, growth
        known = bins[:-1]
        self.size = int(bins[-1, FIRST])
        firsts, sizes = known[:, FIRST].astype(int), known[:, EDGES].astype(int) + 2
        self._firsts, self._missing = firsts, firsts + sizes - 1
        self._zeros = firsts + known[:, ZERO_BIN].astype(int)
        self._feature_of = np.repeat(np.arange(len(known)), sizes)
        self._is_categorical = known[:, IS_CATEGORICAL] != 0.0
        self._is_numeric = ~self._is_categorical[self._feature_of]
        self._is_numeric[self._missing] = False
        self._categorical = np.flatnonzero(self._is_categorical)

    def complete(self, sums: Counts) -> None:
        """Add rows that are in no bin of a feature to the bin of zero. Changes ``sums``."""
        if self._firsts.size:
            known = np.add.reduceat(sums[:, :-1], self._firsts, axis=1)
            sums[:, self._zeros] += sums[:, -1:] - known

    def find(
        self, sums: Counts, units: Floats, chosen: npt.NDArray[np.bool_] | None, least: Floats
    ) -> list[Split | None]:
        """The best split of each node; None if there is none.

        ``sums`` are ``(nodes, bins + 1, 3)``, ``units`` the numbers that one of each stands for.
        ``chosen`` tells which features each node may use.
        """
        total, left, place = sums[:, -1:], np.cumsum(sums[:, :-1], axis=1), self._feature_of
        before = np.concatenate([np.zeros_like(total), left], axis=1)[:, self._firsts]
        left = left - before[:, place]
        both = np.stack([left, left + sums[:, self._missing][:, place]], axis=2)
        allowed = self._is_numeric if chosen is None else self._is_numeric & chosen[:, place]
        gains = self._gains(both, total[:, :, None], units, least[:, None, None])
        gains = np.where(allowed[..., None], gains, -np.inf).reshape(len(sums), -1)
        found: list[Split | None] = []
        for node, one in enumerate(gains):
            best: Split | None = None
            if one.size and (k := int(one.argmax())) >= 0 and one[k] > -np.inf:
                where, side = divmod(k, 2)
                feature = int(place[where])
                last = where - int(self._firsts[feature])
                best = Split(float(one[k]), feature, last, bool(side), both[node, where, side])
            for number in self._categorical:
                if chosen is None or chosen[node, number]:
                    other = self._categories(int(number), sums[node], units, float(least[node]))
                    if other and (best is None or other.gain > best.gain):
                        best = other
            found.append(best)
        return found

    def _gains(self, left: Counts, total: Counts, units: Floats, least: Floats | float) -> Floats:
        growth = self._growth
        right = total - left
        fits = (left[..., 2] >= growth.min_rows) & (right[..., 2] >= growth.min_rows)
        fits &= (left[..., 2] > 0) & (right[..., 2] > 0)
        heavy = np.minimum(left[..., 1], right[..., 1]) * units[1]
        fits &= heavy >= np.maximum(least, growth.min_weight)
        scores = [self._score(one, units) for one in (left, right, total)]
        gains = scores[0] + scores[1] - scores[2]
        fits &= gains > _NOISE * (scores[0] + scores[1])
        fits &= gains >= growth.min_gain * total[..., 1] * units[1]
        found: Floats = np.where(fits, gains, -np.inf)
        return found

    def _score(self, sums: Counts, units: Floats) -> Floats:
        slopes, weights = sums[..., 0] * units[0], sums[..., 1] * units[1] + self._growth.l2
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where(weights > 0.0, slopes * slopes / weights, 0.0)
        return found

    def _categories(self, feature: int, sums: Counts, units: Floats, least: float) -> Split | None:
        """The best set of categories: the first ones in the order of their means (Fisher, 1958)."""
        own = sums[self._firsts[feature] : self._missing[feature]]
        used = np.flatnonzero(own[:, 2] > 0)
        slopes, weights = own[used, 0] * units[0], own[used, 1] * units[1] + self._growth.l2
        order = used[np.argsort(slopes / np.maximum(weights, 1e-300), kind="stable")]
        left = np.cumsum(own[order], axis=0)
        gains = self._gains(left, sums[-1:], units, least)
        if not gains.size or not (best := float(gains.max())) > -np.inf:
            return None
        k = int(gains.argmax())
        chosen = tuple(sorted(order[: k + 1].tolist()))
        return Split(best, feature, 0, False, left[k], chosen)

    def write(self, node: Floats, split: Split) -> None:
        """Write a split into its node."""
        node[[FEATURE, GAIN, MISSING_LEFT]] = split.feature, split.gain, split.missing_left
        if self._is_categorical[split.feature]:
            node[CATEGORICAL] = 1.0
            for category in split.categories:
                node[SLOT + 1 + category // BITS] += 2.0 ** (category % BITS)
        else:
            edges = int(self._bins[split.feature, EDGES])
            place = FIRST_EDGE + split.bin
            node[THRESHOLD] = self._bins[split.feature, place] if split.bin < edges else np.inf
