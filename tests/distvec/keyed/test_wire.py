"""Rows that travel narrowed: of an array, or of one call; what is saved; that a repeat is one."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.testing import faults, lossy_session
from ps_backend.client import WIRES, Key, KeyBatch, Winner
from ps_backend.program.row_program import RowProgram

KEYS = np.arange(4000)


def test_rows_travel_narrowed(sessions):
    keys = np.arange(1000)
    rows = np.random.default_rng(0).standard_normal((1000, 32)).astype(np.float32)
    for kind, part in (("float16", 0.55), ("int8", 0.35)):
        found, sent = [], {}
        for count, ps in sessions.items():
            t = ps.keys().table(32, wire=kind)
            view = t.at(keys)
            view.push(0 * rows)
            before = ps.counters.bytes_sent, ps.counters.bytes_saved
            with mock.patch.object(t.space.remote, "_new_id", return_value=17):
                view.push(rows)
            sent[count] = ps.counters.bytes_sent - before[0]
            saved = ps.counters.bytes_saved - before[1]
            assert abs(sent[count] + saved - rows.nbytes) < 2000
            found.append(t.pull(keys).tobytes())
            t.wire = None
            np.testing.assert_allclose(t.pull(keys), rows, atol=0.05)
        assert len(set(found)) == 1 and sent[1] < part * rows.nbytes
    with pytest.raises(ValueError, match="wire must be one of float32, float16, int8, or off"):
        t.wire = "float8"
    with pytest.raises(ValueError, match="needs a table"):
        t.space.zeros().wire = "int8"


def sizes(kind, count, columns, dtype):
    """Bytes that so many rows take, and that they would take as they are."""
    whole = count * columns * np.dtype(dtype).itemsize
    if kind == "off" or (kind, dtype) == ("float32", "float32"):
        return whole, whole
    return count * columns * np.dtype(kind).itemsize + 4 * count * (kind == "int8"), whole


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([*WIRES, "off"]), st.sampled_from(["float32", "float64"]), st.data())
def test_one_call_says_how_its_rows_travel(sessions, kind, dtype, data):
    ps = sessions[data.draw(st.sampled_from([*sessions]))]
    t = ps.keys().table(3, dtype=dtype, wire=data.draw(st.sampled_from([*WIRES, None])))
    rows = np.array(
        data.draw(st.lists(st.tuples(*[st.floats(-99, 99, width=32)] * 3), max_size=9)), dtype
    ).reshape(-1, 3)
    keys, view = np.arange(len(rows)), t.at(np.arange(len(rows)))
    sent, whole = sizes(kind, len(rows), 3, dtype)
    for way, change in (
        ("push", lambda: t.push(keys, rows, wire=kind)),
        ("assign", lambda: t.assign(keys, rows, wire=kind)),
        ("view", lambda: view.assign(rows, wire=kind)),
    ):
        before = ps.counters.bytes_saved
        change()
        assert ps.counters.bytes_saved - before == whole - sent, way
        found = t.pull(keys, wire="off")
        step = abs(rows).max(1, initial=0, keepdims=True) / 127 if kind == "int8" else 0
        eps = {"off": 0, "int8": 1e-6}.get(kind) or np.finfo("float16").eps
        assert np.all(abs(found - rows) <= step + eps * (kind != "off") * abs(rows) + 6e-8)
    before = ps.counters.bytes_saved
    by_call = t.pull(keys, wire=kind), view.pull(wire=kind), t.prefetch(keys, wire=kind).result()
    assert ps.counters.bytes_saved - before == 3 * (whole - sent)
    t.wire = kind
    assert {one.tobytes() for one in by_call} == {t.pull(keys).tobytes()}


@pytest.mark.parametrize("kind", WIRES)
def test_numbers_that_are_none_or_too_large_travel_both_ways_and_in_rounds(sessions, kind):
    rows = np.array([[np.nan, 1.0, np.inf], [-np.inf, 1e300, -1e300], [2.0, -2.0, 0.0]])
    expected = np.array([[np.nan, 1, np.inf], [-np.inf, np.inf, -np.inf], [2, -2, 0]])
    for ps in sessions.values():
        space = ps.keys()
        pushed, held, staged = (space.table(3, dtype="float64") for _ in range(3))
        pushed.push([1, 2, 3], rows, wire=kind)
        held.assign([1, 2, 3], rows)
        name, program = f"a round with {kind}", RowProgram.scatter(staged.type, "add")
        batch, to = KeyBatch.of(np.array([1, 2, 3])), [staged.number]
        space.remote.stage(name, Key(0, 0, 0, 0), program, to, batch, [rows], wire=kind)
        ps.client.commit_totals(name, [], {0: [Winner(0, 0)]})
        for found in (pushed, staged):
            np.testing.assert_allclose(found.pull([1, 2, 3]), expected, rtol=0.01)
        np.testing.assert_allclose(held.pull([1, 2, 3], wire=kind), expected, rtol=0.01)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(WIRES), st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_the_mean_of_many_pushes_is_right(sessions, kind, row):
    t = sessions[2].keys().table(4, dtype="float64")
    rows = np.tile(row, (len(KEYS), 1))
    t.push(KEYS, rows, wire=kind)
    most = np.abs(row).max()
    step = most / 127 if kind == "int8" else np.finfo(kind).eps * np.abs(row)
    least = 0 if kind == "int8" else np.finfo(kind).smallest_subnormal
    bound = 7 * 0.5 * np.maximum(step, least) / np.sqrt(len(KEYS))  # 7 deviations of the mean
    assert np.all(np.abs(t.pull(KEYS).mean(0) - row) <= bound + 1e-7 * most + 1e-300)


def pushed(lost, kind, pushes):
    """What some pushes, and steps, come to where messages get lost."""
    with lossy_session(2, lost) as ps:
        t = ps.keys().table(2)
        t.optimizer(dv.rows.adagrad(0.1))
        view = t.at([1, 2, 3])
        for keys in pushes:
            rows = np.array(keys)[:, None] * [0.1, 0.037]
            t.push(keys, rows, wire=kind)
            view.push(np.full((3, 2), 0.3) * [1, 2 / 7], wire=kind)
            t.step(keys, rows + 1 / 3, wire=kind)
        return t.pull(np.arange(-5, 6)).tobytes()


@settings(max_examples=20, deadline=None)
@given(
    faults(),
    st.sampled_from(WIRES),
    st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=6), min_size=1, max_size=4),
)
def test_a_narrowed_push_that_is_repeated_has_the_same_bits_and_counts_once(lost, kind, pushes):
    assert pushed(lost, kind, pushes) == pushed((), kind, pushes)


def test_row_functions_take_and_return_narrowed_rows(sessions):
    @dv.rows
    def moved(t, w, more, number):
        return {"t": t + more, "w": dv.rows.add(number)}, (t, w)

    rows = np.full((100, 8), 0.5, np.float32)
    rows[:, 0] = 127
    for ps in sessions.values():
        space = ps.keys()
        t, w = space.table(8), space.zeros("int64")
        args = KEYS[:100], t, w, rows, np.ones(100, np.int64)
        space.apply(moved, *args)  # the program is known now
        before = ps.counters.bytes_sent, ps.counters.bytes_saved
        returned, hits = space.apply(moved, *args, wire="int8")
        saved = ps.counters.bytes_saved - before[1]
        assert saved == 2 * (rows.nbytes - 100 * (8 + 4))  # int64 is as ever
        assert np.all(returned == np.rint(rows)) and np.all(hits == 1)  # to the nearest
        found = t.pull(KEYS[:100])
        assert np.all(found[:, 0] == 254) and {0.5, 1.5} == set(found[:, 1:].ravel().tolist())
        t.at(KEYS[:9]).apply(moved, t, w, rows[:9], np.ones(9, np.int64), wire="float16")
        with pytest.raises(ValueError, match="or off, got 'zip'"):
            space.apply(moved, *args, wire="zip")


def test_attempts_of_a_round_stage_the_same_bits():
    rows, keys = np.random.default_rng(0).random((50, 3), np.float32), KeyBatch.of(KEYS[:50])

    def contributed(servers, name, attempt):
        with dv.local(servers=servers) as ps:
            t = ps.keys().table(3)
            program = RowProgram.scatter(t.type, "add")
            key, own = Key(2, attempt, 0, 0), t.space.remote
            own.stage(name, key, program, [t.number], keys, [rows], wire="int8")
            assert ps.counters.bytes_saved == rows.nbytes - 50 * (4 + 3)
            ps.client.commit_totals(name, [], {0: [Winner(2, attempt)]})
            found = t.pull(keys.keys)
        np.testing.assert_allclose(found, rows, atol=1 / 127)
        return found.tobytes()

    first = contributed(1, "a round", 0)
    assert contributed(2, "a round", 3) == first != contributed(2, "another round", 0)


def test_what_has_no_rows_to_narrow_is_refused(ps):
    space = ps.keys()
    w, t = space.zeros(), space.table(2)
    for call in (
        lambda: w.push([1], 1.0, wire="int8"),
        lambda: w.pull([1], wire="int8"),
        lambda: w.maximum([1], 1.0, wire="int8"),
    ):
        with pytest.raises(ValueError, match="needs a table"):
            call()
    with pytest.raises(TypeError, match=r"assign\(keys, values, wire=...\)"):
        t.assign(t + 1, wire="float16")
    assert len(space) == 0
