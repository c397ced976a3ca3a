"""A repeated request is answered from the record."""

import threading

import pytest

from ps_backend.errors import StaleRequest
from ps_backend.server.reply_log import WINDOW, ReplyLog
from ps_backend.server.state.memory import Memory
from ps_backend.wire import ps_pb2 as pb
from tests.waiting import PATIENCE, join_all

MEMORY = Memory(1 << 30)


class Work:
    def __init__(self, keep=True):
        self.runs, self.keep = 0, keep

    def __call__(self):
        self.runs += 1
        return pb.Reply(payload=self.runs), self.keep


def test_a_repeat_is_not_run():
    record, work = ReplyLog(MEMORY), Work()
    assert record.once(1, 1, work) == record.once(1, 1, work) == pb.Reply(payload=1)
    assert record.once(2, 1, work) == pb.Reply(payload=2)
    assert work.runs == 2


def test_what_is_not_to_be_kept_runs_again():
    record, work = ReplyLog(MEMORY), Work(keep=False)
    record.once(1, 1, work)
    record.once(1, 1, work)
    assert work.runs == 2


def test_a_repeat_waits_for_the_one_that_runs():
    record, started, go_on = ReplyLog(MEMORY), threading.Event(), threading.Event()
    replies = []

    def slow():
        started.set()
        go_on.wait(PATIENCE)
        return pb.Reply(payload=7), True

    first = threading.Thread(target=lambda: replies.append(record.once(1, 1, slow)))
    first.start()
    assert started.wait(PATIENCE)
    repeats = [
        threading.Thread(target=lambda: replies.append(record.once(1, 1, Work()))) for _ in range(3)
    ]
    for thread in repeats:
        thread.start()
    assert not replies
    go_on.set()
    for thread in (first, *repeats):
        join_all(thread)
    assert replies == [pb.Reply(payload=7)] * 4


def test_the_record_is_bounded():
    record, work = ReplyLog(MEMORY), Work()
    for number in range(1, WINDOW + 11):
        record.once(number, 1, work)
    assert len(record) == WINDOW
    with pytest.raises(StaleRequest, match="request 10 "):
        record.once(10, 1, work)
    assert record.once(11, 1, work) == pb.Reply(payload=11)


def test_settled_replies_are_dropped():
    record, work = ReplyLog(MEMORY), Work()
    for number in (1, 2, 3):
        record.once(number, 1, work)
    record.once(5, 4, work)
    assert len(record) == 1
    with pytest.raises(StaleRequest):
        record.once(2, 1, work)
    record.once(4, 4, work)  # overtaken by 5, not late


def test_a_failure_of_the_record_lets_repeats_run():
    record = ReplyLog(MEMORY)

    def broken():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record.once(1, 1, broken)
    assert record.once(1, 1, Work()) == pb.Reply(payload=1)


def test_replies_count_as_memory():
    memory = Memory(1 << 20)
    record = ReplyLog(memory)
    for number in range(1, 11):
        record.once(number, 1, lambda: (pb.Reply(partials=[bytes(1000)]), True))
    assert 10_000 < memory.used < 20_000
    for number in range(11, 100):
        record.once(number, 1, lambda: (pb.Reply(partials=[bytes(100_000)]), True))
    assert memory.used < 2 << 20, "a server that is full keeps fewer"
    del record
    assert memory.used == 0
