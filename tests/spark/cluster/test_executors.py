"""Servers and resident tasks on the executors of a small cluster, all in one driver."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path

import pytest

from distvec.spark import LogisticLoss
from tests.quick_start import QUICK_START
from tests.waiting import PATIENCE, has_ended

pytestmark = pytest.mark.spark

LOG = logging.getLogger(__name__)

SAME = """
import json, os, select, signal, sys, time, warnings
import numpy as np
from pyspark.sql import SparkSession
import distvec.spark.objectives.evaluator as resident
from distvec.spark import LogisticLoss, PSContext
from distvec.spark.task_session import join
from ps_backend.client import Client
from ps_backend.errors import PSError, ServerLost
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type

warnings.simplefilter("ignore")
builder = SparkSession.builder.master(MASTER).config("spark.ui.enabled", "false")
builder = builder.config("spark.log.level", "OFF").config(*QUICK_START)
builder = builder.config("spark.ui.showConsoleProgress", "false")
builder = builder.config("spark.executor.extraJavaOptions", QUICK_START[1])
builder = builder.config("spark.python.daemon.module", "tests.spark.warm_daemon")
# Jobs begin when both executors are there.
builder = builder.config("spark.cores.max", CORES)
builder = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
spark = builder.getOrCreate()
N = 50_000

def say(what):
    print(json.dumps(what), flush=True)

def dot(ps):
    x = ps.arange(N, dtype=np.float64)
    return float(x @ x) == float(np.arange(N) @ np.arange(N, dtype=float))

def ends(ps, array):
    # the first and the last element, on the first and the last server, as two tasks see them
    access, buffer = ps.access, array.persist().buffer_id
    def task(rows):
        list(rows)
        try:
            type = array_type(DenseSpace(N), float)
            return join(access).gather(buffer, type, [0, N - 1]).tolist()
        except ServerLost as error:
            return [str(error)]
    return spark.sparkContext.parallelize(range(2), 2).mapPartitions(task).collect()

def refusal(action, kind=PSError):
    try:
        return repr(action())
    except kind as error:
        return str(error)
"""

ROWS = """
import pyspark.sql.functions as F
from optim import SGD

column = F.col("id")
features = F.array(*[(column * k % 7 / 7.0).alias("x") for k in range(1, 9)]).alias("features")
# Behind a shuffle, whose outputs are lost with an executor.
rows = spark.range(24).repartition(5, "id").sortWithinPartitions("id")
frame = rows.select(features, (column % 2).alias("label"))

def sampled(loss):
    x0 = loss.start()
    return SGD(step_size=0.5, max_iterations=7).minimize(loss.minibatches(7, seed=2), x0).x.tolist()
"""

LIFE = """
def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])

def lost_before_its_session(registry, *args, follow=Client.follow, **options):
    # The executor of a server dies when all have come up, and before a session is open.
    Client.follow = follow
    pids.extend(registry.pids)
    process, executor = os.pidfd_open(pids[1]), pids[1]
    while b"CoarseGrainedExecutorBackend" not in open(f"/proc/{executor}/cmdline", "rb").read():
        executor = parent_of(executor)
    os.kill(executor, signal.SIGKILL)
    os.kill(pids[1], signal.SIGKILL)
    select.select([process], [], [])
    return follow(registry, *args, **options | {"timeout": 0.1})

Client.follow, pids = lost_before_its_session, []
ps = PSContext.get_or_create(spark, servers=2, memory="256m", timeout=120.0)
say([pids, ps.server_pids, ps.generations])
ps.stop()

ps = PSContext.get_or_create(spark, servers=2, memory="256m")
say([ps.server_pids, dot(ps)])
x = ps.arange(N, dtype=np.float64)
y = (2.0 * x).persist()
say(ends(ps, x))
spark.sparkContext.cancelAllJobs()  # as Ctrl-C does; the servers are not meant
say([x.buffer_id, y.buffer_id])

sys.stdin.readline()  # an executor is killed
began, first, lost = time.monotonic(), ps.client.addresses[1], ps.server_pids[1]
told = set()
while ps.server_pids[1] in (0, lost):
    told.add(ps._servers.diagnose(first))
    time.sleep(0.02)
say([time.monotonic() - began, ps.server_pids, any("would leave none" in str(one) for one in told)])
say([refusal(lambda: float(x @ y)), refusal(y.numpy)])
say(ends(ps, y))
say([dot(ps), ends(ps, ps.arange(N, dtype=np.float64))])

pids = ps.server_pids
ps.stop()
say([pids, [os.path.exists(f"/proc/{pid}") for pid in pids]])
say(refusal(lambda: PSContext.get_or_create(spark, servers=3, cores=2)))

ps = PSContext.get_or_create(spark, servers=1, memory="256m")
say([ps.server_pids, dot(ps)])

ROWS
w = ps.ones(8)
bits = lambda result: (float(result[0]), result[1].numpy().tobytes())
resident._STALL_SECONDS = 2.0
with LogisticLoss(frame, mode="resident") as loss:
    first = bits(loss(w))
    say(sampled(loss))
    tasks = loss._evaluator.standing_tasks._job.tasks
    loss._evaluator.standing_tasks.close()
    say([tasks, loss.data.run(lambda _: [parent_of(os.getppid())])])
    say(bits(loss(w)) == first)
    sys.stdin.readline()  # the other executor is killed, while its resident tasks wait
    say(bits(loss(w)) == first)
spark.stop()
sys.stdin.readline()
say(ps.is_stopped)
"""

ENDING = """
say(refusal(lambda: PSContext.get_or_create(spark, servers=2)))
ps = PSContext.get_or_create(spark, servers=1, memory="256m")
say([ps.server_pids, dot(ps)])
"""


def sampled_here(spark, ps):
    """What SGD finds of the same rows by tasks in this process's Spark."""
    names = {"spark": spark}
    exec(ROWS, names)
    with LogisticLoss(names["frame"], ps=ps) as loss:
        return names["sampled"](loss)


def script(body, executors=2):
    """A driver on a cluster of so many executors, with two cores each."""
    same = SAME.replace("MASTER", repr(f"local-cluster[{executors},2,1024]"))
    same = same.replace("CORES", str(2 * executors))
    return same.replace("QUICK_START", repr(QUICK_START)) + body


def said(process):
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


def executor_of(pid):
    """The Java process above a server: its task's Python worker, the daemon, the executor."""
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return pid


def test_servers_live_on_executors_and_end_with_the_driver(spark, ps, spark_home, driver):
    process = driver(script(LIFE.replace("ROWS", ROWS)))
    before, after, lives = said(process)
    # More than one life where Spark gave a replacement to the executor that was dying.
    assert lives[0] == 0 < lives[1], "a server that was lost while all began was not waited for"
    assert after[0] == before[0] and after[1] != before[1]
    pids, right = said(process)
    assert right
    assert len(set(pids)) == 2
    assert said(process) == [0.0, 49_999.0] * 2
    x, y = said(process)

    executors = [executor_of(pid) for pid in pids]
    assert len(set(executors)) == 2
    os.kill(executors[1], signal.SIGKILL)
    go_on(process)
    seconds, after, waited = said(process)
    assert waited, "it did not take the last slot of the other executor"
    LOG.info("a new server after %.2f s", seconds)  # shown with --log-cli-level=info
    assert has_ended(pids[1])
    assert after[0] == pids[0]
    assert after[1] not in pids
    in_dot, in_read = said(process)
    for text in (in_dot, in_read, *said(process)):
        assert text.startswith("server 1 was lost, and what it held with it")
        assert f"{y} (length 50000)" in text
    assert f"{x} (length 50000)" in in_dot
    assert said(process) == [True, [0.0, 49_999.0] * 2]

    pids, exist = said(process)
    assert pids == after
    assert exist == [False, False]
    assert said(process).startswith("servers=3 (cores=2) hold 6 slots as long as they run, which")

    (pid,), right = said(process)
    assert right
    assert said(process) == sampled_here(spark, ps), "minibatches, on two executors or on none"
    tasks, executors = said(process)
    assert tasks == 3
    (other,) = set(executors) - {executor_of(pid)}
    assert said(process) is True
    os.kill(other, signal.SIGKILL)
    go_on(process)
    assert said(process) is True

    assert has_ended(pid)  # the driver stopped Spark, and goes on
    go_on(process)
    assert said(process) is True
    assert process.wait(PATIENCE) == 0


@pytest.mark.long
def test_one_executor_with_servers_that_nothing_stops(spark_home, driver):
    process = driver(script(ENDING, executors=1))
    assert "leave none for other jobs: the application has 2. Start fewer" in said(process)
    (pid,), right = said(process)
    assert right
    assert process.wait(PATIENCE) == 0  # it stops nothing
    assert has_ended(pid)
