"""Sessions whose clients are gone end; those whose clients merely have nothing to do do not."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.client.status import server_status, status_table
from ps_backend.errors import SessionUnknown
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.endpoints.grpc_server import Server
from ps_backend.server.service import Service
from ps_backend.server.sessions import Lease
from tests.ps_backend.helpers import QUICK, TOKEN, in_process, put
from tests.waiting import join_all, wait_for

SPACE = DenseSpace(3000)
X = np.random.default_rng(0).standard_normal(SPACE.length)
BRIEF = 1.0


@pytest.fixture
def server():
    running = Server(Service(memory=1 << 28, lease=600.0), token=TOKEN)
    running.start()
    yield running
    running.stop(0)


HOLDER = """
import sys
import numpy as np
from ps_backend.client import Client
from ps_backend.program.spaces import DenseSpace

address, token, lease = sys.argv[1:]
client = Client.connect([address], token=token, lease=float(lease))
client.write(client.new_id(), DenseSpace(100_000), np.ones(100_000))
print(client.secret, flush=True)
sys.stdin.read()
"""


def test_the_session_of_a_killed_client_is_freed_and_of_an_idle_one_is_not(server):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", HOLDER, server.address, TOKEN, str(BRIEF)]
    with (
        Client.connect([server.address], token=TOKEN, lease=BRIEF) as idle,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        x = put(idle, SPACE, X)
        used = server.service.memory.used
        secret = process.stdout.readline().strip()
        joined = Client.connect([server.address], token=TOKEN, session=secret)
        assert len(server.service.status().held) == 2
        process.send_signal(signal.SIGKILL)
        wait_for(lambda: len(server.service.status().held) == 1)
        wait_for(lambda: server.service.memory.used <= used)  # a moment after the name has gone
        with pytest.raises(SessionUnknown, match=r"lease of the session, 1 s, ran out.*lease="):
            put(joined, SPACE, X)
        joined.close()
        assert idle.read(x, array_type(SPACE, float)).tobytes() == X.tobytes()


def test_a_session_in_use_by_those_who_joined_lives(server):
    lease = Lease(1.0)
    assert not lease.run_down(0.9)
    with lease:
        assert not lease.run_down(50.0)
    assert not lease.run_down(0.9)
    assert lease.run_down(0.9)
    assert lease.age == pytest.approx(52.7)
    assert lease.left == 0.0


def test_a_server_that_was_stopped_counts_none_of_it(server, monkeypatch):
    """Else all sessions were over as it goes on, before their clients are heard."""
    steps = []
    let_pass = server.service.let_pass
    monkeypatch.setattr(
        server.service, "let_pass", lambda seconds: (steps.append(seconds), let_pass(seconds))
    )
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 3600.0 * len(steps))
    done = threading.Event()
    while len(steps) < 3:  # by no clock: it is the one that jumps
        done.wait(0.05)
    assert max(steps) <= 1.0


def test_status_shows_ages_and_leases(server):
    with Client.connect([server.address], token=TOKEN, lease=50.0) as client:
        put(client, SPACE, X)
        (status,) = server_status([server.address], token=TOKEN)
        (held,) = status.held
        assert (held.name, held.buffers, held.lease) == (client.session, 1, 50.0)
        assert 0 < held.left <= 50.0
        lines = status_table([status]).splitlines()
        assert lines[3].split() == ["session", "server", "buffers", "age", "lease", "left"]
        assert lines[4].startswith(client.session[:8])


def test_servers_in_the_process_have_no_leases():
    with Client(in_process(2), retry=QUICK) as client:
        assert [one.held[0].lease for one in client.status()] == [0.0, 0.0]


def test_a_closed_client_leaves_no_thread_that_renews(server):
    before = threading.enumerate()
    client = Client.connect([server.address], token=TOKEN, lease=50.0)
    begun = [one for one in threading.enumerate() if one not in before]
    (thread,) = [one for one in begun if one.name == "distvec-lease"]
    client.close()
    join_all(thread)


@pytest.mark.parametrize("lease", [0.0, -1.0, math.nan, math.inf, 1e9])
def test_a_lease_has_bounds(server, lease):
    with pytest.raises(ValueError, match=r"lease must be between 0\.1 and 604800 seconds"):
        Client.connect([server.address], token=TOKEN, lease=lease)
