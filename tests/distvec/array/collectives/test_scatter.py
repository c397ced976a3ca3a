"""Values brought to their places by indices on the servers: assignment, and ``ufunc.at``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv

SERVERS = st.sampled_from((1, 2, 3, 7))
LENGTH = 2500
UFUNCS = (np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.fmax, np.logical_or)


def indices(rng: np.random.Generator, kind: str, count: int) -> np.ndarray:
    return {
        "random": lambda: rng.integers(-LENGTH, LENGTH, count),
        "one server": lambda: rng.integers(LENGTH - 5, LENGTH, count),
        "one place": lambda: np.full(count, -1),
        "permutation": lambda: rng.permutation(LENGTH)[:count],
    }[kind]()


KINDS = st.sampled_from(("random", "one server", "one place", "permutation"))
COUNTS = st.sampled_from((0, 1, 7, 1024, 2500, 4000))


def some(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    values = rng.standard_normal(shape) * 3
    if dtype.startswith("f"):
        values = np.where(rng.random(shape) < 0.1, np.nan, values)
        values = np.where(rng.random(shape) < 0.1, -0.0, values)
    return values.astype(dtype)


@settings(max_examples=40)
@given(
    servers=SERVERS,
    kind=KINDS,
    count=COUNTS,
    dtype=st.sampled_from(("f8", "f4", "f2", "i8", "u1", "?")),
    row=st.sampled_from(((), (3,))),
    of=st.sampled_from(("number", "row", "each", "each row", "one row")),
    seed=st.integers(0, 99),
)
def test_assignment(
    sessions: dict[int, dv.Session], servers: int, kind: str, count: int, dtype: str,
    row: tuple[int, ...], of: str, seed: int,
) -> None:  # fmt: skip
    rng, session = np.random.default_rng(seed), sessions[servers]
    host, where = some(rng, dtype, (LENGTH, *row)), indices(rng, kind, count)
    count = len(where)
    shape = {
        "number": (),
        "row": row,
        "each": (count, 1) if row else (count,),
        "each row": (count, *row),
        "one row": (1, *row),
    }[of]
    values = some(rng, dtype, shape)
    x, old = session.array(host), session.array(host)
    given: Any = session.array(values) if shape and rng.random() < 0.7 else values
    x[session.array(where)] = given
    expected = host.copy()
    expected[where] = values
    assert x.numpy().tobytes() == expected.tobytes()
    assert old.numpy().tobytes() == host.tobytes()


@settings(max_examples=40)
@given(
    servers=SERVERS,
    kind=KINDS,
    count=COUNTS,
    ufunc=st.sampled_from(UFUNCS),
    dtype=st.sampled_from(("f8", "f4", "f2", "i8", "u1")),
    other=st.sampled_from(("f8", "f4", "i4")),
    row=st.sampled_from(((), (2,))),
    seed=st.integers(0, 99),
)
def test_at(
    sessions: dict[int, dv.Session], servers: int, kind: str, count: int, ufunc: np.ufunc,
    dtype: str, other: str, row: tuple[int, ...], seed: int,
) -> None:  # fmt: skip
    rng, session = np.random.default_rng(seed), sessions[servers]
    host, where = some(rng, dtype, (LENGTH, *row)), indices(rng, kind, count)
    values = some(rng, other, (len(where), *row))
    x, expected = session.array(host), host.copy()
    with np.errstate(all="ignore"):
        ufunc.at(x, session.array(where), session.array(values))
        ufunc.at(expected, where, values)
        ufunc.at(x, session.array(where), 2)
        ufunc.at(expected, where, 2)
    assert x.numpy().tobytes() == expected.tobytes()


def test_two_messages_and_16_bytes_for_each_pair_that_changes_servers(ps: dv.Session) -> None:
    where = np.random.default_rng(0).permutation(LENGTH)
    x, i = ps.array(np.zeros(LENGTH)), ps.array(where)
    v = ps.array(np.arange(LENGTH) * 0.5)
    middle = x.space.range_of(1, 2)[0]
    moving = np.count_nonzero((np.arange(LENGTH) < middle) != (where < middle))
    x[i] = 1
    assert ps.counters.messages_per_server[0] > 0  # whether all are in range, which is known now
    x = ps.array(np.zeros(LENGTH))
    ps.counters.reset()
    x[i] = 2 * v
    norm = (x + 1).sum()
    assert ps.counters.messages == 0
    norm.persist()
    assert ps.counters.messages_per_server == [2, 2]  # the sweeps before and after come along
    assert ps.counters.phases == 2
    assert ps.counters.peer_messages == 2 * 2
    assert ps.counters.peer_bytes == 16 * moving + 2 * 3 * 8
    assert float(norm) == np.sum(np.arange(LENGTH) * 1.0 + 1)


def test_what_begins_the_same_everywhere_is_not_stored(ps: dv.Session) -> None:
    where = ps.array(np.arange(LENGTH)[::-1] // 2)
    x = ps.zeros(LENGTH)
    ps.counters.reset()
    np.add.at(x, where, ps.ones(LENGTH))
    x.persist()
    assert ps.counters.sweeps == ps.counters.vectors_written == 1  # the look at the indices
    np.testing.assert_array_equal(x.numpy(), np.bincount(np.arange(LENGTH) // 2, minlength=LENGTH))


@pytest.mark.parametrize("bad", [-LENGTH - 1, LENGTH])
def test_out_of_range_changes_nothing(ps: dv.Session, bad: int) -> None:
    x = ps.array(np.arange(LENGTH))
    where = ps.array([5, bad, 99999])
    before = [server.buffers for server in ps.client.status()]
    with pytest.raises(IndexError, match=f"index {bad} is out of range for length {LENGTH}"):
        x[where] = 1
    with pytest.raises(IndexError, match=f"index {bad} is out of range for length {LENGTH}"):
        np.add.at(x, where, 1)
    np.testing.assert_array_equal(x.numpy(), np.arange(LENGTH))
    assert [server.buffers for server in ps.client.status()] == before


def test_values_that_do_not_fit(ps: dv.Session) -> None:
    x, where = ps.zeros(LENGTH), ps.array([1, 2, 3])
    with pytest.raises(ValueError, match=r"from shape \(2,\) into shape \(3,\)"):
        x[where] = [1.0, 2.0]
    with pytest.raises(ValueError, match="could not be broadcast to indexing result"):
        np.add.at(x, where, np.ones(2))
    with pytest.raises(IndexError, match="integer"):
        np.add.at(x, ps.array([1.0]), 1)
    with pytest.raises(TypeError, match=r"negative\.at: indices on the servers need a ufunc"):
        np.negative.at(x, where)


def test_many_indices_of_the_client_go_to_the_servers_first(ps: dv.Session) -> None:
    rng = np.random.default_rng(0)
    where, values = rng.integers(0, LENGTH, 300_000), rng.standard_normal(300_000)
    x, expected = ps.zeros(LENGTH), np.zeros(LENGTH)
    x[where] = values
    expected[where] = values
    assert x.numpy().tobytes() == expected.tobytes()


def test_columns_at_rows_of_the_servers(ps: dv.Session) -> None:
    rng = np.random.default_rng(0)
    host, where = rng.standard_normal((LENGTH, 4)), rng.integers(0, LENGTH, 100)
    table, values = ps.array(host), rng.standard_normal(100)
    table[ps.array(where), 1] = ps.array(values)
    host[where, 1] = values
    table[ps.array(where), ::2] = 7
    host[where, ::2] = 7
    assert table.numpy().tobytes() == host.tobytes()


def test_out_of_budget_loses_nothing() -> None:
    count = 400_000
    with dv.local(servers=2, in_process=True, memory=16 << 20) as ps:
        x, where = ps.zeros(count).persist(), ps.array(np.zeros(count, np.int64))
        values = ps.array(np.arange(count) * 1.0)
        held = ps.array(np.zeros(1_200_000))
        used = [server.used for server in ps.client.status()]
        y = x.copy()
        y[where] = values
        with pytest.raises(dv.OutOfBudget, match="a scatter needs"):
            y.persist()
        assert float(x.sum()) == 0
        still = [server.used for server in ps.client.status()]
        assert max(now - then for now, then in zip(still, used, strict=True)) < 1 << 16
        del held
        assert y.persist().pull([0]) == count - 1


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_pairs_of_rows_and_columns(sessions: dict[int, dv.Session], servers: int) -> None:
    rng, session = np.random.default_rng(0), sessions[servers]
    host = rng.standard_normal((LENGTH, 5))
    rows, columns = rng.integers(-LENGTH, LENGTH, 6000), rng.integers(-5, 5, 6000)
    values = rng.standard_normal(6000)
    table = session.array(host)
    table[session.array(rows), session.array(columns)] = session.array(values)
    host[rows, columns] = values
    assert table.numpy().tobytes() == host.tobytes()
    table[rows[:9], session.array(columns[:9])] = 0.5
    table[[0, 1, 0], [2, 3, 2]] = [1.0, 2.0, 3.0]
    table[rows[:7, None], [0, 2]] = values[:2]
    host[rows[:9], columns[:9]] = 0.5
    host[[0, 1, 0], [2, 3, 2]] = [1.0, 2.0, 3.0]
    host[rows[:7, None], [0, 2]] = values[:2]
    assert table.numpy().tobytes() == host.tobytes()
    assert table[rows, columns].numpy().tobytes() == host[rows, columns].tobytes()
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 1 with size 5"):
        table[session.array([0, 1]), session.array([2, 5])] = 1
    assert table.numpy().tobytes() == host.tobytes()


@pytest.mark.parametrize("mode", ["raise", "clip", "wrap"])
def test_put_and_take(ps: dv.Session, mode: Any) -> None:
    rng = np.random.default_rng(0)
    host, most = rng.standard_normal(LENGTH), LENGTH if mode == "raise" else 3 * LENGTH
    where, values = rng.integers(0, most, 2000), rng.standard_normal(300)
    x, at = ps.array(host), ps.array(where)
    taken = np.take(x, at, mode=mode)
    assert taken.numpy().tobytes() == np.take(host, where, mode=mode).tobytes()
    np.put(x, at, ps.array(values), mode=mode)
    np.put(host, where, values, mode=mode)
    assert x.numpy().tobytes() == host.tobytes()
    x.put(at, 4, mode=mode)
    host.put(where, 4, mode=mode)
    assert x.numpy().tobytes() == host.tobytes()
