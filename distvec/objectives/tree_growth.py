"""Grow trees by histograms: the rounds of boosting.

Trees grow level by level: one question brings the histograms of all nodes of a level. Of two
siblings the one with fewer rows is asked for, and the other is the difference to the parent. T.
Chen, C. Guestrin, XGBoost: a scalable tree boosting system, 2016: gains, leaves, and the side of
missing values. G. Ke et al., LightGBM, 2017: histograms and siblings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from distvec.losses.boosting import (
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
    Boosting,
    RowSample,
    sample_rows,
)
from distvec.losses.rows import Floats, Rows
from distvec.losses.trees import (
    ABSOLUTE,
    FEATURE,
    LEFT,
    LOGISTIC,
    NODE_COLUMNS,
    OUTPUT,
    RIGHT,
    ROWS,
    SCALE,
    SLOT,
    SQUARED,
    VALUE,
    WEIGHT,
    Nodes,
)
from distvec.objectives.tree_bins import bins_for, gather_sample
from distvec.objectives.tree_splits import Counts, Growth, Splitter

_UNITS = 29
"""Slopes and curvatures are integers below about 2 to this power."""
_LOSS_BITS = 28
_LEAST_RANGE = 2.0**-900
"""Smaller slopes count as this one, so that no unit is beyond float64."""
_RARE = 1e-15
"""The share of a class without rows."""

Ask = Callable[[Nodes, Nodes, int], Counts]
"""Asks for ``(rows, 3)`` sums, by the trees so far and a question about this round."""


class Ensemble(NamedTuple):
    """Grown trees, and the losses before each round: of the rows, and of those held out."""

    nodes: Nodes
    losses: list[float]
    held_out: list[float]


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
