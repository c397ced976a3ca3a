"""The cost of a fit, by counts: Spark jobs, reads of the rows, requests to the servers."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import DoubleType, StructField, StructType

from distvec.losses import Logistic
from distvec.spark.graphs import Graph
from distvec.spark.ml.classification import LinearSVC, LogisticRegression
from distvec.spark.ml.losses import LossEstimator
from distvec.spark.ml.recommendation import ALS
from distvec.spark.ml.regression import (
    AFTSurvivalRegression,
    GeneralizedLinearRegression,
    LinearRegression,
)
from distvec.spark.objectives import evaluator
from tests.waiting import PATIENCE

COUNT = 80

READ, STAY, PRODUCTS = 1, 1, 1
"""The jobs of a fit: one reads the rows; the tasks of another stay and evaluate; one computes the
products of normal equations."""

MAILBOX = 3
"""The requests to the server at which tasks wait, which are more if it is the busiest one, too: a
fit of 4 iterations takes 44 or 47, by the hash of the mailbox's name."""


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Slow tasks, and those of a test before that end late, cost no more jobs and requests."""
    for name in ("_POLL_SECONDS", "_START_SECONDS", "_STALL_SECONDS"):
        monkeypatch.setattr(evaluator, name, PATIENCE)


@pytest.fixture(scope="module")
def counted(spark):
    """Rows of two classes whose reads are counted, and the count."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(COUNT, 4)) * [1.0, 5.0, 0.2, 1.0]
    y = (x @ [1.0, 0.3, -2.0, 0.0] + rng.logistic(size=COUNT) > 0.0).astype(float)
    reads = spark.sparkContext.accumulator(0)

    def count(rows):
        for row in rows:
            reads.add(1)
            yield row

    data = [
        (label, label + 0.5, 1.0, Vectors.dense(row))
        for label, row in zip(y.tolist(), x, strict=True)
    ]
    rdd = spark.sparkContext.parallelize(data, 2).mapPartitions(count)
    numbers = [StructField(name, DoubleType()) for name in ("label", "time", "censor")]
    schema = StructType([*numbers, StructField("features", VectorUDT())])
    return spark.createDataFrame(rdd, schema), reads


def jobs(spark):
    """How many Spark jobs were begun so far."""
    return spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (LogisticRegression(regParam=0.01), READ + STAY),
        (LogisticRegression(family="multinomial", regParam=0.01), READ + STAY),
        (LinearSVC(regParam=0.01), READ + STAY),
        (LossEstimator(loss=Logistic(), regParam=0.01), READ + STAY),
        (LinearRegression(solver="normal"), READ + PRODUCTS),
        (LinearRegression(solver="l-bfgs", regParam=0.01), READ + STAY),
        (LinearRegression(loss="huber"), READ + STAY),
        (AFTSurvivalRegression(labelCol="time"), READ + STAY),
        (GeneralizedLinearRegression(family="poisson"), READ + PRODUCTS + STAY),
    ],
    ids=lambda one: type(one).__name__,  # its uid differs in each process
)
def test_jobs_and_reads_of_a_fit(ps, spark, counted, estimator, expected):
    frame, reads = counted
    before, read = jobs(spark), reads.value
    estimator.fit(frame)
    assert jobs(spark) - before == expected
    assert reads.value - read == COUNT


def test_fits_of_several_param_maps_share_jobs_and_rows(ps, spark, counted):
    frame, reads = counted
    estimator = LogisticRegression()
    maps = [{estimator.regParam: strength} for strength in (0.1, 0.01, 0.001)]
    before, read = jobs(spark), reads.value
    assert len(estimator.fit(frame, maps)) == 3
    assert jobs(spark) - before == READ + STAY
    assert reads.value - read == COUNT


def test_requests_of_a_fit_grow_with_its_iterations_only(ps, counted):
    frame, _ = counted
    found = []
    for limit in (4, 8):
        before = ps.counters.messages
        model = LogisticRegression(regParam=0.001, tol=0.0, maxIter=limit).fit(frame)
        found.append((model.summary.totalIterations, ps.counters.messages - before))
    (few, low), (many, high) = found
    assert (few, many) == (4, 8)
    assert high - low <= 7 * (many - few) + MAILBOX, found
    assert low <= 30 + 7 * few, found


def tasks(spark):
    """How many tasks were begun so far, and one."""
    return spark.sparkContext._jsc.sc().taskScheduler().newTaskId()


@pytest.mark.parametrize("kind", ["graph", "ratings"])
def test_frames_of_many_small_partitions_take_few_tasks(ps, spark, kind):
    many = 200
    ids = spark.range(400).repartition(many)
    frame = ids.selectExpr("id % 20 as user", "id % 7 as item", "1.0 as rating").cache()
    frame.count()
    before = tasks(spark)
    if kind == "graph":
        with Graph(frame, "user", "item") as graph:
            graph.pagerank()
    else:
        ALS(maxIter=1, rank=2).fit(frame)
    assert tasks(spark) - before < many
    frame.unpersist()
