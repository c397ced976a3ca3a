"""What users do with keyed spaces, what it costs, and how it refuses."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.testing import faults, lossy_session
from ps_backend.program.keys import server_of
from tests.distvec.keyed.conftest import messages

KEYS = [17, -3, 2**40, 0, -1, 2**63 - 1, -(2**63)]


def test_arrays_of_a_space_are_used_in_one_expression(ps):
    space = ps.keys()
    w, g, s = space.full(1.0), space.zeros(), space.full(4.0)
    g.push(KEYS, np.arange(7.0))
    order = np.argsort(space.keys())
    w.assign(w - 0.1 * g / np.sqrt(s))
    expected = 1 - 0.1 * np.arange(7.0) / 2
    np.testing.assert_allclose(w.pull(KEYS), expected)
    assert float(w @ w) == pytest.approx(float(expected @ expected))
    np.testing.assert_array_equal(np.sort(KEYS), space.keys()[order])
    assert float(np.sum(w)) == pytest.approx(expected.sum())
    assert w.values.shape == (7,)


def test_keys_of_several_kinds_are_told_by_what_they_are(ps):
    t = ps.keys().zeros()
    for keys, told in [
        (["a", 1], "keys[1] is 1, an integer, and keys[0] is 'a', a string"),
        ([1, "a"], "keys[1] is 'a', a string, and keys[0] is 1, an integer"),
        ([("a", 1), "b"], "keys[1] is 'b', a string, and keys[0] is ('a', 1), a tuple"),
        (["a", None], "keys[1] is None, a NoneType, and keys[0] is 'a', a string"),
        ([None, "a"], "keys[0] is None, a NoneType"),
        ([2, 1.5], "keys[1] is 1.5, a float, and keys[0] is 2, an integer"),
        ([b"a"], "keys[0] is b'a', a bytes"),
    ]:
        with pytest.raises(TypeError, match=re.escape(told)) as caught:
            t.push(keys, 1.0)
        assert "keys are integers, strings, or tuples" in str(caught.value)
    assert len(t) == 0
    with pytest.raises(TypeError, match="keys are integers, not float64"):
        t.pull(np.array([0.5]))


def test_arrays_and_spaces_print_how_many_keys_they_have(ps):
    space = ps.keys()
    w, t = space.zeros(), space.table(2, dtype="float32")
    w.push(KEYS, 1.0)
    assert repr(w).startswith("<keyed array of float64, 7 keys, init=")
    assert repr(t).startswith("<keyed array of float32, 7 keys, row=(2,), init=")
    assert repr(space).startswith(f"<keyed space {space.number} of 7 keys, ")
    ps.close()
    assert repr(w).startswith("<keyed array of float64, init=")
    assert repr(space).startswith(f"<keyed space {space.number} of <")


def test_reading_inserts_nothing_and_reads_what_a_push_begins_with(ps):
    space = ps.keys()
    t = space.table(5, init=dv.normal(1, 2), seed=11, dtype="float64")
    before = t.pull(KEYS)
    assert len(space) == 0 and not space.contains(KEYS).any() and 17 not in space
    t.push(KEYS, np.ones((7, 5)))
    np.testing.assert_array_equal(t.pull(KEYS), before + 1)
    assert len(space) == 7 and space.contains(KEYS).all() and 17 in space
    again = ps.keys().table(5, init=dv.normal(1, 2, seed=11), dtype="float64")
    np.testing.assert_array_equal(again.pull(KEYS), before)  # whichever space, and whenever


def test_missing_keys_are_what_the_caller_says(ps):
    space = ps.keys()
    w = space.full(0.5)
    w.assign([1, 2], [7.0, 8.0])
    assert w.pull([3, 1], missing=-1).tolist() == [-1, 7]
    rows, found = w.pull([3, 1, 3], return_found=True)
    assert rows.tolist() == [0.5, 7, 0.5] and found.tolist() == [False, True, False]
    with pytest.raises(KeyError, match=r"1 keys do not exist, such as \[3\]"):
        w.pull([3, 1], missing="raise")
    with pytest.raises(ValueError, match="'init', 'raise' or a number, got 'nan'"):
        w.pull([3], missing="nan")


def test_keys_are_strings_and_tuples_too(ps):
    w = ps.keys().zeros()
    w.push(["age=17", "city=Graz", "age=17"], [1, 2, 3])
    assert w.pull(["city=Graz", "age=17", "?"]).tolist() == [2, 4, 0]
    w.push([("ad", 3), ("ad", 4)], [5, 6])
    assert w.pull([("ad", 4), ("ad", 3)]).tolist() == [6, 5]
    w.push(ps.arange(3), [1, 1, 1])
    assert w.pull(np.arange(4, dtype=np.uint8)).tolist() == [1, 1, 1, 0]
    for wrong in ([1.5], 3, "abc", [[1, 2]], [None]):
        with pytest.raises((TypeError, ValueError)):
            w.pull(wrong)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-3, 3), max_size=9), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_number_of_servers_never_shows(sessions, keys, columns, seed):
    values = np.random.default_rng(seed).random((2, len(keys), columns), np.float32)
    found = []
    for session in sessions.values():
        t = session.keys().table(columns, init=dv.uniform(-1, 1, seed=5))
        t.push(keys, values[0])
        t.push(keys, values[1])
        found.append((t.pull(keys).tobytes(), t.space.keys().tobytes(), np.asarray(t).tobytes()))
    assert len(set(found)) == 1
    expected = t.init and dv.KeyedArray  # the sum of two pushes, not the last one
    assert expected is dv.KeyedArray
    if keys:
        sums = np.zeros((len(keys), columns))
        for k, key in enumerate(keys):
            same = [j for j, other in enumerate(keys) if other == key]
            sums[k] = values[:, same].sum(axis=(0, 1))
        begin = session.keys().table(columns, init=dv.uniform(-1, 1, seed=5)).pull(keys)
        np.testing.assert_allclose(t.pull(keys), begin + sums, rtol=1e-5, atol=1e-5)


def test_one_message_to_each_holder(ps):
    space = ps.keys()
    w, t = space.zeros(), space.table(3)

    @dv.rows
    def double(w, t, g):
        return {"w": 2 * w + g, "t": t + 1}, t.sum(axis=1)

    keys = np.arange(100)
    for ask in (
        lambda: w.push(keys, 1.0),
        lambda: t.pull(keys, return_found=True),
        lambda: t.pull(keys, missing="raise"),
        lambda: w.assign(keys, 2.0),
        lambda: space.contains(keys),
        lambda: space.apply(double, keys, w, t, np.ones(100)),
        lambda: space.remove(keys),
        lambda: len(space),
    ):
        with messages(ps, 1):
            ask()
    with messages(ps, 0):
        w.push([], 1.0)
        assert w.pull([]).shape == (0,) and t.pull([]).shape == (0, 3)


def test_a_view_sends_its_keys_once(ps):
    space = ps.keys()
    t = space.table(2)
    keys = np.random.default_rng(0).integers(-(2**62), 2**62, 5000)
    view = t.at(keys)
    rows = np.ones((5000, 2), np.float32)
    view.push(rows)
    sent = []
    for _ in range(2):
        before = ps.counters.bytes_sent
        view.pull()
        sent.append(ps.counters.bytes_sent - before)
    assert max(sent) < 1000
    space.remove(keys[:2500])  # its slots are others now
    t.push([7], np.ones((1, 2)))
    view.push(rows)
    expected = np.ones((5000, 2))
    expected[2500:] = 2
    np.testing.assert_array_equal(view.pull(), expected)
    np.testing.assert_array_equal(t.pull(keys), expected)
    assert len(view) == 5000


def test_a_row_function_gets_what_came_for_repeated_keys_together(ps):
    space = ps.keys()
    w, counts = space.zeros(), space.zeros("int64")

    @dv.rows
    def learn(w, counts, gradient, rate, keys):
        return {"w": w - rate * gradient, "counts": counts + 1}, keys

    found = space.apply(learn, [4, 5, 4], w, counts, np.array([1.0, 2.0, 3.0]), rate=0.5)
    assert found.tolist() == [4, 5, 4]
    assert w.pull([4, 5]).tolist() == [-2, -1] and counts.pull([4, 5]).tolist() == [1, 1]
    view = w.at([5, 4])
    view.apply(learn, w, counts, np.array([1.0, 1.0]), rate=1.0, combine="max")
    assert w.pull([4, 5]).tolist() == [-3, -2]
    with pytest.raises(ValueError, match="gradient has 2 rows for 3 keys"):
        space.apply(learn, [1, 2, 3], w, counts, np.ones(2), 1.0)
    with pytest.raises(
        ValueError, match="w belongs to another session, or its keys are shared out otherwise"
    ):
        space.apply(learn, [1], ps.keys(range(9)).zeros(), counts, np.ones(1), 1.0)
    with pytest.raises(TypeError, match=r"decorate it with @dv\.rows"):
        space.apply(len, [1], w)


def test_keys_are_admitted_when_they_have_come_often_enough(ps):
    for options in ({}, {"sketch": 1 << 16}):
        space = ps.keys(admit=3, **options)
        w = space.zeros()
        for time in range(4):
            w.push([1, 2], [1.0, 1.0])
            assert len(space) == (2 if time >= 2 else 0)
            w.push([100 + time], 1.0)
        assert w.pull([1, 2, 100]).tolist() == [2, 2, 0]
        assert space.state().waiting == 2 * 2 + 4
    with pytest.raises(ValueError, match=r"admit must be between 1 and 255, got 0"):
        ps.keys(admit=0)


def test_a_space_keeps_to_its_budget(ps):
    space = ps.keys(most_bytes=1 << 20)
    t = space.table(16)
    t.push(np.arange(1000), 1.0)
    before = t.values.numpy()
    with pytest.raises(dv.OutOfBudget, match=r"inserting .* keys needs up to .*most_bytes="):
        t.push(np.arange(1000, 100_000), 1.0)
    state = space.state()
    assert state.keys == 1000 and state.refused > 40_000 and state.bytes < 1 << 20
    np.testing.assert_array_equal(t.values.numpy(), before)
    t.push(np.arange(1000), 1.0)  # what is there goes on
    assert space.evict(t.values[:, 0] > 0) == 1000 and len(space) == 0
    assert space.state().bytes < 1 << 18


def test_what_was_read_before_an_insertion_is_refused(ps):
    space, other = ps.keys(), ps.keys()
    w, v = space.zeros(), other.zeros()
    w.push([1, 2], 1.0)
    v.push([1, 2], 1.0)
    old = w.values
    with pytest.raises(ValueError, match="partitioned differently"):
        w.values + v.values
    w.push([3], 1.0)
    with pytest.raises(dv.LayoutChanged, match="the layout has version 2, not 1"):
        w.assign(2 * old)
    with pytest.raises(ValueError, match="live in different spaces"):
        w + old
    with pytest.raises(TypeError, match=r"to write some keys, call assign\(keys, values\)"):
        w.assign(3.0)
    assert old.numpy().tolist() == [1, 1]


def test_a_space_that_was_read_while_it_was_empty(ps):
    w = ps.keys().zeros()
    assert w.values.shape == (0,)
    w.push([5], 1.0)
    assert w.values.numpy().tolist() == [1.0]


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_the_keys_that_are_kept_are_the_last_of_a_stable_sort(ps, dtype):
    rng = np.random.default_rng(5)
    for count in (0, 1, 30, 59):
        space = ps.keys()
        w = space.zeros(dtype)
        scores = rng.integers(-2, 3, 60).astype(dtype)
        if dtype == "float32":
            scores[: 2 * count : 3] = np.nan
            scores[5::7] = -0.0
        w.assign(np.arange(60), scores)
        keys, scores = space.keys(), w.pull(space.keys())
        worst = np.argsort(scores[::-1], kind="stable")[: 60 - count]
        assert space.keep(count, by=w) == 60 - count
        assert space.keys().tolist() == np.delete(keys, 59 - worst).tolist()


def test_items_come_in_batches(ps):
    space = ps.keys()
    w, t = space.zeros(), space.table(2)
    assert [*space.items(w)] == []
    t.push(np.arange(50), 1.0)
    w.push(np.arange(50), np.arange(50))
    found = [*space.items(w, t, batch=7)]
    assert max(len(keys) for keys, _, _ in found) == 7
    keys = np.concatenate([keys for keys, _, _ in found])
    assert keys.tolist() == space.keys().tolist()
    assert np.concatenate([some for _, some, _ in found]).tolist() == keys.tolist()
    items = space.items(w, batch=7)
    next(items)
    w.push([99], 1.0)
    with pytest.raises(dv.LayoutChanged):
        list(items)


def test_what_nobody_holds_any_more_is_freed(ps):
    space = ps.keys()
    t = space.table(64)
    t.push(np.arange(20_000), 1.0)
    used = sum(one.used for one in ps.client.status())
    del t
    len(space)
    assert sum(one.used for one in ps.client.status()) < used - 4_000_000
    del space
    ps.client.greet()
    assert sum(one.used for one in ps.client.status()) < used - 5_000_000


@settings(max_examples=25, deadline=None)
@given(faults(), st.lists(st.lists(st.integers(-5, 5), max_size=6), min_size=1, max_size=5))
def test_a_push_counts_once_whatever_gets_lost(lost, pushes):
    expected = {}
    with lossy_session(2, lost) as ps:
        space = ps.keys()
        w = space.zeros()
        view = w.at([1, 2, 3])
        for keys in pushes:
            w.push(keys, 1.0)
            view.push(1.0)
            for key in (*keys, 1, 2, 3):
                expected[key] = expected.get(key, 0) + 1
        assert w.pull([*expected]).tolist() == [*expected.values()]


def test_a_refusal_names_the_keys_that_were_not_changed(ps):
    space = ps.keys(most_bytes=1 << 20)
    w = space.table(16)
    keys = np.unique(np.random.default_rng(3).integers(-(2**60), 2**60, 10_000))
    first = keys[server_of(keys, 2) == 0]
    w.push(first, 1.0)  # the first server is nearly full now
    more = first + 1
    with pytest.raises(dv.OutOfBudget) as refused:
        w.push(more, 1.0)
    changed = w.pull(more)[:, 0] == 1
    assert 0 < changed.sum() < len(more)
    np.testing.assert_array_equal(refused.value.refused, np.sort(more[~changed]))


def test_a_keyed_array_is_pickled_only_where_others_may_join_its_session(ps):
    with pytest.raises(TypeError, match="array of a PSContext in Spark tasks"):
        pickle.dumps(ps.keys().zeros())


def test_rows_are_fetched_while_others_are_computed_with(ps):
    space = ps.keys()
    t = space.table(2)
    batches = [np.arange(k, k + 5) for k in range(10)]
    ahead = t.prefetch(batches[0])
    for k, keys in enumerate(batches):
        rows = ahead.result()
        np.testing.assert_array_equal(rows[:-1] > 0, k > 0)
        t.push(keys, 1.0 - 0 * rows)
        ahead = t.prefetch(batches[(k + 1) % 10])
    ahead.result()
    with pytest.raises(KeyError, match="do not exist"):
        t.prefetch([99], missing="raise").result()


def test_the_same_operations_again_give_the_same_memory(sessions):
    found = set()
    for _ in range(2):
        for ps in sessions.values():
            rng = np.random.default_rng(7)
            space = ps.keys()
            w, t = space.zeros("int32"), space.table(4, init=dv.normal(), seed=9)
            for _ in range(5):
                keys = rng.integers(-3000, 3000, 2000)
                t.push(keys, rng.random((2000, 4), np.float32))
                w.assign(keys, np.arange(2000))
                space.evict(w > 1500)
            held = [np.asarray(one).tobytes() for one in (w, t)]
            found.add((space.keys().tobytes(), *held, space.state().bytes))
    assert len({one[:-1] for one in found}) == 1
    assert len(found) <= len(sessions)


def test_what_a_dtype_cannot_hold_is_refused_where_the_array_is_made(ps):
    with pytest.raises(OverflowError):
        ps.keys().full(300, dtype="int8")


def test_an_operation_in_place_is_an_assignment(ps):
    space = ps.keys()
    w, g = space.full(2.0), space.zeros()
    g.push([1, 2, 3], [1, 2, 3])
    same = w
    w += g
    w *= 10
    np.subtract(w, 1, out=w)
    assert w is same and w.pull([1, 2, 3, 4]).tolist() == [29, 39, 49, 2]
    x = np.zeros(3)
    with pytest.raises(TypeError):
        np.add(w, 1, out=x)
