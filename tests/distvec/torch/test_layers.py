"""Layers over tables give what PyTorch's layers give with the same rows, and train like them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv

torch = pytest.importorskip("torch")

from distvec.torch import Embedding, EmbeddingBag, Optimizer, dense_table, prefetch  # noqa: E402

KEYS = [17, -3, 2**40, 5, 0, 99]
WIDTH = 3


@pytest.fixture(scope="module", params=(1, 3))
def ps(request: Any) -> Iterator[dv.Session]:
    with dv.local(servers=request.param, in_process=True) as session:
        yield session


def new_table(ps: dv.Session, optimizer: Any = None, width: int = WIDTH) -> dv.KeyedArray:
    table = ps.keys().table(width, init=dv.uniform(-1.0, 1.0, seed=7))
    if optimizer is not None:
        table.optimizer(optimizer)
    return table


def copy_of(table: dv.KeyedArray) -> Any:
    """All rows as a parameter of PyTorch, by place in KEYS."""
    return torch.nn.Parameter(torch.from_numpy(table.pull(KEYS)))


OPTIMIZERS = {
    "sgd": (dv.rows.sgd(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "adagrad": (dv.rows.adagrad(0.1), lambda p: torch.optim.Adagrad(p, 0.1)),
}

BATCHES = st.lists(st.lists(st.integers(0, len(KEYS) - 1), max_size=5), min_size=1, max_size=4)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@settings(max_examples=8)
@given(data=st.data())
def test_bags_train_like_those_of_pytorch(
    ps: dv.Session, name: str, mode: str, data: st.DataObject
) -> None:
    ours, theirs = OPTIMIZERS[name]
    table = new_table(ps, ours)
    weight, bags = copy_of(table), EmbeddingBag(table, mode)
    optimizer, expected = Optimizer(bags), theirs([weight])
    for _ in range(3):
        places = data.draw(BATCHES)
        lengths = np.array([len(bag) for bag in places])
        offsets = torch.from_numpy(np.cumsum(lengths) - lengths)
        flat = torch.tensor([k for bag in places for k in bag], dtype=torch.int64)
        target = torch.arange(len(places) * WIDTH).reshape(-1, WIDTH) / 10.0
        wanted = torch.nn.functional.embedding_bag(flat, weight, offsets, mode=mode)
        found = bags([[KEYS[k] for k in bag] for bag in places])
        torch.testing.assert_close(found, wanted)
        for optimize, result in ((optimizer, found), (expected, wanted)):
            optimize.zero_grad()
            if result.requires_grad:
                ((result - target) ** 2).sum().backward()
            optimize.step()
    np.testing.assert_allclose(table.pull(KEYS), weight.detach().numpy(), rtol=1e-5, atol=1e-5)


@settings(max_examples=10)
@given(
    places=st.lists(st.integers(0, len(KEYS) - 1), min_size=4, max_size=4),
    backwards=st.integers(1, 3),
)
def test_layers_that_share_a_table_make_one_step(
    ps: dv.Session, places: list[int], backwards: int
) -> None:
    table = new_table(ps, dv.rows.adagrad(0.1))
    weight, left, right = copy_of(table), Embedding(table), Embedding(table)
    model = torch.nn.ModuleList([left, right])
    optimizer, expected = Optimizer(model), torch.optim.Adagrad([weight], 0.1)
    chosen = torch.tensor(places).reshape(2, 2)
    keys = torch.tensor([KEYS[k] for k in places]).reshape(2, 2)
    for _ in range(2):
        optimizer.zero_grad()
        expected.zero_grad()
        wanted = (weight[chosen] * weight[chosen].flip(0)).sum()
        found = (left(keys) * right(keys.numpy()).flip(0)).sum()
        torch.testing.assert_close(found, wanted)
        for _ in range(backwards):
            found.backward(retain_graph=True)
            wanted.backward(retain_graph=True)
        optimizer.step()
        expected.step()
    np.testing.assert_allclose(table.pull(KEYS), weight.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_weights_of_samples_get_their_gradients(ps: dv.Session) -> None:
    table = new_table(ps)
    weight, bags = copy_of(table), EmbeddingBag(table, "sum")
    mine, theirs = (torch.tensor([[0.5, 2.0], [1.0, -1.0]], requires_grad=True) for _ in range(2))
    found = bags(torch.tensor([[17, 5], [5, 99]]), per_sample_weights=mine)
    wanted = torch.nn.functional.embedding_bag(
        torch.tensor([[0, 3], [3, 5]]), weight, mode="sum", per_sample_weights=theirs
    )
    found.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (dv.rows.sgd(0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (dv.rows.adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
        (dv.rows.momentum(0.1, 0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    ],
    ids=["sgd", "adam", "momentum"],
)
def test_dense_parameters_train_like_those_of_pytorch(
    ps: dv.Session, ours: Any, theirs: Any
) -> None:
    torch.manual_seed(0)
    mine = torch.nn.Sequential(torch.nn.Linear(5, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    other = pickle.loads(pickle.dumps(mine))
    optimizer = Optimizer(mine, dense=dense_table(mine, ps, ours))
    expected = theirs(other.parameters())
    for step in range(5):
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(step))
        for model, optimize in ((mine, optimizer), (other, expected)):
            optimize.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimize.step()
    for a, b in zip(mine.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_copies_of_a_model_share_its_dense_table(ps: dv.Session) -> None:
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    dense = dense_table(first, ps, dv.rows.sgd(0.5))
    mine, others = Optimizer(first, dense=dense), Optimizer(second, dense=dense)
    torch.testing.assert_close(second.weight, first.weight)
    before = first.bias.detach().clone()
    for model, optimizer in ((first, mine), (second, others)):
        model(torch.zeros(1, 3)).sum().backward()
        optimizer.step()
    mine.pull()
    torch.testing.assert_close(first.bias.detach(), before - 1.0)


def test_messages(ps: dv.Session) -> None:
    """A pull and a step for each table, and the pull of the dense parameters."""
    tables = [new_table(ps, dv.rows.sgd(0.1)) for _ in range(2)]
    users, friends, tags = Embedding(tables[0]), Embedding(tables[0]), EmbeddingBag(tables[1])
    head = torch.nn.Linear(WIDTH, 1)
    model = torch.nn.ModuleList([users, friends, tags, head])
    dense = dense_table(model, ps, dv.rows.sgd(0.1))
    optimizer = Optimizer(model, dense=dense)
    many = torch.arange(2000)  # on all servers
    for _ in range(2):
        ps.counters.reset()
        prefetch({users: many, friends: many[:7], tags: many.reshape(-1, 2)})
        rows = users(many)[:1000] + tags(many.reshape(-1, 2))
        (head(rows).sum() + friends(many[:7]).sum()).backward()
        assert ps.counters.messages == 2
        optimizer.step()
        assert ps.counters.messages == 2 + 2 + 2


def test_a_layer_pulls_itself_what_was_not_prefetched(ps: dv.Session) -> None:
    table = new_table(ps, dv.rows.sgd(0.1))
    layer = Embedding(table)
    prefetch({layer: []})
    torch.testing.assert_close(layer([17]), torch.from_numpy(table.pull([17])))
    prefetch({layer: [17, 5]})
    torch.testing.assert_close(layer([99, 17]), torch.from_numpy(table.pull([99, 17])))
    prefetch({layer: [17, 5]})
    table.assign([17], 1.0)
    layer([17])
    torch.testing.assert_close(layer([17]), torch.ones(1, WIDTH))  # each serves one pass


def test_nothing_is_written_without_a_backward_pass(ps: dv.Session) -> None:
    table = new_table(ps, dv.rows.sgd(0.1))
    layer = Embedding(table)
    optimizer = Optimizer(layer)
    with torch.no_grad():
        assert not layer([1, 2]).requires_grad
    layer([1, 2])
    optimizer.step()
    layer([1, 2]).sum().backward()
    optimizer.zero_grad()
    optimizer.step()
    assert len(table.space) == 0


def test_kinds_of_keys(ps: dv.Session) -> None:
    table = new_table(ps)
    layer, bags = Embedding(table), EmbeddingBag(table, "sum")
    expected = torch.from_numpy(table.pull(["a", "b"]))
    torch.testing.assert_close(layer(["a", "b"]), expected)
    torch.testing.assert_close(
        bags([["a", "b"], []]), torch.stack([expected.sum(0), torch.zeros(3)])
    )
    pairs = [("u", 1), ("u", 2)]
    torch.testing.assert_close(layer(pairs), torch.from_numpy(table.pull(pairs)))
    assert layer(torch.zeros(0, dtype=torch.int64)).shape == (0, WIDTH)
    assert layer(np.zeros((2, 0), np.int64)).shape == (2, 0, WIDTH)
    assert bags([[], []]).tolist() == [[0.0] * WIDTH] * 2
    assert bags(np.array([[1, 2], [2, 1]])).shape == (2, WIDTH)
    arrays = np.empty(2, object)
    arrays[:] = [np.array([1, 2]), np.array([], np.int64)]  # a column of lists in pandas
    assert bags(arrays).shape == (2, WIDTH)


def test_a_copy_for_use_without_servers(ps: dv.Session) -> None:
    table = new_table(ps)
    copy = Embedding(table).materialize(["a", "b"])
    assert isinstance(copy, torch.nn.Embedding)
    torch.testing.assert_close(copy(torch.tensor([1]))[0], torch.from_numpy(table.pull(["b"]))[0])


def test_what_is_no_layer_or_no_optimizer(ps: dv.Session) -> None:
    table = new_table(ps)
    with pytest.raises(TypeError, match="keyed table of floats"):
        Embedding(ps.keys().zeros())
    with pytest.raises(TypeError, match="keyed table of floats"):
        EmbeddingBag(ps.keys().table(2, dtype="int64"))
    with pytest.raises(ValueError, match="sum, max"):
        EmbeddingBag(table, "min")
    with pytest.raises(TypeError, match="has no optimizer"):
        Optimizer(Embedding(table))
    with pytest.raises(ValueError, match="no layer"):
        Optimizer(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="no parameters"):
        dense_table(torch.nn.ReLU(), ps, dv.rows.sgd(0.1))
    mixed = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double())
    with pytest.raises(ValueError, match="float32, float64"):
        dense_table(mixed, ps, dv.rows.sgd(0.1))
    with pytest.raises(ValueError, match="need 2 rows"):
        Optimizer(
            torch.nn.Linear(100, 1),
            dense=dense_table(torch.nn.Linear(2, 2), ps, dv.rows.sgd(0.1)),
        )
    with pytest.raises(ValueError, match="offsets="):
        EmbeddingBag(table)([1, 2])
    with pytest.raises(TypeError, match="keys"):
        Embedding(table)([1.5])


def test_an_error_of_a_step_is_raised(ps: dv.Session) -> None:
    small = ps.keys(most_bytes=1 << 14).table(64)
    small.optimizer(dv.rows.sgd(0.1))
    layer = Embedding(small)
    optimizer = Optimizer(layer)
    layer(np.arange(10_000)).sum().backward()
    with pytest.raises(dv.OutOfBudget):
        optimizer.step()
