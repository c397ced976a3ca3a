"""A server of this process that dies is followed by another one, and none outlives the end."""

import gc
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import distvec as dv
from ps_backend.client import Client
from ps_backend.errors import ServerLost
from ps_backend.processes.launcher import launch_local
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from tests.ps_backend.helpers import put
from tests.ps_backend.processes.test_launcher import python
from tests.waiting import has_ended, wait_for

SPACE = DenseSpace(3000)
FLOATS = array_type(SPACE, float)
X = np.random.default_rng(0).standard_normal(SPACE.length)

PARENT = """
import os, signal, sys, time
from ps_backend.processes.launcher import launch_local

servers = launch_local(1, memory=1 << 26, restart=True, spares=1)
os.kill(servers.pids[0], signal.SIGKILL)
time.sleep(0.3)
print(flush=True)
sys.stdin.read()
"""


def servers_of(pid: int) -> list[int]:
    """The server processes among the children of a process, also those that begin as its copy."""
    own, found = Path(f"/proc/{pid}/cmdline").read_bytes(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended since
            _, _, state = (process / "stat").read_text().rpartition(")")
            line = (process / "cmdline").read_bytes()
            if int(state.split()[1]) == pid and (line == own or b"ps_backend\0serve" in line):
                found.append(int(process.name))
    return found


@pytest.fixture
def servers_left():
    """Lists those of this process that begin from now on, and are there."""
    before = servers_of(os.getpid())
    return lambda: [pid for pid in servers_of(os.getpid()) if pid not in before]


def follow(servers) -> Client:
    return Client.follow(servers, len(servers.pids), token=servers.token, diagnose=servers.diagnose)


def test_a_server_that_dies_is_followed_by_another_one():
    with dv.local(2, memory=1 << 26) as ps:
        servers, client, x = ps._owner, ps.client, put(ps.client, SPACE, X)
        addresses, pids = servers.addresses, servers.pids
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(ServerLost, match=f"server 1 was lost.*buffers {x} .length 3000."):
            client.read(x, FLOATS)
        assert float(ps.ones(3000).persist().sum()) == 3000
        assert [server.pid for server in client.status()] == list(servers.pids)
        assert servers.pids[0] == pids[0]
        assert servers.pids[1] != pids[1]
        assert servers.locate(1).generation == 1
        assert f"its process {pids[1]} was killed by signal 9" in servers.diagnose(addresses[1])
        left = servers.pids
    assert all(has_ended(pid, 0) for pid in (*pids, *left))
    with pytest.raises(ServerLost, match="the servers were stopped"):
        servers.locate(0)


def test_a_dead_server_is_noticed_on_systems_without_descriptors_of_processes(monkeypatch):
    def refuse(*_):
        raise OSError("Function not implemented")

    with launch_local(1, memory=1 << 26, restart=True) as servers, follow(servers) as client:
        monkeypatch.setattr(os, "pidfd_open", refuse)
        (pid,) = servers.pids
        os.kill(pid, signal.SIGKILL)
        assert client.status()[0].pid != pid


def test_a_stopped_server_is_killed_and_followed_by_another_one(monkeypatch):
    monkeypatch.setattr("ps_backend.processes.launcher._LOOK_SECONDS", 0.2)
    with launch_local(1, memory=1 << 26, restart=True) as servers, follow(servers) as client:
        (pid,), (address,) = servers.pids, servers.addresses
        with monkeypatch.context() as patch:  # the next one has the time that servers have
            patch.setattr("ps_backend.processes.server_process.SILENT_SECONDS", 0.5)
            os.kill(pid, signal.SIGSTOP)
            assert has_ended(pid)
        assert client.status()[0].pid != pid
        assert "gave no sign for 0.5 s (stopped, or wedged), and was killed" in servers.diagnose(
            address
        )


def test_a_server_that_does_not_come_up_again_is_given_up_with_what_it_wrote(
    monkeypatch, servers_left
):
    with launch_local(1, memory=1 << 26, restart=True) as servers, follow(servers) as client:
        x = put(client, SPACE, X)
        monkeypatch.setenv("PYTHONMALLOC", "no such allocator")
        os.kill(servers.pids[0], signal.SIGKILL)
        with pytest.raises(ServerLost, match=r"(?s)did not come up, soon.*wrote:\n.*PYTHONMALLOC"):
            client.read(x, FLOATS)
        with pytest.raises(ServerLost, match="It is not started again: close the session"):
            servers.locate(0)
        assert servers_left() == []


def test_a_process_that_waits_takes_the_place_of_a_server_that_dies():
    with (
        launch_local(2, memory=1 << 26, restart=True, spares=1) as servers,
        follow(servers) as client,
    ):
        for round in range(1, 3):
            (waiting,) = servers.spares.pids
            os.kill(servers.pids[1], signal.SIGKILL)
            wait_for(lambda at=round: servers.generations[1] == at)
            assert servers.pids[1] == client.status()[1].pid == waiting
            wait_for(lambda: servers.spares.pids)
            assert waiting not in servers.spares.pids


def test_a_process_that_died_while_it_waited_takes_no_place():
    with (
        launch_local(1, memory=1 << 26, restart=True, spares=2) as servers,
        follow(servers) as client,
    ):
        first, second = servers.spares.pids
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: servers.spares._waiting[0].process.poll() is not None)
        os.kill(servers.pids[0], signal.SIGKILL)
        wait_for(lambda: servers.generations == (1,))
        assert client.status()[0].pid == second
        wait_for(lambda: len(servers.spares.pids) == 2)


def test_none_that_waits_is_left(servers_left):
    servers = launch_local(1, memory=1 << 26, restart=True, spares=2)
    waiting = servers.spares.pids
    servers.stop()
    assert all(has_ended(pid) for pid in waiting)
    assert servers_left() == []
    with pytest.raises(ValueError, match="spares must be 0"):
        dv.local(1, spares=2)
    with pytest.raises(ValueError, match="spares= replace server processes"):
        dv.local(1, spares=1, restart=False)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_no_server_is_left_where_all_are_stopped_during_a_restart(seconds, servers_left):
    servers = launch_local(1, memory=1 << 26, restart=True)
    os.kill(servers.pids[0], signal.SIGKILL)
    time.sleep(seconds)
    servers.stop()
    assert servers_left() == []


def test_no_server_is_left_where_nobody_holds_them_any_more(servers_left):
    ps = dv.local(1, memory=1 << 26)
    (pid,) = ps._owner.pids
    del ps
    gc.collect()
    assert has_ended(pid)
    wait_for(lambda: not servers_left())  # another thread may have been the last to hold them


def test_a_driver_that_is_killed_during_a_restart_leaves_no_server():
    with python("-c", PARENT) as parent:
        parent.stdout.readline()
        started = servers_of(parent.pid)
        parent.kill()
        assert all(has_ended(pid) for pid in started)


def test_servers_left_to_the_interpreter_end_with_it():
    code = (
        "import os, json, signal; from ps_backend.processes.launcher import launch_local as launch"
    )
    code += "; s = launch(1, memory=1 << 26, restart=True); print(json.dumps(s.pids), flush=True)"
    with python("-c", code) as parent:
        (pid,) = json.loads(parent.stdout.read())
    assert parent.returncode == 0
    assert has_ended(pid, 0)
