"""Models over keys: fits, streams, files, and scores by pulls of tasks."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.evaluation import BinaryClassificationEvaluator

from distvec.losses import Huber
from distvec.spark import KeyedObjective, LogisticLoss
from distvec.spark.ml.online import FTRLClassifier, FTRLClassifierModel, FTRLRegressor
from ps_backend.errors import ServerLost


@pytest.fixture(scope="module")
def clicks(spark):
    """Users and ads with planted weights."""
    rng = np.random.default_rng(2)
    users, ads = rng.integers(0, 20, 400), rng.integers(0, 5, 400)
    margins = rng.normal(size=20)[users] + rng.normal(size=5)[ads]
    y = (margins > 0).astype(float)
    columns = (users, ads, y, margins)
    data = [(f"u{u}", int(a), float(b), float(m)) for u, a, b, m in zip(*columns, strict=True)]
    return spark.createDataFrame(data, ["user", "ad", "label", "margin"]).coalesce(1).cache()


def test_a_lost_server_costs_time_alone(ps, clicks, kill, monkeypatch):
    """A task says which server it was, and the fit starts again."""
    estimator = FTRLClassifier(featuresCol=["user", "ad"], maxIter=2, exactlyOnce=True)
    keys, weights = estimator.fit(clicks).nonZeros()
    over, raised = KeyedObjective._over, []

    def kill_and_pass(*args, **options):
        if not raised:
            kill(ps.server_pids[0])
        try:
            return over(*args, **options)
        except Exception as error:
            raised.append(error)
            raise

    monkeypatch.setattr(KeyedObjective, "_over", kill_and_pass)
    with pytest.warns(RuntimeWarning, match="the fit starts again: server 0 was lost"):
        again = estimator.fit(clicks)
    assert [type(error) for error in raised] == [ServerLost]
    assert np.array_equal(again.weights.pull(keys), weights)


def test_a_classifier_on_frames_streams_and_files(ps, clicks, tmp_path, spark):
    params = {"featuresCol": ["user", "ad"], "stepSize": 0.5, "l1": 0.01, "batchSize": 16}
    estimator = FTRLClassifier(**params, maxIter=3, exactlyOnce=True)
    ps.counters.reset()
    model = estimator.fit(clicks)
    scored = model.transform(clicks)
    assert ps.counters.bytes_received < 100_000
    assert BinaryClassificationEvaluator().evaluate(scored) > 0.95
    assert model.numFeatures == 25 and model.progress.rows == 1200
    keys, weights = model.nonZeros()
    assert 0 < len(keys) <= 25 and np.array_equal(model.weights.pull(keys), weights)
    row = scored.first()
    assert row.probability[1] == pytest.approx(1 / (1 + np.exp(-row.rawPrediction[1])))
    assert row.prediction == float(row.probability[1] > 0.5)
    least = model.copy({model.threshold: 1.0, model.probabilityCol: ""}).transform(clicks)
    assert least.where("prediction > 0").count() == 0 and "probability" not in least.columns

    # Batches of a stream are as passes over frames; one that is repeated is left out.
    source = tmp_path / "rows"
    clicks.write.parquet(str(source))
    training = estimator.streaming()
    stream = spark.readStream.schema(clicks.schema).parquet(str(source))
    query = stream.writeStream.foreachBatch(training).trigger(availableNow=True).start()
    query.awaitTermination()
    assert training.progress.rows == 400
    training(clicks, 0)
    assert training.progress.rows == 400
    once = estimator.copy({estimator.maxIter: 1}).fit(clicks)
    assert np.array_equal(training.model.weights.pull(keys), once.weights.pull(keys))

    model.save(str(tmp_path / "model"))
    loaded = FTRLClassifierModel.load(str(tmp_path / "model"))
    assert loaded.transform(clicks).first().probability == row.probability
    assert loaded.intercept == model.intercept != 0.0
    resumed = estimator.streaming(loaded)
    resumed(clicks, 0)
    model.partial_fit(clicks)
    assert np.array_equal(loaded.weights.pull(keys), model.weights.pull(keys))
    for asked in (lambda: model.predict(None), lambda: model.write().format("mllib")):
        with pytest.raises(NotImplementedError):
            asked()


def test_a_regression_and_params(ps, clicks):
    estimator = FTRLRegressor(
        featuresCol=["user", "ad"], labelCol="margin", loss=Huber(), stepSize=1.0, maxIter=4
    )
    model = estimator.fit(clicks)
    rows = model.transform(clicks).collect()
    assert np.mean([abs(row.prediction - row.margin) for row in rows]) < 0.2
    with pytest.raises(ValueError, match="admit given invalid value 0; must be between 1 and 255"):
        FTRLClassifier(admit=0)
    with pytest.raises(TypeError, match="must be a loss of one margin"):
        FTRLRegressor(loss="huber")
    weights = model.weights
    with pytest.raises(ValueError, match="weights= have their own space"):
        LogisticLoss(keys=True, weights=weights, space=ps.keys(), ps=ps)
