"""Boosted trees of pyspark.ml by another import."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel, classification, regression
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.sql import functions as F
from sklearn.metrics import log_loss

from distvec.losses.rows import Rows
from distvec.losses.trees import LOGISTIC, VALUE
from distvec.objectives.tree_growth import boost_rows
from distvec.objectives.tree_splits import Growth
from distvec.spark import PSContext
from distvec.spark.ml.classification import GBTClassificationModel, GBTClassifier
from distvec.spark.ml.regression import GBTRegressionModel, GBTRegressor

pytestmark = pytest.mark.spark
SMALL = {"maxIter": 4, "maxDepth": 3}


class Data:
    """Dense and sparse rows, some with missing values."""

    def __init__(self, spark):
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(240, 6)) * (rng.random((240, 6)) < 0.6)
        self.x[rng.random(240) < 0.1, 1] = np.nan
        filled = np.nan_to_num(self.x, nan=1.0)
        self.margins = 2 * filled[:, 0] + filled[:, 1] - filled[:, 2] * filled[:, 3]
        self.y = (self.margins + rng.logistic(size=240) > 0).astype(float)
        self.weights = rng.random(240)
        rows = [
            (Vectors.dense(one) if k % 3 else sparse(one), *map(float, rest))
            for k, (one, *rest) in enumerate(
                zip(self.x, self.y, self.margins, self.weights, strict=True)
            )
        ]
        names = ["features", "label", "number", "weight"]
        self.frame = spark.createDataFrame(rows, names).repartition(2).cache()


def sparse(row):
    used = np.flatnonzero(row)
    return Vectors.sparse(row.size, used.tolist(), row[used].tolist())


@pytest.fixture(scope="module")
def data(spark):
    return Data(spark)


def same(one, other):
    return one._nodes.tobytes() == other._nodes.tobytes()


def test_the_trees_are_those_of_rows_in_memory(ps, data, tmp_path):
    model = GBTClassifier(**SMALL, weightCol="weight").fit(data.frame)
    growth = Growth(LOGISTIC, rounds=4, max_depth=3, first_step=0.5, leaf_factor=2.0)
    found = boost_rows([Rows(data.x, data.y, data.weights)], growth, max_bins=32)
    assert (model._nodes == found.nodes).all()
    for count in (1, 8):
        again = GBTClassifier(**SMALL, weightCol="weight").fit(data.frame.repartition(count))
        assert same(model, again)

    said = model.transform(data.frame).collect()
    vectors = np.array([row.features.toArray() for row in said])
    for row in said[:20]:
        assert model.predict(row.features) == row.prediction
        assert np.allclose(model.predictProbability(row.features), row.probability)
        assert np.allclose(model.predictRaw(row.features), row.rawPrediction)
    known = {(*x.tolist(),): y for x, y in zip(np.nan_to_num(data.x), data.y, strict=True)}
    labels = np.array([known[(*x.tolist(),)] for x in np.nan_to_num(vectors)])
    losses = model.evaluateEachIteration(data.frame)
    shares = np.array([row.probability for row in said])
    weights = np.array([row.weight for row in said])
    assert np.isclose(losses[-1], 2 * log_loss(labels, shares, sample_weight=weights))
    assert np.isclose(losses[-1], 2 * model._ensemble.losses[-1], rtol=1e-6)
    assert len(losses) == model.getNumTrees == 4 and model.numClasses == 2
    assert model.treeWeights == [1.0, 0.1, 0.1, 0.1] and model.numFeatures == 6
    assert sum(tree.numNodes for tree in model.trees) == model.totalNumNodes
    assert np.isclose(model.featureImportances.toArray().sum(), 1.0)
    assert "Tree 3 (weight 0.1)" in model.toDebugString and "or missing" in model.toDebugString

    leaves = model.copy({model.leafCol: "leaves"}).transform(data.frame).first()
    assert leaves.leaves == model.predictLeaf(leaves.features)
    strict = model.copy().setThresholds([0.01, 0.99]).transform(data.frame)
    chosen = np.array([row.prediction for row in strict.collect()])
    assert (chosen == (shares[:, 1] > 0.99)).all()

    path = f"{tmp_path}/model"
    model.save(path)
    loaded = GBTClassificationModel.load(path)
    assert np.allclose(loaded._nodes, model._nodes, rtol=1e-12) and loaded.getMaxDepth() == 3
    assert (loaded._nodes[:, VALUE] == model._nodes[:, VALUE]).all()
    with pytest.raises(NotImplementedError, match="no side for missing values"):
        model.write().format("mllib")
    with pytest.raises(NotImplementedError, match="by files"):
        model.to_mllib()


def test_any_number_of_servers_gives_the_same_trees(spark, data):
    found = []
    for servers in (1, 3):
        if PSContext._active is not None:
            PSContext._active.stop()
        PSContext.get_or_create(spark, servers=servers)
        found.append(GBTRegressor(**SMALL, labelCol="number").fit(data.frame))
    PSContext._active.stop()
    assert same(*found)


def test_columns_of_numbers_may_have_nulls(ps, spark, data, tmp_path):
    names = [f"x{k}" for k in range(6)]
    rows = [
        (*(None if np.isnan(v) else float(v) for v in x), float(y))
        for x, y in zip(data.x, np.digitize(data.margins, [-0.5, 0.5]), strict=True)
    ]
    frame = spark.createDataFrame(rows, ", ".join(f"{n} double" for n in [*names, "label"]))
    estimator = GBTClassifier(
        featuresCol=names, numIterations=3, learningRate=0.3, numLeaves=6, featureFraction=0.5,
        baggingFraction=0.8, minDataInLeaf=2, lambdaL2=1.0, minSumHessianInLeaf=1e-3, maxBin=20,
    )  # fmt: skip
    assert estimator.getMaxIter() == 3 and estimator.getFeatureSubsetStrategy() == "0.5"
    model = PipelineModel([estimator.fit(frame)])
    (trees,) = model.stages
    assert trees.numClasses == 3 and trees.getNumTrees == 9
    said = model.transform(frame)
    right = said.where("prediction = label").count()
    assert right > 180
    shares = np.array([row.probability.toArray() for row in said.collect()])
    assert np.allclose(shares.sum(axis=1), 1.0)
    losses = trees.evaluateEachIteration(frame)
    assert len(losses) == 3 and losses[2] < losses[0]
    labels = [row.label for row in said.collect()]
    assert np.isclose(losses[-1], log_loss(labels, shares))
    model.save(f"{tmp_path}/pipeline")
    again = PipelineModel.load(f"{tmp_path}/pipeline").transform(frame)
    assert [row.prediction for row in again.collect()] == [row.prediction for row in said.collect()]


def test_mllib_reads_our_trees_and_we_read_mllibs(ps, data, tmp_path):
    frame = data.frame.withColumn("category", (F.col("number") * 2).cast("int") % 3 + 2)
    names = ["number", "category"]
    stages = [VectorAssembler(inputCols=names, outputCol="two")]
    whole = Pipeline(stages=stages).fit(frame).transform(frame).cache()
    given = {**SMALL, "featuresCol": "two"}
    model = GBTClassifier(**given, categoricalFeatures=[1]).fit(whole)
    assert "in {" in model.toDebugString
    model.write().format("mllib").save(f"{tmp_path}/ours")
    theirs = classification.GBTClassificationModel.load(f"{tmp_path}/ours")
    ours, said = (
        np.array([row.probability for row in one.transform(whole).collect()])
        for one in (model, theirs)
    )
    assert np.allclose(ours, said, rtol=1e-12)
    assert theirs.treeWeights == model.treeWeights
    assert theirs.totalNumNodes == model.totalNumNodes
    assert np.allclose(theirs.featureImportances.toArray(), model.featureImportances.toArray())
    assert np.allclose(theirs.evaluateEachIteration(whole), model.evaluateEachIteration(whole))

    peer = regression.GBTRegressor(**given, labelCol="label", seed=1).fit(whole)
    peer.save(f"{tmp_path}/theirs")
    read = GBTRegressionModel.load(f"{tmp_path}/theirs")
    expected = [row.prediction for row in peer.transform(whole).collect()]
    assert np.allclose([row.prediction for row in read.transform(whole).collect()], expected)
    assert read.treeWeights == peer.treeWeights
    found = GBTRegressor(**given).fit(whole)
    last = peer.evaluateEachIteration(whole, "squared")[-1]
    assert found.evaluateEachIteration(whole)[-1] <= 1.02 * last
    absolute = read.evaluateEachIteration(whole, "absolute")
    assert np.allclose(absolute, peer.evaluateEachIteration(whole, "absolute"))


def test_rows_held_out_stop_the_fit_by_mllibs_rule(ps, data):
    frame = data.frame.withColumn("held", F.rand(1) < 0.4).cache()
    given = {"maxIter": 30, "stepSize": 0.9, "validationIndicatorCol": "held"}
    model = GBTClassifier(**given, validationTol=0.01).fit(frame)
    losses = model.evaluateEachIteration(frame.where("held"))
    assert model.getNumTrees == len(losses) < 30 and losses[-1] == min(losses)
    alone = GBTClassifier(maxIter=model.getNumTrees, stepSize=0.9).fit(frame.where("not held"))
    assert same(model, alone)


def test_nominal_columns_are_categorical(ps, spark, data):
    rows = data.frame.select("number", (F.abs("number") * 7).cast("int").alias("code"))
    attributes = {"ml_attr": {"attrs": {"nominal": [{"idx": 0, "num_vals": 90}]}}}
    frame = rows.select("number", F.array("code").cast("array<double>").alias("features"))
    frame = frame.withColumn("features", F.col("features").alias("features", metadata=attributes))
    model = GBTRegressor(labelCol="number", maxIter=1).fit(frame)
    assert "in {" in model.toDebugString


@pytest.mark.parametrize(
    ("change", "params", "reason"),
    [
        (lambda f: f.limit(0), {}, "the data has no rows"),
        (lambda f: f.withColumn("label", F.lit(float("nan"))), {}, "the label is nan"),
        (lambda f: f.withColumn("label", F.lit(0.5)), {}, "the numbers of classes, 0, 1"),
        (lambda f: f.withColumn("w", F.lit(-1.0)), {"weightCol": "w"}, "the weight is -1.0"),
        (lambda f: f.withColumn("v", F.lit(True)), {"validationIndicatorCol": "v"}, "no row with"),
        (lambda f: f, {"categoricalFeatures": [9]}, "categoricalFeatures has 9"),
        (lambda f: f, {"categoricalFeatures": [0]}, "feature 0 is categorical"),
        (lambda f: f, {"thresholds": [1.0]}, "thresholds has 1 elements"),
        (lambda f: f, {"featureSubsetStrategy": "some"}, "featureSubsetStrategy given invalid"),
        (lambda f: f, {"stepSize": 0.0}, "stepSize given invalid"),
    ],
)
def test_what_cannot_be_fitted_is_said(ps, data, change, params, reason):
    with pytest.raises(ValueError, match=reason):
        GBTClassifier(**SMALL, **params).fit(change(data.frame))


def test_one_row_and_constant_columns_give_a_leaf(ps, spark):
    frame = spark.createDataFrame([(3.0, Vectors.dense(1.0, 2.0))], ["label", "features"])
    model = GBTRegressor(maxIter=2).fit(frame)
    assert model.totalNumNodes == 2 and model.transform(frame).first().prediction == 3.0
    assert model.featureImportances == Vectors.sparse(2, [], [])
