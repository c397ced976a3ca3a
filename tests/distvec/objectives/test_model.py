"""Models: what they say of rows, beside NumPy's formula; what is saved is what is loaded."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import distvec as dv
from distvec import losses
from distvec.losses import Logistic, Model, Objective, Parameter, Softmax, block_loss, row_loss
from distvec.losses.loss import as_given, shape_of
from optim import SquaredL2Norm

SHELF = [
    Logistic(),
    Softmax(3),
    losses.Hinge(smoothing=0.5),
    losses.SquaredHinge(),
    losses.ModifiedHuber(),
    losses.Squared(),
    losses.Huber(threshold=0.7),
    losses.Quantile(quantile=0.9),
    losses.Absolute(smoothing=0.1),
    losses.EpsilonInsensitive(),
    losses.SquaredEpsilonInsensitive(epsilon=0.3),
    losses.Quantile(quantile=np.float64(0.25), smoothing=np.float32(0.5)),
    losses.Poisson(),
    losses.Gamma(),
    losses.Tweedie(power=1.2),
    losses.Cox(),
    losses.Weibull(),
    losses.PairwiseRanking(row=losses.SquaredHinge()),
    losses.FactorizationMachine(2, row=losses.Hinge(smoothing=0.25)),
]


@row_loss
def cauchy(margins, labels, scale=1.0):
    return np.log1p(((margins - labels) / scale) ** 2)


@block_loss(parameters={"location": (), "scale": ()})
def gaussian(X, y, weights, params):
    raise AssertionError("a model does not evaluate its loss")


def random_model(rng, loss, *, features=7, coordinates=None, dtype="float64", array=np.asarray):
    intercept = loss.takes_intercept
    count = features if coordinates is None else len(coordinates)
    x = [
        array(rng.normal(size=shape_of(one, count, intercept=intercept)).astype(dtype))
        for one in loss.parameters
    ]
    if coordinates is not None:
        coordinates = array(np.array(coordinates, np.int64))
    return Model(
        as_given(x, loss.parameters),
        loss=loss,
        intercept=intercept,
        num_features=features,
        coordinates=coordinates,
    )


@settings(max_examples=40, deadline=None)
@given(
    loss=st.sampled_from([*SHELF, cauchy, cauchy(scale=0.5), gaussian]),
    dtype=st.sampled_from(["float64", "float32"]),
    coordinates=st.none() | st.sets(st.integers(0, 6), min_size=1).map(sorted),
    seed=st.integers(0, 9),
)
def test_what_is_saved_is_what_is_loaded(tmp_path_factory, loss, dtype, coordinates, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, loss, coordinates=coordinates, dtype=dtype)
    path = tmp_path_factory.mktemp("models") / rng.choice(["model", "model.safetensors"])
    model.save(path)
    own = loss if loss is gaussian or isinstance(loss, type(cauchy)) else None
    again = Model.load(path, loss=own)
    assert again.loss == loss and again.classes == model.classes and again.num_features == 7
    X = rng.normal(size=(5, 7))
    found = again.margins(X)
    assert found.tobytes() == model.margins(X).tobytes()
    assert found.tobytes() == model.margins(sp.csr_array(X)).tobytes() or np.allclose(
        found, model.margins(sp.csr_array(X)), rtol=1e-12
    )
    np.testing.assert_allclose(model.whole().margins(X), found, rtol=1e-5, atol=1e-6)
    if len(loss.parameters) == 1:
        margins = X @ model.coefficients + model.intercept
        np.testing.assert_allclose(found, margins, rtol=1e-5, atol=1e-6)
        assert model.coefficients.dtype == dtype and len(model.coefficients) == 7
    else:
        assert set(model.coefficients) == {one.name for one in loss.parameters}
        lengths = {len(model.coefficients[one.name]): one.rows for one in loss.parameters}
        assert all(length == (rows or 7) for length, rows in lengths.items())
    again = pickle.loads(pickle.dumps(random_model(rng, Softmax(3))))
    assert again.margins(X).shape == (5, 3)


@pytest.mark.parametrize("loss", SHELF, ids=str)
def test_predictions(loss):
    model, X = (
        random_model(np.random.default_rng(1), loss),
        np.random.default_rng(2).normal(size=(6, 7)),
    )
    scores = model.margins(X)
    row = loss.row if isinstance(loss, losses.FactorizationMachine) else loss
    if isinstance(loss, (losses.Cox, losses.PairwiseRanking)):
        with pytest.raises(NotImplementedError, match="does not predict labels; use margins"):
            model.predict(X)
    elif isinstance(loss, Softmax):
        assert model.predict(X).tolist() == scores.argmax(axis=1).tolist()
        np.testing.assert_allclose(model.probabilities(X), special.softmax(scores, axis=1))
        assert np.isfinite(loss.probabilities(scores * 1e4)).all()
    elif row.labels == "signs":
        assert model.predict(X).tolist() == (scores > 0).astype(float).tolist()
    else:
        means = scores if row.labels == "real" else np.exp(scores)
        np.testing.assert_array_equal(model.predict(X), means)
    if isinstance(loss, Logistic):
        found = loss.probabilities(np.append(scores, [800.0, -800.0]))
        np.testing.assert_allclose(found[:6, 1], special.expit(scores), rtol=1e-14)
        assert found[6:].tolist() == [[0.0, 1.0], [1.0, 0.0]]
    elif not isinstance(loss, Softmax):
        with pytest.raises(
            NotImplementedError, match="no probabilities, which Logistic and Softmax"
        ):
            model.probabilities(X)


def test_a_fit_is_a_model_that_knows_its_classes(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = np.where(X @ [1.0, -2.0, 0.5, 0.0] + 0.3 > 0, 7.0, 3.0)
    penalty = SquaredL2Norm(1e-3)
    objective = Objective(
        (X, y), loss=Logistic(), penalty=penalty, intercept=True, positive_label=7.0
    )
    model = objective.fit()
    assert model.result.success and model.classes == (3.0, 7.0)
    assert set(model.predict(X)) == {3.0, 7.0} and (model.predict(X) == y).mean() > 0.95
    assert model.num_features == 4 and model.coefficients.shape == (4,)
    assert model.intercept == model.x[-1] == float(model.result.x[-1])
    np.testing.assert_array_equal(objective.margins(model.x, X), model.margins(X))
    np.testing.assert_array_equal(objective.margins(model.x), model.margins(X))
    for old in (lambda: objective.scores(model.x, X), lambda: model.scores(X)):
        with pytest.warns(DeprecationWarning, match=r"scores\(\) is deprecated; use margins\(\)"):
            np.testing.assert_array_equal(old(), model.margins(X))
    model.save(tmp_path / "model.safetensors")
    loaded = Model.load(tmp_path / "model.safetensors")
    assert loaded.classes == (3.0, 7.0) and (loaded.predict(X) == model.predict(X)).all()
    np.testing.assert_array_equal(objective.start(loaded), model.x)
    with pytest.warns(RuntimeWarning, match="fit: Stopped: the limit of iterations"):
        assert not objective.fit(max_iterations=1).result.success
    with pytest.warns(UserWarning, match="a classifier needs two classes"):
        one = Objective((X, np.ones(80)), loss=losses.SquaredHinge(), penalty=penalty)
    assert one.classes == (0.0, 1.0)


def test_a_model_on_servers(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(5, 7))
    with dv.local(2, in_process=True) as ps:
        for loss in (losses.Huber(), Softmax(3), losses.FactorizationMachine(2)):
            model = random_model(rng, loss, coordinates=[1, 2, 6], array=ps.array)
            here = model.numpy()
            assert here.is_local and not model.is_local and "on the servers" in repr(model)
            with pytest.raises(TypeError, match=r"on the servers; call model.numpy\(\).predict\("):
                model.predict(X)
            np.testing.assert_array_equal(model.intercept, here.intercept)
            whole = model.whole().numpy()
            np.testing.assert_allclose(whole.margins(X), here.margins(X), rtol=1e-12, atol=1e-14)
            assert whole.coordinates is None and whole.num_features == 7
            for name in ("model", "model.safetensors"):
                path = tmp_path / f"{type(loss).__name__}-{name}"
                model.save(path)
                for loaded in (Model.load(path), Model.load(path, ps)):
                    np.testing.assert_array_equal(loaded.numpy().margins(X), here.margins(X))
        assert not Model.load(path, ps).is_local


def test_a_process_without_spark_loads_and_predicts(tmp_path):
    path = tmp_path / "model.safetensors"
    random_model(np.random.default_rng(4), Logistic(), coordinates=[0, 3]).save(path)
    code = f"""
import sys
sys.modules["pyspark"] = None
import numpy as np
from distvec.losses import Model
print(Model.load({str(path)!r}).probabilities(np.eye(7)).shape)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "(7, 2)\n"


def test_a_loss_of_your_own_is_given_at_load(tmp_path):
    path = tmp_path / "own.safetensors"
    random_model(np.random.default_rng(0), cauchy(scale=0.5)).save(path)
    with pytest.raises(ValueError, match=r"model of cauchy\(scale=0.5\), .*load\(path, loss="):
        Model.load(path)
    with pytest.raises(ValueError, match=r"loss=cauchy: .* a model of cauchy\(scale=0\.5\); pass"):
        Model.load(path, loss=cauchy)
    assert Model.load(path, loss=cauchy(scale=0.5)).num_features == 7
    machine = losses.FactorizationMachine(2, row=cauchy)
    random_model(np.random.default_rng(0), machine).save(path)
    with pytest.raises(ValueError, match=r"a model of cauchy, a loss that is not in distvec"):
        Model.load(path)
    assert Model.load(path, loss=machine).loss == machine
    random_model(np.random.default_rng(0), losses.Huber()).save(path)
    with pytest.raises(ValueError, match=r"loss=Huber\(threshold=2.0\): .* Huber\(threshold=1.0\)"):
        Model.load(path, loss=losses.Huber(threshold=2.0))


def test_files_that_hold_no_model(tmp_path):
    dv.save(tmp_path / "plain.safetensors", w=np.zeros(3))
    with pytest.raises(ValueError, match=r"contains no model, but the arrays w; .* Model\(distvec"):
        Model.load(tmp_path / "plain.safetensors")
    later = {"distvec.model": json.dumps({"format": 2})}
    dv.save(tmp_path / "later.safetensors", x=np.zeros(3), metadata=later)
    with pytest.raises(ValueError, match="has format 2, of a newer distvec"):
        Model.load(tmp_path / "later.safetensors")
    unknown = {"format": 1, "loss": {"name": "Tomorrow", "parameters": {}}}
    texts = {"distvec.model": json.dumps(unknown)}
    dv.save(tmp_path / "unknown.safetensors", x=np.zeros(3), metadata=texts)
    with pytest.raises(ValueError, match="Tomorrow, which this version of distvec does not have"):
        Model.load(tmp_path / "unknown.safetensors")
    with pytest.raises(ValueError, match="npy files cannot contain a description; use model"):
        Model(np.zeros(3), loss=Logistic()).save(tmp_path / "model.npy")


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: Model(np.zeros(3), loss=Logistic), TypeError, "loss is the class Logistic"),
        (
            lambda: Model(np.zeros(3), loss=Logistic(), num_features=3, intercept=True),
            ValueError,
            r"weights have the shape \(3,\); .* over 3 features with an intercept has \(4,\); pass",
        ),
        (lambda: Model(np.zeros(0), loss=Logistic(), intercept=True), ValueError, "the shape"),
        (lambda: Model(np.zeros((3, 2)), loss=Softmax(3)), ValueError, r"has \(3, 3\); pass"),
        (lambda: Model(np.array(["a"]), loss=Logistic()), TypeError, "must be real numbers"),
        (lambda: Model({"w": np.zeros(3)}, loss=Logistic()), TypeError, r"a dict of \['w'\]"),
        (lambda: Model(np.zeros(3), loss=losses.Cox(), intercept=True), ValueError, "leave it out"),
        (
            lambda: Model(np.zeros(2), loss=Logistic(), coordinates=[1, 2, 3], num_features=9),
            ValueError,
            r"over 3 features without an intercept has \(3,\)",
        ),
        (
            lambda: Model(np.zeros(3), loss=Logistic()).margins(np.eye(4)),
            ValueError,
            "features have 4 columns, the model has 3",
        ),
        (
            lambda: Model(np.zeros(3), loss=block_loss(lambda *_: None)).predict(np.eye(3)),
            NotImplementedError,
            "does not predict labels",
        ),
    ],
)
def test_refusals(make, kind, said):
    with pytest.raises(kind, match=said):
        make()


def test_a_parameter_without_an_intercept_row():
    parts = [Parameter("a"), Parameter("B", (2,), takes_intercept=False)]
    loss = block_loss(parameters=parts)(lambda *_: None)
    model = Model({"a": np.arange(4.0), "B": np.ones((3, 2))}, loss=loss, intercept=True)
    assert model.intercept == 3.0 and model.num_features == 3
    assert {name: one.shape for name, one in model.coefficients.items()} == {"a": (3,), "B": (3, 2)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"classes": (1.0,)}, r"classes=\(1\.0,\); must be two labels, .* leave classes= out"),
        ({"classes": "ab"}, "classes='ab'; must be two labels"),
        (
            {"coordinates": [5, 2, 0, 1]},
            "coordinates must be ascending features from 0 to at most 8",
        ),
        (
            {"coordinates": [0, 1, 2, 9]},
            "coordinates must be ascending features from 0 to at most 8",
        ),
        (
            {"coordinates": [-1, 1, 2, 3]},
            "coordinates must be ascending features from 0 to at most 8",
        ),
    ],
)
def test_classes_and_coordinates_that_cannot_be(given, said) -> None:
    options = {"coordinates": [0, 2, 5, 7]} | given
    with pytest.raises(ValueError, match=said):
        Model(np.ones(4), loss=Logistic(), num_features=9, **options)
