"""Pairwise ranking: against its definition in 60 digits, pair by pair."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses import rows as pairs
from distvec.losses.classification import Hinge, Logistic, SquaredHinge
from distvec.losses.cox import Cox
from distvec.losses.loss import LossError
from distvec.losses.ranking import PairwiseRanking
from distvec.losses.regression import Squared
from distvec.losses.row_losses import RowLoss
from distvec.losses.rows import Rows
from distvec.objectives.local import Objective
from tests.distvec.losses.exact import (
    assert_products,
    assert_sums,
    exp,
    log,
    margins,
    mp,
    parameters,
    problems,
    weights,
)

OF_PAIR = {
    Logistic(): lambda m: log(1 + exp(-m)),
    SquaredHinge(): lambda m: max(0, 1 - m) ** 2,
}


def all_pairs(rows):
    for i, j in itertools.permutations(range(len(rows)), 2):
        if rows.groups[i] == rows.groups[j] and rows.labels[i] > rows.labels[j]:
            yield i, j


def definition(loss, rows):
    def value(w):
        m, c, of_pair = margins(rows, w, intercept=False), weights(rows), OF_PAIR[loss.row]
        terms = [mp.sqrt(c[i] * c[j]) * of_pair(m[i] - m[j]) for i, j in all_pairs(rows)]
        return sum(terms, mp.mpf(0))

    return value


@st.composite
def drawn(draw, row=None):
    loss = PairwiseRanking(row or draw(st.sampled_from(list(OF_PAIR))))
    rows, arrays, _ = draw(problems(loss, st.integers(0, 3).map(float), intercepts=False))
    groups = st.lists(st.integers(-2, 2), min_size=len(rows), max_size=len(rows))
    return loss, replace(rows, groups=np.sort(np.array(draw(groups), int))), arrays


@settings(deadline=None, max_examples=50)
@given(drawn())
def test_sums_are_those_of_the_definition(case):
    loss, rows, arrays = case
    assert_sums(loss, definition(loss, rows), rows, arrays, intercept=False)
    c = weights(rows)
    weight = float(sum((mp.sqrt(c[i] * c[j]) for i, j in all_pairs(rows)), mp.mpf(0)))
    assert loss.weight(rows) == pytest.approx(weight, rel=1e-14)
    assert loss.sums(rows, arrays, intercept=False).weight == loss.weight(rows)


@settings(deadline=None, max_examples=10)
@given(st.data())
def test_products_are_those_of_the_definition(data):
    loss, rows, arrays = data.draw(drawn(Logistic()))
    ways = data.draw(parameters(loss, rows.columns, intercept=False))
    assert_products(loss, definition(loss, rows), rows, arrays, ways, intercept=False)


def many(n=300, groups=17, seed=0):
    rng = np.random.default_rng(seed)
    return Rows(
        rng.normal(size=(n, 3)),
        rng.integers(0, 4, n).astype(float),
        rng.choice([0.0, 1.0, 2.0], n),
        rng.normal(size=n),
        groups=np.sort(rng.integers(0, groups, n)),
    )


@pytest.mark.parametrize("most", [1, 2, 50, 1000])
def test_pairs_some_at_a_time_are_all_pairs(monkeypatch, most):
    """Also where one row has more than are taken at a time."""
    rows, w, loss = many(), np.array([0.5, -1.0, 2.0]), PairwiseRanking()
    m = rows.matrix @ w + rows.offsets
    higher, lower = np.array(list(all_pairs(rows))).T
    c = np.sqrt(rows.weights[higher] * rows.weights[lower])
    d = m[higher] - m[lower]
    slopes = np.zeros(len(rows))
    np.add.at(slopes, higher, -c / (1 + np.exp(d)))
    np.add.at(slopes, lower, c / (1 + np.exp(d)))
    monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", most)
    found = loss.sums(rows, (w,), intercept=False)
    assert found.value == pytest.approx(c @ np.logaddexp(0, -d), rel=1e-12)
    assert found.weight == pytest.approx(c.sum(), rel=1e-13)
    np.testing.assert_allclose(found.gradients[0], rows.matrix.T @ slopes, rtol=1e-10)


def test_groups_apart_are_groups_together():
    rows, w, loss = many(), (np.array([0.5, -1.0, 2.0]),), PairwiseRanking()
    whole = loss.sums(rows, w, intercept=False)
    at = int(np.searchsorted(rows.groups, 8))
    parts = [loss.sums(one, w, intercept=False) for one in (rows[:at], rows[at:])]
    assert sum(one.value for one in parts) == pytest.approx(whole.value, rel=1e-13)
    assert sum(one.weight for one in parts) == pytest.approx(whole.weight, rel=1e-13)
    np.testing.assert_allclose(
        sum(one.gradients[0] for one in parts), whole.gradients[0], rtol=1e-11
    )


def test_rows_without_anything_to_compare():
    loss = PairwiseRanking()
    alone = Rows(np.ones((4, 2)), np.arange(4.0), groups=np.arange(4))
    alike = Rows(np.ones((4, 2)), np.ones(4), groups=np.zeros(4, int))
    for rows in (alone, alike, alone[:0]):
        found = loss.sums(rows, (np.ones(2),), intercept=False)
        assert found[:2] == (0.0, 0.0) and not found.gradients[0].any()


def test_a_row_of_weight_0_is_in_no_pair():
    rows = Rows(np.array([[1.0], [-1e308]]), np.array([1.0, 0.0]), groups=np.zeros(2, int))
    found = PairwiseRanking().sums(
        replace(rows, weights=np.array([2.0, 0.0])), (np.array([-2.0]),), intercept=False
    )
    assert found[:2] == (0.0, 0.0) and found.gradients[0].tolist() == [0.0]


@dataclass(frozen=True)
class Failing(RowLoss):
    labels = "signs"

    def row(self, margins, labels):
        raise ZeroDivisionError("nothing is left")


def test_what_cannot_be_is_refused():
    loss, w = PairwiseRanking(), (np.zeros(3),)
    with pytest.raises(ValueError, match="compared within groups; give Rows"):
        loss.sums(replace(many(), groups=None), w, intercept=False)
    with pytest.raises(ValueError, match="must lie together; sort them by the group"):
        loss.sums(replace(many(), groups=np.arange(300) % 7), w, intercept=False)
    with pytest.raises(TypeError, match=r"row='logistic'; .* as Logistic\(\)"):
        PairwiseRanking("logistic")
    with pytest.raises(ValueError, match="takes 'real' labels; must be a loss of two classes"):
        PairwiseRanking(Squared())
    with pytest.raises(LossError, match="pair block 0: ZeroDivisionError: nothing is left"):
        PairwiseRanking(Failing()).sums(many(), w, intercept=False)
    with pytest.raises(NotImplementedError):
        PairwiseRanking(Hinge()).products(many(), w, w, intercept=False)


def test_what_the_row_says():
    assert PairwiseRanking().has_products and not PairwiseRanking().has_kinks
    assert PairwiseRanking(Hinge()).has_kinks
    assert not PairwiseRanking().parameters[0].takes_intercept
    assert PairwiseRanking().labels == "real" and PairwiseRanking().order == "group"
    assert pickle.loads(pickle.dumps(PairwiseRanking(SquaredHinge()))) == PairwiseRanking(
        SquaredHinge()
    )
    rows = many()
    scores = PairwiseRanking().scores(rows, (np.ones(3),), intercept=False)
    np.testing.assert_allclose(scores, rows.matrix.sum(axis=1) + rows.offsets, rtol=1e-12)


def test_groups_without_pairs_are_refused():
    rows = Rows(np.ones((4, 2)), np.ones(4), groups=np.array([0, 0, 1, 1]))
    objective = Objective(rows, loss=PairwiseRanking())
    with pytest.raises(ValueError, match=r"PairwiseRanking.*no two rows of a group have different"):
        objective(np.zeros(2))


@pytest.mark.parametrize("loss", [PairwiseRanking(), Cox()])
def test_an_intercept_that_cancels_out_is_refused(loss):
    groups = np.zeros(4, np.int64) if loss.order == "group" else None
    rows = Rows(np.ones((4, 2)), np.arange(4.0), groups=groups)
    with pytest.raises(ValueError, match=r"intercept=True: .* compares margins with one another"):
        Objective(rows, loss=loss, intercept=True)
