"""What the driver holds and hears does not grow with the dimension; what a new worker imports."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors

from distvec.spark import LogisticLoss
from optim import LBFGS
from ps_backend.program.spaces import DenseSpace
from tests.spark.conftest import ROOT

pytestmark = pytest.mark.spark

LOG = logging.getLogger(__name__)


class Cost(NamedTuple):
    """In bytes: the most that Python and NumPy held in the driver, and sent and received a call."""

    peak: int
    traffic: float


def fit(spark, ps, dimension):
    """What a small fit costs the driver."""
    rng = np.random.default_rng(dimension)
    rows = []
    for k in range(20):
        features = np.sort(rng.choice(dimension, 30, replace=False))
        rows.append((float(k % 2), Vectors.sparse(dimension, features.tolist(), [1.0] * 30)))
    frame = spark.createDataFrame(rows, ["label", "features"]).coalesce(2)
    ps.counters.reset()
    tracemalloc.start()
    try:
        with LogisticLoss(frame, l2=1e-3, ps=ps) as loss:
            solver = LBFGS(history=3, max_iterations=3)
            result = solver.minimize(loss, ps.zeros(loss.dimension))
            value = float(loss(result.x)[0])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value < np.log(2.0)
    LOG.info("dimension %d: peak %d bytes, %d evaluations", dimension, peak, result.nfev)
    cost = ps.counters.snapshot()
    return Cost(peak, (cost["bytes_sent"] + cost["bytes_received"]) / result.nfev)


def test_the_driver_needs_the_same_memory_for_four_times_the_dimension(spark, ps):
    """A sum brings it a number for each block of the space, and blocks grow with the dimension."""
    fit(spark, ps, 1000)  # so that neither of the two pays for what is made once
    small, large = fit(spark, ps, 1_000_000), fit(spark, ps, 4_000_000)
    assert DenseSpace(1_000_000).blocks == DenseSpace(4_000_000).blocks
    assert large.peak < 1.25 * small.peak
    assert large.peak < 8 * 4_000_000 / 8, "an eighth of one vector"
    assert large.traffic < 1.1 * small.traffic


def test_a_new_worker_imports_no_more_than_tasks_need():
    code = """
import json, sys, pyspark.worker
import distvec.losses.classification, distvec.losses.regression
import distvec.spark.objectives.evaluation_task
print(json.dumps(list(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    loaded = set(json.loads(ran.stdout))
    assert {"distvec.spark.objectives.evaluation_task", "distvec.spark"} <= loaded
    assert not loaded & {"pandas", "numba", "matplotlib", "pyspark.ml", "scipy.optimize", "torch"}
