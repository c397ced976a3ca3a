"""Loops whose workers are lost, fall silent or are interrupted, and one that loses a server."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.spark.test_faults import said, script
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spark

START = """
import os, signal, tempfile, time
from pathlib import Path
from distvec.spark import run
from distvec.spark.jobs.application import free_slots

rdd = spark.sparkContext.parallelize(range(2), 2)
here = Path(tempfile.mkdtemp())
start = np.random.default_rng(0).normal(size=4000)

def faulty(fail):
    def train(worker, w):
        first = TaskContext.get().attemptNumber() == 0
        began = worker.now
        for clock in range(worker.now, 12):
            weights = w.pull()
            w.push(None, 1e-3 * np.sin(weights + worker.rank))
            if first:
                fail(worker, w)
            worker.clock()
        return began
    return train

def trained(fail, **options):
    w = ps.array(start)
    began = run(faulty(fail), rdd, w, **options)
    return began, w.numpy().tobytes()
"""

LOST = """
def lose(worker, w):
    if (worker.rank, worker.now) == (1, 5):
        raise ValueError("after a push")
    if (worker.rank, worker.now) == (0, 7):
        os.kill(os.getpid(), signal.SIGKILL)

_, expected = trained(lambda worker, w: None)
began, found = trained(lose)
say([began, found == expected])
"""

SILENT = """
def fall_silent(worker, w):
    if (worker.rank, worker.now) == (1, 3):
        (here / "pid").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)

def end_it(clocks):
    if clocks[0] > 12 and (here / "pid").exists():
        os.kill(int((here / "pid").read_text()), signal.SIGKILL)
        (here / "pid").unlink()

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    began, _ = trained(fall_silent, patience=1.0, progress=end_it)
say([began, [str(one.message)[:39] for one in told if "no message" in str(one.message)]])
"""

INTERRUPTED = """
def endless(worker, w):
    while True:
        w.pull()
        worker.clock()

w = ps.array(start).persist()
try:
    run(endless, rdd, w, progress=lambda clocks: min(clocks) == 5 or say("goes on"))
except KeyboardInterrupt:
    while free_slots(spark.sparkContext) < 2:  # Spark ends the tasks in its own time
        time.sleep(0.01)
    say([2, w.numpy().tobytes() == start.tobytes()])
"""

SERVER_LOST = """
from ps_backend.errors import ServerLost
from ps_backend.client.server_link import RetryPolicy

for link in ps.client._fan_out.links:
    link._retry = RetryPolicy(0.5)  # the test is not to wait for a dead server as users would

def kill(clocks):
    if min(clocks) > 3 and ps.server_pids[1]:
        os.kill(ps.server_pids[1], signal.SIGKILL)

try:
    run(endless, rdd, w, staleness=1, progress=kill)
except ServerLost as error:
    say(str(error))
spark.stop()
"""


def test_lost_silent_and_interrupted_workers_and_a_lost_server(driver):
    process = driver(script(START + LOST + SILENT + INTERRUPTED + SERVER_LOST, "local[2,4]"))
    assert said(process) == [[7, 5], True], "the same bits, from where each was lost"
    began, told = said(process)
    assert began == [0, 3]
    assert told == ["worker 1 sent no message for 1 s; the o"]
    assert said(process) == "goes on"
    os.killpg(process.pid, signal.SIGINT)
    while (after := said(process)) == "goes on":
        pass
    assert after == [2, True]
    assert re.match(r"the loop lost a server .* array 0 \(buffer \d+, length 4000\)", said(process))
    assert process.wait(PATIENCE) == 0, process.stderr.read()
