"""A program of years, by a slip: it disturbs nobody, and ends with whoever sent it."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import Future
from contextlib import suppress

import numpy as np
import pytest

import distvec as dv
from ps_backend.client import Client
from ps_backend.client.status import server_status
from ps_backend.errors import PSError
from ps_backend.processes.launcher import launch_local
from ps_backend.transport import GrpcTransport
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.protocol import PROTOCOL, session_name
from tests.ps_backend.helpers import TOKEN, Faulty, impatient, served
from tests.ps_backend.requests import IOTA_SUM, call, run
from tests.waiting import PATIENCE, has_ended, wait_for

LONG = 10**15


@pytest.fixture
def servers():
    with launch_local(1, memory=1 << 28) as launched:
        yield launched


def slip(ps: dv.Session) -> Future[float]:
    """What a user types who meant ``10**5``."""
    result: Future[float] = Future()

    def work() -> None:
        try:
            result.set_result(float(ps.arange(LONG).sum()))
        except Exception as error:  # noqa: BLE001 - the tests look at it
            result.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return result


def computes(pid: int) -> bool:
    """Does the process use its cores?"""
    before = os.times().elapsed, _cpu(pid)
    while os.times().elapsed < before[0] + 0.3:
        time.sleep(0)
    return _cpu(pid) > before[1] + 0.1


def _cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_closing_the_session_ends_it_and_meanwhile_others_work(servers):
    (pid,) = [status.pid for status in server_status(servers.addresses, token=servers.token)]
    with dv.connect(servers.addresses, token=servers.token) as good:
        with dv.connect(servers.addresses, token=servers.token) as bad:
            result = slip(bad)
            wait_for(lambda: computes(pid))
            x = good.array(np.arange(1000.0))
            for k in range(5):
                assert float((x + k).sum()) == 499_500 + 1000 * k
        assert isinstance(result.exception(PATIENCE), PSError)
        wait_for(lambda: not computes(pid))


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_it_and_the_session_goes_on(servers, presses):
    (pid,) = [status.pid for status in server_status(servers.addresses, token=servers.token)]

    def press() -> None:
        wait_for(lambda: computes(pid))
        for _ in range(presses):
            os.kill(os.getpid(), signal.SIGINT)

    with dv.connect(servers.addresses, token=servers.token) as ps:
        x = ps.array(np.arange(10.0))
        slow = ps.arange(LONG).sum()
        presser = threading.Thread(target=press, daemon=True)
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            float(slow)
        presser.join()
        assert float((x + 1).sum()) == 55
        wait_for(lambda: not computes(pid))
        assert not slow.node.known


def test_the_wish_to_end_it_is_repeated_until_the_server_knows(servers):
    (pid,) = [status.pid for status in server_status(servers.addresses, token=servers.token)]
    lost = []

    def lose_two(request: pb.Request) -> str:
        if request.WhichOneof("body") != "cancel" or len(lost) == 2:
            return "ok"
        lost.append(request)
        return "lose request"

    def press() -> None:
        wait_for(lambda: computes(pid))
        os.kill(os.getpid(), signal.SIGINT)

    transports = [
        Faulty(GrpcTransport(a, token=servers.token), lose_two) for a in servers.addresses
    ]
    with Client(transports) as client, dv.Session(client) as ps:
        threading.Thread(target=press, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            float(ps.arange(LONG).sum())
    assert len(lost) == 2


def test_a_server_that_is_stopped_ends(servers):
    with suppress(PSError), dv.connect(servers.addresses, token=servers.token) as ps:
        (pid,) = [status.pid for status in server_status(servers.addresses, token=servers.token)]
        slip(ps)
        wait_for(lambda: computes(pid))
        impatient(ps.client)
        os.kill(pid, signal.SIGTERM)
        assert has_ended(pid)


@pytest.mark.parametrize("near", [False, True])
def test_it_ends_when_the_connection_of_its_sender_does(near):
    with served(1) as (server,):
        turns = server.service._host.fair_lock
        transport = GrpcTransport(server.address, token=TOKEN, near=near)
        opening = pb.Open(protocol=PROTOCOL, index=0, servers=1, create=True, secret="s")
        name = session_name("s")
        transport.call(pb.Request(session=name, client="c", open=opening))
        pending = transport.start(
            pb.Request(session=name, client="c", sequence=1, run=run(call(IOTA_SUM, LONG)))
        )
        wait_for(lambda: turns._busy)
        transport.close()
        wait_for(lambda: not turns._busy)
        with pytest.raises(Exception, match=r"closed|[Cc]ancel|CANCELLED"):
            pending.result()
