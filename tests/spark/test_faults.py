"""Whole drivers: retried tasks, and drivers that end without stopping anything."""

from __future__ import annotations

import json
import signal

import pytest

pytestmark = pytest.mark.spark

START = """
import json, sys, warnings
import numpy as np
from pyspark import TaskContext
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from distvec.spark import LogisticLoss, PSContext

warnings.simplefilter("ignore")
builder = SparkSession.builder.master(MASTER).config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
ps = PSContext.get_or_create(spark, servers=2)

def say(what):
    print(json.dumps(what), flush=True)
"""

RETRIED = """
import distvec.spark.loss as module

rng = np.random.default_rng(0)
rows = [(Vectors.dense(rng.normal(size=2000)), float(k % 2)) for k in range(12)]
frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), ["features", "label"])
loss = LogisticLoss(frame, l2=0.1)
w = ps.array(rng.normal(size=2000))
value, gradient = loss(w)
first = float(value), gradient.numpy()
evaluate = module.evaluate

def staged_and_failed(request, rows):
    outcomes = list(evaluate(request, rows))
    context = TaskContext.get()
    if context.attemptNumber() == 0 and context.partitionId() != 1:
        raise RuntimeError("after staging")
    return [one._replace(message=str(context.attemptNumber())) for one in outcomes]

attempts = []
run = loss.data.run
loss.data.run = lambda task: attempts.extend(run(task)) or attempts
module.evaluate = staged_and_failed
value, gradient = loss(w)
say([
    [one.message for one in attempts],
    float(value) == first[0],
    bool(np.array_equal(gradient.numpy(), first[1])),
])
"""

WAITING = """
x = ps.ones(5000).persist()
say(ps.server_pids)
sys.stdin.readline()
"""


def script(body, master="local[2]"):
    return START.replace("MASTER", repr(master)) + body


def said(process):
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)


def test_a_task_that_fails_after_staging_counts_once(driver):
    process = driver(script(RETRIED, "local[2,4]"))
    assert said(process) == [["1", "0", "1"], True, True]


def test_a_killed_driver_leaves_no_server(driver, has_ended):
    process = driver(script(WAITING))
    pids = said(process)
    assert len(pids) == 2
    process.send_signal(signal.SIGKILL)
    assert all(has_ended(pid, 5.0) for pid in pids)


def test_a_script_that_forgets_to_stop(driver, has_ended):
    process = driver(script(WAITING))
    pids = said(process)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(timeout=60) == 0, process.stderr.read()
    assert all(has_ended(pid) for pid in pids)


def test_servers_end_with_the_spark_context(driver, has_ended):
    process = driver(script(WAITING + "spark.stop()\nsys.stdin.readline()"))
    pids = said(process)
    process.stdin.write("\n")
    process.stdin.flush()
    assert all(has_ended(pid, 30.0) for pid in pids)
    assert process.poll() is None
