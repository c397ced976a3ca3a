"""Someone adds two commands: the functions below under ``@command()``, and nothing else."""

import struct

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import BufferLost, PSError
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.sessions import ServerSession
from ps_backend.transport import GrpcTransport
from ps_backend.wire import ps_pb2 as pb
from tests.architecture.apart import TOKEN, servers
from tests.ps_backend.helpers import REPEATED, Faulty, put

SPACE = DenseSpace(5000)
FLOATS = array_type(SPACE, float)
X = np.random.default_rng(0).standard_normal(SPACE.length)


@command(repeatable=True)
def largest(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """The largest value of an array and its index."""
    (array,) = request.custom.arrays
    part = session.part(array)
    values = session.store.get(array.buffer, part).array
    where = int(values.argmax())
    return Response(pb.Reply(custom=struct.pack("<dq", values[where], part.low + where)))


@command()
def swap(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Two arrays change names. To do that twice is to do nothing."""
    numbers = [array.buffer for array in request.custom.arrays]
    first, second = (session.store.get(a.buffer, session.part(a)) for a in request.custom.arrays)
    session.store.free(numbers)
    session.store.put(dict(zip(numbers, (second, first), strict=True)))
    return Response(pb.Reply())


COMMANDS = (largest, swap)


@pytest.fixture(scope="module")
def addresses():
    with servers("test_a_new_command") as addresses:
        yield addresses


def test_it_is_asked_for_by_its_name(addresses):
    with Client.connect(addresses, token=TOKEN) as client:
        x = put(client, SPACE, X)
        client.counters.reset()
        found = [struct.unpack("<dq", f) for f in client.call("largest", b"", [(x, FLOATS)])]
        assert client.counters.messages == 1
        assert max(found) == (X.max(), X.argmax())


def test_repeated_after_a_lost_reply_it_runs_once(addresses):
    lost = []

    def lose_the_first(request):
        lost.append(request.custom.name)
        return "lose reply" if lost.count("swap") == 1 and lost[-1] == "swap" else "ok"

    transports = [
        Faulty(GrpcTransport(address, token=TOKEN), lose_the_first) for address in addresses
    ]
    with Client(transports, retry=REPEATED) as client:
        x, y = put(client, SPACE, X), put(client, SPACE, -X)
        client.call("swap", b"", [(x, FLOATS), (y, FLOATS)])
        assert lost.count("swap") == 3
        assert client.read(x, FLOATS).tobytes() == (-X).tobytes()
        assert client.read(y, FLOATS).tobytes() == X.tobytes()


def test_what_it_raises_is_raised_by_who_called(addresses):
    with Client.connect(addresses, token=TOKEN) as client:
        with pytest.raises(BufferLost, match="buffer 77 is not on this server"):
            client.call("largest", b"", [(77, FLOATS)])
        with pytest.raises(PSError, match="has no command 'smallest'"):
            client.call("smallest")
