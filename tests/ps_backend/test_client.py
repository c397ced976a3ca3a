"""What a client asks for happens, on any number of servers, over both transports."""

import gc
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client
from ps_backend.errors import BufferLost, InvalidProgram, PSError
from ps_backend.program import DTYPES, Program, Reduction, Sweep, SweepCall, ValueType
from ps_backend.space import DenseSpace
from tests.ps_backend.helpers import DOT, axpy, dot, in_process, put

SPACE = DenseSpace(5000)


def values(space=SPACE, seed=0):
    return np.random.default_rng(seed).standard_normal(space.length)


# --- dense and sparse -----------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [0, 1, 1024, 5000])
def test_what_is_written_is_read(servers, dtype, length):
    space = DenseSpace(length)
    x = (values(space) * 100).astype(dtype)
    with Client.in_process(servers) as client:
        number = put(client, space, x)
        got = client.read(number, space, dtype)
        np.testing.assert_array_equal(got, x)
        assert got.dtype == x.dtype
        assert client.counters.messages == 2


@pytest.mark.parametrize("servers", [1, 2])
def test_large_transfers_are_exact(connect, servers):
    client = connect(servers)
    space = DenseSpace(2_500_003)
    x = values(space)
    number = put(client, space, x)
    out = np.empty_like(x)
    assert client.read(number, space, np.float64, out=out) is out
    assert out.tobytes() == x.tobytes()
    places = np.random.default_rng(1).integers(0, space.length, 300_000)
    assert client.gather(number, space, np.float64, places).tobytes() == x[places].tobytes()
    other = client.new_id()
    client.scatter_add(number, other, space, np.float64, places, x[places], donate=False)
    np.add.at(x, places, x[places])
    assert client.read(other, space, np.float64).tobytes() == x.tobytes()
    assert client.counters.messages == 5
    assert client.counters.bytes_sent > 8 * space.length


def test_rows_with_a_shape_travel_too():
    x = np.arange(15000.0).reshape(5000, 3)
    with Client.in_process(2) as client:
        number = put(client, SPACE, x)
        np.testing.assert_array_equal(client.read(number, SPACE, float, row=(3,)), x)


@given(
    st.integers(1, 7), st.integers(1, 9000), st.data(), st.booleans(), st.booleans()
)
def test_sparse_access_is_numpys(servers, length, data, donate, ordered):
    space = DenseSpace(length)
    places = data.draw(st.lists(st.integers(0, length - 1), max_size=40))
    indices = np.array(sorted(places) if ordered else places, dtype=np.int64)
    added = np.random.default_rng(3).standard_normal(len(indices))
    x = values(space)
    with Client.in_process(servers, memory=1 << 26) as client:
        source, target = put(client, space, x), client.new_id()
        np.testing.assert_array_equal(client.gather(source, space, float, indices), x[indices])
        client.scatter_add(source, target, space, float, indices, added, donate=donate)
        expected = x.copy()
        np.add.at(expected, indices, added)
        np.testing.assert_array_equal(client.read(target, space, float), expected)
        if donate:
            with pytest.raises(BufferLost, match=str(source)):
                client.read(source, space, float)
        else:
            np.testing.assert_array_equal(client.read(source, space, float), x)


def test_a_gather_asks_only_who_holds_something():
    with Client.in_process(5) as client:
        number = put(client, SPACE, values())
        client.counters.reset()
        client.gather(number, SPACE, float, [1, 2, 4999])
        assert client.counters.messages_per_server == [1, 0, 0, 0, 1]
        client.gather(number, SPACE, float, np.empty(0, np.int64))
        assert client.counters.messages == 1


@pytest.mark.parametrize(
    ("indices", "error", "text"),
    [
        ([5000], IndexError, "index 5000 is out of range for length 5000"),
        ([3, -1], IndexError, "index -1"),
        ([0.5], TypeError, "float64"),
        ([[1]], ValueError, "one dimension"),
    ],
)
def test_bad_indices_are_refused_before_anything_is_sent(indices, error, text):
    with Client.in_process(2) as client:
        with pytest.raises(error, match=text):
            client.gather(0, SPACE, float, indices)
        with pytest.raises(error, match=text):
            client.scatter_add(0, 1, SPACE, float, indices, np.ones(1), donate=False)
        assert client.counters.messages == 0


def test_servers_check_indices_again(monkeypatch):
    monkeypatch.setattr("ps_backend.client.check_indices", lambda indices, _: np.array(indices))
    with Client.in_process(1) as client:
        number = put(client, SPACE, values())
        with pytest.raises(IndexError, match=r"5000 \.\. 5000 are not all in 0 \.\. 4999"):
            client.gather(number, SPACE, float, [5000])


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        (np.ones(3), ValueError, r"length 5000, got shape \(3,\)"),
        (np.float64(1), ValueError, r"shape \(\)"),
        (np.ones(5000, complex), TypeError, "complex128.*float64, float32"),
    ],
)
def test_bad_values_are_refused(bad, error, text):
    with Client.in_process(2) as client, pytest.raises(error, match=text):
        client.write(1, SPACE, bad)


def test_foreign_byte_order_is_converted():
    x = values().astype(">f8")
    with Client.in_process(1) as client:
        np.testing.assert_array_equal(client.read(put(client, SPACE, x), SPACE, float), x)


def test_out_must_fit():
    with Client.in_process(1) as client, pytest.raises(ValueError, match="out must be"):
        client.read(1, SPACE, float, out=np.empty(5000, np.float32))


# --- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_programs_run(connect, servers):
    client = connect(servers)
    a, b = values(seed=1), values(seed=2)
    x, y, out = put(client, SPACE, a), put(client, SPACE, b), client.new_id()
    client.counters.reset()
    assert client.run(axpy(SPACE, 2.5, x, y, out)) == [[]]
    ((partials,),) = client.run(dot(SPACE, x, out))
    assert partials.shape == (SPACE.blocks,)
    np.testing.assert_array_equal(client.read(out, SPACE, float), 2.5 * a + b)
    np.testing.assert_allclose(partials.sum(), a @ (2.5 * a + b))
    counts = client.counters.snapshot()
    assert (counts["messages"], counts["programs"], counts["sweeps"]) == (3, 2, 2)
    assert (counts["vectors_read"], counts["vectors_written"]) == (5, 1)


def test_partials_have_the_same_bits_on_any_number_of_servers():
    space = DenseSpace(20_000)
    found = set()
    for servers in (1, 2, 3, 7):
        with Client.in_process(servers) as client:
            x = put(client, space, values(space))
            ((partials,),) = client.run(dot(space, x, x))
            found.add(partials.tobytes())
    assert len(found) == 1


def test_arg_reductions_and_several_spaces_in_one_program():
    small, f8 = DenseSpace(10), ValueType("float64")
    arg = Sweep((f8,), (), (), (), (Reduction("argmax", 0), Reduction("sum", 0)))
    with Client.in_process(3) as client:
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
    with Client.in_process(2) as client:
        x, out = put(client, SPACE, values()), client.new_id()
        first, second = axpy(SPACE, 1.0, x, x, out), dot(SPACE, out, out)
        _, (partials,) = client.run(Program(first.calls + second.calls))
        np.testing.assert_allclose(partials.sum(), 4 * values() @ values())


def test_a_sweep_may_not_read_what_it_stores():
    with Client.in_process(1) as client:
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
    joined = Client(client._transports, session=client.session)
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
    with Client.in_process(2) as client:
        x = put(client, SPACE, values().astype(np.float32))
        with pytest.raises(InvalidProgram, match=r"float32.*not.*float64"):
            client.run(dot(SPACE, x, x))
        with pytest.raises(InvalidProgram, match="length 5000, not .* length 4000"):
            client.read(x, DenseSpace(4000), np.float32)


def test_a_program_that_fails_on_one_server_leaves_no_output():
    transports = in_process(2)
    with Client(transports) as client:
        x, out = put(client, SPACE, values()), client.new_id()
        transports[1].service._sessions[client.session].store.free([x])
        with pytest.raises(BufferLost, match=f"buffer {x} .*in-process:1"):
            client.run(axpy(SPACE, 1.0, x, x, out, frees=[x]))
        assert [server.buffers for server in client.status()] == [1, 0]


def test_an_id_is_written_once():
    with Client.in_process(1) as client:
        x = put(client, SPACE, values())
        with pytest.raises(InvalidProgram, match="exists already"):
            client.run(axpy(SPACE, 1.0, x, x, x))
        with pytest.raises(InvalidProgram, match="exists already"):
            client.scatter_add(x, x, SPACE, float, [0], [1.0], donate=True)
        np.testing.assert_array_equal(client.read(x, SPACE, float), values())


def test_an_unawaited_program_is_awaited_by_the_next_message(connect):
    client = connect(2)
    x, out = put(client, SPACE, values()), client.new_id()
    assert client.run(axpy(SPACE, 1.0, x, x, out), wait=False) is None
    np.testing.assert_array_equal(client.read(out, SPACE, float), values() + values())


def test_the_error_of_an_unawaited_program_comes_with_the_next_message(connect):
    client = connect(2)
    x, out = put(client, SPACE, values()), client.new_id()
    client.run(axpy(SPACE, 1.0, x, 12345, out), wait=False)
    with pytest.raises(BufferLost, match="12345"):
        client.read(x, SPACE, float)
    np.testing.assert_array_equal(client.read(x, SPACE, float), values())
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
    with pytest.raises(BufferLost, match=f"buffer {x} is not here"):
        client.read(x, SPACE, float)


def test_frees_of_a_program_leave_with_the_next_message():
    with Client.in_process(2) as client:
        x, out = put(client, SPACE, values()), client.new_id()
        client.run(axpy(SPACE, 1.0, x, x, out, frees=[x]))
        client.run(dot(SPACE, out, out))
        assert {server.buffers for server in client.status()} == {1}
        client.run(Program((), (out,)))
        client.run(Program(()))


def test_frees_that_come_with_a_failing_request_are_applied():
    with Client.in_process(1) as client:
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

    with Client.in_process(2) as client:
        keep = put(client, SPACE, values())

        def work():
            for _ in range(20):
                Handle(client, put(client, SPACE, values()))
                client.run(dot(SPACE, keep, keep))
                gc.collect()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        client.run(dot(SPACE, keep, keep))
        assert {server.buffers for server in client.status()} == {1}


# --- sessions -------------------------------------------------------------------------------------


def test_two_sessions_do_not_see_each_other():
    transports = in_process(2)
    with Client(transports) as one, Client(transports) as two:
        x = put(one, SPACE, values())
        with pytest.raises(BufferLost):
            two.read(x, SPACE, float)
        put(two, SPACE, values(seed=1))
        assert one.status()[0].sessions == 2
        np.testing.assert_array_equal(one.read(x, SPACE, float), values())


def test_two_clients_of_a_session_do():
    transports = in_process(2)
    with Client(transports) as owner:
        x = put(owner, SPACE, values())
        with Client(transports, session=owner.session) as worker:
            ids = {owner.new_id(), worker.new_id(), owner.new_id(), worker.new_id(), x}
            assert len(ids) == 5
            y = put(worker, SPACE, worker.read(x, SPACE, float))
        np.testing.assert_array_equal(owner.read(y, SPACE, float), values())
    assert transports[0].service.status().sessions == 0
    assert transports[0].service.memory.used == 0


def test_joining_needs_a_session_and_the_same_servers():
    transports = in_process(2)
    with pytest.raises(PSError, match="does not know the session"):
        Client(transports, session="nobody")
    with Client(transports) as owner, pytest.raises(ValueError, match="server 1 of 2.*not 0 of 2"):
        Client(transports[::-1], session=owner.session)


def test_a_closed_client_says_so():
    client = Client.in_process(1)
    client.close()
    client.close()
    with pytest.raises(PSError, match="closed"):
        client.status()
    assert "closed" in repr(client)


def test_a_client_needs_servers():
    with pytest.raises(ValueError, match="at least one"):
        Client.connect([], token=None)
    with pytest.raises(TypeError, match="list"):
        Client.connect("host:1", token=None)
    with pytest.raises(ValueError, match="1 or more"):
        Client.in_process(0)


def test_counters_print_as_a_table():
    with Client.in_process(1) as client:
        put(client, SPACE, values())
        lines = str(client.counters).splitlines()
        assert len({len(line) for line in lines}) == 1
        assert lines[0].split() == ["messages", "1"]
        assert "vectors_written=1" in repr(client.counters)
