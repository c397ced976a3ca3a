"""The loop of a task that keeps a server running, and those who depend on it; without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from distvec.spark.cluster.start import DriverServers
from ps_backend.client import Client
from ps_backend.errors import PSError, ServerLost
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.transport import GrpcTransport, Unavailable
from ps_backend.wire import ps_pb2 as pb
from tests.ps_backend.processes.test_restart import servers_of
from tests.spark.cluster.registries import KEY, service, supervised, until
from tests.waiting import PATIENCE, has_ended, join_all, wait_for

ROOT = str(Path(__file__).parents[3])


def test_a_server_that_dies_is_replaced_and_the_client_follows():
    with service(1) as (registry, listening), supervised([1], listening) as (_, errors):
        assert registry.wait_until_serving(PATIENCE)
        with Client.follow(registry, 1, token=KEY, diagnose=registry.diagnose) as client:
            (pid,) = registry.pids
            os.kill(pid, signal.SIGKILL)
            until(registry, lambda: registry._generations[0] == 1)
            assert client.status()[0].pid == registry.pids[0] != pid
            assert "killed by signal 9" in registry._troubles[0]
        registry.stop("the test is over")
    assert not errors
    assert has_ended(pid)


def test_a_process_that_waits_beside_a_server_takes_its_place_and_ends_with_the_task():
    before = servers_of(os.getpid())

    def started():
        return {*servers_of(os.getpid())}.difference(before)

    with service(1) as (registry, listening), supervised([1], listening, spares=1) as (_, errors):
        assert registry.wait_until_serving(PATIENCE)
        with Client.follow(registry, 1, token=KEY, diagnose=registry.diagnose) as client:
            (pid,) = registry.pids
            wait_for(lambda: len(started()) == 2)
            (waiting,) = started() - {pid}
            os.kill(pid, signal.SIGKILL)
            until(registry, lambda: registry._generations[0] == 1)
            assert client.status()[0].pid == registry.pids[0] == waiting
            wait_for(lambda: len(started() - {pid}) == 2)
            left = started()
        registry.stop("the test is over")
    assert not errors
    assert all(has_ended(one) for one in left)


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """Server processes wait while they start; calling it lets one go on."""
    path, code = tmp_path / "gate", tmp_path / "code"
    os.mkfifo(path)
    code.mkdir()
    waits = f"import sys\nif 'serve' in sys.orig_argv:\n    open({str(path)!r}).read()\n"
    (code / "sitecustomize.py").write_text(waits)
    monkeypatch.setenv("PYTHONPATH", str(code))
    return lambda: path.write_text("")


def test_a_task_renews_its_claim_while_its_server_starts(gate):
    """However long it takes: else the lease ran out meanwhile, and the new server was killed."""
    renewed = set()

    def often():
        renewed.update(owner.heard for owner in registry._owners.values())
        return len(renewed) > 3

    with service(1) as (registry, listening), supervised([1], listening) as (_, errors):
        until(registry, often)
        gate()
        assert registry.wait_until_serving(PATIENCE)
        with Client.follow(registry, 1, token=KEY) as client:
            assert client.status()[0].pid == registry.pids[0]
        assert registry.generations == (0,)
        registry.stop("the test is over")
    assert not errors


def test_a_task_whose_server_starts_hears_of_the_end(gate):
    with service(1) as (registry, listening), supervised([1], listening) as (threads, errors):
        until(registry, lambda: registry._owners)
        registry.stop("the test is over")
        threads[1].join(PATIENCE)
        assert not threads[1].is_alive()
    assert not errors


def test_a_start_that_takes_too_long_tells_what_was_seen(gate):
    told = r"1 servers answered in 0\.5 s; .*\. Seen: server 0 did not start in time"
    with pytest.raises(PSError, match=told):
        DriverServers(1, memory=1 << 26).start(0.5)


def test_a_server_lost_before_the_session_is_open_is_waited_for(monkeypatch):
    follow, first = Client.follow, []

    def lost(registry, *args, **options):
        monkeypatch.setattr(Client, "follow", follow)
        first.extend(registry.pids)
        os.kill(first[0], signal.SIGKILL)
        assert has_ended(first[0])
        return follow(registry, *args, **options | {"timeout": 0.0})

    monkeypatch.setattr(Client, "follow", lost)
    servers = DriverServers(1, memory=1 << 26)
    try:
        with servers.start(PATIENCE) as client:
            assert [status.pid for status in client.status()] == [*servers.pids] != first
        assert servers.directory.generations == (1,)
    finally:
        servers.stop()


def test_a_stopped_server_is_killed_and_replaced(monkeypatch):
    with service(1) as (registry, listening), supervised([1], listening) as (_, errors):
        assert registry.wait_until_serving(PATIENCE)
        (pid,), (address,) = registry.pids, [registry.locate(0).address]
        with monkeypatch.context() as patch:  # the next one has the time that servers have
            patch.setattr("ps_backend.processes.server_process.SILENT_SECONDS", 1.0)
            os.kill(pid, signal.SIGSTOP)
            assert has_ended(pid)
        until(registry, lambda: registry._generations[0] == 1)
        assert "gave no sign for 1 s (stopped, or wedged), and was killed" in registry.diagnose(
            address
        )
        registry.stop("the test is over")
    assert not errors


def test_a_second_task_waits_and_takes_over():
    with service(1) as (registry, listening), supervised([1, 2], listening) as _:
        assert registry.wait_until_serving(PATIENCE)
        first, deadline = registry._owners[0], time.monotonic() + PATIENCE
        with registry._changed:
            while registry._owners[0].claim.attempt == first.claim.attempt:
                assert time.monotonic() < deadline
                registry._owners[0].connected = False  # the network of its machine stays cut
                registry._changed.wait(0.05)
            assert registry._changed.wait_for(lambda: registry._generations[0] == 1, PATIENCE)
        assert has_ended(first.claim.pid)  # when the first one heard that it is not the owner
        registry.stop("the test is over")


def test_without_the_registry_the_server_ends_with_the_lease(monkeypatch):
    monkeypatch.setattr("distvec.spark.cluster.supervise.SERVE_SECONDS", 0.2)
    monkeypatch.setattr("distvec.spark.cluster.supervise._ALONE_SECONDS", 0.5)
    with service(1) as (registry, listening), supervised([1], listening) as (threads, errors):
        assert registry.wait_until_serving(PATIENCE)
        (pid,) = registry.pids
        listening.close()
        assert has_ended(pid)
        join_all(threads[1])
        assert "registry does not answer: [Errno 111]" in str(errors[1])


FIRST = """
import json, sys
from distvec.spark.cluster import supervise

address, key = json.loads(sys.argv[1]), sys.argv[2]
orders = supervise.ServerSpec(tuple(address), key, 1, 1 << 26, 1)
supervise.Supervisor(orders, 0, 1, supervise.RegistryClient(tuple(address), key)).run()
"""


def said(address, request):
    """What the server says; asked again while it does not answer."""
    deadline = time.monotonic() + PATIENCE
    with closing(GrpcTransport(address, token=KEY)) as transport:
        while True:
            try:
                return transport.call(request).reply.error
            except Unavailable:
                assert time.monotonic() < deadline


def test_a_server_that_was_stopped_while_another_took_its_place_answers_nothing_any_more():
    """Server and supervisor, as where their machine was asleep; the server wakes up first.

    It takes as long as a lease, of eight seconds: of a shorter one a busy machine uses up all.
    """
    command = [sys.executable, "-c", FIRST]
    with service(1) as (registry, listening), ExitStack() as stack:
        command += [json.dumps(listening.address), KEY]
        first = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": ROOT})
        stack.callback(first.wait, PATIENCE)
        stack.callback(first.kill)
        assert registry.wait_until_serving(PATIENCE)
        (pid,), zombie = registry.pids, registry.locate(0)
        client = stack.enter_context(Client.follow(registry, 1, token=KEY))
        client.write(1, DenseSpace(10), np.arange(10.0))
        first.send_signal(signal.SIGSTOP)
        os.kill(pid, signal.SIGSTOP)
        with supervised([2], listening):
            until(registry, lambda: registry._generations[0] > zombie.generation)
            os.kill(pid, signal.SIGCONT)
            request = pb.Request(session="s", client="c", life=zombie.life)
            request.status.SetInParent()
            error = said(zombie.address, request)
            assert error.kind == "EpochFenced"
            assert "life 1 of this server is over, or was not confirmed" in error.message
            with pytest.raises(ServerLost, match=r"server 0 was lost.*buffers 1 "):
                client.read(1, array_type(DenseSpace(10), float))
            first.send_signal(signal.SIGCONT)
            assert has_ended(pid)
            registry.stop("the test is over")
        assert first.wait(PATIENCE) == 0


def test_a_server_that_cannot_start_fails_the_task_with_what_it_wrote(monkeypatch):
    monkeypatch.setenv("PYTHONMALLOC", "no such allocator")
    with service(1) as (_, listening), supervised([1], listening) as (threads, errors):
        join_all(threads[1])
        assert "server 0 ended; it wrote:" in str(errors[1])
        assert "PYTHONMALLOC" in str(errors[1])


def test_a_server_that_keeps_dying_fails_the_task():
    with service(1) as (registry, listening), supervised([1], listening) as (threads, errors):
        for generation in range(3):
            until(registry, lambda g=generation: registry._generations[0] == g)
            os.kill(registry.pids[0], signal.SIGKILL)
        join_all(threads[1])
        assert "was killed by signal 9, soon after its start" in str(errors[1])


def test_a_supervised_server_computes():
    with service(1) as (registry, listening), supervised([1], listening):
        assert registry.wait_until_serving(PATIENCE)
        with Client.follow(registry, 1, token=KEY) as client:
            client.write(1, DenseSpace(10), np.arange(10.0))
            assert client.read(1, array_type(DenseSpace(10), float)).sum() == 45.0
        (pid,) = registry.pids
        registry.stop("the test is over")
    assert has_ended(pid)
