"""``ps.accumulate``: rounds with their action, run again where that heals what broke them."""

from __future__ import annotations

import os
import signal
import traceback
import warnings

import numpy as np
import pytest

from distvec.spark.rounds import accumulate as module
from distvec.spark.rounds import round as rounds
from distvec.spark.rounds.round import RanInStages
from ps_backend.errors import ServerLost
from tests.waiting import has_ended

pytestmark = pytest.mark.spark

ROWS, LONG = 40, 100_000


@pytest.fixture(scope="module")
def rdd(spark):
    return spark.sparkContext.parallelize(range(ROWS), 3)


class Once:
    """Asked in tasks: true the first time."""

    def __init__(self, directory):
        self.path = str(directory / "happened")

    def __call__(self):
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@pytest.fixture
def once(tmp_path):
    return Once(tmp_path)


def test_what_a_function_returns_is_added_in_the_order_of_the_partitions(ps, rdd):
    """Magnitudes differ, so the order shows in the bits."""

    def values(rows):
        rng = np.random.default_rng(next(iter(rows)))
        return rng.integers(0, 3000, 50), rng.normal(size=50) * 10.0 ** rng.integers(-8, 8)

    expected = np.full(3000, 0.1)
    for part in rdd.glom().collect():
        np.add.at(expected, *values(part))
    g = ps.full(3000, 0.1)
    old = g.copy()
    assert ps.accumulate(rdd, values, into=g) is None
    assert g.numpy().tobytes() == expected.tobytes()
    np.testing.assert_array_equal(old.numpy(), np.full(3000, 0.1))


def test_several_arrays_parts_that_are_yielded_and_rows_of_a_data_frame(ps, rdd, spark):
    g, count, table = ps.zeros(ROWS), ps.zeros(1, np.int64), ps.zeros((ROWS, 2))

    def parts(rows):
        for row in rows:
            yield ([row], 0.5), [1]
            yield None if row % 2 else ([row], 1.0), None
        yield None

    ps.accumulate(rdd, parts, into=(g, count))
    assert count.item() == ROWS
    np.testing.assert_array_equal(g.numpy(), np.tile([1.5, 0.5], ROWS // 2))

    def by_name(rows):
        numbers = [row.id for row in rows]
        return {"most": [max(numbers)], "table": (numbers, [1.0, 2.0])}

    data = spark.range(ROWS, numPartitions=2)
    ps.accumulate(data, by_name, into={"table": table, "most": count, "g": g}, op="max")
    assert count.item() == max(ROWS, ROWS - 1)
    np.testing.assert_array_equal(table.numpy(), np.tile([1.0, 2.0], (ROWS, 1)))
    np.testing.assert_array_equal(g.numpy(), np.tile([1.5, 0.5], ROWS // 2))
    ps.accumulate(spark.sparkContext.emptyRDD(), lambda rows: 1.0, into=g)
    ps.accumulate(rdd, lambda rows: None, into=g)
    np.testing.assert_array_equal(g.numpy(), np.tile([1.5, 0.5], ROWS // 2))


class NoPickle(Exception):
    def __reduce__(self):
        raise TypeError("not me")


def test_an_exception_of_the_function_is_raised_as_it_is_and_nothing_changes(ps, rdd):
    g = ps.ones(LONG).persist()

    def wrong(rows):
        for row in rows:
            if row == 30:
                raise KeyError(f"row {row}")
            yield None, 1.0

    with pytest.raises(KeyError, match=r"row 30.*\n.*in the task of partition 2") as caught:
        ps.accumulate(rdd, wrong, into=g)
    told = "".join(traceback.format_exception(caught.value))
    assert "in wrong" in told and 'raise KeyError(f"row {row}")' in told
    assert "Py4J" not in told and "org.apache" not in told
    np.testing.assert_array_equal(g.numpy(), np.ones(LONG))

    def no_pickle(rows):
        raise NoPickle("this row")

    with pytest.raises(RuntimeError, match=r"in the task of partition 0: .*NoPickle: this row"):
        ps.accumulate(rdd, no_pickle, into=g)
    with pytest.raises(ZeroDivisionError):
        ps.accumulate(rdd.map(lambda row: row / 0), lambda rows: (list(rows), 1.0), into=g)
    np.testing.assert_array_equal(g.numpy(), np.ones(LONG))


RETURNED = {
    "triple": ((1, 2, 3), lambda g, h: g, r"a tuple of 3; return \(indices, values\)"),
    "pair of one": (([0], 1.0, 2.0), lambda g, h: (g, h), "a tuple of 3; return a tuple of 2"),
    "no tuple": (1.0, lambda g, h: (g, h), "returned float; return a tuple of 2"),
    "names": ({"x": 1.0}, lambda g, h: {"g": g, "h": h}, r"\['x'\]; return a dict with some of"),
    "no dict": (1.0, lambda g, h: {"g": g, "h": h}, r"float; return a dict with some of \['g'"),
    "dtype": (([0], 0.5), lambda g, h: h, r"values\.astype\('int64'\)"),
}


@pytest.mark.parametrize(("returned", "into", "message"), RETURNED.values(), ids=RETURNED)
def test_what_cannot_be_added_is_refused(ps, rdd, returned, into, message):
    with pytest.raises(TypeError, match=message):
        ps.accumulate(rdd, lambda rows: returned, into=into(ps.zeros(5), ps.zeros(5, np.int64)))


def test_arguments_are_checked(ps, rdd):
    g = ps.zeros(5)
    with pytest.raises(TypeError, match="needs an RDD or a DataFrame, got list"):
        ps.accumulate([1, 2], lambda rows: 1.0, into=g)
    with pytest.raises(TypeError, match=r"into=g"):
        ps.accumulate(rdd, lambda rows: 1.0, into=())
    with pytest.raises(TypeError, match=r"ps\.array\(values\)"):
        ps.accumulate(rdd, lambda rows: 1.0, into=[1.0, 2.0])
    with pytest.raises(ValueError, match="given twice"):
        ps.accumulate(rdd, lambda rows: 1.0, into=(g, g))
    with pytest.raises(ValueError, match="allowed are 'add', 'min', 'max'"):
        ps.accumulate(rdd, lambda rows: 1.0, into=g, op="mean")


def test_a_round_is_run_again_where_a_worker_died(ps, rdd, once):
    g, w = ps.arange(LONG) * 1.0, ps.keys().zeros()

    def dies(rows):
        yield 1.0, ([-7, 2**40, -7], 1.0)
        if 20 in rows and once():
            os._exit(1)

    with pytest.warns(RuntimeWarning, match="is repeated: .*Python worker exited") as warned:
        ps.accumulate(rdd, dies, into=(g, w))
    assert [one.filename for one in warned] == [__file__]
    np.testing.assert_array_equal(g.numpy(), np.arange(LONG) + 3.0)
    assert w.pull([-7, 2**40]).tolist() == [6.0, 3.0]
    assert ps.reports.value == {}


def test_a_round_is_run_again_where_stages_were_repeated_but_not_for_ever(ps, rdd, monkeypatch):
    broken = []

    def counted(reports, usual=rounds.winning_reports):
        if len(broken) < most:
            broken.append(1)
            raise RanInStages("ran in stages [1, 2]")
        return usual(reports)

    monkeypatch.setattr(rounds, "winning_reports", counted)
    g, most = ps.zeros(LONG), module.RERUNS
    with pytest.warns(RuntimeWarning, match=r"is repeated: ran in stages \[1, 2\]"):
        ps.accumulate(rdd, lambda rows: 1.0, into=g)
    assert len(broken) == module.RERUNS
    np.testing.assert_array_equal(g.numpy(), np.full(LONG, 3.0))
    most += module.RERUNS + 1
    with pytest.raises(RanInStages), warnings.catch_warnings(action="ignore"):
        ps.accumulate(rdd, lambda rows: 1.0, into=g)
    np.testing.assert_array_equal(g.numpy(), np.full(LONG, 3.0))


def test_a_round_is_run_again_where_a_server_was_lost(ps, rdd, once):
    """Of what had not been computed the old value is there; a part of a known one is not."""
    lost = ps.server_pids[1]

    def kills(rows):
        yield None, 1.0
        if 30 in rows and once():
            os.kill(lost, signal.SIGKILL)
            assert has_ended(lost)

    g, known, w = 2.0 * ps.arange(LONG), ps.zeros(LONG).persist(), ps.keys().zeros()
    with pytest.warns(RuntimeWarning, match="is repeated: .*server"):
        ps.accumulate(rdd, kills, into=g)
    np.testing.assert_array_equal(g.numpy(), 2.0 * np.arange(LONG) + 3.0)
    told = r"a part of into\['known'\], so the round cannot be repeated; create the array again"
    with pytest.raises(ServerLost, match=told), warnings.catch_warnings(action="ignore"):
        ps.accumulate(rdd, lambda rows: {"known": 1.0}, into={"known": known})
    told = r"some keys of into, so .* restore the keyed space .*ps\.load\(path\)\) or create"
    with pytest.raises(ServerLost, match=told):
        ps.accumulate(rdd, lambda rows: (list(rows), 1.0), into=w)
