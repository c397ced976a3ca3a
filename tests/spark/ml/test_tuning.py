"""Model selection: the results are those of pyspark's classes, with fewer passes over the rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from multiprocessing.pool import ThreadPool

import numpy as np
import pyarrow as pa
import pytest
from pyspark.ml import Pipeline, PipelineModel, classification, tuning
from pyspark.ml.evaluation import (
    BinaryClassificationEvaluator,
    ClusteringEvaluator,
    MulticlassClassificationEvaluator,
    RegressionEvaluator,
)
from pyspark.ml.feature import StandardScaler, VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F

from distvec.spark.ml.classification import LinearSVC, LogisticRegression
from distvec.spark.ml.clustering import KMeans
from distvec.spark.ml.regression import LinearRegression
from distvec.spark.ml.tuning import (
    CrossValidator,
    CrossValidatorModel,
    ParamGridBuilder,
    TrainValidationSplit,
)
from distvec.spark.ml.tuning import _metrics as metrics_of
from distvec.spark.objectives.objective import Objective

TIGHT = {"tol": 1e-10, "maxIter": 500}


@pytest.fixture(scope="module")
def rows(spark):
    """Labels of three classes with noise, a label of two, weights, and numbers of folds."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(90, 3))
    labels = (x @ [1.0, -2.0, 0.5] + rng.logistic(size=90) > 0.0) + np.where(x[:, 0] > 0.8, 1, 0)
    data = [
        (float(label), Vectors.dense(row), *map(float, row), float(k % 3 + 1), k % 2)
        for k, (row, label) in enumerate(zip(x, labels, strict=True))
    ]
    names = ["three", "features", "a", "b", "c", "w", "fold"]
    frame = spark.createDataFrame(data, names).coalesce(2)
    return frame.withColumn("label", F.least(F.col("three"), F.lit(1.0))).cache()


@pytest.fixture
def pools(monkeypatch):
    """Closes the pools of threads of pyspark's classes, which never do."""
    made = []
    monkeypatch.setattr(
        tuning, "ThreadPool", lambda processes: made.append(ThreadPool(processes)) or made[-1]
    )
    yield
    for pool in made:
        pool.terminate()


def test_cross_validation_is_that_of_pyspark(ps, rows, pools, monkeypatch, tmp_path):
    made = []
    init = Objective.__init__
    monkeypatch.setattr(Objective, "__init__", lambda *a, **k: (made.append(1), init(*a, **k))[1])
    estimator = LogisticRegression(**TIGHT)
    maps = ParamGridBuilder().addGrid(estimator.regParam, [0.01, 1.0]).build()
    metric = BinaryClassificationEvaluator(metricName="areaUnderPR", weightCol="w")
    params = {"estimator": estimator, "estimatorParamMaps": maps, "evaluator": metric}
    ours = CrossValidator(**params, numFolds=2, seed=4, collectSubModels=True)
    found = ours.fit(rows)
    assert len(made) == 3
    theirs = tuning.CrossValidator(**params, numFolds=2, seed=4, collectSubModels=True)
    expected = theirs.fit(rows)
    assert type(found) is type(expected) is CrossValidatorModel
    assert np.allclose(found.avgMetrics, expected.avgMetrics, rtol=1e-9)
    assert np.allclose(found.stdMetrics, expected.stdMetrics, atol=1e-9)
    assert found.bestModel.coefficients == expected.bestModel.coefficients
    each = (
        zip(*folds, strict=True) for folds in zip(found.subModels, expected.subModels, strict=True)
    )
    for one, other in chain.from_iterable(each):
        assert np.allclose(one.coefficients, other.coefficients, atol=1e-9)
        assert one.getRegParam() == other.getRegParam()
    assert rows.is_cached

    ours.save(str(tmp_path / "ours"))
    loaded = CrossValidator.load(str(tmp_path / "ours"))
    assert type(loaded) is CrossValidator and loaded.uid == ours.uid
    assert loaded.getNumFolds() == 2 and loaded.getEstimatorParamMaps() == maps
    found.save(str(tmp_path / "model"))
    model = CrossValidatorModel.load(str(tmp_path / "model"))
    assert model.bestModel.coefficients == found.bestModel.coefficients
    assert np.allclose(model.avgMetrics, found.avgMetrics) and len(model.subModels[1]) == 2
    by_column = ours.copy({ours.foldCol: "fold", ours.collectSubModels: False}).fit(rows)
    assert by_column.subModels is None and len(by_column.avgMetrics) == 2


def test_metrics_are_those_of_pyspark(ps, rows):
    """Of several models in one pass; what they predict need not be good."""
    three = LogisticRegression(labelCol="three", maxIter=3).fit(rows)
    classes = MulticlassClassificationEvaluator(labelCol="three", beta=2.0, metricLabel=1.0)
    names = "f1 hammingLoss weightedPrecision weightedFalsePositiveRate weightedFMeasure "
    names += "recallByLabel falsePositiveRateByLabel fMeasureByLabel logLoss"
    for name in names.split():
        evaluator = classes.copy({classes.metricName: name, classes.weightCol: "w"})
        check(evaluator, [three], rows)
    other = three.copy({three.thresholds: [0.2, 0.5, 0.3]})
    hits = [other.predict(row.features) == row.three for row in rows.collect()]
    accuracy = classes.copy({classes.metricName: "accuracy"})
    assert metrics_of([three, other], accuracy, rows)[1] == pytest.approx(np.mean(hits))
    two = [LogisticRegression(maxIter=2).fit(rows), LinearSVC(maxIter=2).fit(rows)]
    curves = BinaryClassificationEvaluator()
    for name in ("areaUnderROC", "areaUnderPR"):
        check(curves.copy({curves.metricName: name}), two, rows)
    check(BinaryClassificationEvaluator(rawPredictionCol="probability"), two[:1], rows)
    numbers = [LinearRegression(labelCol="three", regParam=1.0).fit(rows)]
    errors = RegressionEvaluator(labelCol="three", weightCol="w")
    for name in ("rmse", "mae", "r2", "var"):
        check(errors.copy({errors.metricName: name}), numbers, rows)
    check(errors.copy({errors.metricName: "r2", errors.throughOrigin: True}), numbers, rows)


def check(evaluator, models, rows):
    expected = [evaluator.evaluate(one.transform(rows)) for one in models]
    assert np.allclose(metrics_of(models, evaluator, rows), expected, rtol=1e-10), evaluator


def test_pipelines_splits_and_other_estimators(ps, rows, pools):
    estimator = LogisticRegression(**TIGHT)
    stages = [
        VectorAssembler(inputCols=["a", "b", "c"], outputCol="x"),
        StandardScaler(inputCol="x", outputCol="z"),
        estimator.setFeaturesCol("z"),
    ]
    maps = ParamGridBuilder().addGrid(estimator.regParam, [0.01, 1.0]).build()
    params = {
        "estimator": Pipeline(stages=stages),
        "estimatorParamMaps": maps,
        "evaluator": MulticlassClassificationEvaluator(),
        "seed": 3,
        "collectSubModels": True,
    }
    found = TrainValidationSplit(**params).fit(rows)
    expected = tuning.TrainValidationSplit(**params).fit(rows)
    assert np.allclose(found.validationMetrics, expected.validationMetrics, rtol=1e-12)
    for one, other in zip(found.subModels, expected.subModels, strict=True):
        assert type(one) is type(found.bestModel) is PipelineModel
        assert np.allclose(one.stages[2].coefficients, other.stages[2].coefficients, atol=1e-9)
    clusters = KMeans()
    maps = ParamGridBuilder().addGrid(clusters.k, [2, 3]).build()
    both = {"estimatorParamMaps": maps, "evaluator": ClusteringEvaluator(), "seed": 3}
    found = TrainValidationSplit(estimator=clusters, **both).fit(rows)
    assert len(set(found.validationMetrics)) == 2
    theirs = classification.LogisticRegression()
    maps = ParamGridBuilder().addGrid(theirs.maxIter, [0, 1]).build()
    both = {"estimatorParamMaps": maps, "evaluator": BinaryClassificationEvaluator()}
    assert len(TrainValidationSplit(estimator=theirs, **both).fit(rows).validationMetrics) == 2


def test_fits_of_several_threads_take_turns(ps, rows, monkeypatch):
    """As those of OneVsRest do: each one uses all slots."""
    inside, most, train = [], [], LogisticRegression._train

    def count(*args):
        inside.append(args)
        most.append(len(inside))
        try:
            return train(*args)
        finally:
            inside.pop()

    monkeypatch.setattr(LogisticRegression, "_train", count)
    estimator = LogisticRegression(maxIter=5)
    with ThreadPoolExecutor(3) as pool:
        one, *others = pool.map(estimator.fit, [rows] * 3)
    assert most == [1, 1, 1]
    assert all(one.coefficients == other.coefficients for other in others)


def test_folds_of_rows_that_are_not_cached_are_those_of_pyspark(ps, spark, pools):
    """Spark draws other numbers for the rows of a local list than for those in its cache."""
    features = [[float(k % 7), float(k % 5)] for k in range(60)]
    table = {"label": [float(k % 3 == 0) for k in range(60)], "features": features}
    frame = spark.createDataFrame(pa.table(table))
    estimator = LogisticRegression(maxIter=2)
    metric = MulticlassClassificationEvaluator(metricName="logLoss")
    params = {"estimator": estimator, "estimatorParamMaps": [{}], "evaluator": metric, "seed": 5}
    found = CrossValidator(**params, numFolds=2).fit(frame).avgMetrics
    expected = tuning.CrossValidator(**params, numFolds=2).fit(frame).avgMetrics
    assert np.allclose(found, expected, rtol=1e-12)
    found = TrainValidationSplit(**params).fit(frame).validationMetrics
    expected = tuning.TrainValidationSplit(**params).fit(frame).validationMetrics
    assert np.allclose(found, expected, rtol=1e-12)
