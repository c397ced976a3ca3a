"""Bulk transfers through shared memory, and what happens where there is none."""

import fcntl
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client
from ps_backend.errors import OutOfBudget, ServerLost
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.commands.command import Payload
from ps_backend.server.endpoints import grpc_server as server_module
from ps_backend.server.endpoints import shared_memory as sharing
from ps_backend.server.endpoints.grpc_server import _Handler
from ps_backend.transport import GrpcTransport
from ps_backend.transport import shared_memory as segment
from ps_backend.transport.grpc_transport import SERVICE
from ps_backend.transport.shared_memory import (
    NEXT,
    SHARED_BYTES,
    SLOT_BYTES,
    SLOTS,
    WHOLE_BYTES,
    Segment,
    pieces,
)
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import chunk_frames
from tests.ps_backend.helpers import REPEATED, TOKEN, impatient, in_process, put, served
from tests.waiting import wait_for

SPACE = DenseSpace((2 * SLOTS + 1) * SLOT_BYTES // 8 + 3)  # each slot more than twice
X = np.random.default_rng(0).random(SPACE.length)


class Counting(GrpcTransport):
    """Counts the bulk transfers that went another way."""

    def __init__(self, address: str, **options) -> None:
        super().__init__(address, token=TOKEN, **options)
        self.streamed = 0

    def _between_hosts(self, *arguments):
        self.streamed += 1
        return super()._between_hosts(*arguments)


@pytest.fixture
def server():
    with served() as (running,):
        yield running


@pytest.fixture
def transport(server):
    return Counting(server.address)


@pytest.fixture
def client(transport):
    with Client([transport], retry=REPEATED) as made:
        yield made


def same(client, buffer, space, values):
    return client.read(buffer, array_type(space, values.dtype)).tobytes() == values.tobytes()


# --- what arrives ---------------------------------------------------------------------------------


@pytest.fixture
def others():
    """Segments that earlier tests of this process have left open, or will close meanwhile."""
    return memory_files(os.getpid())


def test_transfers_without_signs_and_with_them(others, client, transport):
    """As a whole in the slots, up to all of them; the segment goes from one way to the other."""
    for size in (SHARED_BYTES + 8, WHOLE_BYTES, WHOLE_BYTES + 8, SLOT_BYTES):
        space = DenseSpace(size // 8)
        x = put(client, space, X[: space.length])
        assert same(client, x, space, X[: space.length])
    assert transport.streamed == 0
    assert len(memory_files(os.getpid()) - others) == 1


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("slots", [1, 2, SLOTS, SLOTS + 1, 3 * SLOTS])
def test_everything_arrives(client, transport, slots, extra):
    space = DenseSpace(slots * SLOT_BYTES // 8 + extra)
    values = np.resize(X, space.length)
    client.counters.reset()
    assert same(client, put(client, space, values), space, values)
    assert transport.streamed == (2 if values.nbytes < SHARED_BYTES else 0)
    assert client.counters.messages == 2
    assert client.counters.bytes_sent > values.nbytes
    assert client.counters.bytes_received > values.nbytes


def test_sparse_bulk(client, transport):
    indices = np.random.default_rng(1).permutation(SPACE.length)
    x = put(client, SPACE, X)
    assert client.gather(x, array_type(SPACE, float), indices).tobytes() == X[indices].tobytes()
    y = client.new_id()
    client.scatter_add(x, y, array_type(SPACE, float), indices, X[indices], donate=False)
    assert same(client, y, SPACE, X + X)
    client.stage("r", 0, 0, SPACE, indices, X[indices])
    client.commit("r", [(0, 0)], array_type(SPACE, float), total := client.new_id())
    assert same(client, total, SPACE, X)
    assert transport.streamed == 0


def test_several_servers():
    with served(3) as servers:
        transports = [Counting(server.address) for server in servers]
        with Client(transports) as client:
            space = DenseSpace(3 * SLOT_BYTES)
            values = np.resize(X, space.length)
            assert same(client, put(client, space, values), space, values)
        assert [transport.streamed for transport in transports] == [0, 0, 0]


@given(st.lists(st.integers(0, 3 * SLOT_BYTES), max_size=4))
def test_pieces_fill_the_slots(sizes):
    whole = memoryview(bytes(3 * SLOT_BYTES))
    cut = [sum(map(len, piece)) for piece in pieces([whole[:size] for size in sizes])]
    assert sum(cut) == sum(sizes)
    assert all(size == SLOT_BYTES for size in cut[:-1])
    assert all(0 < size <= SLOT_BYTES for size in cut)


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_refused_transfer_harms_no_later_one():
    with served() as (server,):
        server.service.memory.budget = 3 * X.nbytes  # the segment needs some, too
        transport = Counting(server.address)
        with Client([transport]) as client:
            x, _ = put(client, SPACE, X), put(client, SPACE, X)
            for _ in range(3):
                with pytest.raises(OutOfBudget):
                    put(client, SPACE, X)
                assert same(client, x, SPACE, X)
            assert transport.streamed == 0


@pytest.mark.parametrize("method", ["fill", "take"])
def test_an_interrupted_transfer_harms_no_later_one(monkeypatch, client, transport, method):
    x = put(client, SPACE, X)
    before = transport._shared._segment

    def interrupted(self, *_):
        raise KeyboardInterrupt

    shared = transport._shared
    type = array_type(SPACE, X.dtype)
    if method == "fill":
        request = client._requests.write(0, type, None, X, target=5)[0]
    else:
        request = client._requests.read(x, type, None, np.empty_like(X))[0][0]
    with monkeypatch.context() as patch:
        patch.setattr(before, method, interrupted.__get__(before), raising=True)
        request.request.payload = sum(map(len, request.payload))
        with pytest.raises(KeyboardInterrupt):
            shared.transfer(request.request, request.payload, request.into)
    assert shared._segment is None
    assert same(client, x, SPACE, X)
    assert shared._segment is not before
    assert transport.streamed == 0


def test_a_server_that_stops_ends_a_transfer(client, server):
    x = put(client, SPACE, X)
    impatient(client)
    server.stop(0)
    with pytest.raises(ServerLost):
        put(client, SPACE, X)
    with pytest.raises(ServerLost):
        client.read(x, array_type(SPACE, float))


@pytest.mark.parametrize("way", ["shared", "in chunks"])
def test_a_push_whose_sender_left_is_not_recorded(way):
    """A repeat runs it; the failure of the connection is not the answer on record."""
    (transport,) = in_process(1)
    with Client([transport]) as client:
        message = client._requests.write(0, array_type(SPACE, X.dtype), None, X, target=5)[0]
        request = message.request
        request.sequence, request.payload = 500, X.nbytes

        def until_it_breaks(sign):
            yield sign
            raise grpc.RpcError

        if way == "shared":
            signs = until_it_breaks(NEXT)
            chunks = sharing._chunks(Segment.create(), X.nbytes, signs, SimpleQueue())
        else:
            chunks = server_module._chunks(until_it_breaks(next(chunk_frames(message.payload))))
        reply = transport.service.handle(request, Payload(X.nbytes, chunks)).reply
        assert reply.error.kind == "PayloadBroken"
        assert not transport.call(request, message.payload).reply.HasField("error")
        assert same(client, 5, SPACE, X)


def test_two_transfers_at_once(client, transport):
    """The second goes over gRPC rather than wait."""
    x = put(client, SPACE, X)
    with transport._shared._free:
        assert same(client, x, SPACE, X)
        assert transport.streamed == 1
    assert same(client, x, SPACE, X)
    assert transport.streamed == 1


def test_many_threads(client):
    x = put(client, SPACE, X)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(same(client, x, SPACE, X))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6


# --- where no memory is shared --------------------------------------------------------------------


def no_room(*_):
    raise OSError(28, "No space left on device")


def unknown_method(monkeypatch):
    table = _Handler.table

    def without(handler, *given):
        whole = table(handler, *given)
        whole._method_handlers.pop(f"/{SERVICE}/Shared")
        return whole

    monkeypatch.setattr(_Handler, "table", without)


@pytest.mark.parametrize("why", ["no memfd", "no room", "another host", "an older server"])
def test_streams_do_where_no_memory_is_shared(monkeypatch, why):
    if why == "no memfd":
        monkeypatch.delattr(os, "memfd_create")
    elif why == "no room":
        monkeypatch.setattr(os, "posix_fallocate", no_room)
    elif why == "another host":
        monkeypatch.setattr(Segment, "attach", lambda _: None)
    else:
        unknown_method(monkeypatch)
    with served() as (server,):
        transport = Counting(server.address)
        with Client([transport]) as client:
            client.counters.reset()
            assert same(client, put(client, SPACE, X), SPACE, X)
            assert transport.streamed == 2
            assert client.counters.messages == 2
    assert transport._shared._segment is None


def test_only_the_right_memory_is_attached(others, tmp_path):
    ours = Segment.create()
    there = ours.describe()
    assert Segment.attach(there) is not None

    def refused(**changes):
        changed = pb.Segment()
        changed.CopyFrom(there)
        for name, value in changes.items():
            setattr(changed, name, value)
        return Segment.attach(changed) is None

    assert refused(nonce=bytes(32))
    assert refused(nonce=b"")
    assert refused(pid=2**22 + 1)
    assert refused(pid=1)
    assert refused(file=9999)
    with (tmp_path / "file").open("wb+") as file:
        file.write(bytes(segment._SIZE))
        file.flush()
        assert refused(file=file.fileno())
    near, far = socket.socketpair()
    with near, far:
        assert refused(file=near.fileno())
    unsealed = os.memfd_create("x", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(unsealed, 0, segment._SIZE)
        os.pwrite(unsealed, segment._MAGIC + there.nonce, 0)
        assert refused(file=unsealed)
        os.ftruncate(unsealed, 4096)
        fcntl.fcntl(unsealed, fcntl.F_ADD_SEALS, segment._seals())
        assert refused(file=unsealed)
    finally:
        os.close(unsealed)
    assert len(memory_files(os.getpid()) - others) == 1
    with pytest.raises(PermissionError):
        os.ftruncate(ours._file, 0)


# --- what is left ---------------------------------------------------------------------------------


def memory_files(pid: int) -> set[int]:
    """The segments that a process has open."""
    if pid == os.getpid():
        gc.collect()
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if "memfd:distvec" in str(entry.readlink()):
                found.add(entry.stat().st_ino)
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


@pytest.mark.parametrize("space", [SPACE, DenseSpace(100_000)], ids=["pieces", "whole"])
def test_a_closed_client_leaves_nothing(others, space):
    with launch_local(1, memory=1 << 29) as servers:
        with Client.connect(servers.addresses, token=servers.token) as client:
            values = X[: space.length]
            assert same(client, put(client, space, values), space, values)
            assert len(memory_files(os.getpid()) - others) == 1
            assert len(memory_files(servers.pids[0])) == 1
        del client
        wait_for(lambda: not memory_files(os.getpid()) - others)  # its threads let go of it
        wait_for(lambda: not memory_files(servers.pids[0]))


PUSHER = """
import json, sys
import numpy as np
from ps_backend.client import Client
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type

told = json.loads(sys.stdin.readline())
space = DenseSpace(int(sys.argv[1]))
with Client.connect(told["addresses"], token=told["token"]) as client:
    while True:
        client.write(number := client.new_id(), space, np.ones(space.length))
        client.read(number, array_type(space, float))
        client.free([number])
        print("x", flush=True)
"""


@pytest.mark.parametrize("length", [5_000_000, 100_000])
def test_killed_clients_and_servers_leave_nothing(length):
    with launch_local(2, memory=1 << 29) as servers:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
        with subprocess.Popen(
            [sys.executable, "-c", PUSHER, str(length)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            told = {"addresses": servers.addresses, "token": servers.token}
            process.stdin.write(json.dumps(told) + "\n")
            process.stdin.flush()
            for _ in range(3):
                assert process.stdout.readline() == "x\n"
            process.kill()
        with Client.connect(servers.addresses, token=servers.token) as client:
            wait_for(lambda: client.status() and not any(map(memory_files, servers.pids)))
            assert same(client, put(client, SPACE, X), SPACE, X)
        os.kill(servers.pids[0], signal.SIGKILL)


def test_the_memory_of_a_server_is_not_the_segment():
    """What was pushed stays as it was when the slots are written again."""
    with served() as (server,), Client([Counting(server.address)]) as client:
        x = put(client, SPACE, X)
        y = put(client, SPACE, -X)
        assert same(client, x, SPACE, X)
        assert same(client, y, SPACE, -X)
