"""Factorization machines of pyspark.ml by another import: steps, predictions, Params, files."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml import classification, regression
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import DenseMatrix, SparseVector, Vectors

from distvec.spark.ml.classification import FMClassificationModel, FMClassifier
from distvec.spark.ml.factorization import JavaGaussians
from distvec.spark.ml.regression import FMRegressionModel, FMRegressor


def as_sparse(row):
    return SparseVector(row.size, np.flatnonzero(row).tolist(), row[row != 0].tolist())


@pytest.fixture(scope="module")
def frame(spark):
    """Sparse and dense rows with pairs that matter, in two partitions."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)).round(2) * (rng.random((40, 4)) < 0.7)
    real = x @ [1.0, -1.0, 0.5, 0.0] + 2 * x[:, 0] * x[:, 1]
    rows = [
        (float(y), float(y > 0), Vectors.dense(row) if k % 2 else as_sparse(row))
        for k, (row, y) in enumerate(zip(x, real, strict=True))
    ]
    names = ["real", "label", "features"]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), names)


def parameters(model):
    return np.concatenate([model.factors.toArray().ravel(), model.linear, [model.intercept]])


def test_normal_numbers_are_those_of_java(spark):
    java = spark.sparkContext._jvm.java.util.Random(-7)
    ours = JavaGaussians(-7)
    found = np.concatenate([ours.take(3), ours.take(40), ours.take(7)])
    assert np.allclose(found, [java.nextGaussian() for _ in found], rtol=1e-15, atol=0.0)
    assert JavaGaussians(11).take(100_001).tobytes() == JavaGaussians(11).take(100_001).tobytes()


@pytest.mark.parametrize(
    "params",
    [
        {"seed": 3, "maxIter": 6, "regParam": 0.01},
        {"solver": "gd", "seed": 5, "maxIter": 4, "regParam": 0.1, "stepSize": 0.2},
        {"fitLinear": False, "fitIntercept": False, "maxIter": 99, "tol": 0.1, "stepSize": 0.3},
    ],
    ids=["adamW", "gd", "pairs alone until the stop"],
)
def test_steps_are_those_of_mllib(ps, frame, params, tmp_path):
    given = {"factorSize": 3, "labelCol": "real", "seed": 1} | params
    ours, his = FMRegressor(**given).fit(frame), regression.FMRegressor(**given).fit(frame)
    assert np.allclose(parameters(ours), parameters(his), rtol=1e-9, atol=1e-9)
    assert repr(ours).partition("numF")[2] == str(his).partition("numF")[2]
    assert type(ours.linear) is type(his.linear) and ours.numFeatures == his.numFeatures == 4
    if "tol" in params:
        assert 2 < len(ours._training.history) < 20
        return
    ours.write().format("mllib").save(str(tmp_path / "mllib"))
    his = regression.FMRegressionModel.load(str(tmp_path / "mllib"))
    his.save(str(tmp_path / "his"))
    expected = [row.prediction for row in his.transform(frame).collect()]
    arrays = frame.withColumn("x", vector_to_array("features"))
    for model in (ours, FMRegressionModel.load(str(tmp_path / "his"))):
        rows = model.copy().setFeaturesCol("x").transform(arrays).collect()
        assert np.allclose([row.prediction for row in rows], expected, rtol=1e-12)
        assert np.allclose([model.predict(row.features) for row in rows], expected, rtol=1e-12)


def test_two_classes(ps, frame, tmp_path):
    given = {"factorSize": 2, "seed": 11, "maxIter": 8, "stepSize": 0.3, "regParam": 1e-3}
    ours, his = FMClassifier(**given).fit(frame), classification.FMClassifier(**given).fit(frame)
    assert np.allclose(parameters(ours), parameters(his), rtol=1e-8, atol=1e-8)
    metrics, expected = ours.summary(), his.summary()
    assert np.allclose(metrics.objectiveHistory, expected.objectiveHistory, rtol=1e-8)
    assert metrics.totalIterations == expected.totalIterations
    assert metrics.areaUnderROC == pytest.approx(expected.areaUnderROC)
    assert ours.evaluate(frame).accuracy == expected.accuracy > 0.9
    ours.write().format("mllib").save(str(tmp_path / "mllib"))
    loaded = FMClassificationModel.load(str(tmp_path / "mllib"))
    assert loaded.uid == ours.uid and isinstance(loaded.factors, DenseMatrix)
    his = classification.FMClassificationModel.load(str(tmp_path / "mllib"))
    arrays = frame.withColumn("x", vector_to_array("features"))
    for thresholds in (None, [0.2, 0.8]):
        for model in (loaded, his):
            model._set(**({} if thresholds is None else {"thresholds": thresholds}))
        rows = loaded.copy().setFeaturesCol("x").transform(arrays).collect()
        for row, right in zip(rows, his.transform(frame).collect(), strict=True):
            assert row.prediction == right.prediction == loaded.predict(right.features)
            for column, method in (("rawPrediction", "Raw"), ("probability", "Probability")):
                again = getattr(loaded, f"predict{method}")(right.features)
                assert np.allclose(row[column], right[column], atol=1e-12)
                assert np.allclose(again, right[column], atol=1e-12)
    with pytest.raises(ValueError, match=r"Labels MUST be in \{0, 1\}, but got 2.0"):
        FMClassifier().fit(frame.withColumn("label", frame.label + 1.0))


def test_samples_of_rows_and_other_solvers(ps, frame):
    """A batch of a third of the rows is drawn alike by each fit; some of few rows have none."""
    given = {"factorSize": 2, "labelCol": "real", "seed": 1, "stepSize": 0.05}
    estimator = FMRegressor(miniBatchFraction=0.3, maxIter=30, **given)
    first, again = estimator.fit(frame), estimator.fit(frame)
    assert parameters(first).tobytes() == parameters(again).tobytes()
    history = first._training.history
    assert len(set(history)) == 31 and sum(history[-10:]) < sum(history[:10])
    few = frame.limit(2).coalesce(1)
    model = estimator.copy({estimator.miniBatchFraction: 0.2, estimator.maxIter: 6}).fit(few)
    assert len(model._training.history) == 7
    exact = FMRegressor(optimizer="L-BFGS", regParam=1e-3, tol=1e-10, **given).fit(frame)
    assert exact._training.history[-1] < 0.5 * exact._training.history[0]
    table, w = exact.factors.toArray(), np.append(exact.linear, exact.intercept)
    predicted = [exact.predict(row.features) for row in frame.collect()]
    errors = np.array(predicted) - [row.real for row in frame.collect()]
    value = np.square(errors).mean() + 5e-4 * (np.square(table).sum() + np.square(w).sum())
    assert exact._training.history[-1] == pytest.approx(value, rel=1e-9)


def test_params():
    estimator = FMClassifier(factorSize=2, solver="gd").setSeed(7).setInitStd(0.5)
    assert (estimator.getSeed(), estimator.getSolver(), estimator.getInitStd()) == (7, "gd", 0.5)
    for name, value in (("factorSize", 0), ("miniBatchFraction", 0.0), ("solver", "sgd")):
        with pytest.raises(ValueError, match=f"{name} given invalid value"):
            FMRegressor(**{name: value})
