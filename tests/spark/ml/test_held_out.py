"""Rows that are held out: they do not train, their loss is known, and ends a fit."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors

import distvec.losses
from distvec.losses import Cox, Huber, Logistic, PairwiseRanking, Rows
from distvec.spark import Objective
from distvec.spark.ml.losses import LossEstimator, LossModel

COLUMNS = ["features", "label", "weight", "query", "heldOut"]


def samples(seed=4, count=160, columns=6):
    """Features half of which are 0, labels, weights, groups; the first 30 rows are held out."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, columns)) * (rng.random((count, columns)) < 0.5)
    y = (x[:, 0] - x[:, 1] + rng.normal(size=count) > 0).astype(float)
    held = np.arange(count) < 30
    held[40::5] = True
    return x, y, rng.integers(0, 3, count).astype(float), rng.integers(0, 9, count), held


def frame_of(spark, numbers, partitions):
    data = [
        (Vectors.sparse(len(a), np.flatnonzero(a), a[a != 0]), b, c, int(d), bool(e))
        for a, b, c, d, e in zip(
            *(one.tolist() if one.ndim == 1 else one for one in numbers), strict=True
        )
    ]
    return spark.createDataFrame(spark.sparkContext.parallelize(data, partitions), COLUMNS)


@pytest.fixture(scope="module")
def numbers():
    return samples()


@pytest.fixture(scope="module")
def frame(spark, numbers):
    """In partitions of 20 rows: all of the first are held out."""
    return frame_of(spark, numbers, 8).cache()


def test_only_the_others_train_and_their_loss_is_numpys(ps, frame, numbers):
    x, y, weights, _, held = numbers
    given = {"loss": Logistic(), "label": "label", "weight": "weight", "intercept": True}
    mine = distvec.losses.Objective(
        Rows(x[held], y[held], weights[held]), loss=Logistic(), intercept=True
    )
    theirs = Objective(frame.filter("NOT heldOut"), **given, ps=ps)
    w = np.linspace(-1, 1, 7)
    with theirs, Objective(frame, held_out="heldOut", **given, ps=ps) as objective:
        assert (objective.rows, objective.data.held_out) == ((~held).sum(), held.sum())
        assert objective.weight_sum == weights[~held].sum()
        at = ps.array(w)
        (value, slope), (known, its_slope) = objective(at), theirs(at)
        np.testing.assert_allclose(float(value), float(known), rtol=1e-14)
        np.testing.assert_allclose(slope.numpy(), its_slope.numpy(), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(objective.held_out_value(at), float(mine(w)[0]), rtol=1e-14)
        batches = objective.minibatches(10)
        total = sum(float(batches.batch(k)(at)[0]) for k in range(batches.batches_per_epoch))
        np.testing.assert_allclose(total / batches.batches_per_epoch, float(value), rtol=1e-12)
        assert batches.batches_per_epoch == -(-int((~held).sum()) // 10)
        ps.counters.reset()
        objective.held_out_value(at)
        assert ps.counters.messages <= 4


@pytest.mark.parametrize("mode", ["job", "resident"])
def test_the_penalty_counts_for_no_held_out_row(ps, frame, mode):
    from optim import SquaredL2Norm

    given = {"loss": Logistic(), "held_out": "heldOut", "mode": mode, "ps": ps}
    with Objective(frame, **given, penalty=SquaredL2Norm(5.0)) as objective:
        at = ps.ones(6)
        plain = objective.with_penalty(None)
        assert objective.held_out_value(at) == plain.held_out_value(at)
        assert float(objective(at)[0]) > float(plain(at)[0]) + 1


@pytest.mark.parametrize("options", [{}, {"standardization": False}, {"compact": True}])
def test_a_fit_has_the_loss_after_each_iteration(ps, frame, numbers, options):
    x, y, _, _, held = numbers
    estimator = LossEstimator(loss=Logistic(), regParam=0.01, tol=1e-10, **options)
    model = estimator.setParams(validationIndicatorCol="heldOut").fit(frame)
    plain = LossEstimator(loss=Logistic(), regParam=0.01, tol=1e-10, **options)
    known = plain.fit(frame.filter("NOT heldOut"))
    np.testing.assert_allclose(
        model.coefficients.toArray(), known.coefficients.toArray(), rtol=1e-6
    )
    history = model.summary.validationHistory
    assert len(history) == model.summary.totalIterations
    margins = x[held] @ model.coefficients.toArray() + model.intercept
    loss = np.logaddexp(0, np.where(y[held] > 0, -margins, margins)).mean()
    np.testing.assert_allclose(history[-1], loss, rtol=1e-6)
    with pytest.raises(ValueError, match="set validationIndicatorCol="):
        known.summary.validationHistory  # noqa: B018


def test_patience_ends_a_fit_with_the_best_parameters(ps, spark, tmp_path):
    """Few rows with many features of noise: other rows gain by the first epochs only."""
    numbers = samples(count=160, columns=40)
    x, y, _, _, held = numbers
    frame = frame_of(spark, numbers, 2)
    given = {"loss": Logistic(), "batchSize": 5, "epochs": 40, "validationIndicatorCol": "heldOut"}
    given["optimizerOptions"] = {"step_size": 0.02}
    to_the_end = LossEstimator(**given).fit(frame).summary.validationHistory
    model = LossEstimator(**given, patience=3).fit(frame)
    history = model.summary.validationHistory
    best = int(np.argmin(history))
    assert len(to_the_end) == 40 and history == to_the_end[: best + 4] and 0 < best < 36
    margins = x[held] @ model.coefficients.toArray() + model.intercept
    loss = np.logaddexp(0, np.where(y[held] > 0, -margins, margins)).mean()
    np.testing.assert_allclose(min(history), loss, rtol=1e-12)
    model.save(str(tmp_path / "model"))
    loaded = LossModel.load(str(tmp_path / "model"))
    assert loaded.coefficients == model.coefficients and loaded.getOrDefault("patience") == 3


def test_groups_and_bits(ps, frame):
    """The same numbers again, of a loss of groups, too."""
    given = {"loss": PairwiseRanking(), "groupCol": "query", "validationIndicatorCol": "heldOut"}
    first, second = (LossEstimator(**given, maxIter=5).fit(frame) for _ in range(2))
    assert first.coefficients == second.coefficients
    assert first.summary.validationHistory == second.summary.validationHistory


def test_bad_input(ps, spark, frame):
    huber = LossEstimator(loss=Huber(), validationIndicatorCol="heldOut")
    with pytest.raises(ValueError, match="all rows are held out"):
        huber.fit(frame.selectExpr("features", "label", "true AS heldOut"))
    with pytest.raises(ValueError, match=r"held_out is 0\.5; allowed are 1 \(does not train\)"):
        huber.fit(frame.selectExpr("features", "label", "0.5 AS heldOut"))
    with pytest.raises(ValueError, match="no row is held out"):
        huber.fit(frame.selectExpr("features", "label", "false AS heldOut"))
    with pytest.raises(ValueError, match="held_out='no'"):
        huber.setParams(validationIndicatorCol="no").fit(frame)
    with pytest.raises(ValueError, match="patience needs held-out rows"):
        LossEstimator(loss=Huber(), patience=2).fit(frame)
    with pytest.raises(ValueError, match="exclude each other"):
        LossEstimator(
            loss=Huber(), patience=2, validationIndicatorCol="heldOut", checkpointDir="here"
        ).fit(frame)
    with pytest.raises(ValueError, match="compares each row with all others"):
        LossEstimator(loss=Cox(), validationIndicatorCol="heldOut").fit(frame)
