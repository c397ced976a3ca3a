"""KMeans of pyspark.ml by another import: centers, draws, predictions, summaries, files."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from pyspark.ml import Pipeline, PipelineModel, clustering
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors

from distvec.losses.clustering import COSINE, EUCLIDEAN, nearest, sums_of, table_of
from distvec.losses.rows import Rows
from distvec.spark.ml.clustering import KMeans, KMeansModel, KMeansSummary
from distvec.spark.objectives import clusters

RNG = np.random.default_rng(5)
PLACES = np.array([[9.0, 0.0, 1.0], [0.0, 8.0, 1.0], [-9.0, 0.0, 3.0]])


def frame_of(spark, rows, partitions, *, sparse=False):
    """Vectors with weights."""
    vectors = [
        Vectors.sparse(len(row), np.flatnonzero(row).tolist(), row[row != 0].tolist())
        if sparse
        else Vectors.dense(row)
        for row in rows
    ]
    data = [(vector, 1.0 + k % 3) for k, vector in enumerate(vectors)]
    rdd = spark.sparkContext.parallelize(data, partitions)
    return spark.createDataFrame(rdd, ["features", "w"])


@pytest.fixture(scope="module")
def blobs():
    """Rows around three places, those of the last one first."""
    rng = np.random.default_rng(5)
    return np.concatenate([rng.normal(PLACES[k], 0.5, (20, 3)) for k in (2, 0, 1)])


def costs_by_hand(rows, centers, measure):
    """The cost of each row for each center."""
    if measure == COSINE:
        directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return 1.0 - directions @ (centers / np.linalg.norm(centers, axis=1, keepdims=True)).T
    return np.square(rows[:, None] - centers).sum(axis=2)


@pytest.mark.parametrize("measure", [EUCLIDEAN, COSINE])
@pytest.mark.parametrize("layout", ["dense", "sparse", "far"])
def test_nearest_centers_and_sums_are_those_of_numpy(measure, layout):
    x = RNG.normal(size=(300, 6)) * (RNG.random((300, 6)) < 0.6) + 1e6 * (layout == "far")
    x[:, 0] += 1.0
    centers = x[:4] + RNG.normal(size=(4, 6))
    if measure == COSINE:
        centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    weights = RNG.random(300)
    rows = Rows(sp.csr_array(x) if layout == "sparse" else x, np.zeros(300), weights)
    expected = costs_by_hand(x, centers, measure)
    table = table_of(centers, measure)
    found = nearest(rows, table, measure)
    slack = 1e-9 if layout == "far" and measure == COSINE else 0.0
    assert np.allclose(found.costs, expected.min(axis=1), rtol=1e-9, atol=1e-12 + slack)
    assert slack or (found.places == expected.argmin(axis=1)).all()
    sums = sums_of(rows, table, measure)
    chosen = np.eye(4)[found.places] * weights[:, None]
    assert np.allclose(sums.gradients[0][-1], chosen.sum(axis=0))
    points = x / np.linalg.norm(x, axis=1, keepdims=True) if measure == COSINE else x
    assert np.allclose(sums.gradients[0][:-1], points.T @ chosen)
    assert sums.value == pytest.approx(weights @ found.costs)


def test_pyspark_s_own_values(ps, spark, tmp_path):
    rows = [
        [-0.1, -0.05],
        [-0.01, -0.1],
        [0.9, 0.8],
        [0.75, 0.935],
        [-0.83, -0.68],
        [-0.91, -0.76],
    ]
    weights = [1.0, 2.0, 3.0, 1.0, 1.0, 1.0]
    data = [(c, Vectors.dense(row)) for c, row in zip(weights, rows, strict=True)]
    frame = spark.createDataFrame(data, ["weight", "features"]).coalesce(1)
    model = KMeans(k=2, maxIter=2, weightCol="weight").fit(frame)
    first, second = model.clusterCenters()
    assert np.allclose(first, [-0.372, -0.338]) and np.allclose(second, [0.8625, 0.83375])
    summary = model.summary
    assert isinstance(summary, KMeansSummary)
    assert (summary.k, summary.numIter, summary.clusterSizes) == (2, 2, [4, 2])
    assert summary.trainingCost == pytest.approx(1.35710375, abs=1e-8)
    assert summary.featuresCol == "features" and summary.predictionCol == "prediction"
    assert summary.cluster.columns == ["prediction"] and summary.cluster.count() == 6
    assert summary.predictions.columns == ["weight", "features", "prediction"]
    assert model.numFeatures == 2 and model.predict(Vectors.dense(0.0, 5.0)) == 1
    model.write().format("pmml").save(str(tmp_path / "pmml"))
    (part,) = (tmp_path / "pmml").glob("part-*")
    assert "<ClusteringModel" in part.read_text()


def test_draws_do_not_depend_on_partitions(ps, spark, blobs):
    """With few steps: the first centers decide on the result. Some rows are in two partitions."""
    strays = np.random.default_rng(7).normal(size=(40, 3)) * 6
    rows = np.concatenate([blobs, strays, blobs])
    for mode in ("k-means||", "random"):
        found = []
        for partitions, sparse in ((1, False), (3, True)):
            frame = frame_of(spark, rows, partitions, sparse=sparse)
            estimator = KMeans(k=6, maxIter=1, initMode=mode, weightCol="w")
            maps = [{}, {estimator.seed: 1}] if partitions == 1 else [{}]
            models = dict(estimator.fitMultiple(frame, maps))
            found.append(np.array(models[0].clusterCenters()))
            if partitions == 1:
                assert not np.allclose(np.sort(found[0]), np.sort(models[1].clusterCenters()))
        assert np.allclose(*found, rtol=1e-12)


def test_models_predictions_and_files(ps, spark, blobs, tmp_path):
    frame = frame_of(spark, blobs, 3)
    for measure in (EUCLIDEAN, COSINE):
        model = KMeans(k=3, tol=1e-9, maxIter=50, distanceMeasure=measure).fit(frame)
        centers = np.array(model.clusterCenters())
        expected = costs_by_hand(blobs, centers, measure)
        assert (expected.argmin(axis=1) == np.repeat([0, 1, 2], 20)).all()
        assert model.summary.trainingCost == pytest.approx(expected.min(axis=1).sum())
        if measure == EUCLIDEAN:
            theirs = clustering.KMeans(k=3, tol=1e-9, maxIter=50, seed=3).fit(frame)
            assert model.summary.trainingCost <= theirs.summary.trainingCost * (1 + 1e-9)
        path = str(tmp_path / measure)
        model.setPredictionCol("p").write().format("mllib").save(path)
        theirs = clustering.KMeansModel.load(path)
        theirs.write().overwrite().save(path)
        model.save(path + "-ours")
        arrays = frame.withColumn("x", vector_to_array("features"))
        loaded = [KMeansModel.load(path), KMeansModel.load(path + "-ours")]
        for one in (*loaded, KMeansModel.from_mllib(theirs)):
            assert one.uid == model.uid and not one.hasSummary
            assert np.array_equal(one.clusterCenters(), centers)
            assert one.getDistanceMeasure() == measure and one.getPredictionCol() == "p"
        for one in (theirs.transform(frame), model.copy().setFeaturesCol("x").transform(arrays)):
            assert dict(one.dtypes)["p"] == "int"
            assert [row.p for row in one.collect()] == [k // 20 for k in range(60)]


def test_few_points_and_empty_clusters(ps, spark):
    rows = np.repeat([[0.0, 1.0], [1.0, 0.0]], 5, axis=0)
    for mode in ("k-means||", "random"):
        model = KMeans(k=4, initMode=mode).fit(frame_of(spark, rows, 2))
        assert np.array_equal(model.clusterCenters(), [[0.0, 1.0], [1.0, 0.0]])
        assert model.summary.clusterSizes == [5, 5, 0, 0] and model.summary.trainingCost == 0.0
        assert [row.prediction for row in model.summary.cluster.collect()] == [0] * 5 + [1] * 5
    zeros = frame_of(spark, np.zeros((2, 2)), 1)
    with pytest.raises(ValueError, match="not defined for zero-length vectors"):
        KMeans(distanceMeasure="cosine").fit(zeros)


def test_warm_starts_progress_and_large_draws(ps, spark, blobs, capsys, monkeypatch):
    frame = frame_of(spark, blobs, 2)
    model = KMeans(k=3, verbose=True).fit(frame)
    assert "cost=" in capsys.readouterr().err
    again = KMeans(k=3, initialModel=model).fit(frame)
    assert again.summary.numIter == 1
    assert np.array_equal(again.clusterCenters(), model.clusterCenters())
    with pytest.raises(ValueError, match="does not fit k=2 and 3 features"):
        KMeans(k=2, initialModel=model).fit(frame)
    monkeypatch.setattr(clusters, "_FEW", 0)
    assert np.array_equal(KMeans(k=3).fit(frame).clusterCenters(), model.clusterCenters())


def test_params_and_pipelines(ps, spark, blobs, tmp_path):
    estimator = KMeans().setK(3).setSolver("block").setIntermediateStorageLevel("MEMORY_ONLY")
    assert (estimator.getK(), estimator.getSeed(), estimator.getInitSteps()) == (3, 0, 2)
    estimator.write().format("mllib").save(str(tmp_path / "estimator"))
    assert clustering.KMeans.load(str(tmp_path / "estimator")).getK() == 3
    for wrong in ({"k": 1}, {"initMode": "best"}, {"initSteps": 0}, {"distanceMeasure": "l1"}):
        with pytest.raises(ValueError, match="given invalid value"):
            KMeans(**wrong)
    columns = ["a", "b", "c"]
    frame = spark.createDataFrame(blobs.tolist(), columns)
    stages = [VectorAssembler(inputCols=columns, outputCol="features"), estimator]
    Pipeline(stages=stages).fit(frame).save(str(tmp_path / "pipeline"))
    model = PipelineModel.load(str(tmp_path / "pipeline")).stages[1]
    alone = estimator.copy().setFeaturesCol(columns).fit(frame)
    assert type(model) is KMeansModel and "k=3" in str(model)
    assert np.allclose(model.clusterCenters(), alone.clusterCenters(), rtol=1e-12)
    found = [row.prediction for row in alone.transform(frame).collect()]
    assert found == [k // 20 for k in range(60)]
