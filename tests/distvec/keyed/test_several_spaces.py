"""Row functions over arrays of several spaces, and rows that are written for some keys alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv
from distvec.testing import faults, lossy_session
from ps_backend.errors import OutOfBudget
from ps_backend.program.initializers import Uniform, evaluate
from tests.distvec.keyed.conftest import messages

INIT = Uniform(-0.5, 0.5, 7)


@dv.rows
def admit(seen, table, count, values, least):
    """Count keys in one space, and write to another once they came often enough."""
    seen = seen + count
    new = dv.rows.replace(table + values, where=seen >= least)
    return {"seen": seen, "table": new}, (seen, table)


@dv.rows
def stage(seen, table, count, values, least):
    """The same, of which nothing is returned, in other words."""
    often = seen + count >= least
    return {"seen": dv.rows.add(count), "table": dv.rows.add(values, where=often)}


class Dicts:
    """The same on two dicts."""

    def __init__(self):
        self.seen, self.table = {}, {}

    def admit(self, keys, values, least):
        for key, count in zip(*np.unique(np.array(keys, int), return_counts=True), strict=True):
            self.seen[key] = self.seen.get(key, 0) + count
            if self.seen[key] >= least:
                begun = evaluate(INIT, np.array([key]), (2,), np.float64)[0]
                total = values[np.flatnonzero(np.array(keys) == key)[0]].copy()
                for place in np.flatnonzero(np.array(keys) == key)[1:]:
                    total += values[place]
                self.table[key] = self.table.get(key, begun) + total


batches = st.lists(
    st.tuples(st.lists(st.integers(-9, 30), max_size=12), st.integers(1, 3), st.booleans()),
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(batches, faults())
def test_keys_are_inserted_where_the_function_says(given, lost):
    model, rng = Dicts(), np.random.default_rng(0)
    plain = dv.local(servers=1, in_process=True)
    with plain, lossy_session(3, lost) as ps:
        arrays = []
        for session in (plain, ps):
            seen = session.keys().zeros("int64")
            arrays.append((seen, session.keys().table(2, init=INIT, dtype="float64")))
        for keys, least, returns in given:
            values = rng.integers(-4, 4, (len(keys), 2)) * 1.0
            for seen, table in arrays:
                ones = np.ones(len(keys), np.int64)
                function = admit if returns else stage
                found = seen.space.apply(function, keys, seen, table, ones, values, least)
                assert (found is not None) == returns
            model.admit(keys, values, least)
        for seen, table in arrays:
            assert dict(zip(seen.space.keys(), seen.values.tolist(), strict=True)) == model.seen
            assert set(table.space.keys().tolist()) == set(model.table)
            keys = [*model.table]
            np.testing.assert_array_equal(
                table.pull(keys), np.array([*model.table.values()]).reshape(-1, 2)
            )


def test_one_request_to_each_server_reads_and_writes_all_spaces(ps):
    seen, table = ps.keys().zeros("int64"), ps.keys().table(2, init=INIT)
    keys, values = np.arange(100), np.ones((100, 2), np.float32)
    with messages(ps, 1):
        counts, rows = seen.space.apply(admit, keys, seen, table, 1, values, 2)
    assert (counts == 1).all() and len(table) == 0
    np.testing.assert_array_equal(rows, table.pull(keys))  # those that they begin with
    view = seen.at(keys[:50])
    view.apply(stage, seen, table, 1, values[:50], 2)
    with messages(ps, 1):
        view.apply(stage, seen, table, 1, values[:50], 2)
    assert len(table) == 50 and (table.pull(keys[:50]) == rows[:50] + 1 + 1).all()
    text = admit.explain(
        dv.rows.RowsOf("int64"), dv.rows.RowsOf("float32", (2,)), dv.rows.PerKey("int64"),
        dv.rows.PerKey("float32", (2,)), dv.rows.Number("int64"),
    )  # fmt: skip
    assert "replaces the rows of table, where %" in text


def test_a_condition_within_one_space_inserts_what_it_writes(ps):
    space = ps.keys()
    w = space.zeros()

    @dv.rows
    def positive(w, x):
        return {"w": dv.rows.max(x, where=x > 0)}

    space.apply(positive, [1, 2, 3], w, np.array([-1.0, 2.0, 3.0]))
    assert sorted(space.keys().tolist()) == [2, 3]
    space.apply(positive, [1, 2], w, np.array([1.0, -5.0]))
    assert w.pull([1, 2, 3]).tolist() == [1.0, 2.0, 3.0]


def test_large_batches_and_keys_that_are_counted_before(ps):
    seen = ps.keys().zeros("int64")
    table = ps.keys(admit=2).table(2, init=INIT)
    keys = np.arange(0, 400_000, 2)
    values = np.ones((len(keys), 2), np.float32)
    for _ in range(2):
        seen.space.apply(stage, keys, seen, table, np.arange(len(keys)) % 2, values, 1)
    assert len(seen.space) == 200_000 and len(table) == 100_000
    assert table.space.state().waiting == 100_000


def test_nothing_changes_where_one_of_the_spaces_has_no_room(ps):
    seen, small = ps.keys().zeros("int64"), ps.keys(most_bytes=1 << 18).table(16)

    @dv.rows
    def learn(seen, table):
        return {"seen": seen + 1, "table": dv.rows.add(np.ones(16), where=seen >= 0)}

    seen.space.apply(learn, np.arange(10), seen, small)
    for count in (60_000, 200_000):
        with pytest.raises(OutOfBudget):
            seen.space.apply(learn, np.arange(count), seen, small)
        assert len(seen.space) == len(small) == 10
        assert (seen.pull(np.arange(20)) == np.repeat([1, 0], 10)).all()


def test_optimizers_step_within_a_row_function_as_outside(ps):
    ftrl, adagrad = dv.rows.ftrl(0.3, l1=0.2), dv.rows.adagrad(0.1, l2=0.01)
    space, other = ps.keys(), ps.keys()
    w, again = space.zeros(), ps.keys().zeros()
    table, twin = other.table(3, init=INIT), ps.keys().table(3, init=INIT)
    states, sums = w.optimizer(ftrl), table.optimizer(adagrad)
    again.optimizer(ftrl)
    twin.optimizer(adagrad)

    @dv.rows
    def both(w, leader, squares, table, sums, g, slopes):
        new = ftrl.update(w, {"leader": leader, "squares": squares}, g)
        rows = adagrad.update(table, {"squares": sums}, slopes)
        return {
            "w": new["weights"], "leader": new["leader"], "squares": new["squares"],
            "table": rows["weights"], "sums": rows["squares"],
        }  # fmt: skip

    rng, keys = np.random.default_rng(0), np.arange(20)
    for _ in range(4):
        g, slopes = rng.normal(size=20), rng.normal(size=(20, 3)).astype(np.float32)
        space.apply(both, keys, w, *states.values(), table, *sums.values(), g, slopes)
        again.step(keys, g)
        twin.step(keys, slopes)
    np.testing.assert_array_equal(w.pull(keys), again.pull(keys))
    np.testing.assert_array_equal(table.pull(keys), twin.pull(keys))
    with pytest.raises(TypeError, match="the step size is a schedule; pass step_size="):
        dv.rows.sgd(lambda k: 1 / (k + 1)).update(np.ones(3), {}, np.ones(3))


def test_conditions_and_spaces_that_are_refused(ps):
    seen, table = ps.keys().zeros("int64"), ps.keys().table(2)

    @dv.rows
    def by_row(table):
        return {"table": dv.rows.replace(table, where=table > 0)}

    @dv.rows
    def for_all(table):
        return {"table": dv.rows.replace(table, where=True)}

    for wrong in (by_row, for_all):
        with pytest.raises(TypeError, match=r"where= of the new rows of 'table' must be a boolean"):
            table.space.apply(wrong, [1], table)
    with dv.local(servers=1, in_process=True) as other, pytest.raises(ValueError, match="session"):
        seen.space.apply(admit, [1], seen, other.keys().table(2), 1, np.ones((1, 2)), 1)
    del table
    gone = ps.keys().table(2)
    remote, number = gone.space, gone.number
    ps.client.free([remote.number])
    with pytest.raises(dv.PSError):
        seen.space.apply(admit, [1], seen, gone, 1, np.ones((1, 2), np.float32), 1)
    assert len(seen.space) == 0 and number
