"""Questions to wait for, answers that count once, and their total, over both transports."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

from ps_backend.client import Change, Client, Question, StoredArray
from ps_backend.errors import BufferLost, MailboxClosed, OutOfBudget, PSError, SessionUnknown
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.server.state import mailbox as state
from ps_backend.server.state.memory import Memory
from ps_backend.server.state.rendezvous import WaitingRoom
from ps_backend.wire.errors import Crowded, NotAlong
from ps_backend.wire.questions import MOST_VALUE_BYTES
from tests.ps_backend.helpers import QUICK, TOKEN, Faulty, in_process, put, served

LONG = 60.0
"""Seconds that no wait here may take: all are ended by somebody."""

SPACE = DenseSpace(5000)
"""Five blocks, so that each of three servers has some."""


TYPE = array_type(SPACE, float)


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
        self._entered.release()  # the mailbox is locked until the wait has begun
        super().wait(condition, happened, seconds)

    def await_waits(self, count=1):
        for _ in range(count):
            assert self._entered.acquire(timeout=LONG)


def watched(service, client):
    """The waiting room of the client's session, for mailboxes that are opened from now on."""
    room = service._host.room = service.sessions.get(client.session).meetings._room = WatchedRoom()
    return room


def opened(client, name="m"):
    mailbox = client.mailbox(name)
    mailbox.open()
    return mailbox


def ask(mailbox, value=b"question", **options):
    """The question under way, and its number."""
    asked = mailbox.ask(value, **options)
    assert asked.answers(1, 0.0) is None
    return asked, asked.number


def a_mailbox(room):
    return state.Mailbox("m", room, Memory(1 << 30))


def test_a_question_wakes_all_who_wait(connect, workers):
    owner = connect(3)
    mailbox = opened(owner, "evaluate")
    _, first = ask(mailbox, b"one")
    assert mailbox.question(0, LONG) == Question(first, b"one")
    assert mailbox.question(first, 0.0) is None
    waits = [workers.submit(owner.mailbox("evaluate").question, first, LONG) for _ in range(20)]
    _, second = ask(mailbox, b"two")
    assert second > first
    assert [wait.result() for wait in waits] == [Question(second, b"two")] * 20


def test_a_question_may_be_empty_and_any_bytes(connect):
    mailbox = opened(connect(2))
    for value in (b"", bytes(range(256)), b"\xff" * MOST_VALUE_BYTES):
        _, number = ask(mailbox, value)
        assert mailbox.question(number - 1, LONG) == Question(number, value)


def test_answers_are_collected(connect, workers):
    mailbox = opened(connect(2))
    asked, number = ask(mailbox)
    collected = workers.submit(asked.answers, 4, LONG)
    mailbox.answer(number, 7, b"seven")
    mailbox.answer(number, 0, b"zero")
    mailbox.answer(number, 1, b"")
    assert not collected.done()
    mailbox.answer(number, (1 << 63) - 1, b"far")
    expected = {7: b"seven", 0: b"zero", 1: b"", (1 << 63) - 1: b"far"}
    assert collected.result() == [expected]
    assert asked.count == 4


def test_the_first_answer_counts_and_late_ones_do_not(connect):
    mailbox = opened(connect(2))
    asked, number = ask(mailbox)
    mailbox.answer(number, 1, b"first")
    mailbox.answer(number, 1, b"second")
    mailbox.answer(number, 2, b"other")
    assert asked.answers(2, LONG) == [{1: b"first", 2: b"other"}]
    later, following = ask(mailbox, b"another question")
    mailbox.answer(number, 3, b"too late")
    assert later.answers(1, 0.0) is None
    assert later.count == 0
    with pytest.raises(PSError, match=f"the answers to question {number} are gone"):
        asked.answers(3, LONG)
    assert following > number


def test_a_new_question_ends_the_wait_for_answers_to_the_old_one(workers):
    room = WatchedRoom()
    mailbox = a_mailbox(room)
    mailbox.ask(state.Question(1, b"question"))
    wait = workers.submit(mailbox.answers, 1, 1, LONG)
    room.await_waits()
    mailbox.ask(state.Question(2, b"another"))
    with pytest.raises(PSError, match="has question 2"):
        wait.result()


def test_an_answer_may_come_before_the_question():
    """From who heard of it of another server."""
    mailbox = a_mailbox(WaitingRoom())
    mailbox.answer(7, 0, b"answer")
    assert mailbox.question(0, 0.0) is None
    mailbox.ask(state.Question(7, b"question"))
    assert mailbox.answers(7, 1, 0.0) == {0: b"answer"}


def test_a_wait_ends_with_the_mailbox(connect, workers):
    mailbox = connect(2).mailbox("m")
    with pytest.raises(MailboxClosed, match="no mailbox 'm'"):
        mailbox.question(0, LONG)
    mailbox.open()
    asked, number = ask(mailbox)
    waits = [workers.submit(mailbox.question, number, LONG), workers.submit(asked.answers, 1, 9)]
    mailbox.close()
    mailbox.close()
    for wait in waits:
        with pytest.raises(MailboxClosed):
            wait.result()
    with pytest.raises(MailboxClosed):
        mailbox.answer(number, 0, b"")
    mailbox.open()
    assert ask(mailbox)[1] > number


def test_a_wait_ends_with_the_session(workers):
    transports = in_process(1)
    with Client(transports) as owner:
        room = watched(transports[0].service, owner)
        opened(owner)
        worker = Client(transports, session=owner.secret)
        wait = workers.submit(worker.mailbox("m").question, 1, LONG)
        room.await_waits()
    with pytest.raises(MailboxClosed):
        wait.result()
    with pytest.raises(SessionUnknown):
        worker.mailbox("m").question(1, LONG)


def test_mailboxes_and_sessions_are_apart():
    transports = in_process(2)
    with Client(transports) as one, Client(transports) as two:
        a, b = opened(one, "a"), opened(one, "b")
        ask(a, b"a")
        ask(b, b"b")
        assert (a.question(0, LONG).value, b.question(0, LONG).value) == (b"a", b"b")
        with pytest.raises(MailboxClosed):
            two.mailbox("a").question(0, LONG)


def test_more_waits_than_places(workers):
    """Those who find no place ask again and again, and nobody is left out."""
    transports = in_process(1)
    with Client(transports) as client:
        transports[0].service.sessions.get(client.session).meetings._room = WaitingRoom(places=2)
        mailbox = opened(client)
        _, number = ask(mailbox)
        assert mailbox.question(number, 0.0) is None
        waits = [workers.submit(mailbox.question, number, LONG) for _ in range(8)]
        later = mailbox.ask(b"now")
        later.answers(0, LONG)
        assert [wait.result().number for wait in waits] == [later.number] * 8


def test_a_full_room_refuses():
    mailbox = a_mailbox(WaitingRoom(places=0))
    mailbox.ask(state.Question(1, b""))
    assert mailbox.question(0, LONG) == state.Question(1, b"")  # needs no place
    with pytest.raises(Crowded):
        mailbox.question(1, LONG)


def test_waits_hold_up_nothing_else(workers):
    """More of them than there are threads for all other requests together."""
    with ExitStack() as stack:
        (server,) = stack.enter_context(served())
        owner = stack.enter_context(Client.connect([server.address], token=TOKEN))
        room = watched(server.service, owner)
        mailbox = opened(owner)
        waits = [workers.submit(owner.mailbox("m").question, 0, LONG) for _ in range(40)]
        room.await_waits(40)
        assert owner.status()[0].sessions == 1
        mailbox.ask(b"now").answers(0, LONG)
        assert all(wait.result().value == b"now" for wait in waits)


def test_a_server_that_stops_ends_the_waits(workers):
    with served() as (server,):
        owner = Client.connect([server.address], token=TOKEN, retry=0.2)
        room = watched(server.service, owner)
        opened(owner)
        wait = workers.submit(owner.mailbox("m").question, 0, LONG)
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
        body = request.WhichOneof("body")
        key = body, getattr(request, body).SerializeToString()
        if key in lost or body in ("open", "close"):
            return "ok"
        lost.add(key)
        return "lose reply"

    transports = [Faulty(transport, plan) for transport in in_process(2)]
    with Client(transports, retry=QUICK) as client:
        mailbox = opened(client)
        total = StoredArray(client.new_id(), TYPE)
        asked = mailbox.ask(b"value", total=total)
        assert asked.answers(1, 0.0) is None
        change = Change(None, np.ones(SPACE.length))
        mailbox.answer(asked.number, 1, b"one", SPACE, change)
        assert mailbox.question(0, LONG) == Question(asked.number, b"value")
        assert asked.answers(1, LONG) == [{1: b"one"}] * 2
        assert (client.read(*total) == 1.0).all()


def test_refusals(connect):
    mailbox = opened(connect(1))
    too_large = b"\0" * (MOST_VALUE_BYTES + 1)
    with pytest.raises(ValueError, match="65537 bytes; a mailbox takes up to 65536: put it into"):
        mailbox.ask(too_large)
    _, number = ask(mailbox)
    with pytest.raises(ValueError, match="65537 bytes"):
        mailbox.answer(number, 1, too_large)
    with pytest.raises(ValueError, match="65537 bytes"):
        a_mailbox(WaitingRoom()).ask(state.Question(1, too_large))


# --- totals and arrays that come along ------------------------------------------------------------


def asked_total(client, mailbox, count=0):
    total = StoredArray(client.new_id(), TYPE)
    asked = mailbox.ask(b"add up", total=total)
    assert asked.answers(3, 0.0) is None
    return asked, lambda: client.read(*total)


def test_a_total_is_added_up_in_the_order_of_the_keys(connect):
    """Whoever came first, and of several answers under a key the first counts."""
    rng = np.random.default_rng(3)
    values = [rng.normal(size=SPACE.length) * 10.0**k for k in (0, 9, -9)]
    where = np.sort(rng.choice(SPACE.length, 700, replace=False))
    changes = {
        0: Change(None, values[0]),
        1: Change(where, values[1][where]),
        2: Change(where[::-1].copy(), values[2][where[::-1]]),
    }
    expected = np.zeros(SPACE.length) + values[0]
    expected[where] += values[1][where]
    expected[where] += values[2][where]
    client = connect(3)
    mailbox = opened(client)
    for order in ([2, 0, 1, 0, 2], [1, 2, 0]):
        asked, read = asked_total(client, mailbox)
        for key in order[:-1]:
            mailbox.answer(asked.number, key, b"%d" % key, SPACE, changes[key])
        mailbox.answer(asked.number, order[-1], b"%d" % order[-1], SPACE, changes[order[-1]])
        assert asked.answers(3, LONG) == [{0: b"0", 1: b"1", 2: b"2"}] * 3
        assert read().tobytes() == expected.tobytes()
        mailbox.answer(asked.number, 1, b"late", SPACE, changes[0])
        assert asked.answers(3, LONG)[0][1] == b"1"
        assert read().tobytes() == expected.tobytes()


def test_one_question_one_message(connect):
    """The question, the wait for its answers and their total; and an answer with its part."""
    client = connect(3)
    mailbox = opened(client)
    asked, _ = asked_total(client, mailbox)
    for key in range(2):
        mailbox.answer(asked.number, key, b"", SPACE, Change(None, np.ones(SPACE.length)))
    client.counters.reset()
    mailbox.answer(asked.number, 2, b"", SPACE, Change(None, np.ones(SPACE.length)))
    assert client.counters.messages_per_server == [1, 1, 1]
    asked.answers(3, LONG)
    assert client.counters.messages_per_server == [2, 2, 2]


def test_servers_may_count_different_answers_and_tell():
    """As a sender is lost between two servers, and another takes its place."""
    unreachable = set()
    transports = [
        Faulty(inner, lambda request, k=k: "lose request" if k in unreachable else "ok")
        for k, inner in enumerate(in_process(2))
    ]
    with Client(transports, retry=QUICK) as client:
        mailbox = opened(client)
        asked = mailbox.ask(b"", total=StoredArray(client.new_id(), TYPE))
        assert asked.answers(1, 0.0) is None
        change = Change(None, np.ones(SPACE.length))
        unreachable.add(1)
        with pytest.raises(PSError):
            mailbox.answer(asked.number, 0, b"attempt 1", SPACE, change)
        unreachable.clear()
        mailbox.answer(asked.number, 0, b"attempt 2", SPACE, change)
        assert asked.answers(1, LONG) == [{0: b"attempt 1"}, {0: b"attempt 2"}]


def test_without_memory_for_a_total_there_is_none():
    transports = in_process(1, memory=100_000)
    with Client(transports) as client:
        mailbox = opened(client)
        asked, read = asked_total(client, mailbox)
        where = np.arange(10)
        for key in range(3):
            mailbox.answer(asked.number, key, b"", SPACE, Change(where, np.ones(10)))
        hold = put(client, DenseSpace(8000), np.ones(8000))
        with pytest.raises(OutOfBudget, match="adding up contributions"):
            asked.answers(3, LONG)
        client.free([hold])
        assert asked.answers(3, LONG) is not None
        assert read().sum() == 30.0


def test_a_contribution_to_another_space_is_refused(connect):
    client = connect(1)
    mailbox = opened(client)
    asked, read = asked_total(client, mailbox)
    other = DenseSpace(17)
    for key in range(3):
        mailbox.answer(asked.number, key, b"", other, Change(None, np.ones(17)))
    with pytest.raises(ValueError, match=r"is float64 over .*17.*, the target is .*5000"):
        asked.answers(3, LONG)
    with pytest.raises(BufferLost):
        read()


def test_an_array_comes_along_with_the_question(connect, workers):
    client = connect(3)
    mailbox, values = opened(client), np.random.default_rng(4).normal(size=SPACE.length)
    about = StoredArray(put(client, SPACE, values), TYPE)
    found = np.empty(SPACE.length)
    wait = workers.submit(mailbox.question, 0, LONG, (TYPE, found))
    asked = mailbox.ask(b"here", about, about._replace(buffer=client.new_id()))
    assert asked.answers(0, LONG) == [{}] * 3
    assert wait.result() == Question(asked.number, b"here")
    assert found.tobytes() == values.tobytes()
    client.counters.reset()
    mailbox.question(0, LONG, (TYPE, found))
    assert client.counters.messages_per_server == [1, 1, 1]


def test_another_array_does_not_come_along(connect):
    client = connect(2)
    mailbox = opened(client)
    about = StoredArray(put(client, SPACE, np.ones(SPACE.length)), TYPE)
    total = about._replace(buffer=client.new_id())
    mailbox.ask(b"here", about, total).answers(1, 0.0)
    for space, dtype in ((SPACE, np.float32), (DenseSpace(5001), float)):
        into = np.empty(space.length, dtype)
        with pytest.raises(NotAlong):
            mailbox.question(0, LONG, (array_type(space, dtype), into))
    mailbox.ask(b"about nothing", total=total).answers(1, 0.0)
    with pytest.raises(NotAlong):
        mailbox.question(0, LONG, (TYPE, np.empty(SPACE.length)))
    assert mailbox.question(0, LONG).value == b"about nothing"
