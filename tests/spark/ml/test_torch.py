"""Networks that are trained on DataFrames: the numbers of one process, files, sparse features."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.linalg import Vectors

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from distvec.losses import LossError, Objective, Rows  # noqa: E402
from distvec.spark.torch import TorchEstimator, TorchModel  # noqa: E402
from distvec.torch import Network  # noqa: E402
from tests.spark.ml.torch_networks import three_classes, two_layers, wide_and_deep  # noqa: E402

BINARY = F.binary_cross_entropy_with_logits


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 3)) * (rng.random((60, 3)) < 0.4)
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(float)
    return x, y, rng.integers(0, 3, 60).astype(float)


@pytest.fixture(scope="module")
def frame(spark, numbers):
    """Sparse vectors and dense ones, in partitions of which one is empty."""
    x, y, weights = numbers
    data = [
        (Vectors.dense(a) if k % 2 else Vectors.sparse(3, np.flatnonzero(a), a[a != 0]), b, c)
        for k, (a, b, c) in enumerate(zip(x, y.tolist(), weights.tolist(), strict=True))
    ]
    rdd = spark.sparkContext.parallelize(data, 3)
    empty = spark.sparkContext.parallelize([], 1)
    names = ["features", "label", "weight"]
    return spark.createDataFrame(rdd.union(empty), names).cache()


def test_steps_are_those_of_one_process_on_any_partitions(ps, frame, numbers):
    x, y, weights = numbers
    options = {"step_size": 0.05}
    estimator = TorchEstimator(
        model=two_layers, loss=BINARY, weightCol="weight", batchSize=0, maxIter=25,
        optimizer="Adam", optimizerOptions={**options, "full_every": 0},
    )  # fmt: skip
    local = Objective(Rows(x, y, weights), loss=Network(two_layers, BINARY))
    expected = local.minimize(method="Adam", max_iterations=25, **options).x
    for data in (frame, frame.coalesce(1)):
        model = estimator.fit(data)
        np.testing.assert_allclose(model.fitted.numpy().x, expected, rtol=1e-9, atol=1e-12)
    outputs = model.torch_module()(torch.tensor(x)).detach().numpy()[:, 0]
    said = model.transform(frame).collect()
    np.testing.assert_allclose([row.rawPrediction for row in said], outputs, rtol=1e-12)
    np.testing.assert_array_equal([row.prediction for row in said], outputs > 0)
    assert [row.probability[1] > 0.5 for row in said] == (outputs > 0).tolist()


def test_batches_pipelines_and_files(ps, frame, tmp_path):
    path = str(tmp_path / "model")
    estimator = TorchEstimator(
        model=two_layers, loss=BINARY, batchSize=7, epochs=12,
        optimizerOptions={"step_size": 0.05}, seed=4,
    )  # fmt: skip
    fitted = Pipeline(stages=[estimator]).fit(frame)
    model = fitted.stages[0]
    history = model.summary.objectiveHistory
    assert np.mean(history[-9:]) < 0.5 * np.mean(history[:9])
    again = estimator.fit(frame)
    np.testing.assert_array_equal(again.fitted.numpy().x, model.fitted.numpy().x)
    other = estimator.copy({estimator.seed: 5}).fit(frame)
    assert not np.array_equal(other.fitted.numpy().x, model.fitted.numpy().x)
    fitted.write().overwrite().save(path)
    loaded = PipelineModel.load(path).stages[0]
    assert isinstance(loaded, TorchModel)
    row = frame.first().features
    assert loaded.predict(row) == model.predict(row)
    estimator.save(str(tmp_path / "estimator"))
    read = TorchEstimator.load(str(tmp_path / "estimator"))
    assert read.getLoss() == estimator.getLoss()
    nowhere = TorchEstimator(model=lambda: torch.nn.Linear(3, 1), loss=F.mse_loss, epochs=1)
    with pytest.raises(ValueError, match="define it at the top of a module"):
        nowhere.fit(frame).save(str(tmp_path / "nowhere"))


def test_embeddings_of_sparse_features_stay_on_the_servers(ps, spark, tmp_path):
    rng = np.random.default_rng(1)
    many = 1 << 20
    users, ads = rng.integers(0, 20, 400), rng.integers(0, 10, 400)
    labels = ((users + ads) % 2).astype(float)
    data = [
        (Vectors.sparse(many, [7 * u, 1000 + 13 * a], [1.0, 1.0]), b)
        for u, a, b in zip(users.tolist(), ads.tolist(), labels.tolist(), strict=True)
    ]
    frame = spark.createDataFrame(data, ["features", "label"]).repartition(2).cache()
    model = TorchEstimator(
        model=wide_and_deep, loss=BINARY, embeddingSize=4, fields=2, compact=True, batchSize=50,
        epochs=40, optimizerOptions={"step_size": 0.05},
    ).fit(frame)  # fmt: skip
    said = model.transform(frame).select("label", "prediction").collect()
    assert np.mean([row.label == row.prediction for row in said]) > 0.95
    assert model.numFeatures == many
    assert len(model.fitted.coordinates) == np.unique(users).size + np.unique(ads).size
    model.save(str(tmp_path / "model"))
    loaded = TorchModel.load(str(tmp_path / "model"))
    again = loaded.transform(frame).select("label", "prediction").collect()
    assert again == said


def test_columns_of_texts_and_numbers_have_embeddings(ps, spark):
    rng = np.random.default_rng(2)
    users, prices = rng.integers(0, 6, 300), rng.choice([-1.0, 0.0, 2.0], 300)
    labels = ((users % 2) * 2 - 1) * prices > 0
    data = [
        (f"u{u}" if u else None, p, float(b))
        for u, p, b in zip(users.tolist(), prices.tolist(), labels.tolist(), strict=True)
    ]
    frame = spark.createDataFrame(data, "user string, price double, label double").coalesce(2)
    estimator = TorchEstimator(
        model=wide_and_deep, loss=BINARY, featuresCols=["user", "price"], embeddingSize=4,
        numBuckets=1000, compact=True, batchSize=50, epochs=60,
        optimizerOptions={"step_size": 0.05},
    )  # fmt: skip
    model = estimator.fit(frame)
    assert model.numFeatures == 2000
    found = model.transform(frame)
    assert found.columns == [*frame.columns, "rawPrediction", "probability", "prediction"]
    right = [row.label == row.prediction for row in found.collect() if row.price]
    assert np.mean(right) > 0.95
    assert model.embeddings.shape == (2000, 4)
    np.testing.assert_array_equal(estimator.fit(frame).embeddings, model.embeddings)
    occurring = model.fitted.coordinates
    assert len(occurring) == 7
    assert occurring[-1] == 1000  # the one row of the number
    with pytest.raises(ValueError, match="3,000,000,000 features; at most"):
        TorchEstimator(embeddingSize=4, featuresCols=["a", "b", "c"], numBuckets=10**9)


def test_classes_have_a_column_each(ps, spark, numbers):
    x, y, _ = numbers
    names, classes = ["a", "b", "c"], y + (x[:, 2] > 0.5)
    data = [(*row, label) for row, label in zip(x.tolist(), classes.tolist(), strict=True)]
    frame = spark.createDataFrame(data, [*names, "label"]).coalesce(2)
    model = TorchEstimator(
        model=three_classes, loss=F.cross_entropy, outputs=3, featuresCols=names, batchSize=0,
        optimizer="L-BFGS", maxIter=40,
    ).fit(frame)  # fmt: skip
    rows = model.transform(frame).collect()
    outputs = model.torch_module()(torch.tensor(x)).detach()
    np.testing.assert_allclose(
        [row.probability for row in rows], torch.softmax(outputs, dim=1), rtol=1e-9
    )
    np.testing.assert_array_equal([row.prediction for row in rows], outputs.argmax(dim=1))
    assert np.mean([row.prediction == row.label for row in rows]) > 0.9


def test_bad_input_is_named(ps, spark, frame):
    with pytest.raises(ValueError, match="TorchEstimator needs model="):
        TorchEstimator(loss=BINARY).fit(frame)
    with pytest.raises(TypeError, match="must be a function, got 3"):
        TorchEstimator(model=3)
    with pytest.raises(TypeError, match="did you mean 'batchSize'"):
        TorchEstimator(batch_size=3)
    with pytest.raises(ValueError, match="uses all rows in each step; set batchSize=0"):
        TorchEstimator(model=two_layers, loss=BINARY, optimizer="L-BFGS").fit(frame)
    broken = TorchEstimator(model=two_layers, loss=lambda out, y: (out - y).mean(), epochs=1)
    with pytest.raises(LossError, match=r"partition \d.*must return the loss of each row"):
        broken.fit(frame)
    with pytest.raises(ValueError, match="the label is 3"):
        TorchEstimator(model=two_layers, loss=BINARY, labelCol="other").fit(
            frame.selectExpr("features", "3.0 AS other")
        )


def test_patience_returns_the_best_epoch(ps, frame, numbers):
    """The loss of the held-out rows is that of the module, which is returned as it was then."""
    x, y, _ = numbers
    held = (1000 * np.abs(x[:, 2])).astype(int) % 4 == 1
    data = frame.rdd.map(
        lambda row: (row.features, row.label, int(1000 * abs(row.features[2])) % 4 == 1)
    )
    estimator = TorchEstimator(
        model=two_layers, loss=BINARY, batchSize=10, epochs=100, patience=2,
        optimizerOptions={"step_size": 0.02}, validationIndicatorCol="held",
    )  # fmt: skip
    model = estimator.fit(data.toDF(["features", "label", "held"]))
    history = model.summary.validationHistory
    assert 3 < len(history) == np.argmin(history) + 3 < 100
    with torch.no_grad():
        outputs = model.torch_module()(torch.tensor(x[held]))[:, 0]
        loss = BINARY(outputs, torch.tensor(y[held]))
    np.testing.assert_allclose(min(history), float(loss), rtol=1e-12)
