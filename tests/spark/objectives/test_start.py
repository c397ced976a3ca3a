"""Going on from a saved model when rows have got more features."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml.linalg import Vectors

import distvec as dv
from distvec import losses
from distvec.losses import FactorizationMachine, Softmax, Squared
from distvec.spark import Objective
from optim import ElasticNet


def frame_of(spark, x, y):
    """Rows of sparse vectors, of no part of which more than the non-zeros are told."""
    rows = [
        (Vectors.sparse(x.shape[1], np.flatnonzero(row).tolist(), row[row != 0].tolist()), float(t))
        for row, t in zip(x, y, strict=True)
    ]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), ["features", "label"])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 9)) * (rng.random((200, 9)) < 0.5)
    x[:, 4] = 0.0  # a feature that no row has
    return x, x @ np.arange(9.0) + 3.0 + 0.1 * rng.normal(size=200)


def test_a_model_goes_on_with_more_features(spark, ps, rows, tmp_path):
    x, y = rows
    task = {"loss": Squared(), "penalty": ElasticNet(l1=0.0, l2=1e-2), "intercept": True}
    path = tmp_path / "model.safetensors"
    with Objective(frame_of(spark, x[:, :6], y), ps=ps, compact=True, **task) as first:
        model = first.expand(first.minimize(gradient_tolerance=1e-4).x)
        dv.save(path, w=model)
    saved, known = dv.load(path, ps)["w"], model.numpy()
    assert saved.shape == (7,)
    for compact in (False, True):
        with Objective(frame_of(spark, x, y), ps=ps, compact=compact, **task) as second:
            for given in (saved, saved.numpy()):
                whole = second.expand(second.start(given)).numpy()
                assert whole.tolist() == [*known[:6], 0.0, 0.0, 0.0, known[6]]
            with pytest.raises(ValueError, match=r"shape \(11,\); to continue it to \(10,\)"):
                second.start(np.zeros(11))
            if compact:
                found = second.minimize(second.start(saved), gradient_tolerance=1e-6)
                fitted = losses.Objective((x, y), **task).minimize()
                assert np.allclose(second.expand(found.x).numpy(), fitted.x, atol=1e-4)


def test_tables_and_several_parameters(spark, ps, rows):
    x, y = rows
    with Objective(
        frame_of(spark, x, np.arange(200) % 3),
        loss=Softmax(3),
        intercept=True,
        compact=True,
        ps=ps,
    ) as objective:
        table = np.arange(15.0).reshape(5, 3)
        whole = objective.expand(objective.start(table)).numpy()
        expected = np.zeros((10, 3))
        expected[[0, 1, 2, 3, 9]] = table
        assert whole.tolist() == expected.tolist()
    with Objective(
        frame_of(spark, x, y),
        loss=FactorizationMachine(row=Squared(), factors=2),
        compact=True,
        ps=ps,
    ) as objective:
        model = {"w": np.arange(4.0, dtype=np.float32), "V": np.ones((4, 2))}
        found = objective.start(model)
        assert found["w"].dtype == np.float32 and found["w"][:4].numpy().tolist() == [0, 1, 2, 3]
        assert found["V"][:4].numpy().tolist() == np.ones((4, 2)).tolist()
        assert np.abs(found["V"][5:].numpy()).min() > 0, "new features do not start at a saddle"


def test_over_rows_in_memory(rows):
    x, y = rows
    objective = losses.Objective((x, y), loss=Squared(), intercept=True)
    assert objective.start(np.array([1.0, 2.0, 7.0])).tolist() == [1, 2, 0, 0, 0, 0, 0, 0, 0, 7]
    with pytest.raises(ValueError, match="the last being the intercept"):
        objective.start(np.zeros((3, 1)))
