"""Gradient boosting as tasks see it: rows in bins, quantized slopes, and histograms of nodes.

Slopes and curvatures become integers of some 30 bits, so histograms are sums of integers: they have
the same bits for any number of partitions (Shi, Ke, Li, Liu: Quantized training of gradient
boosting decision trees, 2022, with fewer bits).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from distvec.losses.loss import Arrays, Parameter, StatefulLoss, Sums
from distvec.losses.row_hashes import GOLDEN, Keys, mix, row_hashes, uniform
from distvec.losses.rows import Floats, Ints, Matrix, Rows
from distvec.losses.trees import (
    ABSOLUTE,
    CATEGORICAL,
    FEATURE,
    LEFT,
    LOGISTIC,
    MISSING_LEFT,
    NODE_COLUMNS,
    RIGHT,
    SCALE,
    SLOT,
    SOFTMAX,
    SQUARED,
    THRESHOLD,
    VALUE,
    Nodes,
    add_trees,
    places_of,
    sigmoid,
    softmax,
)

FEATURE_NUMBER, FIRST, EDGES, IS_CATEGORICAL, ZERO_BIN, FIRST_EDGE = range(6)
"""Columns of a table of bins, a row for each feature: its number, the place of its first bin in a
histogram, the number of its edges, and these. A bin more is for missing values."""

(
    ROUND,
    LEVEL,
    SLOTS,  # the number of histograms
    IS_START,  # asks for the sums of labels alone
    IS_NEW,  # margins are computed anew from all trees
    SLOPE_UNITS,
    WEIGHT_UNITS,
    LOSS_UNITS,
    SHARE,  # of the rows that a round uses
    SEED,
) = range(10)
"""Columns of the first row of a question."""

TOTAL_ROWS = 2
"""Rows behind the histograms: loss and weight of the rows, and of those held out."""

_MOST = 2**31 - 1
_MOST_LOSS = 2.0**40


@dataclass(frozen=True)
class Boosting(StatefulLoss):
    """Histograms of the nodes of growing trees.

    Parameters are the bins of the features, the trees of earlier rounds, and the question: the
    nodes of this round below a row of numbers. ``rows.events`` is 1 for rows held out.
    """

    kind: str
    outputs: int
    takes_events: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("bins", row=(FIRST_EDGE,)),
            Parameter("trees", rows=0, row=(NODE_COLUMNS,)),
            Parameter("question", rows=0, row=(NODE_COLUMNS,)),
        )

    def begin(self, rows: Rows, array: Callable[[int], npt.NDArray[Any]]) -> BinnedRows:
        return BinnedRows.of(rows, array(0))

    def advance(
        self, state: BinnedRows, array: Callable[[int], npt.NDArray[Any]]
    ) -> npt.NDArray[np.int64]:
        question = array(2)
        head, nodes = question[0], question[1:]
        if head[IS_START]:
            return state.label_sums(self, head)
        is_root = head[LEVEL] == 0.0
        number = int(head[ROUND])
        if head[IS_NEW] or state.round not in (number, number - is_root):
            state.restart(self, array(1))
        elif state.round != number:
            state.finish(nodes)
        if state.round != number:
            state.compute_slopes(self, head)
            state.round = number
        if not is_root:
            state.split(nodes)
        sums = np.zeros((int(head[SLOTS]) * (state.bins + 1) + TOTAL_ROWS, 3), np.int64)
        wanted = range(self.outputs) if is_root else np.flatnonzero(nodes[:, SLOT] >= 0.0)
        for node in wanted:
            slot = node if is_root else int(nodes[node, SLOT])
            place = slice(slot * (state.bins + 1), (slot + 1) * (state.bins + 1))
            state.add_histogram(int(node), sums[place])
        if is_root:
            sums[-TOTAL_ROWS:] = state.losses(self, head)
        return sums

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        raise NotImplementedError("trees are grown by GBTClassifier and GBTRegressor")


@dataclass
class BinnedRows:
    """The rows of a partition while trees grow."""

    rows: Rows
    columns: Ints
    """The features of its columns."""
    bins: int
    """Of all features."""
    firsts: Ints
    """By column the place of its first bin."""
    places: npt.NDArray[Any]
    """The bin of each element: of dense rows a table."""
    round: int | None = None
    margins: Floats = field(default_factory=lambda: np.zeros((1, 0)))
    slopes: list[npt.NDArray[np.int32]] = field(default_factory=list)
    """By output: slope, curvature and count of each row."""
    order: list[npt.NDArray[np.int32]] = field(default_factory=list)
    """By output the rows, those of a node together."""
    parts: dict[int, tuple[int, slice]] = field(default_factory=dict)
    """By node without children its output and where its rows are."""
    hashes: Keys | None = None

    @classmethod
    def of(cls, rows: Rows, table: npt.NDArray[Any]) -> BinnedRows:
        """Rows by a table of bins, which has a row for each of their columns, and a last one."""
        known, bins = table[:-1], int(table[-1, FIRST])
        firsts = known[:, FIRST].astype(np.int64)
        kind = np.uint8 if not len(known) or known[:, EDGES].max() + 2 <= 256 else np.uint16
        matrix = rows.matrix
        if isinstance(matrix, np.ndarray):
            places: npt.NDArray[Any] = np.empty(matrix.shape, kind)
            for column, one in enumerate(known):
                places[:, column] = bins_of(matrix[:, column], one)
        else:
            places = np.empty(matrix.nnz, kind)
            order = np.argsort(matrix.indices, kind="stable")
            ends = np.searchsorted(matrix.indices[order], np.arange(len(known) + 1))
            for column, one in enumerate(known):
                chosen = order[ends[column] : ends[column + 1]]
                places[chosen] = bins_of(matrix.data[chosen], one)
        return cls(rows, known[:, FEATURE_NUMBER].astype(np.int64), bins, firsts, places)

    def label_sums(self, loss: Boosting, head: Floats) -> npt.NDArray[np.int64]:
        """By output the weighted sum of labels, or of those of its class, and that of weights."""
        weights, labels = self._weights(), self.rows.labels
        found = np.zeros((loss.outputs, 3), np.int64)
        for output in range(loss.outputs):
            targets = labels == output if loss.kind == SOFTMAX else labels
            found[output, 0] = _rounded(weights * targets * head[SLOPE_UNITS]).sum(dtype=np.int64)
            found[output, 1] = _rounded(weights * head[WEIGHT_UNITS]).sum(dtype=np.int64)
        return found

    def _weights(self, *, held_out: bool = False) -> Floats:
        """The weights, 0 of rows held out; or those of these rows alone."""
        count, rows = len(self.rows), self.rows
        weights = np.ones(count) if rows.weights is None else np.asarray(rows.weights)
        held = np.zeros(count) if rows.events is None else rows.events
        return np.where(held == float(held_out), weights, 0.0)

    def restart(self, loss: Boosting, trees: Nodes) -> None:
        """Compute the margins from all trees."""
        self.round = None
        self.margins = add_trees(self.rows.matrix, self.columns, trees, loss.outputs)
        if self.rows.offsets is not None:
            self.margins += self.rows.offsets

    def finish(self, nodes: Nodes) -> None:
        """Split the last nodes of a round, and add its trees to the margins."""
        self.split(nodes)
        root_of = nodes[: len(self.order)]
        for node, (output, part) in self.parts.items():
            rows = self.order[output][part]
            self.margins[output, rows] += root_of[output, SCALE] * nodes[node, VALUE]

    def compute_slopes(self, loss: Boosting, head: Floats) -> None:
        """Begin a round: all rows are at the roots."""
        count, labels = len(self.rows), self.rows.labels
        weights = self._weights()
        is_used = weights > 0.0
        if head[SHARE] < 1.0:
            if self.hashes is None:
                self.hashes = row_hashes(self.rows.matrix, self.columns)
            number = (int(head[SEED]) * 2**20 + int(head[ROUND])) % 2**64
            salt = mix(np.array([number], np.uint64)) * GOLDEN
            is_used &= uniform(mix(self.hashes + salt)) < head[SHARE]
        weights = np.where(is_used, weights, 0.0)
        self.slopes, self.order, self.parts = [], [], {}
        for output, (slope, curvature) in enumerate(_derivatives(loss.kind, self.margins, labels)):
            table = np.empty((count, 3), np.int32)
            table[:, 0] = _rounded(weights * slope * head[SLOPE_UNITS])
            table[:, 1] = _rounded(weights * curvature * head[WEIGHT_UNITS])
            table[:, 2] = is_used
            self.slopes.append(table)
            self.order.append(np.arange(count, dtype=np.int32))
            self.parts[output] = output, slice(0, count)

    def split(self, nodes: Nodes) -> None:
        """Move the rows of all nodes that have children to these."""
        from distvec.losses import tree_loops as loops  # which imports numba

        columns = places_of(self.columns, nodes[:, FEATURE])
        parts, other = loops.elements(self.rows.matrix), np.empty(len(self.rows), np.int32)
        waiting = list(self.parts)
        while waiting:
            node = waiting.pop()
            if nodes[node, LEFT] < 0.0:
                continue
            output, part = self.parts.pop(node)
            left = loops.split_rows(
                self.order[output][part], other, *parts, columns[node], nodes[node, THRESHOLD],
                nodes[node, MISSING_LEFT] != 0.0, nodes[node, CATEGORICAL] != 0.0,
                nodes[node, SLOT + 1 :],
            )  # fmt: skip
            middle = part.start + left
            children = slice(part.start, middle), slice(middle, part.stop)
            for child, rows in zip(nodes[node, [LEFT, RIGHT]].astype(int), children, strict=True):
                self.parts[child] = output, rows
                waiting.append(child)

    def add_histogram(self, node: int, sums: npt.NDArray[np.int64]) -> None:
        """Add the rows of a node."""
        from distvec.losses import tree_loops as loops  # which imports numba

        output, part = self.parts[node]
        rows, slopes = self.order[output][part], self.slopes[output]
        matrix = self.rows.matrix
        if isinstance(matrix, np.ndarray):
            loops.add_dense(rows, self.places, self.firsts, slopes, sums)
        else:
            ends = matrix.indices, matrix.indptr
            loops.add_sparse(rows, self.places, *ends, self.firsts, slopes, sums)

    def losses(self, loss: Boosting, head: Floats) -> npt.NDArray[np.int64]:
        """Loss and weight of the rows, and of those held out."""
        found = np.zeros((TOTAL_ROWS, 3), np.int64)
        values = row_losses(loss.kind, self.margins, self.rows.labels) * head[LOSS_UNITS]
        for row in range(TOTAL_ROWS):
            weights = self._weights(held_out=bool(row))
            scaled = np.rint(np.minimum(values * weights, _MOST_LOSS))
            found[row, 0] = scaled.astype(np.int64).sum()
            found[row, 1] = _rounded(weights * head[WEIGHT_UNITS]).sum(dtype=np.int64)
        return found


def bins_of(values: npt.NDArray[Any], known: Floats) -> Ints:
    """The bin of each value of a feature, by its row of the table of bins."""
    edges = int(known[EDGES])
    missing = np.isnan(values)
    if known[IS_CATEGORICAL]:
        found = np.where(missing, 0.0, np.clip(values, 0.0, edges)).astype(np.int64)
    else:
        found = np.searchsorted(known[FIRST_EDGE : FIRST_EDGE + edges], values, side="left")
    found[missing] = edges + 1
    return found


def _rounded(numbers: Floats) -> npt.NDArray[np.int32]:
    return np.rint(np.clip(numbers, -_MOST, _MOST)).astype(np.int32)


def _derivatives(kind: str, margins: Floats, labels: Floats) -> Any:
    """By output slopes and curvatures."""
    if kind == LOGISTIC:
        p = sigmoid(margins[0])
        yield p - labels, p * (1.0 - p)
    elif kind == SOFTMAX:
        for number, p in enumerate(softmax(margins)):
            yield p - (labels == number), p * (1.0 - p)
    elif kind == SQUARED:
        yield margins[0] - labels, np.ones(labels.size)
    elif kind == ABSOLUTE:
        yield np.sign(margins[0] - labels), np.ones(labels.size)


def row_losses(kind: str, margins: Floats, labels: Floats) -> Floats:
    """The loss of each row: of classes the negative log-likelihood."""
    if kind == LOGISTIC:
        far = np.where(labels > 0.0, -margins[0], margins[0])
        return np.asarray(np.logaddexp(0.0, far), np.float64)
    if kind == SOFTMAX:
        most = margins.max(axis=0)
        logs = most + np.log(np.exp(margins - most).sum(axis=0))
        found: Floats = logs - margins[labels.astype(int), np.arange(labels.size)]
        return found
    residuals: Floats = np.abs(margins[0] - labels)
    return residuals * residuals if kind == SQUARED else residuals


# --- facts of rows before the first tree -------------------------------------------------------


class RowSample(NamedTuple):
    """Distinct rows of a partition, drawn by their hashes, and facts of all its rows."""

    hashes: Keys
    counts: Ints
    columns: Ints
    rows: Matrix
    greatest_weight: float
    least_label: float
    greatest_label: float
    categories: Ints
    """Of each categorical feature the greatest number, or a negative one."""
    bad: str = ""


def sample_rows(rows: Rows, columns: Ints, share: float, categorical: Sequence[int]) -> RowSample:
    """Draw each distinct row with a probability; equal rows are drawn together and counted."""
    used = np.ones(len(rows), bool) if rows.weights is None else rows.weights > 0.0
    if rows.events is not None:
        used &= rows.events == 0.0
    hashes = row_hashes(rows.matrix, columns)
    drawn = np.flatnonzero(used & (uniform(mix(hashes)) < share))
    distinct, firsts, counts = np.unique(hashes[drawn], return_index=True, return_counts=True)
    greatest = 1.0 if rows.weights is None else float(rows.weights.max(initial=0.0))
    labels = rows.labels[used]
    least = float(labels.min(initial=math.inf)), float(labels.max(initial=-math.inf))
    most, bad = _categories(rows.matrix, columns, categorical)
    matrix = rows.matrix[drawn[firsts]]
    return RowSample(distinct, counts, columns, matrix, greatest, *least, most, bad)


def _categories(matrix: Matrix, columns: Ints, categorical: Sequence[int]) -> tuple[Ints, str]:
    most = np.zeros(len(categorical), np.int64)
    for k, place in enumerate(places_of(columns, categorical)):
        if place < 0:
            continue
        one = matrix[:, [place]]
        values = one.ravel() if isinstance(one, np.ndarray) else one.data
        values = values[~np.isnan(values)]
        bad = (values < 0.0) | (values != np.floor(values)) | (values >= 256.0)
        if bad.any():
            return most, (
                f"feature {categorical[k]} is categorical and has the value {values[bad][0]:g}; "
                "categories must be the numbers 0, 1, ..., at most 255 "
                "(see pyspark.ml.feature.StringIndexer)"
            )
        most[k] = int(values.max(initial=0.0))
    return most, ""
