"""Word2Vec of pyspark.ml by another import: neighbours, means, files, servers, bad input."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from pyspark.ml import Pipeline, feature
from pyspark.ml.linalg import Vectors
from pyspark.sql import Row
from pyspark.sql import functions as F

from distvec.objectives.skip_gram import SkipGram
from distvec.spark import PSContext, run
from distvec.spark.ml import embeddings
from distvec.spark.ml.feature import Word2Vec, Word2VecModel
from distvec.spark.objectives import embeddings as training
from distvec.spark.task_session import join
from tests.distvec.objectives.test_skip_gram import corpus, purity

CLUSTERS, WORDS = 4, 10
PARAMS = {
    "vectorSize": 12,
    "inputCol": "words",
    "outputCol": "mean",
    "batchSize": 2000,
    "numPartitions": 2,
}


@pytest.fixture(scope="module")
def frame(spark):
    """Sentences with words of one cluster, one of them with a rare word."""
    sentences = [[f"w{word:02}" for word in one] for one in corpus(CLUSTERS, WORDS, 1000).tolist()]
    rows = [(one,) for one in [*sentences, ["rare"], []]]
    return spark.createDataFrame(rows, "words array<string>").cache()


@pytest.fixture(scope="module")
def model(frame):
    return Word2Vec(**PARAMS, maxIter=3).fit(frame)


def vectors_of(model):
    """Words and vectors, by the words."""
    rows = sorted(model.getVectors().collect())
    return [row.word for row in rows], np.array([row.vector.toArray() for row in rows])


def test_neighbours_are_of_the_same_cluster_as_mllibs_are(frame, model):
    words, vectors = vectors_of(model)
    assert words == [f"w{k:02}" for k in range(CLUSTERS * WORDS)]
    assert purity(vectors, WORDS) > 0.98
    assert model.lossHistory[-1] < model.lossHistory[0]
    found = model.findSynonymsArray("w00", WORDS - 1)
    assert sorted(word for word, _ in found) == words[1:WORDS]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert [one for _, one in found] == pytest.approx(
        sorted(unit[1:] @ unit[0], reverse=True)[: WORDS - 1], abs=1e-6
    )
    given = model.findSynonyms(Vectors.dense(vectors[0]), 1).first()
    assert (given.word, given.similarity) == ("w00", pytest.approx(1.0))


def test_means_and_files_are_those_of_mllib(spark, frame, model, tmp_path):
    new = spark.createDataFrame(
        [(["w00", "w17", "rare", None],), ([],), (["other"],)], "words array<string>"
    )
    expected = [row.mean.toArray() for row in model.transform(new).collect()]
    vectors = vectors_of(model)[1]
    assert np.allclose(expected[0], (vectors[0] + vectors[17]) / 4)
    model.save(f"{tmp_path}/ours")
    model.write().format("mllib").save(f"{tmp_path}/mllib")
    loaded = Word2VecModel.load(f"{tmp_path}/ours")
    theirs = feature.Word2VecModel.load(f"{tmp_path}/mllib")
    for other in (loaded, theirs, Word2VecModel.from_mllib(theirs), model.to_mllib()):
        found = [row.mean.toArray() for row in other.transform(new).collect()]
        assert np.allclose(found, expected, atol=1e-7)
        assert other.getVectorSize() == 12
        similar = other.findSynonymsArray("w00", 3)
        assert [word for word, _ in similar] == [w for w, _ in model.findSynonymsArray("w00", 3)]
    theirs.write().save(f"{tmp_path}/theirs")
    assert vectors_of(Word2VecModel.load(f"{tmp_path}/theirs"))[0] == vectors_of(model)[0]
    estimator = Word2Vec(negative=7, minCount=2)
    estimator.save(f"{tmp_path}/estimator")
    assert Word2Vec.load(f"{tmp_path}/estimator").getOrDefault("negative") == 7


def test_vectors_on_the_servers_answer_alike(frame, model, monkeypatch):
    monkeypatch.setattr(embeddings, "LOCAL_PARAMETERS", 0)
    pipeline = Pipeline(stages=[Word2Vec(**PARAMS, maxIter=3)])
    far = pipeline.fit(frame).stages[0]
    assert not isinstance(far._known.vectors, np.ndarray)
    assert (vectors_of(far)[1] == vectors_of(model)[1]).all()
    assert far.transform(frame).first().mean == model.transform(frame).first().mean
    for one, other in zip(
        *(each.findSynonymsArray("w05", 5) for each in (far, model)), strict=True
    ):
        assert one == (other[0], pytest.approx(other[1], abs=1e-6))


@pytest.mark.long
def test_lost_servers_cost_time_alone(ps, frame, model, kill, monkeypatch):
    run, calls = training.run, []

    def run_and_kill(*args, **options):
        calls.append(args)
        if len(calls) == 1:
            args[2].persist()  # else the new servers would compute it
            for pid in ps.server_pids:
                kill(pid)
        return run(*args, **options)

    monkeypatch.setattr(training, "run", run_and_kill)
    with pytest.warns(RuntimeWarning, match="the training starts again"):
        again = Word2Vec(**PARAMS, maxIter=3).fit(frame)
    assert (vectors_of(again)[1] == vectors_of(model)[1]).all()


def counted(problem, access, worker, table, losses):
    """Train in a task; what its client has sent, and how many rows its batches have."""
    text = training.text_of(worker.rows)
    rows = [batch.rows.size for batch in problem.batches(text, worker.rank, worker.size)]
    worker.rows = [Row(words=text.words.tobytes(), ends=text.ends.tobytes())]
    counters = join(access).counters
    before = counters.snapshot()
    training.train_in_task(problem, worker, table, losses)
    after = counters.snapshot()
    return rows, {name: after[name] - before[name] for name in after}


@pytest.mark.parametrize("negative", [0, 5])
def test_a_step_costs_a_pull_and_a_push_of_its_rows(ps, frame, negative):
    sentences = training.Sentences(frame, 2, 1000, 2)
    problem = SkipGram(sentences.vocabulary.counts, negative=negative, batch_size=1000, epochs=2)
    table, losses = ps.zeros((problem.rows, 100), dtype=np.float32), ps.zeros((2, 2))
    task = partial(counted, problem, ps.access)
    for rows, used in run(task, sentences.rows, table, losses, progress=False):
        assert used["messages"] == 2 * len(rows)  # to each server
        by_formula = 2 * sum(rows) * (8 + 4 * 100)
        assert used["bytes_sent"] + used["bytes_received"] < 1.1 * by_formula


BAD = [
    ([(["a"],), (None,)], {}, "the column of sentences has nulls"),
    ([(["a"],)], {"minCount": 2}, "no word occurs minCount=2 times or more"),
    ([], {}, "no word occurs minCount=1 times or more"),
]


@pytest.mark.parametrize(("rows", "params", "reason"), BAD)
def test_bad_sentences_raise_an_error(ps, spark, rows, params, reason):
    data = spark.createDataFrame(rows, "words array<string>")
    with pytest.raises(ValueError, match=reason):
        Word2Vec(**{"inputCol": "words", "minCount": 1, **params}).fit(data)


def test_bad_params_and_queries_raise_an_error(spark, model):
    with pytest.raises(TypeError, match="Tokenizer"):
        Word2Vec(inputCol="text").fit(spark.createDataFrame([("a b",)], ["text"]))
    for name in ("vectorSize", "windowSize", "batchSize", "numPartitions"):
        with pytest.raises(ValueError, match=f"{name} given invalid value 0"):
            Word2Vec(**{name: 0})
    with pytest.raises(ValueError, match="nothing not in vocabulary"):
        model.findSynonyms("nothing", 1)
    with pytest.raises(ValueError, match="Number of similar words should > 0"):
        model.findSynonyms("w00", 0)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        model.findSynonymsArray(Vectors.dense([1.0, 2.0]), 1)
    bad = spark.createDataFrame([(None,)], "words array<string>")
    with pytest.raises(Exception, match="a sentence is null"):
        model.transform(bad).collect()


def test_one_word_and_no_iteration(ps, spark):
    data = spark.createDataFrame([(["a"],), (["a", "b"],)], ["words"])
    model = Word2Vec(inputCol="words", minCount=2, vectorSize=2, maxIter=2).fit(data)
    assert model.findSynonymsArray("a", 5) == []
    start = Word2Vec(inputCol="words", minCount=1, vectorSize=2, maxIter=0).fit(data)
    assert np.abs(vectors_of(start)[1]).max() <= 0.25
    assert start.lossHistory == []


@pytest.mark.long
def test_vectors_are_the_same_on_any_servers(spark, frame, model):
    PSContext._active.stop()
    for servers in (1, 3):
        with PSContext.get_or_create(spark, servers=servers):
            again = Word2Vec(**PARAMS, maxIter=3).fit(frame)
            assert (vectors_of(again)[1] == vectors_of(model)[1]).all()
    assert frame.select(F.size("words")).count() == 1002
