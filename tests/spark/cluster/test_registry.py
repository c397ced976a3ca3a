"""One owner per server number, leases, signatures, and the task's loop; all without Spark."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from distvec.spark.cluster.registry import LEAVE, SERVE, STOP, WAIT, Claim, Registry
from distvec.spark.cluster.registry_service import RegistryService, RemoteDirectory
from distvec.spark.cluster.signed_lines import SignedLines, ask_once
from distvec.spark.cluster.signed_service import _MOST_UNKNOWN
from distvec.spark.cluster.supervise import DriverDesk, RemoteDesk, ServerOrders, Supervisor
from ps_backend.client import Client
from ps_backend.errors import AuthenticationError, PSError, ServerLost
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.transport import Location, OverGrpc, Unavailable
from ps_backend.wire import ps_pb2 as pb

KEY = "a key for tests"
ROOT = str(Path(__file__).parents[3])


@contextmanager
def service(servers):
    registry = Registry(servers)
    listening = RegistryService(registry, "127.0.0.1", "127.0.0.1", KEY)
    try:
        yield registry, listening
    finally:
        registry.stop("the test is over")
        listening.close()


@contextmanager
def supervised(attempts, listening):
    """Tasks that supervise server 0, in threads: yields the threads and their errors by attempt."""
    orders = ServerOrders(listening.address, KEY, 1, 1 << 26, 1)
    found = {
        attempt: Supervisor(orders, 0, attempt, RemoteDesk(listening.address, KEY))
        for attempt in attempts
    }
    errors = {}

    def run(attempt):
        try:
            found[attempt].run()
        except PSError as error:
            errors[attempt] = error

    threads = {attempt: threading.Thread(target=run, args=(attempt,)) for attempt in attempts}
    for thread in threads.values():
        thread.start()
    yield threads, errors
    for thread in threads.values():
        thread.join(20)
        assert not thread.is_alive()


def until(registry, condition):
    """Wait until something changed in the registry so that the condition holds."""
    with registry._changed:
        assert registry._changed.wait_for(condition, 20), (registry._owners, registry._troubles)


# --- the record -----------------------------------------------------------------------------------


def test_a_number_has_one_owner():
    registry = Registry(2)
    assert registry.claim(Claim(0, 7), 1) == SERVE
    assert registry.claim(Claim(0, 8), 2) == WAIT
    assert registry.claim(Claim(1, 9), 3) == SERVE
    assert registry.locate(0) is None
    assert registry.claim(Claim(0, 7, "a:1", 5), 1) == SERVE
    assert registry.locate(0) == Location("a:1", 0)
    assert not registry.wait_until_serving(0)
    assert registry.claim(Claim(1, 9, "b:1", 6), 3) == SERVE
    assert registry.wait_until_serving(0)
    assert registry.pids == (5, 6)
    with pytest.raises(ValueError, match="server=2; there are 2"):
        registry.claim(Claim(2, 1), 4)


def test_a_broken_connection_lets_another_in_and_the_first_learns_of_it():
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.let_go(1)
    assert "was lost" in registry.diagnose("a:1")
    assert registry.claim(Claim(0, 8), 2) == SERVE
    assert registry.claim(Claim(0, 7, "a:1", 5), 3) == WAIT
    assert registry.locate(0) is None
    registry.claim(Claim(0, 8, "b:1", 6), 2)
    assert registry.locate(0) == Location("b:1", 1)


def test_an_owner_that_connects_again_keeps_its_server():
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.claim(Claim(0, 7, "a:1", 5), 2)
    registry.let_go(1)  # noticed late
    assert registry.claim(Claim(0, 8), 3) == WAIT
    assert registry.locate(0) == Location("a:1", 0)


def test_a_lease_that_was_not_renewed_runs_out(monkeypatch):
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    monkeypatch.setattr("distvec.spark.cluster.registry.LEASE_SECONDS", 0.0)
    assert registry.locate(0) is None
    assert registry.claim(Claim(0, 8), 2) == SERVE


def test_a_restart_on_the_same_executor_is_a_generation_too():
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.claim(Claim(0, 7, "", 0, "server 0 at a:1: it was killed"), 1)
    assert registry.diagnose("a:1") == "server 0 at a:1: it was killed"
    registry.claim(Claim(0, 7, "a:2", 6), 1)
    assert registry.locate(0) == Location("a:2", 1)


def test_each_life_has_a_number_that_no_other_ever_has():
    registry = Registry(1)
    first, second = Claim(0, 7, "a:1", 5), Claim(0, 8)
    assert registry.life(first) == 0
    registry.claim(Claim(0, 7), 1)
    assert registry.life(first) == 1
    registry.claim(Claim(0, 7, "a:1", 5, life=1), 1)
    assert registry.life(first) == 1
    registry.let_go(1)
    registry.claim(second, 2)
    assert (registry.life(first), registry.life(second)) == (0, 2)
    registry.let_go(2)  # before its server answered
    registry.claim(Claim(0, 7, "a:1", 5, life=1), 3)
    assert registry.life(first) == 3
    assert registry.locate(0) is None, "its process is of the first life"
    registry.claim(Claim(0, 7), 3)
    registry.claim(Claim(0, 7, "a:2", 6, life=3), 3)
    assert registry.locate(0) == Location("a:2", 2)
    registry.claim(Claim(0, 7, "", 0, "it was killed"), 3)
    assert registry.life(first) == 4


def test_a_server_beside_the_driver_needs_no_leave_to_answer():
    told = DriverDesk(Registry(1)).claim(Claim(0, 7), 1.0)
    assert (told.state, told.life, told.seconds) == (SERVE, 1, math.inf)


def test_the_task_of_a_lost_server_that_spark_repeats_leaves_and_the_driver_places_it():
    registry = Registry(2)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.claim(Claim(1, 8, "b:1", 6), 2)
    assert registry.claim(Claim(1, 9, retry=True), 3) == WAIT, "a speculative copy"
    registry.let_go(2)
    assert registry.pids == (5, 0)
    assert registry.claim(Claim(1, 9, retry=True), 3) == LEAVE
    assert registry.locate(1) is None
    assert registry.vacancy() == 1
    assert registry.place(1) == 1
    assert registry.claim(Claim(1, 8, "b:1", 6), 4) == LEAVE, "of the old job"
    assert registry.claim(Claim(1, 10, placement=1), 5) == SERVE
    assert registry.claim(Claim(1, 10, "c:1", 6, placement=1), 5) == SERVE
    assert registry.locate(1) == Location("c:1", 1)
    assert registry.generations == (0, 1)


def test_a_task_that_fails_before_its_server_answers_is_repeated_by_spark():
    registry = Registry(1)
    registry.claim(Claim(0, 7), 1)
    registry.let_go(1)
    assert registry.claim(Claim(0, 8, retry=True), 2) == SERVE
    assert not registry.vacate(0, 0), "to place it anew helps nothing"
    registry.claim(Claim(0, 8, "a:1", 5, retry=True), 2)
    assert registry.vacate(0, 0)
    assert registry.vacancy() == 0
    assert registry.vacate(0, 0), "it is known"


def test_without_room_a_lost_server_is_lost_once_it_was_waited_for(monkeypatch):
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.vacate(0, 0)
    registry.hold_back("there is no room")
    assert registry.locate(0) is None
    assert "there is no room" in registry.diagnose("a:1")
    monkeypatch.setattr("distvec.spark.cluster.registry.COMING_SECONDS", 0.0)
    with pytest.raises(ServerLost, match=r"server 0 was lost, and there is no room"):
        registry.locate(0)
    registry.place(0)
    assert registry.locate(0) is None


def test_the_end():
    registry = Registry(1)
    registry.claim(Claim(0, 7, "a:1", 5), 1)
    registry.stop("because")
    registry.stop("again")
    assert registry.claim(Claim(0, 7, "a:1", 5), 1) == STOP
    assert registry.claim(Claim(0, 8), 2) == STOP
    with pytest.raises(ServerLost, match="because"):
        registry.locate(0)
    assert not registry.wait_until_serving(60)


# --- the socket -----------------------------------------------------------------------------------


def test_a_directory_elsewhere_asks_the_registry():
    with service(1) as (registry, listening):
        directory = RemoteDirectory(listening.address, KEY)
        assert directory.locate(0) is None
        registry.claim(Claim(0, 7, "a:1", 5), 1)
        assert directory.locate(0) == Location("a:1", 0)
        registry.stop("because")
        with pytest.raises(ServerLost, match="because"):
            directory.locate(0)
    assert directory.locate(0) is None


def test_another_key_is_refused_by_both_sides():
    with service(1) as (registry, listening):
        with pytest.raises(ConnectionError, match="left"):
            ask_once(listening.address, "another key", {"claim": {"server": 0, "attempt": 1}}, 5.0)
        assert registry.owned == 0
        assert ask_once(listening.address, KEY, {"locate": 0}, 5.0) == {}
    left, right = socket.socketpair()
    ends = []
    thread = threading.Thread(target=lambda: ends.append(SignedLines(left, KEY, asks=False)))
    thread.start()
    asker = SignedLines(right, "another key", asks=True)
    thread.join(10)
    ends[0].send({"over": "a lie"})
    with pytest.raises(AuthenticationError, match="wrong signature"):
        asker.receive()
    ends[0].close()
    asker.close()


@pytest.mark.parametrize("junk", [b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100_000, b"\xff\n"])
def test_strangers_change_nothing(junk):
    with service(1) as (registry, listening):
        with socket.create_connection(listening.address, 5.0) as stranger:
            stranger.sendall(junk)
        assert ask_once(listening.address, KEY, {"locate": 0}, 5.0) == {}
        assert registry.owned == 0


def test_a_recorded_line_cannot_be_sent_again():
    with (
        service(1) as (registry, listening),
        socket.create_connection(listening.address, 5.0) as raw,
    ):
        lines = SignedLines(raw, KEY, asks=True)
        sent = []
        lines._connection = Tap(sent)
        lines.send({"claim": {"server": 0, "attempt": 1}})
        lines._connection = raw
        raw.sendall(sent[0])
        assert lines.receive() == {"state": SERVE, "life": 1}
        raw.sendall(sent[0])
        with pytest.raises(OSError, match="left"):
            lines.receive()
        assert registry.owned == 1


class Tap:
    """A connection that keeps what is sent."""

    def __init__(self, sent: list[bytes]) -> None:
        self.sendall = sent.append

    def settimeout(self, _: float | None) -> None:
        pass


def test_silent_strangers_are_few_and_hold_up_nobody():
    with service(1) as (_, listening), ExitStack() as stack:
        before = threading.active_count()
        for _ in range(3 * _MOST_UNKNOWN):
            stack.enter_context(socket.create_connection(listening.address, 5.0))
        assert ask_once(listening.address, KEY, {"locate": 0}, 5.0) == {}
        assert len(listening._server.connections) <= _MOST_UNKNOWN + 1
        deadline = time.monotonic() + 20
        while threading.active_count() > before + _MOST_UNKNOWN + 1:  # those sent away are ending
            assert time.monotonic() < deadline
            assert ask_once(listening.address, KEY, {"locate": 0}, 5.0) == {}


def test_a_line_that_comes_byte_by_byte_has_no_more_time_than_another():
    left, right = socket.socketpair()
    over = threading.Event()

    def drip():
        with suppress(OSError):
            while not over.wait(0.02):
                right.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    left.settimeout(0.2)
    with left, right:
        try:
            with pytest.raises(TimeoutError):
                SignedLines(left, KEY, asks=False)
        finally:
            over.set()
            dripping.join(10)


# --- the task's loop ------------------------------------------------------------------------------


def test_a_server_that_dies_is_replaced_and_the_client_follows(has_ended):
    with service(1) as (registry, listening), supervised([1], listening) as (_, errors):
        assert registry.wait_until_serving(30)
        with Client.follow(registry, 1, token=KEY, diagnose=registry.diagnose) as client:
            (pid,) = registry.pids
            os.kill(pid, signal.SIGKILL)
            until(registry, lambda: registry._generations[0] == 1)
            assert client.status()[0].pid == registry.pids[0] != pid
            assert "killed by signal 9" in registry._troubles[0]
        registry.stop("the test is over")
    assert not errors
    assert has_ended(pid)


def test_a_stopped_server_is_killed_and_replaced(monkeypatch, has_ended):
    monkeypatch.setattr("ps_backend.processes.kept_server.SILENT_SECONDS", 1.0)
    with service(1) as (registry, listening), supervised([1], listening) as (_, errors):
        assert registry.wait_until_serving(30)
        (pid,), (address,) = registry.pids, [registry.locate(0).address]
        os.kill(pid, signal.SIGSTOP)
        until(registry, lambda: registry._generations[0] == 1)
        assert has_ended(pid)
        assert "gave no sign for 1 s (stopped, or wedged), and was killed" in registry.diagnose(
            address
        )
        registry.stop("the test is over")
    assert not errors


def test_a_second_task_waits_and_takes_over(has_ended):
    with service(1) as (registry, listening), supervised([1, 2], listening) as _:
        assert registry.wait_until_serving(30)
        first, deadline = registry._owners[0], time.monotonic() + 30
        with registry._changed:
            while registry._owners[0].claim.attempt == first.claim.attempt:
                assert time.monotonic() < deadline
                registry._owners[0].connected = False  # the network of its machine stays cut
                registry._changed.wait(0.05)
            assert registry._changed.wait_for(lambda: registry._generations[0] == 1, 30)
        assert has_ended(first.claim.pid)  # when the first one heard that it is not the owner
        registry.stop("the test is over")


def test_without_the_registry_the_server_ends_with_the_lease(monkeypatch, has_ended):
    monkeypatch.setattr("distvec.spark.cluster.supervise.SERVE_SECONDS", 0.2)
    monkeypatch.setattr("distvec.spark.cluster.supervise._ALONE_SECONDS", 0.5)
    with service(1) as (registry, listening), supervised([1], listening) as (threads, errors):
        assert registry.wait_until_serving(30)
        (pid,) = registry.pids
        listening.close()
        assert has_ended(pid)
        threads[1].join(20)
        assert "registry does not answer: [Errno 111]" in str(errors[1])


FIRST = """
import json, sys
from distvec.spark.cluster import supervise

supervise.SERVE_SECONDS = 1.6
address, key = json.loads(sys.argv[1]), sys.argv[2]
orders = supervise.ServerOrders(tuple(address), key, 1, 1 << 26, 1)
supervise.Supervisor(orders, 0, 1, supervise.RemoteDesk(tuple(address), key)).run()
"""


def said(address, request):
    """What the server says; asked again while it does not answer."""
    deadline = time.monotonic() + 20
    with closing(OverGrpc(address, token=KEY)) as transport:
        while True:
            try:
                return transport.call(request).reply.error
            except Unavailable:
                assert time.monotonic() < deadline


def test_a_server_that_was_stopped_while_another_took_its_place_answers_nothing_any_more(
    monkeypatch, has_ended
):
    """Server and supervisor, as where their machine was asleep; the server wakes up first."""
    monkeypatch.setattr("distvec.spark.cluster.registry.LEASE_SECONDS", 2.0)
    command = [sys.executable, "-c", FIRST]
    with service(1) as (registry, listening), ExitStack() as stack:
        command += [json.dumps(listening.address), KEY]
        first = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": ROOT})
        stack.callback(first.wait, 20)
        stack.callback(first.kill)
        assert registry.wait_until_serving(30)
        (pid,), zombie = registry.pids, registry.locate(0)
        client = stack.enter_context(Client.follow(registry, 1, token=KEY))
        client.write(1, DenseSpace(10), np.arange(10.0))
        first.send_signal(signal.SIGSTOP)
        os.kill(pid, signal.SIGSTOP)
        with supervised([2], listening):
            until(registry, lambda: registry._generations[0] == 1)
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
        assert first.wait(20) == 0


def test_a_server_that_cannot_start_fails_the_task_with_what_it_wrote(monkeypatch):
    monkeypatch.setenv("PYTHONMALLOC", "no such allocator")
    with service(1) as (_, listening), supervised([1], listening) as (threads, errors):
        threads[1].join(20)
        assert "server 0 ended; it wrote:" in str(errors[1])
        assert "PYTHONMALLOC" in str(errors[1])


def test_a_server_that_keeps_dying_fails_the_task():
    with service(1) as (registry, listening), supervised([1], listening) as (threads, errors):
        for generation in range(3):
            until(registry, lambda g=generation: registry._generations[0] == g)
            os.kill(registry.pids[0], signal.SIGKILL)
        threads[1].join(20)
        assert "was killed by signal 9, soon after its start" in str(errors[1])


def test_a_supervised_server_computes(has_ended):
    with service(1) as (registry, listening), supervised([1], listening):
        assert registry.wait_until_serving(30)
        with Client.follow(registry, 1, token=KEY) as client:
            client.write(1, DenseSpace(10), np.arange(10.0))
            assert client.read(1, array_type(DenseSpace(10), float)).sum() == 45.0
        (pid,) = registry.pids
        registry.stop("the test is over")
    assert has_ended(pid)
