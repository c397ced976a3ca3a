"""Each contribution to a round counts once, whoever repeats what and in whatever order."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_backend.client import Client
from ps_backend.errors import BufferLost, OutOfBudget, PSError, RoundClosed
from ps_backend.in_process import connect_in_process
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type
from ps_backend.wire.protocol import Key
from tests.ps_backend.helpers import in_process
from tests.waiting import join_all

SPACE = DenseSpace(9000)


def contribution(partition, attempt=0, count=400):
    random = np.random.default_rng((partition, attempt))
    indices = random.integers(0, SPACE.length, count)
    return indices, random.standard_normal(count) * 10.0 ** random.integers(-9, 9)


def expected(winners):
    total = np.zeros(SPACE.length)
    for partition, attempt in sorted(winners):
        np.add.at(total, *contribution(partition, attempt))
    return total


def stage(client, partition, attempt=0, name="r"):
    client.stage(name, partition, attempt, SPACE, *contribution(partition, attempt))


def committed(client, winners, name="r"):
    target = client.new_id()
    client.commit(name, winners, array_type(SPACE, np.float64), target)
    return client.read(target, array_type(SPACE, np.float64))


def buffers(client):
    return sum(server.buffers for server in client.status())


def test_only_the_winners_count(connect):
    client = connect(2)
    for partition, attempt in [(0, 0), (0, 1), (1, 7), (1, 7), (2, 0), (2, 5)]:
        stage(client, partition, attempt)
    winners = [(2, 5), (0, 1), (1, 7)]
    assert committed(client, winners).tobytes() == expected(winners).tobytes()
    with pytest.raises(RoundClosed, match="partition 3, attempt 0, is too late: round 'r'"):
        stage(client, 3)
    with pytest.raises(RoundClosed):
        committed(client, winners)


@given(st.permutations(range(5)), st.sampled_from([1, 2, 3, 7]), st.permutations(range(5)))
def test_the_bits_depend_on_neither_order_nor_servers(staged, servers, won):
    with connect_in_process(servers, memory=1 << 26) as client:
        for partition in staged:
            stage(client, partition)
        got = committed(client, [(partition, 0) for partition in won])
    assert got.tobytes() == expected([(k, 0) for k in range(5)]).tobytes()


def test_many_senders_at_once(connect):
    owner = connect(2)
    workers = [Client(owner._transports, session=owner.secret) for _ in range(4)]

    def work(worker, partitions):
        for partition in partitions:
            stage(worker, partition)

    threads = [
        threading.Thread(target=work, args=(worker, range(k, 20, 4)))
        for k, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    join_all(*threads)
    winners = [(k, 0) for k in range(20)]
    assert committed(owner, winners).tobytes() == expected(winners).tobytes()


def test_a_commit_is_one_message_and_frees_what_was_staged():
    with connect_in_process(2) as client:
        empty = sum(server.used for server in client.status())
        for partition in range(4):
            stage(client, partition)
        client.counters.reset()
        target = client.new_id()
        client.commit("r", [(0, 0)], array_type(SPACE, np.float64), target)
        assert client.counters.messages == 1
        client.drop_round("another")
        used = sum(server.used for server in client.status())
        assert 8 * SPACE.length <= used < 8 * SPACE.length + empty + 8192


def test_a_missing_winner_changes_nothing():
    with connect_in_process(3) as client:
        stage(client, 0)
        with pytest.raises(PSError, match=r"this server has no updates of.*\(1, 2\)"):
            committed(client, [(0, 0), (1, 2)])
        assert buffers(client) == 0
        assert committed(client, [(0, 0)]).tobytes() == expected([(0, 0)]).tobytes()


def test_a_winner_missing_on_one_server_changes_nothing_on_the_others():
    transports = in_process(3)
    with Client(transports) as client:
        stage(client, 0)
        stage(client, 1)
        rounds = transports[1].service.sessions.get(client.session).rounds
        lost = rounds._open["r"].contributions.pop(Key(1, 0))
        with pytest.raises(PSError, match=r"\(1, 0\).*in-process:1"):
            committed(client, [(0, 0), (1, 0)])
        assert buffers(client) == 0
        rounds._open["r"].contributions[Key(1, 0)] = lost
        winners = [(0, 0), (1, 0)]
        assert committed(client, winners).tobytes() == expected(winners).tobytes()


def test_a_partition_wins_once():
    with connect_in_process(2) as client:
        stage(client, 0, 0)
        stage(client, 0, 1)
        with pytest.raises(ValueError, match="one winning attempt"):
            committed(client, [(0, 0), (0, 1)])


def test_no_winners_and_empty_contributions_are_legal():
    with connect_in_process(3) as client:
        np.testing.assert_array_equal(committed(client, [], "empty"), np.zeros(SPACE.length))
        client.stage("r", 0, 0, SPACE, np.empty(0, np.int64), np.empty(0))
        client.stage("r", 1, 0, SPACE, [8999], [2.0])
        assert committed(client, [(0, 0), (1, 0)]).sum() == 2.0


def test_a_dropped_round_frees_and_refuses():
    with connect_in_process(2) as client:
        stage(client, 0)
        full = sum(server.used for server in client.status())
        client.drop_round("r")
        assert sum(server.used for server in client.status()) <= full - 16 * 400
        with pytest.raises(RoundClosed):
            stage(client, 0)


def test_contributions_count_as_memory():
    with connect_in_process(1, memory=100_000) as client:
        for partition in itertools.count():
            try:
                stage(client, partition)
            except OutOfBudget:
                break
        assert 10 <= partition < 100_000 // (16 * 400)
        winners = [(0, 0)]
        client.drop_round("other")
        with pytest.raises(OutOfBudget):
            committed(client, winners)
        client.drop_round("r")
        stage(client, 0, name="s")
        np.testing.assert_array_equal(committed(client, winners, "s"), expected(winners))


def test_rounds_of_sessions_are_apart():
    transports = in_process(1)
    with Client(transports) as one, Client(transports) as two:
        stage(one, 0)
        with pytest.raises(PSError, match="this server has no updates"):
            committed(two, [(0, 0)])
        stage(two, 0)
        committed(one, [(0, 0)])
        committed(two, [(0, 0)])


def test_the_space_of_a_round_must_be_the_targets():
    with connect_in_process(2) as client:
        stage(client, 0)
        with pytest.raises(
            ValueError, match=r"an update must be .* length 8000.*got .* length 9000"
        ):
            client.commit("r", [(0, 0)], array_type(DenseSpace(8000), np.float64), 1)
        with pytest.raises(BufferLost):
            client.read(1, array_type(DenseSpace(8000), np.float64))
