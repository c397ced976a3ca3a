"""Softmax: against its definition in 60 digits, and to known optima."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses import classification
from distvec.losses.classification import Logistic, Softmax
from distvec.losses.rows import BLOCK_ROWS, Rows
from optim import LBFGS
from tests.distvec.losses.exact import (
    assert_products,
    assert_sums,
    exp,
    log,
    margins,
    parameters,
    problems,
    weights,
)
from tests.optim.reference_data import load_classes, optimum


def definition(rows, intercept):
    def value(table):
        found = margins(rows, table, intercept=intercept)
        own = [row[int(y)] for row, y in zip(found, rows.labels, strict=True)]
        return (weights(rows) * (log(exp(found).sum(axis=1)) - own)).sum() if len(rows) else 0

    return value


@st.composite
def drawn(draw):
    loss = Softmax(draw(st.integers(1, 4)))
    labels = st.integers(0, loss.classes - 1).map(float)
    return loss, *draw(problems(loss, labels))


@settings(deadline=None, max_examples=40)
@given(drawn())
def test_sums_are_those_of_the_definition(case):
    loss, rows, arrays, intercept = case
    assert_sums(loss, definition(rows, intercept), rows, arrays, intercept=intercept)


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_products_are_those_of_the_definition(data):
    loss, rows, arrays, intercept = data.draw(drawn())
    ways = data.draw(parameters(loss, rows.columns, intercept=intercept))
    assert_products(loss, definition(rows, intercept), rows, arrays, ways, intercept=intercept)


def test_two_classes_are_logistic_to_the_last_digits_however_sure():
    """Also where a probability is 1 but for less than a unit of rounding."""
    far = np.array([0.0, 1e-8, 1.0, 30.0, 50.0, 700.0, 1e5, 1e300])
    m = np.concatenate([far, -far])
    rows = Rows(m[:, None], np.ones(m.size))
    for row in range(m.size):
        one = rows[row : row + 1]
        mine = Softmax(2).sums(one, (np.array([[0.0, 1.0]]),), intercept=False)
        expected = Logistic().sums(one, (np.array([1.0]),), intercept=False)
        assert mine.value == pytest.approx(expected.value, rel=4e-16)
        assert mine.gradients[0][0, 1] == pytest.approx(expected.gradients[0][0], rel=4e-16)


def test_rows_in_pieces_are_the_same_rows(monkeypatch):
    rng = np.random.default_rng(0)
    n = BLOCK_ROWS + 100
    rows = Rows(
        rng.normal(size=(n, 4)), rng.integers(0, 3, n).astype(float), rng.random(n), rng.random(n)
    )
    table, way = rng.normal(size=(2, 5, 3))
    loss = Softmax(3)
    sums = loss.sums(rows, (table,), intercept=True)
    product = loss.products(rows, (table,), (way,), intercept=True)
    monkeypatch.setattr(classification, "_LARGEST_PIECE", 3 * 777)
    again = loss.sums(rows, (table,), intercept=True)
    assert again.value == pytest.approx(sums.value, rel=1e-13)
    assert again.weight == sums.weight
    np.testing.assert_allclose(again.gradients[0], sums.gradients[0], rtol=1e-11)
    others = loss.products(rows, (table,), (way,), intercept=True)
    np.testing.assert_allclose(others[0], product[0], rtol=1e-11)


def test_a_matrix_of_float32_gives_a_gradient_of_float32():
    rng = np.random.default_rng(1)
    rows = Rows(rng.normal(size=(50, 4)), rng.integers(0, 3, 50).astype(float))
    small = Rows(rows.matrix.astype(np.float32), rows.labels)
    table = rng.normal(size=(4, 3))
    expected = Softmax(3).sums(rows, (table,), intercept=False)
    found = Softmax(3).sums(small, (table,), intercept=False)
    assert found.gradients[0].dtype == np.float32
    np.testing.assert_allclose(found.gradients[0], expected.gradients[0], rtol=1e-4, atol=1e-5)
    assert found.value == pytest.approx(expected.value, rel=1e-6)


def test_a_row_of_weight_0_has_no_say_even_where_it_is_infinite():
    rows = Rows(np.array([[1.0], [1e308]]), np.array([0.0, 1.0]), np.array([2.0, 0.0]))
    table = np.array([[1.0, 2.0]])
    found = Softmax(2).sums(rows, (table,), intercept=False)
    alone = Softmax(2).sums(rows[:1], (table,), intercept=False)
    assert found.value == alone.value
    np.testing.assert_array_equal(found.gradients, alone.gradients)


def test_labels_say_how_many_classes_there_are():
    assert Softmax().takes_intercept
    assert Softmax().bind([2.0, 0.0, 1.0]) == Softmax(3)
    with pytest.warns(
        UserWarning, match=r"the label 0, .* without gaps, or pass Softmax.classes=3"
    ):
        assert Softmax().bind([1.0, 2.0]) == Softmax(3)
    assert Softmax(5).bind([0.0, 2.0]) == Softmax(5)
    assert pickle.loads(pickle.dumps(Softmax(3))) == Softmax(3)
    assert Softmax(3).parameters[0].row == (3,)
    for wrong in ([0.5], [-1.0], [np.nan], [np.inf]):
        with pytest.raises(
            ValueError, match=r"label .* is not allowed; labels must be whole numbers from 0$"
        ):
            Softmax().bind(wrong)
    with pytest.raises(ValueError, match=r"3.0 is not allowed; .* from 0 to 2"):
        Softmax(3).bind([0.0, 3.0])
    rows = Rows(np.ones((1, 1)), np.array([3.0]))
    with pytest.raises(ValueError, match="is not allowed; labels must"):
        Softmax(3).sums(rows, (np.zeros((1, 3)),), intercept=False)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="classes=0; must be 1 or more"):
        Softmax(0)
    with pytest.raises(ValueError, match=r"Softmax\(classes=...\), or call .bind\(labels\)"):
        _ = Softmax().parameters


def penalized(loss, rows, l2):
    def fun(table):
        found = loss.sums(rows, (table,), intercept=False)
        (gradient,) = found.gradients
        return (
            found.value / found.weight + 0.5 * l2 * np.vdot(table, table),
            gradient / found.weight + l2 * table,
        )

    return fun


@pytest.mark.parametrize("l2", [1e-2, 1e-4])
def test_known_optima(l2):
    features, labels = load_classes("dna")
    rows = Rows(features, labels - labels.min())
    loss = Softmax().bind(np.unique(rows.labels))
    start = np.zeros((rows.columns, loss.classes))
    result = LBFGS(gradient_tolerance=1e-7).minimize(penalized(loss, rows, l2), start)
    assert result.success
    best = optimum("dna", "softmax_l2", l2)["optimum_value"]
    assert result.fun == pytest.approx(best, rel=1e-8)
