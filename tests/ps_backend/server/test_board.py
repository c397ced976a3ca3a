"""Values to wait for, and answers that count once, over both transports."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from ps_backend.client import Client
from ps_backend.errors import PSError, SessionUnknown, TopicClosed
from ps_backend.server.state.board import Board, WaitingRoom
from ps_backend.server.state.memory import Memory
from ps_backend.wire.board import MOST_VALUE_BYTES, Post
from ps_backend.wire.errors import Crowded
from tests.ps_backend.helpers import QUICK, TOKEN, Faulty, in_process, served

LONG = 60.0
"""Seconds that no wait here may take: all are ended by somebody."""


@pytest.fixture
def workers():
    with ThreadPoolExecutor(40) as pool:
        yield pool


class WatchedRoom(WaitingRoom):
    """Tells the test when somebody waits."""

    def __init__(self):
        super().__init__()
        self._entered = threading.Semaphore(0)

    def wait(self, condition, happened, seconds):
        self._entered.release()  # the board is locked until the wait has begun
        super().wait(condition, happened, seconds)

    def await_waits(self, count=1):
        for _ in range(count):
            assert self._entered.acquire(timeout=LONG)


def watched(service, client):
    """The waiting room of the client's session, in which all waits will be."""
    room = service._host.room = service.sessions.get(client.session).board._room = WatchedRoom()
    return room


def test_a_value_wakes_all_who_wait(connect, workers):
    owner = connect(3)
    topic = owner.topic("evaluate")
    first = topic.post(b"one")
    assert topic.wait(0, LONG) == Post(first, b"one")
    assert topic.wait(first, 0.0) is None
    waits = [workers.submit(owner.topic("evaluate").wait, first, LONG) for _ in range(20)]
    second = topic.post(b"two")
    assert second > first
    assert [wait.result() for wait in waits] == [Post(second, b"two")] * 20


def test_a_value_may_be_empty_and_any_bytes(connect):
    topic = connect(2).topic("t")
    for value in (b"", bytes(range(256)), b"\xff" * MOST_VALUE_BYTES):
        version = topic.post(value)
        assert topic.wait(version - 1, LONG) == Post(version, value)


def test_answers_are_collected(connect, workers):
    topic = connect(2).topic("t")
    version = topic.post(b"question")
    collected = workers.submit(topic.answers, version, 4, LONG)
    topic.answer(version, {7: b"seven"})
    topic.answer(version, {0: b"zero", 1: b""})
    assert topic.answers(version, 4, 0.0) == {7: b"seven", 0: b"zero", 1: b""}
    assert not collected.done()
    topic.answer(version, {(1 << 63) - 1: b"far"})
    expected = {7: b"seven", 0: b"zero", 1: b"", (1 << 63) - 1: b"far"}
    assert collected.result() == expected


def test_the_first_answer_counts_and_late_ones_do_not(connect):
    topic = connect(2).topic("t")
    version = topic.post(b"question")
    topic.answer(version, {1: b"first"})
    topic.answer(version, {1: b"second", 2: b"other"})
    assert topic.answers(version, 2, LONG) == {1: b"first", 2: b"other"}
    later = topic.post(b"another question")
    topic.answer(version, {3: b"too late"})
    assert topic.answers(later, 1, 0.0) == {}
    with pytest.raises(PSError, match=f"the answers to version {version} are gone"):
        topic.answers(version, 2, LONG)


def test_a_new_value_ends_the_wait_for_answers_to_the_old_one(workers):
    room = WatchedRoom()
    board = Board(room, Memory(1 << 30))
    version = board.post("t", b"question")
    wait = workers.submit(board.answers, "t", version, 1, LONG)
    room.await_waits()
    board.post("t", b"another")
    with pytest.raises(PSError, match="has version 2"):
        wait.result()


def test_a_wait_ends_with_the_topic(connect, workers):
    topic = connect(2).topic("t")
    with pytest.raises(TopicClosed, match="no topic 't'"):
        topic.wait(0, LONG)
    version = topic.post(b"")
    waits = [
        workers.submit(topic.wait, version, LONG),
        workers.submit(topic.answers, version, 1, 9),
    ]
    topic.close()
    topic.close()
    for wait in waits:
        with pytest.raises(TopicClosed):
            wait.result()
    with pytest.raises(TopicClosed):
        topic.answer(version, {0: b""})
    assert topic.post(b"again") > version


def test_a_wait_ends_with_the_session(workers):
    transports = in_process(1)
    with Client(transports) as owner:
        room = watched(transports[0].service, owner)
        owner.topic("t").post(b"")
        worker = Client(transports, session=owner.secret)
        wait = workers.submit(worker.topic("t").wait, 1, LONG)
        room.await_waits()
    with pytest.raises(TopicClosed):
        wait.result()
    with pytest.raises(SessionUnknown):
        worker.topic("t").wait(1, LONG)


def test_topics_and_sessions_are_apart():
    transports = in_process(2)
    with Client(transports) as one, Client(transports) as two:
        a, b = one.topic("a"), one.topic("b")
        assert a.post(b"a") <= b.post(b"b")
        assert (a.wait(0, LONG).value, b.wait(0, LONG).value) == (b"a", b"b")
        with pytest.raises(TopicClosed):
            two.topic("a").wait(0, LONG)


def test_more_waits_than_places(workers):
    """Those who find no place ask again and again, and nobody is left out."""
    transports = in_process(1)
    with Client(transports) as client:
        transports[0].service.sessions.get(client.session).board._room = WaitingRoom(places=2)
        topic = client.topic("t")
        version = topic.post(b"")
        assert topic.wait(version, 0.0) is None
        waits = [workers.submit(topic.wait, version, LONG) for _ in range(8)]
        later = topic.post(b"now")
        assert [wait.result().version for wait in waits] == [later] * 8


def test_a_full_room_refuses():
    board = Board(WaitingRoom(places=0), Memory(1 << 30))
    version = board.post("t", b"")
    assert board.wait("t", 0, LONG) == Post(version, b"")  # needs no place
    with pytest.raises(Crowded):
        board.wait("t", version, LONG)


def test_waits_hold_up_nothing_else(workers):
    """More of them than there are threads for all other requests together."""
    with ExitStack() as stack:
        (server,) = stack.enter_context(served())
        owner = stack.enter_context(Client.connect([server.address], token=TOKEN))
        room = watched(server.service, owner)
        topic = owner.topic("t")
        version = topic.post(b"")
        waits = [workers.submit(owner.topic("t").wait, version, LONG) for _ in range(40)]
        room.await_waits(40)
        assert owner.status()[0].sessions == 1
        topic.post(b"now")
        assert all(wait.result().value == b"now" for wait in waits)


def test_a_server_that_stops_ends_the_waits(workers):
    with served() as (server,):
        owner = Client.connect([server.address], token=TOKEN, retry=0.2)
        room = watched(server.service, owner)
        version = owner.topic("t").post(b"")
        wait = workers.submit(owner.topic("t").wait, version, LONG)
        room.await_waits()
        began = time.monotonic()
        server.stop(5.0)
        with pytest.raises(PSError):
            wait.result()
        assert time.monotonic() - began < 5.0
        owner.close()


def test_repeated_requests_do_nothing_twice():
    """Each message's first reply is lost; the second attempt gets the same answer."""
    lost = set()

    def plan(request):
        key = request.WhichOneof("body"), request.sequence
        if key in lost or request.WhichOneof("body") in ("open", "close"):
            return "ok"
        lost.add(key)
        return "lose reply"

    transports = [Faulty(transport, plan) for transport in in_process(1)]
    with Client(transports, retry=QUICK) as client:
        topic = client.topic("t")
        version = topic.post(b"value")
        topic.answer(version, {1: b"one"})
        assert topic.wait(0, LONG) == Post(version, b"value")
        assert topic.answers(version, 1, LONG) == {1: b"one"}
        assert topic.post(b"value") == version + 1


def test_refusals(connect):
    topic = connect(1).topic("t")
    too_large = b"\0" * (MOST_VALUE_BYTES + 1)
    with pytest.raises(ValueError, match="65537 bytes; a board takes up to 65536: put it into an"):
        topic.post(too_large)
    version = topic.post(b"")
    with pytest.raises(ValueError, match="65537 bytes"):
        topic.answer(version, {1: too_large})
    with pytest.raises(ValueError, match="65537 bytes"):
        Board(WaitingRoom(), Memory(1 << 30)).post("t", too_large)
