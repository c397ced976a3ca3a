"""Questions to wait for, and answers that count once, over both transports."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

from ps_backend.client import Change, Client, Question, StoredArray
from ps_backend.errors import MailboxClosed, PSError, SessionUnknown
from ps_backend.server.state import barriers as state
from ps_backend.server.state.barriers import WaitingRoom
from ps_backend.server.state.memory import Memory
from ps_backend.wire.protocol import MOST_VALUE_BYTES, Crowded
from tests.ps_backend.helpers import REPEATED, TOKEN, Faulty, in_process, served
from tests.ps_backend.mailboxes import LONG, SPACE, TYPE, opened
from tests.waiting import FOR_EVER


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
    room = service._host.room = service.sessions.get(client.session).barriers._room = WatchedRoom()
    return room


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
    with pytest.raises(PSError, match=f"the replies to request {number} have expired"):
        asked.answers(3, LONG)
    assert following > number


def test_a_new_question_ends_the_wait_for_answers_to_the_old_one(workers):
    room = WatchedRoom()
    mailbox = a_mailbox(room)
    mailbox.ask(state.Question(1, b"question"))
    wait = workers.submit(mailbox.answers, 1, 1, LONG)
    room.await_waits()
    mailbox.ask(state.Question(2, b"another"))
    with pytest.raises(PSError, match="is at request 2"):
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
        transports[0].service.sessions.get(client.session).barriers._room = WaitingRoom(places=2)
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
        server.stop(FOR_EVER)
        with pytest.raises(PSError):
            wait.result()
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
    with Client(transports, retry=REPEATED) as client:
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
