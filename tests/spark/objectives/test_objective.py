"""Every loss over rows in Spark: what it is on the same rows in one process, and the same bits in
jobs as by tasks that stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from pyspark.ml.linalg import Vectors

from distvec import losses
from distvec.losses.labels import rule
from distvec.losses.loss import as_given
from distvec.spark import Objective, block_loss, row_loss
from optim import SGD, ElasticNet, SquaredL2Norm

pytestmark = pytest.mark.spark

ROWS, SIZE = 50, 30


@row_loss
def fourth_power(margins, labels):
    return (margins - labels) ** 4 / 4, (margins - labels) ** 3


@row_loss
def log_cosh(margins, labels, scale=1.0):
    """Its derivative is found by the op table."""
    return np.log(np.cosh((margins - labels) / scale))


@block_loss(parameters={"a": (), "B": (2,)})
def two_of(X, y, weights, params):
    a, B = params["a"], params["B"]
    r = X @ a + (X @ B).sum(axis=1) - y
    r = r if weights is None else r * weights
    return 0.5 * float(r @ r), {"a": X.T @ r, "B": np.column_stack([X.T @ r] * 2)}


@pytest.fixture(scope="module")
def data(spark):
    """A frame with columns for all kinds of losses, and its rows as arrays."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, SIZE)) * (rng.random((ROWS, SIZE)) < 0.2)
    x[3] = 0.0
    columns = {
        "signs": rng.integers(0, 2, ROWS).astype(float),
        "classes": np.append(rng.integers(0, 3, ROWS - 1), 2).astype(float),
        "real": rng.normal(size=ROWS).round(2),
        "counts": rng.poisson(2.0, ROWS).astype(float),
        "positive": rng.random(ROWS) + 0.1,
        "time": rng.integers(1, 9, ROWS).astype(float),  # with ties
        "weight": rng.random(ROWS) * (rng.random(ROWS) < 0.9),
        "offset": rng.normal(size=ROWS),
        "event": rng.integers(0, 2, ROWS).astype(float),
        "group": rng.integers(0, 6, ROWS),
    }
    given = {**columns, "group": np.char.add("query ", columns["group"].astype(str))}
    values = zip(*(column.tolist() for column in given.values()), strict=True)
    rows = [
        (Vectors.sparse(SIZE, np.flatnonzero(row).tolist(), row[row != 0].tolist()), *along)
        for row, along in zip(x, values, strict=True)
    ]
    rdd = spark.sparkContext.parallelize(rows, 3)
    return spark.createDataFrame(rdd, ["features", *columns]).cache(), x, columns


def local_rows(loss, x, columns, label, *, weighted, offset):
    """The rows in one process, in the order that the loss wants."""
    order = np.argsort(columns.get(loss.order, x[:, 0]), kind="stable")
    return losses.Rows(
        sp.csr_array(x[order]),
        rule(loss.labels).encode(columns[label])[order],
        columns["weight"][order] if weighted else None,
        columns["offset"][order] if offset else None,
        columns["group"][order] if loss.order == "group" else None,
        columns["event"][order] if loss.takes_events else None,
    )


def bits(result):
    value, gradients = result
    arrays = gradients.values() if isinstance(gradients, dict) else [gradients]
    return float(value), [array.numpy().tobytes() for array in arrays]


def as_list(x):
    return list(x.values()) if isinstance(x, dict) else [x]


CASES = {
    "logistic": (losses.Logistic(), "signs", {"weight": "weight", "offset": "offset"}, True),
    "huber": (losses.Huber(), "real", {"weight": "weight"}, True),
    "poisson": (losses.Poisson(), "counts", {"offset": "offset"}, True),
    "gamma": (losses.Gamma(), "positive", {}, False),
    "softmax": (losses.Softmax(), "classes", {"weight": "weight"}, True),
    "factors": (losses.FactorizationMachine(2), "signs", {"weight": "weight"}, True),
    "ranking": (losses.PairwiseRanking(), "real", {"group": "group"}, False),
    "cox": (losses.Cox(), "time", {"event": "event", "weight": "weight"}, False),
    "weibull": (losses.Weibull(), "time", {"event": "event", "weight": "weight"}, True),
    "given": (fourth_power, "real", {"weight": "weight"}, True),
    "derived": (log_cosh(scale=2.0), "real", {}, True),
    "block": (two_of, "real", {"weight": "weight"}, False),
}


@pytest.mark.parametrize("name", CASES)
def test_any_loss_is_what_it_is_in_one_process_in_both_modes(ps, data, name):
    loss, label, along, intercept = CASES[name]
    frame, x, columns = data
    options = {"loss": loss, "label": label, "intercept": intercept, **along}
    with Objective(frame, penalty=SquaredL2Norm(0.25), ps=ps, **options) as objective:
        rows = local_rows(
            loss, x, columns, label, weighted="weight" in along, offset="offset" in along
        )
        assert set(objective.layouts.values()) <= {"by rows: a small matrix", "dense rows"}
        rng = np.random.default_rng(1)
        arrays = [rng.normal(size=one.shape) for one in as_list(objective.start())]
        given = as_given([ps.array(one) for one in arrays], objective.loss.parameters)

        value, gradient = objective(given)
        sums = objective.loss.sums(rows, tuple(arrays), intercept=intercept)
        flat = [
            one[: one.shape[0] - objective._has_intercept(p) if p.is_of_features else 0]
            for one, p in zip(arrays, objective.loss.parameters, strict=True)
        ]
        expected = sums.value / sums.weight + 0.125 * sum(float(np.vdot(a, a)) for a in flat)
        assert float(value) == pytest.approx(expected, rel=1e-12)
        for found, total, array, free in zip(
            as_list(gradient), sums.gradients, arrays, flat, strict=True
        ):
            wanted = total / sums.weight
            wanted[: len(free)] += 0.25 * array[: len(free)]
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10, atol=1e-12)

        resident = bits(objective(given))
        if objective.loss.has_products:
            products = as_list(objective.hessp(given, given))
            expected = objective.loss.products(
                rows, tuple(arrays), tuple(arrays), intercept=intercept
            )
            for found, total, array, free in zip(products, expected, arrays, flat, strict=True):
                wanted = total / sums.weight
                wanted[: len(free)] += 0.25 * array[: len(free)]
                np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-12)
            resident += tuple(one.numpy().tobytes() for one in products)
        objective._evaluator.standing_tasks.close()
        objective._evaluator = replace(objective._evaluator, standing_tasks=None)
        job = bits(objective(given))
        if objective.loss.has_products:
            job += tuple(one.numpy().tobytes() for one in as_list(objective.hessp(given, given)))
        assert job == resident


def test_the_mean_of_all_minibatches_is_the_objective(ps, data):
    frame, *_ = data
    options = {"label": "real", "weight": "weight", "intercept": True, "ps": ps}
    with Objective(frame, loss=losses.Huber(), penalty=SquaredL2Norm(0.1), **options) as objective:
        w = ps.array(np.random.default_rng(2).normal(size=SIZE + 1))
        batches = objective.minibatches(9, seed=3)
        assert batches.batches_per_epoch == 6
        parts = [batches.batch(k)(w) for k in range(6)]
        assert len({float(value) for value, _ in parts}) > 4
        value, gradient = objective(w)
        assert np.mean([float(one) for one, _ in parts]) == pytest.approx(float(value), rel=1e-12)
        mean = np.mean([one.numpy() for _, one in parts], axis=0)
        np.testing.assert_allclose(mean, gradient.numpy(), rtol=1e-11, atol=1e-14)
        solver = SGD(step_size=0.05, max_iterations=8)
        runs = [solver.minimize(objective.minibatches(9, seed=s), w).x.numpy() for s in (3, 4)]
        options = {"step_size": 0.05, "max_iterations": 8}
        again = objective.minibatches(9, seed=3).minimize(w, method="SGD", **options)
        runs.insert(0, again.x.numpy())
        assert runs[0].tobytes() == runs[1].tobytes() != runs[2].tobytes()
        drawn = objective.minibatches(9, seed=3, replace=True)
        assert {drawn.terms.at(k) for k in range(60)} == set(range(6))


@row_loss
def breaks(margins, labels):
    if labels.max() > 1.9:
        raise ArithmeticError("no such label")
    return margins, np.ones_like(margins)


@pytest.mark.parametrize("mode", ["job", "resident"])
def test_a_loss_that_raises_says_where_and_nothing_is_lost(ps, data, mode):
    frame, _, columns = data
    assert columns["real"].max() > 1.9
    with Objective(frame, loss=breaks, label="real", mode=mode, ps=ps) as objective:
        w = ps.ones(SIZE).persist()
        held = [server.buffers for server in ps.client.status()]
        place = r"the loss breaks failed in partition \d, row block 0, rows 0 to \d+: "
        with pytest.raises(losses.LossError, match=f"{place}ArithmeticError: no such label"):
            objective(w)
        assert [server.buffers for server in ps.client.status()] == held
        assert w.numpy().tolist() == [1.0] * SIZE
        jobs = objective.data.run_on_blocks(len)  # rows are still there
        assert len(jobs) == 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"loss": losses.PairwiseRanking()}, "ranks within groups; name their column: group="),
        ({"loss": losses.Huber(), "group": "group"}, "group='group': .* has no groups"),
        ({"loss": losses.Huber(), "event": "event"}, "event='event': .* has no times"),
        ({"loss": losses.Huber(), "positive_label": 1.0}, "positive_label=1.0 goes with losses of"),
        ({"loss": losses.Poisson()}, "row .*: the label is -.* of 0 and more"),
        ({"loss": losses.Softmax()}, "row .*: the label is .* numbers of classes"),
        ({"loss": losses.Cox(), "event": "counts"}, "the event is .; allowed are 1"),
    ],
)
def test_columns_and_labels_that_do_not_go_with_the_loss(ps, data, options, reason):
    with pytest.raises(ValueError, match=reason):
        Objective(data[0], label="real", ps=ps, **options)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("huber", r"loss is str; give a loss of distvec\.losses"),
        (losses.Huber, r"loss is the class Huber; call it: Huber\(\)"),
        (np.square, "loss is the function square; write @row_loss"),
    ],
)
def test_what_is_no_loss(ps, data, given, reason):
    with pytest.raises(TypeError, match=reason):
        Objective(data[0], loss=given, label="real", ps=ps)


def test_what_are_no_parameters(ps, data):
    with (
        pytest.raises(TypeError, match="the parameters must be a dict with"),
        Objective(data[0], loss=two_of, label="real", ps=ps) as objective,
    ):
        objective(ps.zeros(SIZE))


def test_minimize_of_a_dict_of_arrays(ps, data):
    penalty = {"w": ElasticNet(0.0, 0.1), "V": ElasticNet(0.0, 0.05)}
    options = {"label": "signs", "intercept": True, "penalty": penalty, "ps": ps}
    with Objective(data[0], loss=losses.FactorizationMachine(2), **options) as objective:
        result = objective.minimize(max_iterations=100)
        assert result.success, result.message
        assert set(result.x) == {"w", "V"}
        assert result.x["V"].shape == (SIZE, 2)


@pytest.mark.parametrize("mode", ["job", "resident"])
def test_a_step_to_where_a_loss_is_not_finite_is_shortened(spark, ps, mode):
    @row_loss
    def within(margins, labels):
        return (margins - labels) ** 2 - 1e-9 * np.log(2000.0 - np.abs(margins))  # NaN beyond

    rng = np.random.default_rng(1)
    x, y = 100.0 * rng.normal(size=(40, 2)), 100.0 * rng.normal(size=40)
    rows = [(float(label), Vectors.dense(row)) for label, row in zip(y, x, strict=True)]
    frame = spark.createDataFrame(rows, ["label", "features"]).repartition(2)
    far = ps.array([20.0, -20.0])
    for loss, start in ((log_cosh, None), (within, ps.zeros(2))):
        with Objective(frame, loss=loss, penalty=SquaredL2Norm(1e-2), mode=mode) as objective:
            alone = losses.Objective((x, y), loss=loss, penalty=SquaredL2Norm(1e-2)).minimize()
            result = objective.minimize(start)
            assert result.success and float(result.fun) == pytest.approx(alone.fun, rel=1e-9)
            if loss is within:
                with pytest.raises(losses.NotFinite, match=r"partition \d, .* values are NaN"):
                    objective.minimize(far)
            else:
                value, gradient = objective(far)
                assert float(value) == np.inf and np.isfinite(gradient.numpy()).all()
