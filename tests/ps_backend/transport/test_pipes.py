"""Pipes: the streams that stay open for the small requests of a session's owner."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client
from ps_backend.errors import PSError, ServerLost
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.endpoints import local_socket
from ps_backend.server.endpoints.grpc_server import Server, _Handler
from ps_backend.server.endpoints.pipes import MOST_PIPES
from ps_backend.transport import GrpcTransport
from ps_backend.transport.grpc_transport import SERVICE, TOKEN_KEY
from ps_backend.transport.tls import open_channel
from tests.ps_backend.helpers import TOKEN, axpy, dot, put, running_a_program, served
from tests.waiting import FOR_EVER, PATIENCE, has_ended, join_all

SPACE = DenseSpace(3000)
FLOATS = array_type(SPACE, float)
X = np.arange(3000.0)


class Counting(GrpcTransport):
    """Counts the requests that went by themselves."""

    def __init__(self, address: str, **options) -> None:
        super().__init__(address, token=TOKEN, near=False, **options)
        self.alone = 0

    def _by_itself(self, data, deadline=None):
        self.alone += 1
        return super()._by_itself(data, deadline)


@contextmanager
def piped(servers: list[Server]) -> Iterator[tuple[Client, list[Counting]]]:
    transports = [Counting(server.address, pipe=True) for server in servers]
    with Client(transports) as client:
        yield client, transports


@given(st.integers(1, 3), st.lists(st.booleans(), min_size=1, max_size=6))
def test_programs_over_pipes_one_message_each(servers, waits):
    with served(servers) as running, piped(running) as (client, transports):
        x, expected = put(client, SPACE, X), X
        client.counters.reset()
        for wait in waits:
            y = client.new_id()
            client.run(axpy(SPACE, 2.0, x, x, y, frees=[x]), wait=wait)
            x, expected = y, 2.0 * expected + expected
        client.wait()
        assert client.counters.messages == len(waits)
        assert client.read(x, FLOATS).tobytes() == expected.tobytes()
        assert [transport.alone for transport in transports] == [0] * servers


@pytest.fixture
def far(monkeypatch):
    """Servers are as on another host."""
    monkeypatch.setattr(local_socket, "can_be_had", lambda: False)


def test_only_the_owner_of_a_session_has_a_pipe(far):
    with (
        served() as (server,),
        Client.connect([server.address], token=TOKEN) as owner,
        Client.connect([server.address], token=TOKEN, session=owner.secret) as joined,
    ):
        owner.status()
        joined.status()
        assert len(server.pipes) == 1


def test_many_owners_share_a_server(far):
    """More than there is room for pipes; the others send each request by itself."""
    with served() as (server,), ExitStack() as stack:
        clients = [
            stack.enter_context(Client.connect([server.address], token=TOKEN))
            for _ in range(MOST_PIPES + 8)
        ]
        for client in clients:
            client.counters.reset()
            x = put(client, SPACE, X)
            assert sum(client.run(dot(SPACE, x, x))[0][0]) == X @ X
            assert client.counters.messages == 2
        assert len(server.pipes) == MOST_PIPES


def test_nobody_waits_for_the_program_of_another():
    """While a reply is awaited on the pipe, other requests go by themselves."""
    with served() as (server,), piped([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        with running_a_program(server, client, dot(SPACE, x, x)):
            assert transport.alone == 0
            assert client.status()[0].buffers == 1
            assert transport.alone == 1
        client.status()
        assert transport.alone == 1


def test_a_broken_pipe_is_mended_and_nothing_runs_twice():
    with served() as (server,), piped([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        for _ in range(3):
            transport._pipe._replies.cancel()
            y = client.new_id()
            client.scatter_add(x, y, FLOATS, [1], [1.0], donate=True)
            x = y
        assert client.read(x, FLOATS)[1] == X[1] + 3.0
        assert transport.alone == 0


def test_an_interrupted_wait_does_not_shift_the_replies(monkeypatch):
    with served() as (server,), piped([server]) as (client, (transport,)):
        x = put(client, SPACE, X)
        pending = transport.start(client._requests.to_all("status")[0].request)
        pipe, replies = transport._pipe, transport._pipe._replies

        class Interrupted:
            cancel = replies.cancel

            def __next__(self):
                raise KeyboardInterrupt

        pipe._replies = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            pending.result()
        assert sum(client.run(dot(SPACE, x, x))[0][0]) == X @ X
        assert transport.alone == 0


def test_a_server_without_pipes_is_served_by_calls(monkeypatch):
    table = _Handler.table

    def without(handler, *given):
        whole = table(handler, *given)
        whole._method_handlers.pop(f"/{SERVICE}/Pipe")
        return whole

    monkeypatch.setattr(_Handler, "table", without)
    with served() as (server,), piped([server]) as (client, (transport,)):
        put(client, SPACE, X)
        assert client.status()[0].buffers == 1
        assert transport.alone == 3


def test_a_server_with_open_pipes_stops_at_once():
    with served() as (server,), ExitStack() as stack:
        clients = [Client.connect([server.address], token=TOKEN, retry=0.1) for _ in range(3)]
        server.stop(grace=FOR_EVER)
        server._pool.shutdown(wait=True)
        assert len(server.pipes) == 0
        for client in clients:
            stack.callback(client.close)
            with pytest.raises(ServerLost):
                client.status()


def test_a_server_that_stops_first_answers_what_it_runs(monkeypatch):
    with served() as (server,), piped([server]) as (client, _):
        handle = server.service.handle
        stopper = threading.Thread(target=server.stop, args=[FOR_EVER])
        ending = threading.Event()
        end = server.pipes.end
        monkeypatch.setattr(server.pipes, "end", lambda: (end(), ending.set()))

        def stop_first(request, payload):
            stopper.start()
            assert ending.wait(PATIENCE)
            return handle(request, payload)

        monkeypatch.setattr(server.service, "handle", stop_first)
        assert client.status()[0].sessions == 1
        join_all(stopper)
        monkeypatch.undo()
        client._fan_out.links[0].lost = True  # so that closing does not ask for long


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_dies_while_a_client_waits_is_lost_in_time(how, monkeypatch):
    with (
        launch_local(1, memory=1 << 26) as servers,
        Client.connect(
            servers.addresses, token=servers.token, retry=0.5, diagnose=servers.diagnose
        ) as client,
    ):
        os.kill(servers.pids[0], signal.SIGSTOP)  # so that the request waits
        monkeypatch.setattr("ps_backend.transport.local_socket.PING_SECONDS", 0.2)
        pending = client._transports[0].start(client._requests.to_all("status")[0].request)
        if how == signal.SIGKILL:
            os.kill(servers.pids[0], how)
            with pytest.raises(ConnectionError):
                pending.result()
        else:
            os.kill(servers.pids[0], how)
            os.kill(servers.pids[0], signal.SIGCONT)
            assert has_ended(servers.pids[0])
        with pytest.raises(ServerLost):
            client.status()


def test_the_token_is_asked_for_when_a_pipe_opens():
    with served() as (server,), open_channel(server.address, (), None, TOKEN) as channel:
        for metadata in (None, [(TOKEN_KEY, "wrong")]):
            open_pipe = channel.stream_stream(f"/{SERVICE}/Pipe", None, None)
            with pytest.raises(grpc.RpcError) as caught:
                next(open_pipe(iter([b"\xff garbage"]), metadata=metadata, timeout=PATIENCE))
            assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_closed_client_leaves_no_pipe_and_no_thread(monkeypatch):
    with served() as (server,):
        for _ in range(3):
            client = Client.connect([server.address], token=TOKEN)
            put(client, SPACE, X)
            client.close()
            with pytest.raises(PSError, match="closed"):
                client.status()
        monkeypatch.setattr(server.pipes, "end", lambda: None)
        server.stop(grace=FOR_EVER)
        server._pool.shutdown(wait=True)
        assert len(server.pipes) == 0
        for thread in threading.enumerate():
            if "consume_request_iterator" in thread.name:
                join_all(thread)
