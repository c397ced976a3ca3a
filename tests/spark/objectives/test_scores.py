"""Margins by tasks that pull only what their rows touch."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import functions

from distvec.losses import FactorizationMachine, Softmax
from distvec.spark import LogisticLoss, scores

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("intercept", [False, True])
def test_margins(ps, problem, intercept):
    w = np.random.default_rng(3).normal(size=3000 + intercept)
    scored = scores(problem.frame, ps.array(w), output="margin", intercept=intercept)
    assert scored.columns == ["features", "label", "weight", "margin"]
    found = [row.margin for row in scored.select("margin").collect()]
    expected = problem.x @ w[:3000] + (w[-1] if intercept else 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_it_is_lazy_and_holds_its_weights(ps, problem):
    scored = scores(problem.frame, ps.ones(3000) * 2.0)
    assert scored.filter("score != 0").count() == np.count_nonzero(problem.x.sum(axis=1))


def test_a_frame_made_of_a_scored_one_has_the_model_of_a_temporary(ps, problem):
    found = scores(problem.frame, ps.ones(3000) * 3.0).select("score").collect()
    np.testing.assert_allclose([row.score for row in found], 3.0 * problem.x.sum(axis=1))


def test_several_columns_of_numbers_are_the_features_in_their_order(ps, spark):
    frame = spark.createDataFrame([(1.0, 2, 0.0), (-3.0, 4, 1.0)], ["a", "b.c", "label"])
    with LogisticLoss(frame, features=["b.c", "a"]) as loss:
        value = float(loss(ps.array([0.5, 2.0]))[0])
        found = [row.score for row in loss.scores(frame, ps.array([0.5, 2.0])).collect()]
    assert found == [3.0, -4.0]
    assert value == pytest.approx(np.logaddexp(0.0, [3.0, 4.0]).mean())


def test_rows_without_features_have_nothing_to_fit(ps, spark):
    frame = spark.createDataFrame([(0.0,), (1.0,)], ["label"])
    frame = frame.withColumn("features", functions.array().cast("array<double>"))
    with pytest.raises(ValueError, match=r"features='features': every row has 0 .*intercept=True"):
        LogisticLoss(frame)
    with LogisticLoss(frame, intercept=True) as loss:
        assert float(loss(ps.zeros(1))[0]) == pytest.approx(np.log(2.0))


def test_refusals(ps, problem):
    with pytest.raises(TypeError, match="weights must be a DistArray of a PSContext"):
        scores(problem.frame, np.zeros(3000))
    with pytest.raises(TypeError, match="weights have dtype bool"):
        scores(problem.frame, ps.zeros(3000, dtype=bool))
    with pytest.raises(ValueError, match="features='nothing': the data has no such column"):
        scores(problem.frame, ps.zeros(3000), features="nothing")
    with pytest.raises(Exception, match="rows have 3000 features, the weights 7"):
        scores(problem.frame, ps.zeros(7)).collect()


def test_of_a_table_and_of_a_dict(ps, problem):
    rng, x = np.random.default_rng(4), problem.x
    table = rng.normal(size=(3001, 2))
    scored = scores(problem.frame, ps.array(table), loss=Softmax(classes=2), intercept=True)
    found = [row.score for row in scored.select("score").collect()]
    np.testing.assert_allclose(found, x @ table[:-1] + table[-1], rtol=1e-12, atol=1e-12)

    w, v = rng.normal(size=3000), rng.normal(size=(3000, 2))
    model = {"w": ps.array(w), "V": ps.array(v)}
    scored = scores(problem.frame, model, loss=FactorizationMachine(2), output="margin")
    found = [row.margin for row in scored.select("margin").collect()]
    pairs = 0.5 * ((x @ v) ** 2 - (x * x) @ (v * v)).sum(axis=1)
    np.testing.assert_allclose(found, x @ w + pairs, rtol=1e-10, atol=1e-11)
