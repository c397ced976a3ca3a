"""Factorization machines: against their definition in 60 digits, and known values."""

from __future__ import annotations

import itertools
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses import factorization
from distvec.losses.classification import Hinge, Logistic
from distvec.losses.factorization import FactorizationMachine
from distvec.losses.regression import Squared
from distvec.losses.rows import Rows
from optim import LBFGS
from tests.distvec.losses.exact import (
    assert_products,
    assert_sums,
    dense,
    exact,
    exp,
    log,
    margins,
    parameters,
    problems,
    weights,
)

ROWS = {
    Logistic(): (st.sampled_from([-1.0, 1.0]), lambda m, y: log(1 + exp(-y * m))),
    Squared(): (st.integers(-4, 4).map(float), lambda m, y: (m - y) ** 2 / 2),
}


def definition(loss, rows, intercept):
    """The sum over all pairs, one by one."""

    def value(w, table):
        m = margins(rows, w, intercept=intercept)
        x = exact(dense(rows).astype(float))
        for i, j in itertools.combinations(range(rows.columns), 2):
            m = m + x[:, i] * x[:, j] * (table[i] @ table[j])
        return (weights(rows) * ROWS[loss.row][1](m, rows.labels)).sum() if len(rows) else 0

    return value


@st.composite
def drawn(draw):
    loss = FactorizationMachine(draw(st.integers(1, 3)), draw(st.sampled_from(list(ROWS))))
    rows, arrays, intercept = draw(problems(loss, ROWS[loss.row][0], most_rows=4))
    # Margins are of the square of V.
    w, table = arrays
    return loss, rows, (w, np.clip(table, -5, 5)), intercept


@settings(deadline=None, max_examples=40)
@given(drawn())
def test_sums_are_those_of_the_definition(case):
    loss, rows, arrays, intercept = case
    assert_sums(loss, definition(loss, rows, intercept), rows, arrays, intercept=intercept)


@settings(deadline=None, max_examples=12)
@given(st.data())
def test_products_are_those_of_the_definition(data):
    loss, rows, arrays, intercept = data.draw(drawn())
    ways = data.draw(parameters(loss, rows.columns, intercept=intercept))
    value = definition(loss, rows, intercept)
    assert_products(loss, value, rows, arrays, ways, intercept=intercept)


def random_rows(n, columns, seed=0):
    rng = np.random.default_rng(seed)
    matrix = sp.random_array((n, columns), density=0.4, rng=rng, format="csr")
    labels = rng.choice([-1.0, 1.0], n)
    return Rows(matrix, labels, rng.random(n), rng.normal(size=n))


def random_parameters(columns, factors, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=columns + 1), rng.normal(size=(columns, factors))


def test_squares_in_pieces_are_the_same(monkeypatch):
    rows, at, ways = random_rows(300, 5), random_parameters(5, 3), random_parameters(5, 3, 1)
    loss = FactorizationMachine(3)
    sums = loss.sums(rows, at, intercept=True)
    products = loss.products(rows, at, ways, intercept=True)
    monkeypatch.setattr(factorization, "_SQUARED_AT_ONCE", 77)
    monkeypatch.setattr(factorization, "_DENSE_AT_ONCE", 77)
    for matrix in (rows.matrix, rows.matrix.toarray()):
        again = Rows(matrix, rows.labels, rows.weights, rows.offsets)
        for mine, right in zip(
            loss.sums(again, at, intercept=True).gradients, sums.gradients, strict=True
        ):
            np.testing.assert_allclose(mine, right, rtol=1e-12)
        for mine, right in zip(
            loss.products(again, at, ways, intercept=True), products, strict=True
        ):
            np.testing.assert_allclose(mine, right, rtol=1e-11)


def test_an_element_in_two_places_is_their_sum():
    """x^2 = 9, where 1 + 4 would be 5."""
    twice = sp.csr_array((np.array([1.0, 2.0, 1.0]), np.array([0, 0, 1]), np.array([0, 3])))
    once = Rows(np.array([[3.0, 1.0]]), np.ones(1))
    at = random_parameters(2, 2)
    found = FactorizationMachine(2).sums(Rows(twice, np.ones(1)), at, intercept=True)
    expected = FactorizationMachine(2).sums(once, at, intercept=True)
    assert found.value == pytest.approx(expected.value, rel=1e-15)
    np.testing.assert_allclose(found.gradients[1], expected.gradients[1], rtol=1e-14)
    assert twice.nnz == 3


def test_a_matrix_of_float32_gives_gradients_of_float32():
    rows, at = random_rows(50, 5), random_parameters(5, 3)
    small = Rows(rows.matrix.astype(np.float32), rows.labels, rows.weights, rows.offsets)
    loss = FactorizationMachine(3)
    expected, found = (loss.sums(one, at, intercept=True) for one in (rows, small))
    for mine, right in zip(found.gradients, expected.gradients, strict=True):
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5)


def test_scores_are_the_margins():
    rows, (w, table) = random_rows(20, 5), random_parameters(5, 3)
    x = rows.matrix.toarray()
    pairs = np.einsum("ni,nj,if,jf->n", x, x, table, table) - np.square(x) @ np.square(table).sum(1)
    expected = x @ w[:-1] + w[-1] + rows.offsets + 0.5 * pairs
    found = FactorizationMachine(3).scores(rows, (w, table), intercept=True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_the_row_says():
    squared = FactorizationMachine(3, Squared(), spread=0.5)
    assert squared.labels == "real" and FactorizationMachine().labels == "signs"
    assert squared.has_products and not FactorizationMachine(3, Hinge()).has_products
    assert FactorizationMachine(3, Hinge()).has_kinks and not squared.has_kinks
    assert [one.name for one in squared.parameters] == ["w", "V"]
    assert squared.parameters[1][1:4] == ((3,), False, 0.5)
    assert squared.bind([0.0]) is squared
    assert pickle.loads(pickle.dumps(squared)) == squared


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="factors=0; must be 1 or more"):
        FactorizationMachine(0)
    with pytest.raises(TypeError, match=r"row='logistic'; .* one margin, such as Logistic\(\)"):
        FactorizationMachine(2, "logistic")
    with pytest.raises(ValueError, match="spread=-1; must be a finite number, 0 or more"):
        FactorizationMachine(spread=-1)
    with pytest.raises(NotImplementedError):
        FactorizationMachine(1, Hinge()).products(
            random_rows(3, 2), random_parameters(2, 1), random_parameters(2, 1), intercept=True
        )


def test_pairs_that_no_vector_can_tell_are_learned():
    """The exclusive or of two features: as sums of them all four rows have the margin 0."""
    x = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    rows, loss = Rows(x, x[:, 0] * x[:, 1]), FactorizationMachine(2)

    def fun(flat):
        at = flat[:2], flat[2:].reshape(2, 2)
        found = loss.sums(rows, at, intercept=False)
        gradient = np.concatenate([one.ravel() for one in found.gradients])
        return found.value / found.weight + 0.005 * (flat @ flat), gradient / 4 + 0.01 * flat

    start = np.concatenate([np.zeros(2), np.random.default_rng(0).normal(size=4) * loss.spread])
    result = LBFGS().minimize(fun, start)
    scores = loss.scores(rows, (result.x[:2], result.x[2:].reshape(2, 2)), intercept=False)
    assert result.success and (scores * rows.labels > 2.0).all()


def difacto() -> Rows:
    """100 rows of RCV1: ``tests/data`` of github.com/dmlc/difacto."""
    path = os.environ.get("DIFACTO_DATA")
    if not path:
        pytest.skip("DIFACTO_DATA does not name the file tests/data of github.com/dmlc/difacto")
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    entries = [word.split(":") for words in lines for word in words[1:]]
    starts = np.cumsum([0] + [len(words) - 1 for words in lines])
    values = np.array([float(value) for _, value in entries])
    indices = np.array([int(index) for index, _ in entries])
    matrix = sp.csr_array((values, indices, starts), shape=(100, 47149))
    return Rows(matrix, np.array([float(words[0]) for words in lines]))


def made_up() -> Rows:
    """20 rows of 10 features, to be written down again by anyone."""
    i, j = np.ogrid[:20, :10]
    matrix = np.where((i * j) % 4 < 2, ((7 * i + 3 * j) % 11 - 4) / 8, 0.0)
    return Rows(matrix, np.where(np.arange(20) % 3 == 0, 1.0, -1.0), 0.5 + (np.arange(20) % 2))


def at_made_up():
    w = (np.arange(10) - 4) / 16
    return w, w[:, None] * np.arange(1, 4) / 2


def squared_norm(*arrays):
    return sum(float(np.vdot(one, one)) for one in arrays)


def test_values_of_difacto():
    """tests/cpp/fm_loss_test.cc there, to more digits than it gives."""
    rows = difacto()
    w = np.arange(47149) / 5e4
    table = w[:, None] * np.arange(1, 6) / 10
    alone = Logistic().sums(rows, (w,), intercept=False)
    assert f"{alone.value:.6f} {squared_norm(*alone.gradients):.6f}" == "147.467224 90.581745"
    found = FactorizationMachine(5).sums(rows, (w, table), intercept=False)
    assert f"{found.value:.6f} {squared_norm(*found.gradients):.6f}" == "330.628797 1237.811634"


def test_values_of_made_up_rows():
    """Computed to 60 digits by the definition."""
    found = FactorizationMachine(3).sums(made_up(), at_made_up(), intercept=False)
    assert found.value == pytest.approx(14.05654567766017672, rel=1e-15)
    assert squared_norm(*found.gradients) == pytest.approx(6.645052167488718390, rel=1e-14)
