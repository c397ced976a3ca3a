"""An ensemble of regression trees as a model of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from distvec.losses.loss import Arrays, Loss, Parameter, Sums
from distvec.losses.rows import Floats, Ints, Matrix, Rows

(
    OUTPUT,  # of a root, the number of the margin that it adds to; of other nodes -1
    SCALE,  # of a root, the factor of the values of its leaves
    FEATURE,
    THRESHOLD,  # rows with at most this number go left
    LEFT,  # the row of the left node; -1 of a leaf
    RIGHT,
    MISSING_LEFT,  # whether rows without the feature, those with NaN, go left
    CATEGORICAL,  # whether it is rows with some categories that go left
    VALUE,
    GAIN,
    ROWS,
    WEIGHT,  # the sum of the curvatures of the rows
    SLOT,  # while a tree grows: the number of the histogram that is asked for; else -1
) = range(13)
"""Columns of a table of nodes; behind them are the words of a set of categories."""
WORDS, BITS = 8, 32
"""A set of categories is so many words of so many bits."""
NODE_COLUMNS = SLOT + 1 + WORDS

LOGISTIC, SOFTMAX, SQUARED, ABSOLUTE = "logistic", "softmax", "squared", "absolute"
"""Kinds of trees, by their labels: two classes, more classes, or numbers."""

_DENSE_FROM = 0.25
"""Rows of which so much is not zero are looked up faster in a table."""

Nodes = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trees(Loss):
    """A sum of trees for each margin. Parameters are the numbers of the features, and the nodes.

    Margins of two classes are logarithms of odds.
    """

    kind: str
    outputs: int
    count: int
    """The number of nodes."""
    takes_missing: ClassVar[bool] = True
    _needs_labels: ClassVar[bool] = False

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("features", takes_intercept=False),
            Parameter("nodes", rows=self.count, row=(NODE_COLUMNS,)),
        )

    def sums(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Sums:
        raise NotImplementedError("trees are grown by GBTClassifier and GBTRegressor")

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        """The sums of the values of leaves."""
        margins, nodes = np.zeros((self.outputs, len(rows))), np.asarray(arrays[1])
        for root, leaves in self._leaves(rows, arrays):
            margins[int(nodes[root, OUTPUT])] += nodes[root, SCALE] * nodes[leaves, VALUE]
        return margins[0] if self.outputs == 1 else margins.T

    def _leaves(self, rows: Rows, arrays: Arrays) -> Iterator[tuple[int, Ints]]:
        matrix: Any = rows.matrix
        if not isinstance(matrix, np.ndarray) and matrix.nnz > _DENSE_FROM * np.prod(matrix.shape):
            matrix = matrix.toarray()
        return leaves_by_tree(matrix, np.asarray(arrays[0]).astype(np.int64), np.asarray(arrays[1]))

    def probabilities(self, scores: Floats) -> Floats:
        if self.kind == LOGISTIC:
            positive = sigmoid(scores)
            return np.stack([1.0 - positive, positive], axis=1)
        if self.kind == SOFTMAX:
            return softmax(scores.T).T
        return super().probabilities(scores)

    def predictions(self, scores: Floats) -> Floats:
        if self.kind == LOGISTIC:
            return (scores > 0.0).astype(np.float64)
        return scores.argmax(axis=1).astype(np.float64) if self.kind == SOFTMAX else scores


@dataclass(frozen=True)
class Stages(Trees):
    """Margins after each round: by round, and then by output."""

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        margins, found = np.zeros((self.outputs, len(rows))), []
        for number, (root, leaves) in enumerate(self._leaves(rows, arrays), 1):
            nodes = np.asarray(arrays[1])
            margins[int(nodes[root, OUTPUT])] += nodes[root, SCALE] * nodes[leaves, VALUE]
            if number % self.outputs == 0:
                found.append(margins.copy())
        return np.concatenate(found).T


@dataclass(frozen=True)
class LeafNumbers(Trees):
    """The leaf of each tree, by its place in depth-first order."""

    def scores(self, rows: Rows, arrays: Arrays, *, intercept: bool) -> Floats:
        if not len(rows):  # the nodes may be zeros then, which are no trees
            return np.zeros((0, self.count))
        numbers = leaf_numbers(np.asarray(arrays[1]))
        return np.stack([numbers[leaves] for _, leaves in self._leaves(rows, arrays)], axis=1)


def leaf_numbers(nodes: Nodes) -> Floats:
    """Of each leaf its place among those of its tree, from the left."""
    found = np.zeros(len(nodes))
    for root in np.flatnonzero(nodes[:, OUTPUT] >= 0.0).tolist():
        waiting, count = [root], 0
        while waiting:
            node = waiting.pop()
            if nodes[node, LEFT] < 0.0:
                found[node] = count
                count += 1
            else:
                waiting += nodes[node, [RIGHT, LEFT]].astype(int).tolist()
    return found


def sigmoid(margins: Floats) -> Floats:
    """The probability of the second class."""
    with np.errstate(over="ignore"):
        found: Floats = 1.0 / (1.0 + np.exp(-margins))
    return found


def softmax(margins: Floats) -> Floats:
    """Probabilities of classes, ``(classes, rows)``."""
    terms = np.exp(margins - margins.max(axis=0))
    found: Floats = terms / terms.sum(axis=0)
    return found


def places_of(columns: Ints, features: Any) -> Ints:
    """The column of each feature; -1 of those that rows lack. ``columns`` ascend."""
    wanted = np.asarray(features, np.int64)
    if not columns.size:
        return np.full(wanted.shape, -1)
    places = np.minimum(np.searchsorted(columns, wanted), columns.size - 1)
    return np.where(columns[places] == wanted, places, -1)


def add_trees(matrix: Matrix, columns: Ints, nodes: Nodes, outputs: int) -> Floats:
    """The margins of rows, ``(outputs, rows)``: trees are added in their order."""
    margins = np.zeros((outputs, matrix.shape[0]))
    for root, leaves in leaves_by_tree(matrix, columns, nodes):
        margins[int(nodes[root, OUTPUT])] += nodes[root, SCALE] * nodes[leaves, VALUE]
    return margins


def leaves_by_tree(matrix: Matrix, columns: Ints, nodes: Nodes) -> Iterator[tuple[int, Ints]]:
    """Of each tree its root, and the leaf of each row, which the next tree overwrites."""
    from distvec.losses import tree_loops as loops  # which imports numba

    table = (
        *loops.elements(matrix),
        places_of(columns, nodes[:, FEATURE]),
        np.ascontiguousarray(nodes[:, THRESHOLD]),
        nodes[:, LEFT].astype(np.int64),
        nodes[:, RIGHT].astype(np.int64),
        nodes[:, MISSING_LEFT] != 0.0,
        nodes[:, CATEGORICAL] != 0.0,
        np.ascontiguousarray(nodes[:, SLOT + 1 :]),
    )
    leaves = np.empty(matrix.shape[0], np.int64)
    find: Any = loops.find_leaves
    for root in np.flatnonzero(nodes[:, OUTPUT] >= 0.0).tolist():
        find(*table, root, leaves)
        yield root, leaves
