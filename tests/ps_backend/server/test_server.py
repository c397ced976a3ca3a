"""The door of a server: who gets in, and what garbage does."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import grpc
import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.client.status import server_status, status_table
from ps_backend.errors import AuthenticationError, PSError, ServerLost
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.commands.command import Payload
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.server.service import Service
from ps_backend.transport.grpc_transport import SERVICE, TOKEN_KEY
from ps_backend.transport.tls import open_channel
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array
from ps_backend.wire.protocol import PROTOCOL, session_name
from tests.ps_backend.helpers import TOKEN, put, served
from tests.waiting import PATIENCE

SPACE = DenseSpace(3000)


@pytest.mark.parametrize(
    ("token", "text"),
    [(None, "a token is needed"), ("", "wrong"), ("not it", "the token is wrong")],
)
def test_without_the_token_nobody_gets_in(token, text):
    with served() as (server,):
        with pytest.raises(AuthenticationError, match=text) as caught:
            Client.connect([server.address], token=token)
        assert "pass" in str(caught.value)
        assert TOKEN not in str(caught.value)
        assert server.service.status().sessions == 0


@pytest.mark.parametrize("method", ["Call", "Stream", "Shared"])
def test_the_token_comes_before_the_request(method):
    """Without a token even garbage is only told that a token is needed."""
    with served() as (server,), open_channel(server.address, (), None, TOKEN) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            send(channel, method, b"\xff garbage", None)
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("method", ["Call", "Stream", "Shared"])
def test_garbage_in_a_message_is_refused(method):
    with served() as (server,), open_channel(server.address, (), None, TOKEN) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            send(channel, method, b"\xff garbage", [(TOKEN_KEY, TOKEN)])
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert server_status([server.address], token=TOKEN)[0].sessions == 0


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000, bytes(range(256)) * 99]
)
def test_garbage_on_the_port_harms_nobody(garbage):
    with served() as (server,), Client.connect([server.address], token=TOKEN) as client:
        x = put(client, SPACE, np.ones(SPACE.length))
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as raw:
            raw.sendall(garbage)
        assert client.read(x, array_type(SPACE, float)).sum() == SPACE.length


def send(channel, method, data, metadata):
    path = f"/{SERVICE}/{method}"
    if method == "Call":
        return channel.unary_unary(path, None, None)(data, metadata=metadata, timeout=PATIENCE)
    return next(
        channel.stream_stream(path, None, None)(iter([data]), metadata=metadata, timeout=PATIENCE)
    )


def test_requests_that_make_no_sense_get_errors():
    service = Service(memory=1 << 20)

    def error(**fields):
        return service.handle(pb.Request(**fields), Payload(0, ())).reply.error

    assert "does not support the request" in error().message
    assert error(nothing=pb.Nothing()).kind == "SessionUnknown"
    old = error(open=pb.Open(protocol=99, create=True))
    assert "version 99 of the protocol" in old.message
    name, opening = (
        session_name("s"),
        pb.Open(protocol=PROTOCOL, servers=1, create=True, secret="s"),
    )
    service.handle(pb.Request(session=name, client="c", open=opening), Payload(0, ()))
    assert error(session=name, client="other", nothing=pb.Nothing()).kind == "SessionUnknown"
    wrong = pb.Array(space=pb.Space(kind="dense", length=3), dtype="object")
    assert (
        error(session=name, client="c", read=pb.Read(rows=pb.Rows(array=wrong))).kind == "TypeError"
    )


def test_a_port_in_use_is_named():
    text = r"port \d+ on 127\.0\.0\.1 is in use; choose another with --port, or --port 0"
    with served() as (server,), pytest.raises(OSError, match=text):
        Server(Service(memory=1), port=server.port, token=TOKEN)


def test_an_address_of_another_machine_cannot_be_served():
    with pytest.raises(OSError, match=r"203\.0\.113\.1"):
        Server(Service(memory=1), host="203.0.113.1", token=TOKEN)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_open_door_to_the_network_is_refused(host):
    with pytest.raises(ValueError, match="needs a token"):
        Server(Service(memory=1), host=host, token=None)


@pytest.mark.parametrize("token", ["två", "a\nb", " padded"])
def test_a_token_that_cannot_be_sent_is_refused(token):
    with pytest.raises(ValueError, match="printable ASCII") as caught:
        Client.connect(["127.0.0.1:1"], token=token)
    assert token not in str(caught.value)


def test_the_loopback_may_go_without_a_token():
    with served(token=None) as (server,), Client.connect([server.address], token=None) as client:
        put(client, SPACE, np.ones(SPACE.length))


def test_nobody_there_is_said_in_time():
    with socket.socket() as idle:
        idle.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{idle.getsockname()[1]}"
        with pytest.raises(ServerLost, match=f"server {address} does not answer"):
            Client.connect([address], token=TOKEN, timeout=0.3)


def test_another_server_is_not_taken_for_ours():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever).start()
        with pytest.raises(PSError, match="not a distvec server"):
            Client.connect([f"127.0.0.1:{other.server_port}"], token=TOKEN)
        other.shutdown()


def test_grpc_of_others_does_not_answer_us():
    """It ends the connection, as one that is not let in by a server of ours has no gRPC."""
    with ThreadPoolExecutor(1) as pool:
        other = grpc.server(pool)
        port = other.add_insecure_port("127.0.0.1:0")
        other.start()
        with pytest.raises(ServerLost, match="does not answer"):
            Client.connect([f"127.0.0.1:{port}"], token=TOKEN, timeout=0.0)
        other.stop(0).wait()


def test_status_prints_as_a_table():
    with served(2) as servers:
        found = server_status([server.address for server in servers], token=TOKEN)
        lines = status_table(found).splitlines()
    assert len(lines) == 3
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith(servers[0].address)
    assert "1.0 GiB" in lines[1]


def test_an_address_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="localhost:7070 is given twice"):
        Client.connect(["localhost:7070", "localhost:7070"], token="t")


def test_an_answer_too_large_for_a_call_is_not_put_together():
    space = DenseSpace(9 << 20)
    with served() as (server,), Client.connect([server.address], token=TOKEN) as client:
        x = put(client, space, np.zeros(space.length))
        array = encode_array(x, array_type(space, float))
        request = client._requests.request(read={"rows": {"array": array}})
        with open_channel(server.address, (), None, TOKEN) as channel:
            call = channel.unary_unary(f"/{SERVICE}/Call", None, None)
            data = call(request.SerializeToString(), metadata=((TOKEN_KEY, TOKEN),))
        error = pb.Reply.FromString(data).error
        assert error.kind == "ValueError"
        assert f"{8 * space.length} bytes" in error.message
