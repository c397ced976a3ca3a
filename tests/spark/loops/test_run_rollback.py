"""Loops that lose servers, and go on from the clock at which their arrays were kept."""

from __future__ import annotations

import pytest

from tests.spark.test_faults import said, script
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spark

LOOP = """
import os, signal, tempfile
from distvec.spark import run
from ps_backend.errors import RoundLost

rdd = spark.sparkContext.parallelize(range(2), 2)
start = np.random.default_rng(0).normal(size=4000)

def train(worker, w):
    began = worker.now
    for clock in range(worker.now, 30):
        w.push(None, 1e-3 * np.sin(w.pull() + worker.rank))
        worker.clock()
    return began

def trained(at=(), **options):
    left = list(at)
    def strike(clocks):
        if left and min(clocks) >= left[0][0]:
            os.kill(ps.server_pids[left.pop(0)[1]], signal.SIGKILL)
    w = ps.array(start)
    return run(train, rdd, w, progress=strike, **options), w

_, w = trained()
expected = w.numpy()
ps.stop()
ps = PSContext.get_or_create(
    spark, servers=2, durability="rollback", checkpoint=tempfile.mkdtemp()
)
began, w = trained([(10, 1)], every=4)
say([min(began) >= 4, max(began) - min(began), w.numpy().tobytes() == expected.tobytes()])
for pid in ps.server_pids:
    os.kill(pid, signal.SIGKILL)
_, again = trained()
say([one.numpy().tobytes() == expected.tobytes() for one in (w, again)])
try:
    g = ps.array(start)
    with ps.round(g) as r:
        os.kill(ps.server_pids[0], signal.SIGKILL)
        rdd.foreachPartition(lambda rows: r.push(None, 1.0))
except RoundLost as error:
    say("ps.accumulate(rdd, function, into=g)" in str(error))
except Exception as error:
    say(type(error).__name__)
try:
    PSContext.get_or_create(spark, durability="none")
except ValueError as error:
    say(str(error)[:60])
spark.stop()
"""


def test_a_loop_goes_on_from_where_it_was_kept(driver):
    process = driver(script(LOOP, "local[2,4]"))
    assert said(process) == [True, 0, True], "the same bits, in lockstep"
    assert said(process) == [True, True], "what another loop has made, and lost since, is back"
    assert said(process) is True
    assert said(process) == "durability='none', but a PSContext with durability='rollback'"[:60]
    assert process.wait(PATIENCE) == 0, process.stderr.read()
