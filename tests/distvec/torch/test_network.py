"""Networks as losses: values, gradients and steps are those of PyTorch with the same rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.losses import LossError, NotFinite, Objective, Rows

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from distvec.torch import Network  # noqa: E402

WIDTH = 4


def two_layers() -> Any:
    """In float64, so that differences are of rounding alone."""
    layers = torch.nn.Linear(WIDTH, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)
    return torch.nn.Sequential(*layers).double()


def three_classes() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 3)).double()


class OverEmbeddings(torch.nn.Module):  # type: ignore[misc]
    """A factorization machine and a layer over the same rows."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = torch.nn.Linear(2 * 3, 1)

    def forward(self, vectors: Any) -> Any:
        pairs = (vectors.sum(1) ** 2 - (vectors**2).sum(1)).sum(1, keepdim=True)
        return pairs + self.deep(torch.tanh(vectors).flatten(1))


def over_embeddings() -> Any:
    return OverEmbeddings().double()


def rows(seed: int, count: int, *, is_sparse: bool = False) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, WIDTH)) * (rng.random((count, WIDTH)) < 0.6)
    weights = rng.integers(0, 3, count).astype(float)
    weights[0] = 1.0
    return (sp.csr_array(x) if is_sparse else x), rng.normal(size=count), weights


def some_steps(objective: Objective, count: int = 10) -> Any:
    return objective.model(objective.minimize(max_iterations=count).x)


CASES = {
    "mse": (two_layers, F.mse_loss, lambda y: y, torch.float64),
    "module": (two_layers, torch.nn.HuberLoss(), lambda y: y, torch.float64),
    "signs": (two_layers, F.binary_cross_entropy_with_logits, lambda y: y > 0, torch.float64),
    "classes": (three_classes, F.cross_entropy, lambda y: np.abs(y).round() % 3, torch.int64),
    "own": (two_layers, lambda out, y: (out - y).abs() ** 1.5, lambda y: y, torch.float64),
}


@settings(max_examples=25, deadline=None)
@given(case=st.sampled_from([*CASES]), seed=st.integers(0, 99), is_sparse=st.booleans())
def test_values_and_gradients_are_those_of_pytorch(case: str, seed: int, is_sparse: bool) -> None:
    make, criterion, labels, dtype = CASES[case]
    x, y, weights = rows(seed, 30, is_sparse=is_sparse)
    y = labels(y).astype(float)
    loss = Network(make, criterion, outputs=3 if case == "classes" else 1)
    objective = Objective(Rows(x, y, weights), loss=loss)
    value, gradient = objective(objective.start())

    torch.manual_seed(0)
    module = make()
    dense = torch.tensor(x.toarray() if is_sparse else x)
    outputs, targets = module(dense), torch.tensor(y).to(dtype)
    if case != "classes":
        outputs = outputs.squeeze(1)
    if case == "own":
        each = criterion(outputs, targets)
    elif isinstance(criterion, torch.nn.Module):
        each = type(criterion)(reduction="none")(outputs, targets)
    else:
        each = criterion(outputs, targets, reduction="none")
    mean = (each * torch.tensor(weights)).sum() / weights.sum()
    mean.backward()
    expected = torch.cat([one.grad.reshape(-1) for one in module.parameters()])
    np.testing.assert_allclose(value, float(mean.detach()), rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("session", [False, True], ids=["NumPy", "servers"])
def test_steps_of_adam_are_those_of_pytorch(session: bool) -> None:
    x, y, _ = rows(1, 50)
    loss = Network(two_layers, F.mse_loss)
    objective = Objective((x, y), loss=loss)
    steps: dict[str, Any] = {"step_size": 0.01, "max_iterations": 40}
    with dv.local(servers=2, in_process=True) as ps:
        start = objective.start()
        found = objective.minimize(ps.array(start) if session else start, method="Adam", **steps).x
        trained = loss.module(found.numpy() if session else found)

    torch.manual_seed(0)
    module = two_layers()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        F.mse_loss(module(torch.tensor(x)).squeeze(1), torch.tensor(y)).backward()
        optimizer.step()
    np.testing.assert_allclose(
        trained(torch.tensor(x)).detach(), module(torch.tensor(x)).detach(), rtol=1e-9
    )


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 99))
def test_rows_of_embeddings_come_by_field(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, features = 12, 9
    columns = np.sort(rng.permuted(np.tile(np.arange(features), (count, 1)), axis=1)[:, :2])
    x = rng.uniform(0.5, 2.0, (count, 2))
    matrix = sp.csr_array(
        (x.ravel(), columns.ravel(), np.arange(count + 1) * 2), shape=(count, features)
    )
    y = rng.normal(size=count)
    loss = Network(over_embeddings, F.mse_loss, embedding_size=3, fields=2, spread=0.3)
    objective = Objective((matrix, y), loss=loss)
    start = objective.start()
    np.testing.assert_array_equal(objective.start()["embeddings"], start["embeddings"])
    value, gradient = objective(start)

    torch.manual_seed(0)
    module, table = over_embeddings(), torch.tensor(start["embeddings"], requires_grad=True)
    vectors = F.embedding(torch.tensor(columns), table) * torch.tensor(x)[:, :, None]
    mean = F.mse_loss(module(vectors).squeeze(1), torch.tensor(y))
    mean.backward()
    np.testing.assert_allclose(value, float(mean.detach()), rtol=1e-12)
    np.testing.assert_allclose(gradient["embeddings"], table.grad, rtol=1e-10, atol=1e-13)
    expected = torch.cat([one.grad.reshape(-1) for one in module.parameters()])
    np.testing.assert_allclose(gradient["network"], expected, rtol=1e-10, atol=1e-13)


def test_models_predict_labels_of_any_names() -> None:
    x, y, _ = rows(2, 60)
    signs = np.where(y > 0, 7.0, 3.0)
    loss = Network(two_layers, F.binary_cross_entropy_with_logits)
    model = some_steps(Objective((x, signs), loss=loss, positive_label=7.0))
    chances = model.probabilities(x)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(x), np.where(chances[:, 1] > 0.5, 7.0, 3.0))
    classes = np.abs(y).round() % 3
    model = some_steps(Objective((x, classes), loss=Network(three_classes, F.cross_entropy)))
    np.testing.assert_array_equal(model.predict(x), model.probabilities(x).argmax(axis=1))


def test_dropout_repeats_and_leaves_the_random_numbers_of_the_program_alone() -> None:
    def dropping() -> Any:
        return torch.nn.Sequential(torch.nn.Dropout(0.5), two_layers())

    x, y, _ = rows(3, 40)
    objective = Objective((x, y), loss=Network(dropping, F.mse_loss))
    w = objective.start()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second, other = objective(w)[0], objective(w)[0], objective(w + 1e-9)[0]
    assert first == second
    assert abs(first - other) > 1e-6
    assert torch.equal(torch.rand(3), expected)
    model = objective.model(w)
    np.testing.assert_array_equal(model.margins(x), model.margins(x))


def test_frozen_parameters_are_the_same_in_each_process_and_stay() -> None:
    def half_frozen() -> Any:
        module = two_layers()
        module[0].requires_grad_(False)
        return module

    x, y, _ = rows(4, 40)
    loss = Network(half_frozen, F.mse_loss)
    model = some_steps(Objective((x, y), loss=loss))
    other = pickle.loads(pickle.dumps(loss.module()))
    trained = loss.module(model.x)
    assert torch.equal(trained[0].weight, other[0].weight)
    assert not torch.equal(trained[2].weight, other[2].weight)
    assert model.x.size == 6


def test_a_module_starts_from_its_values_and_is_not_changed() -> None:
    module = two_layers()
    before = [one.clone() for one in module.parameters()]
    x, y, _ = rows(5, 40)
    objective = Objective((x, y), loss=pickle.loads(pickle.dumps(Network(module, F.mse_loss))))
    np.testing.assert_array_equal(
        objective.start(), torch.cat([one.detach().reshape(-1) for one in before])
    )
    some_steps(objective)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_what_cannot_be_trained_is_refused() -> None:
    x, y, _ = rows(6, 10)

    def value(make: Any, criterion: Any = F.mse_loss, labels: Any = y, **options: Any) -> Any:
        objective = Objective((x, labels), loss=Network(make, criterion, **options))
        return objective(objective.start())

    def broken(out: Any, y: Any) -> Any:
        return out / (1 // 0)

    def normed() -> Any:
        return torch.nn.Sequential(torch.nn.BatchNorm1d(WIDTH), torch.nn.Linear(WIDTH, 1))

    with pytest.raises(ValueError, match=r"BatchNorm1d with running means.*LayerNorm"):
        value(normed)
    with pytest.raises(ValueError, match="no parameters to train"):
        value(torch.nn.Tanh)
    with pytest.raises(TypeError, match=r"returned int, not a torch\.nn\.Module"):
        value(lambda: 3)
    with pytest.raises(LossError, match="must return the loss of each row, without a mean"):
        value(two_layers, lambda out, y: (out - y).square().mean())
    with pytest.raises(LossError, match=r"shape \(10, 3\) for 10 rows; with outputs=1"):
        value(three_classes)
    with pytest.raises(NotFinite, match="the loss is NaN in row 0"):
        value(two_layers, lambda out, y: (out - y) * float("nan"))
    with pytest.raises(LossError, match=r"ZeroDivisionError.*in broken"):
        value(two_layers, broken)
    objective = Objective(Rows(x, y, offsets=y), loss=Network(two_layers, F.mse_loss))
    with pytest.raises(ValueError, match="gets no offsets; give them as a feature"):
        objective(objective.start())
    with pytest.raises(ValueError, match="give both, for a network over embeddings"):
        value(two_layers, embedding_size=3)
    with pytest.raises(ValueError, match="outputs=0; must be a whole number, 1 or more"):
        value(two_layers, outputs=0)
    loss = Network(over_embeddings, F.mse_loss, embedding_size=3, fields=2)
    objective = Objective((np.ones((3, 4)), y[:3]), loss=loss)
    with pytest.raises(LossError, match="4 features that are not zero, for 2 fields"):
        objective(objective.start())
