"""The same solver takes the same path on NumPy arrays and on servers driven from Spark."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from pyspark.ml.linalg import Vectors

from distvec.spark import LogisticLoss, PSContext
from optim import LBFGS, OWLQN, SGD

pytestmark = pytest.mark.spark

ROWS, FEATURES, L2 = 400, 60, 1e-3


@pytest.fixture(scope="module")
def problem(spark):
    """The loss over Spark, and the same as a function of NumPy arrays."""
    rng = np.random.default_rng(4)
    x = scipy.sparse.random(ROWS, FEATURES, density=0.2, format="csr", random_state=1)
    y = np.where(x @ rng.standard_normal(FEATURES) + 0.3 * rng.standard_normal(ROWS) > 0, 1.0, -1.0)

    def on_numpy(w):
        margins = y * (x @ w)
        slopes = -y / (1.0 + np.exp(margins))
        value = np.logaddexp(0.0, -margins).mean() + 0.5 * L2 * (w @ w)
        return value, x.T @ slopes / ROWS + L2 * w

    rows = [
        (float(y[k] > 0), Vectors.sparse(FEATURES, row.indices.tolist(), row.data.tolist()))
        for k, row in enumerate(x[k] for k in range(ROWS))
    ]
    frame = spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), ["label", "features"])
    ps = PSContext.get_or_create(spark, servers=2)
    with LogisticLoss(frame, l2=L2, mode="resident", ps=ps) as loss:
        yield loss, on_numpy


SOLVERS = [
    LBFGS(gradient_tolerance=1e-9),
    OWLQN(l1=2e-3, gradient_tolerance=1e-9),
    SGD(step_size=2.0, momentum=0.9, max_iterations=40),
]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_same_path_and_same_optimum(problem, solver):
    loss, on_numpy = problem
    ours = solver.minimize(loss, loss.ps.zeros(loss.dimension))
    theirs = solver.minimize(on_numpy, np.zeros(FEATURES))
    steps = list(zip(ours.history, theirs.history, strict=False))[:21]
    assert len(steps) == 21, "long enough to compare twenty iterations"
    for mine, reference in steps:
        assert mine.evaluations == reference.evaluations
        assert mine.value == pytest.approx(reference.value, rel=1e-8)
        assert mine.gradient_norm == pytest.approx(reference.gradient_norm, rel=1e-6, abs=1e-12)
    assert ours.fun == pytest.approx(theirs.fun, rel=1e-10)
    np.testing.assert_allclose(ours.x.numpy(), theirs.x, rtol=1e-5, atol=1e-6)
