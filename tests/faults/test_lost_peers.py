"""A server that others fetch from is stopped or dies: nobody waits for long, nothing changes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import ServerLost
from ps_backend.processes.launcher import LocalServers, launch_local
from ps_backend.program.collectives import SCANS, CollectiveCall, CollectiveTypes
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, SweepCall
from ps_backend.program.types import array_type
from ps_backend.program.views import View
from tests.ps_backend.helpers import AXPY, DOT, put
from tests.waiting import join_all

SPACE, SECOND = DenseSpace(4096), DenseSpace(1000)
"""Of four blocks on two servers; and of one block, which the second server holds."""
X = np.random.default_rng(0).standard_normal(SPACE.length)


@pytest.fixture
def servers() -> Iterator[LocalServers]:
    with launch_local(2, memory=1 << 28) as launched:
        yield launched


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def connect(servers: LocalServers) -> Client:
    return Client.connect(servers.addresses, token=servers.token)


def test_a_stopped_one_is_noticed_in_time_and_ctrl_c_ends_the_wait(servers):
    """The client itself asks nothing of the stopped server."""
    assert SECOND.holders(2) == [1]
    with (
        connect(servers) as client,
        Client.connect(servers.addresses[1:], token=servers.token) as other,
    ):
        x, y, i = put(client, SPACE, X), put(client, SECOND, X[:1000]), client.new_id()
        client.write(i, SECOND, np.arange(1000))
        a, z = put(other, SECOND, X[:1000]), client.new_id()
        calls = [  # what they fetch comes before the program begins, and while it runs
            SweepCall(AXPY, SECOND, (x, y), (1.0,), (z,), views=(view, None))
            for view in (View(SPACE), View(SPACE, index=i))
        ]
        with stopped(servers.pids[0]):
            for call in calls:
                press = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
                press.start()
                with pytest.raises(KeyboardInterrupt) as pressed:
                    client.run(Program((call,)))
                assert pressed.value.__suppress_context__, "the press ended it, not a lost server"

            lost: list[object] = []

            def fetch() -> None:
                try:
                    lost.append(client.run(Program((calls[1],))))
                except ServerLost as error:
                    lost.append(str(error))

            thread = threading.Thread(target=fetch)
            thread.start()
            for _ in range(3):  # others have their turns
                other.run(Program((SweepCall(DOT, SECOND, (a, a), (), ()),)))
            assert not lost
            join_all(thread)
        (message,) = lost
        assert f"server {servers.addresses[0]} does not answer" in str(message)
        client.run(Program((calls[1],)))  # nothing has changed, and the server is back
        assert client.read(z, array_type(SECOND, float)).tobytes() == (2 * X[:1000]).tobytes()


def test_a_killed_one_is_lost(servers):
    with connect(servers) as client:
        x, y = put(client, SPACE, X), put(client, SECOND, X[:1000])
        views = View(SPACE, (), SPACE.length - 1, -1), View(SPACE)
        call = SweepCall(DOT, SPACE, (x, x), (), (), views=views)
        client.run(Program((call,)))
        os.kill(servers.pids[0], signal.SIGKILL)
        with pytest.raises(ServerLost, match=f"server {servers.addresses[0]} does not answer"):
            client.run(Program((call,)))
        ((found,),) = client.run(Program((SweepCall(DOT, SECOND, (y, y), (), ()),)))
        assert found.sum() == pytest.approx(X[:1000] @ X[:1000])


def test_one_that_dies_in_the_middle_of_a_movement_is_named(servers):
    """Its neighbour waits for what it has left; then the movement is over, and all else goes on."""
    with connect(servers) as client:
        x, out, workspace = put(client, SPACE, np.arange(4096)), client.new_id(), client.new_id()
        y = put(client, SECOND, X[:1000])
        ints = array_type(SPACE, np.int64)
        types = CollectiveTypes((ints,), (), ((0, ints),))
        first, second = (
            CollectiveCall(SCANS["add"].kind, k, workspace, types, (x,), (), (out,), ())
            for k in range(2)
        )
        client.run(Program(before=(first,)))
        os.kill(servers.pids[0], signal.SIGKILL)
        with pytest.raises(ServerLost, match=f"server {servers.addresses[0]} does not answer"):
            client.run(Program(before=(second,)))
        client.free([workspace])
        ((found,),) = client.run(Program((SweepCall(DOT, SECOND, (y, y), (), ()),)))
        assert found.sum() == pytest.approx(X[:1000] @ X[:1000])
