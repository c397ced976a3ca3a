"""The reference optima of shared/data, found by the solvers over Spark and servers.

The smallest set here costs a Spark job an evaluation; of the others the tasks stay. ``python -m
tests.stress reference`` finds all of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors

from distvec.spark import LogisticLoss, PSContext
from optim import LBFGS, OWLQN
from tests.optim.reference_data import load, optimum
from tests.samples import marked
from tests.spark.objectives.reference_optima import Optima

pytestmark = pytest.mark.spark

_MAX_GAP_L2 = 1e-8
_MAX_GAP_L1 = 1e-6
_MODES = {"heart_scale": "job", "a9a": "resident", "rcv1_vw": "resident"}


@pytest.fixture(scope="module")
def losses(spark):
    """``losses(name)``: the set's loss without penalty, built once."""
    ps = PSContext.get_or_create(spark, servers=2)
    made = {}

    def loss(name):
        if name not in made:
            x, y = load(name)
            rows = [
                (
                    Vectors.sparse(x.shape[1], x.indices[a:b].tolist(), x.data[a:b].tolist()),
                    float(s),
                )
                for a, b, s in zip(x.indptr, x.indptr[1:], y, strict=False)
            ]
            rdd = spark.sparkContext.parallelize(rows, 2)
            frame = spark.createDataFrame(rdd, ["features", "label"])
            made[name] = LogisticLoss(frame, mode=_MODES[name], ps=ps)
        return made[name]

    yield loss
    for one in made.values():
        one.close()


def gap(found, expected):
    return (found - expected["optimum_value"]) / expected["optimum_value"]


@pytest.mark.parametrize(
    ("name", "lam"), marked([("heart_scale", 0.01), ("a9a", 0.01)], long=[("a9a", 0.01)])
)
def test_lbfgs(losses, name, lam):
    expected = optimum(name, "logistic_l2", lam)
    loss = losses(name).with_l2(lam)
    result = LBFGS(gradient_tolerance=1e-7).minimize(loss, loss.ps.zeros(loss.dimension))
    assert result.success, result.message
    assert abs(gap(result.fun, expected)) <= _MAX_GAP_L2


@pytest.mark.parametrize(
    ("name", "lam"), marked([("heart_scale", 1e-3), ("rcv1_vw", 1e-3)], long=[("rcv1_vw", 1e-3)])
)
def test_owlqn(losses, name, lam):
    expected = optimum(name, "logistic_l1", lam)
    loss = losses(name)
    solver = OWLQN(l1=loss.l1_weights(lam), gradient_tolerance=1e-7)
    result = solver.minimize(loss, loss.ps.zeros(loss.dimension))
    assert result.success, result.message
    assert abs(gap(result.fun, expected)) <= _MAX_GAP_L1
    if expected["nnz_is_unique"]:
        weights = result.x.numpy()
        assert np.count_nonzero(np.abs(weights) > 1e-8) == expected["nnz"]


@pytest.fixture(scope="module")
def optima(spark):
    found = Optima(spark, PSContext.get_or_create(spark, servers=2))
    yield found
    found.close()


@pytest.mark.parametrize(
    ("name", "kind", "lam"),
    marked(
        [
            ("heart_scale", "squared_hinge_l2", 1e-2),
            ("dna", "softmax_l2", 1e-2),
            ("abalone", "ridge", 1e-2),
        ],
        long=[("abalone", "ridge", 1e-2)],
    ),
)
def test_other_losses_and_the_same_bits_by_jobs(optima, name, kind, lam):
    found, wrong = optima.solve(name, kind, lam)
    assert not wrong, found
