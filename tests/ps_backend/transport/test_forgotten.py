"""A connection that brings nothing any more is left, though the server runs; a slow one is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ps_backend.program.spaces import DenseSpace
from ps_backend.server.endpoints import framed_server
from ps_backend.transport import framed_client, grpc_transport
from ps_backend.transport.timeouts import CLIENT_OPTIONS
from tests.ps_backend.far_away import far_away, same
from tests.ps_backend.helpers import put, served
from tests.ps_backend.proxy import DIRECTIONS, proxy_to
from tests.stress.holes import WAYS, trial

SPACE = DenseSpace(1_000_000)
VALUES = np.random.default_rng(0).random(SPACE.length)


FIREWALL = """
import subprocess
from ps_backend.transport import framed_client
from tests.ps_backend.far_away import FLOATS, SPACE, X, far_away, same
from tests.ps_backend.helpers import put, served

def run(command):
    subprocess.run(command.split(), check=True)

run("ip link set lo up")
run("ip rule add pref 10 lookup local")
run("ip rule del pref 0 lookup local")
framed_client.PING_SECONDS, framed_client.PING_ANSWER_SECONDS = 0.3, 0.7
with served() as (server,), far_away([server]) as (client, (transport,)):
    x = put(client, SPACE, X)
    assert same(client, x)
    (frames,) = transport._framed._idle
    for end in ENDS:  # nothing of this connection arrives there any more
        run(f"ip rule add pref 1 ipproto tcp {end} {frames._connection.getsockname()[1]} blackhole")
    assert same(client, x)
    assert transport.streamed == 1
    assert same(client, x)
    assert transport.streamed == 1
"""

ALONE = ["unshare", "--user", "--map-root-user", "--net"]
"""In a network of its own."""


@pytest.mark.parametrize("ends", [["sport"], ["sport", "dport"]], ids=str)
def test_packets_of_one_connection_are_dropped(ends):
    """As by a firewall that forgot it; the system itself would try for a quarter of an hour."""
    can = [*ALONE, *"ip rule add pref 1 ipproto tcp sport 1 blackhole".split()]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("there is no unshare, or no ip (packages util-linux and iproute2)")
    if subprocess.run(can, capture_output=True, check=False).returncode:
        pytest.skip("the system allows no network of one's own, or has no rules for ports")
    code = FIREWALL.replace("ENDS", repr(ends))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [*ALONE, sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def look_often(monkeypatch: pytest.MonkeyPatch, first: float, answer: float) -> None:
    """Clients, and servers for each other, that are made from now on."""
    told = {"keepalive_time": first, "keepalive_timeout": answer, "http2.ping_timeout": answer}
    quick = {f"grpc.{name}_ms": int(1000 * seconds) for name, seconds in told.items()}
    assert quick.keys() < dict(CLIENT_OPTIONS).keys()
    monkeypatch.setattr(
        grpc_transport, "_OPTIONS", tuple((dict(grpc_transport._OPTIONS) | quick).items())
    )
    monkeypatch.setattr(framed_client, "PING_SECONDS", first)
    monkeypatch.setattr(framed_client, "PING_ANSWER_SECONDS", answer)


@pytest.mark.parametrize(
    ("directions", "moment"), [(DIRECTIONS[0], "before"), (DIRECTIONS[1], "in the middle")]
)
@pytest.mark.parametrize("way", WAYS)
def test_a_request_over_a_forgotten_connection_ends_all_the_same(
    way, moment, directions, monkeypatch
):
    look_often(monkeypatch, 0.3, 0.7)
    wrong, _ = trial(way, directions, moment)
    assert not wrong


def test_a_server_at_work_is_waited_for(monkeypatch):
    look_often(monkeypatch, 0.1, 0.1)
    looks = []
    look = grpc_transport.GrpcTransport._waits

    def noted(*arguments):
        looks.append(look(*arguments))
        return looks[-1]

    monkeypatch.setattr(grpc_transport.GrpcTransport, "_waits", noted)
    with served() as (server,), far_away([server]) as (client, (transport,)):
        x, handle = put(client, SPACE, VALUES), server.service.handle

        def slow(request, payload):
            if request.WhichOneof("body") == "read":
                while len(looks) < 5:
                    threading.Event().wait(0.01)
            return handle(request, payload)

        monkeypatch.setattr(server.service, "handle", slow)
        assert same(client, x, SPACE, VALUES)
        assert transport.streamed == 0
    assert looks[:5] == [0.0] * 5


def test_a_slow_transfer_goes_on(monkeypatch):
    """Each way, and where the system takes nothing more for longer than a client waits."""
    look_often(monkeypatch, 0.25, 0.25)
    monkeypatch.setattr(framed_server, "_LOOK_SECONDS", 0.05)
    with served() as (server,), proxy_to(("127.0.0.1", server.framed.port)) as proxy:
        server.framed.port, proxy.least_pause = int(proxy.address[1]), 0.02
        with far_away([server]) as (client, (transport,)):
            assert same(client, put(client, SPACE, VALUES), SPACE, VALUES)
            assert transport.streamed == 0
        assert proxy.accepted == 1
        assert min(proxy.passed.values()) > VALUES.nbytes


def test_who_asks_about_a_connection_that_is_not_there(monkeypatch):
    with served() as (server,), far_away([server]) as (client, (transport,)):
        put(client, SPACE, VALUES)
        (frames,) = transport._framed._idle
        assert 0.0 < transport._waits(frames.number, 5.0) < 1e3
        assert transport._waits(frames.number + 1, 5.0) == np.inf
        assert server.framed.waits(frames.number) > 0.0
