"""Topics of pyspark.ml by another import."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml import Pipeline, clustering
from pyspark.ml.feature import CountVectorizer
from pyspark.ml.linalg import Vectors

from distvec.spark.ml import models
from distvec.spark.ml.clustering import LDA, LocalLDAModel
from distvec.spark.ml.topics import _model_of
from distvec.spark.objectives.fit_file import FitFile
from tests.distvec.losses.test_topics import Case

BATCH = {"subsamplingRate": 1.0, "learningDecay": 0.0, "optimizeDocConcentration": False}


@pytest.fixture(scope="module")
def case():
    """40 documents over 25 words, and three topics to start from."""
    made = Case(5, 40, 25, 3)
    made.counts[7] = 0.0
    return made


@pytest.fixture(scope="module")
def frame(spark, case):
    """The documents in two partitions, with sparse and dense rows."""
    vectors = [
        Vectors.dense(row)
        if number % 3
        else Vectors.sparse(row.size, np.flatnonzero(row).tolist(), row[row > 0].tolist())
        for number, row in enumerate(case.counts)
    ]
    return spark.createDataFrame([(one,) for one in vectors], ["features"]).coalesce(2).cache()


def table(model):
    """Parameters of topics."""
    return model.topicsMatrix().toArray()


@pytest.mark.spark
def test_topics_are_those_of_scikit_learn(ps, spark, case, frame, tmp_path):
    start = LocalLDAModel(_model_of(case.words, case.prior))
    given = {"k": 3, "maxIter": 3, "topicConcentration": case.concentration, "initialModel": start}
    model = LDA(**BATCH, **given).fit(frame)
    expected = case.scikit(max_iter=3, evaluate_every=-1).fit(case.counts)
    assert np.allclose(table(model), expected.components_.T, rtol=1e-6, atol=1e-6)
    assert np.isclose(model.logLikelihood(frame), expected.score(case.counts), rtol=1e-6)
    perplexity = expected.perplexity(case.counts)
    assert np.isclose(np.exp(model.logPerplexity(frame)), perplexity, rtol=1e-6)
    shares = [row.topicDistribution.toArray() for row in model.transform(frame).collect()]
    used = case.counts.any(axis=1)
    assert np.allclose(np.array(shares)[used], expected.transform(case.counts)[used], atol=1e-6)
    assert not np.array(shares)[~used].any()
    assert not model.isDistributed() and model.vocabSize() == model.numFeatures == 25
    assert np.allclose(model.estimatedDocConcentration().toArray(), case.prior)

    model.save(f"{tmp_path}/ours")
    model.write().format("mllib").save(f"{tmp_path}/mllib")
    again = LocalLDAModel.load(f"{tmp_path}/ours")
    theirs = clustering.LocalLDAModel.load(f"{tmp_path}/mllib")
    for other in (again, theirs, LocalLDAModel.from_mllib(model.to_mllib())):
        assert (table(other) == table(model)).all() and other.getK() == 3
        assert other.estimatedDocConcentration() == model.estimatedDocConcentration()
    one, two = (known.describeTopics(4) for known in (model, theirs))
    assert one.schema == two.schema
    for ours, other in zip(one.collect(), two.collect(), strict=True):
        assert ours.termIndices == other.termIndices
        assert np.allclose(ours.termWeights, other.termWeights)
    likelihood = model.logLikelihood(frame)
    assert again.logLikelihood(frame) == pytest.approx(likelihood, 1e-12)
    assert theirs.logLikelihood(frame) == pytest.approx(likelihood, 1e-3)  # it draws starts


@pytest.mark.spark
def test_batches_give_the_same_bits_in_any_partitions(ps, frame):
    estimator = LDA(k=3, seed=4, maxIter=6, subsamplingRate=0.3, learningOffset=2.0)
    models = [estimator.fit(frame.repartition(count)) for count in (1, 3)]
    one, two = ((table(some), some.estimatedDocConcentration()) for some in models)
    assert (one[0] == two[0]).all() and one[1] == two[1]
    assert len({*one[1].toArray()}) == 3 and (one[1].toArray() > 0.0).all()
    assert models[0].logPerplexity(frame) < LDA(k=3, maxIter=0).fit(frame).logPerplexity(frame)
    maps = [{estimator.seed: 5}, {estimator.maxIter: 0}]
    other, first = estimator.fit(frame, maps)
    assert (table(other) != one[0]).any() and first.getMaxIter() == 0


@pytest.mark.spark
def test_samples_are_whole_tokens(ps, frame, case):
    priors = {"docConcentration": [0.3], "topicConcentration": 0.25}
    sampling = LDA(k=3, seed=4, maxIter=30, optimizer="sampling", **priors)
    model, again = sampling.fit(frame), sampling.fit(frame)
    assert (table(model) == table(again)).all()
    counts = table(model) - 0.25
    assert (counts == np.rint(counts)).all() and (counts >= 0.0).all()
    assert (counts.sum(axis=1) == case.counts.sum(axis=0)).all()
    assert np.allclose(model.estimatedDocConcentration().toArray(), 0.3)
    before, other = sampling.fit(frame, [{sampling.maxIter: 0}, {sampling.seed: 5}])
    assert model.logPerplexity(frame) < before.logPerplexity(frame)
    assert (table(other) != table(model)).any()
    three = sampling.fit(frame.repartition(3))  # other draws, the same tokens
    assert (table(three).sum(axis=1) == table(model).sum(axis=1)).all()
    in_mllib = model.to_mllib()
    assert in_mllib.logLikelihood(frame) == pytest.approx(model.logLikelihood(frame), 1e-3)


@pytest.mark.spark
@pytest.mark.parametrize("optimizer", ["online", "sampling"])
def test_a_fit_goes_on_from_the_state_that_was_kept(ps, frame, optimizer, tmp_path, monkeypatch):
    given = {"k": 3, "seed": 4, "maxIter": 7, "optimizer": optimizer, "checkpointInterval": 2}
    whole = LDA(**given).fit(frame)
    place = str(tmp_path / "fit")
    estimator, keep, kept = LDA(**given, checkpointDir=place), FitFile.keep, []

    def keep_and_crash(self, iteration, *args, **arrays):
        keep(self, iteration, *args, **arrays)
        kept.append(iteration)
        if iteration == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(FitFile, "keep", keep_and_crash)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(frame)
    monkeypatch.setattr(FitFile, "keep", lambda *_, **__: kept.append(0))
    estimator.fit(frame, [{estimator.seed: 5, estimator.maxIter: 2}])  # another fit
    # As many tokens in each partition, of other words.
    turned = frame.rdd.map(lambda row: (Vectors.dense(row.features.toArray()[::-1]),))
    estimator.fit(turned.toDF(["features"]), [{estimator.maxIter: 1}])
    assert (table(estimator.fit(frame)) == table(whole)).all()
    assert kept == [1, 2, 3, 4, 5, *[0] * (2 + 1 + 3)]  # 4 was kept
    LDA(**given | {"checkpointInterval": -1}, checkpointDir=place).fit(frame)
    assert len(kept) == 11
    assert not [*(tmp_path / "fit").iterdir()]


@pytest.mark.spark
def test_a_lost_server_costs_the_sweeps_since_then(ps, frame, kill, tmp_path, monkeypatch):
    given = {"k": 3, "seed": 4, "maxIter": 7, "optimizer": "sampling", "checkpointInterval": 2}
    whole, keep, kept = LDA(**given).fit(frame), FitFile.keep, []

    def keep_and_kill(self, iteration, *args, **arrays):
        keep(self, iteration, *args, **arrays)
        kept.append(iteration)
        if len(kept) == 5:
            for pid in ps.server_pids:
                kill(pid)

    monkeypatch.setattr(FitFile, "keep", keep_and_kill)
    with pytest.warns(RuntimeWarning, match="the search for topics starts again"):
        model = LDA(**given, checkpointDir=str(tmp_path / "fit")).fit(frame)
    assert (table(model) == table(whole)).all()
    assert kept == [1, 2, 3, 4, 5, 5, 6, 7]


@pytest.mark.spark
def test_large_models_stay_on_the_servers(ps, frame, monkeypatch, tmp_path):
    estimator = LDA(k=3, seed=4, maxIter=1, **BATCH)
    local = estimator.fit(frame)
    monkeypatch.setattr(models, "LOCAL_PARAMETERS", 10)
    model = estimator.fit(frame)
    model.save(f"{tmp_path}/model")
    for one in (model, LocalLDAModel.load(f"{tmp_path}/model")):
        assert not one.fitted.is_local
        assert one.estimatedDocConcentration() == local.estimatedDocConcentration()
        assert one.describeTopics(3).collect() == local.describeTopics(3).collect()
    assert model.transform(frame).collect() == local.transform(frame).collect()
    assert model.logPerplexity(frame) == pytest.approx(local.logPerplexity(frame), 1e-12)
    with pytest.raises(ValueError, match="is on the servers"):
        model.topicsMatrix()
    more = [LDA(k=3, maxIter=1, initialModel=one, **BATCH).fit(frame) for one in (model, local)]
    assert more[0].describeTopics(3).collect() == more[1].describeTopics(3).collect()


@pytest.mark.spark
def test_a_pipeline_finds_the_words_of_each_subject(ps, spark):
    texts = ["sun rain wind rain", "goal ball team", "rain sun cloud", "team goal win goal"] * 5
    words = spark.createDataFrame([(one.split(),) for one in texts], ["words"])
    stages = [
        CountVectorizer(inputCol="words", outputCol="features"),
        LDA(k=2, seed=3, maxIter=20, **BATCH | {"optimizeDocConcentration": True}),
    ]
    model = Pipeline(stages=stages).fit(words)
    shares = [row.topicDistribution.toArray() for row in model.transform(words).collect()]
    assert [one.argmax() for one in shares[:4]] == [shares[0].argmax(), shares[1].argmax()] * 2
    assert shares[0].argmax() != shares[1].argmax() and min(one.max() for one in shares) > 0.8
    hidden = model.stages[1].copy({model.stages[1].topicDistributionCol: ""})
    assert hidden.transform(words.withColumn("features", words.words)).columns == [
        "words",
        "features",
    ]


@pytest.mark.spark
def test_what_cannot_be_topics_is_refused(ps, spark, frame, case):
    def rows(*counts):
        return spark.createDataFrame([(Vectors.dense(one),) for one in counts], ["features"])

    wrong = [
        (rows([1.0, 2.0], [3.0, -1.0]), {}, ValueError, "has the word 1 -1 times; counts"),
        (rows([0.0, 0.0]), {}, ValueError, "no document has words"),
        (rows([1.0, np.nan]), {}, ValueError, "feature 1 is nan"),
        (rows([1.0, 2.0], [3.0]), {}, ValueError, "all must agree"),
        (frame.limit(0), {}, ValueError, "no rows"),
        (frame, {"docConcentration": [0.1, 0.2]}, ValueError, "must be one, or k=3 of them"),
        (frame, {"optimizer": "em"}, NotImplementedError, "use 'sampling', or 'online'"),
        (
            rows([1.0, 0.5]),
            {"optimizer": "sampling"},
            ValueError,
            "has the word 1 0.5 times; counts must be 0 or more, and whole numbers",
        ),
        (
            frame,
            {
                "optimizer": "sampling",
                "initialModel": LocalLDAModel(_model_of(case.words, case.prior)),
            },
            ValueError,
            "takes no initialModel",
        ),
        (
            frame,
            {"initialModel": LocalLDAModel(_model_of(case.words[:5], case.prior))},
            ValueError,
            "does not fit 25 words and k=3",
        ),
    ]
    for data, params, error, text in wrong:
        with pytest.raises(error, match=text):
            LDA(k=3, maxIter=1, **params).fit(data)
    for name, value in {
        "k": 1,
        "docConcentration": [0.0],
        "learningOffset": 0.0,
        "subsamplingRate": 1.5,
        "topicConcentration": -1.0,
        "optimizer": "gibbs",
    }.items():
        with pytest.raises(ValueError, match=f"parameter {name} given invalid value"):
            LDA(**{name: value})
    with pytest.raises(NotImplementedError, match="MLlib has no learningDecay=0"):
        LDA(learningDecay=0.0).write().format("mllib")
    with pytest.raises(NotImplementedError, match="MLlib has no optimizer='sampling'"):
        LDA(optimizer="sampling").write().format("mllib")
    single = LDA(k=2, maxIter=2, **BATCH).fit(rows([2.0, 1.0]))
    assert np.allclose(table(single).sum(), 3.0 + 2 * 2 * 0.5)
