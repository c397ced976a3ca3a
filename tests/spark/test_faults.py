"""Whole drivers: retried tasks, Ctrl-C, and drivers that end without stopping anything."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.quick_start import QUICK_START
from tests.waiting import PATIENCE, has_ended

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
builder = builder.config("spark.log.level", "OFF").config(*QUICK_START)
builder = builder.config("spark.python.daemon.module", "tests.spark.warm_daemon")
spark = builder.getOrCreate()
ps = PSContext.get_or_create(spark, servers=2)

def say(what):
    print(json.dumps(what), flush=True)
"""

RETRIED = """
import distvec.spark.objectives.evaluator as module

rng = np.random.default_rng(0)
rows = [(Vectors.dense(rng.normal(size=2000)), float(k % 2)) for k in range(12)]
frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 3), ["features", "label"])
loss = LogisticLoss(frame, l2=0.1)
w = ps.array(rng.normal(size=2000))
value, gradient = loss(w)
first = float(value), gradient.numpy()
evaluate = module.evaluate

def staged_and_failed(*arguments):
    result = evaluate(*arguments)
    context = TaskContext.get()
    if context.attemptNumber() == 0 and arguments[-1].partition != 1:
        raise RuntimeError("after staging")  # one task has two partitions, and staged both
    return result._replace(summary=[context.attemptNumber()])

attempts = []
run = loss.data.run_on_blocks
loss.data.run_on_blocks = lambda task: attempts.extend(run(task)) or attempts
module.evaluate = staged_and_failed
value, gradient = loss(w)
say([
    [*map(str, (one.summary[0] for one in attempts))],
    float(value) == first[0],
    bool(np.array_equal(gradient.numpy(), first[1])),
])
module.evaluate, loss.data.run_on_blocks = evaluate, run
"""

KILLED = """
import os, signal, threading

counts, keys = ps.keys().zeros(), range(30_000)

def killed_in_mid_push(rows):
    rows, context = np.array(list(rows)), TaskContext.get()
    if context.attemptNumber() == 0 and context.partitionId() != 1:
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGKILL)).start()
        while True:
            round.push(rows, np.ones(len(rows)))
    round.push(rows, np.ones(len(rows)))

with ps.round(counts) as round:
    spark.sparkContext.parallelize(keys, 3).foreachPartition(killed_in_mid_push)
say([len(counts.space), bool((counts.pull(list(keys)) == 1).all())])
"""

INTERRUPTED = """
from optim import SGD

try:
    begun = lambda state: say("begun") if state.iteration == 2 else None
    SGD(step_size=1e-9, max_iterations=10**6).minimize(loss, w, callback=begun)
except KeyboardInterrupt:
    say([float(loss(w)[0]) == first[0], ps.server_pids])
sys.stdin.readline()
"""

STOPPED_AND_STARTED = """
say(ps.server_pids)
sys.stdin.readline()
spark.stop()
sys.stdin.readline()
spark = builder.getOrCreate()
ps = PSContext.get_or_create(spark, servers=2)
x = ps.ones(5000).persist()
say(ps.server_pids)
"""

MACHINE = """
import os, signal
from distvec.spark.ml.online_factorization import OnlineFMClassifier

spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 16)
rng = np.random.default_rng(0)
data = [(int(u), int(a), float(u % 2 == a % 2)) for u, a in rng.integers(0, 20, (600, 2))]
frame = spark.createDataFrame(data, ["user", "ad", "label"]).repartition(3, "user").cache()

def killed_at_the_end(batches):
    yield from batches
    context = TaskContext.get()
    if context.attemptNumber() == 0 and context.partitionId() != 1:
        os.kill(os.getpid(), signal.SIGKILL)  # most steps of the partition are staged

estimator = OnlineFMClassifier(
    featuresCol=["user", "ad"], batchSize=16, factorSize=2, admitFactors=2, exactlyOnce=True
)
models = [
    estimator.fit(rows) for rows in (frame, frame.mapInArrow(killed_at_the_end, frame.schema))
]
keys, weights = models[0].nonZeros()
say([model.progress.rows for model in models])
say(bool(np.array_equal(models[1].weights.pull(keys), weights)))
say(bool(np.array_equal(*(model.factors.pull(keys) for model in models))))
say([model.numFactors for model in models])
"""


def script(body, master="local[2]"):
    return START.replace("MASTER", repr(master)).replace("QUICK_START", repr(QUICK_START)) + body


def said(process):
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


def test_retries_count_once_and_neither_ctrl_c_nor_death_leaves_servers(driver):
    process = driver(script(RETRIED + KILLED + INTERRUPTED, "local[2,4]"))
    assert said(process) == [["1", "1", "1"], True, True]
    assert said(process) == [30_000, True]
    assert said(process) == "begun"
    os.killpg(process.pid, signal.SIGINT)
    same, pids = said(process)
    assert same
    assert len(pids) == 2
    assert not any(has_ended(pid, 0.0) for pid in pids)
    process.send_signal(signal.SIGKILL)
    assert all(has_ended(pid) for pid in pids)


@pytest.mark.long
def test_servers_end_with_the_spark_context_or_the_script(driver):
    process = driver(script(STOPPED_AND_STARTED))
    pids = said(process)
    assert len(pids) == 2
    go_on(process)
    assert all(has_ended(pid) for pid in pids)
    assert process.poll() is None
    go_on(process)
    pids = said(process)
    assert process.wait(PATIENCE) == 0, process.stderr.read()
    assert all(has_ended(pid) for pid in pids)


@pytest.mark.long
def test_killed_workers_leave_a_factorization_machine_as_it_is_without_them(driver):
    process = driver(script(MACHINE, "local[2,4]"))
    assert said(process) == [600, 600]
    assert said(process)
    assert said(process)
    first, second = said(process)
    assert first == second > 20
    assert process.wait(PATIENCE) == 0, process.stderr.read()
