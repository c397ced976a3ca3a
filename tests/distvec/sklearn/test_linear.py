"""Linear models beside scikit-learn's own classes, at tight tolerances."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.preprocessing import scale

import distvec.sklearn as ours
from distvec.sklearn.generalized import _tweedie

Floats = npt.NDArray[Any]
RNG = np.random.default_rng(0)


def fitted_both(
    name: str, X: Any, y: Any, weights: Any, theirs: dict[str, Any], **parameters: Any
) -> tuple[Any, Any]:
    """Ours and scikit-learn's model; ``theirs`` are parameters of the latter alone."""
    parent = next(
        cls for cls in getattr(ours, name).__mro__ if cls.__module__.startswith("sklearn")
    )
    settings = {**parameters, **theirs}
    if "random_state" in parent().get_params():  # it ends elsewhere from other states
        settings |= {"random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(ours, name)(**parameters).fit(X, y, sample_weight=weights)
        peer = parent(**settings).fit(X, y, sample_weight=weights)
    return model, peer


def assert_same(model: Any, peer: Any, rtol: float = 1e-6) -> None:
    for name in ("coef_", "intercept_"):
        mine, their = np.asarray(getattr(model, name)), np.asarray(getattr(peer, name))
        assert mine.shape == their.shape
        assert mine.dtype == their.dtype
        np.testing.assert_allclose(mine, their, rtol=0, atol=rtol * max(1.0, np.abs(their).max()))


DIABETES, TARGETS = load_diabetes(return_X_y=True)
DIABETES = 10.0 * DIABETES
WEIGHTS = RNG.random(len(TARGETS))
HOLES = np.where(RNG.random(DIABETES.shape) < 0.5, DIABETES, 0.0)
REGRESSIONS = {
    "dense": (DIABETES, None),
    "dense, weights": (DIABETES, WEIGHTS),
    "sparse, weights": (sp.csr_array(HOLES), WEIGHTS),
}


@pytest.mark.parametrize("data", REGRESSIONS)
@pytest.mark.parametrize("parameters", [{}, {"positive": True}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("alpha", [0.01, 1.0])
@pytest.mark.parametrize("name", ["Ridge", "Lasso", "ElasticNet"])
def test_penalized_least_squares(
    name: str, alpha: float, parameters: dict[str, Any], data: str
) -> None:
    X, weights = REGRESSIONS[data]
    theirs = {} if name == "Ridge" else {"max_iter": 100_000}
    tight = {"alpha": alpha, "tol": 1e-12, **parameters}
    assert_same(*fitted_both(name, X, TARGETS, weights, theirs, **tight))


@pytest.mark.parametrize("data", REGRESSIONS)
def test_least_squares(data: str) -> None:
    X, weights = REGRESSIONS[data]
    assert_same(*fitted_both("LinearRegression", X, TARGETS, weights, {}, tol=1e-12))


def test_least_squares_of_a_singular_matrix_has_the_least_norm() -> None:
    X = np.column_stack([DIABETES, DIABETES[:, 0]])
    model, peer = fitted_both("LinearRegression", X, TARGETS, None, {})
    assert_same(model, peer)
    assert model.rank_ == peer.rank_ == 10
    np.testing.assert_allclose(model.singular_[:10], peer.singular_[:10])


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", ["LinearRegression", "Ridge", "Lasso", "ElasticNet"])
def test_several_targets(name: str, count: int) -> None:
    y = np.column_stack([TARGETS, TARGETS**2 / 100.0])[:, :count]
    tight = {} if name == "LinearRegression" else {"tol": 1e-12}
    model, peer = fitted_both(name, DIABETES, y, None, {}, **tight)
    assert_same(model, peer)
    np.testing.assert_allclose(model.predict(DIABETES[:3]), peer.predict(DIABETES[:3]), rtol=1e-6)


@settings(max_examples=25)
@given(
    st.integers(2, 12),
    st.integers(1, 20),
    st.sampled_from([0.003, 0.03, 0.3]),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_elastic_nets_are_at_their_minimum(
    rows: int, columns: int, alpha: float, l1_ratio: float, positive: bool, seed: int
) -> None:
    """Also with more columns than rows, columns that are alike, and a column that is constant."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)) + rng.normal(size=(rows, 1))
    X[:, columns // 2] = X[:, 0]
    X[:, -1] = 2.0
    y = X[:, 0] + rng.normal(size=rows)
    model = ours.ElasticNet(
        alpha=alpha, l1_ratio=l1_ratio, positive=positive, tol=1e-9, max_iter=2000
    ).fit(X, y)
    far, goal = X - X.mean(axis=0), y - y.mean()
    slopes = far.T @ (goal - far @ model.coef_) / rows - alpha * (1.0 - l1_ratio) * model.coef_
    allowed = 1e-7 * max(1.0, np.abs(far.T @ goal / rows).max())
    inside = model.coef_ != 0.0
    signs = np.sign(model.coef_[inside])
    np.testing.assert_allclose(slopes[inside], alpha * l1_ratio * signs, atol=allowed)
    outside = slopes[~inside] if positive else np.abs(slopes[~inside])
    assert (outside <= alpha * l1_ratio + allowed).all()
    assert not positive or (model.coef_ >= 0.0).all()
    assert abs(model.dual_gap_) < 1e-6 * max(1.0, goal @ goal)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_l2_alone_with_more_columns_than_rows_is_exact(container: Any) -> None:
    X, y = container(DIABETES[:6]), TARGETS[:6]
    net = ours.ElasticNet(l1_ratio=0.0, alpha=0.1).fit(X, y)
    theirs = Ridge(alpha=0.6).fit(DIABETES[:6], y)
    np.testing.assert_allclose(net.coef_, theirs.coef_, rtol=1e-9)


def test_a_ridge_of_signs_is_exact_at_loose_tolerance() -> None:
    loose, tight = (ours.Ridge(positive=True, tol=tol).fit(DIABETES, TARGETS) for tol in (0.1, 0.0))
    np.testing.assert_allclose(loose.coef_, tight.coef_, rtol=1e-9)


def test_a_ridge_without_penalty_of_singular_sparse_features_has_the_least_norm() -> None:
    X, y = DIABETES[:6], TARGETS[:6]
    model = ours.Ridge(alpha=0.0, fit_intercept=False).set_params(solver="cholesky")
    model.fit(sp.csr_array(X), y)
    np.testing.assert_allclose(model.coef_, np.linalg.lstsq(X, y)[0], rtol=1e-6)


CANCER, IS_BENIGN = load_breast_cancer(return_X_y=True)
CANCER = scale(CANCER)
IRIS, SPECIES = load_iris(return_X_y=True)
IRIS = scale(IRIS)
CLASSES = {
    "two": (CANCER, IS_BENIGN, None),
    "two, weights": (CANCER, IS_BENIGN, RNG.random(len(CANCER))),
    "three, sparse": (sp.csr_array(IRIS), SPECIES, RNG.random(len(IRIS))),
    "three, names": (IRIS, np.array(["x", "y", "z"])[SPECIES], None),
}


@pytest.mark.parametrize("data", CLASSES)
@pytest.mark.parametrize(
    ("parameters", "theirs"),
    [
        ({"C": 0.1}, {}),
        ({"C": 0.1, "solver": "newton-cg"}, {}),
        ({"C": 0.5, "class_weight": "balanced", "fit_intercept": False}, {}),
        ({"C": 0.05, "l1_ratio": 0.5}, {"solver": "saga", "tol": 1e-12}),
    ],
    ids=str,
)
def test_logistic_regression(data: str, parameters: dict[str, Any], theirs: dict[str, Any]) -> None:
    X, y, weights = CLASSES[data]
    tight = {"tol": 1e-9, "max_iter": 10_000}
    # Theirs stops where 64 units of rounding are gained.
    model, peer = fitted_both("LogisticRegression", X, y, weights, theirs, **tight, **parameters)
    assert_same(model, peer)
    np.testing.assert_array_equal(model.predict(X), peer.predict(X))
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-6)


def test_logistic_regression_by_the_names_of_liblinear() -> None:
    X, y, weights = CLASSES["two, weights"]
    for parameters in ({}, {"C": 0.1, "l1_ratio": 1.0, "intercept_scaling": 3.0}):
        tight = {"tol": 1e-10, "max_iter": 5000, "solver": "liblinear", **parameters}
        assert_same(*fitted_both("LogisticRegression", X, y, weights, {"tol": 1e-12}, **tight))
    with pytest.raises(ValueError, match="two classes only"):
        ours.LogisticRegression(solver="liblinear").fit(IRIS, SPECIES)


@pytest.mark.parametrize("data", CLASSES)
@pytest.mark.parametrize(
    ("parameters", "theirs"),
    [
        ({"C": 0.1, "class_weight": "balanced", "intercept_scaling": 2.0}, {"dual": False}),
        ({"C": 0.01, "loss": "hinge"}, {}),
    ],
    ids=str,
)
def test_linear_svc(data: str, parameters: dict[str, Any], theirs: dict[str, Any]) -> None:
    X, y, weights = CLASSES[data]
    theirs = {"tol": 1e-12, "max_iter": 100_000, **theirs}
    tight = {"tol": 1e-10, "max_iter": 5000}
    assert_same(*fitted_both("LinearSVC", X, y, weights, theirs, **tight, **parameters))


def test_linear_svc_with_an_l1_norm_is_at_least_as_good() -> None:
    X, y, weights = CLASSES["two, weights"]
    parameters = {"C": 0.1, "penalty": "l1", "dual": False, "tol": 1e-9, "max_iter": 5000}
    models = fitted_both("LinearSVC", X, y, weights, {}, **parameters)

    def value(model: Any) -> float:
        short = np.maximum(0.0, 1.0 - (2 * y - 1) * model.decision_function(X))
        norm = np.abs(model.coef_).sum() + np.abs(model.intercept_).sum()
        return float(0.1 * weights @ short**2 + norm)

    mine, theirs = map(value, models)
    assert mine <= theirs * (1.0 + 1e-9)


@pytest.mark.parametrize("data", REGRESSIONS)
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("PoissonRegressor", {}),
        ("PoissonRegressor", {"solver": "newton-cholesky"}),
        ("GammaRegressor", {}),
        ("TweedieRegressor", {}),
        ("TweedieRegressor", {"power": 1.5}),
        ("TweedieRegressor", {"power": 3}),
        ("TweedieRegressor", {"power": 0, "link": "log"}),
        ("TweedieRegressor", {"power": 1, "link": "identity", "alpha": 0.1}),
        ("QuantileRegressor", {"quantile": 0.9, "alpha": 0.1}),
        ("QuantileRegressor", {"quantile": 0.9, "alpha": 0.0}),
    ],
    ids=str,
)
def test_generalized_regressions(name: str, parameters: dict[str, Any], data: str) -> None:
    X, weights = REGRESSIONS[data]
    tight = {} if name == "QuantileRegressor" else {"tol": 1e-10, "max_iter": 1000}
    model, peer = fitted_both(name, X, TARGETS, weights, {}, **tight, **parameters)
    assert_same(model, peer)
    assert model.score(X, TARGETS) == pytest.approx(peer.score(X, TARGETS), abs=1e-6)


@pytest.mark.parametrize("power", [1.0, 2.0, 1.5, 3.0, 0.0, -1.0])
@pytest.mark.parametrize("link", ["log", "identity"])
def test_deviances_have_the_derivatives_that_they_say(power: float, link: str) -> None:
    loss = _tweedie(power, is_log=link == "log")
    margins, labels, step = np.array([0.3, 1.0, 2.5]), np.array([0.5, 1.0, 4.0]), 1e-6
    (high, up), (low, down) = loss.row(margins + step, labels), loss.row(margins - step, labels)
    np.testing.assert_allclose((high - low) / (2 * step), loss.row(margins, labels)[1], atol=1e-7)
    np.testing.assert_allclose((up - down) / (2 * step), loss.curvature(margins, labels), atol=1e-7)


@pytest.mark.parametrize("data", REGRESSIONS)
def test_huber_is_at_least_as_good(data: str) -> None:
    X, weights = REGRESSIONS[data]
    model, peer = fitted_both(
        "HuberRegressor", X, TARGETS, weights, {}, alpha=0.1, tol=1e-8, max_iter=2000
    )
    assert_same(model, peer, 1e-3)  # theirs stops where the value hardly changes

    def value(fitted: Any) -> float:
        sizes, scale = np.abs(TARGETS - fitted.predict(X)), fitted.scale_
        near = np.minimum(sizes, 1.35 * scale)
        each = scale + near * (2.0 * sizes - near) / scale
        return float(np.average(each, weights=weights) * _total(weights)) + 0.1 * float(
            fitted.coef_ @ fitted.coef_
        )

    assert value(model) <= value(peer) * (1.0 + 1e-12)
    np.testing.assert_array_equal(model.outliers_, peer.outliers_)


def test_huber_of_residuals_that_vanish() -> None:
    """With fewer rows than columns the scale is 0; weights are still repetitions."""
    X, y, weights = DIABETES[:5], TARGETS[:5], np.array([1.0, 3.0, 1.0, 2.0, 1.0])
    models = []
    for rows, each in (
        (np.arange(5), weights),
        (np.repeat(np.arange(5), weights.astype(int)), None),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            models.append(ours.HuberRegressor().fit(X[rows], y[rows], sample_weight=each))
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-4)


def _total(weights: Floats | None) -> float:
    return float(len(TARGETS) if weights is None else weights.sum())


@pytest.mark.parametrize("data", REGRESSIONS)
def test_k_means_from_the_same_centers(data: str) -> None:
    X, weights = REGRESSIONS[data]
    start = DIABETES[:5]
    model, peer = (
        cls(5, init=start, n_init=1).fit(X, sample_weight=weights) for cls in (ours.KMeans, KMeans)
    )
    np.testing.assert_allclose(model.cluster_centers_, peer.cluster_centers_, atol=1e-10)
    np.testing.assert_array_equal(model.labels_, peer.labels_)
    np.testing.assert_array_equal(model.predict(X), peer.labels_)
    assert (model.n_iter_, model.inertia_) == (peer.n_iter_, pytest.approx(peer.inertia_))


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31 - 1), empty=st.integers(0, 20), init=st.booleans())
def test_k_means_of_columns_without_elements(seed: int, empty: int, init: bool) -> None:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((40, 4)) < 0.6, rng.normal(size=(40, 4)), 0.0)
    wide = np.hstack([np.zeros((40, empty)), X])
    start = np.hstack([rng.normal(size=(3, empty)), X[:3]]) if init else "k-means++"
    model, peer = (
        cls(3, init=start, n_init=1, random_state=seed).fit(sp.csr_array(wide))
        for cls in (ours.KMeans, KMeans)
    )
    np.testing.assert_allclose(model.cluster_centers_, peer.cluster_centers_, atol=1e-10)
    np.testing.assert_array_equal(model.predict(sp.csr_array(wide)), peer.labels_)
    assert (model.n_iter_, model.inertia_) == (peer.n_iter_, pytest.approx(peer.inertia_))


def test_k_means_prints_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    model = ours.KMeans(2, n_init=1, random_state=0, verbose=1).fit(DIABETES)
    text = capsys.readouterr().out
    assert text.count("Iteration ") == model.n_iter_
    assert "Initialization complete" in text and "Ended: " in text
    assert model.get_feature_names_out().tolist() == ["kmeans0", "kmeans1"]


def test_k_means_gives_rows_to_empty_clusters_and_warns_of_repeated_rows() -> None:
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    model = ours.KMeans(3, init=np.array([[0.5], [10.5], [99.0]]), n_init=1).fit(X)
    assert len(np.unique(model.labels_)) == 3
    for kind in (np.float32, np.float64):
        repeated = np.array([[0.1], [0.7], [0.7], [0.3]], kind)
        with pytest.warns(ConvergenceWarning, match="distinct clusters"):
            model = ours.KMeans(4, init=repeated).fit(repeated)
        assert model.n_iter_ == 1


@pytest.mark.parametrize("name", ["LogisticRegression", "LinearSVC", "PoissonRegressor"])
def test_more_columns_than_rows(name: str) -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(30, 50))
    y = (X[:, 0] > 0).astype(float) + (rng.random(30) < 0.2)
    y = np.minimum(y, 1.0) if name == "LinearSVC" else y
    tight = {"tol": 1e-10, "max_iter": 5000}
    theirs = {"tol": 1e-13, "dual": False} if name == "LinearSVC" else {}
    assert_same(*fitted_both(name, X, y, rng.random(30), theirs, **tight))


@pytest.mark.parametrize(
    "model",
    [
        ours.LogisticRegression(tol=1e-6, warm_start=True),
        ours.LogisticRegression(tol=1e-6, C=np.inf, max_iter=3, warm_start=True),
        ours.LogisticRegression(tol=1e-6, l1_ratio=0.5, fit_intercept=False),
        ours.LinearSVC(penalty="l1"),
        ours.PoissonRegressor(warm_start=True),
        ours.Ridge(),
        ours.Ridge(solver="sparse_cg"),
        ours.LinearRegression(),
        ours.Lasso(alpha=0.05, warm_start=True),
        ours.ElasticNet(alpha=0.05, positive=True),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1), empty=st.integers(5, 40), classes=st.sampled_from([2, 3]))
def test_many_columns_without_elements_change_no_bit(
    model: Any, seed: int, empty: int, classes: int
) -> None:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((30, 4)) < 0.6, rng.normal(size=(30, 4)), 0.0)
    X[0] = 1.0
    wide = np.zeros((30, 4 + empty))
    places = np.sort(rng.choice(4 + empty, 4, replace=False))
    wide[:, places] = X
    y = rng.integers(0, classes, 30).astype(float)
    y[:classes] = range(classes)
    one, other = clone(model), clone(model)
    for _ in range(2):  # the second starts from the first
        one.fit(sp.csr_array(X), y)
        other.fit(sp.csr_array(wide), y)
        np.testing.assert_array_equal(other.coef_[..., places], one.coef_)
        np.testing.assert_array_equal(other.intercept_, one.intercept_)
        assert np.count_nonzero(other.coef_) == np.count_nonzero(one.coef_)
        assert other.coef_.shape[-1] == 4 + empty


def test_without_a_penalty_the_coefficients_of_empty_columns_stay() -> None:
    X = sp.csr_array(([1.0, 2.0, -1.0], [5, 5, 5], [0, 1, 2, 3]), shape=(3, 9))
    model = ours.LogisticRegression(C=np.inf, warm_start=True, max_iter=2, fit_intercept=False)
    model.classes_, model.coef_ = np.array([0, 1]), np.arange(9.0)[None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, [0, 1, 1])
    assert np.delete(model.coef_[0], 5).tolist() == np.delete(np.arange(9.0), 5).tolist()
    model.set_params(C=1.0).fit(X, [0, 1, 1])
    assert not np.delete(model.coef_[0], 5).any() and model.coef_[0, 5] != 0.0
