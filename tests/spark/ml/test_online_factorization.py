"""Factorization machines over keys: fits, streams, files, rounds, and rows that cannot be used."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.sql import Row

from distvec.losses import KeyedMachine, Squared
from distvec.spark.ml.online import FTRLClassifier
from distvec.spark.ml.online_factorization import (
    OnlineFMClassifier,
    OnlineFMClassifierModel,
    OnlineFMRegressor,
)

PARAMS = {
    "featuresCol": ["user", "ad"], "stepSize": 0.2, "batchSize": 32, "factorSize": 4,
    "factorStepSize": 0.5, "admitFactors": 2, "initStd": 0.3, "seed": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def clicks(spark):
    """Clicks where the kinds of user and ad agree: no weight of one of them tells."""
    rng = np.random.default_rng(2)
    users, ads = rng.integers(0, 20, 600), rng.integers(0, 6, 600)
    labels = (users % 2 == ads % 2).astype(float)
    columns = (users.tolist(), ads.tolist(), labels.tolist())
    data = [(f"u{u}", a, y, [f"user=u{u}", f"ad={a}"]) for u, a, y in zip(*columns, strict=True)]
    frame = spark.createDataFrame(data, ["user", "ad", "label", "keys"])
    return frame.coalesce(1).cache()


def test_a_fit_takes_the_steps_of_a_machine_without_spark(ps, clicks):
    rows = clicks.collect()
    for fields in (0, 2):
        model = OnlineFMClassifier(**PARAMS, numFields=fields).fit(clicks)
        machine = KeyedMachine(
            ps, factors=4, fields=fields, step_size=0.2, factor_step_size=0.5, admit=2,
            spread=0.3, seed=1,
        )  # fmt: skip
        for low in range(0, len(rows), 32):
            some = rows[low : low + 32]
            machine.partial_fit([row["keys"] for row in some], [row.label for row in some])
        margins = machine.margins([row["keys"] for row in rows])
        scored = model.transform(clicks).collect()
        assert [row.rawPrediction[1] for row in scored] == margins.tolist()
        assert model.numFeatures == 26 and model.numFactors == len(machine.factors) > 20
        assert model.progress.rows == 600 and model.intercept == machine.intercept


def test_pairs_are_learned_from_frames_streams_and_files(ps, clicks, tmp_path, spark, capsys):
    estimator = OnlineFMClassifier(**PARAMS, maxIter=6, verbose=True)
    model = estimator.fit(clicks)
    assert capsys.readouterr().out.count("AUC") == 6
    judge = BinaryClassificationEvaluator()
    assert judge.evaluate(model.transform(clicks)) > 0.95
    linear = FTRLClassifier(featuresCol=["user", "ad"]).fit(clicks)
    assert judge.evaluate(linear.transform(clicks)) < 0.75

    path = str(tmp_path / "model")
    model.save(path)
    loaded = OnlineFMClassifierModel.load(path)
    assert loaded.transform(clicks).first() == model.transform(clicks).first()
    source = tmp_path / "rows"
    clicks.write.parquet(str(source))
    training = estimator.streaming(loaded)
    stream = spark.readStream.schema(clicks.schema).parquet(str(source))
    query = stream.writeStream.foreachBatch(training).trigger(availableNow=True).start()
    query.awaitTermination()
    assert training.progress.rows == 600
    model.partial_fit(clicks)
    keys, weights = model.nonZeros()
    assert np.array_equal(loaded.weights.pull(keys), weights)
    assert np.array_equal(loaded.factors.pull(keys), model.factors.pull(keys))


def test_rounds_count_each_row_once_in_any_order_of_tasks(ps, clicks):
    frame = clicks.repartition(3, "user").cache()
    estimator = OnlineFMClassifier(**PARAMS, exactlyOnce=True, maxIter=2)
    found = [estimator.fit(frame) for _ in range(2)]
    keys, weights = found[0].nonZeros()
    assert len(keys) == 26 and np.array_equal(found[1].weights.pull(keys), weights)
    assert found[0].numFactors == found[1].numFactors > 20
    assert np.array_equal(found[0].factors.pull(keys), found[1].factors.pull(keys))


def test_a_regression_a_limit_of_memory_and_unusable_rows(ps, clicks, spark):
    regressor = OnlineFMRegressor(**PARAMS, maxIter=4, loss=Squared(), maxBytes=1 << 20)
    model = regressor.fit(clicks)
    rows = model.transform(clicks).collect()
    assert np.mean([abs(row.prediction - row.label) for row in rows]) < 0.3
    assert model.evict(10) == 17 and model.numFeatures == 9  # with the intercept
    small = model.copy({model.maxBytes: 1})  # is full, so that the next batch drops a half
    assert small.partial_fit(clicks.limit(1)).numFeatures < 9

    one = OnlineFMClassifier(**PARAMS, weightCol="c").fit
    data = {"user": "a", "ad": 1, "label": 1.0, "c": 1.0}
    assert one(spark.createDataFrame([Row(**data)])).numFeatures == 2
    empty = spark.createDataFrame([], "user string, ad int, label double, c double")
    assert one(empty).numFeatures == 0
    for wrong, told in [
        ({"user": None}, "the column user has nulls"),
        ({"c": -1.0}, "the weight is -1.0"),
        ({"label": 3.0}, "the label is 3"),
    ]:
        bad = spark.createDataFrame([data | wrong], empty.schema, verifySchema=False)
        with pytest.raises(Exception, match=told):
            one(bad)
    for params, told in [
        ({"numFields": 1}, "must be 0, or 2 or more"),
        ({"factorSize": 0}, "factorSize given invalid value 0"),
        ({"admitFactors": -1}, "admitFactors given invalid value -1"),
    ]:
        with pytest.raises(ValueError, match=told):
            OnlineFMClassifier(**params)
