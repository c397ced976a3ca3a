"""Totals that answers contribute to, and arrays that come along, over both transports."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from ps_backend.client import Change, Client, Question, StoredArray
from ps_backend.errors import BufferLost, OutOfBudget, PSError
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import DTYPES, array_type
from ps_backend.server.service import Service
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import encode_array
from ps_backend.wire.protocol import MOST_VALUE_BYTES, NotAlong
from tests.ps_backend.helpers import QUICK, Faulty, in_process, put
from tests.ps_backend.mailboxes import LONG, SPACE, TYPE, opened
from tests.ps_backend.requests import Sender, ask


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
    with pytest.raises(ValueError, match=r"an update must be float64 over .*5000, got .*17"):
        asked.answers(3, LONG)
    with pytest.raises(BufferLost):
        read()


def test_an_array_comes_along_with_the_question(connect):
    client = connect(3)
    mailbox, values = opened(client), np.random.default_rng(4).normal(size=SPACE.length)
    about = StoredArray(put(client, SPACE, values), TYPE)
    found = np.empty(SPACE.length)
    with ThreadPoolExecutor(1) as worker:
        wait = worker.submit(mailbox.question, 0, LONG, (TYPE, found))
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


@pytest.mark.parametrize("name", ["a", "d"])  # at home on either server
def test_who_waits_for_values_hears_of_a_question_without_any(connect, name):
    """They wait on the server that has the values, and the question is asked at home."""
    client, space = connect(2), DenseSpace(6)
    mailbox, type = opened(client, name), array_type(space, float)
    about = StoredArray(put(client, space, np.ones(6)), type)
    total = about._replace(buffer=client.new_id())
    first = mailbox.ask(b"about values", about, total)
    assert first.answers(0, LONG) is not None
    with ThreadPoolExecutor(1) as worker:
        wait = worker.submit(mailbox.question, first.number, LONG, (type, np.empty(6)))
        mailbox.ask(b"about nothing").answers(1, 0.0)
        with suppress(NotAlong):
            assert wait.result() is not None
    assert mailbox.question(first.number, LONG).value == b"about nothing"


@pytest.mark.parametrize("bad", [{"value": b"x" * (MOST_VALUE_BYTES + 1)}, {"target": pb.Array()}])
def test_a_question_that_cannot_be_is_not_asked(bad):
    sender = Sender(Service(memory=1 << 20))
    assert sender.error(wait=ask("t", 1, **{"value": b"?", **bad})).message
    assert "no mailbox" in sender.error(wait=ask("t", 1)).message


def test_totals_of_nothing_are_zeros_of_any_dtype():
    sender = Sender(Service(memory=1 << 20))
    for number, dtype in enumerate(DTYPES, 1):
        target = encode_array(number, array_type(DenseSpace(5), dtype))
        asked = ask("t", number, value=b"", target=target)
        assert not sender.send(wait=asked).HasField("error")
        target.buffer += 100
        commit = pb.Release(round=dtype, totals=[pb.Total(target=target, op="add")])
        assert not sender.send(release=commit).HasField("error")
        for buffer in (number, number + 100):
            assert not sender.read(buffer, 5, dtype).any()
