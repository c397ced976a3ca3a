"""Wrong derivatives are found, with the place where they are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from distvec.losses import Hinge, LossError, Objective, block_loss, check_loss, row_loss
from optim import check_gradient
from tests.distvec.losses.test_shelf import SHELF


@pytest.mark.parametrize("loss", SHELF, ids=repr)
def test_the_shelf_is_right(loss):
    found = check_loss(loss)
    assert found, found
    assert check_loss(loss, margins=[0.125, 7.0]) and len(found.derivatives) >= 200
    assert {one.name for one in found.derivatives} == {"slope", "curvature"} - (
        set() if loss.has_products else {"curvature"}
    )


@row_loss
def cauchy(margins, labels):
    residuals = margins - labels
    return np.log1p(residuals**2), 2 * residuals / (1 + residuals)  # a square is missing


def test_a_wrong_slope_is_told_with_margin_and_label():
    found = check_loss(cauchy, margins=[0.5, 2.0, 3.0], labels=[0.5, 1.0, 1.0])
    assert not found
    assert [(one.margin, one.label) for one in found.derivatives if one.ok] == [
        (0.5, 0.5),
        (2.0, 1.0),
    ]
    assert found.worst.margin == 3.0 and found.worst.given == pytest.approx(4 / 3)
    heading, columns, row = str(found).splitlines()
    assert heading == "1 of 3 derivatives differ"
    assert columns.split() == ["margin", "label", "given", "by", "differences"]
    assert row.split() == ["slope", "3", "1", "1.3333333", "0.8"]


def test_a_wrong_curvature_is_told_too():
    class Wrong(Hinge):
        def curvature(self, margins, labels):
            return 2.0 * super().curvature(margins, labels)

    found = check_loss(Wrong(smoothing=0.5))
    assert not found and {one.name for one in found.derivatives if not one.ok} == {"curvature"}


def test_what_the_loss_cannot_do_is_said_as_ever():
    with pytest.raises(LossError, match="the slopes are NaN in row 0"):
        check_loss(row_loss(lambda m, y: (m, np.full(m.shape, np.nan))))


def test_a_wrong_gradient_of_an_objective_is_told_with_its_coordinate():
    @block_loss(parameters={"a": (), "b": (2,)})
    def wrong(X, y, weights, params):
        margins, table = X @ params["a"], X @ params["b"]
        value = weights @ (margins - y) ** 2 / 2 + weights @ (table**2).sum(axis=1) / 2
        by_table = X.T @ (weights[:, None] * table)
        by_table[1, 1] *= 1.5
        return value, {"a": X.T @ (weights * (margins - y)), "b": by_table}

    rng = np.random.default_rng(0)
    objective = Objective((rng.normal(size=(20, 3)), rng.normal(size=20)), loss=wrong)
    point = {"a": rng.normal(size=3), "b": rng.normal(size=(3, 2))}
    found = check_gradient(objective, point, directions=0)
    assert [one.direction for one in found.derivatives if not one.ok] == ["x['b'][1, 1]"]


def test_what_has_no_margins_is_checked_elsewhere():
    with pytest.raises(TypeError, match=r"has no margins; use optim\.check_gradient"):
        check_loss(block_loss(lambda X, y, c, w: (0.0, w)))
