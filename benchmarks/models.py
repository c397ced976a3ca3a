"""Whole fits of models beyond ``pyspark.ml``'s linear ones, beside a peer, and how good they are.

Each fit starts from a DataFrame in Spark's cache; ``value`` is of rows that were held out. A family
is a row of ``FAMILIES``: its data, and the contenders, ours first.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyspark.ml import Pipeline, regression
from pyspark.ml import classification as peers
from pyspark.ml import clustering as mllib_clusters
from pyspark.ml import feature as texts
from pyspark.ml import recommendation as mllib
from pyspark.ml.evaluation import BinaryClassificationEvaluator, RegressionEvaluator
from pyspark.ml.feature import FeatureHasher
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import graph_peers, network_peers
from benchmarks.graph_peers import Method
from benchmarks.harness import Ratio, Report, Table, installed, main
from benchmarks.spark import start_spark
from distvec.losses.topics import Topics
from distvec.spark import Model, PSContext
from distvec.spark.ml.classification import GBTClassifier
from distvec.spark.ml.clustering import LDA, LocalLDAModel
from distvec.spark.ml.feature import Word2Vec, Word2VecModel
from distvec.spark.ml.online import FTRLClassifier
from distvec.spark.ml.online_factorization import OnlineFMClassifier
from distvec.spark.ml.recommendation import ALS
from distvec.spark.ml.regression import GBTRegressor
from distvec.spark.objectives.word_vectors import WordVectors

SLOTS = 2
COLUMNS = {"user": 20_000, "ad": 2_000, "site": 200, "hour": 24, "place": 500, "device": 50}
"""Of the clicks: how many different values each column has, most of them rare."""


@dataclass(frozen=True)
class Family:
    """What is fitted to which rows, and how models are judged."""

    data: Callable[[SparkSession, int], tuple[DataFrame, DataFrame]]
    """Rows to fit and rows held out, of so many rows in all."""
    rows: int
    contenders: Mapping[str, Callable[[], Any]]
    judge: Callable[[Any, DataFrame], float]
    value: str


def clicks(spark: SparkSession, rows: int) -> tuple[DataFrame, DataFrame]:
    """Impressions whose clicks follow hidden weights, and hidden vectors of pairs of columns."""
    each = rows // (2 * SLOTS)
    names = list(COLUMNS)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hidden = np.random.default_rng(0)
        weights = [hidden.normal(size=count) for count in COLUMNS.values()]
        vectors = [hidden.normal(size=(count, 3)) for count in COLUMNS.values()]
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                rng = np.random.default_rng(seed + 1)
                chosen = [(n * rng.random(each) ** 2).astype(np.int64) for n in COLUMNS.values()]
                margins = 0.4 * sum(w[k] for w, k in zip(weights, chosen, strict=True)) - 1.0
                rows_of = [v[k] for v, k in zip(vectors, chosen, strict=True)]
                margins += 0.5 * (np.square(sum(rows_of)).sum(axis=1))
                margins -= 0.5 * sum(np.square(one).sum(axis=1) for one in rows_of)
                labels = rng.random(each) < 1 / (1 + np.exp(-margins))
                data = {name: k.astype(str) for name, k in zip(names, chosen, strict=True)}
                yield pa.RecordBatch.from_pydict({**data, "label": labels.astype(np.float64)})

    schema = ", ".join(f"{name} string" for name in names) + ", label double"
    return _halves(spark, make, schema)


def numbers(spark: SparkSession, rows: int) -> tuple[DataFrame, DataFrame]:
    """20 features, of which 6 matter: a line, steps, a product; and classes by them."""
    each = rows // (2 * SLOTS)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                rng = np.random.default_rng(seed + 1)
                x = rng.normal(size=(each, 20))
                target = x[:, 0] + 2 * (x[:, 1] > 0.5) - np.abs(x[:, 2]) + x[:, 3] * x[:, 4]
                target += np.sin(3 * x[:, 5]) + 0.5 * rng.normal(size=each)
                label = rng.random(each) < 1 / (1 + np.exp(-2 * target))
                features = pa.FixedSizeListArray.from_arrays(x.ravel(), 20)
                columns = [features.cast(pa.list_(pa.float64())), target, label.astype(float)]
                names = ["features", "target", "label"]
                yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), names)

    vectors = array_to_vector(F.col("features"))
    schema = "features array<double>, target double, label double"
    return _halves(spark, make, schema, {"features": vectors})


def _halves(
    spark: SparkSession,
    make: Callable[..., Iterator[pa.RecordBatch]],
    schema: str,
    changed: Mapping[str, Any] | None = None,
) -> tuple[DataFrame, DataFrame]:
    """Rows that ``make`` gets of seeds: four fifths to fit, and those held out, both cached."""
    frame = spark.range(0, 2 * SLOTS, 1, 2 * SLOTS).mapInArrow(make, schema)
    frame = frame.withColumns(dict(changed or {}))
    parts = frame.randomSplit([0.8, 0.2], seed=1)
    for one in parts:
        one.cache().count()
    return parts[0], parts[1]


def ratings(spark: SparkSession, rows: int) -> tuple[DataFrame, DataFrame]:
    """Ratings of popular and rare items by hidden factors of rank 5, with noise of 0.5."""
    each, users, items = rows // (2 * SLOTS), max(rows // 100, 10), max(rows // 400, 10)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hidden = np.random.default_rng(0)
        sides = [hidden.normal(size=(count, 5)) / 5**0.25 for count in (users, items)]
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                rng = np.random.default_rng(seed + 1)
                user = rng.integers(users, size=each, dtype=np.int32)
                item = (items * rng.random(each) ** 2).astype(np.int32)
                values = 3 + (sides[0][user] * sides[1][item]).sum(axis=1)
                values += 0.5 * rng.normal(size=each)
                rating = np.clip(values, 0.5, 5.0).astype(np.float32)
                yield pa.RecordBatch.from_pydict({"user": user, "item": item, "rating": rating})

    return _halves(spark, make, "user int, item int, rating float")


def documents(spark: SparkSession, rows: int) -> tuple[DataFrame, DataFrame]:
    """Documents of some 100 words out of 5,000, which 20 hidden topics have drawn."""
    each, words, topics = rows // (2 * SLOTS), 5000, 20

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hidden = np.random.default_rng(0).dirichlet(np.full(words, 0.05), topics)
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                rng = np.random.default_rng(seed + 1)
                for _ in range(each):
                    shares = rng.dirichlet(np.full(topics, 0.1)) @ hidden
                    counts = rng.multinomial(1 + rng.poisson(100), shares)
                    used = np.flatnonzero(counts)
                    yield pa.RecordBatch.from_pydict(
                        {"indices": [used.astype(np.int32)], "values": [counts[used] * 1.0]}
                    )

    schema = "indices array<int>, values array<double>"
    pairs = F.map_from_arrays("indices", "values")
    vectors = F.udf(lambda known: Vectors.sparse(words, known), VectorUDT())
    return _halves(spark, make, schema, {"features": vectors(pairs)})


class _ScikitLDA:
    """scikit-learn's class from a DataFrame, by the same steps."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params

    def fit(self, data: DataFrame) -> LocalLDAModel:
        """Collect the documents, and fit."""
        from sklearn.decomposition import LatentDirichletAllocation

        vectors = [row.features for row in data.select("features").collect()]
        ends = np.cumsum([0, *(one.indices.size for one in vectors)])
        places = np.concatenate([one.indices for one in vectors])
        values = np.concatenate([one.values for one in vectors])
        matrix = sp.csr_array((values, places, ends), shape=(len(vectors), vectors[0].size))
        known = self._params
        found = LatentDirichletAllocation(
            known["k"],
            learning_method="online",
            learning_offset=known["learningOffset"],
            learning_decay=0.51,
            max_iter=1,
            batch_size=int(np.ceil(known["subsamplingRate"] * len(vectors))),
            evaluate_every=-1,
            random_state=1,
        ).fit(matrix)
        words = np.ascontiguousarray(found.components_.T)
        priors = np.vstack([words.sum(axis=0), np.full(known["k"], found.doc_topic_prior_)])
        fitted = Model({"words": words, "priors": priors}, loss=Topics(known["k"]))
        return LocalLDAModel(fitted, found.topic_word_prior_)


def _perplexity(model: Any, data: DataFrame) -> float:
    """The bound of a word's perplexity, by one judge for all models."""
    if isinstance(model, mllib_clusters.DistributedLDAModel):
        # Of its mode the concentrations are less by 1, and words in topics without any.
        words = model.topicsMatrix().toArray() + model.getTopicConcentration() - 1.0
        prior = model.estimatedDocConcentration().toArray() - 1.0
        priors = np.vstack([words.sum(axis=0), prior])
        fitted = Model({"words": words, "priors": priors}, loss=Topics(prior.size))
        model = LocalLDAModel(fitted, model.getTopicConcentration() - 1.0)
    known = model if isinstance(model, LocalLDAModel) else LocalLDAModel.from_mllib(model)
    return float(np.exp(known.logPerplexity(data)))


_SUBJECTS, _WORDS, _LENGTH = 100, 4000, 20


def sentences(spark: SparkSession, rows: int) -> tuple[DataFrame, DataFrame]:
    """Sentences with half of their words from one topic, the others from all, few of them often.

    Words begin with the number of their topic.
    """
    each = rows // (2 * SLOTS)

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        topics = np.random.default_rng(0).integers(_SUBJECTS, size=_WORDS)
        order = np.argsort(topics, kind="stable")
        shares = np.cumsum(np.arange(1.0, _WORDS + 1)[order] ** -0.8)
        counts = np.append(0, np.cumsum(np.bincount(topics, minlength=_SUBJECTS)))
        ends = np.append(0.0, shares)[counts]
        words = pa.array([f"{topics[word]} {word}" for word in order])
        for batch in batches:
            for seed in batch.column(0).to_pylist():
                rng = np.random.default_rng(seed + 1)
                topic = rng.integers(_SUBJECTS, size=(each, 1))
                is_own = rng.random((each, _LENGTH)) < 0.5
                low = np.where(is_own, ends[topic], 0.0)
                high = np.where(is_own, ends[topic + 1], ends[-1])
                drawn = np.searchsorted(shares, low + (high - low) * rng.random(low.shape))
                places = np.minimum(drawn, _WORDS - 1).ravel()
                lists = pa.FixedSizeListArray.from_arrays(words.take(pa.array(places)), _LENGTH)
                yield pa.RecordBatch.from_pydict({"words": lists.cast(pa.list_(pa.string()))})

    return _halves(spark, make, "words array<string>")


def _rmse(model: Any, data: DataFrame, label: str = "rating") -> float:
    judge = RegressionEvaluator(metricName="rmse", labelCol=label)
    return float(judge.evaluate(model.transform(data)))


def _auc(model: Any, data: DataFrame) -> float:
    scored = model.transform(data)
    return float(BinaryClassificationEvaluator().evaluate(scored))


def _purity(model: Any, data: DataFrame) -> float:
    """The share of the five nearest words, by angle, that are of the same topic."""
    rows = model.getVectors().collect()
    vectors = np.array([row.vector.toArray() for row in rows])
    topics = np.array([row.word.split()[0] for row in rows])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    angles = unit @ unit.T
    np.fill_diagonal(angles, -np.inf)
    nearest = np.argpartition(-angles, 5, axis=1)[:, :5]
    return float((topics[nearest] == topics[:, None]).mean())


class _Gensim:
    """gensim's Word2Vec, which is not on Spark, with the same words and parameters."""

    def fit(self, data: DataFrame) -> Any:
        """With as many threads as the others have slots."""
        gensim = importlib.import_module("gensim.models")
        rows = data.toArrow().column("words").to_pylist()
        model = gensim.Word2Vec(
            rows, vector_size=100, sg=1, negative=5, epochs=3, workers=SLOTS, seed=1
        )
        return Word2VecModel(WordVectors(pa.array(model.wv.index_to_key), model.wv.vectors))


def _hashed(**params: Any) -> Pipeline:
    hasher = FeatureHasher(inputCols=list(COLUMNS), outputCol="features", numFeatures=1 << 17)
    return Pipeline(stages=[hasher, peers.FMClassifier(factorSize=8, seed=1, **params)])


def _ours(**params: Any) -> OnlineFMClassifier:
    return OnlineFMClassifier(
        featuresCol=list(COLUMNS), factorSize=8, seed=1, batchSize=2048, admitFactors=3,
        stepSize=0.1, factorStepSize=0.1, initStd=0.1, **params,
    )  # fmt: skip


_COMMON: dict[str, Any] = {"maxIter": 10, "regParam": 0.05, "seed": 1, "coldStartStrategy": "drop"}
_RATINGS: dict[str, dict[str, Any]] = {
    "rank 10": _COMMON | {"rank": 10},
    "rank 50": _COMMON | {"rank": 50},
    "implicit, rank 10": _COMMON | {"rank": 10, "implicitPrefs": True},
}


_STEPS: dict[str, Any] = {"maxIter": 20, "subsamplingRate": 0.05, "seed": 1}
_TOPICS: dict[str, dict[str, Any]] = {
    "MLlib's steps": _STEPS | {"k": 20, "learningOffset": 1024.0},
    "longer steps": _STEPS | {"k": 20, "learningOffset": 10.0},
    "100 topics": _STEPS | {"k": 100, "learningOffset": 10.0},
}
_SWEEPS: dict[str, Any] = {
    "k": 20, "seed": 1, "docConcentration": [0.1], "topicConcentration": 0.01,
    "optimizeDocConcentration": False,
}  # fmt: skip

_VECTORS: dict[str, Any] = {
    "inputCol": "words",
    "outputCol": "mean",
    "maxIter": 3,
    "numPartitions": SLOTS,
    "seed": 1,
}

FAMILIES: dict[str, Family] = {
    "clicks, factorization machine": Family(
        clicks,
        100_000,
        {
            "OnlineFMClassifier, 3 passes": lambda: _ours(maxIter=3),
            "OnlineFMClassifier, fields, 3 passes": lambda: _ours(maxIter=3, numFields=6),
            "FTRLClassifier, 3 passes": lambda: FTRLClassifier(
                featuresCol=list(COLUMNS), maxIter=3, batchSize=2048
            ),
            "pyspark.ml FMClassifier, 2^17 hashes, 100 steps": lambda: _hashed(
                maxIter=100, stepSize=0.1, initStd=0.1
            ),
        },
        _auc,
        "AUC",
    ),
    "classes, boosted trees, 20 rounds of depth 5": Family(
        numbers,
        100_000,
        {
            "GBTClassifier": lambda: GBTClassifier(maxIter=20),
            "pyspark.ml GBTClassifier": lambda: peers.GBTClassifier(maxIter=20, seed=1),
        },
        _auc,
        "AUC",
    ),
    "numbers, boosted trees, 20 rounds of depth 5": Family(
        numbers,
        100_000,
        {
            "GBTRegressor": lambda: GBTRegressor(maxIter=20, labelCol="target"),
            "pyspark.ml GBTRegressor": lambda: regression.GBTRegressor(
                maxIter=20, labelCol="target", seed=1
            ),
        },
        partial(_rmse, label="target"),
        "RMSE",
    ),
    "numbers, network by all rows": Family(
        numbers,
        100_000,
        {
            **({"TorchEstimator": network_peers.by_all_rows} if installed("torch") else {}),
            "MultilayerPerceptronClassifier": network_peers.perceptron,
        },
        _auc,
        "AUC",
    ),
    **(
        {
            "numbers, network by batches": Family(
                numbers,
                100_000,
                {
                    "TorchEstimator": network_peers.by_batches,
                    "PyTorch in the driver": network_peers.Alone,
                },
                _auc,
                "AUC",
            )
        }
        if installed("torch")
        else {}
    ),
    "sentences, word vectors, 3 epochs": Family(
        sentences,
        40_000,
        {
            "Word2Vec": lambda: Word2Vec(**_VECTORS),
            "Word2Vec, negative=5": lambda: Word2Vec(**_VECTORS, negative=5, sample=1e-3),
            "pyspark.ml Word2Vec": lambda: texts.Word2Vec(**_VECTORS),
            **({"gensim Word2Vec": _Gensim} if importlib.util.find_spec("gensim") else {}),
        },
        _purity,
        "purity",
    ),
    **{
        f"documents, topics, {kind}": Family(
            documents,
            20_000,
            {
                "LDA": partial(LDA, **params),
                "pyspark.ml LDA": partial(mllib_clusters.LDA, **params),
                "scikit-learn": partial(_ScikitLDA, params),
            },
            _perplexity,
            "perplexity",
        )
        for kind, params in _TOPICS.items()
    },
    "documents, topics, sampling": Family(
        documents,
        20_000,
        {
            "LDA, sampling": partial(LDA, **_SWEEPS, optimizer="sampling", maxIter=100),
            "LDA, all documents in a step": partial(
                LDA, **_SWEEPS, maxIter=50, subsamplingRate=1.0, learningDecay=0.0
            ),
            "pyspark.ml LDA, em": partial(
                mllib_clusters.LDA,
                k=20,
                seed=1,
                optimizer="em",
                maxIter=100,
                docConcentration=[1.1],
                topicConcentration=1.01,
            ),
        },
        _perplexity,
        "perplexity",
    ),
    **{
        f"ratings, ALS, {kind}": Family(
            ratings,
            1_000_000,
            {
                "ALS": partial(ALS, **params),
                "pyspark.ml ALS": partial(mllib.ALS, **params),
            },
            _rmse,
            "RMSE",
        )
        for kind, params in _RATINGS.items()
    },
    "links, PageRank": Family(
        partial(graph_peers.links, parts=2 * SLOTS),
        1_000_000,
        {
            "Graph": lambda: Method(graph_peers.pagerank),
            "joins of DataFrames, 10 steps": lambda: Method(graph_peers.pagerank_by_joins),
            "scipy.sparse on the driver": lambda: Method(graph_peers.pagerank_by_scipy),
        },
        graph_peers.error_of_ranks,
        "error",
    ),
    "links, connected components": Family(
        partial(graph_peers.links, parts=2 * SLOTS),
        1_000_000,
        {
            "Graph": lambda: Method(graph_peers.components),
            "joins of DataFrames": lambda: Method(graph_peers.components_by_joins),
            "scipy.sparse on the driver": lambda: Method(graph_peers.components_by_scipy),
        },
        graph_peers.count_values,
        "components",
    ),
}


def measure(options: argparse.Namespace) -> Report:
    """Each family on its rows; contenders in turn."""
    spark = start_spark(SLOTS, driver_memory="4g", parallelism=2 * SLOTS)
    spark.conf.set("spark.sql.shuffle.partitions", str(2 * SLOTS))
    tables, ratios = [], []
    with PSContext.get_or_create(spark, servers=SLOTS, timeout=300):
        for name in options.families:
            family = FAMILIES[name]
            rows = 4000 if options.quick else options.rows or family.rows
            train, held_out = family.data(spark, rows)
            found = _in_turns(family, train, held_out, 1 if options.quick else options.repeat)
            tables.append(Table(f"{name}, {rows:,} rows", ("s", family.value), found))
            (ours, first), *others = found.items()
            ratios += [
                Ratio(f"{other} / {ours}, s", seconds[0] / first[0], "3 of a peer")
                for other, seconds in others
            ]
            for one in (train, held_out):
                one.unpersist()
    spark.stop()
    return Report("models from a cached DataFrame", (), ratios, {}, tables)


def _in_turns(
    family: Family, train: DataFrame, held_out: DataFrame, repeat: int
) -> dict[str, tuple[float, float]]:
    """The median seconds and the value of each contender's model; one fit before warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in family.contenders}
    values = {}
    warm = train.limit(1000).cache()
    for number in range(repeat + 1):
        for name, make in family.contenders.items():
            began = time.perf_counter()
            model = make().fit(train if number else warm)
            if number:
                seconds[name].append(time.perf_counter() - began)
            if number == repeat:
                values[name] = family.judge(model, held_out)
    return {name: (float(np.median(some)), values[name]) for name, some in seconds.items()}


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--rows", type=int, help="instead of those of each family")
    parser.add_argument("--repeat", type=int, default=1)


if __name__ == "__main__":
    main(__doc__, measure, _configure)
