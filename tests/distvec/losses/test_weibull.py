"""Weibull survival times: against the definition in 60 digits, and R's values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses import Model, Objective, Rows, Weibull
from optim import SquaredL2Norm
from tests.distvec.losses.exact import (
    exact,
    exp,
    gradients,
    log,
    margins,
    parameters,
    problems,
    product,
    weights,
)

TIMES = st.sampled_from([0.25, 1.0, 2.0, 30.0])


def definition(rows, intercept):
    """The negative log-likelihood without the terms of the times alone."""

    def value(w, log_scale):
        m = margins(rows, w, intercept=intercept)
        seen = exact(np.ones(len(rows)) if rows.events is None else rows.events)
        s = log_scale[0]
        z = (log(exact(rows.labels)) - m) * exp(-s)
        return (weights(rows) * (seen * (s - z) + exp(z))).sum() if len(rows) else 0 * s

    return value


@st.composite
def drawn(draw):
    """Margins and scales of the size of 1, as values grow like exp(exp(-s))."""
    rows, (w, log_scale), intercept = draw(problems(Weibull(), TIMES, most_rows=4))
    if draw(st.booleans()):
        events = st.lists(st.sampled_from([0.0, 1.0]), min_size=len(rows), max_size=len(rows))
        rows = replace(rows, events=np.array(draw(events)))
    return rows, (np.clip(w, -1, 1), np.clip(log_scale, -0.5, 1)), intercept


@settings(deadline=None, max_examples=30)
@given(drawn(), st.data())
def test_sums_and_products_are_those_of_the_definition(case, data):
    rows, arrays, intercept = case
    value = definition(rows, intercept)
    w, log_scale = data.draw(parameters(Weibull(), rows.columns, intercept=intercept))
    ways = np.clip(w, -1, 1), np.clip(log_scale, -1, 1)
    sums = Weibull().sums(rows, arrays, intercept=intercept)
    products = Weibull().products(rows, arrays, ways, intercept=intercept)
    z = (np.log(rows.labels) - rows.margins(arrays[0], intercept=intercept)) / np.exp(arrays[1])
    slack = 1e-13 * (1.0 + 100.0 * float(weights(rows) @ ((1.0 + np.abs(z)) ** 2 * np.exp(z))))
    expected = float(value(*map(exact, arrays)))
    assert sums.value == pytest.approx(expected, rel=1e-13, abs=slack)
    for found, right in (
        (sums.gradients, gradients(value, arrays)),
        (products, product(value, arrays, ways)),
    ):
        for mine, his in zip(found, right, strict=True):
            np.testing.assert_allclose(mine, his.astype(float), rtol=1e-12, atol=slack)


def test_the_optimum_of_a_known_example():
    """That of R's survreg, which MLlib's documentation has, too."""
    x = np.array([[1.56, -0.605], [0.346, 2.158], [1.38, 0.231], [0.52, 1.151], [0.795, -0.226]])
    times, events = [1.218, 2.949, 3.627, 0.273, 4.199], [1, 0, 0, 1, 0]
    objective = Objective(
        Rows(x, times, events=events), loss=Weibull(), intercept=True, standardization=True
    )
    expected = [-0.4963111076, 0.1984442534, 2.6380946091]
    for method in (None, "trust-ncg"):
        found = objective.minimize(method=method, gradient_tolerance=1e-11)
        np.testing.assert_allclose(found.x["w"], expected, atol=1e-7)
        np.testing.assert_allclose(np.exp(found.x["log_scale"]), 1.5472345242, rtol=1e-7)
    model = objective.model(found.x)
    assert model.intercept == pytest.approx(2.6380946091) and model.num_features == 2
    np.testing.assert_allclose(model.predict(x), np.exp(x @ expected[:2] + expected[2]), rtol=1e-6)
    penalised = objective.with_penalty(SquaredL2Norm(1e6)).minimize().x
    assert abs(penalised["w"][:2]).max() < 1e-5 and abs(penalised["log_scale"][0]) > 0.1
    with pytest.raises(ValueError, match="row 1: the label is 0; this loss takes labels above 0"):
        Objective((x[:2], [1.0, 0.0]), loss=Weibull())


def test_a_number_of_all_features_is_no_row_of_a_feature():
    """Of a model over some of the features, too; and a start continues one of fewer features."""
    w, log_scale = np.array([1.0, 2.0, 3.0]), np.array([0.5])
    model = Model(
        {"w": w, "log_scale": log_scale},
        loss=Weibull(),
        intercept=True,
        coordinates=[1, 4],
        num_features=5,
    )
    whole = model.whole()
    assert whole.x["w"].tolist() == [0, 1, 0, 0, 2, 3] and whole.x["log_scale"] == log_scale
    row = np.array([[1.0, 2.0, 3.0, 4.0, 5.0]])
    assert model.margins(row) == whole.margins(row) == [15.0]
    objective = Objective((row, [1.0]), loss=Weibull(), intercept=True)
    start = objective.start(Model({"w": w, "log_scale": log_scale}, loss=Weibull(), intercept=True))
    assert start["w"].tolist() == [1, 2, 0, 0, 0, 3] and start["log_scale"].tolist() == [0.5]
    with pytest.raises(ValueError, match=r"log_scale has the shape \(2,\)"):
        Model({"w": w, "log_scale": np.zeros(2)}, loss=Weibull(), intercept=True)
