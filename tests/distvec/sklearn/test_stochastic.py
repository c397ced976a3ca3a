"""Stochastic gradient descent: scikit-learn's coefficients, and the losses of distvec."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.linear_model as peer
from hypothesis import given
from hypothesis import strategies as st

import distvec as dv
import distvec.sklearn as ours
from distvec import losses
from distvec.sklearn import row_steps

pytestmark = pytest.mark.filterwarnings("ignore:Maximum number of iteration")

RANDOM = np.random.default_rng(0)
DENSE = RANDOM.normal(size=(150, 6))
SPARSE = sp.random_array((150, 30), density=0.1, format="csr", rng=RANDOM)
CLASSES = RANDOM.integers(0, 3, 150)
NUMBERS = DENSE @ RANDOM.normal(size=6) + RANDOM.normal(size=150)
WEIGHTS = RANDOM.random(150)

ROW_LOSSES: dict[int, Any] = {
    row_steps.HINGE: lambda threshold: losses.Hinge(),
    row_steps.SQUARED_HINGE: lambda threshold: losses.SquaredHinge(),
    row_steps.LOGISTIC: lambda threshold: losses.Logistic(),
    row_steps.MODIFIED_HUBER: lambda threshold: losses.ModifiedHuber(),
    row_steps.SQUARED: lambda threshold: losses.Squared(),
    row_steps.HUBER: lambda threshold: losses.Huber(threshold=threshold),
    row_steps.EPSILON_INSENSITIVE: lambda threshold: losses.EpsilonInsensitive(epsilon=threshold),
    row_steps.SQUARED_EPSILON_INSENSITIVE: lambda threshold: losses.SquaredEpsilonInsensitive(
        epsilon=threshold
    ),
}

settings = st.fixed_dictionaries(
    {
        "penalty": st.sampled_from(["l2", "l1", "elasticnet", None]),
        "learning_rate": st.sampled_from(["optimal", "constant", "invscaling", "adaptive"]),
        "alpha": st.sampled_from([1e-4, 1e-2, 1.0]),
        "average": st.sampled_from([False, True, 200]),
        "fit_intercept": st.booleans(),
        "shuffle": st.booleans(),
        "random_state": st.integers(0, 2**31 - 1),
    }
)


@given(
    loss=st.sampled_from(sorted(ROW_LOSSES)),
    threshold=st.floats(0.1, 2.0),
    label=st.sampled_from([-1.0, 1.0]),
    margin=st.floats(-800.0, 800.0),
)
def test_compiled_losses_are_those_of_distvec(
    loss: int, threshold: float, label: float, margin: float
) -> None:
    threshold = 1.0 if loss <= row_steps.MODIFIED_HUBER else threshold
    values, slopes = ROW_LOSSES[loss](threshold).row(np.array([margin]), np.array([label]))
    found = row_steps.value(loss, threshold, label, margin)
    np.testing.assert_allclose(found, values[0], rtol=1e-12, atol=1e-300)
    if loss != row_steps.HINGE or label * margin != 1.0:  # at the kink the steepest is taken
        found = row_steps.slope(loss, threshold, label, margin)
        np.testing.assert_allclose(found, slopes[0], rtol=1e-12, atol=1e-300)


def check(name: str, X: Any, y: Any, weights: Any = None, **parameters: Any) -> None:
    theirs = getattr(peer, name)(**parameters).fit(X, y, sample_weight=weights)
    mine = getattr(ours, name)(**parameters).fit(X, y, sample_weight=weights)
    assert mine.n_iter_ == theirs.n_iter_ and mine.t_ == theirs.t_
    scale = max(1.0, float(np.abs(theirs.coef_).max()))
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-7 * scale)
    np.testing.assert_allclose(mine.intercept_, theirs.intercept_, atol=1e-7 * scale)
    assert mine.coef_.shape == theirs.coef_.shape


@pytest.mark.parametrize("X", [DENSE, SPARSE], ids=["dense", "sparse"])
@given(parameters=settings, loss=st.sampled_from(["hinge", "perceptron", "log_loss", "huber"]))
def test_classifiers_have_the_coefficients_of_scikit_learn(
    X: Any, parameters: dict[str, Any], loss: str
) -> None:
    parameters |= {"loss": loss, "max_iter": 7, "class_weight": {0: 2.0}}
    check("SGDClassifier", X, CLASSES > 0, WEIGHTS, **parameters)
    check("SGDClassifier", X, CLASSES, **parameters)


@pytest.mark.parametrize("X", [DENSE, SPARSE], ids=["dense", "sparse"])
@given(parameters=settings, loss=st.sampled_from(sorted(ours.SGDRegressor.loss_functions)))
def test_regressors_have_the_coefficients_of_scikit_learn(
    X: Any, parameters: dict[str, Any], loss: str
) -> None:
    if loss.startswith("squared"):
        parameters["learning_rate"] = "invscaling"  # others diverge, and enlarge rounding
    check("SGDRegressor", X, NUMBERS, WEIGHTS, **parameters, loss=loss, max_iter=7)


@pytest.mark.parametrize("rate", ["pa1", "pa2"])
def test_passive_aggressive_steps(rate: str) -> None:
    more = {"learning_rate": rate, "penalty": None, "eta0": 0.5, "random_state": 1}
    check("SGDClassifier", SPARSE, CLASSES, loss="hinge", **more)
    check("SGDRegressor", DENSE, NUMBERS, loss="epsilon_insensitive", **more)


PARTS = [slice(start, start + 50) for start in range(0, 150, 50)]


def test_partial_fits_are_those_of_scikit_learn() -> None:
    mine, theirs = ours.SGDClassifier(random_state=1), peer.SGDClassifier(random_state=1)
    for part in PARTS:
        for model in (mine, theirs):
            model.partial_fit(DENSE[part], CLASSES[part], classes=[0, 1, 2])
        np.testing.assert_allclose(mine.coef_, theirs.coef_, rtol=1e-9)
    assert mine.t_ == theirs.t_ == 151
    again = pickle.loads(pickle.dumps(mine)).partial_fit(DENSE, CLASSES)
    np.testing.assert_array_equal(again.coef_, mine.partial_fit(DENSE, CLASSES).coef_)


@pytest.mark.parametrize(
    ("cls", "y"),
    [
        (ours.SGDClassifier, CLASSES),
        (ours.SGDClassifier, CLASSES > 0),
        (ours.SGDRegressor, NUMBERS),
    ],
)
@pytest.mark.parametrize("average", [False, True, 120])
def test_partial_fits_are_an_epoch(cls: Any, y: Any, average: int) -> None:
    whole = cls(shuffle=False, average=average).set_params(max_iter=1, tol=None).fit(DENSE, y)
    parts = cls(shuffle=False, average=average)
    more = {} if cls is ours.SGDRegressor else {"classes": np.unique(y)}
    for part in PARTS:
        parts.partial_fit(DENSE[part], y[part], **more)
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-9)
    np.testing.assert_allclose(parts.intercept_, whole.intercept_, rtol=1e-9)


def test_early_stopping_scores_the_coefficients() -> None:
    """One epoch less gives a model that scores better, by the rows left out."""
    model = ours.SGDRegressor(early_stopping=True, random_state=0, tol=1e-4).fit(DENSE, NUMBERS)
    assert 5 < model.n_iter_ < 1000 and model.score(DENSE, NUMBERS) > 0.5


@pytest.mark.parametrize("X", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "parameters",
    [
        {"loss": "log_loss", "average": True},
        {"penalty": "elasticnet", "alpha": 0.3, "early_stopping": True},
        {"alpha": 30.0, "average": 20},  # the scale becomes small, several times
    ],
    ids=["average", "l1", "fold"],
)
def test_servers_give_the_same_bits(
    X: Any, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distvec.sklearn.stochastic._BLOCK_ROWS", 40)
    parameters |= {"random_state": 2, "max_iter": 4}
    local = ours.SGDClassifier(**parameters).fit(X, CLASSES > 0)
    with dv.local(2, in_process=True) as ps:
        served = ours.SGDClassifier(**parameters, session=ps).fit(X, CLASSES > 0)
    assert served.session is ps
    np.testing.assert_allclose(served.coef_, local.coef_, rtol=1e-13)
    np.testing.assert_allclose(served.intercept_, local.intercept_, rtol=1e-13)


def test_an_epoch_on_servers_moves_the_columns_of_its_rows() -> None:
    """Two servers, one block of rows: a pull and a write for each, of two columns."""
    wide = sp.csr_array(([1.0, -1.0], ([0, 1], [3, 70_000])), shape=(2, 100_000))
    wide.indices, wide.indptr = wide.indices.astype("i4"), wide.indptr.astype("i4")
    cost = []
    with dv.local(2, in_process=True) as ps:
        for epochs in (1, 3):
            before = ps.counters.messages
            model = ours.SGDRegressor(session=ps, max_iter=epochs, tol=None).fit(wide, [1.0, 2.0])
            cost.append(ps.counters.messages - before)
    assert np.flatnonzero(model.coef_).tolist() == [3, 70_000]
    assert cost[1] - cost[0] == 2 * 2 * 2


def test_coefficients_that_overflow_raise() -> None:
    model = ours.SGDRegressor(learning_rate="constant", eta0=1e300, penalty=None, random_state=0)
    with pytest.raises(ValueError, match="under-/overflow occurred at epoch"):
        model.fit(1e6 * DENSE, NUMBERS)
