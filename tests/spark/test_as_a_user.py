"""Programs as users write and run them: spark-submit, notebooks, scripts that stop nothing."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors

from distvec.spark import LogisticLoss, PSContext, margins
from distvec.spark.data.blocks import scratch_directory
from distvec.spark.jobs.application import free_slots
from optim import SGD
from ps_backend.errors import PSError
from tests.quick_start import QUICK_START
from tests.spark.conftest import ROOT
from tests.waiting import PATIENCE, has_ended, join_all

pytestmark = pytest.mark.spark

SUBMIT = Path(sys.executable).with_name("spark-submit")


OBJECTIVE = """
from pyspark.sql import SparkSession

from distvec.losses import Logistic
from distvec.spark import Objective, PSContext
from optim import SquaredL2Norm

spark = SparkSession.builder.master("local[2]").getOrCreate()
rows = [(float(k % 2), [k % 3.0, k % 5.0, 1.0]) for k in range(30)]
train = spark.createDataFrame(rows, ["label", "features"])
ps = PSContext.get_or_create(spark, servers=2)
objective = Objective(train, loss=Logistic(), penalty=SquaredL2Norm(1e-3), intercept=True)
model = objective.fit()
ps.stop()
spark.stop()
"""

# A second Spark in the same process, which stops nothing; what the first one made is not usable.
FORGETS = """
import json, sys
from distvec.spark import LogisticLoss, margins

spark = SparkSession.builder.master("local[2]").getOrCreate()
train = spark.createDataFrame(rows, ["label", "features"])

def refusal(action):
    try:
        return repr(action())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

print("found", json.dumps(refusal(PSContext.active)))
old = ps
ps = PSContext.get_or_create(spark)
print("found", json.dumps([
    refusal(lambda: objective(model.x)),
    refusal(lambda: margins(train, model.x)),
    refusal(model.x.numpy),
]))
loss = LogisticLoss(train, mode="resident")
print("found", json.dumps([float(loss(ps.zeros(3))[0]), ps.server_pids]), flush=True)
sys.exit(3)
"""


def test_a_script_under_spark_submit_that_stops_nothing(tmp_path):
    path = tmp_path / "example.py"
    path.write_text(OBJECTIVE + FORGETS)
    environment = os.environ | {
        "PATH": f"{SUBMIT.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    quiet = (("spark.ui.enabled", "false"), ("spark.ui.showConsoleProgress", "false"))
    options = [f"--conf={name}={value}" for name, value in (QUICK_START, *quiet)]
    command = [SUBMIT, *options, path]
    ended = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 3, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Warning" not in ended.stderr
    # spark-submit adds the script's stderr, where gRPC and PySpark tell of connections that end.
    for package in ("distvec", "ps_backend"):
        assert f"{ROOT}/{package}/" not in ended.stdout
    lines = [line for line in ended.stdout.splitlines() if line.startswith("found ")]
    none, refused, (value, pids) = (json.loads(line.removeprefix("found ")) for line in lines)
    assert none.startswith("RuntimeError: no PSContext is running; start one first: ")
    for text, kind in zip(refused, ("RuntimeError", "RuntimeError", "PSError"), strict=True):
        assert text.startswith(f"{kind}: ")
        assert "PSContext" in text
        assert "was stopped" in text
        assert "PSContext.get_or_create(spark)" in text
    assert value == pytest.approx(np.log(2.0))
    assert len(pids) == 2
    assert all(has_ended(pid) for pid in pids)


# --- notebooks ------------------------------------------------------------------------------------

CELL = """
loss = LogisticLoss(frame, l2=1e-4, mode=mode)
result = SGD(step_size=0.5, max_iterations=2).minimize(loss, ps.zeros(loss.dimension))
if broken:
    raise ZeroDivisionError
print(result.x.numpy())
"""


class Held(NamedTuple):
    """What a process and its servers hold."""

    threads: list[str]
    datasets: set[int]
    directories: set[str]
    buffers: int
    sessions: int


def settle(ps):
    """Wait until all that was forgotten has been ended."""
    gc.collect()
    settled = threading.Event()
    ps.finalizers.hold(settled.set)
    assert settled.wait(PATIENCE)


def held(ps, scratch):
    """Looked up when all is settled; ``scratch`` is the tasks' directory."""
    settle(ps)
    for thread in threading.enumerate():
        if thread.name == "idle-residents":  # of a job that was told to end
            join_all(thread)
    status = ps.client.status()
    names = [re.sub(r"\d+", "", thread.name) for thread in threading.enumerate()]
    return Held(
        threads=sorted(name for name in names if name != "Dummy-"),  # Python's note of an ended one
        datasets=set(ps.spark_context._jsc.getPersistentRDDs()),
        directories={name for name in os.listdir(scratch) if name.startswith("distvec-")},
        buffers=sum(one.buffers for one in status),
        sessions=max(one.sessions for one in status),
    )


def beyond(now, before):
    """What is held that was not; less than before is no leak."""
    return Held(
        sorted((Counter(now.threads) - Counter(before.threads)).elements()),
        now.datasets - before.datasets,
        now.directories - before.directories,
        max(0, now.buffers - before.buffers),
        max(0, now.sessions - before.sessions),
    )


@pytest.fixture(params=["job", "resident"])
def notebook(request, spark, ps):
    """The names that a user's cells share."""
    rows = [(float(k % 2), Vectors.sparse(40, {k: 1.0, k + 1: 2.0})) for k in range(10)]
    frame = spark.createDataFrame(rows, ["label", "features"]).coalesce(2)
    names = {"LogisticLoss": LogisticLoss, "SGD": SGD, "frame": frame, "ps": ps, "broken": False}
    return names | {"mode": request.param}


def test_a_cell_that_runs_again_leaks_nothing(notebook, ps, spark, capsys):
    task = spark.sparkContext.parallelize([0], 1).map(lambda _: scratch_directory())
    (scratch,) = task.collect()
    before = held(ps, scratch)
    exec(CELL, notebook)
    after_one = beyond(held(ps, scratch), before)
    assert [len(kept) for kept in after_one[1:3]] == [1, 1]
    notebook["broken"] = True
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            exec(CELL, notebook)
    notebook["broken"] = False
    exec(CELL, notebook)
    after_four = beyond(held(ps, scratch), before)
    assert [len(kept) for kept in after_four[1:3]] == [1, 1]
    assert after_four[3:] == after_one[3:]
    assert Counter(after_four.threads) <= Counter(after_one.threads)
    once, again = capsys.readouterr().out.split("]")[:2]
    assert once.strip() == again.strip()
    del notebook["loss"], notebook["result"]
    assert beyond(held(ps, scratch), before) == Held([], set(), set(), 0, 0)
    assert free_slots(spark.sparkContext) == 2


def test_the_tasks_of_a_loss_make_way_for_the_next_one(ps, spark, problem, monkeypatch):
    monkeypatch.setattr("distvec.spark.objectives.evaluator._IDLE_SECONDS", 3600.0)
    with LogisticLoss(problem.frame, mode="resident") as first:
        w = ps.ones(first.dimension)
        value = float(first(w)[0])
        assert free_slots(spark.sparkContext) == 0
        with LogisticLoss(problem.frame, mode="resident") as second:
            assert free_slots(spark.sparkContext) == 2
            assert float(second(w)[0]) == value
        assert free_slots(spark.sparkContext) == 2
        assert float(first(w)[0]) == value


def test_a_loss_under_another_penalty_keeps_the_data(ps, problem):
    loss = LogisticLoss(problem.frame, ps=ps)
    w = ps.ones(loss.dimension)
    value = float(loss(w)[0])
    loss = loss.with_l2(0.0)
    settle(ps)
    assert float(loss(w)[0]) == value


def test_what_a_stopped_context_made_says_so(spark, problem):
    if PSContext._active is not None:
        PSContext._active.stop()
    with PSContext.get_or_create(spark, servers=1) as old:
        x = old.ones(3000).persist()
        loss = LogisticLoss(problem.frame)
    stopped = "this PSContext was stopped and its arrays were freed; start one"
    with PSContext.get_or_create(spark, servers=1) as ps:
        for use in (x.numpy, lambda: float((x * x).sum()), lambda: old.array([1.0]), x.__repr__):
            with pytest.raises(PSError, match=stopped):
                use()
        with pytest.raises(RuntimeError, match=stopped):
            margins(problem.frame, x)
        with pytest.raises(RuntimeError, match="the PSContext of this objective was stopped"):
            loss(ps.ones(3000))
        with pytest.raises(ValueError, match="the operands belong to two sessions"):
            x + ps.ones(3000)
