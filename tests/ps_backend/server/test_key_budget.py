"""What comes as keys, and in fewer bytes than it is kept in, is within the memory of a server."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

import distvec as dv
from distvec.session import Session
from ps_backend.client import Client, KeyBatch
from ps_backend.errors import InvalidProgram
from ps_backend.in_process import in_process_transports
from ps_backend.kernels.keyed.index import KeyIndex
from ps_backend.program.row_program import RowProgram
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.keyed import encode_row_program

BUDGET = 4 << 20
MANY = np.arange(400_000)
"""Keys that travel in as many bytes, and take eight times that; their locations as much again."""


@pytest.fixture
def ps() -> Iterator[Session]:
    with Session(Client(in_process_transports(1, memory=BUDGET))) as ps:
        yield ps


def test_keys_beyond_the_memory_are_refused_before_they_are_read(ps: Session) -> None:
    space = ps.keys()
    w = space.zeros()
    w.push([1, 2], 1.0)
    used = ps.client.status()[0].used
    for call in (
        lambda: space.contains(MANY),
        lambda: space.remove(MANY),
        lambda: w.at(MANY).pull(),
        lambda: w.push(MANY, 1.0),
    ):
        with pytest.raises(dv.OutOfBudget, match="keys"):
            call()
    assert ps.client.status()[0].used <= used + 4096  # of what is remembered
    assert w.pull([1, 2, 3]).tolist() == [1.0, 1.0, 0.0] and len(space) == 2
    assert space.contains(MANY[:100_000]).sum() == 2


def test_rows_that_travel_narrowed_take_what_they_are(ps: Session) -> None:
    t = ps.keys().table(64, dtype="float64")
    used = ps.client.status()[0].used
    with pytest.raises(dv.OutOfBudget):  # 700 kB there, and 5 MB as they are
        t.pull(np.arange(10_000), wire="int8")
    assert ps.client.status()[0].used <= used + 4096  # of what is remembered
    assert not t.pull(np.arange(2000), wire="int8").any()


@pytest.mark.parametrize("size", [0, 8, 100, 1 << 16])
@pytest.mark.parametrize("count", [1 << 20, 1 << 40, 1 << 53])
def test_a_claim_that_cannot_be_takes_no_memory(ps: Session, size: int, count: int) -> None:
    w = ps.keys().zeros()
    w.push([5], 2.0)
    client, named = ps.client, pb.Keys(space=w.space.number, count=count, bytes=size)
    messages = [client._requests.message("remove_keys", keys=named)]
    for kind, program in (
        ("look_up", RowProgram.pull(w.type)),
        ("change_rows", RowProgram.scatter(w.type, "add")),
    ):
        body = encode_row_program(program, [w.number], (), full=True)
        body.keys.CopyFrom(named)
        messages.append(client._requests.message(kind))
        getattr(messages[-1].request, kind).CopyFrom(body)
    before = w.pull([5, 6]).tobytes()
    for message in messages:
        message.payload = [memoryview(bytes(size))]
        tracemalloc.start()
        try:
            with pytest.raises(
                (dv.PSError, ValueError), match=f"bytes are too few for {count} keys|no view"
            ):
                client._send({0: message})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1 << 20
    assert w.pull([5, 6]).tobytes() == before and len(w.space) == 1


def test_keys_of_a_range_take_no_memory_whatever_is_asked_of_them(ps: Session) -> None:
    space = ps.keys(range(1 << 45))
    remote = space.remote
    tracemalloc.start()
    try:
        with pytest.raises(InvalidProgram, match="the keys of a range cannot be removed"):
            remote.remove(KeyBatch.of([5]))
        version = remote.layout()[0].version
        assert remote.read_keys(0, version, 1 << 40, 3).tolist() == [2**40, 2**40 + 1, 2**40 + 2]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_new_keys_are_looked_up_once_however_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []
    find = KeyIndex.find

    def counted(index: KeyIndex, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        looked_up.append(len(keys))
        return find(index, keys)

    monkeypatch.setattr(KeyIndex, "find", counted)
    with dv.local(servers=1, in_process=True) as ps:
        w = ps.keys().zeros()
        view, other = w.at(np.arange(150_000)), w.at([5, 7])
        assert not other.pull().any()
        view.push(1.0)
        view.push(1.0)
        assert sum(looked_up) == 150_000 + 2
        assert other.pull().tolist() == [2.0, 2.0]  # others have inserted them meanwhile
        assert sum(looked_up) == 150_000 + 4
