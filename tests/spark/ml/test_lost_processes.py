"""Each estimator while an executor or a server is killed: the same bits as without."""

from __future__ import annotations

import json

import pytest

from tests.quick_start import QUICK_START
from tests.spark.ml.same_fits import ESTIMATORS
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.spark, pytest.mark.long]

FITS = """
import json, os, select, signal, sys, warnings
from contextlib import ExitStack
from pathlib import Path
from pyspark.sql import SparkSession
import distvec.spark.objectives.evaluator as evaluator
from distvec.spark import KeyedObjective, PSContext
from distvec.spark.data.dataset import Dataset
from ps_backend.processes.launcher import launch_local
from tests.spark.ml.same_fits import ESTIMATORS, fit, rows

warnings.simplefilter("ignore")
victim = "VICTIM"
master = "local-cluster[2,1,1024]" if victim == "executor" else "local[2]"
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
builder = builder.config("spark.log.level", "OFF").config(*QUICK_START)
builder = builder.config("spark.ui.showConsoleProgress", "false")
builder = builder.config("spark.executor.extraJavaOptions", QUICK_START[1])
builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
spark = builder.getOrCreate()
evaluator._STALL_SECONDS = 2.0

def executors():
    # Processes under the JVM of this driver, which is the whole cluster.
    found, gateway = [], spark.sparkContext._gateway.proc.pid
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and parent == gateway:
            found.append(int(path.name))
    return sorted(found)

calls, last, killed = 0, -1, []

def counted(method):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == last:
            pid = executors()[0] if victim == "executor" else ps.server_pids[-1]
            gone = os.pidfd_open(pid)
            os.kill(pid, signal.SIGKILL)
            select.select([gone], [], [])
            killed.append(pid)
        return method(*arguments, **options)
    return call

evaluator.StandingTasks.run = counted(evaluator.StandingTasks.run)
Dataset.run = counted(Dataset.run)
KeyedObjective._over = counted(KeyedObjective._over)

with ExitStack() as stack:
    known = {"servers": 2}
    if victim == "executor":
        servers = stack.enter_context(launch_local(2))
        known = {"addresses": servers.addresses, "token": servers.token}
    frame = rows(spark, 3)
    for name in ESTIMATORS:
        # A server that dies early, time and again, is given up: each fit has new ones.
        with PSContext.get_or_create(spark, **known) as ps:
            calls, last, killed = 0, -1, []
            whole = fit(frame, name)
            calls, last = 0, calls // 2 + 1
            again = fit(frame, name)
        print(json.dumps([name, len(killed), again.tobytes() == whole.tobytes()]), flush=True)
spark.stop()
"""


@pytest.mark.parametrize("victim", ["executor", "server"])
def test_fits_are_the_same_after_a_loss(driver, spark_home, victim):
    process = driver(FITS.replace("QUICK_START", repr(QUICK_START)).replace("VICTIM", victim))
    for name in ESTIMATORS:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        assert json.loads(line) == [name, 1, True]
    assert process.wait(PATIENCE) == 0, process.stderr.read()
