"""LogisticLoss on Spark and servers against the formula in NumPy."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import functions

import distvec
from distvec.losses import Hinge
from distvec.spark import LogisticLoss, PSContext
from distvec.spark.data.build import Descriptor
from optim import L1Norm
from ps_backend.errors import PSError
from tests.samples import sampled

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def loss(spark, problem):
    """A loss without penalty, weights or intercept."""
    with LogisticLoss(problem.frame, ps=PSContext.get_or_create(spark, servers=2)) as loss:
        yield loss


COLUMNS = [(None, False), (None, True), ("weight", False), ("weight", True)]
"""The column of weights, and whether there is an intercept."""


@pytest.mark.parametrize(("l2", "columns"), sampled([0.0, 0.3], COLUMNS, every=2))
def test_value_and_gradient(ps, problem, l2, columns):
    weight, intercept = columns
    with LogisticLoss(problem.frame, weight=weight, l2=l2, intercept=intercept, ps=ps) as loss:
        assert loss.dimension == 3000 + intercept
        assert loss.rows == 60
        assert loss.weight_sum == pytest.approx(problem.c.sum() if weight else 60.0, rel=1e-15)
        w = np.random.default_rng(7).normal(size=loss.dimension)
        value, gradient = loss(ps.array(w))
        expected = problem.value_and_gradient(w, l2, intercept, weight is not None)
        assert value.shape == ()
        assert gradient.shape == (loss.dimension,)
        assert float(value) == pytest.approx(expected[0], rel=1e-12)
        np.testing.assert_allclose(gradient.numpy(), expected[1], rtol=1e-12, atol=1e-14)


def test_float32_weights(loss, ps, problem):
    w = np.random.default_rng(1).normal(size=loss.dimension).astype(np.float32)
    value, gradient = loss(ps.array(w))
    expected = problem.value_and_gradient(w.astype(np.float64))
    assert gradient.dtype == np.float32
    assert float(value) == pytest.approx(expected[0], rel=1e-6)
    np.testing.assert_allclose(gradient.numpy(), expected[1], rtol=1e-5, atol=1e-7)


def test_another_penalty_on_the_same_blocks(loss, ps, problem):
    w = np.random.default_rng(2).normal(size=loss.dimension)
    value, gradient = loss.with_l2(2.0)(ps.array(w))
    expected = problem.value_and_gradient(w, 2.0)
    assert float(value) == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(gradient.numpy(), expected[1], rtol=1e-12, atol=1e-14)
    assert loss.l2 == 0.0


def test_value_and_gradient_are_lazy(loss, ps):
    w = ps.zeros(loss.dimension).persist()
    with ps.strict():
        value, gradient = loss.with_l2(0.1)(w)
    ps.counters.reset()
    distvec.evaluate(value, gradient)
    assert ps.counters.messages <= 1


def test_an_evaluation_costs_the_driver_no_vector(loss, ps):
    w = ps.zeros(loss.dimension).persist()
    before = ps.counters.bytes_received, ps.counters.bytes_sent
    loss(w)
    assert ps.counters.bytes_received - before[0] < 500
    assert ps.counters.bytes_sent - before[1] < 1000


def test_the_same_bits_each_time(loss, ps):
    w = ps.ones(loss.dimension)
    (value, gradient), (again, gradient_again) = loss(w), loss(w)
    assert float(value) == float(again)
    np.testing.assert_array_equal(gradient.numpy(), gradient_again.numpy())


def test_the_penalty_spares_the_intercept(ps, problem):
    with LogisticLoss(problem.frame, intercept=True, ps=ps) as loss:
        penalty = loss.l1_weights(0.25).numpy()
    np.testing.assert_array_equal(penalty, [*[0.25] * 3000, 0.0])


def test_the_penalty_without_intercept_is_a_number(loss):
    assert loss.l1_weights(0.25) == 0.25


def test_blocks_that_vanished_are_built_again(ps, problem):
    with LogisticLoss(problem.frame, ps=ps) as loss:
        before = float(loss(ps.ones(loss.dimension))[0])
        for path in loss.data.run(lambda rows: [Descriptor(*row).path for row in rows]):
            shutil.rmtree(path)
        # As on a machine that never had the files: the workers forget their mappings.
        loss.data.run(_forget_blocks)
        assert float(loss(ps.ones(loss.dimension))[0]) == before


def _forget_blocks(rows):
    from distvec.spark.objectives.evaluation_task import LoadedPartitions
    from distvec.spark.task_session import singleton

    singleton(LoadedPartitions).clear()
    return list(rows)


def test_refusals(loss, ps, problem):
    with pytest.raises(TypeError, match=r"w is ndarray; create a DistArray: ps.array\(w\)"):
        loss(np.zeros(loss.dimension))
    with pytest.raises(ValueError, match=r"w has shape \(5,\), this objective needs \(3000,\)"):
        loss(ps.zeros(5))
    with pytest.raises(TypeError, match="w has dtype int64; allowed are float64 and float32"):
        loss(ps.zeros(loss.dimension, dtype=np.int64))
    with (
        distvec.local(1, in_process=True) as other,
        pytest.raises(ValueError, match="another PSContext"),
    ):
        loss(other.zeros(loss.dimension))
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"l2={bad}; must be finite and 0 or more"):
            loss.with_l2(bad)


def test_a_failed_evaluation_changes_nothing(loss, ps, monkeypatch):
    w = ps.ones(loss.dimension).persist()
    before = float(loss(w)[0])
    held = [server.buffers for server in ps.client.status()]
    monkeypatch.setattr("distvec.spark.objectives.evaluator.evaluate", _fail)
    with pytest.raises(PSError, match="in the task of partition 0: no luck"):
        loss(w)
    monkeypatch.setattr("distvec.spark.objectives.evaluator.evaluate", _raise)
    with pytest.raises(RuntimeError, match="a Spark job failed: ArithmeticError: no luck at all"):
        loss(w)
    monkeypatch.undo()
    assert [server.buffers for server in ps.client.status()] == held
    assert float(loss(w)[0]) == before


def _fail(work, request, access, row):
    from distvec.spark.objectives.evaluation_task import PartitionResult

    return PartitionResult(row.partition, 0, error="PSError", details=("no luck",))


def _raise(work, request, access, row):
    raise ArithmeticError("no luck at all")


def test_a_loss_without_its_context_refuses_at_once(spark, problem):
    with PSContext.get_or_create(spark) as ps:
        loss = LogisticLoss(problem.frame)
        w = ps.zeros(loss.dimension)
    with pytest.raises(
        RuntimeError, match="the PSContext of this objective was stopped; start one"
    ):
        loss(w)
    loss.close()


def test_something_else_than_a_frame(ps, spark, problem):
    for data, told in (
        (np.ones((3, 2)), r"data is numpy.ndarray; .* distvec.losses.Objective\(\(X, y\), loss="),
        ((problem.x, problem.y), r"data is tuple; .* distvec.losses.Objective\(\(X, y\), loss="),
        (pd.DataFrame({"x": [1.0]}), r"data is pandas.DataFrame; .*spark.createDataFrame\(data\)"),
        (problem.frame.rdd, r"data is pyspark.RDD; .*spark.createDataFrame\(data\)"),
    ):
        with pytest.raises(TypeError, match=told):
            LogisticLoss(data, ps=ps)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"regParam": 0.1}, r"LogisticLoss has no argument 'regParam': write l2="),
        ({"featuresCol": "x"}, r"no argument 'featuresCol': write features="),
        ({"penalty": L1Norm(0.1)}, r"'penalty'.* Objective\(data, loss=Logistic\(\), penalty="),
        ({"loss": Hinge()}, r"'loss'.* Objective\(data, loss="),
        ({"labels": "y"}, r"no argument 'labels'; did you mean 'label'"),
        ({"positive_label": "yes"}, r"positive_label='yes'; must be a number.*StringIndexer"),
        ({"positive_label": 5}, r"positive_label=5 does not occur; the labels are \[0.0, 1.0\]"),
    ],
)
def test_words_of_others(ps, problem, options, told):
    with pytest.raises((TypeError, ValueError), match=told):
        LogisticLoss(problem.frame, ps=ps, **options)


def test_minibatches_have_whole_sizes(ps, problem):
    with LogisticLoss(problem.frame, ps=ps, intercept=True) as loss:
        with pytest.raises(TypeError, match=r"batch_size=1.5; .*a whole number"):
            loss.minibatches(1.5)
        with pytest.raises(ValueError, match=r"needs \(3001,\), the last being the inter"):
            loss(ps.zeros(3000))


def test_a_job_that_fails_while_the_data_is_read(ps, problem):
    @functions.udf("double")
    def broken(label):
        raise ArithmeticError("no luck in a udf")

    frame = problem.frame.withColumn("label", broken("label"))
    with pytest.raises(RuntimeError, match="a Spark job failed: ArithmeticError: no luck in a udf"):
        LogisticLoss(frame, ps=ps)


def test_a_closed_loss_refuses(ps, problem):
    loss = LogisticLoss(problem.frame, ps=ps)
    loss.close()
    with pytest.raises(ValueError, match="the data was closed; make a new objective"):
        loss(ps.zeros(3000))
