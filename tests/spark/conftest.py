"""What the Spark tests share: servers, small problems, and the formula in NumPy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyspark
import pytest
from pyspark.ml.linalg import Vectors

from distvec.spark import PSContext
from tests.waiting import has_ended

ROOT = Path(__file__).resolve().parents[2]


class Problem(NamedTuple):
    """Rows as a DataFrame and as NumPy arrays: features, signs, weights."""

    frame: object
    x: np.ndarray
    y: np.ndarray
    c: np.ndarray

    def value_and_gradient(self, w, l2=0.0, intercept=False, weighted=False):
        """The formula that LogisticLoss documents."""
        x = np.column_stack([self.x, np.ones(len(self.y))]) if intercept else self.x
        c = self.c if weighted else np.ones(len(self.y))
        margins = self.y * (x @ w)
        penalised = np.append(w[:-1], 0.0) if intercept else w
        value = c @ np.logaddexp(0.0, -margins) / c.sum() + 0.5 * l2 * penalised @ penalised
        residual = -c * self.y * np.exp(-np.logaddexp(0.0, margins))
        return value, x.T @ residual / c.sum() + l2 * penalised


def random_problem(spark, *, rows=60, size=3000, partitions=3, seed=0, density=0.01):
    """Sparse and dense rows, some empty, with labels 0 and 1 and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, size)) * (rng.random((rows, size)) < density)
    x[rng.random(rows) < 0.1] = 0.0
    labels, c = rng.integers(0, 2, rows).astype(float), rng.random(rows)
    vectors = [
        Vectors.dense(row)
        if k % 3 == 0
        else Vectors.sparse(size, np.flatnonzero(row).tolist(), row[row != 0].tolist())
        for k, row in enumerate(x)
    ]
    data = list(zip(vectors, labels.tolist(), c.tolist(), strict=True))
    rdd = spark.sparkContext.parallelize(data, partitions)
    frame = spark.createDataFrame(rdd, ["features", "label", "weight"])
    return Problem(frame, x, 2 * labels - 1, c)


@pytest.fixture
def ps(spark):
    """Two servers, kept from test to test unless one stops them or one of them."""
    ps = PSContext.get_or_create(spark, servers=2)
    if any(ps.generations):
        ps.stop()
        ps = PSContext.get_or_create(spark, servers=2)
    return ps


@pytest.fixture(scope="session", autouse=True)
def _no_servers_left():
    yield
    if PSContext._active is not None:
        PSContext._active.stop()


@pytest.fixture(scope="module")
def problem(spark):
    """One random problem for all tests of a module."""
    return random_problem(spark)


@pytest.fixture
def kill():
    """Kill a process and wait until it is gone."""

    def end(pid):
        os.kill(pid, signal.SIGKILL)
        assert has_ended(pid)

    return end


@pytest.fixture
def held_slots(spark, tmp_path):
    """A context in which tasks of another job hold both slots."""

    @contextmanager
    def held():
        begun, release = tmp_path / "begun", tmp_path / "release"
        os.mkfifo(begun)
        os.mkfifo(release)
        gate = os.open(release, os.O_RDWR)  # so that opening it does not wait

        def hold(_):
            with release.open("rb") as end:
                begun.write_bytes(b".")
                end.read()  # until the gate is closed

        job = spark.sparkContext.parallelize([0, 1], 2)
        other = threading.Thread(target=job.foreach, args=(hold,))
        other.start()
        with begun.open("rb") as signs:  # opening and reading wait for the tasks
            count = 0
            while count < 2:
                count += len(signs.read(1))
        try:
            yield
        finally:
            os.close(gate)
            other.join()

    return held


@pytest.fixture
def spark_home(tmp_path, monkeypatch):
    """Spark as installed, but what its workers write goes elsewhere."""
    home = tmp_path / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    monkeypatch.setenv("SPARK_HOME", str(home))


@pytest.fixture
def driver(tmp_path):
    """Start a script as a Spark driver of its own; it is killed when the test ends."""
    started = []

    def start(script):
        path = tmp_path / f"driver{len(started)}.py"
        path.write_text(script)
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        del environment["PYSPARK_PYTHON"]  # PSContext must see to it that the workers find distvec
        process = subprocess.Popen(
            [sys.executable, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            process_group=0,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
