"""Params that all estimators have and MLlib's lack: optimizers, warm starts, checkpoints."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from pyspark.ml import classification
from pyspark.ml.linalg import Vectors

from distvec.losses import Logistic
from distvec.spark.ml.classification import (
    LinearSVC,
    LogisticRegression,
    LogisticRegressionModel,
)
from distvec.spark.ml.losses import LossEstimator
from distvec.spark.ml.regression import FMRegressor, LinearRegression
from distvec.spark.objectives.evaluator import Evaluator
from distvec.spark.objectives.objective import Objective
from ps_backend.durability.checkpoint_directory import names_checkpoint
from tests.quick_start import QUICK_START
from tests.waiting import PATIENCE, has_ended, wait_for


@pytest.fixture(scope="module")
def rows(spark):
    """The rows of all fits here."""
    return noisy_rows(spark).cache()


def noisy_rows(spark):
    """Labels of two classes with noise, so that fits take some iterations."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(120, 5)) * [1.0, 3.0, 0.3, 1.0, 2.0]
    y = x @ [1.0, -0.5, 3.0, 0.0, 0.2] + 2 * rng.logistic(size=120) > 0.3
    data = [(float(label), Vectors.dense(row)) for label, row in zip(y, x, strict=True)]
    return spark.createDataFrame(data, ["label", "features"]).coalesce(2)


def test_optimizers_and_warm_starts(ps, rows, capsys, tmp_path):
    estimator = LogisticRegression(regParam=0.01, tol=1e-10)
    model = estimator.fit(rows)
    newton = estimator.copy({estimator.optimizer: "trust-ncg", estimator.verbose: True}).fit(rows)
    assert newton.summary.totalIterations < model.summary.totalIterations
    assert "iteration" in capsys.readouterr().err
    assert np.allclose(newton.coefficients, model.coefficients, atol=1e-7)
    limited = LogisticRegression(optimizerOptions={"max_iterations": 1}).fit(rows)
    assert limited.summary.totalIterations == 1
    again = estimator.copy().setInitialModel(model)
    assert again.fit(rows).summary.totalIterations < model.summary.totalIterations / 2
    without = again.copy({again.fitIntercept: False}).fit(rows)
    assert without.intercept == 0.0
    assert estimator.copy({estimator.initialModel: without}).fit(rows).intercept != 0.0

    listed = again.explainParams()
    for name in ("optimizer", "optimizerOptions", "initialModel", "verbose", "checkpointDir"):
        assert f"\n{name}: " in listed
    again.setOptimizer("L-BFGS").setOptimizerOptions({"history": 5})
    again.save(str(tmp_path / "ours"))
    loaded = LogisticRegression.load(str(tmp_path / "ours"))
    assert loaded.getOrDefault("optimizerOptions") == {"history": 5}
    assert not loaded.isDefined("initialModel")
    again.write().format("mllib").save(str(tmp_path / "mllib"))
    theirs = classification.LogisticRegression.load(str(tmp_path / "mllib"))
    assert theirs.getRegParam() == 0.01

    with pytest.raises(ValueError, match="optimizer given invalid value 'lbgfs'; must be one of"):
        LogisticRegression(optimizer="lbgfs")
    with pytest.raises(TypeError, match=r"convert MLlib's, such as .*from_mllib"):
        LogisticRegression(initialModel=model.to_mllib())
    with pytest.raises(ValueError, match="does not fit Softmax"):
        LogisticRegression(family="multinomial", initialModel=model).fit(rows)


class Killed(BaseException):
    """The end of a driver."""


@pytest.mark.filterwarnings("ignore:no checkpoint in")  # a slow disk leaves some out
def test_a_fit_continues_after_a_crash(ps, rows, tmp_path, monkeypatch):
    place = tmp_path / "checkpoints"
    estimator = LogisticRegression(
        regParam=0.01, tol=1e-12, checkpointDir=str(place), checkpointInterval=1
    )
    expected = LogisticRegression(regParam=0.01, tol=1e-12).fit(rows)
    calls, evaluate = [], Objective.__call__

    def until(limit):
        def call(self, x):
            calls.append(x)
            if len(calls) > limit:
                raise Killed
            return evaluate(self, x)

        calls.clear()
        monkeypatch.setattr(Objective, "__call__", call)

    until(99)
    estimator.copy().fit(rows)
    whole = len(calls)
    assert list(place.iterdir()) == []
    until(6)
    with pytest.raises(Killed):
        estimator.fit(rows)
    until(99)
    with pytest.raises(ValueError, match=r"another fit: its regParam is 0\.01, and is 0\.5 now"):
        estimator.copy({estimator.regParam: 0.5}).fit(rows)
    with pytest.raises(ValueError, match="another fit: its number of rows is 120"):
        estimator.fit(rows.limit(100))
    with pytest.raises(ValueError, match="another fit: its estimator is 'LogisticRegression'"):
        LinearSVC(regParam=0.01, tol=1e-12, checkpointDir=str(place)).fit(rows)
    until(99)
    model = estimator.fit(rows)
    assert len(calls) < whole  # one more, by which the problem is recognized
    assert model.coefficients == expected.coefficients and model.intercept == expected.intercept
    assert model.summary.objectiveHistory == expected.summary.objectiveHistory
    assert list(place.iterdir()) == []

    # Several fits have a folder each, so they do not take each other's.
    maps = [{estimator.regParam: 0.01}, {estimator.regParam: 0.1}]
    until(whole + 5)
    with pytest.raises(Killed):
        estimator.fit(rows, maps)
    assert len(list(place.iterdir())) == 1 + 1
    until(99)
    first, _ = estimator.fit(rows, maps)
    assert first.coefficients == expected.coefficients
    for folder in place.iterdir():
        assert list(folder.iterdir()) == []


OTHERS = {
    "steps until a rule stops them": FMRegressor(
        factorSize=2, fitLinear=False, fitIntercept=False, seed=1, stepSize=0.3, tol=0.1
    ),
    "a scale beside the coefficients": LinearRegression(loss="huber", regParam=0.1, tol=1e-8),
}


@pytest.mark.filterwarnings("ignore:no checkpoint in")
@pytest.mark.parametrize("name", OTHERS)
def test_other_fits_continue_from_the_last_checkpoint(ps, rows, tmp_path, monkeypatch, name):
    estimator = OTHERS[name].copy().setCheckpointDir(str(tmp_path)).setCheckpointInterval(1)
    calls, most, sums = [], [1000], Evaluator.sums

    def counted(*arguments):
        calls.append(1)
        if len(calls) > most[0]:
            raise Killed
        return sums(*arguments)

    monkeypatch.setattr(Evaluator, "sums", counted)
    expected = estimator.copy().fit(rows)
    assert 2 < len(expected._training.history) < 99
    most[0] = len(calls) - 1
    calls.clear()
    with pytest.raises(Killed):
        estimator.fit(rows)
    calls.clear()
    model = estimator.fit(rows)
    assert len(calls) < most[0]
    found, right = ([one.tobytes() for one in m.fitted.arrays] for m in (model, expected))
    assert found == right and model._training.history == expected._training.history


STOPPED = """
import sys
from pyspark.sql import SparkSession
from distvec.spark import PSContext
from distvec.spark.objectives.objective import Objective
from tests.spark.ml.test_fits import noisy_rows, steady

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "OFF").config(*QUICK_START).getOrCreate()
ps = PSContext.get_or_create(spark, servers=2)
calls, evaluate = [], Objective.__call__

def call(self, x):
    calls.append(x)
    if len(calls) == 9:
        print(*ps.server_pids, flush=True)
        sys.stdin.readline()  # until the end
    return evaluate(self, x)

Objective.__call__ = call
steady(checkpointDir=PLACE, checkpointInterval=1).fit(noisy_rows(spark))
"""


def steady(**params):
    """An estimator that takes more than ten iterations."""
    return LogisticRegression(regParam=0.01, tol=1e-12, **params)


def test_a_lost_server_costs_time_alone(ps, rows, kill, monkeypatch):
    """With it go the parameters, and the list of features of a compact fit."""
    estimator = LossEstimator(loss=Logistic(), compact=True, regParam=0.01)
    model, evaluate, calls = estimator.fit(rows), Evaluator.sums, []

    def kill_and_evaluate(*args, **options):
        calls.append(args)
        if len(calls) == 5:
            kill(ps.server_pids[-1])
        return evaluate(*args, **options)

    monkeypatch.setattr(Evaluator, "sums", kill_and_evaluate)
    with pytest.warns(RuntimeWarning, match="the fit starts again: .* lost"):
        again = estimator.fit(rows)
    assert len(calls) > 4 + model.summary.totalIterations
    assert again.coefficients == model.coefficients
    assert again.summary.objectiveHistory == model.summary.objectiveHistory


@pytest.mark.long
def test_a_fit_continues_after_its_driver_was_killed(ps, rows, driver, tmp_path, monkeypatch):
    place = tmp_path / "checkpoints"
    script = STOPPED.replace("QUICK_START", repr(QUICK_START)).replace("PLACE", repr(str(place)))
    process = driver(script)
    pids = process.stdout.readline().split()
    assert len(pids) == 2, process.stderr.read()
    wait_for(lambda: any(map(names_checkpoint, os.listdir(place))))
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    assert all(has_ended(int(pid)) for pid in pids)

    calls, evaluate = [], Objective.__call__
    monkeypatch.setattr(
        Objective, "__call__", lambda self, x: (calls.append(x), evaluate(self, x))[1]
    )
    expected = steady().fit(rows)
    whole = len(calls)
    model = steady(checkpointDir=str(place), checkpointInterval=1).fit(rows)
    assert len(calls) - whole < whole
    assert model.coefficients == expected.coefficients and model.intercept == expected.intercept
    assert model.summary.objectiveHistory == expected.summary.objectiveHistory
    assert list(place.iterdir()) == []


def test_checkpoints_of_others_stay(ps, rows, tmp_path):
    ps.checkpoint(tmp_path, w=ps.ones(3))
    with pytest.raises(ValueError, match="checkpoints that no estimator wrote"):
        LogisticRegression(checkpointDir=str(tmp_path)).fit(rows)
    assert isinstance(LogisticRegression().fit(rows), LogisticRegressionModel)
