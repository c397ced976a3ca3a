"""Survival times of pyspark.ml by another import: optimum, predictions, Params, files."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml import regression
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors

from distvec.spark.ml.regression import AFTSurvivalRegression, AFTSurvivalRegressionModel

ROWS = [
    (1.218, 1.0, Vectors.dense(1.560, -0.605)),
    (2.949, 0.0, Vectors.dense(0.346, 2.158)),
    (3.627, 0.0, Vectors.sparse(2, {0: 1.380, 1: 0.231})),
    (0.273, 1.0, Vectors.dense(0.520, 1.151)),
    (4.199, 0.0, Vectors.dense(0.795, -0.226)),
]


@pytest.fixture(scope="module")
def times(spark):
    return spark.createDataFrame(ROWS, ["label", "censor", "features"]).coalesce(2)


def test_the_optimum_is_that_of_mllib(ps, times, tmp_path):
    model = AFTSurvivalRegression(tol=1e-12, maxIter=1000).fit(times)
    assert np.allclose(model.coefficients, [-0.4963111076, 0.1984442534], rtol=0, atol=1e-7)
    assert model.intercept == pytest.approx(2.6380946091, abs=1e-7)
    assert model.scale == pytest.approx(1.5472345242, abs=1e-7)
    model.setQuantileProbabilities([0.1, 0.6]).setQuantilesCol("q")
    model.write().format("mllib").save(str(tmp_path / "mllib"))
    theirs = regression.AFTSurvivalRegressionModel.load(str(tmp_path / "mllib"))
    assert theirs.getQuantileProbabilities() == [0.1, 0.6] and theirs.uid == model.uid
    theirs.save(str(tmp_path / "theirs"))
    model.save(str(tmp_path / "ours"))
    expected = theirs.transform(times).collect()
    arrays = times.withColumn("x", vector_to_array("features"))
    for ours in (
        model,
        AFTSurvivalRegressionModel.load(str(tmp_path / "theirs")),
        AFTSurvivalRegressionModel.load(str(tmp_path / "ours")),
        AFTSurvivalRegressionModel.from_mllib(theirs),
    ):
        assert ours.transform(times).columns == theirs.transform(times).columns
        found = ours.copy().setFeaturesCol("x").transform(arrays).collect()
        for row, his in zip(found, expected, strict=True):
            assert row.prediction == pytest.approx(his.prediction, rel=1e-12)
            assert ours.predict(his.features) == pytest.approx(his.prediction, rel=1e-12)
            assert np.allclose(row.q, his.q, rtol=1e-12, atol=0.0)
            assert np.allclose(ours.predictQuantiles(his.features), his.q, rtol=1e-12, atol=0.0)


def test_times_that_are_fit_exactly_have_no_optimum(ps, times):
    """The example of pyspark's docstring, where MLlib's first search fails; and a larger scale."""
    frame = times.sparkSession.createDataFrame(
        [(1.0, 1.0, 1.0), (1e-40, 0.0, 0.0)], ["label", "x", "censor"]
    )
    with pytest.warns(RuntimeWarning, match="the likelihood has no maximum"):
        model = AFTSurvivalRegression(featuresCol=["x"]).fit(frame)
    assert (model.scale, model.predict(Vectors.dense(6.3))) == (1.0, 1.0)
    expected = [0.0101, 0.0513, 0.1054, 0.2877, 0.6931, 1.3863, 2.3026, 2.9957, 4.6052]
    assert np.allclose(model.predictQuantiles(Vectors.dense(6.3)), expected, atol=5e-5)


def test_params(ps, times):
    estimator = AFTSurvivalRegression(quantileProbabilities=[0.5], censorCol="c")
    assert estimator.getCensorCol() == "c" and estimator.setMaxIter(7).getMaxIter() == 7
    for wrong in ([], [0.0], [0.5, 1.0]):
        with pytest.raises(ValueError, match="quantileProbabilities given invalid value"):
            AFTSurvivalRegression(quantileProbabilities=wrong)
    with pytest.raises(ValueError, match="the event is 2; allowed are 1"):
        AFTSurvivalRegression().fit(times.withColumn("censor", times.censor + 1.0))
    with pytest.raises(ValueError, match=r"the label is -.*takes labels above 0"):
        AFTSurvivalRegression().fit(times.withColumn("label", -times.label))
