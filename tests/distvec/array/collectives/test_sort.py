"""Sorts along axis 0: ``np.sort``, ``np.argsort``, ``distvec.top_k`` and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.testing.strategies import dtypes, lengths, vectors
from ps_backend.kernels.collectives import sorting as ordered_keys

SERVERS = st.sampled_from((1, 2, 3, 7))
VECTORS = st.tuples(lengths(), dtypes()).flatmap(lambda drawn: vectors(*drawn))

rng = np.random.default_rng(5)
SKEWED = {
    "sorted": np.arange(5000.0),
    "reversed": -np.arange(5000.0),
    "all equal": np.full(5000, 7.5),
    "few": rng.integers(0, 3, 5000),
    "all of a value on one server": np.repeat([2.0, 1.0, np.nan, 1.0, -0.0], 1024),
    "saw": np.arange(5000) % 71,
}


def in_order(x: np.ndarray, axis: int | None = -1) -> np.ndarray:
    """By a stable sort: NumPy 2.4 sorts float16 wrongly otherwise, on some processors."""
    return np.sort(x, axis=axis, stable=True)


def descending(x: np.ndarray) -> np.ndarray:
    return len(x) - 1 - np.argsort(x[::-1], stable=True)[::-1]


@settings(max_examples=40)
@given(servers=SERVERS, x=VECTORS)
def test_vectors_as_numpy(sessions: dict[int, dv.Session], servers: int, x: np.ndarray) -> None:
    session = sessions[servers]
    xp, there = session.namespace, session.array(x)
    found = np.sort(there)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.numpy(), in_order(x))
    assert np.argsort(there, stable=True).numpy().tolist() == np.argsort(x, stable=True).tolist()
    order = descending(x)
    np.testing.assert_array_equal(xp.sort(there, descending=True).numpy(), x[order])
    assert xp.argsort(there, descending=True).numpy().tolist() == order.tolist()


@settings(max_examples=20)
@given(servers=SERVERS, rows=lengths(1), data=st.data(), dtype=dtypes())
def test_columns_as_numpy(
    sessions: dict[int, dv.Session], servers: int, rows: int, data: Any, dtype: str
) -> None:
    x = np.stack([data.draw(vectors(rows, dtype)) for _ in range(3)], axis=1)
    there = sessions[servers].array(x)
    np.testing.assert_array_equal(np.sort(there, axis=0).numpy(), in_order(x, 0))
    expected = np.argsort(x, axis=0, stable=True)
    np.testing.assert_array_equal(np.argsort(there, axis=0).numpy(), expected)
    np.testing.assert_array_equal(np.sort(there, axis=None).numpy(), in_order(x, None))
    for axis in (0, 1):
        found = dv.top_k(there, 1, axis=axis)
        for one, other in zip(found, dv.top_k(x, 1, axis=axis), strict=True):
            np.testing.assert_array_equal(one.numpy(), other)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SKEWED)
def test_skewed_data_on_any_number_of_servers_has_the_same_bits(
    sessions: dict[int, dv.Session], monkeypatch: pytest.MonkeyPatch, name: str, compiled: bool
) -> None:
    monkeypatch.setattr(ordered_keys, "COMPILED_FROM", 1 if compiled else 1 << 60)
    x, bits = SKEWED[name], set()
    for session in sessions.values():
        there = session.array(x)
        found, order = np.sort(there).numpy(), np.argsort(there).numpy()
        np.testing.assert_array_equal(found, in_order(x))
        assert order.tolist() == np.argsort(x, stable=True).tolist()
        bits.add(found.tobytes())
    assert len(bits) == 1


def test_negative_zeros_come_first_and_are_no_less_than_zeros(ps: dv.Session) -> None:
    x = np.resize([0.0, -0.0], 5000)
    there = ps.array(x)
    assert np.signbit(np.sort(there).numpy()).tolist() == [True] * 2500 + [False] * 2500
    assert np.argsort(there).numpy().tolist() == list(range(5000))


@settings(max_examples=30)
@given(servers=SERVERS, x=VECTORS, data=st.data())
def test_the_first_k_of_servers_and_of_numpy(
    sessions: dict[int, dv.Session], servers: int, x: np.ndarray, data: Any
) -> None:
    k = data.draw(st.sampled_from((0, 1, 5, 1100, len(x))).filter(lambda k: k <= len(x)))
    order = descending(x)[:k]
    for largest, expected in ((True, order), (False, np.argsort(x, stable=True)[:k])):
        for given_x in (x, sessions[servers].array(x)):
            values, indices = dv.top_k(given_x, k, largest=largest)
            assert np.asarray(indices).tolist() == expected.tolist()
            if given_x is x:
                np.testing.assert_array_equal(values, x[expected])
            else:
                np.testing.assert_array_equal(values.numpy(), x[expected])


def test_top_k_refuses_more_than_there_are(ps: dv.Session) -> None:
    for x in (np.ones(3), ps.ones(3)):
        with pytest.raises(ValueError, match=r"k must be between 0 and 3.*got 4"):
            dv.top_k(x, 4)


def test_zeros_keep_their_signs_beside_indices(ps: dv.Session) -> None:
    x = np.resize([-0.0, 1.0, 0.0], 3000)
    there = ps.array(x)
    found, order = np.sort(there), np.argsort(there)
    best, where = dv.top_k(there, 2500)
    dv.evaluate(found, order, best, where)
    assert np.signbit(found.numpy()).sum() == 1000
    assert best.numpy().tobytes() == x[where.numpy()].tobytes()


def test_partitions(ps: dv.Session) -> None:
    x = rng.permutation(3000)
    there = ps.array(x)
    for kth in (5, [1, 2000], -1):
        found = np.partition(there, kth).numpy()
        expected = np.partition(x, kth)
        assert found[kth].tolist() == expected[kth].tolist()
        assert x[np.argpartition(there, kth).numpy()][kth].tolist() == expected[kth].tolist()
    there.partition(3)
    assert there.numpy()[3] == 3
    with pytest.raises(ValueError, match=r"kth\(=3000\) out of bounds \(3000\)"):
        np.partition(there, 3000)
    assert np.partition(there[:0], 5).shape == np.argpartition(there[:0], 5).numpy().shape == (0,)


@settings(max_examples=15)
@given(servers=SERVERS, x=lengths(1).flatmap(lambda n: vectors(n, "int8")), count=st.integers(1, 3))
def test_lexsort(sessions: dict[int, dv.Session], servers: int, x: np.ndarray, count: int) -> None:
    keys = [np.roll(x, number * 7) for number in range(count)]
    session = sessions[servers]
    found = np.lexsort(tuple(session.array(key) for key in keys)).numpy()
    assert found.tolist() == np.lexsort(keys).tolist()


def test_methods_change_the_array_or_not(ps: dv.Session) -> None:
    x = rng.standard_normal(3000)
    there = ps.array(x)
    other = there.copy()
    assert there.argsort().numpy().tolist() == x.argsort().tolist()
    there.sort()
    assert there.numpy().tolist() == np.sort(x).tolist()
    assert other.numpy().tolist() == x.tolist()
    table = rng.standard_normal((3000, 2))
    rows = ps.array(table)
    rows.sort(axis=0)
    np.testing.assert_array_equal(rows.numpy(), np.sort(table, axis=0))


def test_transposed_tables(ps: dv.Session) -> None:
    x = rng.standard_normal((3000, 2))
    there = ps.array(x)
    for axis in (0, 1, -1):
        found = np.sort(there.T, axis=axis)
        np.testing.assert_array_equal(found.numpy(), np.sort(x.T, axis=axis))
        order = np.argsort(there.T, axis=axis)
        np.testing.assert_array_equal(order.numpy(), np.argsort(x.T, axis=axis))


def test_what_a_mask_selects(ps: dv.Session) -> None:
    x = rng.standard_normal(5000)
    there = ps.array(x)
    assert np.sort(there[there > 0]).numpy().tolist() == np.sort(x[x > 0]).tolist()


def test_errors_as_numpy(ps: dv.Session) -> None:
    x, t = ps.ones(5), ps.ones((5, 2))
    with pytest.raises(np.exceptions.AxisError, match="axis 1 is out of bounds"):
        np.sort(x, axis=1)
    with pytest.raises(ValueError, match="Cannot specify order"):
        np.sort(x, order="name")
    with pytest.raises(ValueError, match="`kind` and `stable`"):
        np.sort(x, kind="stable", stable=True)
    with pytest.raises(ValueError, match="sort kind must be one of"):
        x.sort(kind="bubble")
    with pytest.raises(TypeError, match="complex numbers"):
        np.sort_complex(x)
    with pytest.raises(ValueError, match="all keys need to be the same shape"):
        np.lexsort((x, ps.ones(6)))
    with pytest.raises(NotImplementedError, match="columns one by one"):
        np.lexsort((t, t))


# --- what it costs --------------------------------------------------------------------------------

LENGTH = 1 << 18


def test_a_sort_is_two_messages_and_moves_what_lies_elsewhere_once(ps: dv.Session) -> None:
    x = ps.array(rng.standard_normal(LENGTH))
    ps.counters.reset()
    total = float((np.sort(2 * x + 1) * ps.arange(LENGTH)).sum())
    assert np.isfinite(total)
    assert ps.counters.messages_per_server == [2, 2]  # what is before and behind comes along
    assert ps.counters.phases == 2
    assert ps.counters.peer_messages == 2 * 3  # samples, a window around the cut, what belongs here
    assert 0.45 < ps.counters.peer_bytes / (8 * LENGTH) < 0.6  # half of all lies elsewhere


def test_servers_of_a_short_sort_ask_each_other_once(ps: dv.Session) -> None:
    x = ps.array(rng.standard_normal(LENGTH >> 3))
    ps.counters.reset()
    np.sort(x).persist()
    assert ps.counters.peer_messages == 2


def test_sorted_data_stays_where_it_is(ps: dv.Session) -> None:
    x = ps.array(np.arange(LENGTH))
    ps.counters.reset()
    np.sort(x).persist()
    assert ps.counters.peer_bytes < 0.1 * 8 * LENGTH


def test_columns_share_messages(ps: dv.Session) -> None:
    t = ps.array(rng.standard_normal((28_000, 5)))
    ps.counters.reset()
    np.sort(t, axis=0).persist()
    assert ps.counters.messages_per_server == [2, 2]
    assert ps.counters.peer_messages == 2 * 3


def test_the_first_k_are_few_bytes(ps: dv.Session) -> None:
    x = ps.array(rng.standard_normal(LENGTH))
    ps.counters.reset()
    values, indices = dv.top_k(x, 10)
    dv.evaluate(values, indices)
    assert ps.counters.messages_per_server == [2, 3]  # the values, zeros with their signs
    assert ps.counters.peer_bytes < 1000


def test_out_of_budget_in_mid_sort_loses_nothing() -> None:
    with dv.local(servers=2, in_process=True, memory="3m") as ps:
        x = ps.array(np.arange(300_000.0)[::-1])
        other = x * 2
        other.persist()
        with pytest.raises(dv.OutOfBudget, match=r"a sort.*needs|needs.*sort"):
            np.sort(x).persist()
        assert float(x.sum()) == 300_000 * 299_999 / 2
        assert float(other[0]) == 2 * 299_999
        del other
        assert np.sort(x[:50_000]).numpy().tolist() == list(range(250_000, 300_000))
