"""Losses over keys: the formula, columns of all kinds, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions

import distvec as dv
from distvec import losses
from distvec.losses.labels import Signs, rule
from distvec.losses.rows import Rows
from distvec.spark import KeyedObjective, LogisticLoss
from distvec.spark.keyed.task import INTERCEPT, KeyedWeights, Pass, PassStatistics, Reading
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
    found = model.probabilities(model.margins(model.data)).toPandas()
    margins = [
        w[INTERCEPT] + sum(w[key] * value for key, value in zip(keys, numbers, strict=True))
        for keys, numbers in zip(*given[:2], strict=True)
    ]
    np.testing.assert_allclose(found["margin"], margins, rtol=1e-6, atol=1e-9)
    positive = 1 / (1 + np.exp(-np.array(margins)))
    expected = np.column_stack([1 - positive, positive])
    np.testing.assert_allclose(np.stack(found["probability"]), expected, rtol=1e-6)
    with pytest.warns(DeprecationWarning, match=r"scores\(\) is deprecated; use probabilities\(\)"):
        old = model.scores(model.data, output="a.b").toPandas()
    assert old["a.b"].tolist() == found["probability"].str[1].tolist()
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
    reading = Reading(("features",), None, "label", None, Signs(), True, 8)
    with pytest.raises(ValueError, match=r"the label is 3; .*other pairs pass positive_label="):
        reading.labels(pa.RecordBatch.from_pydict({"features": [[1]], "label": [3]}))
    with pytest.raises(ValueError, match=r"partition \d+, row \d+: the column features has nulls"):
        LogisticLoss(frame, keys=True, positive_label=3).train()
    with pytest.raises(ValueError, match="needs one column of lists"):
        LogisticLoss(frame, keys=True, features=["a", "b"], values="v")
    wrong = frame.withColumn("features", functions.array(functions.lit(0.5)))
    with pytest.raises(TypeError, match=r"features='features' is a column of array<.*>; with keys"):
        LogisticLoss(wrong, keys=True).train()
    with pytest.raises(ValueError, match=r"features='feature': .*did you mean 'features'"):
        LogisticLoss(frame, keys=True, features="feature").train()
    with pytest.raises(TypeError, match="there are no rows; pass"):
        LogisticLoss(keys=True).train()
    with pytest.raises(ValueError, match="pass another name"):
        LogisticLoss(keys=True).margins(frame, output="label")


def test_the_area_under_the_curve():
    rng = np.random.default_rng(0)
    margins, labels = rng.normal(size=300) * 3, rng.integers(0, 2, 300)
    margins += labels
    rows = Rows(np.zeros((300, 0)), 2.0 * labels - 1.0)
    seen = PassStatistics.of(rows, 0.0, margins, signs=True)
    wins = margins[labels == 1][:, None] - margins[labels == 0]
    assert seen.auc == pytest.approx((wins > 0).mean(), abs=0.01)
    assert np.isnan(PassStatistics.zero().auc) and np.isnan(PassStatistics.zero().mean_loss)


@losses.row_loss(labels="real")
def my_loss(margins, labels):
    return (margins - labels) ** 4, 4 * (margins - labels) ** 3


@pytest.mark.parametrize(
    "loss",
    [
        losses.Logistic(),
        losses.Hinge(),
        losses.SquaredHinge(),
        losses.ModifiedHuber(),
        losses.Squared(),
        losses.Absolute(),
        losses.Huber(),
        losses.Quantile(quantile=0.3),
        losses.EpsilonInsensitive(epsilon=0.1),
        losses.Poisson(),
        losses.Gamma(),
        losses.Tweedie(power=1.5),
        my_loss,
    ],
    ids=str,
)
def test_each_loss_steps_by_its_gradient(loss):
    """A pass as tasks make it, without Spark."""
    rng = np.random.default_rng(1)
    table = (rng.random((7, 5)) < 0.6) * rng.normal(size=(7, 5))
    keys = [np.flatnonzero(row) for row in table]
    labels = rng.integers(0, 2, 7) + 0.0 if loss.labels == "signs" else 0.5 + rng.random(7)
    columns = {
        "features": [(one * 10**12).tolist() for one in keys],
        "values": [row[one].tolist() for row, one in zip(table, keys, strict=True)],
        "label": labels,
        "weight": rng.random(7),
    }
    kind = rule(loss.labels)
    reading = Reading(("features",), "values", "label", "weight", kind, False, 4)
    with dv.local(2, in_process=True) as ps:
        w = ps.keys().zeros()
        w.optimizer(dv.rows.sgd(0.1))
        batch = pa.RecordBatch.from_pydict(columns)
        (row,) = Pass(reading, loss, KeyedWeights(w), None, True)([batch])
        expected, value = np.zeros(5), 0.0
        for part in (slice(0, 4), slice(4, 7)):
            rows = Rows(table[part], kind.encode(labels)[part], columns["weight"][part])
            sums = loss.sums(rows, (expected,), intercept=False)
            expected, value = expected - 0.1 * sums.gradients[0], value + sums.value
        np.testing.assert_allclose(w.pull(np.arange(5) * 10**12), expected, rtol=1e-12, atol=1e-15)
    (seen,) = row.to_pylist()
    assert seen["loss"] == pytest.approx(value) and seen["rows"] == 7
    assert (sum(seen["positive"]) > 0) == (loss.labels == "signs")


def test_a_loss_of_numbers_is_trained_and_predicts(spark, ps):
    data = [([k % 3], [k % 5 / 5], 2.0 * (k % 3) * (k % 5) / 5 + 1.0) for k in range(90)]
    schema = "features array<long>, values array<double>, label double"
    frame = spark.createDataFrame(data, schema).coalesce(1)
    model = KeyedObjective(
        frame,
        loss=losses.Squared(),
        values="values",
        batch_size=8,
        optimizer=dv.rows.adagrad(1.0),
    )
    first = model.train()
    last = model.train(epochs=5)
    assert last.loss < first.loss / 10 and np.isnan(last.auc) and "AUC" not in str(last)
    found = model.predict(model.margins(frame)).toPandas()
    np.testing.assert_allclose(found["prediction"], found["label"], atol=0.5)
    assert found["prediction"].tolist() == found["margin"].tolist()
    with pytest.raises(NotImplementedError, match="probabilities"):
        model.probabilities(frame)
    with pytest.raises(TypeError, match="not a loss of one margin for each row"):
        KeyedObjective(frame, loss=losses.Softmax())
    with pytest.raises(ValueError, match="goes with losses of two classes"):
        KeyedObjective(frame, loss=losses.Huber(), positive_label=1)
    with pytest.raises(Exception, match="this loss takes labels of 0 and more"):
        KeyedObjective(loss=losses.Poisson()).train(
            spark.createDataFrame([([1], -1.0)], "features array<long>, label double")
        )
