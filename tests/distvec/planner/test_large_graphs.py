"""Graphs of fifty thousand pending operations: no recursion, no quadratic time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv
from tests.samples import marked

LARGE = 50_000

Build = Callable[[Any, int], tuple[list[Any], float]]
"""From a vector of ones and a number of operations: what to compute, and an element of the last."""


def chain(x: Any, n: int) -> tuple[list[Any], float]:
    y = x
    for _ in range(n):
        y = y + 1.0
    return [y], n + 1.0


def fan(x: Any, n: int) -> tuple[list[Any], float]:
    return [x + float(k) for k in range(n)], float(n)


def tree(x: Any, n: int) -> tuple[list[Any], float]:
    level = [x * float(k) for k in range(n // 2)]
    total = sum(range(n // 2))
    while len(level) > 1:
        pairs = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[2 * len(pairs) :]
    return level, float(total)


def shared(x: Any, n: int) -> tuple[list[Any], float]:
    """Each is used twice by the next: as a tree it would have 2^n nodes."""
    y = x
    for _ in range(n // 2):
        y = 0.5 * (y + y)
    return [y], 1.0


def scalars(x: Any, n: int) -> tuple[list[Any], float]:
    s = x.sum()
    for _ in range(n):
        s = s + 1.0
    return [s], n + 3.0


def reductions(x: Any, n: int) -> tuple[list[Any], float]:
    return [(x * float(k)).sum() for k in range(n // 2)], 3.0 * (n // 2 - 1)


def held(x: Any, n: int) -> tuple[list[Any], float]:
    """A variable holds every link of a chain."""
    made = [x]
    for _ in range(n):
        made.append(made[-1] + x)
    return made, n + 1.0


def coefficients(x: Any, n: int) -> tuple[list[Any], float]:
    """A linear combination whose coefficient is a chain of lazy scalars, in an inner product."""
    s, y = (x + 1.0).sum() / 6.0, x
    for _ in range(n):
        y = y + s * x
    return [y @ x], 3.0 * (n + 1.0)


@pytest.fixture
def unbounded(ps: dv.Session) -> dv.Session:
    """A session that sends nothing off by itself."""
    ps.pending_depth = ps.pending_nodes = 10 * LARGE
    return ps


def last_element(array: Any) -> float:
    return float(np.ravel(array.numpy())[-1])


@pytest.mark.parametrize("build", marked([chain, fan, shared, scalars], long=[fan, scalars]))
def test_fifty_thousand_operations(unbounded: dv.Session, build: Build) -> None:
    arrays, expected = build(unbounded.array(np.ones(3)), LARGE)
    assert unbounded.counters.programs == 0
    dv.evaluate(*arrays)
    assert last_element(arrays[-1]) == expected


def calls_of(action: Callable[[], object]) -> int:
    """Calls of Python and C functions: the same in every run, unlike seconds."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    "build",
    [
        chain,
        fan,
        tree,
        shared,
        scalars,
        reductions,
        held,
        coefficients,
    ],
)
def test_time_grows_with_the_number_of_operations(unbounded: dv.Session, build: Build) -> None:
    """Four times as many operations: at most six times as many calls to evaluate them."""
    calls = []
    for n in (200, 800):
        arrays, expected = build(unbounded.array(np.ones(3)), n)
        calls.append(calls_of(lambda last=arrays[-1]: dv.evaluate(last)))
        assert last_element(arrays[-1]) == pytest.approx(expected)
    assert calls[1] < 6 * calls[0]
