"""Threads that share an array: no change is lost, and what is read was there at one moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import distvec as dv
from distvec.spark.rounds import round as rounds
from distvec.spark.task_session import Report
from tests.waiting import PATIENCE

LENGTH = 1 << 17
"""Large enough for vectors to be written in place."""
THREADS, TIMES = 4, 15


@pytest.fixture(scope="module", params=[True, False], ids=["in process", "processes"])
def shared(request: pytest.FixtureRequest) -> Iterator[dv.Session]:
    with dv.local(servers=2, in_process=request.param) as session:
        yield session


def together(*actions: Callable[[], Any]) -> list[Any]:
    """Run each in a thread of its own, from a common start; their results."""
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        start.wait(PATIENCE)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


def push_all(x: dv.DistArray) -> None:
    x.push(np.arange(LENGTH), 1.0)


def add_in_place(x: dv.DistArray) -> None:
    x += 1.0


def add_in_place_and_persist(x: dv.DistArray) -> None:
    x += 1.0
    x.persist()


def commit_a_round(x: dv.DistArray) -> None:
    """As the end of ``with ps.round(x)`` does, after one task that added one everywhere."""
    ps = x.session
    name = f"round {ps.client.new_id()}"
    ps.client.stage(name, 0, 1, x.space, None, np.ones(LENGTH))
    rounds.commit(ps, rounds.Slots.of([x])[0], "add", name, [Report(0, 0, 0, 1, 1, [1])])


CHANGES = [push_all, add_in_place, add_in_place_and_persist, commit_a_round]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_counts(shared: dv.Session, change: Callable[[dv.DistArray], None]) -> None:
    x = shared.zeros(LENGTH)
    together(*[lambda: [change(x) for _ in range(TIMES)]] * THREADS)
    assert (x.numpy() == THREADS * TIMES).all()


def test_changes_of_all_kinds_count(shared: dv.Session) -> None:
    x = shared.zeros(LENGTH)
    together(*[lambda c=change: [c(x) for _ in range(TIMES)] for change in CHANGES])
    assert (x.numpy() == len(CHANGES) * TIMES).all()


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_read_was_there_at_one_moment(
    shared: dv.Session, change: Callable[[dv.DistArray], None]
) -> None:
    x = shared.zeros(LENGTH).persist()
    over = threading.Event()

    def write() -> None:
        try:
            for _ in range(2 * TIMES):
                change(x)
        finally:
            over.set()

    def read() -> list[float]:
        seen = []
        while not over.is_set():
            values = x.numpy()
            assert (values == values[0]).all()
            few = x.pull([0, LENGTH // 2, LENGTH - 1])
            assert (few == few[0]).all()
            total, mean = dv.sum(x), x.mean()
            dv.evaluate(total, mean)
            assert float(total) % LENGTH == 0
            assert float(mean) >= values[0]
            seen.append(float(values[0]))
        return seen

    _, *seen = together(write, read, read)
    assert all(one == sorted(one) for one in seen)
    assert (x.numpy() == 2 * TIMES).all()


def test_an_assignment_is_seen_whole(shared: dv.Session) -> None:
    values = [shared.full(LENGTH, float(k)).persist() for k in range(3)]
    x = shared.zeros(LENGTH).persist()

    def assign(k: int) -> None:
        for _ in range(TIMES):
            x[:] = values[k]

    def read() -> None:
        for _ in range(TIMES):
            found = x.numpy()
            assert (found == found[0]).all()

    together(lambda: assign(1), lambda: assign(2), read, lambda: [push_all(x) for _ in range(5)])
    assert all((one.numpy() == k).all() for k, one in enumerate(values)), "these are not changed"


def test_an_expression_built_during_a_push_has_the_value_before_or_after(
    shared: dv.Session,
) -> None:
    x = shared.zeros(LENGTH).persist()

    def build() -> list[dv.DistArray]:
        return [x * 2.0 for _ in range(TIMES)]

    _, built = together(lambda: [push_all(x) for _ in range(TIMES)], build)
    for one in built:
        values = one.numpy()
        assert (values == values[0]).all()


def test_two_arrays_are_committed_without_a_deadlock(shared: dv.Session) -> None:
    """Two rounds over the same arrays, given in opposite order."""
    x, y = shared.zeros(LENGTH), shared.zeros(LENGTH)

    def commit(*arrays: dv.DistArray) -> None:
        for _ in range(TIMES):
            name = f"round {shared.client.new_id()}"
            for slot in range(2):
                shared.client.stage(name, 0, 1, x.space, None, np.ones(LENGTH), slot=slot)
            slots, _ = rounds.Slots.of(arrays)
            rounds.commit(shared, slots, "add", name, [Report(0, 0, 0, 1, 1, [1, 1])])

    together(lambda: commit(x, y), lambda: commit(y, x))
    assert (x.numpy() == 2 * TIMES).all()
    assert (y.numpy() == 2 * TIMES).all()
