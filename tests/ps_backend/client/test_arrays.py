"""Dense and sparse access, on any number of servers, over both transports."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_backend.client import Client, SharedArray
from ps_backend.errors import BufferLost
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import DTYPES, array_type
from ps_backend.wire.codec import encode_array
from tests.ps_backend.helpers import put, share
from tests.waiting import join_all

SPACE = DenseSpace(5000)
FLOATS = array_type(SPACE, float)


def values(space=SPACE, seed=0):
    return np.random.default_rng(seed).standard_normal(space.length)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [0, 1, 1024, 5000])
def test_what_is_written_is_read(servers, dtype, length):
    space = DenseSpace(length)
    x = (values(space) * 100).astype(dtype)
    with connect_in_process(servers) as client:
        number = put(client, space, x)
        got = client.read(number, array_type(space, dtype))
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
    assert client.read(number, array_type(space, np.float64), out=out) is out
    assert out.tobytes() == x.tobytes()
    rows = client.read_rows(number, array_type(space, float), 5, space.length - 7)
    assert rows.tobytes() == x[5:-7].tobytes()
    places = np.random.default_rng(1).integers(0, space.length, 300_000)
    assert (
        client.gather(number, array_type(space, np.float64), places).tobytes()
        == x[places].tobytes()
    )
    other = client.new_id()
    client.scatter_add(
        number, other, array_type(space, np.float64), places, x[places], donate=False
    )
    np.add.at(x, places, x[places])
    assert client.read(other, array_type(space, np.float64)).tobytes() == x.tobytes()
    assert client.counters.messages == 6
    assert client.counters.bytes_sent > 8 * space.length


def test_rows_with_a_shape_travel_too():
    x = np.arange(15000.0).reshape(5000, 3)
    with connect_in_process(2) as client:
        number = put(client, SPACE, x)
        np.testing.assert_array_equal(client.read(number, array_type(SPACE, float, (3,))), x)


@settings(max_examples=40)
@given(st.sampled_from([1, 2, 3, 7]), st.sampled_from([(), (3,)]), st.data())
def test_rows_that_follow_each_other(servers, row, data):
    x = values(DenseSpace(5000 * (row or (1,))[0])).reshape(5000, *row)
    start = data.draw(st.integers(0, 5000) | st.sampled_from([1023, 1024, 1025]))
    stop = data.draw(st.integers(start, 5000))
    type = array_type(SPACE, float, row)
    with connect_in_process(servers) as client:
        number = put(client, SPACE, x)
        client.counters.reset()
        np.testing.assert_array_equal(client.read_rows(number, type, start, stop), x[start:stop])
        ranges = [SPACE.range_of(k, servers) for k in range(servers)]
        asked = [int(max(low, start) < min(high, stop)) for low, high in ranges]
        assert client.counters.messages_per_server == asked


def test_rows_beyond_an_array_or_a_part_are_refused():
    with connect_in_process(2) as client:
        number, type = put(client, SPACE, values()), array_type(SPACE, float)
        for start, stop in ((-1, 3), (3, 2), (0, 5001)):
            with pytest.raises(IndexError, match="are not within 0:5000"):
                client.read_rows(number, type, start, stop)
        rows = {"array": encode_array(number, type), "count": 5000}
        message = client._requests.message("read", rows=rows)
        with pytest.raises(ValueError, match="5000 rows from 0 on are out of range 0:2048"):
            client._send({0: message}, recorded=False)


@given(st.integers(1, 7), st.integers(1, 9000), st.data(), st.booleans(), st.booleans())
def test_sparse_access_is_numpys(servers, length, data, donate, ordered):
    space = DenseSpace(length)
    places = data.draw(st.lists(st.integers(0, length - 1), max_size=40))
    indices = np.array(sorted(places) if ordered else places, dtype=np.int64)
    added = np.random.default_rng(3).standard_normal(len(indices))
    x = values(space)
    with connect_in_process(servers, memory=1 << 26) as client:
        source, target = put(client, space, x), client.new_id()
        np.testing.assert_array_equal(
            client.gather(source, array_type(space, float), indices), x[indices]
        )
        client.scatter_add(source, target, array_type(space, float), indices, added, donate=donate)
        expected = x.copy()
        np.add.at(expected, indices, added)
        np.testing.assert_array_equal(client.read(target, array_type(space, float)), expected)
        if donate:
            with pytest.raises(BufferLost, match=str(source)):
                client.read(source, array_type(space, float))
        else:
            np.testing.assert_array_equal(client.read(source, array_type(space, float)), x)


def test_a_gather_asks_only_who_holds_something():
    with connect_in_process(5) as client:
        number = put(client, SPACE, values())
        client.counters.reset()
        client.gather(number, FLOATS, [1, 2, 4999])
        assert client.counters.messages_per_server == [1, 0, 0, 0, 1]
        client.gather(number, FLOATS, np.empty(0, np.int64))
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
    with connect_in_process(2) as client:
        with pytest.raises(error, match=text):
            client.gather(0, FLOATS, indices)
        with pytest.raises(error, match=text):
            client.scatter_add(0, 1, FLOATS, indices, np.ones(1), donate=False)
        assert client.counters.messages == 0


def test_servers_check_indices_again(monkeypatch):
    monkeypatch.setattr(
        "ps_backend.client.arrays.check_indices", lambda indices, _: np.array(indices)
    )
    with connect_in_process(1) as client:
        number = put(client, SPACE, values())
        with pytest.raises(
            IndexError, match=r"5000 to 5000 are out of range: this server stores 0 to 4999"
        ):
            client.gather(number, FLOATS, [5000])


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        (np.ones(3), ValueError, r"length 5000, got shape \(3,\)"),
        (np.float64(1), ValueError, r"shape \(\)"),
        (np.ones(5000, complex), TypeError, "complex128.*float64, float32"),
    ],
)
def test_bad_values_are_refused(bad, error, text):
    with connect_in_process(2) as client, pytest.raises(error, match=text):
        client.write(1, SPACE, bad)


def test_foreign_byte_order_is_converted():
    x = values().astype(">f8")
    with connect_in_process(1) as client:
        np.testing.assert_array_equal(client.read(put(client, SPACE, x), FLOATS), x)


def test_out_must_fit():
    with connect_in_process(1) as client, pytest.raises(ValueError, match="out must be"):
        client.read(1, FLOATS, out=np.empty(5000, np.float32))


def test_updates_by_many_clients_all_count(connect):
    owner = connect(3)
    shared = share(owner, SPACE, np.zeros(SPACE.length, np.int64))
    workers = [Client(owner._transports, session=owner.secret) for _ in range(4)]
    everywhere = np.arange(SPACE.length)

    def work(worker):
        for _ in range(20):
            worker.update(shared, everywhere, np.ones(SPACE.length, np.int64))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    join_all(*threads)
    np.testing.assert_array_equal(owner.pull(shared), np.full(SPACE.length, 80))


def test_an_update_goes_to_whom_it_concerns():
    with connect_in_process(3) as client:
        shared = share(client, SPACE, values())
        client.counters.reset()
        client.update(shared, [1, 0, 1], [0.5, 1.0, 0.25])
        client.update(shared, [], [])
        assert client.counters.messages == 1
        expected = values()
        np.add.at(expected, [1, 0, 1], [0.5, 1.0, 0.25])
        assert client.pull(shared).tobytes() == expected.tobytes()
        with pytest.raises(BufferLost):
            client.update(shared._replace(number=99), [4999], [1.0])
        with pytest.raises(IndexError, match="5000"):
            client.update(shared, [5000], [1.0])


@pytest.mark.parametrize("dtype", DTYPES[:-1])
def test_tasks_add_in_every_dtype(dtype):
    """In shared arrays and in rounds, in that dtype: integers wrap around."""
    x, kind = (np.arange(5000) % 100).astype(dtype), array_type(SPACE, dtype)
    indices, added = np.array([1, 1, 5]), np.full(3, 100, dtype)
    expected = x.copy()
    np.add.at(expected, indices, added)
    with connect_in_process(2) as client:
        shared = SharedArray(client.new_id(), kind)
        client.share([put(client, SPACE, x)], [shared])
        client.update(shared, indices, added)
        client.snapshot([shared], [copy := client.new_id()])
        client.stage("r", 0, 0, SPACE, indices, added)
        client.stage("r", 1, 0, SPACE, None, x)
        client.commit("r", [(0, 0), (1, 0)], kind, total := client.new_id())
        for found in (client.pull(shared), client.read(copy, kind), client.read(total, kind)):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
