"""Boosted trees beside a plain one that tries all splits, scikit-learn, and other partitions."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss
from threadpoolctl import threadpool_limits

from distvec.losses.boosting import Boosting, sample_rows
from distvec.losses.rows import Rows
from distvec.losses.trees import (
    ABSOLUTE,
    CATEGORICAL,
    FEATURE,
    LEFT,
    LOGISTIC,
    MISSING_LEFT,
    RIGHT,
    SCALE,
    SLOT,
    SOFTMAX,
    SQUARED,
    THRESHOLD,
    VALUE,
    Trees,
    add_trees,
    leaf_numbers,
    sigmoid,
    softmax,
)
from distvec.objectives.tree_bins import bins_for, gather_sample
from distvec.objectives.tree_growth import boost, boost_rows
from distvec.objectives.tree_splits import Growth

# --- a plain reference ----------------------------------------------------------------------------


class Plain:
    """Boosting row by row, with Python's integers: all thresholds between values are tried."""

    def __init__(self, x, y, weights, growth):
        self.x, self.y, self.c, self.growth = x, y, weights, growth
        self.is_squared = growth.kind == SQUARED
        start = self.start()
        self.margins = [start] * len(y)
        self.trees = []
        for number in range(growth.rounds):
            roots = [self.integers(row) for row in range(len(y))]
            tree = self.grow([row for row in range(len(y)) if weights[row] > 0], roots, 0)
            scale = growth.step_size if number else 1.0
            if number == 0:
                self.margins = [0.0] * len(y)
                tree = self.moved(tree, lambda value: start + growth.first_step * value)
            self.margins = [
                margin + scale * self.value(tree, row)
                for margin, row in zip(self.margins, x, strict=True)
            ]
            self.trees.append(tree)

    def bits(self, most):
        return 2.0 ** (29 - math.ceil(math.log2(most)))

    def start(self):
        heaviest, used = self.c.max(), self.c > 0
        far = np.abs(self.y[used]).max() if self.is_squared else 1.0
        units = self.bits(max(heaviest * far, 1e-300)), self.bits(heaviest)
        sums = [
            sum(round(c * y * units[0]) for c, y in zip(self.c, self.y, strict=True)) / units[0],
            sum(round(c * units[1]) for c in self.c) / units[1],
        ]
        mean = sums[0] / sums[1]
        if self.is_squared:
            low, high = self.y[used].min(), self.y[used].max()
            mean = min(max(mean, low), high)
            self.units = self.bits(heaviest * (2.0 * max(high - mean, mean - low) or 1.0)), units[1]
            return mean
        self.units = units
        return math.log(mean) - math.log1p(-mean)

    def integers(self, row):
        c, y, m = self.c[row], self.y[row], self.margins[row]
        if self.is_squared:
            return round(c * (m - y) * self.units[0]), round(c * self.units[1])
        p = float(sigmoid(np.float64(m)))
        return round(c * (p - y) * self.units[0]), round(c * (p * (1.0 - p)) * self.units[1])

    def score(self, g, h):
        g, h = g / self.units[0], h / self.units[1] + self.growth.l2
        return g * g / h if h > 0.0 else 0.0

    def grow(self, rows, slopes, depth):
        g, h = (sum(slopes[row][k] for row in rows) for k in (0, 1))
        divisor = h / self.units[1] + self.growth.l2
        leaf = -g / self.units[0] / divisor if divisor > 0.0 else 0.0
        best, found = -math.inf, None
        for feature in range(self.x.shape[1]):
            if depth == self.growth.max_depth:
                break
            used = self.x[self.c > 0][:, feature]
            known = np.unique(used[~np.isnan(used)])
            middles = [0.5 * a + 0.5 * b for a, b in pairwise(known)]
            for threshold in [*middles, math.inf]:
                for missing_left in (False, True):
                    sides = [], []
                    for row in rows:
                        goes = self.goes_left(self.x[row, feature], threshold, missing_left)
                        sides[not goes].append(row)
                    if min(map(len, sides)) < self.growth.min_rows:
                        continue
                    sums = [[sum(slopes[r][k] for r in side) for k in (0, 1)] for side in sides]
                    parts = self.score(*sums[0]) + self.score(*sums[1])
                    gain = parts - self.score(g, h)
                    if gain > 1e-9 * parts and gain > best:
                        best, found = gain, (feature, threshold, missing_left, sides)
        if found is None:
            return leaf
        *split, sides = found
        return (*split, *(self.grow(side, slopes, depth + 1) for side in sides))

    @staticmethod
    def goes_left(x, threshold, missing_left):
        return missing_left if math.isnan(x) else x <= threshold

    def value(self, tree, row):
        while isinstance(tree, tuple):
            feature, threshold, missing_left, left, right = tree
            tree = left if self.goes_left(row[feature], threshold, missing_left) else right
        return tree

    def moved(self, tree, function):
        if not isinstance(tree, tuple):
            return function(tree)
        return (*tree[:3], *(self.moved(one, function) for one in tree[3:]))


def as_tuples(nodes, root):
    """A tree as ``Plain`` has it."""
    row = nodes[root]
    if row[LEFT] < 0:
        return row[VALUE]
    children = (as_tuples(nodes, int(row[side])) for side in (LEFT, RIGHT))
    return (int(row[FEATURE]), row[THRESHOLD], bool(row[MISSING_LEFT]), *children)


def trees_of(nodes):
    return [as_tuples(nodes, root) for root in np.flatnonzero(nodes[:, 0] >= 0)]


@st.composite
def problems(draw):
    """Few rows of few values, some missing, some weights 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows, columns = draw(st.integers(1, 40)), draw(st.integers(1, 3))
    x = rng.integers(0, draw(st.integers(1, 6)), (rows, columns)) * rng.choice([1.0, 0.3])
    if draw(st.booleans()):
        x[rng.random(x.shape) < 0.2] = np.nan
    kind = draw(st.sampled_from([SQUARED, LOGISTIC]))
    y = rng.integers(0, 2, rows).astype(float)
    if kind == SQUARED:
        y = np.round(3 * rng.normal(size=rows), 1)
    weights = np.ones(rows)
    if draw(st.booleans()):
        weights = rng.choice([0.0, 0.5, 1.0, 3.0], rows)
        weights[0] = 1.0
    used = y[weights > 0]
    if kind == LOGISTIC and used.min() == used.max():
        kind = SQUARED
    growth = Growth(
        kind,
        rounds=draw(st.integers(1, 3)),
        max_depth=draw(st.integers(0, 3)),
        min_rows=draw(st.integers(1, 3)),
        l2=draw(st.sampled_from([0.0, 1.0])),
    )
    return x, y, weights, growth


def split_rows(x, y, weights, count, seed=0):
    """The rows in some partitions, shuffled, some of which are sparse."""
    order = np.random.default_rng(seed).permutation(len(y))
    return [
        Rows(sp.csr_array(x[part]) if k % 2 else np.ascontiguousarray(x[part]), y[part],
             weights[part])
        for k, part in enumerate(np.array_split(order, count))
    ]  # fmt: skip


@given(problems(), st.integers(1, 3))
def test_trees_are_those_of_all_splits(problem, count):
    x, y, weights, growth = problem
    plain = Plain(x, y, weights, growth)
    found = boost_rows(split_rows(x, y, weights, count), growth, max_bins=32)
    assert trees_of(found.nodes) == plain.trees
    margins = add_trees(x, np.arange(x.shape[1]), found.nodes, 1)
    assert margins[0].tolist() == plain.margins


# --- other oracles --------------------------------------------------------------------------------


def drawn(rows=3000, columns=6, seed=0):
    """Features with an interaction, some missing for a reason."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    margins = x[:, 0] * 2 - x[:, 1] + x[:, 2] * x[:, 3]
    gone = rng.random(rows) < 0.2
    x[gone, 0] = np.nan
    return x, margins + 1.5 * gone, rng


SMALL = {"max_iter": 20, "max_depth": 4, "max_leaf_nodes": None, "min_samples_leaf": 5}
COMMON = {"rounds": 20, "max_depth": 4, "min_rows": 5, "first_step": 0.1}


@threadpool_limits.wrap(limits=1)  # its threads would wait for one another
def test_losses_are_those_of_scikit_learn():
    x, margins, rng = drawn()
    y = (margins + rng.logistic(size=len(x)) > 0).astype(float)
    peer = HistGradientBoostingClassifier(**SMALL, early_stopping=False, max_bins=64).fit(x, y)
    found = boost_rows([Rows(x, y)], Growth(LOGISTIC, **COMMON), max_bins=64)
    theirs = log_loss(y, peer.predict_proba(x))
    assert found.losses[-1] < 1.02 * theirs
    own = add_trees(x, np.arange(6), found.nodes, 1)[0]
    assert np.isclose(log_loss(y, sigmoid(own)), found.losses[-1], rtol=1e-6)

    classes = np.digitize(margins, [-1.0, 1.0]).astype(float)
    peer = HistGradientBoostingClassifier(**SMALL, early_stopping=False).fit(x, classes)
    found = boost_rows([Rows(x, classes)], Growth(SOFTMAX, 3, **COMMON), max_bins=255)
    assert found.losses[-1] < 1.02 * log_loss(classes, peer.predict_proba(x))
    own = softmax(add_trees(x, np.arange(6), found.nodes, 3)).T
    assert np.isclose(log_loss(classes, own), found.losses[-1], rtol=1e-6)

    peer = HistGradientBoostingRegressor(**SMALL, early_stopping=False).fit(x, margins)
    found = boost_rows([Rows(x, margins)], Growth(SQUARED, **COMMON), max_bins=255)
    assert found.losses[-1] < 1.02 * np.square(peer.predict(x) - margins).mean()

    far = 1e6 * (margins + rng.laplace(size=len(x)))
    found = boost_rows([Rows(x, far)], Growth(ABSOLUTE, **COMMON | {"rounds": 60}), max_bins=64)
    peer = HistGradientBoostingRegressor(
        loss="absolute_error", **SMALL | {"max_iter": 60}, early_stopping=False
    ).fit(x, far)
    assert found.losses[-1] < 1.1 * np.abs(peer.predict(x) - far).mean()


@pytest.mark.parametrize("kind", [LOGISTIC, SOFTMAX, SQUARED, ABSOLUTE])
def test_partitions_do_not_change_a_bit(kind):
    x, margins, rng = drawn(900)
    x[:, 4] = rng.integers(0, 12, len(x))
    labels = {LOGISTIC: (margins > 0), SOFTMAX: np.digitize(margins, [-1.0, 1.0])}
    y = labels.get(kind, margins).astype(float)
    weights = rng.random(len(x))
    growth = Growth(
        kind, 3 if kind == SOFTMAX else 1, rounds=4, row_share=0.7, features_per_node=4, seed=3,
        max_leaves=9, memory=1 << 16,
    )  # fmt: skip
    known = None
    for count in (1, 3, 8):
        parts = split_rows(x, y, weights, count, seed=count)
        found = boost_rows(parts, growth, max_bins=16, categorical=[4])
        known = found if known is None else known
        assert (found.nodes == known.nodes).all() and found.losses == known.losses
    assert known.nodes[:, CATEGORICAL].any()
    leaves = leaf_numbers(known.nodes)
    assert leaves.max() < 9


def test_a_task_may_begin_anew_at_any_question():
    x, margins, _ = drawn(500)
    rows, growth = Rows(x, margins), Growth(SQUARED, rounds=3, max_depth=3, row_share=0.5)
    known = boost_rows([rows], growth, max_bins=16)
    sample = sample_rows(rows, np.arange(6), 1.0, ())
    bins, loss = (
        bins_for(gather_sample(lambda _: [sample], 500, 16), 6, 16, ()),
        Boosting(SQUARED, 1),
    )

    def ask(trees, question, _):
        array = (bins, trees, question).__getitem__
        state = loss.begin(rows, array)
        first = loss.advance(state, array)
        assert (loss.advance(state, array) == first).all()  # questions may be repeated
        return first

    found = boost(growth, gather_sample(lambda _: [sample], 500, 16), bins, ask)
    assert (found.nodes == known.nodes).all() and found.losses == known.losses


def test_a_set_of_categories_is_one_split():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 100, (2000, 1)).astype(float)
    x[rng.random(2000) < 0.1] = np.nan
    odd = np.where(np.isnan(x[:, 0]), 5.0, x[:, 0] % 2)
    growth = Growth(SQUARED, rounds=1, max_depth=2)
    found = boost_rows([Rows(x, odd)], growth, max_bins=200, categorical=[0])
    assert found.losses[-1] < 1e-12
    loss = Trees(SQUARED, 1, len(found.nodes))
    unknown = Rows(np.array([[250.0], [0.5], [300.0], [-1.0]]), np.zeros(4))
    right = loss.scores(unknown, (np.zeros(1), found.nodes), intercept=False)
    assert len(set(right.tolist())) == 1
    with pytest.raises(ValueError, match=r"feature 0 is categorical and has the value \d+\.5"):
        boost_rows([Rows(x / 2, odd)], growth, max_bins=200, categorical=[0])


def test_rows_held_out_end_a_fit():
    x, margins, rng = drawn(2000)
    y = margins + 3 * rng.normal(size=len(x))
    held = (rng.random(len(x)) < 0.3).astype(float)
    stop = Growth(SQUARED, rounds=40, step_size=0.8, patience=lambda losses: 3 * (len(losses) > 5))
    rows = Rows(x, y, events=held)
    found = boost_rows([rows], stop, max_bins=32)
    alone = boost_rows(
        [Rows(x[held == 0], y[held == 0])], replace(stop, rounds=3, patience=None), max_bins=32
    )
    assert (found.nodes == alone.nodes).all()
    margins = add_trees(x, np.arange(6), found.nodes, 1)[0]
    mean = np.square(margins - y)[held > 0].mean()
    assert np.isclose(mean, found.held_out[3], rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((1, 1)), np.ones(1)),
        (np.full((5, 2), np.nan), np.arange(5.0)),
        (np.full((4, 1), 7.0), np.array([1e9, -1e9, 1e-9, 0.0])),
        (np.zeros((3, 0)), np.arange(3.0)),
        (np.arange(3.0)[:, None], np.zeros(3)),
    ],
)
def test_without_a_split_the_mean_remains(x, y):
    found = boost_rows([Rows(x, y)], Growth(SQUARED, rounds=2), max_bins=8)
    assert len(found.nodes) == 2 and found.nodes[:, SCALE].tolist() == [1.0, 0.1]
    assert np.isclose(found.nodes[0, VALUE], y.mean(), atol=1e-6 * np.abs(y).max())
    assert (found.nodes[:, SLOT] == -1).all()
    one_class = boost_rows([Rows(x, np.ones(len(y)))], Growth(LOGISTIC), max_bins=8)
    margins = add_trees(x, np.arange(x.shape[1]), one_class.nodes, 1)
    assert (sigmoid(margins) > 0.999999).all()
    weightless = Rows(x, y, np.zeros(len(y)))
    with pytest.raises(ValueError, match="no row with a positive weight"):
        boost_rows([weightless], Growth(SQUARED), max_bins=8)
