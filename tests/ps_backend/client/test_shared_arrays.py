"""What is written in place is no buffer: neither a program nor a read takes it for one."""

import threading

import numpy as np
import pytest

from ps_backend.client import Change, Client, SharedArray, Total
from ps_backend.errors import BufferLost, InvalidProgram, OutOfBudget
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.program.types import array_type
from tests.ps_backend.helpers import AXPY, axpy, dot, put, share
from tests.waiting import join_all

SPACE = DenseSpace(5000)
F8 = array_type(SPACE, float)
START = np.arange(5000.0)
INDICES, ONES = np.array([0, 4999]), np.ones(2)

IS_SHARED = r"array \d+ is shared and changes in place, .* read a snapshot of it"
IS_BUFFER = r"buffer \d+ is immutable; share it"

ACCIDENTS = {
    "a program's input": lambda client, x, shared: client.run(dot(SPACE, shared, x)),
    "a program's donor": lambda client, x, shared: client.run(
        Program((SweepCall(AXPY, SPACE, (shared, x), (2.0,), (client.new_id(),), (shared,)),))
    ),
    "a read": lambda client, x, shared: client.read(shared, F8),
    "a gather": lambda client, x, shared: client.gather(shared, F8, INDICES),
    "a source to add to": lambda client, x, shared: client.scatter_add(
        shared, client.new_id(), F8, INDICES, ONES, donate=False
    ),
    "memory to add in": lambda client, x, shared: client.scatter_add(
        shared, client.new_id(), F8, INDICES, ONES, donate=True
    ),
    "the source of a round": lambda client, x, shared: client.commit_totals(
        "r", [Total(client.new_id(), F8, [], source=shared)]
    ),
    "something to share": lambda client, x, shared: client.share(
        [shared], [SharedArray(client.new_id(), F8)]
    ),
}


@pytest.mark.parametrize("accident", ACCIDENTS.values(), ids=ACCIDENTS.keys())
def test_a_shared_array_is_not_taken_for_a_buffer(connect, accident):
    client = connect(2)
    x, shared = put(client, SPACE, START), share(client, SPACE, START)
    with pytest.raises(InvalidProgram, match=IS_SHARED):
        accident(client, x, shared.number)
    client.update(shared, INDICES, ONES)
    assert (client.pull(shared, INDICES) == START[INDICES] + 1).all(), "it is as it was"
    assert (client.read(x, F8) == START).all()


@pytest.mark.parametrize("what", ["update", "pull", "pull all", "snapshot", "end", "tick", "loop"])
def test_a_buffer_is_not_taken_for_a_shared_array(connect, what):
    client = connect(2)
    x = SharedArray(put(client, SPACE, START), F8)
    loop = client.loop("l")
    loop.open(1, 0)
    loop.join(0, 1)
    actions = {
        "update": lambda: client.update(x, INDICES, ONES),
        "pull": lambda: client.pull(x, INDICES),
        "pull all": lambda: client.pull(x),
        "snapshot": lambda: client.snapshot([x], [client.new_id()]),
        "end": lambda: client.snapshot([x], [client.new_id()], last=True),
        "tick": lambda: loop.tick(0, 1, 0, {x: _everywhere()}),
        "loop": lambda: loop.pull(0, 1, 0, x, None),
    }
    with pytest.raises(InvalidProgram, match=IS_BUFFER):
        actions[what]()
    assert (client.read(x.number, F8) == START).all()


def _everywhere():
    return Change(None, np.ones(SPACE.length))


def test_a_loop_changes_shared_arrays_only_in_place(connect):
    client = connect(2)
    shared, loop = share(client, SPACE, START), client.loop("l")
    loop.open(1, 0)
    loop.join(0, 1)
    loop.tick(0, 1, 0, {shared: _everywhere()})
    with pytest.raises(InvalidProgram, match=IS_SHARED):
        client.run(dot(SPACE, shared.number, shared.number))
    loop.close()
    number = client.new_id()
    client.snapshot([shared], [number], last=True)
    assert (client.read(number, F8) == START + 1).all()
    (partials,) = client.run(dot(SPACE, number, number))
    assert sum(partials[0]) == (START + 1) @ (START + 1)


def test_a_snapshot_is_a_buffer_and_stays(connect):
    client = connect(3)
    shared, number, result = share(client, SPACE, START), client.new_id(), client.new_id()
    client.update(shared, INDICES, ONES)
    client.snapshot([shared], [number])
    client.update(shared, INDICES, ONES)
    expected = START.copy()
    expected[INDICES] += 1
    assert (client.read(number, F8) == expected).all()
    assert (client.pull(shared, INDICES) == expected[INDICES] + 1).all()
    client.run(axpy(SPACE, 1.0, number, number, result))
    assert (client.read(result, F8) == 2 * expected).all()


def test_after_the_last_snapshot_nobody_adds_any_more(connect):
    client = connect(2)
    shared, other = share(client, SPACE, START), share(client, SPACE, -START)
    before = [status.used for status in client.status()]
    numbers = [client.new_id(), client.new_id()]
    client.counters.reset()
    client.snapshot([shared, other], numbers, last=True)
    assert client.counters.messages == 1, "to each server, for all arrays"
    assert [status.used for status in client.status()] == before, "in the same memory"
    for late in (
        lambda: client.update(shared, INDICES, ONES),
        lambda: client.pull(other),
        lambda: client.snapshot([shared], [client.new_id()]),
    ):
        with pytest.raises(BufferLost):
            late()
    assert (client.read(numbers[0], F8) == START).all()
    assert (client.read(numbers[1], F8) == -START).all()


def test_a_snapshot_among_many_updates_is_of_one_moment_and_loses_none(connect):
    """Each update adds one everywhere; those that come too late for the last snapshot say so."""
    owner = connect(1)
    shared = share(owner, SPACE, np.zeros(SPACE.length))
    everywhere, ones = np.arange(SPACE.length), np.ones(SPACE.length)
    workers = [Client(owner._transports, session=owner.secret) for _ in range(3)]
    counted = []

    def work(worker):
        while True:
            try:
                worker.update(shared, everywhere, ones)
            except BufferLost:
                return
            counted.append(1)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for number in [owner.new_id() for _ in range(10)]:
        owner.snapshot([shared], [number])
        found = owner.read(number, F8)
        assert (found == found[0]).all()
    last = owner.new_id()
    owner.snapshot([shared], [last], last=True)
    join_all(*threads)
    assert (owner.read(last, F8) == len(counted)).all()


def test_ids_are_taken_by_either_kind():
    with connect_in_process(1) as client:
        x, shared = put(client, SPACE, START), share(client, SPACE, START)
        for taken in (x, shared.number):
            for make in (
                lambda taken=taken: client.write(taken, SPACE, START),
                lambda taken=taken: client.share([x], [SharedArray(taken, F8)]),
                lambda taken=taken: client.snapshot([shared], [taken]),
                lambda taken=taken: client.snapshot([shared], [taken], last=True),
            ):
                with pytest.raises(InvalidProgram, match="exists already"):
                    make()
        assert (client.pull(shared) == START).all()


def test_what_one_server_has_no_room_for_is_shared_on_none():
    with connect_in_process(2, memory=60_000) as client:
        x, number = put(client, SPACE, START), client.new_id()
        filler = put(client, DenseSpace(1000), np.ones(1000))  # one block, on the first server
        with pytest.raises(OutOfBudget):
            client.share([x], [SharedArray(number, F8)])
        client.free([filler])
        client.share([x], [SharedArray(number, F8)])
        assert (client.pull(SharedArray(number, F8)) == START).all()
