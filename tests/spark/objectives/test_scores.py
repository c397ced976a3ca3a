"""Models over DataFrames: tasks pull only what their rows touch, or have a broadcast."""

from __future__ import annotations

import gc
import pickle

import numpy as np
import pytest
from pyspark.sql import functions

from distvec import losses
from distvec.losses import FactorizationMachine, Huber, Logistic, Softmax
from distvec.spark import LogisticLoss, Model, Objective, PSContext, margins, mllib_model, scores
from optim import LBFGS, SquaredL2Norm
from tests.waiting import wait_for

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("intercept", [False, True])
def test_margins(ps, problem, intercept):
    w = np.random.default_rng(3).normal(size=3000 + intercept)
    scored = margins(problem.frame, ps.array(w), output="margin", intercept=intercept)
    assert scored.columns == ["features", "label", "weight", "margin"]
    found = [row.margin for row in scored.select("margin").collect()]
    expected = problem.x @ w[:3000] + (w[-1] if intercept else 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_the_old_name_of_margins_still_works(ps, problem):
    with Objective(problem.frame, loss=Logistic()) as objective:
        x = objective.start()
        for old in (
            lambda: objective.scores(problem.frame, x),
            lambda: objective.model(x).scores(problem.frame),
            lambda: scores(problem.frame, x),
        ):
            with pytest.warns(DeprecationWarning, match=r"scores\(\) is deprecated; use margins"):
                assert old().columns[-1] == "score"


def test_it_is_lazy_and_holds_its_weights(ps, problem):
    scored = margins(problem.frame, ps.ones(3000) * 2.0)
    assert scored.filter("margin != 0").count() == np.count_nonzero(problem.x.sum(axis=1))


def test_a_frame_made_of_a_scored_one_has_the_model_of_a_temporary(ps, problem):
    found = margins(problem.frame, ps.ones(3000) * 3.0).select("margin").collect()
    np.testing.assert_allclose([row.margin for row in found], 3.0 * problem.x.sum(axis=1))


def test_several_columns_of_numbers_are_the_features_in_their_order(ps, spark):
    frame = spark.createDataFrame([(1.0, 2, 0.0), (-3.0, 4, 1.0)], ["a", "b.c", "label"])
    with LogisticLoss(frame, features=["b.c", "a"]) as loss:
        value = float(loss(ps.array([0.5, 2.0]))[0])
        found = [row.margin for row in loss.margins(frame, ps.array([0.5, 2.0])).collect()]
        model = loss.model(ps.array([0.5, 2.0]))
        several = [row.prediction for row in model.predict(frame).collect()]
    assert found == [3.0, -4.0] and several == [1.0, 0.0]
    assert value == pytest.approx(np.logaddexp(0.0, [3.0, 4.0]).mean())


def test_rows_without_features_have_nothing_to_fit(ps, spark):
    frame = spark.createDataFrame([(0.0,), (1.0,)], ["label"])
    frame = frame.withColumn("features", functions.array().cast("array<double>"))
    with pytest.raises(ValueError, match=r"features='features': every row has 0 .*intercept=True"):
        LogisticLoss(frame)
    with LogisticLoss(frame, intercept=True) as loss:
        assert float(loss(ps.zeros(1))[0]) == pytest.approx(np.log(2.0))


def test_refusals(ps, problem):
    with pytest.raises(TypeError, match="weights must be a DistArray of a PSContext"):
        margins(problem.frame, np.zeros(3000))
    with pytest.raises(TypeError, match="weights have dtype bool"):
        margins(problem.frame, ps.zeros(3000, dtype=bool))
    with pytest.raises(ValueError, match="features='nothing': the data has no such column"):
        margins(problem.frame, ps.zeros(3000), features="nothing")
    with pytest.raises(ValueError, match=r"features=\[\] names no column"):
        margins(problem.frame, ps.zeros(3000), features=[])
    with pytest.raises(Exception, match=r"have 3000 features, the weights 7; .*objective\.model"):
        margins(problem.frame, ps.zeros(7)).collect()
    with pytest.raises(ValueError, match=r"output='Label' is a column .*data\.drop\('Label'\)"):
        margins(problem.frame, ps.zeros(3000), output="Label")


def test_of_a_table_and_of_a_dict(ps, problem):
    rng, x = np.random.default_rng(4), problem.x
    table = rng.normal(size=(3001, 2))
    scored = margins(problem.frame, ps.array(table), loss=Softmax(classes=2), intercept=True)
    found = [row.margin for row in scored.select("margin").collect()]
    np.testing.assert_allclose(found, x @ table[:-1] + table[-1], rtol=1e-12, atol=1e-12)

    w, v = rng.normal(size=3000), rng.normal(size=(3000, 2))
    model = {"w": ps.array(w), "V": ps.array(v)}
    scored = margins(problem.frame, model, loss=FactorizationMachine(2), output="margin")
    found = [row.margin for row in scored.select("margin").collect()]
    pairs = 0.5 * ((x @ v) ** 2 - (x * x) @ (v * v)).sum(axis=1)
    np.testing.assert_allclose(found, x @ w + pairs, rtol=1e-10, atol=1e-11)


@pytest.fixture(scope="module")
def fitted(spark, problem):
    """Models of four objectives, each with its scored frame alone, and NumPy's coefficients."""
    ps, found = PSContext.get_or_create(spark, servers=2), []
    for k in range(4):
        options = {"penalty": SquaredL2Norm(10.0**-k), "intercept": k % 2 == 0, "compact": k > 1}
        with Objective(problem.frame, loss=Logistic(), mode="job", **options) as objective:
            model = objective.fit()
        frame = model.margins(problem.frame).select("margin")
        del options["compact"]
        rows = problem.x, problem.y
        alone = losses.Objective(rows, loss=Logistic(), **options).fit().margins(problem.x)
        found.append((frame.filter("margin is not null"), model.numpy(), alone))
    del model, objective, frame
    gc.collect()
    return ps, found


def values(frame, column="margin"):
    return np.array([row[column] for row in frame.select(column).collect()])


def test_lazy_frames_have_the_weights_of_their_models(fitted):
    for frame, model, alone in fitted[1]:
        np.testing.assert_allclose(values(frame), alone, rtol=1e-4, atol=1e-4)
        assert model.num_features == 3000


def test_weights_go_with_the_last_plan_that_asks_for_them(spark, ps, problem):
    frame = margins(problem.frame, ps.ones(3000) * 5.0).filter("margin > 0")
    reference = list(ps.scored._held.values())[-1][0]

    def is_held():
        gc.collect()
        spark._jvm.System.gc()
        ps.scored.free()
        return any(one is reference for one, _ in ps.scored._held.values())

    assert is_held() and frame.count() == (problem.x.sum(axis=1) > 0).sum() and is_held()
    del frame
    wait_for(lambda: not is_held())  # Spark's monitor of a worker ends 2 s after the worker's task


def test_a_model_over_frames_says_what_it_says_of_arrays(ps, problem, fitted, tmp_path):
    frame, x = problem.frame, problem.x
    model = fitted[1][3][1]
    assert isinstance(model, Model) and model.is_local and model.coordinates is not None
    path = tmp_path / "model.safetensors"
    model.save(path)
    on_servers = Model.load(path, ps)
    for one in (model, on_servers, on_servers.whole()):
        np.testing.assert_allclose(
            values(one.margins(frame)), model.margins(x), rtol=1e-12, atol=1e-13
        )
    two = on_servers.predict(on_servers.probabilities(frame), output="class")
    assert two.columns == [*frame.columns, "probability", "class"]
    found = values(two, "probability")
    np.testing.assert_allclose(found, model.probabilities(x), rtol=1e-12)
    assert values(two, "class").tolist() == model.predict(x).tolist()
    renamed = frame.withColumnRenamed("features", "f")
    assert values(model.predict(renamed, features="f"), "prediction").shape == (len(x),)
    with pytest.raises(ValueError, match="features='features': the data has no such column"):
        model.predict(renamed)
    plain = losses.Model.load(path)
    assert plain.predict(x).tolist() == model.predict(x).tolist()
    assert values(margins(frame, plain)).tolist() == values(model.margins(frame)).tolist()


def test_weights_that_a_solver_found_know_what_they_are(ps, problem):
    options = {"intercept": True, "compact": True, "l2": 0.1}
    with LogisticLoss(problem.frame, **options) as loss:
        result = loss.minimize()
        model, whole = loss.model(result.x), loss.expand(result.x)
        assert whole.shape == (3001,) and loss.features < 3000
        expected = problem.x @ whole.numpy()[:-1] + float(whole[-1])
        for scored in (
            margins(problem.frame, result.x),
            loss.margins(problem.frame, result.x),
            loss.margins(problem.frame, whole),
        ):
            np.testing.assert_allclose(values(scored), expected, rtol=1e-10, atol=1e-12)
        for made in (mllib_model(result.x), model.to_mllib(), mllib_model(model.numpy())):
            assert made.numFeatures == 3000 and made.intercept == model.intercept
            np.testing.assert_allclose(made.coefficients.toArray(), whole.numpy()[:-1])
        for use in (margins, lambda frame, *args, **options: mllib_model(*args, **options)):
            with pytest.raises(
                ValueError, match="belong to a model with one; leave intercept= out"
            ):
                use(problem.frame, result.x, intercept=False)
            with pytest.raises(ValueError, match=r"belong to Logistic\(\); leave loss= out"):
                use(problem.frame, result.x, loss=Huber())
        found = LBFGS(max_iterations=3).minimize(loss, loss.start())
        assert mllib_model(found.x).numFeatures == 3000
        again = loss.start(model)
        np.testing.assert_array_equal(again.numpy(), result.x.numpy())
    copy = result.x * 1.0
    assert ps.fitted.get(copy) is None and ps.fitted.get(result.x) is not None


def test_a_broadcast_model_needs_no_servers(spark, problem, fitted):
    _, model, alone = fitted[1][0]
    frame = model.margins(problem.frame)
    again = pickle.loads(pickle.dumps(model))  # goes without its broadcast
    assert again.margins(problem.x).tobytes() == model.margins(problem.x).tobytes()
    PSContext.active().stop()
    np.testing.assert_allclose(values(frame), alone, rtol=1e-4, atol=1e-4)
