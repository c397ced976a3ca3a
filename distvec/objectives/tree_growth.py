"""Grow trees by histograms: bins of features, the best splits, and rounds of boosting.

Trees grow level by level: one question brings the histograms of all nodes of a level. Of two
siblings the one with fewer rows is asked for, and the other is the difference to the parent. T.
Chen, C. Guestrin, XGBoost: a scalable tree boosting system, 2016: gains, leaves, and the side of
missing values. G. Ke et al., LightGBM, 2017: histograms and siblings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from distvec.losses.boosting import (
    EDGES,
    FEATURE_NUMBER,
    FIRST,
    FIRST_EDGE,
    IS_CATEGORICAL,
    IS_NEW,
    IS_START,
    LEVEL,
    LOSS_UNITS,
    ROUND,
    SEED,
    SHARE,
    SLOPE_UNITS,
    SLOTS,
    TOTAL_ROWS,
    WEIGHT_UNITS,
    ZERO_BIN,
    Boosting,
    RowSample,
    bins_of,
    sample_rows,
)
from distvec.losses.rows import Floats, Ints, Rows
from distvec.losses.trees import (
    ABSOLUTE,
    BITS,
    CATEGORICAL,
    FEATURE,
    GAIN,
    LEFT,
    LOGISTIC,
    MISSING_LEFT,
    NODE_COLUMNS,
    OUTPUT,
    RIGHT,
    ROWS,
    SCALE,
    SLOT,
    SQUARED,
    THRESHOLD,
    VALUE,
    WEIGHT,
    Nodes,
)

_UNITS = 29
"""Slopes and curvatures are integers below about 2 to this power."""
_LOSS_BITS = 28
_LEAST_RANGE = 2.0**-900
"""Smaller slopes count as this one, so that no unit is beyond float64."""
_SAMPLE = 10_000
"""Rows that bins come from, at least."""
_RARE = 1e-15
"""The share of a class without rows."""
_NOISE = 1e-9
"""Relative; smaller gains come from rounding."""

Counts = npt.NDArray[np.int64]
Ask = Callable[[Nodes, Nodes, int], Counts]
"""Asks for ``(rows, 3)`` sums, by the trees so far and a question about this round."""


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


class Ensemble(NamedTuple):
    """Grown trees, and the losses before each round: of the rows, and of those held out."""

    nodes: Nodes
    losses: list[float]
    held_out: list[float]


# --- bins -----------------------------------------------------------------------------------------


def gather_sample(
    draw: Callable[[float], Sequence[RowSample]], rows: int, max_bins: int
) -> RowSample:
    """Distinct rows, some 10,000 or the square of ``max_bins`` if there are so many.

    ``draw`` draws them of each partition with a probability. It is raised until there are enough,
    which takes several turns where many rows are equal.
    """
    wanted = max(_SAMPLE, max_bins * max_bins)
    share = 1.5 * wanted / rows
    while True:
        found = _merge_samples(draw(share))
        if share >= 1.0 or len(found.hashes) >= wanted // 2:
            return found
        share *= 8.0


def _merge_samples(samples: Sequence[RowSample]) -> RowSample:
    """The same of all rows; ``columns`` are those of any. ValueError for bad categories."""
    for one in samples:
        if one.bad:
            raise ValueError(one.bad)
    columns = np.unique(np.concatenate([one.columns for one in samples]))
    parts = []
    for one in samples:
        found = sp.coo_array(one.rows)
        places = np.searchsorted(columns, one.columns)[found.col]
        shape = (one.rows.shape[0], columns.size)
        parts.append(sp.csr_array((found.data, (found.row, places)), shape=shape))
    hashes = np.concatenate([one.hashes for one in samples])
    counts = np.concatenate([one.counts for one in samples])
    distinct, firsts, groups = np.unique(hashes, return_index=True, return_inverse=True)
    return RowSample(
        distinct,
        np.bincount(groups, counts, distinct.size).astype(np.int64),
        columns,
        sp.csr_array(sp.vstack(parts))[firsts],
        max(one.greatest_weight for one in samples),
        min(one.least_label for one in samples),
        max(one.greatest_label for one in samples),
        np.max([one.categories for one in samples], axis=0),
    )


def bins_for(sample: RowSample, features: int, max_bins: int, categorical: Sequence[int]) -> Nodes:
    """The table of bins, with a last row that has the number of all bins."""
    known = dict(zip(categorical, sample.categories.tolist(), strict=True))
    by_column = sp.csc_array(sample.rows)
    total, edges = int(sample.counts.sum()), [np.zeros(0)] * features
    for column, feature in enumerate(sample.columns.tolist()):
        part = slice(by_column.indptr[column], by_column.indptr[column + 1])
        values, counts = by_column.data[part], sample.counts[by_column.indices[part]]
        values = np.append(values, 0.0)
        counts = np.append(counts, total - counts.sum())
        chosen = (counts > 0) & ~np.isnan(values)
        edges[feature] = _edges(values[chosen], counts[chosen], max_bins)
    for feature, most in known.items():
        edges[feature] = np.arange(most) + 0.5
    width = max((one.size for one in edges), default=0)
    table = np.full((features + 1, FIRST_EDGE + width), np.inf)
    for feature, one in enumerate(edges):
        row = table[feature]
        row[[FEATURE_NUMBER, EDGES, IS_CATEGORICAL]] = feature, one.size, feature in known
        row[FIRST_EDGE : FIRST_EDGE + one.size] = one
        row[ZERO_BIN] = bins_of(np.zeros(1), row)[0]
    sizes = table[:features, EDGES] + 2  # one more than edges, and one for missing values
    table[features, [FEATURE_NUMBER, EDGES, IS_CATEGORICAL, ZERO_BIN]] = 0.0
    table[:, FIRST] = np.append(0.0, np.cumsum(sizes))
    return table


def _edges(values: Floats, counts: Ints, max_bins: int) -> Floats:
    """Numbers between distinct values, such that about as many rows are between any two."""
    distinct, groups = np.unique(values, return_inverse=True)
    if distinct.size < 2:
        return np.zeros(0)
    before = np.arange(distinct.size - 1)
    if distinct.size > max_bins:
        sums = np.cumsum(np.bincount(groups, counts))
        wanted = sums[-1] * np.arange(1, max_bins) / max_bins
        before = np.unique(np.searchsorted(sums, wanted, side="left"))
        before = before[before < distinct.size - 1]
    low, high = distinct[before], distinct[before + 1]
    middle = 0.5 * low + 0.5 * high
    return np.where(middle < high, middle, low)


# --- splits ---------------------------------------------------------------------------------------


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


# --- rounds ---------------------------------------------------------------------------------------


def boost(
    growth: Growth,
    sample: RowSample,
    bins: Nodes,
    ask: Ask,
    show: Callable[..., None] = lambda iterations, **numbers: None,
) -> Ensemble:
    """Grow trees. Asks once for each level of a round, once at the start, and once at the end.

    The first tree has the weight 1 and contains the start, as in MLlib.
    """
    return _Boost(growth, sample, bins, ask).run(show)


def boost_rows(
    parts: Sequence[Rows],
    growth: Growth,
    *,
    max_bins: int,
    categorical: Sequence[int] = (),
    show: Callable[..., None] = lambda iterations, **numbers: None,
) -> Ensemble:
    """Grow trees over rows in memory, a thread for each part; parts do not change the trees."""
    features = np.arange(parts[0].columns)

    def draw(share: float) -> list[RowSample]:
        return [sample_rows(one, features, share, categorical) for one in parts]

    sample = gather_sample(draw, sum(map(len, parts)), max_bins)
    bins, loss = (
        bins_for(sample, features.size, max_bins, categorical),
        Boosting(growth.kind, growth.outputs),
    )
    states = [loss.begin(one, lambda _: bins) for one in parts]
    with ThreadPoolExecutor(len(parts)) as threads:

        def ask(trees: Nodes, question: Nodes, rows: int) -> Counts:
            array = (bins, trees, question).__getitem__
            found = threads.map(lambda state: loss.advance(state, array), states)
            return np.asarray(sum(found))

        return boost(growth, sample, bins, ask, show)


class _Boost:
    """The state of a run."""

    def __init__(self, growth: Growth, sample: RowSample, bins: Nodes, ask: Ask) -> None:
        self.growth, self.sample, self.ask = growth, sample, ask
        self.splitter = Splitter(bins, growth)
        self.features = len(bins) - 1
        self.trees: Nodes = np.zeros((0, NODE_COLUMNS))
        self.ends: list[int] = []
        """By round, the number of nodes so far."""
        self.losses: list[float] = []
        self.held_out: list[float] = []

    def run(self, show: Callable[..., None]) -> Ensemble:
        growth = self.growth
        start = self._start()
        self.trees = np.array([_leaf(k, 1.0, value) for k, value in enumerate(start)])
        nodes, keep = self.trees, 0
        for number in range(growth.rounds):
            sums = self._ask_roots(number, nodes)
            if growth.patience and number > 1 and (keep := growth.patience(self.held_out[1:])):
                break
            nodes = self._grow(number, sums)
            if number == 0:
                self.trees = self.trees[:0]
                roots = range(growth.outputs)
                for node, output in _outputs(nodes, roots):
                    nodes[node, VALUE] = start[output] + growth.first_step * nodes[node, VALUE]
                nodes[: growth.outputs, SCALE] = 1.0
            self._append(nodes)
            held = {"held_out": self.held_out[-1]} if self.held_out else {}
            show(number + 1, loss=self.losses[-1], **held)
        else:
            self._ask_roots(growth.rounds, nodes)
            if growth.patience:
                keep = growth.patience(self.held_out[1:])
        kept = self.trees[: self.ends[keep - 1]] if keep else self.trees
        return Ensemble(kept, self.losses, self.held_out)

    # --- questions ---

    def _start(self) -> Floats:
        """The margins without features: logarithms of odds or shares, or the mean."""
        growth, sample = self.growth, self.sample
        if not sample.least_label <= sample.greatest_label:
            raise ValueError("no row with a positive weight is left to fit trees to")
        is_number = growth.kind in (SQUARED, ABSOLUTE)
        far = max(abs(sample.least_label), abs(sample.greatest_label)) if is_number else 1.0
        self._set_units(far)
        question = self._head(0, 0, 0)
        question[0, IS_START] = 1.0
        sums = self.ask(self.trees, question, growth.outputs)
        means = sums[:, 0] * self.units[0] / (sums[:, 1] * self.units[1])
        if is_number:
            mean = float(np.clip(means[0], sample.least_label, sample.greatest_label))
            far = max(sample.greatest_label - mean, mean - sample.least_label)
            self._set_units(2.0 * far or 1.0)
            return np.array([mean])
        shares = np.clip(means, _RARE, 1.0 - _RARE)
        found: Floats = np.log(shares)
        return found - np.log1p(-shares) if growth.kind == LOGISTIC else found

    def _set_units(self, far: float) -> None:
        """For slopes up to ``far`` times the greatest weight: powers of two, which are exact."""
        weight = self.sample.greatest_weight
        per_row = weight * (far * far if self.growth.kind == SQUARED else far)
        self._per_unit = [
            2.0 ** (bits - math.ceil(math.log2(max(most, _LEAST_RANGE))))
            for bits, most in ((_UNITS, weight * far), (_UNITS, weight), (_LOSS_BITS, per_row))
        ]
        self.units = np.array([1.0 / self._per_unit[0], 1.0 / self._per_unit[1], 1.0])

    def _head(self, number: int, level: int, slots: int) -> Floats:
        head, growth = np.zeros((1, NODE_COLUMNS)), self.growth
        head[0, [ROUND, LEVEL, SLOTS]] = number, level, slots
        head[0, IS_NEW] = level == 0 and number < 2  # the first trees take the place of the start
        head[0, [SLOPE_UNITS, WEIGHT_UNITS, LOSS_UNITS]] = self._per_unit
        head[0, [SHARE, SEED]] = growth.row_share, growth.seed % 2**31
        return head

    def _ask_roots(self, number: int, nodes: Nodes) -> Counts:
        """The histograms of the roots of a round, after the last one; learns the loss before it."""
        slots = self.growth.outputs
        question = np.vstack([self._head(number, 0, slots), nodes])
        sums = self.ask(self.trees, question, slots * (self.splitter.size + 1) + TOTAL_ROWS)
        per_loss = self._per_unit[1] / self._per_unit[2]
        means = [row[0] * per_loss / row[1] if row[1] else None for row in sums[-TOTAL_ROWS:]]
        for known, mean in zip((self.losses, self.held_out), means, strict=True):
            known += [] if mean is None else [float(mean)]
        return self._histograms(sums[:-TOTAL_ROWS])

    def _histograms(self, sums: Counts) -> Counts:
        found = sums.reshape(-1, self.splitter.size + 1, 3)
        self.splitter.complete(found)
        return found

    def _ask_nodes(self, number: int, level: int, nodes: Nodes, wanted: Sequence[int]) -> Counts:
        """The histograms of some nodes, in as few questions as memory allows."""
        size = self.splitter.size + 1
        most = max(1, self.growth.memory // (24 * size))
        found = []
        for first in range(0, len(wanted), most):
            some = wanted[first : first + most]
            nodes[:, SLOT] = -1.0
            nodes[some, SLOT] = np.arange(len(some))
            question = np.vstack([self._head(number, level, len(some)), nodes])
            found.append(self.ask(self.trees, question, len(some) * size + TOTAL_ROWS))
        nodes[:, SLOT] = -1.0
        return np.concatenate([self._histograms(one[:-TOTAL_ROWS]) for one in found])

    # --- a round ---

    def _grow(self, number: int, sums: Counts) -> Nodes:
        """The trees of a round, with the values of all nodes."""
        growth = self.growth
        nodes = [_leaf(output, growth.step_size, 0.0) for output in range(growth.outputs)]
        for one, total in zip(nodes, sums[:, -1], strict=True):
            self._describe(one, total)
        least = [growth.min_share * one[WEIGHT] for one in nodes]
        frontier = {node: one for node, one in enumerate(sums) if self._may_split(one[-1])}
        output_of, leaves = list(range(growth.outputs)), [1] * growth.outputs
        for level in range(growth.max_depth):
            if not frontier:
                break
            limits = np.array([least[output_of[node]] for node in frontier])
            chosen = self._draw_features(number, level, len(frontier))
            found = self.splitter.find(
                np.stack(list(frontier.values())), self.units, chosen, limits
            )
            splits = {node: one for node, one in zip(frontier, found, strict=True) if one}
            for node in sorted(splits, key=lambda node: (-splits[node].gain, node)):
                output = output_of[node]
                leaves[output] += 1
                if growth.max_leaves and leaves[output] > growth.max_leaves:
                    del splits[node]
            pairs = {}
            for node, split in sorted(splits.items()):
                self.splitter.write(nodes[node], split)
                total = frontier[node][-1]
                children = len(nodes), len(nodes) + 1
                nodes[node][[LEFT, RIGHT]] = children
                for sides in (split.left, total - split.left):
                    nodes.append(_leaf(-1, 0.0, 0.0))
                    self._describe(nodes[-1], sides)
                    output_of.append(output_of[node])
                if self._may_split(split.left) or self._may_split(total - split.left):
                    is_right = split.left[2] > total[2] - split.left[2]
                    pairs[node] = children[::-1] if is_right else children
            before, frontier = frontier, {}
            if level + 1 == growth.max_depth or not pairs:
                break
            table = np.array(nodes)
            smaller = [small for small, _ in pairs.values()]
            asked = self._ask_nodes(number, level + 1, table, smaller)
            for (node, (small, large)), one in zip(pairs.items(), asked, strict=True):
                both = {small: one, large: before[node] - one}
                frontier |= {k: own for k, own in both.items() if self._may_split(own[-1])}
            frontier = dict(sorted(frontier.items()))
        return np.array(nodes)

    def _describe(self, node: Floats, total: Counts) -> None:
        weight = float(total[1] * self.units[1])
        value = -float(total[0] * self.units[0]) * self.growth.leaf_factor
        if self.growth.kind == ABSOLUTE:  # a sign has no size: steps are of that of the residuals
            value *= self.losses[-1]
        divisor = weight + self.growth.l2
        node[[VALUE, ROWS, WEIGHT]] = value / divisor if divisor > 0.0 else 0.0, total[2], weight

    def _may_split(self, total: Counts) -> bool:
        return bool(total[2] >= 2 * max(1, self.growth.min_rows))

    def _draw_features(self, number: int, level: int, count: int) -> npt.NDArray[np.bool_] | None:
        """Which features each of some nodes may use; None: all."""
        most = self.growth.features_per_node
        if not 0 < most < self.features:
            return None
        random = np.random.default_rng((self.growth.seed % 2**63, number, level))
        ranks = random.random((count, self.features)).argsort(axis=1)
        chosen = np.zeros(ranks.shape, bool)
        np.put_along_axis(chosen, ranks[:, :most], True, axis=1)
        return chosen

    def _append(self, nodes: Nodes) -> None:
        """Add the trees of a round."""
        moved = nodes.copy()
        for column in (LEFT, RIGHT):
            moved[moved[:, column] >= 0.0, column] += len(self.trees)
        self.trees = np.vstack([self.trees, moved])
        self.ends.append(len(self.trees))


def _leaf(output: int, scale: float, value: float) -> Floats:
    node = np.zeros(NODE_COLUMNS)
    node[[OUTPUT, SCALE, FEATURE, LEFT, RIGHT, VALUE, SLOT]] = (
        output, scale, -1.0, -1.0, -1.0, value, -1.0,
    )  # fmt: skip
    return node


def _outputs(nodes: Nodes, roots: Sequence[int]) -> list[tuple[int, int]]:
    """Each node with the number of its root."""
    found = [(root, root) for root in roots]
    for node, root in found:
        if nodes[node, LEFT] >= 0.0:
            found += [(int(child), root) for child in nodes[node, [LEFT, RIGHT]]]
    return found
