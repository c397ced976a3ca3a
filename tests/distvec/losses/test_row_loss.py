"""Losses of one margin a row: sums by blocks of rows, and errors that say where."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from distvec.losses.classification import Logistic
from distvec.losses.loss import LossError
from distvec.losses.row_losses import RowLoss, sum_once_rounded
from distvec.losses.rows import BLOCK_ROWS, Rows


def column(labels, **more):
    """Rows whose margins are one coefficient."""
    return Rows(np.ones((len(labels), 1)), np.asarray(labels, float), **more)


@dataclass(frozen=True)
class Given(RowLoss):
    """Returns what ``function`` says."""

    function: object

    def row(self, margins, labels):
        return self.function(margins, labels)


def sums(function, rows, at=0.5):
    return Given(function).sums(rows, (np.array([at]),), intercept=False)


def test_sums_are_those_of_the_blocks_whatever_their_number():
    rng = np.random.default_rng(0)
    count = 2 * BLOCK_ROWS + 5
    matrix = sp.random_array((count, 7), density=0.3, rng=rng, format="csr")
    rows = Rows(matrix, rng.choice([-1.0, 1.0], count), rng.random(count), rng.normal(size=count))
    w = rng.normal(size=8)
    found = Logistic().sums(rows, (w,), intercept=True)
    m = matrix @ w[:-1] + w[-1] + rows.offsets
    assert found.value == pytest.approx(rows.weights @ np.logaddexp(0, -rows.labels * m), rel=1e-13)
    slopes = -rows.weights * rows.labels / (1 + np.exp(rows.labels * m))
    expected = np.append(matrix.T @ slopes, slopes.sum())
    np.testing.assert_allclose(found.gradients[0], expected, rtol=1e-12)
    assert found.weight == rows.weights.sum()


def test_no_rows_have_no_say():
    found = Logistic().sums(column([]), (np.array([3.0]),), intercept=False)
    assert found.value == 0.0 and found.weight == 0.0 and found.gradients[0].tolist() == [0.0]


def test_a_row_of_weight_0_has_no_say_even_where_its_loss_is_infinite():
    rows = column([1.0, -1.0], weights=np.array([0.0, 2.0]))
    found = sums(lambda m, y: (np.where(y > 0, np.inf, m), np.where(y > 0, -np.inf, 1.0)), rows)
    assert found.value == 1.0 and found.gradients[0].tolist() == [2.0]


def test_what_is_raised_is_told_with_block_rows_and_line():
    def row(margins, labels):
        if labels[0] == 3.0:
            raise ZeroDivisionError("nothing is left")
        return margins, labels

    labels = np.zeros(3 * BLOCK_ROWS)
    labels[2 * BLOCK_ROWS] = 3.0
    with pytest.raises(LossError) as caught:
        sums(row, column(labels))
    text = str(caught.value)
    assert "row block 2, rows 16,384 to 24,575: ZeroDivisionError: nothing is left" in text
    assert f"({__file__}, line " in text
    assert 'in row: raise ZeroDivisionError("nothing is left"))' in text
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_line_is_the_users_where_numpy_raises_from_its_own():
    with pytest.raises(LossError, match=r"in <lambda>: .*np\.linalg\.inv\(m\)"):
        sums(lambda m, y: (np.linalg.inv(m), y), column([1.0]))


def test_an_error_pickles_and_can_be_placed_in_something_larger():
    error = LossError("mine", "row block 0, rows 0 to 5", "why").within("partition 3")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert str(again) == "the loss mine failed in partition 3, row block 0, rows 0 to 5: why"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda m, y: m, r"it returned ndarray, but it must return \(values, slopes\)"),
        (lambda m, y: (m, y, m), "it returned a tuple of 3, but"),
        (lambda m, y: (m.sum(), y), r"the values have the shape \(\), but .* shape \(2,\)"),
        (lambda m, y: (m, y[:1]), r"the slopes have the shape \(1,\), but"),
        (lambda m, y: (m * 1j, y), "the values have the dtype complex128"),
        (lambda m, y: (m, np.sqrt(-y)), r"slopes are NaN in row 1, where the margin is 0\.5 and"),
        (lambda m, y: (m, np.multiply(m, 2.0, out=m)), "ValueError: .*read-only"),
    ],
)
def test_what_cannot_be_values_and_slopes_is_refused(function, said):
    with pytest.raises(LossError, match=said):
        sums(function, column([-1.0, 1.0]))


def test_what_is_infinite_is_left_to_the_solver():
    assert sums(lambda m, y: (np.exp(1e4 * m), m), column([1.0])).value == np.inf
    assert np.isnan(sums(lambda m, y: (m - m, m), column([1.0]), at=np.inf).value)
    assert (
        sum_once_rounded([np.inf, -np.inf]) != sum_once_rounded([1.0])
        and sum_once_rounded([1e308, 1e308, -1e308]) == np.inf
    )


def test_a_loss_without_curvature_has_no_products():
    loss = Given(lambda m, y: (m, y))
    assert not loss.has_products and Logistic().has_products
    with pytest.raises(NotImplementedError):
        loss.products(column([1.0]), (np.zeros(1),), (np.ones(1),), intercept=False)
