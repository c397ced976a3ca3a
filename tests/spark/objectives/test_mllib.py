"""Models of MLlib made of our parameters: saved, loaded by pyspark.ml, with our predictions."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.classification import LinearSVCModel, LogisticRegressionModel
from pyspark.ml.linalg import Vectors
from pyspark.ml.regression import LinearRegressionModel

from distvec.losses import FactorizationMachine, Huber, Logistic, Poisson, Softmax, SquaredHinge
from distvec.spark import mllib_model

CASES = [
    (Logistic(), LogisticRegressionModel, ()),
    (SquaredHinge(), LinearSVCModel, ()),
    (Huber(), LinearRegressionModel, ()),
    (Softmax(3), LogisticRegressionModel, (3,)),
]


def test_pyspark_loads_what_it_says(spark, ps, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 4))
    frame = spark.createDataFrame([(Vectors.dense(row),) for row in x], ["features"]).coalesce(1)
    for number, (loss, kind, columns) in enumerate(CASES):
        weights = rng.normal(size=(5, *columns))
        model = mllib_model(ps.array(weights), loss=loss, intercept=True)
        model.save(str(tmp_path / str(number)))
        loaded = kind.load(str(tmp_path / str(number)))
        margins = x @ weights[:-1] + weights[-1]
        found = [row.prediction for row in loaded.transform(frame).collect()]
        if columns:
            expected = margins.argmax(1)
        else:
            expected = margins if kind is LinearRegressionModel else margins > 0
        assert np.allclose(found, expected)
        bare = mllib_model(weights[:-1], loss=loss)
        zeros = bare.interceptVector.toArray() if columns else [bare.intercept]
        assert not np.any(zeros) and bare.numFeatures == 4


def test_what_mllib_has_no_model_of(spark):
    with pytest.raises(NotImplementedError, match="MLlib has no model for"):
        mllib_model(np.zeros(3), loss=Poisson())
    machine = {"w": np.zeros(3), "V": np.zeros((3, 2))}
    assert mllib_model(machine, loss=FactorizationMachine(factors=2)).numFeatures == 3
    with pytest.raises(TypeError, match=r"dict of \['V', 'w'\].*loss=objective.loss"):
        mllib_model(machine)
    with pytest.raises(ValueError, match=r"weights have the shape \(3, 2\)"):
        mllib_model(np.zeros((3, 2)))
