"""Spark over hosts of their own: ``make cluster``.

The master, two workers and the driver are on four hosts. No other host knows the driver's name, and
the driver does not know theirs; the own name of each stands for a loopback address.
"""

from __future__ import annotations

import re

import pytest

from tests.cluster.hosts import ROOT
from tests.cluster.links import SLOW, Link
from tests.cluster.standalone import DRIVER, MASTER, WORKERS, cluster
from tests.quick_start import java

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(java() is None, reason="Spark needs Java 17 or newer; none found"),
]

NAMELESS = [(host, DRIVER) for host in (MASTER, *WORKERS)] + [(DRIVER, host) for host in WORKERS]

BEGIN = """
import os
import numpy as np
import distvec as dv
from distvec.spark import Objective, PSContext, run
sc = spark.sparkContext

def insist(attempt):
    # a busy machine may lose a server at any moment
    while True:
        try:
            return attempt()
        except dv.ServerLost:
            pass

ps = insist(lambda: PSContext.get_or_create(spark, servers=2, timeout=200))
"""

ESTIMATOR = """
from pyspark.ml.linalg import Vectors
from distvec.losses import Logistic
from optim import SquaredL2Norm

rng = np.random.default_rng(0)
x = rng.normal(size=(200, 30))
labels = (x @ rng.normal(size=30) > 0).astype(float)
rows = [(label, Vectors.dense(row)) for label, row in zip(labels.tolist(), x)]
data = spark.createDataFrame(sc.parallelize(rows, 4), ["label", "features"])
for mode in ("resident", "job"):
    objective = Objective(data, loss=Logistic(), penalty=SquaredL2Norm(1e-2), mode=mode)
    w = rng.normal(size=30)
    value, gradient = objective(ps.array(w))
    margins = (2 * labels - 1) * (x @ w)
    assert abs(float(value) - np.logaddexp(0, -margins).mean() - 0.005 * (w @ w)) < 1e-12
    result = objective.minimize(gradient_tolerance=1e-8)
    assert result.success, result.message
    objective.close()
print(ps.access.tls is not None, sorted(a.split(":")[0] for a in ps.access.addresses))
"""

UNEVEN = """
import time
from pyspark.ml.linalg import Vectors
from distvec.losses import Logistic

def first_takes_long(number, rows):
    if number == 0:
        time.sleep(8)  # so the other host reads the three others
    return rows

rows = [(float(k % 2), Vectors.dense([float(k), 1.0])) for k in range(40)]
late = sc.parallelize(rows, 4).mapPartitionsWithIndex(first_takes_long)
data = spark.createDataFrame(late, spark.createDataFrame(rows).schema).toDF("label", "features")
# Two slots are free, one on each host: a task has several partitions, and must be where they are.
with Objective(data, loss=Logistic()) as objective:
    value, _ = objective(ps.zeros(2))
    assert abs(float(value) - np.log(2)) < 1e-12
print("found")
"""

ROUNDS = """
import signal, time

def once(name):
    # True in the first attempt of this host
    try:
        os.close(os.open(f"/tmp/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

def add(rows, name, up):
    rows = list(rows)
    if name and once(name):
        victim = os.getpid()
        for _ in range(up):  # the daemon of Python's workers, the executor
            with open(f"/proc/{victim}/status") as status:
                victim = int(next(line for line in status if line.startswith("PPid")).split()[1])
        os.kill(victim, signal.SIGKILL)
        time.sleep(60)
    return [3, 5], [1.0, float(sum(rows))]

for number, (name, up) in enumerate([("", 0), ("worker", 0), ("executor", 2)]):

    def count():  # anew where g was lost, as its server was on that executor
        g = ps.zeros(1000).persist()
        ps.accumulate(sc.parallelize(range(8), 4), lambda rows: add(rows, name, up), into=g)
        return g.pull([3, 5]).tolist()

    assert insist(count) == [4.0, 28.0], name
print("counted once")
"""

LOOPS = """
def train(worker, w):
    for t in range(worker.now, 30):
        weights = w.pull(np.arange(50_000))
        w.push([worker.rank, 7], [1.0, 1.0])
        worker.clock()
    return worker.rank

for staleness in (0, 2, None):
    w = ps.zeros(50_000)
    assert run(train, sc.parallelize(range(2), 2), w, staleness=staleness) == [0, 1]
    assert w.pull([0, 1, 7]).tolist() == [30.0, 30.0, 60.0]
print("in step")
"""

FOLDERS = """
os.makedirs("/tmp/kept", exist_ok=True)  # and hosts have folders of this name, of their own
sc.parallelize(range(4), 4).foreachPartition(lambda _: os.makedirs("/tmp/kept", exist_ok=True))
x = ps.arange(100_000.0).persist()
dv.save("/tmp/kept/x.safetensors", x=x)
assert (dv.load("/tmp/kept/x.safetensors", ps)["x"].numpy() == np.arange(100_000.0)).all()
dv.save("/tmp/kept/folder", x=x)
assert (dv.load("/tmp/kept/folder", ps)["x"].numpy() == np.arange(100_000.0)).all()
print("kept")
"""


@pytest.fixture(scope="module")
def spark_hosts():
    with cluster(strangers=NAMELESS) as made:
        yield made


def test_the_readme_runs(spark_hosts):
    spark_part = (ROOT / "README.md").read_text().split("\n## Quickstart on Spark")[1]
    (example, *_) = re.findall(r"```python\n(.*?)```", spark_part, re.DOTALL)
    patient = example.replace("servers=2", "servers=2, timeout=200")
    written = spark_hosts.run(patient.replace("spark.stop()", ""), timeout=500.0)
    assert written.count("Converged") == 1


def test_an_objective_is_numpys_and_servers_are_reached_with_tls(spark_hosts):
    written = spark_hosts.run(BEGIN + ESTIMATOR, timeout=500.0)
    addresses = sorted(spark_hosts.hosts[name].address for name in WORKERS)
    assert written.split("\n")[0] == f"True {addresses}"


def test_tasks_find_the_rows_where_one_host_read_most_of_them(spark_hosts):
    assert "found" in spark_hosts.run(BEGIN + UNEVEN, timeout=500.0)


def test_rounds_count_once_also_where_tasks_and_executors_are_killed(spark_hosts):
    assert "counted once" in spark_hosts.run(BEGIN + ROUNDS, timeout=500.0)


def test_folders_of_one_name_on_several_hosts_are_not_one_folder(spark_hosts):
    assert "kept" in spark_hosts.run(BEGIN + FOLDERS, timeout=500.0)


def test_loops_end_alike_where_one_link_is_slow():
    links = {"worker1": SLOW, "worker2": Link(100e6, 20e-3)}
    with cluster(links=links, strangers=NAMELESS) as made:
        assert "in step" in made.run(BEGIN + LOOPS, timeout=500.0)
