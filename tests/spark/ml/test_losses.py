"""Estimators of any loss, and models that stay on the servers."""

from __future__ import annotations

from multiprocessing.pool import ThreadPool

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel, tuning
from pyspark.ml.evaluation import RegressionEvaluator
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

from distvec.losses import Huber, Logistic, PairwiseRanking, Poisson, Quantile, Softmax, row_loss
from distvec.spark import Model
from distvec.spark.ml import models
from distvec.spark.ml.classification import LogisticRegression, LogisticRegressionModel
from distvec.spark.ml.losses import LossEstimator, LossModel
from distvec.spark.ml.regression import GeneralizedLinearRegression, LinearRegression


@row_loss
def pseudo_huber(margins, labels, delta=1.0):
    residuals = (margins - labels) / delta
    return delta**2 * (np.sqrt(1 + residuals**2) - 1)


@pytest.fixture(scope="module")
def rows(spark):
    """Labels with noise that is no normal one, and groups."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 3)) * [1.0, 3.0, 0.5]
    y = x @ [1.0, -0.5, 2.0] + 0.7 + rng.exponential(size=200)
    data = [
        (float(b), Vectors.dense(a), int(k % 9)) for k, (a, b) in enumerate(zip(x, y, strict=True))
    ]
    return spark.createDataFrame(data, ["label", "features", "query"]).coalesce(2).cache()


@pytest.fixture
def pools(monkeypatch):
    """Ends the threads of ``CrossValidator``, which pyspark never does."""
    made = []
    monkeypatch.setattr(
        tuning, "ThreadPool", lambda processes: made.append(ThreadPool(processes)) or made[-1]
    )
    yield
    for pool in made:
        pool.terminate()


@pytest.mark.usefixtures("pools")
def test_quantiles_in_a_pipeline_with_folds(ps, rows, tmp_path):
    estimator = LossEstimator(loss=pseudo_huber(delta=0.5), tol=1e-8)
    grid = ParamGridBuilder().addGrid(estimator.regParam, [0.0, 100.0]).build()
    validator = CrossValidator(
        estimator=estimator, estimatorParamMaps=grid, evaluator=RegressionEvaluator(), numFolds=2
    )
    fitted = Pipeline(stages=[validator]).fit(rows)
    best = fitted.stages[0].bestModel
    assert type(best) is LossModel and best.getRegParam() == 0.0
    high = estimator.copy({estimator.loss: Quantile(quantile=0.9, smoothing=0.05)}).fit(rows)
    found = high.transform(rows).select("label", "prediction", "rawPrediction", "features")
    found = found.collect()
    assert 0.88 < np.mean([row.label <= row.prediction for row in found]) < 0.92
    assert all(row.prediction == row.rawPrediction for row in found)
    assert high.predict(found[0].features) == pytest.approx(found[0].prediction, abs=1e-12)
    assert high.summary.totalIterations == len(high.summary.objectiveHistory) - 1

    stages = [best, high.copy({high.predictionCol: "high", high.rawPredictionCol: ""})]
    PipelineModel(stages).save(str(tmp_path / "both"))
    loaded = PipelineModel.load(str(tmp_path / "both"))
    assert loaded.stages[0].getLoss() == pseudo_huber(delta=0.5)
    again = loaded.transform(rows).select("high").collect()
    assert [row.high for row in again] == [row.prediction for row in found]
    estimator.save(str(tmp_path / "estimator"))
    assert LossEstimator.load(str(tmp_path / "estimator")).getLoss() == estimator.getLoss()
    assert high.to_mllib().coefficients == high.coefficients
    with pytest.raises(NotImplementedError, match="MLlib has no class LossModel"):
        best.write().format("mllib")

    @row_loss
    def local(margins, labels):
        return (margins - labels) ** 2

    with pytest.raises(ValueError, match=r"local cannot be saved.*define it at the top"):
        LossEstimator(loss=local).save(str(tmp_path / "local"))
    with pytest.raises(ValueError, match="LossEstimator needs a loss"):
        LossEstimator().fit(rows)


def test_rankings_and_classes(ps, rows, tmp_path):
    graded = rows.selectExpr("cast(label > 1 as double) label", "features", "query")
    ranking = LossEstimator(loss=PairwiseRanking(), groupCol="query", regParam=0.01)
    model = ranking.fit(graded)
    assert model.intercept == 0.0 and model.coefficients[0] > 0 > model.coefficients[1]
    found = model.transform(graded).collect()
    assert all(row.prediction == row.rawPrediction for row in found)
    model.save(str(tmp_path / "ranking"))
    assert LossModel.load(str(tmp_path / "ranking")).getLoss() == PairwiseRanking()
    classes = LossEstimator(loss=Softmax(), regParam=0.01).fit(graded)
    expected = LogisticRegression(family="multinomial", regParam=0.01).fit(graded)
    row = classes.transform(graded).first()
    assert row.prediction == expected.predict(row.features)
    assert np.allclose(row.rawPrediction, expected.predictRaw(row.features), atol=1e-4)
    assert np.allclose(row.probability, expected.predictProbability(row.features), atol=1e-4)
    assert "probability" not in found[0]  # a ranking has none
    with pytest.raises(ValueError, match=r"no single vector .*use model\.fitted\.coefficients"):
        _ = classes.coefficients
    with pytest.raises(ValueError, match=r"no single intercept; use model\.fitted\.intercept"):
        _ = classes.intercept


def test_counts_with_an_offset(ps, spark):
    """The optimum is that of generalized linear regression."""
    rng = np.random.default_rng(0)
    data = [(float(rng.poisson(np.exp(a + 0.5 * b))), float(a), float(b))
            for a, b in rng.normal(size=(80, 2))]  # fmt: skip
    counts = spark.createDataFrame(data, ["label", "a", "b"]).coalesce(1)
    given = {"offsetCol": "a", "featuresCol": ["b"], "tol": 1e-12}
    model = LossEstimator(loss=Poisson(), **given).fit(counts)
    expected = GeneralizedLinearRegression(family="poisson", **given).fit(counts)
    found = [model.coefficients[0], model.intercept]
    assert np.allclose(found, [expected.coefficients[0], expected.intercept], atol=1e-6)
    assert model.predict(Vectors.dense(0.3)) == pytest.approx(
        expected.predict(Vectors.dense(0.3)), rel=1e-5
    )


def test_models_stay_on_the_servers(ps, spark, tmp_path, monkeypatch):
    size = 200_000
    rng = np.random.default_rng(0)
    used = np.sort(rng.choice(size, 40, replace=False))
    data = []
    for _ in range(60):
        some = np.sort(rng.choice(40, 5, replace=False))
        vector = Vectors.sparse(size, used[some].tolist(), [1.0] * 5)
        data.append((float((some < 20).sum() > 2), vector, float(some.sum())))
    frame = spark.createDataFrame(data, ["label", "features", "y"]).coalesce(2).cache()
    estimator = LogisticRegression(regParam=0.01, elasticNetParam=0.5, standardization=False)
    expected = estimator.fit(frame)
    huber = LossEstimator(loss=Huber(), labelCol="y", maxIter=3)
    compact = huber.copy({huber.compact: True, huber.regParam: 0.1}).fit(frame)
    whole = huber.copy({huber.regParam: 0.1}).fit(frame)
    assert len(compact.fitted.coordinates) == len(compact.nonZeros()[0]) == 40
    assert np.allclose(compact.coefficients.toArray(), whole.coefficients.toArray(), atol=1e-8)
    compact.save(str(tmp_path / "compact"))
    again = LossModel.load(str(tmp_path / "compact"))
    assert again.coefficients == compact.coefficients and again.fitted.is_local
    found = [[row.prediction for row in one.transform(frame).collect()] for one in (again, whole)]
    assert np.allclose(*found, atol=1e-8)
    monkeypatch.setattr(models, "LOCAL_PARAMETERS", 1000)
    ps.counters.reset()
    model, other = estimator.fit(frame), huber.fit(frame)
    line = LinearRegression(labelCol="y", solver="l-bfgs", maxIter=2, regParam=0.1).fit(frame)
    scores = [row.prediction for row in model.transform(frame).collect()]
    assert scores == [row.prediction for row in expected.transform(frame).collect()]
    part = model.fitted.coefficients[used[0] : used[0] + 1].numpy()
    features, values = model.nonZeros()
    model.save(str(tmp_path / "model"))
    other.save(str(tmp_path / "other"))
    loaded = LogisticRegressionModel.load(str(tmp_path / "model"))
    assert [row.prediction for row in loaded.transform(frame).collect()] == scores
    assert not loaded.fitted.is_local and loaded.getRegParam() == 0.01
    warm = LogisticRegression(initialModel=loaded, maxIter=1).fit(frame)
    assert LossModel.load(str(tmp_path / "other")).numFeatures == warm.numFeatures == size
    assert ps.counters.bytes_received < 8 * size  # partial results; one vector has as many

    assert line.summary.degreesOfFreedom == 60 - size - 1 and 0.0 < line.summary.r2 < 1.0

    local = expected.coefficients.toArray()
    assert part == local[used[0]] and 0 < len(features) <= 40
    assert np.array_equal(features, np.flatnonzero(local))
    assert np.array_equal(values, local[features])
    expected_features, expected_values = expected.nonZeros()
    assert np.array_equal(expected_features, features)
    assert np.array_equal(expected_values, values)
    for refused in (lambda: model.coefficients, lambda: model.to_mllib()):
        with pytest.raises(ValueError, match=r"on the servers; read a slice"):
            refused()
    with pytest.raises(ValueError, match="on the servers"):
        model.write().format("mllib").save(str(tmp_path / "mllib"))


@pytest.mark.long
def test_a_model_of_more_than_two_gigabytes_is_saved_and_loaded(ps, spark, tmp_path):
    size = 280_000_000
    used = np.array([0, 1 << 28, size - 1])
    x = ps.zeros(size)
    x[used] = [1.5, -2.5, 0.5]
    model = LogisticRegressionModel(Model(x, loss=Logistic(), intercept=False))
    model.save(str(tmp_path / "model"))
    loaded = LogisticRegressionModel.load(str(tmp_path / "model"))
    features, values = loaded.nonZeros()
    assert np.array_equal(features, used) and values.tolist() == [1.5, -2.5, 0.5]
    assert loaded.fitted.coefficients[1 << 28 : (1 << 28) + 2].numpy().tolist() == [-2.5, 0.0]
    frame = spark.createDataFrame(
        [(Vectors.sparse(size, [0, size - 1], [1.0, -1.0]),)], ["features"]
    )
    assert loaded.transform(frame).first().rawPrediction[1] == 1.0
