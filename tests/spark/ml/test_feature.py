"""Principal components and singular values, of dense and of sparse rows."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml import feature
from pyspark.ml.linalg import Vectors

from distvec.spark.ml import models
from distvec.spark.ml.feature import PCA, PCAModel, TruncatedSVD, TruncatedSVDModel

X = np.random.default_rng(0).normal(size=(60, 12)) * np.linspace(3.0, 0.2, 12) + 4.0


@pytest.fixture(scope="module")
def rows(spark):
    made = [(Vectors.dense(one) if k % 2 else Vectors.sparse(12, range(12), one),)
            for k, one in enumerate(X)]  # fmt: skip
    return spark.createDataFrame(made, ["x"]).coalesce(2).cache()


@pytest.mark.spark
def test_components_are_those_of_mllib(ps, rows, tmp_path):
    given = {"k": 3, "inputCol": "x", "outputCol": "z"}
    model, expected = PCA(**given).fit(rows), feature.PCA(**given).fit(rows)
    ours, theirs = model.pc.toArray(), expected.pc.toArray()
    signs = np.sign((ours * theirs).sum(axis=0))
    assert np.allclose(ours, theirs * signs, atol=1e-8)
    assert (ours.max(axis=0) >= -ours.min(axis=0)).all()
    assert np.allclose(model.explainedVariance, expected.explainedVariance, rtol=1e-9)
    singular = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:3]
    assert np.allclose(model.singularValues, singular, rtol=1e-9)
    found = np.array([row.z.toArray() for row in model.transform(rows).collect()])
    assert np.allclose(found, X @ ours)
    model.save(f"{tmp_path}/ours")
    model.write().format("mllib").save(f"{tmp_path}/mllib")
    again = PCAModel.load(f"{tmp_path}/ours")
    assert again.pc == model.pc and again.singularValues == model.singularValues
    assert again.getOutputCol() == "z" and again.uid == model.uid
    assert feature.PCAModel.load(f"{tmp_path}/mllib").pc == model.pc
    assert PCAModel.load(f"{tmp_path}/mllib").pc == PCAModel.from_mllib(model.to_mllib()).pc
    other = PCA(**given).fit(rows.repartition(5))
    assert np.allclose(other.pc.toArray(), ours, atol=1e-8)
    with pytest.warns(RuntimeWarning, match=r"not accurate to tol=0 after maxIter=1 passes"):
        PCA(**given, maxIter=1, tol=0.0, verbose=True).fit(rows)
    with pytest.raises(ValueError, match=r"source vector size 12 must be no less than k=13"):
        PCA(k=13, inputCol="x", outputCol="z").fit(rows)


@pytest.mark.spark
def test_singular_vectors_of_wide_rows_stay_on_the_servers(ps, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "LOCAL_PARAMETERS", 1000)
    rng, size = np.random.default_rng(1), 50_000
    places = np.sort(rng.choice(size, 20, replace=False))
    table = rng.normal(size=(40, 20)) * (rng.random((40, 20)) < 0.5)
    made = [(Vectors.sparse(size, places.tolist(), one.tolist()),) for one in table]
    frame = spark.createDataFrame(made, ["x"]).coalesce(2).cache()
    model = TruncatedSVD(k=2, inputCol="x", outputCol="z").fit(frame)
    _, values, vectors = np.linalg.svd(table, full_matrices=False)
    assert np.allclose(model.singularValues, values[:2], rtol=1e-9)
    assert np.allclose(model.explainedVariance, values[:2] ** 2 / (values**2).sum(), rtol=1e-9)
    kept = model.fitted.coefficients
    assert not model.fitted.is_local and kept.shape == (size, 2)
    assert np.allclose(np.abs(kept[places].numpy()), np.abs(vectors[:2].T), atol=1e-8)
    found = np.array([row.z.toArray() for row in model.transform(frame).collect()])
    assert np.allclose(np.abs(found), np.abs(table @ vectors[:2].T), atol=1e-7)
    model.save(f"{tmp_path}/model")
    again = TruncatedSVDModel.load(f"{tmp_path}/model")
    assert again.singularValues == model.singularValues and not again.fitted.is_local
    with pytest.raises(ValueError, match="on the servers; read some rows"):
        _ = again.pc
    with pytest.raises(NotImplementedError, match="MLlib has no class TruncatedSVDModel"):
        model.write().format("mllib")
