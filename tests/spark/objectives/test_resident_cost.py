"""What one evaluation by tasks that stay costs in messages, by kind: for the driver and a task."""

import threading
from contextlib import ExitStack, suppress

import numpy as np
import pytest
import scipy.sparse as sp

from distvec.losses.classification import Logistic
from distvec.losses.rows import Rows
from distvec.spark.data.blocks import Block, save
from distvec.spark.data.build import Descriptor
from distvec.spark.objectives.evaluation_task import (
    PRODUCTS,
    READY,
    SUMMARY,
    Evaluation,
    LossSpec,
    answer_all,
    decode_results,
    encode_request,
    weights_come_along,
)
from ps_backend.client import Client, StoredArray
from ps_backend.errors import MailboxClosed
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.transport import GrpcTransport
from tests.ps_backend.helpers import TOKEN, put, served

SERVERS, ROWS = 2, 20
SPACE = DenseSpace(5000)
TYPE = array_type(SPACE, float)
LONG = 60.0


class Recorder(GrpcTransport):
    """Notes the kinds of requests in the order in which they leave."""

    def __init__(self, address):
        super().__init__(address, token=TOKEN)
        self.kinds = []

    def call(self, request, payload=(), into=None):
        self.kinds.append(request.WhichOneof("body"))
        return super().call(request, payload, into)

    def start(self, request, payload=(), into=None):
        self.kinds.append(request.WhichOneof("body"))
        return super().start(request, payload, into)


def partition(path, columns):
    """The descriptor of a partition whose rows touch these columns."""
    rng = np.random.default_rng(1)
    matrix = sp.csr_array(rng.normal(size=(ROWS, len(columns))))
    save(Block(columns, Rows(matrix, np.sign(rng.normal(size=ROWS)))), str(path))
    sizes = (ROWS, matrix.nnz, len(columns), SPACE.length)
    return Descriptor(0, str(path), *sizes, float(ROWS), [-1.0, 1.0], None)


@pytest.fixture
def running(tmp_path):
    """(columns) -> evaluate, recorders of the driver and of a task, which runs in a thread."""
    with ExitStack() as stack:
        servers = stack.enter_context(served(SERVERS))

        def run(columns):
            ours, theirs = ([Recorder(server.address) for server in servers] for _ in range(2))
            driver = stack.enter_context(Client(ours))
            task = stack.enter_context(Client(theirs, session=driver.secret))
            mailbox = driver.mailbox("m")
            mailbox.open()
            filled = [partition(tmp_path / "block", columns)]

            def serve():
                with suppress(MailboxClosed):
                    work = LossSpec(Logistic(), intercept=False)
                    answer_all(task, task.mailbox("m"), work, filled, 7)

            thread = threading.Thread(target=serve)
            thread.start()
            stack.callback(thread.join)
            stack.callback(mailbox.close)
            assert mailbox.ask(READY).answers(1, LONG) is not None

            def evaluate(w):
                about = StoredArray(put(driver, SPACE, w), TYPE)
                for recorder in (*ours, *theirs):
                    recorder.kinds.clear()
                total = about._replace(buffer=driver.new_id())
                request = Evaluation((about,))
                asked = mailbox.ask(encode_request(request), about, total)
                (result,) = {tuple(decode_results(one)) for one in asked.answers(1, LONG)}
                kinds = [recorder.kinds.copy() for recorder in ours]
                return result[0], kinds, lambda: driver.read(*total)

            return evaluate, theirs

        yield run


def kinds_of_a_task(recorders):
    """What it asked of each server for the last evaluation; the wait for it left before."""
    return [[kind for kind in recorder.kinds if kind != "wait"] for recorder in recorders]


def test_where_rows_touch_all_an_evaluation_is_two_round_trips(running):
    """The weights come along with the question, and the gradient goes with the answer.

    Question and answers pass through the driver's one request: to the servers and on to the task,
    and back. So there are two round trips, one of the driver and one of the task.
    """
    evaluate, task = running(np.arange(SPACE.length))
    first, _, _ = evaluate(np.zeros(SPACE.length))
    assert first.value == pytest.approx(ROWS * np.log(2.0))
    assert kinds_of_a_task(task) == [["read", "contribute"]] * SERVERS
    for value in (0.1, 0.2):
        result, driver, gradient = evaluate(np.full(SPACE.length, value))
        assert (result.attempt, result.error) == (7, "")
        assert driver == [["wait"]] * SERVERS
        assert kinds_of_a_task(task) == [["contribute"]] * SERVERS
        assert gradient().any()


def test_tasks_wait_where_the_question_of_a_phase_is_asked():
    """That is on one server, and who waits for weights waits on those that hold some."""
    about = StoredArray(7, TYPE)
    assert weights_come_along(Evaluation((about,)))
    assert not weights_come_along(Evaluation((about,), SUMMARY))
    assert not weights_come_along(Evaluation((about,), told={0: ((1.0,),)})), "a phase comes next"
    assert not weights_come_along(Evaluation((about,), PRODUCTS, (about,)))
    assert not weights_come_along(Evaluation((about, about)))


def test_where_rows_touch_little_an_evaluation_is_three_round_trips(running):
    """The task pulls what they touch."""
    columns = np.arange(0, SPACE.length, 50)
    evaluate, task = running(columns)
    for value in (0.1, 0.2):
        _, driver, gradient = evaluate(np.full(SPACE.length, value))
        assert driver == [["wait"]] * SERVERS
        assert kinds_of_a_task(task) == [["read", "contribute"]] * SERVERS
        assert set(np.flatnonzero(gradient())) == set(columns)
