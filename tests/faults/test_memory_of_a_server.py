"""What a server holds is what it says it holds, and goes with the session."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import OutOfBudget, PSError
from ps_backend.in_process import InProcess, in_process_transports
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.program.types import array_type
from ps_backend.server.service import Service
from ps_backend.server.state.memory import BLOCK_OVERHEAD
from ps_backend.transport import GrpcTransport
from ps_backend.transport.shared_memory import WHOLE_BYTES, Segment
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import PROTOCOL, Total, Winner, session_name
from tests.ps_backend.helpers import AXPY, put
from tests.ps_backend.requests import Sender, ask, barrier
from tests.waiting import PATIENCE

MB = 1 << 20
BUDGET = 256 * MB
SPACE = DenseSpace(1000)
FLOATS = array_type(SPACE, float)


class Process:
    """A server process, and how much it has grown since it was warm."""

    def __init__(self, address: str, token: str, pid: int) -> None:
        self.pid = pid
        self.transport = GrpcTransport(address, token=token)
        self._number = 0

    def ask(self, session: str = "s", client: str = "c", payload: bytes = b"", **body) -> pb.Reply:
        self._number += 1
        number = self._number
        name = session_name(session)
        request = pb.Request(session=name, client=client, sequence=number, settled=number, **body)
        return self.transport.call(request, (memoryview(payload),) if payload else ()).reply

    def open(self, session: str = "s", client: str = "c") -> pb.Reply:
        opening = pb.Open(protocol=PROTOCOL, index=0, servers=1, create=True, secret=session)
        return self.ask(session, client, open=opening)

    @property
    def used(self) -> int:
        return self.ask(status=pb.StatusQuery()).status.used

    def resident(self) -> int:
        with open(f"/proc/{self.pid}/statm") as statm:
            return int(statm.read().split()[1]) * 4096


@pytest.fixture
def process() -> Iterator[Process]:
    with launch_local(1, memory=BUDGET) as servers:
        made = Process(servers.addresses[0], servers.token, servers.pids[0])
        made.open()
        made.open("warm")
        asked(made, "t", 1, "warm")
        for key in range(20):  # messages as large as those to come
            made.ask("warm", contribute=answer_to("t", 1, key, bytes(50_000)))
        made.ask("warm", end=pb.End(barrier=barrier("mailbox", "t")))
        made.ask(status=pb.StatusQuery())  # the first one tries all functions, and imports SciPy's
        yield made
        made.transport.close()


def tiny_buffers(server: Process) -> None:
    for k in range(4000):
        array = pb.Array(space=pb.Space(kind="dense", length=1), dtype="float64")
        server.ask(write=pb.Write(rows=pb.Rows(array=array), target=k + 1), payload=bytes(8))


def asked(server: Process, mailbox: str, question: int, session: str = "s", size: int = 1) -> None:
    server.ask(session, wait=ask(mailbox, question, value=bytes(size)))


def answer_to(mailbox: str, question: int, key: int, value: bytes) -> pb.Contribute:
    called = barrier("mailbox", mailbox)
    return pb.Contribute(barrier=called, turn=question, member=key, value=value)


def questions(server: Process) -> None:
    for k in range(2000):
        asked(server, f"{k:0>400}", 1, size=4096)


def answers(server: Process) -> None:
    for k in range(40):
        asked(server, f"t{k}", 1)
        for key in range(k * 10, k * 10 + 10):
            server.ask(contribute=answer_to(f"t{k}", 1, key, bytes(50_000)))


def small_answers(server: Process) -> None:
    asked(server, "t", 1)
    for key in range(8000):
        server.ask(contribute=answer_to("t", 1, key, b"a"))


def loops(server: Process) -> None:
    for k in range(20):
        server.ask(join=pb.Join(barrier=barrier("loop", f"l{k}"), ranks=10_000))


def clocks(server: Process) -> None:
    loop = barrier("loop", "l")
    server.ask(join=pb.Join(barrier=loop, ranks=2, staleness=0))
    server.ask(join=pb.Join(barrier=loop, attempt=1))
    array = pb.Array(buffer=1, space=pb.Space(kind="dense", length=1), dtype="float64")
    new = pb.Rows(array=pb.Array(space=array.space, dtype="float64"))
    server.ask(write=pb.Write(rows=new, target=1), payload=bytes(8))
    server.ask(copy=pb.Copy(share=True, arrays=[array], targets=[1 << 40]))
    array.buffer = 1 << 40
    for k in range(3000):
        add = [pb.Rows(array=array)] if k % 2 else []
        tick = pb.Contribute(barrier=loop, attempt=1, turn=k, rows=add)
        server.ask(contribute=tick, payload=bytes(8 * len(add)))


def sessions(server: Process) -> None:
    for k in range(2000):
        server.open(f"session {k}")


def clients(server: Process) -> None:
    for k in range(4000):
        server.open("s", f"client {k}")


def replies(server: Process) -> None:
    for k in range(150):
        server.open("s", f"client {k}")
        for number in range(1, 31):
            drop = pb.End(barrier=barrier("round", f"{k} {number} {'x' * 300}"))
            server.transport.call(
                pb.Request(
                    session=session_name("s"),
                    client=f"client {k}",
                    sequence=number,
                    end=drop,
                )
            )


def staged(server: Process) -> None:
    array = pb.Array(space=pb.Space(kind="dense", length=10), dtype="float64")
    for k in range(3000):
        stage = pb.Contribute(barrier=barrier("round", "r"), member=k, rows=[pb.Rows(array=array)])
        server.ask(contribute=stage, payload=bytes(80))


def test_what_a_server_grows_by_is_counted(process):
    """Case by case, all in one process: nothing is freed meanwhile, so nothing is used again."""
    fills = (
        tiny_buffers,
        questions,
        answers,
        small_answers,
        loops,
        clocks,
        sessions,
        clients,
        replies,
        staged,
    )
    for fill in fills:
        before, used = process.resident(), process.used
        fill(process)
        grown, counted = process.resident() - before, process.used - used
        told = f"{fill.__name__}: {grown / MB:.1f} MiB grown, {counted / MB:.1f} counted"
        assert grown < counted + 6 * MB, told
        assert counted > MB, told
        assert process.used < BUDGET
    for session in ("s", "warm", *(f"session {k}" for k in range(2000))):
        process.ask(session, close=pb.Close(session=True))
    assert process.used == 0


def test_memory_is_shared_with_clients_that_joined_alone(process):
    segments = [Segment.create() for _ in range(6)]
    used = process.used
    array = pb.Array(buffer=1, space=pb.Space(kind="dense", length=10), dtype="float64")
    for k, segment in enumerate(segments):
        read = {"read": pb.Read(rows=pb.Rows(array=array)), "segment": segment.describe()}
        assert process.ask("s", f"nobody {k}", **read).error.kind == "SessionUnknown"
    assert process.used == used
    for k, segment in enumerate(segments):
        process.open("s", f"client {k}")
        process.ask(
            "s", f"client {k}", read=pb.Read(rows=pb.Rows(array=array)), segment=segment.describe()
        )
    assert (process.used - used) // WHOLE_BYTES == 4, "a quarter of the budget"
    process.ask("s", close=pb.Close(session=True))
    process.ask("warm", close=pb.Close(session=True))
    assert process.used == 0


def test_what_is_announced_and_does_not_come_takes_nothing(process):
    used = process.used
    array = pb.Array(space=pb.Space(kind="dense", length=200 * MB // 8), dtype="float64")
    header = pb.Request(
        session=session_name("s"),
        client="c",
        sequence=99,
        payload=200 * MB,
        write=pb.Write(rows=pb.Rows(array=array), target=1),
    )
    streams = [_announce(process, header) for _ in range(4)]
    try:
        assert process.used == used
    finally:
        for stream in streams:
            stream.cancel()


def _announce(process: Process, header: pb.Request):
    sent, end = threading.Event(), threading.Event()

    def frames() -> Iterator[bytes]:
        yield header.SerializeToString()
        sent.set()
        end.wait(PATIENCE)

    stream = process.transport._stream(frames(), metadata=process.transport._metadata)
    stream.add_callback(end.set)
    assert sent.wait(PATIENCE)
    return stream


# --- pushes and rounds ----------------------------------------------------------------------------


def transports(servers: int, memory: int) -> list[InProcess]:
    return in_process_transports(servers, memory=memory)


def test_a_push_beyond_the_budget_is_refused_and_changes_nothing():
    made = transports(2, 4 * MB)
    made[1].service.memory.budget = 2 * MB
    with Client(made) as client:
        x = put(client, SPACE, np.ones(SPACE.length))
        where = np.tile(np.arange(SPACE.length), 300)
        with pytest.raises(OutOfBudget, match="staging"):
            client.scatter_add(x, client.new_id(), FLOATS, where, where * 1.0, donate=True)
        np.testing.assert_array_equal(client.read(x, FLOATS), np.ones(SPACE.length))
        assert [server.used < 65536 for server in client.status()] == [True, True]


def test_a_large_push_has_the_bits_of_a_small_one_and_leaves_nothing():
    with Client(transports(2, 64 * MB)) as client:
        rng = np.random.default_rng(3)
        where, values = rng.integers(0, SPACE.length, 400_000), rng.normal(size=400_000)
        x = put(client, SPACE, np.zeros(SPACE.length))
        used = sum(server.used for server in client.status())
        client.counters.reset()
        client.scatter_add(x, y := client.new_id(), FLOATS, where, values, donate=True)
        assert client.counters.messages == 2, "the array is one server's"
        expected = np.zeros(SPACE.length)
        np.add.at(expected, where, values)
        assert client.read(y, FLOATS).tobytes() == expected.tobytes()
        assert sum(server.used for server in client.status()) < used + 8192


@pytest.mark.parametrize("servers", [1, 3])
def test_contributions_are_freed_with_the_commit(servers):
    space = DenseSpace(300_000)
    with Client(transports(servers, 256 * MB)) as client:
        for partition in range(4):
            client.stage("r", partition, 0, space, None, np.ones(space.length))
        target = client.new_id()
        client.commit("r", [(k, 0) for k in range(4)], array_type(space, float), target)
        used = sum(server.used for server in client.status())
        assert used < 8 * space.length + 65536
        np.testing.assert_array_equal(
            client.read(target, array_type(space, float)), np.full(300_000, 4.0)
        )


def test_a_commit_that_another_server_refuses_is_taken_back_with_its_contributions():
    space = DenseSpace(300_000)
    made = transports(3, 256 * MB)
    with Client(made) as client:
        for partition in range(4):
            client.stage("r", partition, 0, space, None, np.ones(space.length))
        budget, made[2].service.memory.budget = made[2].service.memory.budget, 1
        winners = [(k, 0) for k in range(4)]
        with pytest.raises(OutOfBudget):
            client.commit("r", winners, array_type(space, float), client.new_id())
        made[2].service.memory.budget = budget
        client.commit("r", winners, array_type(space, float), target := client.new_id())
        np.testing.assert_array_equal(
            client.read(target, array_type(space, float)), np.full(300_000, 4.0)
        )


def test_a_closed_session_leaves_nothing():
    made = transports(2, 256 * MB)
    with Client(made) as client:
        space = DenseSpace(300_000)
        x = put(client, space, np.ones(space.length))
        sweep = SweepCall(AXPY, space, (x, x), (2.0,), (client.new_id(),))
        client.run(Program((sweep,)))
        client.stage("r", 0, 0, space, None, np.ones(space.length))
        client.mailbox("t").ask(b"value").answers(0, 0.0)
        with pytest.raises(PSError):
            client.commit_totals("r", [Total(9, array_type(space, float), [Winner(5, 5)])])
        client.loop("l").open(4, 0)
    gc.collect()
    assert [transport.service.memory.used for transport in made] == [0, 0]


def test_a_tiny_buffer_counts_with_what_it_costs():
    sender = Sender(Service(memory=MB))
    before = sender.service.memory.used
    for k in range(1, 101):
        sender.write(k, np.ones(1))
    assert sender.service.memory.used - before >= 100 * (8 + BLOCK_OVERHEAD)
