"""ALS of pyspark.ml by another import: factors, predictions, recommendations, files, faults."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pyspark.ml import recommendation

from distvec.spark.ml.recommendation import ALS, ALSModel
from distvec.spark.objectives import ratings as tasks

RNG = np.random.default_rng(7)
USERS, ITEMS = 12, 9
TABLE = np.where(RNG.random((USERS, ITEMS)) < 0.5, RNG.integers(0, 6, (USERS, ITEMS)), np.nan)
TABLE[:, 0] = 3.0
TABLE[0] = 2.0

BLOCKS = {"numUserBlocks": 2, "numItemBlocks": 2}
"""By default there are ten of each, and so many tasks for these few rows."""


@pytest.fixture(scope="module")
def frame(spark):
    """Ratings with ids that are not dense, one pair of them twice."""
    places = np.argwhere(TABLE >= 0).tolist()
    rows = [(7 * u - 20, 5 * i, float(TABLE[u, i])) for u, i in places]
    rdd = spark.sparkContext.parallelize([*rows, (-20, 0, 4.0)], 3)
    return spark.createDataFrame(rdd, "user int, item int, rating double")


@pytest.fixture(scope="module")
def model(frame):
    return ALS(rank=3, maxIter=3, regParam=0.1, seed=4, **BLOCKS).fit(frame)


def factors_of(model):
    """The factors of users and items."""
    return [
        np.array([row.features for row in frame.orderBy("id").collect()])
        for frame in (model.userFactors, model.itemFactors)
    ]


def half(table, others, *, implicit):
    """The factors of the rows of ``table`` by the formula, one row after the other."""
    found = []
    for row, values in enumerate(table):
        known = np.flatnonzero(values >= 0)
        r, v = values[known], others[known]
        if row == 0:  # the pair that occurs twice
            r, v = np.append(r, 4.0), np.vstack([v, others[:1]])
        n, matrix, side = r.size, v.T @ v, v.T @ r
        if implicit:
            n, matrix = (r > 0).sum(), others.T @ others + (v.T * r) @ v
            side = v.T @ np.where(r > 0, 1.0 + r, 0.0)
        found.append(np.linalg.solve(matrix + 0.1 * n * np.eye(3), side))
    return np.array(found)


@pytest.mark.parametrize("implicit", [False, True])
def test_factors_are_those_of_the_formula(ps, frame, implicit):
    x = ps.random.normal(size=(USERS, 3), seed=4).numpy()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for _ in range(2):
        y = half(TABLE.T, x, implicit=implicit)
        x = half(TABLE, y, implicit=implicit)
    als = ALS(rank=3, maxIter=2, regParam=0.1, seed=4, implicitPrefs=implicit, **BLOCKS)
    users, items = factors_of(als.fit(frame))
    assert np.allclose(users, x, rtol=1e-5, atol=1e-6)
    assert np.allclose(items, y, rtol=1e-5, atol=1e-6)


def test_factors_do_not_depend_on_partitions(frame, model):
    other = ALS(rank=3, maxIter=3, regParam=0.1, seed=4, numUserBlocks=1, numItemBlocks=4)
    for one, two in zip(
        factors_of(model), factors_of(other.fit(frame.repartition(5))), strict=True
    ):
        assert (one == two).all()


def test_the_objective_falls_and_nonnegative_factors_are_such(frame, model):
    history = ALS(rank=3, maxIter=6, nonnegative=True, seed=4, **BLOCKS).fit(frame)
    assert (np.diff(history.objectiveHistory) <= 1e-9).all()
    assert all((one >= 0.0).all() for one in factors_of(history))
    assert history.objectiveHistory[2] >= model.objectiveHistory[2]


def test_lost_servers_cost_time_alone(ps, frame, model, kill, monkeypatch):
    solve, calls = tasks._solve_side, []

    def solve_and_kill(*args):
        calls.append(args)
        if len(calls) == 3:
            for pid in ps.server_pids:
                kill(pid)
        return solve(*args)

    monkeypatch.setattr(tasks, "_solve_side", solve_and_kill)
    with pytest.warns(RuntimeWarning, match="the factorization starts again"):
        again = ALS(rank=3, maxIter=3, regParam=0.1, seed=4, **BLOCKS).fit(frame)
    assert len(calls) > 6
    for one, two in zip(factors_of(model), factors_of(again), strict=True):
        assert (one == two).all()


def test_half_an_iteration_costs_a_pull_and_a_push_for_each_partition(ps, frame):
    with_one = ALS(rank=3, seed=4, numUserBlocks=1, numItemBlocks=1)
    used = []
    for iterations in (1, 3):
        ps.counters.reset()
        with_one.fit(frame, {with_one.maxIter: iterations})
        used.append(ps.counters.messages)
    # The driver makes an array, opens a round and commits it, on each of two servers.
    assert used[1] - used[0] <= 2 * 2 * 2 * 4


def test_predictions_and_unknown_ids(spark, frame, model):
    users, items = factors_of(model)
    new = spark.createDataFrame([(-20, 5), (-13, 40), (99, 5), (-20, 7)], ["user", "item"])
    found = [row.prediction for row in model.transform(new).collect()]
    assert np.allclose(found[:2], [users[0] @ items[1], users[1] @ items[8]], rtol=1e-5)
    assert all(map(math.isnan, found[2:]))
    dropped = model.copy({model.coldStartStrategy: "drop"}).transform(new)
    assert [row.user for row in dropped.collect()] == [-20, -13]
    bad = spark.createDataFrame([(-20, None)], "user int, item int")
    with pytest.raises(Exception, match="an id is null"):
        model.transform(bad).collect()


def test_recommendations_are_the_largest_products(spark, model):
    users, items = factors_of(model)
    products = users @ items.T
    small = model.copy({model.blockSize: 5})
    rows = {row.user: row.recommendations for row in small.recommendForAllUsers(4).collect()}
    assert len(rows) == USERS
    for u, each in enumerate(products):
        best = np.argsort(-each)[:4]
        assert [one.item for one in rows[7 * u - 20]] == [5 * i for i in best]
        assert np.allclose([one.rating for one in rows[7 * u - 20]], each[best], rtol=1e-5)
    some = spark.createDataFrame([(5,), (40,), (5,), (41,)], ["item"])
    of_items = {
        row.item: row.recommendations for row in model.recommendForItemSubset(some, 99).collect()
    }
    assert sorted(of_items) == [5, 40]
    assert len(of_items[5]) == USERS
    with pytest.raises(ValueError, match="numItems=0"):
        model.recommendForAllUsers(0)


def test_files_are_ours_and_mllibs(spark, frame, model, tmp_path):
    new = frame.select("user", "item").limit(5)
    expected = model.transform(new).collect()
    model.save(f"{tmp_path}/ours")
    loaded = ALSModel.load(f"{tmp_path}/ours")
    assert loaded.rank == 3
    assert loaded.transform(new).collect() == expected
    model.write().format("mllib").save(f"{tmp_path}/mllib")
    theirs = recommendation.ALSModel.load(f"{tmp_path}/mllib")
    again = ALSModel.from_mllib(model.to_mllib())
    for other in (theirs, again):
        close = {(row.user, row.item): row.prediction for row in other.transform(new).collect()}
        for row in expected:
            assert close[row.user, row.item] == pytest.approx(row.prediction, rel=1e-5)
    als = ALS(rank=2, alpha=3.0)
    als.save(f"{tmp_path}/als")
    assert ALS.load(f"{tmp_path}/als").getAlpha() == 3.0
    assert recommendation.ALS().uid.startswith("ALS")


BAD = [
    ("user long, item int, rating double", [(2**31, 1, 1.0)], "the id 2147483648; ids must be"),
    ("user double, item int, rating double", [(0.5, 1, 1.0)], "the id 0.5; ids must be integers"),
    ("user double, item int, rating double", [(math.nan, 1, 1.0)], "the id nan"),
    ("user int, item int, rating double", [(None, 1, 1.0)], "the column of users has nulls"),
    ("user int, item int, rating double", [(1, 1, math.nan)], "user 1 and item 1 is nan"),
    ("user int, item int, rating double", [], "the data has no rows"),
]


@pytest.mark.parametrize(("schema", "rows", "reason"), BAD)
def test_bad_ratings_raise_an_error(ps, spark, schema, rows, reason):
    with pytest.raises(ValueError, match=reason):
        ALS().fit(spark.createDataFrame(rows, schema))


def test_bad_columns_and_params_raise_an_error(ps, spark):
    texts = spark.createDataFrame([("a", 1, 1.0)], ["user", "item", "rating"])
    with pytest.raises(TypeError, match="StringIndexer"):
        ALS().fit(texts)
    with pytest.raises(ValueError, match="rank given invalid value 0"):
        ALS(rank=0)
    with pytest.raises(TypeError, match="did you mean 'userCol'"):
        ALS(usrCol="user")


def test_one_rating_without_a_rating_column(ps, spark):
    one = spark.createDataFrame([(3, 4)], ["user", "item"])
    model = ALS(ratingCol="", rank=2, regParam=0.0, maxIter=2).fit(one)
    assert model.transform(one).first().prediction == pytest.approx(1.0)
    blocks = tasks.Ratings(one.selectExpr("user", "item", "1.0 rating"), (10, 10))
    assert blocks.users.rows.tasks == blocks.items.rows.tasks == 1, "no task is without ratings"
    blocks.close()
