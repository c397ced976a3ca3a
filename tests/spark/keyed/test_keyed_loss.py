"""Logistic regression over keys: the formula, columns of all kinds, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions

import distvec as dv
from distvec.spark import LogisticLoss
from distvec.spark.keyed.task import INTERCEPT, Reading, Seen
from ps_backend.program.keys import hash_texts

pytestmark = pytest.mark.spark


def rows_of(count, seed=0):
    """Keys from a wide range, none for some rows, values, labels, weights."""
    rng = np.random.default_rng(seed)
    lists = [rng.integers(0, 12, rng.integers(0, 4)) * 10**15 for _ in range(count)]
    values = [rng.normal(size=len(keys)) for keys in lists]
    return lists, values, rng.integers(0, 2, count), rng.random(count)


def by_hand(lists, values, labels, weights, batch_size, rate):
    """AdaGrad on the sum of the losses of each batch, over a dict."""
    w, squares, losses = {}, {}, 0.0
    for low in range(0, len(lists), batch_size):
        gradient = {}
        for k in range(low, min(low + batch_size, len(lists))):
            pairs = [(INTERCEPT, 1.0), *zip(lists[k].tolist(), values[k], strict=True)]
            margin = sum(w.get(key, 0.0) * value for key, value in pairs)
            losses += weights[k] * np.logaddexp(0, -margin if labels[k] else margin)
            residual = weights[k] * (1 / (1 + np.exp(-margin)) - labels[k])
            for key, value in pairs:
                gradient[key] = gradient.get(key, 0.0) + residual * value
        for key, g in gradient.items():
            squares[key] = squares.get(key, 0.0) + g * g
            w[key] = w.get(key, 0.0) - rate * g / (np.sqrt(squares[key]) + 1e-10)
    return w, losses / weights.sum()


def frame_of(spark, lists, values, labels, weights):
    data = [
        (keys.tolist(), numbers.tolist(), int(label), float(weight))
        for keys, numbers, label, weight in zip(lists, values, labels, weights, strict=True)
    ]
    schema = "features array<long>, values array<double>, label int, weight double"
    return spark.createDataFrame(spark.sparkContext.parallelize(data, 1), schema)


def test_steps_are_those_of_the_formula(spark, ps):
    given = rows_of(23)
    shown = []
    model = LogisticLoss(
        frame_of(spark, *given),
        keys=True,
        values="values",
        weight="weight",
        batch_size=5,
        optimizer=dv.rows.adagrad(0.3),
    )
    done = model.train(progress=shown.append)
    w, loss = by_hand(*given, 5, 0.3)
    np.testing.assert_allclose(model.weights.pull(list(w)), [*w.values()], rtol=1e-6, atol=1e-9)
    assert done.keys == len(w) == len(model.space) and done.rows == model.rows == 23
    assert done.loss == pytest.approx(loss) and shown == [done] and "23 rows" in str(done)
    assert model.intercept == pytest.approx(w[INTERCEPT])
    scores = model.scores(model.data).toPandas()
    margins = [
        w[INTERCEPT] + sum(w[key] * value for key, value in zip(keys, numbers, strict=True))
        for keys, numbers in zip(*given[:2], strict=True)
    ]
    np.testing.assert_allclose(scores["score"], 1 / (1 + np.exp(-np.array(margins))), rtol=1e-6)
    again = model.evaluate()
    assert again.loss < done.loss and again.auc > 0.5 and again.rows == 23


def test_columns_are_hashed_and_new_keys_come_along(spark, ps):
    data = [("a.com", k % 3, float(k % 3 == 0)) for k in range(60)]
    frame = spark.createDataFrame(data, "site string, ad int, click double").coalesce(2)
    space = ps.keys()
    model = LogisticLoss(
        keys=True, features=["site", "ad"], label="click", space=space, exactly_once=True
    )
    runs = []
    for _ in range(2):
        model.train(frame, epochs=2)
        runs.append(model.weights.pull(["site=a.com", "ad=0", "ad=1", "ad=2"]))
    assert runs[1][1] > runs[0][1] > 0 > runs[0][2] > runs[1][2]
    assert len(space) == 5 and model.evaluate(frame).auc == 1.0
    texts = spark.createDataFrame(
        [(["ad=0", "ad=1"], 1), ([], 0)], "features array<string>, label int"
    )
    other = LogisticLoss(texts, keys=True, intercept=False, optimizer=dv.rows.sgd(1.0))
    other.train()
    assert other.weights.pull(hash_texts(["ad=0", "ad=1", "ad=2"])).tolist() == [0.5, 0.5, 0.0]


def test_refusals(spark, ps):
    frame = spark.createDataFrame([([1], 3), (None, 1)], "features array<long>, label int")
    reading = Reading(("features",), None, "label", None, None, True, 8)
    with pytest.raises(ValueError, match=r"the label 3\.0 is none of .*; say which is positive"):
        reading.labels(pa.RecordBatch.from_pydict({"features": [[1]], "label": [3]}))
    with pytest.raises(Exception, match="features has nulls"):
        LogisticLoss(frame, keys=True, positive_label=3).train()
    with pytest.raises(ValueError, match="goes with one column of lists"):
        LogisticLoss(frame, keys=True, features=["a", "b"], values="v")
    wrong = frame.withColumn("features", functions.array(functions.lit(0.5)))
    with pytest.raises(TypeError, match=r"features='features' is a column of array<.*>; with keys"):
        LogisticLoss(wrong, keys=True).train()
    with pytest.raises(ValueError, match=r"features='feature': .*did you mean 'features'"):
        LogisticLoss(frame, keys=True, features="feature").train()
    with pytest.raises(TypeError, match="there are no rows"):
        LogisticLoss(keys=True).train()
    with pytest.raises(ValueError, match="name another one"):
        LogisticLoss(keys=True).scores(frame, output="label")


def test_the_area_under_the_curve():
    rng = np.random.default_rng(0)
    margins, labels = rng.normal(size=300) * 3, rng.integers(0, 2, 300)
    margins += labels
    seen = Seen.of(margins, labels, np.ones(300))
    wins = margins[labels == 1][:, None] - margins[labels == 0]
    assert seen.auc == pytest.approx((wins > 0).mean(), abs=0.01)
    assert np.isnan(Seen.nothing().auc) and np.isnan(Seen.nothing().mean_loss)
