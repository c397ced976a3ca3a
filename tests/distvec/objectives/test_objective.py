"""The objective over rows in memory."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses import (
    Absolute,
    Cox,
    FactorizationMachine,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Objective,
    Poisson,
    Rows,
    Softmax,
    Squared,
    Tweedie,
    block_loss,
    row_loss,
)
from distvec.losses.rows import column_squares, column_sums, feature_stddev, standard_deviations
from optim import ElasticNet, SquaredL2Norm
from optim.objectives import check_gradient


def data(seed=0, count=60, columns=4, **more):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(count, columns))
    labels = matrix @ rng.normal(size=columns) + rng.normal(size=count)
    return Rows(matrix, labels, **more)


# --- what may be given ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: x.tolist(),
        np.asfortranarray,
        sp.csr_array,
        sp.csc_matrix,
        sp.coo_array,
        lambda x: sp.csr_array(x).astype(np.int64),
    ],
)
def test_features_of_any_kind_are_the_same_rows(make):
    matrix = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 5.0, 0.0]])
    objective = Objective((make(matrix), [1, 2, 3]), loss=Squared(), intercept=True)
    value, gradient = objective(np.array([1.0, -1.0, 0.5, 2.0]))
    residuals = matrix @ [1.0, -1.0, 0.5] + 2.0 - [1, 2, 3]
    assert value == pytest.approx(0.5 * np.mean(residuals**2), rel=1e-15)
    expected = np.append(matrix.T @ residuals, residuals.sum()) / 3
    np.testing.assert_allclose(gradient, expected, rtol=1e-15)


def test_large_rows_are_not_copied_and_their_owner_is_not_changed():
    matrix = sp.csr_array(([1.0, 2.0, 4.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    twice = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 3])))
    assert Objective((twice, [0.0, 0.0]), loss=Squared()).data.matrix.nnz == 2
    assert twice.data.tolist() == [1.0, 2.0, 4.0]
    assert np.shares_memory(
        Objective((matrix, [0.0, 0.0]), loss=Squared()).data.matrix.data, matrix.data
    )
    dense, labels = np.ones((2, 2), np.float32), np.zeros(2)
    rows = Objective((dense, labels), loss=Squared()).data
    assert rows.matrix is dense and rows.labels is labels


def test_labels_become_those_of_the_loss():
    for labels in ([0, 1, 1], [-1, 1, 1], [False, True, True]):
        objective = Objective((np.eye(3), labels), loss=Logistic())
        assert objective.data.labels.tolist() == [-1.0, 1.0, 1.0]
    named = Objective((np.eye(3), [7, 3, 7]), loss=Logistic(), positive_label=3)
    assert named.data.labels.tolist() == [-1.0, 1.0, -1.0]


def test_one_class_is_worth_a_warning():
    with pytest.warns(UserWarning, match="all 2 labels are 1") as caught:
        Objective((np.eye(2), [1, 1]), loss=Logistic())
    assert caught[0].filename == __file__


X = np.eye(2)


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (
            lambda: Objective(X, loss=Squared()),
            TypeError,
            r"given as ndarray; give a pair",
        ),
        (lambda: Objective((X, [1, 2]), loss="logistic"), TypeError, "loss is str; give a loss of"),
        (lambda: Objective((X, [1, 2]), loss=Logistic), TypeError, "is the class Logistic; call"),
        (lambda: Objective((X, [1, 2]), loss=Logistic()), ValueError, "label is 2; allowed are"),
        (lambda: Objective((X, [1, 2, 3]), loss=Squared()), ValueError, r"\(3,\), but there are 2"),
        (
            lambda: Objective((X, [1, np.nan]), loss=Squared()),
            ValueError,
            "row 1: labels must be",
        ),
        (lambda: Objective((X[0], [1, 2]), loss=Squared()), ValueError, r"the shape \(2,\); must"),
        (
            lambda: Objective((X * 1j, [1, 2]), loss=Squared()),
            TypeError,
            "complex128; must",
        ),
        (
            lambda: Objective((X / 0, [1, 2]), loss=Squared()),
            ValueError,
            "infinite or NaN",
        ),
        (
            lambda: Objective((sp.csr_array([[0, 1.0], [np.nan, 0]]), [1, 2]), loss=Squared()),
            ValueError,
            "features contain 1 infinite or NaN numbers, the first in row 1, column 0: nan",
        ),
        (lambda: Objective((X[:0], []), loss=Squared()), ValueError, "the data has no rows"),
        (lambda: Objective((X, [1, -2]), loss=Poisson()), ValueError, "row 1: the label is -2"),
        (lambda: Objective((X, [1, 0]), loss=Gamma()), ValueError, "row 1: the label is 0"),
        (
            lambda: Objective(Rows(X, [1, 2], [2, -1]), loss=Squared()),
            ValueError,
            "must be 0 or more",
        ),
        (
            lambda: Objective(Rows(X, [1, 2], [0, 0]), loss=Squared()),
            ValueError,
            "a positive and finite sum",
        ),
        (
            lambda: Objective(Rows(X, [1, 2], groups=[0, 1]), loss=Squared()),
            ValueError,
            "does not use",
        ),
        (
            lambda: Objective(Rows(X, [1, 2], events=[0, 1]), loss=Squared()),
            ValueError,
            "does not use",
        ),
        (
            lambda: Objective(Rows(X, [1, 2], events=[0, 2]), loss=Cox()),
            ValueError,
            "must be 0 or 1, got 2",
        ),
        (
            lambda: Objective((X, [1, 2]), loss=Squared(), positive_label=1),
            ValueError,
            "goes with losses of two classes",
        ),
        (
            lambda: Objective((X, [1, 2]), loss=Squared())(np.zeros(3)),
            ValueError,
            r"Squared\(\) n",
        ),
        (
            lambda: Objective((X, [1, 2]), loss=Squared())(["a", "b"]),
            TypeError,
            "must be real numbers",
        ),
        (lambda: Objective((X, [1, 2]), loss=Cox()).minibatches(1), ValueError, "full-batch"),
        (lambda: Objective((X, [1, 2]), loss=Squared()).minibatches(3), ValueError, "batch_size=3"),
        (
            lambda: Objective((X, [1, 2]), loss=Squared()).margins(np.zeros(2), np.eye(3)),
            ValueError,
            "features have 3 columns, the model has 2",
        ),
    ],
)
def test_refusals(make, kind, said):
    with np.errstate(all="ignore"), pytest.raises(kind, match=said):
        make()


# --- what it is -----------------------------------------------------------------------------------


SMOOTHED = Absolute(smoothing=0.5)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 1000),
    loss=st.sampled_from(
        [Squared(), Huber(), Poisson(), Gamma(), Tweedie(), Absolute(smoothing=0.5)]
    ),
    intercept=st.booleans(),
    standardization=st.booleans(),
    is_sparse=st.booleans(),
    weighted=st.booleans(),
)
def test_gradients_and_products_are_derivatives(
    seed, loss, intercept, standardization, is_sparse, weighted
):
    rng = np.random.default_rng(seed)
    rows = data(seed, offsets=rng.normal(size=60), weights=rng.random(60) if weighted else None)
    labels = rows.labels if loss.labels == "real" else np.abs(rows.labels)
    matrix = sp.csr_array(rows.matrix) if is_sparse else rows.matrix
    objective = Objective(
        Rows(matrix, labels, rows.weights, rows.offsets),
        loss=loss,
        penalty=ElasticNet(l1=0.0, l2=0.3),
        intercept=intercept,
        standardization=standardization,
    )
    x, v = rng.normal(size=(2, 4 + intercept))
    found = check_gradient(objective, x)
    assert found, found
    ends = [objective(x + step * v)[1] for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(objective.hessp(x, v), (ends[0] - ends[1]) / 2e-6, atol=1e-4)


def test_float32_features_and_parameters():
    rows = data()
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    exact = Objective(rows, loss=Huber())(x.astype(np.float64))
    half = Objective(Rows(rows.matrix.astype(np.float32), rows.labels), loss=Huber())
    for point in (x, x.astype(np.float64)):
        value, gradient = half(point)
        assert gradient.dtype == point.dtype and value.dtype == np.float64
        assert value == pytest.approx(exact[0], rel=1e-6)
        np.testing.assert_allclose(gradient, exact[1], rtol=1e-4, atol=1e-6)


def test_scores_are_margins():
    rows = data(offsets=np.ones(60))
    objective = Objective(rows, loss=Huber(), intercept=True)
    x = np.arange(5.0)
    np.testing.assert_allclose(objective.margins(x), rows.matrix @ x[:-1] + 4.0 + 1.0)
    np.testing.assert_allclose(objective.margins(x, [[1, 1, 0, 0]]), [0 + 1 + 4.0])


def test_it_says_what_it_is():
    objective = Objective(data(), loss=Huber(threshold=2.0), penalty=SquaredL2Norm(0.5))
    assert repr(objective) == (
        "<Objective: Huber(threshold=2.0), 60 rows of 4 features, "
        "penalty=SquaredL2Norm(weight=0.5), intercept=False>"
    )


def test_rows_are_put_in_the_order_of_the_loss():
    rng = np.random.default_rng(3)
    rows = data(events=rng.integers(0, 2, 60).astype(float))
    times = np.argsort(rows.labels)
    x = rng.normal(size=4)
    for lying in (rows, rows.take(times)):
        value = Objective(lying, loss=Cox())(x)[0]
        risks = np.exp(rows.matrix @ x)
        at_risk = rows.labels[None, :] >= rows.labels[:, None]
        expected = rows.events @ (np.log(at_risk @ risks) - rows.matrix @ x) / 60
        assert value == pytest.approx(expected, rel=1e-12)


# --- your own -------------------------------------------------------------------------------------


@row_loss
def cauchy(margins, labels):
    return np.log1p((margins - labels) ** 2)


@block_loss(parameters={"location": (), "scale": ()})
def gaussian(X, y, weights, params):
    residuals = y - X @ params["location"]
    log_scales = X @ params["scale"]
    scaled = residuals * np.exp(-log_scales)
    value = weights @ (log_scales + 0.5 * scaled**2)
    location = X.T @ (-weights * scaled * np.exp(-log_scales))
    return value, {"location": location, "scale": X.T @ (weights * (1.0 - scaled**2))}


def test_your_own_loss_of_two_arrays_is_minimised():
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(4000, 2))
    labels = matrix @ [2.0, -1.0] + 0.5 + np.exp(matrix @ [0.5, 0.0] - 1.0) * rng.normal(size=4000)
    result = Objective((matrix, labels), loss=gaussian, intercept=True).minimize()
    assert result.success
    np.testing.assert_allclose(result.x["location"], [2.0, -1.0, 0.5], atol=0.05)
    np.testing.assert_allclose(result.x["scale"], [0.5, 0.0, -1.0], atol=0.05)


def test_your_own_loss_by_newtons_method():
    result = Objective(data(), loss=cauchy).minimize(method="trust-ncg")
    assert result.success and np.abs(result.jac).max() < 1e-5


# --- minibatches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [1, 7, 60])
def test_the_mean_over_an_epoch_is_the_objective(fixed, shuffle, size):
    rng = np.random.default_rng(0)
    rows = data(weights=rng.integers(0, 3, 60).astype(float))
    whole = Objective(rows, loss=Huber(), penalty=SquaredL2Norm(0.1), intercept=True)
    sampled = whole.minibatches(size, shuffle=shuffle, fixed=fixed, seed=4)
    x = rng.normal(size=5)
    count = sampled.batches_per_epoch
    assert count == -(-60 // size)
    epochs = [[sampled.batch(k)(x) for k in range(e * count, (e + 1) * count)] for e in range(2)]
    for found in epochs:
        assert np.mean([one[0] for one in found]) == pytest.approx(whole(x)[0])
        np.testing.assert_allclose(np.mean([one[1] for one in found], axis=0), whole(x)[1])
    assert sampled(x)[0] == pytest.approx(whole(x)[0])
    first, second = [[float(value) for value, _ in found] for found in epochs]
    if size == 7:
        assert (sorted(first) == sorted(second)) == (fixed or not shuffle)
        assert (first == second) == (not shuffle)
    again = whole.minibatches(size, shuffle=shuffle, fixed=fixed, seed=4)
    assert [float(again.batch(k)(x)[0]) for k in range(count)] == first


@pytest.mark.parametrize(
    ("method", "fixed", "options"),
    [
        ("SGD", False, {"step_size": 0.05}),
        ("SVRG", False, {"step_size": 0.05}),
        ("SAG", True, {"step_size": 0.05}),
    ],
)
def test_stochastic_solvers_see_batches(method, fixed, options):
    whole = Objective(data(), loss=Huber(), penalty=SquaredL2Norm(0.1), intercept=True)
    best = whole.minimize(gradient_tolerance=1e-9).fun
    sampled = whole.minibatches(10, fixed=fixed)
    found = sampled.minimize(method=method, max_iterations=600, **options)
    assert float(whole(found.x)[0]) - best < (1e-3 if method == "SGD" else 1e-6)


def test_sag_asks_for_batches_that_stay():
    sampled = Objective(data(), loss=Huber()).minibatches(10, fixed=False)
    with pytest.raises(TypeError, match="change from epoch to epoch"):
        sampled.minimize(method="SAG", step_size=0.1)


# --- standard deviations --------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), weighted=st.booleans(), far=st.sampled_from([0.0, 1.0, 1e6]))
def test_deviations_are_those_of_repeated_rows(seed, weighted, far):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(30, 5)) * (rng.random((30, 5)) < 0.5)
    matrix[:, 3:] += far
    matrix[:, 4] = far
    counts = rng.integers(0, 4, 30) if weighted else np.ones(30, int)
    counts[:2] = 1
    repeated = np.repeat(matrix, counts, axis=0)
    expected = np.sqrt(repeated.var(axis=0) * repeated.shape[0] / _freedom(counts))
    expected[4] = 0.0
    for kind in (matrix, sp.csr_array(matrix)):
        rows = Rows(kind, np.zeros(30), counts.astype(float))
        np.testing.assert_allclose(standard_deviations(rows), expected, rtol=1e-9)
        parts = [rows[:10], rows[10:]]
        means = sum(map(column_sums, parts)) / counts.sum()
        first, second = map(sum, zip(*(column_squares(one, means) for one in parts), strict=True))
        total, squares = float(counts.sum()), float(counts @ counts)
        found = feature_stddev(first, second, total, squares)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def _freedom(counts):
    return counts.sum() - counts @ counts / counts.sum()


def test_deviations_of_one_row_are_0():
    assert standard_deviations(Rows(np.ones((1, 2)), np.zeros(1))).tolist() == [0.0, 0.0]


def test_its_sizes_are_those_of_the_objective_over_spark():
    objective = Objective(data(weights=np.full(60, 2.0)), loss=Huber(), intercept=True)
    sizes = objective.rows, objective.features, objective.dimension, objective.weight_sum
    assert sizes == (60, 4, 5, 120.0)


def test_an_intercept_is_not_penalised():
    rows = data()
    plain, penalised = (
        Objective(rows, loss=Huber(), penalty=penalty, intercept=True)
        for penalty in (None, SquaredL2Norm(2.0))
    )
    x = np.arange(1.0, 6.0)
    assert penalised(x)[0] - plain(x)[0] == pytest.approx(x[:-1] @ x[:-1])
    np.testing.assert_allclose(penalised(x)[1] - plain(x)[1], [2.0, 4.0, 6.0, 8.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("labels", [Logistic(), Softmax(2)], ids=str)
def test_means_of_features_cost_no_iterations(labels):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 5))
    y = (x @ rng.normal(size=5) + rng.normal(size=200) > 0).astype(float)
    words = {"loss": labels, "penalty": ElasticNet(0.01, 0.02), "standardization": True}
    near, far = (
        Objective((x + shift, y), intercept=True, **words).minimize(gradient_tolerance=1e-7)
        for shift in (0.0, 1000.0)
    )
    assert far.success and far.nit <= near.nit + 1
    assert far.fun == pytest.approx(near.fun, rel=1e-9)
    np.testing.assert_allclose(far.x[:-1], near.x[:-1], atol=1e-6)


@pytest.mark.parametrize("standardization", [False, True])
@pytest.mark.parametrize("penalty", [SquaredL2Norm(0.1), ElasticNet(0.05, 0.1)])
def test_a_run_that_broke_off_ends_with_the_same_bits(tmp_path, penalty, standardization):
    objective = Objective(
        data(), loss=Huber(), penalty=penalty, intercept=True, standardization=standardization
    )
    whole = objective.minimize()

    def stop(state):
        if state.iteration == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        objective.minimize(callback=stop, checkpoint=tmp_path, every=2, resume=True)
    resumed = objective.minimize(checkpoint=tmp_path, every=2, resume=True)
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert (resumed.fun, resumed.nit, resumed.nfev) == (whole.fun, whole.nit, whole.nfev)


@pytest.mark.parametrize(
    ("loss", "options", "hint"),
    [
        (Hinge(), {"max_iterations": 5}, r"Hinge\(smoothing=1e-3\)"),
        (Hinge(), {"max_evaluations": 5}, r"Hinge\(smoothing=1e-3\)"),
        (
            FactorizationMachine(factors=1, row=Hinge()),
            {"max_iterations": 3},
            r"FactorizationMachine\(.*instance Hinge\(smoothing=1e-3\)",
        ),
    ],
    ids=["iterations", "evaluations", "within another loss"],
)
def test_a_solver_that_goes_to_and_fro_over_a_kink_says_so(loss, options, hint):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = (x @ [1.0, -2.0, 0.5] + rng.normal(size=60) > 0).astype(float)
    objective = Objective((x, y), loss=loss)
    with pytest.warns(RuntimeWarning, match=hint):
        objective.minimize(**options)
    objective.minibatches(20).minimize(  # made for kinks: no warning
        method="SGD", step_size=0.01, max_iterations=5
    )
