"""Lost messages, lost servers, too little memory: nothing runs twice, nothing is half done."""

import os
import signal
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client
from ps_backend.errors import BufferLost, OutOfBudget, PSError, ServerLost
from ps_backend.in_process import connect_in_process
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program
from ps_backend.program.types import array_type
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.server.service import Service
from tests.ps_backend.helpers import (
    FAULTS,
    QUICK,
    REPEATED,
    TOKEN,
    Faulty,
    axpy,
    dot,
    in_process,
    losing,
    put,
    served,
)
from tests.waiting import join_all

SPACE = DenseSpace(3000)
FLOATS = array_type(SPACE, float)
X = np.random.default_rng(0).standard_normal(SPACE.length)


def kind_of(request):
    """That of its body, and of writes to an array that is there "add"."""
    body = request.WhichOneof("body")
    return "add" if body == "write" and request.write.rows.array.buffer else body


def once(kind, fault):
    """Fault the first request of a kind."""
    left = [fault]

    def plan(request):
        return left.pop() if left and kind_of(request) == kind else "ok"

    return plan


@pytest.mark.parametrize("fault", ["lose request", "lose reply"])
@pytest.mark.parametrize("donate", [True, False])
def test_a_repeated_addition_counts_once(fault, donate):
    transports = [Faulty(t, once("add", fault)) for t in in_process(2)]
    with Client(transports, retry=REPEATED) as client:
        x, y = put(client, SPACE, X), client.new_id()
        client.scatter_add(x, y, FLOATS, [1, 2999], [1.0, 2.0], donate=donate)
        expected = X.copy()
        expected[[1, 2999]] += [1.0, 2.0]
        np.testing.assert_array_equal(client.read(y, FLOATS), expected)
        sent = [r for r in transports[0].requests if kind_of(r) == "add"]
        assert len(sent) == 2
        assert sent[0].sequence == sent[1].sequence


@given(st.integers(1, 3), FAULTS)
def test_any_faults_leave_the_result_right(servers, faults):
    with Client(losing(servers, faults), retry=REPEATED) as client:
        x = put(client, SPACE, X)
        expected = X
        for k in range(3):
            y = client.new_id()
            client.run(axpy(SPACE, 1.0 + k, x, x, y, frees=[x]), wait=k % 2 == 0)
            x, expected = y, (1.0 + k) * expected + expected
        client.stage("r", 0, 0, SPACE, [5], [1.0])
        client.commit("r", [(0, 0)], FLOATS, total := client.new_id())
        assert client.read(x, FLOATS).tobytes() == expected.tobytes()
        assert client.read(total, FLOATS).sum() == 1.0
        client.drop_round("x")
        assert {server.buffers for server in client.status()} <= {0, 2}


def test_a_repeat_is_answered_while_the_first_still_runs():
    """The same request twice at once, as after a broken connection: run once, answered twice."""
    (transport,) = in_process(1)
    with Client([transport]) as client:
        x = put(client, SPACE, X)
        session = transport.service.sessions.get(client.session)
        request = client._requests.write(x, FLOATS, [0], [1.0], target=77, donate=True)[0].request
        payload = [np.zeros(1, np.int64).view(np.uint8).data, np.ones(1).view(np.uint8).data]
        request.sequence = 1000
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(transport.call(request, payload).reply))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        join_all(*threads)
        assert len(answers) == 8
        assert not any(reply.HasField("error") for reply in answers)
        assert client.read(77, FLOATS)[0] == X[0] + 1.0
        assert len(session.store) == 1


def test_a_silent_server_is_given_up_with_its_name():
    transports = [Faulty(t) for t in in_process(2)]
    with Client(
        transports, retry=QUICK, diagnose=lambda address: f"{address} was unplugged"
    ) as client:
        x = put(client, SPACE, X)
        transports[1].plan = lambda _: "lose request"
        with pytest.raises(
            ServerLost, match=rf"in-process:1 does not answer.*unplugged.*buffers {x} "
        ):
            client.run(dot(SPACE, x, x))
        assert client.lost
        transports[1].plan = lambda _: "ok"
        client.run(dot(SPACE, x, x))
        assert not client.lost


def test_a_lost_payload_is_sent_again():
    transports = [Faulty(t, once("write", "lose reply")) for t in in_process(1)]
    with Client(transports, retry=REPEATED) as client:
        assert client.read(put(client, SPACE, X), FLOATS).tobytes() == X.tobytes()


# --- memory ---------------------------------------------------------------------------------------


def test_out_of_budget_leaves_everything_as_it_was():
    with connect_in_process(2, memory=8 * SPACE.length + 1024) as client:
        x = put(client, SPACE, X)  # half of each budget, more or less
        before = [server.buffers for server in client.status()]
        y, z = client.new_id(), client.new_id()
        two = axpy(SPACE, 1.0, x, x, y).calls + axpy(SPACE, 2.0, x, y, z).calls
        with pytest.raises(
            OutOfBudget, match=r"the program needs \d+ bytes, but \d+ of the allowed"
        ):
            client.run(Program(two, (x,)))
        with pytest.raises(MemoryError, match="writing an array needs"):
            put(client, DenseSpace(100_000), np.zeros(100_000))
        with pytest.raises(OutOfBudget, match="gathering"):
            client.gather(x, FLOATS, np.zeros(5000, np.int64))
        assert [server.buffers for server in client.status()] == before
        np.testing.assert_array_equal(client.read(x, FLOATS), X)
        client.free([x])
        put(client, SPACE, X)


def test_no_memory_stays_behind():
    transports = in_process(2)
    with Client(transports) as client:
        x, y = put(client, SPACE, X), client.new_id()
        client.run(axpy(SPACE, 1.0, x, x, y))
        client.gather(y, FLOATS, [1, 2, 3])
        client.free([x, y])
        assert all(server.used < 18 << 10 for server in client.status()), "session, program, call"
    assert [transport.service.memory.used for transport in transports] == [0, 0]


# --- servers that go away -------------------------------------------------------------------------


def test_a_killed_server_is_lost():
    with launch_local(2, memory=1 << 28) as servers:
        client = Client.connect(
            servers.addresses, token=servers.token, retry=1.0, diagnose=servers.diagnose
        )
        with client:
            x = put(client, SPACE, X)
            os.kill(servers.pids[1], signal.SIGKILL)
            with pytest.raises(ServerLost, match=rf"{servers.addresses[1]}.*killed by signal 9"):
                client.run(dot(SPACE, x, x))
            with pytest.raises(ServerLost):
                client.read(x, FLOATS)
            assert client.lost


def test_a_restarted_server_is_noticed():
    with served() as (first,):
        client = Client.connect([first.address], token=TOKEN)
        x = put(client, SPACE, X)
        first.stop(0)
        second = Server(Service(memory=1 << 28), port=first.port, token=TOKEN)
        second.start()
        try:
            for attempt in (
                lambda: client.read(x, FLOATS),
                lambda: client.run(dot(SPACE, x, x)),
                lambda: client.write(client.new_id(), SPACE, X),
            ):
                with pytest.raises(PSError, match=r"does not know the session.*restarted"):
                    attempt()
            client.close()
        finally:
            second.stop(0)


def test_a_server_that_stops_ends_a_transfer_with_an_error():
    with served() as (server,):
        client = Client.connect([server.address], token=TOKEN, retry=0.1)
        space = DenseSpace(1_000_000)
        put(client, space, np.zeros(space.length))
        server.stop(0)
        with pytest.raises(ServerLost):
            client.write(client.new_id(), space, np.zeros(space.length))
        client.close()


def test_a_fork_is_refused():
    with connect_in_process(1) as client:
        client._pid += 1
        with pytest.raises(PSError, match="fork"):
            client.status()
        client._pid -= 1


def test_a_broken_payload_changes_nothing_and_is_not_recorded():
    (transport,) = in_process(1)
    with Client([transport]) as client:
        message = client._requests.write(0, FLOATS, None, X, target=5)[0]
        message.request.sequence = 500
        reply = transport.call(message.request, [message.payload[0][:-8]]).reply
        assert reply.error.kind == "PayloadBroken"
        with pytest.raises(BufferLost):
            client.read(5, FLOATS)
        assert not transport.call(message.request, message.payload).reply.HasField("error")
        assert client.read(5, FLOATS).tobytes() == X.tobytes()
