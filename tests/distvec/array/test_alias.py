"""Draws by alias table and by counter: as likely as they should be, and the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chisquare

import distvec as dv
from distvec.array.random import uniform_at
from tests.distvec.rows.reference import run

_WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6)), min_size=1, max_size=40)


@example(weights=[364715.0])  # times 1 / 364715.0 it is less than 1
@given(weights=_WEIGHTS.filter(any))
def test_each_place_is_as_likely_as_its_weight(weights: list[float]) -> None:
    table = dv.AliasTable(weights)
    expected = np.array(weights) / np.sum(weights)
    np.testing.assert_allclose(table.probabilities, expected, rtol=1e-9, atol=1e-12)
    drawn = table.draw(np.arange(200), seed=len(weights))
    assert drawn.dtype == np.int64 and (expected[drawn] > 0).all()


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_weights_of_all_sizes(size: int) -> None:
    weights = np.random.default_rng(size).pareto(0.5, size) + 1e-3
    np.testing.assert_allclose(dv.AliasTable(weights).probabilities, weights / weights.sum())
    np.testing.assert_allclose(dv.AliasTable(np.ones(size)).probabilities, 1 / size)


def test_draws_are_distributed_as_the_weights() -> None:
    weights = np.array([5.0, 1.0, 0.0, 3.0, 1.0])
    drawn = dv.AliasTable(weights).draw(np.arange(20_000), seed=3)
    counts = np.bincount(drawn, minlength=5)
    assert counts[2] == 0
    assert chisquare(counts[weights > 0], 2000 * weights[weights > 0]).pvalue > 1e-3


def test_servers_draw_what_the_client_draws(ps: dv.Session) -> None:
    table = dv.AliasTable(np.arange(1.0, 8.0))
    counters = np.array([[-5, 2**62], [0, 1], [2, 2]])
    expected = table.draw(counters, seed=9)
    assert (table.draw(counters, seed=10) != expected).any()
    np.testing.assert_array_equal(table.draw(ps.array(counters), seed=9).numpy(), expected)
    on_servers = uniform_at(ps.array(counters), 9).numpy()
    assert on_servers.tobytes() == uniform_at(counters, 9).tobytes()

    @dv.rows
    def f(keys, hits, k):
        return {"hits": dv.rows.add(1)}, table.draw(keys * 2 + k, seed=9)

    space = ps.keys()
    hits = space.zeros("int64")
    keys = np.array([4, -7, 2**40])
    np.testing.assert_array_equal(space.apply(f, keys, hits, 1), table.draw(keys * 2 + 1, seed=9))
    traced = f.trace(hits=dv.rows.RowsOf("int64"), k=dv.rows.Number("int64"))
    (found,) = run(traced, [0, 1, 2], {"hits": np.zeros(3, np.int64), "k": 1}, keys)
    np.testing.assert_array_equal(found, table.draw(keys * 2 + 1, seed=9))


@pytest.mark.parametrize("weights", [[], [[1.0]], [-1.0, 2.0], [0.0], [np.inf], [np.nan, 1.0]])
def test_what_are_no_weights_is_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights must be"):
        dv.AliasTable(weights)


def test_counters_are_integers(ps: dv.Session) -> None:
    for counters in (np.ones(3), ps.ones(3)):
        with pytest.raises(TypeError, match="counters must be integers, got float64"):
            dv.AliasTable([1.0]).draw(counters)
