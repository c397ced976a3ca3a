"""Programs and frees, on any number of servers, over both transports."""

import gc
import threading

import numpy as np
import pytest

from ps_backend.client import Client
from ps_backend.errors import BufferLost, InvalidProgram
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.sweep import Program, Reduction, Sweep, SweepCall
from ps_backend.program.types import ValueType, array_type
from tests.ps_backend.helpers import DOT, Faulty, axpy, dot, in_process, put
from tests.waiting import join_all

SPACE = DenseSpace(5000)
FLOATS = array_type(SPACE, float)


def values(space=SPACE, seed=0):
    return np.random.default_rng(seed).standard_normal(space.length)


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_programs_run(connect, servers):
    client = connect(servers)
    a, b = values(seed=1), values(seed=2)
    x, y, out = put(client, SPACE, a), put(client, SPACE, b), client.new_id()
    client.counters.reset()
    assert client.run(axpy(SPACE, 2.5, x, y, out)) == [[]]
    ((partials,),) = client.run(dot(SPACE, x, out))
    assert partials.shape == (SPACE.blocks,)
    np.testing.assert_array_equal(client.read(out, FLOATS), 2.5 * a + b)
    np.testing.assert_allclose(partials.sum(), a @ (2.5 * a + b))
    counts = client.counters.snapshot()
    assert (counts["messages"], counts["programs"], counts["sweeps"]) == (3, 2, 2)
    assert (counts["vectors_read"], counts["vectors_written"]) == (5, 1)


def test_partials_have_the_same_bits_on_any_number_of_servers():
    space = DenseSpace(20_000)
    found = set()
    for servers in (1, 2, 3, 7):
        with connect_in_process(servers) as client:
            x = put(client, space, values(space))
            ((partials,),) = client.run(dot(space, x, x))
            found.add(partials.tobytes())
    assert len(found) == 1


def test_arg_reductions_and_several_spaces_in_one_program():
    small, f8 = DenseSpace(10), ValueType("float64")
    arg = Sweep((f8,), (), (), (), (Reduction("argmax", (0,)), Reduction("sum", (0,))))
    with connect_in_process(3) as client:
        x, y = put(client, SPACE, values()), put(client, small, np.arange(10.0))
        client.counters.reset()
        calls = SweepCall(arg, SPACE, (x,), (), ()), SweepCall(arg, small, (y,), (), ())
        (big, tiny) = client.run(Program(calls))
        assert client.counters.messages == 1
    assert [piece.tolist() for piece in tiny] == [[9.0], [9], [45.0]]
    best, where, _ = big
    assert where[best.argmax()] == values().argmax()
    assert where.dtype == np.int64


def test_a_later_sweep_reads_what_an_earlier_one_stored():
    with connect_in_process(2) as client:
        x, out = put(client, SPACE, values()), client.new_id()
        first, second = axpy(SPACE, 1.0, x, x, out), dot(SPACE, out, out)
        _, (partials,) = client.run(Program(first.calls + second.calls))
        np.testing.assert_allclose(partials.sum(), 4 * values() @ values())


def test_a_sweep_may_not_read_what_it_stores():
    with connect_in_process(1) as client:
        x, out = put(client, SPACE, values()), client.new_id()
        with pytest.raises(BufferLost):
            client.run(axpy(SPACE, 1.0, x, out, out))


def test_a_structure_is_sent_once_and_again_when_a_server_forgot_it(connect):
    client = connect(2)
    x = put(client, SPACE, values())
    client.run(dot(SPACE, x, x))
    client.counters.reset()
    client.run(dot(SPACE, x, x))
    short = client.counters.bytes_sent
    for link in client._fan_out.links:
        link.known_sweeps.clear()
    client.run(dot(SPACE, x, x))
    assert client.counters.bytes_sent - short > short
    joined = Client(client._transports, session=client.secret)
    for link in joined._fan_out.links:
        link.known_sweeps.update(["unknown", DOT.digest])
    client.counters.reset()
    ((got,),) = joined.run(dot(SPACE, x, x))
    np.testing.assert_allclose(got.sum(), values() @ values())


def test_an_unknown_digest_is_answered_by_the_whole_structure(connect):
    client = connect(2)
    x = put(client, SPACE, values())
    for link in client._fan_out.links:
        link.known_sweeps.add(DOT.digest)
    client.counters.reset()
    ((got,),) = client.run(dot(SPACE, x, x))
    np.testing.assert_allclose(got.sum(), values() @ values())
    assert client.counters.messages == 2
    client.run(dot(SPACE, x, x))
    assert client.counters.messages == 3


def test_a_buffer_of_another_type_is_refused():
    with connect_in_process(2) as client:
        x = put(client, SPACE, values().astype(np.float32))
        with pytest.raises(InvalidProgram, match=r"float32.*not.*float64"):
            client.run(dot(SPACE, x, x))
        with pytest.raises(InvalidProgram, match=r"length 5000, not .* length 4000"):
            client.read(x, array_type(DenseSpace(4000), np.float32))


def test_a_program_that_fails_on_one_server_leaves_no_output():
    transports = in_process(2)
    with Client(transports) as client:
        x, out = put(client, SPACE, values()), client.new_id()
        transports[1].service.sessions.get(client.session).store.free([x])
        with pytest.raises(BufferLost, match=f"buffer {x} .*in-process:1"):
            client.run(axpy(SPACE, 1.0, x, x, out, frees=[x]))
        assert [server.buffers for server in client.status()] == [1, 0]


def test_an_id_is_written_once():
    with connect_in_process(1) as client:
        x = put(client, SPACE, values())
        with pytest.raises(InvalidProgram, match="exists already"):
            client.run(axpy(SPACE, 1.0, x, x, x))
        with pytest.raises(InvalidProgram, match="exists already"):
            client.scatter_add(x, x, FLOATS, [0], [1.0], donate=True)
        np.testing.assert_array_equal(client.read(x, FLOATS), values())


def test_an_unawaited_program_is_awaited_by_the_next_message(connect):
    client = connect(2)
    x, out = put(client, SPACE, values()), client.new_id()
    assert client.run(axpy(SPACE, 1.0, x, x, out), wait=False) is None
    np.testing.assert_array_equal(client.read(out, FLOATS), values() + values())


def test_the_error_of_an_unawaited_program_comes_with_the_next_message(connect):
    client = connect(2)
    x, out = put(client, SPACE, values()), client.new_id()
    client.run(axpy(SPACE, 1.0, x, 12345, out), wait=False)
    with pytest.raises(BufferLost, match="12345"):
        client.read(x, FLOATS)
    np.testing.assert_array_equal(client.read(x, FLOATS), values())
    client.run(axpy(SPACE, 1.0, x, 12345, client.new_id()), wait=False)
    with pytest.raises(BufferLost, match="12345"):
        client.wait()


# --- frees ----------------------------------------------------------------------------------------


def test_frees_ride_along(connect):
    client = connect(2)
    x, y = put(client, SPACE, values()), put(client, SPACE, values())
    client.counters.reset()
    client.free([x])
    assert client.counters.messages == 0
    client.run(dot(SPACE, y, y))
    assert client.counters.messages == 1
    assert {server.buffers for server in client.status()} == {1}
    with pytest.raises(BufferLost, match=f"buffer {x} is not on this server"):
        client.read(x, FLOATS)


def test_frees_of_a_program_leave_with_the_next_message():
    with connect_in_process(2) as client:
        x, out = put(client, SPACE, values()), client.new_id()
        client.run(axpy(SPACE, 1.0, x, x, out, frees=[x]))
        client.run(dot(SPACE, out, out))
        assert {server.buffers for server in client.status()} == {1}
        client.run(Program((), (out,)))
        client.run(Program(()))


def test_frees_that_come_with_a_failing_request_are_applied():
    with connect_in_process(1) as client:
        x = put(client, SPACE, values())
        client.free([x])
        with pytest.raises(BufferLost):
            client.run(dot(SPACE, x, x))
        assert client.status()[0].buffers == 0


def test_frees_may_come_from_finalizers_in_any_thread():
    class Handle:
        def __init__(self, client, number):
            self.client, self.number = client, number
            self.me = self  # a cycle: only the collector finds it

        def __del__(self):
            self.client.free([self.number])

    with connect_in_process(2) as client:
        keep = put(client, SPACE, values())

        def work():
            for _ in range(20):
                Handle(client, put(client, SPACE, values()))
                client.run(dot(SPACE, keep, keep))
                gc.collect()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        join_all(*threads)
        client.run(dot(SPACE, keep, keep))
        assert {server.buffers for server in client.status()} == {1}


def test_a_server_that_is_not_used_hears_of_its_frees(monkeypatch):
    monkeypatch.setattr("ps_backend.client.fan_out._MOST_WAITING_FREES", 5)
    tiny = DenseSpace(10)  # one block: held by the last server only
    with Client([*map(Faulty, in_process(2))]) as client:
        held = [put(client, SPACE, values()) for _ in range(6)]
        x = put(client, tiny, np.ones(10))
        client.counters.reset()
        client.free(held)
        client.run(dot(tiny, x, x))
        assert client.counters.messages_per_server == [1, 1]
        assert [server.buffers for server in client.status()] == [0, 1]


def test_what_another_thread_has_finished_is_not_sent_again() -> None:
    """A thread that needs the answer of an unawaited request may come before it was sent."""
    with connect_in_process(2) as client:
        messages = client._requests.to_all("status")
        group = client._fan_out._prepare(messages, False, None)
        assert len(group.finish()) == 2
        group.start(messages)
        assert [exchange._pending for exchange in group._exchanges.values()] == [None, None]
