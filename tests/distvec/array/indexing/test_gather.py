"""``x[idx]`` with the indices on the servers: what it gives, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv

LENGTH = 3000


@settings(max_examples=30)
@given(
    servers=st.sampled_from((1, 2, 3, 7)),
    count=st.sampled_from((1, 5, 1024, 5000)),
    dtype=st.sampled_from(("int64", "int32", "uint8")),
    kind=st.sampled_from(("random", "permutation", "one server", "repeated")),
    row=st.sampled_from(((), (3,))),
)
def test_as_numpy(
    sessions: dict[int, dv.Session], servers: int, count: int, dtype: str, kind: str,
    row: tuple[int, ...],
) -> None:  # fmt: skip
    rng = np.random.default_rng(count)
    low = 0 if dtype == "uint8" else -LENGTH
    high = 256 if dtype == "uint8" else LENGTH
    where = {
        "random": rng.integers(low, high, count),
        "permutation": rng.permutation(min(count, high)),
        "one server": np.arange(count)[::-1] % 200,
        "repeated": np.full(count, high - 1),
    }[kind].astype(dtype)
    host = rng.standard_normal((LENGTH, *row))
    session = sessions[servers]
    found = session.array(host)[session.array(where)]
    assert found.numpy().tobytes() == host[where].tobytes()


@pytest.mark.parametrize("servers", [1, 3])
def test_two_gathers_in_one_program_where_nothing_leaves_its_server(
    sessions: dict[int, dv.Session], servers: int
) -> None:
    length = 60_000  # what they work in is large enough to be used again
    x, i = sessions[servers].arange(length) * 0.5, sessions[servers].arange(length)
    same, last = x[i], x[np.minimum(i | 1, length - 1)]
    dv.evaluate(same, last)
    places = np.arange(length)
    np.testing.assert_array_equal(same.numpy(), places * 0.5)
    np.testing.assert_array_equal(last.numpy(), (places | 1) * 0.5)


def test_nothing_is_gathered_from_anything(ps: dv.Session) -> None:
    nothing = ps.array(np.empty(0, np.int64))
    assert ps.array(np.arange(5.0))[nothing].numpy().shape == (0,)
    assert ps.zeros((5, 2))[nothing].numpy().shape == (0, 2)


@pytest.mark.parametrize("bad", [-3001, 3000])
def test_out_of_range(ps: dv.Session, bad: int) -> None:
    x = ps.array(np.arange(LENGTH))
    with pytest.raises(IndexError, match=f"index {bad} is out of range for length 3000"):
        x[ps.array([5, bad, 9000])].persist()


@pytest.mark.parametrize("length", [10, 1 << 18])  # memory of long arrays is written over
@pytest.mark.parametrize("is_pushed", [False, True])
def test_changed_indices_are_checked_again(ps: dv.Session, length: int, is_pushed: bool) -> None:
    x, i = ps.arange(length).persist(), ps.arange(length).copy()
    assert int(x[i].max()) == length - 1
    if is_pushed:
        i.push([0], [length])
    else:
        i += 1
        dv.evaluate(i)
    with pytest.raises(IndexError, match=f"index {length} is out of range for length {length}"):
        x[i].persist()


def test_a_random_permutation_costs_one_message_and_16_bytes_for_each_that_moves(
    ps: dv.Session,
) -> None:
    where = np.random.default_rng(0).permutation(LENGTH)
    x, i = ps.array(np.arange(LENGTH) * 0.5), ps.array(where)
    middle = x.space.range_of(1, 2)[0]
    moving = np.count_nonzero((np.arange(LENGTH) < middle) != (where < middle))
    ps.counters.reset()
    x[i].persist()
    assert ps.counters.messages_per_server == [1, 1]
    assert ps.counters.peer_messages == 2
    assert ps.counters.peer_bytes == 16 * moving
