"""Every solver: broken off anywhere and resumed, a run has the bits of one without a break."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim import FiniteSum, Minibatches, Result, Solver, State
from tests.optim.registry import START, Case, cases, ill_conditioned
from tests.optim.trees import Cut, cosh_of, cuts

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where nothing waits for a disk
MATRIX = np.random.default_rng(3).standard_normal((40, START.size))
TARGETS = np.random.default_rng(4).standard_normal(40)


class Broken(Exception):
    """Raised by an objective in the middle of a run."""


class Breaking:
    """An objective that raises at its call number `at`."""

    def __init__(self, fun: Any, at: int) -> None:
        self.fun, self.at, self.calls = fun, at, 0

    def __call__(self, x: Any, *args: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise Broken
        return self.fun(x, *args)


def squares(x: Any, indices: Any) -> tuple[float, Any]:
    residual = MATRIX[indices] @ x - TARGETS[indices]
    return residual @ residual / len(indices), 2.0 * MATRIX[indices].T @ residual / len(indices)


def term(x: Any, i: int) -> tuple[float, Any]:
    return squares(x, np.arange(4 * i, 4 * i + 4))


def objectives(case: Case, at: int) -> list[tuple[Any, Any]]:
    """Pairs of an objective and the same that breaks."""
    pairs: list[tuple[Any, Any]] = [(ill_conditioned, Breaking(ill_conditioned, at))]
    if case.stochastic:
        pairs.append((FiniteSum(term, 10, seed=1), FiniteSum(Breaking(term, at), 10, seed=1)))
    if case.stochastic and case.cls.__name__ != "SAG":
        whole = Minibatches(squares, 40, 7, seed=1)
        pairs.append((whole, Minibatches(Breaking(squares, at), 40, 7, seed=1)))
    return pairs


def same_bits(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())


def same_results(one: Result, other: Result) -> None:
    assert same_bits(one.x, other.x) and same_bits(one.jac, other.jac)
    assert (one.fun, one.nit, one.nfev, one.outcome) == (
        other.fun,
        other.nit,
        other.nfev,
        other.outcome,
    )
    assert untimed(one) == untimed(other)


def untimed(result: Result) -> list[tuple[float, ...]]:
    return [(r.value, r.gradient_norm, r.step_size, r.evaluations) for r in result.history]


@pytest.mark.parametrize("case", cases(), ids=str)
@settings(max_examples=3)
@given(at=st.integers(1, 120), every=st.integers(1, 12))
def test_a_run_that_broke_off_ends_with_the_same_bits(case: Case, at: int, every: int) -> None:
    solver = case.make()
    for fun, breaking in objectives(case, at):
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            check_resumed(solver, fun, breaking, directory, every)


def check_resumed(solver: Solver, fun: Any, breaking: Any, directory: str, every: int) -> None:
    whole = solver.minimize(fun, START)
    seen: list[int] = []
    options: dict[str, Any] = {"checkpoint": directory, "every": every, "resume": True}
    options["callback"] = lambda state: seen.append(state.iteration)
    try:
        solver.minimize(breaking, START, **options)
    except Broken:
        seen.append(0)
    same_results(solver.minimize(fun, START, **options), whole)
    assert set(seen) - {0} == set(range(1, whole.nit + 1))
    if 0 in seen:
        before, after = seen[: seen.index(0)], seen[seen.index(0) + 1 :]
        assert len(set(before) & set(after)) < every
    count = len(seen)
    same_results(solver.minimize(fun, START, **options), whole)
    assert len(seen) == count, "a run that had come to its end went on"


@pytest.mark.parametrize("case", cases(), ids=str)
@settings(max_examples=2)
@given(cut=cuts(), at=st.integers(1, 40))
def test_parameters_in_several_arrays(case: Case, cut: Cut, at: int) -> None:
    solver, fun = case.make(max_iterations=15), cosh_of(cut)
    whole = list(solver.iterations(fun, cut.of(START)))
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        options: dict[str, Any] = {"checkpoint": directory, "every": 3, "resume": True}
        states: list[State] = []
        with contextlib.suppress(Broken):
            states += solver.iterations(Breaking(fun, at), cut.of(START), **options)
        rest = list(solver.iterations(fun, cut.of(START), **options))
    for resumed, expected in zip(reversed(rest), reversed(whole), strict=False):
        assert (resumed.iteration, resumed.value, resumed.evaluations, resumed.outcome) == (
            expected.iteration,
            expected.value,
            expected.evaluations,
            expected.outcome,
        )
        assert type(resumed.x) is type(expected.x)
        for one, other in zip(_leaves(resumed.x), _leaves(expected.x), strict=True):
            assert same_bits(one, other)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [leaf for part in parts for leaf in _leaves(part)]


def test_the_last_two_are_left(tmp_path: Path) -> None:
    cases()[0].make(max_iterations=7).minimize(ill_conditioned, START, checkpoint=tmp_path, every=2)
    names = sorted(path.name for path in tmp_path.glob("ckpt-*"))
    assert len(names) == 2 and names[-1] == "ckpt-00007.npz"
