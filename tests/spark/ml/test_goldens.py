"""Numbers that the docstrings and tests of pyspark, and of libraries beside it, print."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.linalg import Matrices, SparseMatrix, Vectors

from distvec.spark.ml.classification import FMClassifier, LinearSVC, LogisticRegression
from distvec.spark.ml.regression import FMRegressor, GeneralizedLinearRegression
from tests.spark.ml.test_classification import DATA


@pytest.fixture(scope="module")
def four(spark):
    """Rows with weights of pyspark's examples."""
    values = [(1.0, 1.0, [0.0, 5.0]), (0.0, 2.0, [1.0, 2.0])]
    values += [(1.0, 3.0, [2.0, 1.0]), (0.0, 4.0, [3.0, 3.0])]
    rows = [(label, weight, Vectors.dense(x)) for label, weight, x in values]
    return spark.createDataFrame(rows, ["label", "weight", "features"]).coalesce(1).cache()


@pytest.fixture(scope="module")
def three(spark):
    """Three classes of four features."""
    path = str(DATA / "sample_multiclass_classification_data.txt")
    return spark.read.format("libsvm").load(path).coalesce(1).cache()


def frame_of(spark, rows):
    """Labels and dense vectors."""
    made = [(label, Vectors.dense(x)) for label, x in rows]
    return spark.createDataFrame(made, ["label", "features"]).coalesce(1)


def test_two_classes(ps, spark, four):
    model = LogisticRegression(weightCol="weight", regParam=0.01).fit(four)
    assert np.allclose(model.coefficients, [-1.080, -0.646], atol=1e-3)
    assert model.intercept == pytest.approx(3.112, abs=1e-3)
    probabilities = model.predictProbability(Vectors.dense(-1.0, 1.0))
    assert np.allclose(probabilities, [0.028, 0.972], atol=5e-4)
    rows = frame_of(spark, [(1.0, [1, 2]), (1.0, [1, 3]), (0.0, [2, 1]), (0.0, [3, 1])])
    for is_scaled, slope, least in ((True, 2.48197058, 0.07713), (False, 2.42377087, 0.0814)):
        model = LogisticRegression(regParam=0.01, standardization=is_scaled, tol=1e-12).fit(rows)
        assert np.allclose(model.coefficients, [-slope, slope], atol=1e-6)
        assert model.intercept == pytest.approx(0.0, abs=1e-6)
        first = model.predictProbability(Vectors.dense(1.0, 2.0))[0]
        assert first == pytest.approx(least, abs=1e-4)


def test_three_classes(ps, spark, three):
    estimator = LogisticRegression(regParam=0.1, elasticNetParam=1.0, family="multinomial")
    model = estimator.fit(three)
    matrix = model.coefficientMatrix
    assert isinstance(matrix, SparseMatrix) and matrix.isTransposed
    assert matrix.colPtrs.tolist() == [0, 1, 2, 3] and matrix.rowIndices.tolist() == [3, 2, 1]
    assert np.allclose(matrix.values, [1.875, -2.755, -0.505], atol=5e-3)
    assert np.allclose(model.interceptVector, [0.045, -0.425, 0.375], atol=5e-3)
    bounds = {
        "lowerBoundsOnCoefficients": Matrices.dense(3, 4, range(12)),
        "upperBoundsOnIntercepts": Vectors.dense(0.0, 0.0, 0.0),
    }
    model = LogisticRegression(regParam=0.01, **bounds).fit(three)
    expected = [[4.593, 4.5516, 9.0099, 12.2904], [1, 8.1093, 7, 10], [3.041, 5, 8, 11]]
    assert np.allclose(model.coefficientMatrix.toArray(), expected, atol=3e-3)
    assert np.allclose(model.interceptVector, [-0.9057, -1.1392, -0.0033], atol=3e-3)
    rows = frame_of(spark, [(1.0, [1.0]), (0.0, [0.0]), (2.0, [2.0]), (2.0, [1.9])])
    summary = LogisticRegression(maxIter=5, regParam=0.01, fitIntercept=False).fit(rows).summary
    assert summary.accuracy == 0.75
    assert summary.weightedPrecision == pytest.approx(0.583, abs=1e-3)
    assert summary.weightedFMeasure() == pytest.approx(0.65, abs=1e-3)


def test_support_vectors(ps, spark):
    """The docstring stops MLlib after five steps of its own; ours are to be as good."""
    x, y = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]]), np.array([1.0, -1.0])
    rows = frame_of(spark, list(zip([1.0, 0.0], x, strict=True)))
    model = LinearSVC(maxIter=5, regParam=0.01).fit(rows)

    def value(w, intercept):
        margins = y * (x @ w + intercept)
        return np.maximum(0.0, 1.0 - margins).mean() + 0.005 * ((x.std(0, ddof=1) * w) ** 2).sum()

    golden = value(np.array([0.0, -1.0319, -0.5159]), 2.579645978780695)
    assert value(model.coefficients.toArray(), model.intercept) <= golden + 1e-6


def test_factorization_machines(ps, spark):
    rows = frame_of(spark, [(1.0, [1.0]), (0.0, [0.0])])
    model = FMClassifier(factorSize=2, seed=11).fit(rows)
    assert model.intercept == pytest.approx(-7.316665276826291, abs=1e-9)
    assert np.allclose(model.linear, [14.8232450], atol=1e-6)
    assert np.allclose(model.factors.toArray(), [[0.0162700718, -0.00513181741]], atol=1e-9)
    rows = frame_of(spark, [(2.0, [2.0]), (1.0, [1.0]), (0.0, [0.0])])
    model = FMRegressor(factorSize=2, seed=16).fit(rows)
    found = [model.predict(Vectors.dense(x)) for x in (-2.0, 0.5, 1.0, 4.0)]
    expected = [-1.99892377123416, 0.49566822195238, 0.99458662058969, 3.98809701241353]
    assert np.allclose(found, expected, rtol=0.0, atol=1e-10)
    assert model.intercept == pytest.approx(-0.0032501766849261557, abs=1e-10)


def test_tweedie(ps, spark):
    rows = [(1.0, [0.0, 0.0]), (1.0, [1.0, 2.0]), (2.0, [0.0, 0.0]), (2.0, [1.0, 1.0])]
    frame = frame_of(spark, rows)
    estimator = GeneralizedLinearRegression(family="tweedie", variancePower=1.6)
    for power, coefficients, intercept in (
        (None, [-0.4645, 0.3402], 0.7841),
        (-1.0, [-0.6667, 0.5], 0.6667),
    ):
        model = estimator.setParams(linkPower=power).fit(frame)
        assert np.allclose(model.coefficients, coefficients, atol=1e-4)
        assert model.intercept == pytest.approx(intercept, abs=1e-4)
