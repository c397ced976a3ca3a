"""What all estimators share: scikit-learn's checks, parameters, clones, pickles, and servers."""

from __future__ import annotations

import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

import distvec as dv
import distvec.sklearn as ours

# Those that scikit-learn expects of its own classes, by the same names.
WEIGHTS_ARE_NO_REPETITIONS = {
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}
EXPECTED = {
    "Ridge": {"check_non_transformer_estimators_n_iter"},
    "KMeans": WEIGHTS_ARE_NO_REPETITIONS,
    "SGDClassifier": WEIGHTS_ARE_NO_REPETITIONS,
    "SGDRegressor": WEIGHTS_ARE_NO_REPETITIONS,
}
# As for the same check of scikit-learn's own classes: results must not depend on the path there.
TIGHT: dict[str, dict[str, Any]] = {
    "HuberRegressor": {"tol": 1e-9, "max_iter": 1000},
    "LinearSVC": {"tol": 1e-9, "dual": False},
}


@pytest.mark.parametrize("name", ours.__all__)
def test_checks_of_scikit_learn(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = getattr(ours, name)(**TIGHT.get(name, {}))
        records = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {r["check_name"]: str(r["exception"]) for r in records if r["status"] == "failed"}
    unexpected = {key: text for key, text in failed.items() if key not in EXPECTED.get(name, set())}
    assert not unexpected
    assert sum(record["status"] == "passed" for record in records) > 40


@pytest.mark.parametrize("name", ours.__all__)
def test_signatures_are_those_of_scikit_learn_and_a_session(name: str) -> None:
    cls = getattr(ours, name)
    parent = next(base for base in cls.__mro__ if base.__module__.startswith("sklearn"))
    has_session = cls not in (ours.KMeans, ours.LatentDirichletAllocation)
    session = {"session": None} if has_session else {}
    assert cls().get_params() == {**parent().get_params(), **session}
    for method, theirs in inspect.getmembers(parent, inspect.isfunction):
        if method.startswith("_") or method == "set_callbacks":
            continue
        pairs = [inspect.signature(one).parameters for one in (getattr(cls, method), theirs)]
        mine, known = ({key: (p.kind, p.default) for key, p in one.items()} for one in pairs)
        assert mine == known, method


@pytest.mark.parametrize(
    ("estimator", "text"),
    [
        (ours.LinearSVC(multi_class="crammer_singer"), "only 'ovr'"),
        (ours.LinearSVC(penalty="l1", loss="hinge"), "penalty='l2'"),
        (ours.QuantileRegressor(solver="interior-point"), "use 'highs-ipm'"),
        (ours.ElasticNet(), "scale the features"),
    ],
    ids=repr,
)
def test_unsupported_values_say_what_to_use(estimator: Any, text: str) -> None:
    huge = 1e308 if isinstance(estimator, ours.ElasticNet) else 1.0
    with pytest.raises(ValueError, match=text):
        estimator.fit(huge * (X > 0.0), MARGINS > 0)


def test_classes_that_derive_from_ours_have_their_own_parameters() -> None:
    class Same(ours.Lasso):
        pass

    class Other(ours.Ridge):
        def __init__(self, strength: float = 2.0, session: Any = None) -> None:
            super().__init__(alpha=strength, session=session)
            self.strength = strength

    assert Same(alpha=0.5).get_params() == ours.Lasso(alpha=0.5).get_params()
    assert Other(3.0).get_params() == {"strength": 3.0, "session": None}
    expected = ours.Ridge(alpha=3.0).fit(X, MARGINS).coef_
    np.testing.assert_array_equal(clone(Other(3.0)).fit(X, MARGINS).coef_, expected)


DATA = np.random.default_rng(3)
X = DATA.normal(size=(60, 4))
MARGINS = X @ [2.0, -1.0, 0.0, 0.5] + DATA.normal(size=60)


@pytest.mark.parametrize(
    "estimator",
    [
        ours.LogisticRegression(tol=1e-9),
        ours.LogisticRegression(tol=1e-9, l1_ratio=0.5, C=0.3),
        ours.LogisticRegression(tol=1e-9, solver="newton-cg"),
        ours.LinearSVC(tol=1e-9),
        ours.LinearSVC(tol=1e-9, loss="hinge", C=0.1),
        ours.LinearRegression(tol=1e-9),
        ours.Ridge(tol=1e-9),
        ours.Ridge(tol=1e-9, positive=True),
        ours.Lasso(tol=1e-9, alpha=0.1),
        ours.ElasticNet(tol=1e-9, alpha=0.1, positive=True),
        ours.HuberRegressor(tol=1e-9),
        ours.PoissonRegressor(tol=1e-9, solver="newton-cholesky"),
    ],
    ids=repr,
)
def test_servers_give_the_same_model(estimator: Any) -> None:
    y = MARGINS > 0 if hasattr(estimator, "decision_function") else np.abs(MARGINS)
    local = clone(estimator).fit(X, y)
    with dv.local(2, in_process=True) as ps:
        served = clone(estimator).set_params(session=ps)
        assert clone(served).session is ps
        served.fit(X, y)
        assert pickle.loads(pickle.dumps(served)).session is None
    np.testing.assert_allclose(served.coef_, local.coef_, atol=2e-7)
    np.testing.assert_allclose(served.intercept_, local.intercept_, atol=2e-7)


def test_a_search_over_parameters() -> None:
    search = GridSearchCV(ours.LogisticRegression(), {"C": [1e-4, 1.0]}, cv=2).fit(X, MARGINS > 0)
    assert search.best_params_ == {"C": 1.0}


def test_names_of_features_and_pickles() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = ours.Lasso(alpha=0.1).fit(frame, MARGINS)
    assert model.feature_names_in_.tolist() == list("abcd")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))


@pytest.mark.parametrize(
    "cls", [ours.LogisticRegression, ours.Lasso, ours.HuberRegressor, ours.GammaRegressor]
)
def test_a_warm_start_at_the_minimum_takes_no_iteration(cls: type) -> None:
    y = MARGINS > 0 if cls is ours.LogisticRegression else np.exp(MARGINS)
    warm = cls(tol=1e-6, warm_start=True, max_iter=1000).fit(X, y)
    assert np.max(warm.n_iter_) >= 1
    coefficients = warm.coef_.copy()
    assert np.max(warm.fit(X, y).n_iter_) == 0
    np.testing.assert_allclose(warm.coef_, coefficients, atol=1e-5)


def test_a_limit_of_iterations_warns() -> None:
    with pytest.warns(ConvergenceWarning, match="Increase max_iter"):
        ours.LogisticRegression(max_iter=1, tol=1e-9).fit(X, MARGINS > 0)
    with pytest.warns(ConvergenceWarning, match="Increase max_iter"):
        ours.Lasso(max_iter=1, alpha=0.01, tol=1e-9).fit(X, MARGINS)


@pytest.mark.parametrize(
    ("parameters", "categories"),
    [
        ({"penalty": "l2"}, {FutureWarning}),
        ({"penalty": "l1"}, {FutureWarning, UserWarning}),
        ({"penalty": None, "C": 4.0}, {FutureWarning, UserWarning}),
        ({"l1_ratio": None}, {FutureWarning}),
        ({"n_jobs": 1}, {FutureWarning}),
    ],
    ids=str,
)
def test_deprecated_and_contradictory_parameters_warn(
    parameters: dict[str, Any], categories: set[type[Warning]]
) -> None:
    with pytest.warns(Warning) as caught:  # noqa: PT030
        ours.LogisticRegression(**parameters).fit(X, MARGINS > 0)
    assert {one.category for one in caught} == categories
    assert all(one.filename == __file__ for one in caught)


def test_an_elastic_net_needs_its_ratio_and_there_are_no_callbacks() -> None:
    model = ours.LogisticRegression(penalty="elasticnet", l1_ratio=None)
    with (
        pytest.warns(FutureWarning, match="deprecated"),
        pytest.raises(ValueError, match="needs l1_ratio"),
    ):
        model.fit(X, MARGINS > 0)
    with pytest.raises(AttributeError, match="verbose=1"):
        model.set_callbacks(object())


def test_float32_and_int64_indices() -> None:
    single = ours.LogisticRegression(tol=1e-6).fit(X.astype(np.float32), MARGINS > 0)
    assert single.coef_.dtype == np.float32
    matrix = sp.csr_array(X)
    matrix.indices, matrix.indptr = matrix.indices.astype("i8"), matrix.indptr.astype("i8")
    wide = ours.LogisticRegression(tol=1e-6).fit(matrix, MARGINS > 0)
    np.testing.assert_allclose(wide.coef_, single.coef_, atol=1e-4)
