"""A keeper that brings back what was lost: the loop goes back to the newest checkpoint, and on."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import LBFGS, SGD, GradientDescent, Minibatches, State
from tests.optim.core.checkpoints.test_every_solver import same_results, squares
from tests.optim.registry import START, Case, cases, ill_conditioned


class InMemory:
    """A keeper of a session whose servers may be lost, and come back with all that was kept."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
        self.losses = self.closed = 0

    def save(
        self,
        number: int,
        arrays: Mapping[str, Any],
        document: Mapping[str, Any],
        *,
        wait: bool = False,
    ) -> None:
        self.kept.append((number, {k: v.copy() for k, v in arrays.items()}, dict(document)))

    def load(self) -> tuple[int, dict[str, Any], dict[str, Any]] | None:
        return self.kept[-1] if self.kept else None

    def recovers(self, error: Exception) -> bool:
        self.losses += isinstance(error, ConnectionError)
        return isinstance(error, ConnectionError)

    def close(self) -> None:
        self.closed += 1


class Losing:
    """An objective that loses its connection at some of its calls."""

    def __init__(self, fun: Any, at: set[int]) -> None:
        self.fun, self.at, self.calls = fun, at, 0

    def __call__(self, x: Any, *args: Any) -> Any:
        self.calls += 1
        if self.calls in self.at:
            raise ConnectionError(f"lost at call {self.calls}")
        return self.fun(x, *args)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """That of the session which NumPy's arrays are of, for once."""
    keeper = InMemory()
    monkeypatch.setattr(np, "keeper", lambda directory: keeper, raising=False)
    return keeper


@pytest.mark.parametrize("case", cases(), ids=str)
@settings(max_examples=4)
@given(at=st.sets(st.integers(1, 60), max_size=4), every=st.integers(1, 9))
def test_all_is_as_without_a_loss(case: Case, at: set[int], every: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        keeper = InMemory()
        monkeypatch.setattr(np, "keeper", lambda directory: keeper, raising=False)
        solver, seen, shown = case.make(), [], []
        losing = Losing(ill_conditioned, at)
        result = solver.minimize(
            losing,
            START,
            every=every,
            callback=lambda state: seen.append(state.iteration),
            progress=lambda state: shown.append(state.iteration),
        )
        assert keeper.closed == 1
        assert keeper.losses == len([call for call in at if call <= losing.calls])
        whole = solver.minimize(ill_conditioned, START, checkpoint=False)
        same_results(result, whole)
        assert seen == list(range(1, whole.nit + 1))
        assert shown == [0, *seen]


def numbers(states: list[State]) -> list[tuple[Any, ...]]:
    return [(s.iteration, s.value, s.evaluations, s.outcome, s.x.tobytes()) for s in states]


def test_no_state_is_yielded_twice(keeper: InMemory) -> None:
    solver = LBFGS()
    losing = Losing(ill_conditioned, {1, 2, 9, 15})
    states = list(solver.iterations(losing, START, every=4))
    whole = list(solver.iterations(ill_conditioned, START, checkpoint=False))
    assert keeper.losses == 4
    assert numbers(states) == numbers(whole)


def test_a_loss_while_the_last_point_is_evaluated(keeper: InMemory) -> None:
    """The mean of the iterates is evaluated after the last of them."""
    solver = SGD(step_size=0.01, average=True, max_iterations=10)
    losing = Losing(ill_conditioned, {12})
    result = solver.minimize(losing, START, every=4)
    assert keeper.losses == 1
    same_results(result, solver.minimize(ill_conditioned, START, checkpoint=False))


def test_a_callback_that_lost_something_is_called_again(keeper: InMemory) -> None:
    seen: list[int] = []

    def callback(state: State) -> bool:
        seen.append(state.iteration)
        if seen.count(7) == 1 and state.iteration == 7:
            raise ConnectionError
        return state.iteration == 11

    result = LBFGS().minimize(ill_conditioned, START, every=5, callback=callback)
    assert seen == [1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11]
    assert (result.nit, len(result.history)) == (11, 12)


def test_what_is_lost_again_and_again_is_an_error(keeper: InMemory) -> None:
    losing = Losing(ill_conditioned, set(range(6, 1000)))
    with pytest.raises(ConnectionError, match="lost at call 11"):
        LBFGS().minimize(losing, START)
    assert keeper.losses == 5 and keeper.closed == 1
    keeper.losses = 0
    # Not where there is progress in between.
    losing = Losing(ill_conditioned, set(range(6, 400, 5)))
    assert GradientDescent(max_iterations=60).minimize(losing, START, every=1).nit == 60
    assert keeper.losses > 10


def test_other_errors_pass(keeper: InMemory) -> None:
    calls = itertools.count()

    def fun(x: Any) -> Any:
        if next(calls) == 5:
            raise LookupError("mine")
        return ill_conditioned(x)

    with pytest.raises(LookupError, match="mine"):
        LBFGS().minimize(fun, START)
    assert keeper.closed == 1


def test_the_checkpoint_of_another_run_is_not_taken(keeper: InMemory) -> None:
    """A session's keeper has those of the runs before; a loss before the first one begins anew."""
    first = LBFGS().minimize(ill_conditioned, START)
    second = LBFGS().minimize(Losing(ill_conditioned, {1}), 2.0 * START)
    same_results(second, LBFGS().minimize(ill_conditioned, 2.0 * START, checkpoint=False))
    assert first.nit != second.nit and keeper.losses == 1


def test_after_a_rollback_another_process_has_each_record_once(keeper: InMemory) -> None:
    """A checkpoint between the one gone back to and the iteration that was reached."""
    solver = LBFGS(max_iterations=9)

    def fun(x: Any) -> Any:
        return losing(x)

    losing = Losing(ill_conditioned, {11})
    solver.minimize(fun, START, every=4)
    whole = solver.minimize(ill_conditioned, START, checkpoint=False)
    for _ in range(len(keeper.kept)):
        resumed = solver.minimize(ill_conditioned, START, every=4, resume=True)
        same_results(resumed, whole)
        keeper.kept.pop()


def test_the_sessions_checkpoints_are_resumed_without_a_directory(keeper: InMemory) -> None:
    batches = Minibatches(squares, 40, 7, seed=1)
    solver = SGD(step_size=0.02, momentum=0.9, max_iterations=30)
    with pytest.raises(ZeroDivisionError):
        solver.minimize(batches, START, callback=lambda s: 1 // (s.iteration - 17), every=5)
    seen: list[int] = []
    resumed = solver.minimize(
        batches, START, resume=True, callback=lambda s: seen.append(s.iteration)
    )
    assert seen[0] == 16
    same_results(resumed, solver.minimize(batches, START, checkpoint=False))
