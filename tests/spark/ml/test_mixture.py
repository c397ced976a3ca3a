"""Gaussian mixtures of pyspark.ml by another import."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml import clustering
from sklearn.mixture import GaussianMixture as ScikitMixture

from distvec.spark.ml.clustering import GaussianMixture, GaussianMixtureModel

PLACES = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 1.0], [0.0, 5.0, 2.0]])


@pytest.mark.spark
def test_the_mixture_is_that_of_scikit_learn(ps, spark, tmp_path):
    rng = np.random.default_rng(0)
    x = np.vstack([rng.normal(size=(60, 3)) + place for place in PLACES])
    frame = spark.createDataFrame([(one.tolist(),) for one in x], ["features"]).coalesce(2).cache()
    given = {"k": 3, "tol": 1e-9, "maxIter": 200}
    model = GaussianMixture(**given).fit(frame)
    expected = ScikitMixture(3, tol=1e-12, max_iter=1000, reg_covar=0.0).fit(x)
    order = np.argsort(expected.means_[:, 0] + 2 * expected.means_[:, 1])
    ours = sorted(model.gaussians, key=lambda one: one.mean[0] + 2 * one.mean[1])
    for one, j in zip(ours, order, strict=True):
        assert np.allclose(one.mean, expected.means_[j], atol=1e-4)
        assert np.allclose(one.cov.toArray(), expected.covariances_[j], atol=1e-4)
    summary = model.summary
    assert np.isclose(summary.logLikelihood, expected.score(x) * len(x), rtol=1e-9)
    assert sum(summary.clusterSizes) == len(x) and summary.numIter < 200 and summary.k == 3
    rows = model.transform(frame).collect()
    shares = np.array([row.probability.toArray() for row in rows])
    assert np.allclose(np.sort(shares), np.sort(expected.predict_proba(x)), atol=1e-4)
    assert [row.prediction for row in rows] == shares.argmax(axis=1).tolist()
    vector = model.predictProbability(rows[0].probability)
    assert model.predict(rows[0].probability) == np.argmax(vector)

    model.save(f"{tmp_path}/ours")
    model.write().format("mllib").save(f"{tmp_path}/mllib")
    again = GaussianMixtureModel.load(f"{tmp_path}/ours")
    theirs = clustering.GaussianMixtureModel.load(f"{tmp_path}/mllib")
    for other in (again, theirs, GaussianMixtureModel.from_mllib(theirs)):
        assert other.weights == model.weights and other.getK() == 3
        assert [one.mean for one in other.gaussians] == [one.mean for one in model.gaussians]
        assert [one.cov for one in other.gaussians] == [one.cov for one in model.gaussians]
    assert theirs.gaussiansDF.schema == model.gaussiansDF.schema

    warm = GaussianMixture(**given, initialModel=again).fit(frame.repartition(5))
    assert warm.summary.numIter <= 3
    assert np.allclose(sorted(warm.weights), sorted(model.weights), atol=1e-4)
    with pytest.raises(ValueError, match=r"initialModel has \(3, 3\) components and features"):
        GaussianMixture(k=2, initialModel=again).fit(frame)
