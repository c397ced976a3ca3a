"""Row optimizers: each row goes the way of ``optim``'s solver on that row alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.rows.optimizers import GRADIENT, STEPS, WEIGHTS, RowOptimizer
from optim import SGD, InverseTime
from tests.distvec.rows.reference import run

KEYS = 5
EXACT: dict[str, RowOptimizer] = {
    "sgd": dv.rows.sgd(0.1),
    "sgd, decay, bound": dv.rows.sgd(0.1, bound=1.0, weight_decay=0.05),
    "momentum": dv.rows.momentum(0.1, 0.9),
    "nesterov": dv.rows.momentum(0.1, nesterov=True),
    "adagrad": dv.rows.adagrad(0.1, accumulator=0.1, epsilon=1e-3),
    "adagrad, l1": dv.rows.adagrad(0.1, l1=0.3, l2=0.1),
    "ftrl": dv.rows.ftrl(0.3, l1=0.3, l2=0.1),
    "rmsprop": dv.rows.rmsprop(0.02, momentum=0.5, centered=True),
    "adadelta": dv.rows.adadelta(),
}
"""Of + - * / and square roots, element by element: the same bits."""
CLOSE: dict[str, RowOptimizer] = {
    "adam": dv.rows.adam(0.1),
    "adamw": dv.rows.adam(0.1, weight_decay=0.1, bound=2.0),
    "rowwise adagrad": dv.rows.rowwise_adagrad(0.1),
    "group ftrl": dv.rows.group_ftrl(0.3, l1=0.1, l2=0.1, l21=0.4),
}
"""With powers, or sums along the rows, which NumPy may round otherwise."""
ALL = EXACT | CLOSE


class Table:
    """Weights and states of all keys, and steps by the row program."""

    def __init__(self, optimizer: RowOptimizer, weights: Any, start: float | None) -> None:
        self.optimizer = optimizer
        row, dtype = weights.shape[1:], weights.dtype.name
        self.traced = optimizer.traced(row, dtype, start)
        self.arrays = {WEIGHTS: weights}
        for state in optimizer.states(row, dtype, start):
            shape = (len(weights), *state.row)
            self.arrays[state.name] = np.full(shape, state.initial, state.dtype)
        assert set(self.traced.arrays) == set(self.arrays)

    def step(self, slots: list[int], gradients: Any, k: int = 0) -> None:
        given = {**self.arrays, GRADIENT: gradients, **self.optimizer.numbers(k)}
        run(self.traced, slots, given)


def alone(optimizer: RowOptimizer, row: Any, gradients: Any) -> Any:
    """Where ``optim``'s solver goes with that row and its gradients."""
    solver, x = optimizer.solver, row[None, :]
    memory = solver.init_memory(x)
    for k, gradient in enumerate(gradients):
        if optimizer.weight_decay:
            x = (1.0 - solver.step_size_at(0) * optimizer.weight_decay) * x
        x, memory = solver.update(memory, x, gradient[None, :], k)
        if optimizer.bound is not None:
            x = np.clip(x, -optimizer.bound, optimizer.bound)
    return x[0]


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=10)
@given(
    batches=st.lists(st.lists(st.integers(0, KEYS - 1), unique=True, min_size=1), max_size=5),
    dtype=st.sampled_from(["float32", "float64"]),
    width=st.sampled_from([None, 1, 4]),
    start=st.sampled_from([0.0, 0.5, None]),
    seed=st.integers(0, 99),
)
def test_each_row_goes_the_way_of_the_solver_on_it_alone(
    name: str,
    batches: list[list[int]],
    dtype: str,
    width: int | None,
    start: float | None,
    seed: int,
) -> None:
    draw = np.random.default_rng(seed).normal
    row = () if width is None else (width,)
    first = draw(size=(KEYS, *row)) if start is None else np.full((KEYS, *row), start)
    first = first.astype(dtype)
    table = Table(ALL[name], first.copy(), start)
    seen: list[list[Any]] = [[] for _ in range(KEYS)]
    for slots in batches:
        gradients = draw(size=(len(slots), *row)).astype(dtype)
        table.step(slots, gradients)
        for slot, gradient in zip(slots, gradients, strict=True):
            seen[slot].append(np.atleast_1d(gradient))
    expected = [alone(ALL[name], np.atleast_1d(first[k]), seen[k]) for k in range(KEYS)]
    found = table.arrays[WEIGHTS].reshape(KEYS, -1)
    assert found.dtype == dtype
    if name in EXACT:
        np.testing.assert_array_equal(found, expected)
    else:
        accuracy = 2e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(found, expected, rtol=accuracy, atol=accuracy)
    if STEPS in table.arrays:
        assert table.arrays[STEPS].tolist() == [len(one) for one in seen]


def test_states_are_what_the_solver_keeps() -> None:
    (squares,) = dv.rows.adagrad(accumulator=0.1).states((8,), "float32")
    assert (squares.dtype, squares.row) == ("float32", (8,))
    assert squares.initial == pytest.approx(0.1)
    (mean,) = dv.rows.rowwise_adagrad().states((8,), "float32")
    assert mean.row == ()
    names = [state.name for state in dv.rows.adam().states((8,), "float64")]
    assert names == ["first_moment", "second_moment", "steps"]
    assert dv.rows.sgd().states((), "float64") == ()
    leader, _ = dv.rows.ftrl(0.5, beta=1.0, l1=0.25).states((), "float64", 1.0)
    assert leader.initial == -(1.0 / 0.5 + 0.25)


def test_step_sizes_and_schedules_make_no_new_program() -> None:
    schedule = dv.rows.adam(InverseTime(0.5, decay=1.0))
    assert schedule.numbers(3) == {"step_size": 0.125}
    program = dv.rows.adam(0.3).traced((4,), "float32").program
    assert schedule.traced((4,), "float32").program == program
    table = Table(dv.rows.sgd(InverseTime(1.0)), np.zeros(2), 0.0)
    for k in range(3):
        table.step([1], np.ones(1), k)
    assert table.arrays[WEIGHTS].tolist() == [0.0, -(1 + 1 / 2 + 1 / 3)]


def test_vectors_are_swept_as_vectors() -> None:
    assert all(dv.rows.ftrl().traced((), dtype).program.sweep.is_flat for dtype in ("float32",))
    assert dv.rows.adagrad().traced((16,), "float32").program.sweep.is_flat


def test_a_row_of_group_ftrl_is_zero_as_a_whole() -> None:
    table = Table(dv.rows.group_ftrl(1.0, l21=1.0), np.zeros((2, 4)), 0.0)
    table.step([0, 1], np.array([[1.0, -1.0, 1.0, 0.5], [2.0, 1.0, -1.0, 1.0]]))
    assert not table.arrays[WEIGHTS][0].any()
    assert table.arrays[WEIGHTS][1].all()


def test_as_pytorch_with_sparse_gradients() -> None:
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(5)
    first = draw.normal(size=(KEYS, 4)).astype("float32")
    for ours, make in (
        (dv.rows.adagrad(0.1), torch.optim.Adagrad),
        (dv.rows.adam(0.1), torch.optim.SparseAdam),
    ):
        weights = torch.tensor(first)
        bag = torch.nn.Embedding.from_pretrained(weights, freeze=False, sparse=True)
        theirs, table = make(bag.parameters(), lr=0.1), Table(ours, first.copy(), None)
        for _ in range(4):
            # All rows each time: PyTorch counts Adam's steps for all rows together.
            gradients = draw.normal(size=(KEYS, 4)).astype("float32")
            theirs.zero_grad()
            with torch.sparse.check_sparse_tensor_invariants(True):
                (bag(torch.arange(KEYS)) * torch.tensor(gradients)).sum().backward()
                theirs.step()
            table.step(list(range(KEYS)), gradients)
        found = bag.weight.detach().numpy()
        np.testing.assert_allclose(table.arrays[WEIGHTS], found, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: dv.rows.sgd(bound=0.0), "bound must be a positive number"),
        (lambda: dv.rows.sgd(weight_decay=-1.0), "weight_decay must be 0 or more, got -1.0"),
        (lambda: dv.rows.ftrl(0.0), "step_size=0.0"),
        (lambda: dv.rows.ftrl(InverseTime(1.0)), "must be a number"),
    ],
)
def test_parameters_are_checked(wrong: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        wrong()


def test_weights_are_floats() -> None:
    with pytest.raises(TypeError, match=r"float64 or float32, got int32.*dtype='float32'"):
        dv.rows.sgd().traced((), "int32")


def test_an_optimizer_is_a_value() -> None:
    assert dv.rows.adagrad(0.1) == dv.rows.adagrad(0.1) != dv.rows.adagrad(0.2)
    one = dv.rows.adagrad(0.1)
    assert one.traced((4,), "float32") is dv.rows.adagrad(0.1).traced((4,), "float32")
    assert "row program of AdaGrad" in one.explain((4,))


def test_an_optimizer_by_name_is_short_for_one_of_a_solver():
    assert dv.rows.momentum(0.2, bound=1.0) == dv.rows.of(
        SGD(step_size=0.2, momentum=0.9), bound=1.0
    )
    with pytest.raises(TypeError, match=r"dv\.rows\.ftrl\(step_size=0\.1, .*unexpected keyword"):
        dv.rows.ftrl(weight_decay=0.1)
