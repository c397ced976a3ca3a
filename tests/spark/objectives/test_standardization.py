"""Standardization over Spark: the same deviations as of rows in one process, and MLlib's optima."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.linalg import Vectors
from pyspark.ml.regression import LinearRegression

from distvec.losses import Objective as LocalObjective
from distvec.losses import Rows
from distvec.losses.classification import Logistic
from distvec.losses.regression import Squared
from distvec.spark import Objective
from optim import ElasticNet
from tests.samples import marked

pytestmark = pytest.mark.spark

FEATURES = 6


@pytest.fixture(scope="module")
def rows():
    """Columns of other scales, one far from 0, one rare, and one that is always 0.3."""
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(90, FEATURES)) * [1.0, 20.0, 0.1, 1.0, 1.0, 1.0]
    matrix[:, 1] += 100.0
    matrix[:, 3] *= rng.random(90) < 0.1
    matrix[30:, 3] = 0.0  # of which most partitions have none
    matrix[:, 4] = 0.3
    margins = matrix @ [1.0, 0.05, 8.0, 1.0, 0.0, -0.5] - 5.0
    labels = (margins + rng.logistic(size=90) > 0).astype(float)
    return Rows(matrix, labels, 0.1 + rng.random(90))


@pytest.fixture(scope="module")
def numbers(rows):
    return rows.matrix @ np.arange(FEATURES) + np.sin(np.arange(90.0))


@pytest.fixture(scope="module")
def frame(spark, rows, numbers):
    """As sparse vectors in three partitions, with the margin's label and a number."""
    vectors = [
        Vectors.sparse(FEATURES, np.flatnonzero(x).tolist(), x[x != 0].tolist())
        for x in rows.matrix
    ]
    data = zip(vectors, rows.labels.tolist(), rows.weights.tolist(), numbers.tolist(), strict=True)
    rdd = spark.sparkContext.parallelize(list(data), 3)
    return spark.createDataFrame(rdd, ["features", "label", "weight", "number"]).cache()


@pytest.mark.parametrize("compact", [False, True])
def test_deviations_are_those_of_the_rows_in_one_process(ps, rows, frame, compact):
    words = {"loss": Logistic(), "intercept": True, "standardization": True}
    words["penalty"] = ElasticNet(0.01, 0.02)
    here = LocalObjective(rows, **words)
    x = np.linspace(-1.0, 1.0, FEATURES + 1)
    expected = here(x)
    with Objective(frame, weight="weight", mode="job", compact=compact, **words) as there:
        value, gradient = there(ps.array(x))
        np.testing.assert_allclose(float(value), expected[0], rtol=1e-13)
        np.testing.assert_allclose(gradient.numpy(), expected[1], rtol=1e-12)
        assert gradient.numpy()[4] == 0.0


def test_minima_are_those_of_the_rows_in_one_process(ps, rows, frame):
    words = {"loss": Logistic(), "intercept": True, "standardization": True}
    words["penalty"] = ElasticNet(0.01, 0.02)
    expected = LocalObjective(rows, **words).minimize(gradient_tolerance=1e-9).x
    with Objective(frame, weight="weight", **words) as there:
        found = there.minimize(gradient_tolerance=1e-9).x.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert (found == 0.0).tolist() == (expected == 0.0).tolist()


def fitted(estimator, frame, **words):
    model = estimator(regParam=0.05, elasticNetParam=0.4, maxIter=500, tol=1e-12, **words).fit(
        frame
    )
    return [*model.coefficients.toArray(), model.intercept]


MLLIB = [(True, True), (True, False), (False, True)]


@pytest.mark.parametrize(("standardization", "intercept"), marked(MLLIB, long=MLLIB[:1]))
def test_optima_of_classes_are_those_of_mllib(rows, frame, standardization, intercept):
    """Without intercept and standardization MLlib leaves out columns of one value; we do not."""
    words = {"standardization": standardization, "fitIntercept": intercept}
    expected = fitted(LogisticRegression, frame, weightCol="weight", **words)
    penalty = ElasticNet(l1=0.02, l2=0.03)
    objective = LocalObjective(
        rows, loss=Logistic(), penalty=penalty, standardization=standardization, intercept=intercept
    )
    found = objective.minimize(gradient_tolerance=1e-10).x
    np.testing.assert_allclose(found, expected[: found.size], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("standardization", "intercept"), MLLIB[1:])
def test_optima_of_numbers_are_those_of_mllib(rows, numbers, frame, standardization, intercept):
    """MLlib divides the labels by their deviation: of regParam that leaves l2 divided by it."""
    words = {"standardization": standardization, "fitIntercept": intercept}
    expected = fitted(LinearRegression, frame, labelCol="number", solver="l-bfgs", **words)
    penalty = ElasticNet(l1=0.02, l2=0.03 / np.std(numbers, ddof=1))
    objective = LocalObjective(
        (rows.matrix, numbers),
        loss=Squared(),
        penalty=penalty,
        standardization=standardization,
        intercept=intercept,
    )
    found = objective.minimize(gradient_tolerance=1e-10).x
    np.testing.assert_allclose(found, expected[: found.size], rtol=1e-6, atol=1e-6)
