"""Pull and push of rows of tables, and of the small arrays that the client keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.testing import assert_plan

SERVERS = st.sampled_from((1, 2, 3, 7))
LENGTHS = st.sampled_from([1, 2, 1023, 1025, 3000])


@settings(max_examples=25)
@given(data=st.data(), servers=SERVERS, length=LENGTHS, k=st.integers(1, 5))
def test_rows_are_pulled_and_pushed_as_numpy_takes_and_adds_them(
    sessions: dict[int, dv.Session], data: st.DataObject, servers: int, length: int, k: int
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    host = rng.normal(size=(length, k))
    table = sessions[servers].array(host)
    old = table.copy()
    where = data.draw(st.lists(st.integers(-length, length - 1), max_size=8))
    found = table.pull(where)
    assert found.shape == (len(where), k)
    np.testing.assert_array_equal(found, host[np.array(where, int)])
    shape = data.draw(st.sampled_from([(len(where), k), (k,), (1, k), (len(where), 1), (1,), ()]))
    values = rng.normal(size=shape)
    expected = host.copy()
    np.add.at(expected, np.array(where, int), values)
    assert table.push(where, values) is table
    np.testing.assert_array_equal(table.numpy(), expected)
    everywhere = rng.normal(size=data.draw(st.sampled_from([(length, k), (length, 1), (k,), ()])))
    table.push(None, everywhere)
    np.testing.assert_array_equal(table.numpy(), expected + everywhere)
    np.testing.assert_array_equal(old.numpy(), host)


def test_add_at_takes_rows(ps: dv.Session) -> None:
    host = np.zeros((5, 2))
    table = ps.array(host)
    for one in (host, table):
        np.add.at(one, [1, 1, -1], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        np.subtract.at(one, np.array([[0], [1]]), [1.0, 0.5])
    np.testing.assert_array_equal(table.numpy(), host)


def test_rows_cost_a_message_to_each_server_that_holds_some(ps: dv.Session) -> None:
    table = ps.array(np.zeros((3000, 3)))
    ps.counters.reset()
    table.pull([0, 1])
    assert ps.counters.messages_per_server == [1, 0]
    table.push([0, 2999], 1.0)
    assert ps.counters.messages_per_server == [2, 1]


@pytest.mark.parametrize("where", [None, [0, 0], [-1]])
def test_what_the_client_keeps_is_pulled_and_pushed_there(ps: dv.Session, where: object) -> None:
    host = np.arange(12.0).reshape(4, 3)
    table = ps.array(host)
    for small, expected in ((table.sum(0), host.sum(0)), (table.T @ table, host.T @ host)):
        old = small.copy()
        before = ps.counters.messages
        np.testing.assert_array_equal(small.pull([2, 0]), expected[[2, 0]])
        evaluation = ps.counters.messages - before
        np.add.at(expected, slice(None) if where is None else where, 1.5)
        assert small.push(where, 1.5) is small
        np.testing.assert_array_equal(small.numpy(), expected)
        assert ps.counters.messages - before == evaluation
        assert not np.array_equal(old.numpy(), expected)


def test_what_the_client_keeps_is_put_on_the_servers_lazily(ps: dv.Session) -> None:
    host = np.arange(12.0).reshape(4, 3)
    table = ps.array(host)
    for small, expected in ((table.sum(0), host.sum(0)), (table.T @ table, host.T @ host)):
        there = ps.array(small, np.float32)
        assert there.space.length == 3
        np.testing.assert_array_equal(there.numpy(), expected.astype(np.float32))
        assert there.buffer_id
        assert small.node.on_client
        np.testing.assert_array_equal(ps.client.read(small.buffer.id, small.type), expected)
    row = table.max(0)
    assert_plan(ps.array(row) * 2.0, sweeps=2)  # the reduction, and the product over its elements


def test_a_small_array_becomes_what_servers_have(ps: dv.Session) -> None:
    table = ps.array(np.arange(6.0).reshape(2, 3))
    row = table.sum(0)
    row += ps.ones(3)
    row[:] = row * ps.full(3, 2.0)
    expected = table.numpy() + np.array([8.0, 12.0, 16.0])
    np.testing.assert_array_equal((table + row).numpy(), expected)


def test_errors_name_the_shapes(ps: dv.Session) -> None:
    table = ps.zeros((4, 3))
    allowed = r"push: 2 indices but values of shape \(2,\); allowed are \(2, 3\), \(3,\) and one"
    with pytest.raises(ValueError, match=allowed):
        table.push([0, 1], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"4 elements but values of shape \(3, 3\); allowed are"):
        table.push(None, np.ones((3, 3)))
    with pytest.raises(IndexError, match="index 4 is out of bounds for an array of length 4"):
        table.pull([4])
    with pytest.raises(TypeError, match="cannot add float64"):
        table.astype(int).push([0], [0.5, 1.0, 2.0])
