"""Slips of users: each is told what to type, or does no harm."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors

from distvec.spark import LogisticLoss
from distvec.spark.jobs.failures import describe_failure
from tests.spark.conftest import ROOT
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def rdd(spark):
    return spark.sparkContext.parallelize(range(4), 2)


# --- what cannot travel to tasks ------------------------------------------------------------------


def test_an_array_in_a_closure_names_what_tasks_can_use(ps, rdd):
    x = ps.zeros(3)
    with pytest.raises(
        pickle.PicklingError, match=r"ps\.share\(x\).*ps\.round\(x\).*run\(train, rdd"
    ):
        rdd.foreach(lambda row: x.push([row], 1.0))


def test_the_context_in_a_closure_names_what_tasks_can_use(ps, rdd):
    with pytest.raises(
        pickle.PicklingError, match=r"a PSContext holds .*ps\.share\(x\).*ps\.round"
    ):
        rdd.foreach(lambda row: ps.zeros(row))


def test_a_loss_in_a_closure_says_where_to_call_it(ps, rdd, problem):
    with (
        LogisticLoss(problem.frame) as loss,
        pytest.raises(pickle.PicklingError, match="call it on the driver, outside of Spark tasks"),
    ):
        rdd.foreach(lambda row: loss(row))


# --- which Python runs the tasks ------------------------------------------------------------------

OTHER_PYTHON = """
import json, os, sys
os.environ["PATH"] = {path!r} + os.pathsep + os.environ["PATH"]
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession, functions
from distvec.spark import LogisticLoss, PSContext, margins, run
from distvec.spark.jobs.failures import describe_failure

from tests.quick_start import QUICK_START

builder = SparkSession.builder.master("local[2]").config(*QUICK_START)
quiet = {{"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false"}}
spark = builder.config("spark.ui.enabled", "false").config(map=quiet).getOrCreate()
rows = [(1.0, Vectors.dense([2.0])), (0.0, Vectors.dense([1.0]))]
train = spark.createDataFrame(rows, ["label", "features"])
flip = functions.udf(lambda label: 1.0 - label, "double")
both = train.union(train.withColumn("label", flip("label")))
rdd = train.rdd.map(tuple).cache()
rdd.mapPartitions(list)._jrdd
try:
    said = repr(train.collect())
except Exception as error:
    said = describe_failure(error)
ps = PSContext.get_or_create(spark, servers=1)
w = ps.ones(1)
found = [
    float(LogisticLoss(both)(w)[0]),
    sorted(row["margin"] for row in margins(both, w).collect()),
    sum(run(lambda worker: len(list(worker.rows)), rdd)),
]
print(json.dumps([said, found]))
"""


OTHER_VERSION = """
import sys
Version = type("Version", (tuple,), {"major": 3, "minor": 99, "micro": 0})
sys.version_info = Version((3, 99, 0, "final", 0))
"""


def test_frames_made_before_the_context_are_read_by_the_drivers_python(tmp_path, driver):
    """On the PATH is a python3 that says it is of another minor version."""
    other = tmp_path / "python3"
    other.write_text(
        f'#!/bin/sh\nPYTHONPATH={tmp_path}/other:$PYTHONPATH exec {sys.executable} "$@"\n'
    )
    other.chmod(0o755)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text(OTHER_VERSION)
    out, errors = driver(OTHER_PYTHON.format(path=str(tmp_path))).communicate(timeout=240)
    assert out, errors
    said, found = json.loads(out)
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"Python in worker has different version: 3.99 than that in driver: {ours}" in said
    assert "it is not set, which means python3 on their PATH" in said
    value = np.logaddexp(0.0, [-2.0, 1.0, 2.0, -1.0]).mean()
    assert found == [pytest.approx(value), [1.0, 1.0, 2.0, 2.0], 2]


WHEEL = """
import json, os, sys
os.chdir({folder!r})  # workers look where they run before they look elsewhere
sys.path.insert(0, {wheel!r})
from pyspark.sql import SparkSession
import distvec
from distvec.spark import PSContext
from distvec.spark.jobs.failures import describe_failure
from tests.quick_start import QUICK_START

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.log.level", "OFF").config(*QUICK_START)
builder = builder.config("spark.submit.pyFiles", {wheel!r})
spark = builder.getOrCreate()
with PSContext.get_or_create(spark, servers=1) as ps:
    def found(rows):
        import distvec
        return [distvec.__file__, *rows]
    rows = spark.sparkContext.parallelize([7], 1)
    (there, _), total = rows.mapPartitions(found).collect(), float(ps.ones(3).sum())
reason = describe_failure(Exception("No module named 'mine'"))
print(json.dumps([distvec.__file__, there, total, reason]))
"""


def test_a_wheel_among_py_files_reaches_tasks_and_servers(tmp_path, driver):
    wheel = tmp_path / "distvec-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for package in ("distvec", "optim", "ps_backend"):
            for path in sorted((ROOT / package).rglob("*.py")):
                archive.write(path, path.relative_to(ROOT))
    script = WHEEL.format(wheel=str(wheel), folder=str(tmp_path))
    out, errors = driver(script).communicate(timeout=240)
    assert out, errors
    here, there, total, said = json.loads(out)
    assert here.startswith(str(wheel))
    assert there.endswith("distvec-0.1.0-py3-none-any.zip/distvec/__init__.py")
    assert total == 3.0
    assert "archives named .zip and .egg, and no wheels (distvec-0.1.0-py3-none-any.whl)" in said


def test_the_cause_of_an_error_in_java_is_told(ps, spark, tmp_path):
    data = tmp_path / "rows.svm"
    data.write_text("1 1:2\n0 1:oops\n")
    frame = spark.read.format("libsvm").option("numFeatures", 2).load(str(data))
    with pytest.raises(RuntimeError, match=r'a Spark job failed: .*NumberFormatException.*"oops"'):
        LogisticLoss(frame)


def test_all_lines_of_a_tasks_message_are_told(rdd):
    def task(rows):
        raise ValueError("what went wrong\n  and what to do about it")

    with pytest.raises(Exception, match="what went wrong") as caught:
        rdd.foreachPartition(task)
    assert describe_failure(caught.value) == "ValueError: what went wrong and what to do about it"


def test_without_pyspark_the_extra_is_named():
    code = "import sys; sys.modules['pyspark'] = None; import distvec.spark"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: distvec.spark needs PySpark")
    assert last.endswith("pip install 'distvec[spark]'")


# --- data, and what objects print -----------------------------------------------------------------


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_labels_of_one_class_are_warned_of(ps, spark, label):
    frame = spark.createDataFrame([(label, Vectors.dense([1.0]))] * 3, ["truth", "features"])
    told = rf"label='truth': all 3 labels are {label:g}; a classifier needs two classes"
    with (
        pytest.warns(UserWarning, match=told) as warned,
        LogisticLoss(frame, label="truth") as loss,
    ):
        assert float(loss(ps.zeros(1))[0]) == pytest.approx(np.log(2.0))
    assert [one.filename for one in warned] == [__file__]


def test_a_loss_and_a_context_print_what_they_are(ps, problem):
    loss = LogisticLoss(problem.frame, l2=1e-4, intercept=True)
    told = (
        "LogisticLoss: Logistic(), 60 rows of 3,000 features in 3 partitions, dimension=3001, "
        "penalty=ElasticNet(l1=0.0, l2=0.0001), intercept=True"
    )
    assert repr(loss) == f"<{told}, mode='job'>"
    loss.close()
    assert repr(loss) == f"<{told}, mode='job', closed>"
    addresses = ", ".join(ps.client.addresses)
    assert repr(ps).startswith(f"<PSContext: servers at {addresses}, for the Spark application '")
    assert repr(ps).endswith("' on local[2]>")
    ps.stop()
    assert repr(ps) == "<PSContext: stopped>"
