"""Cox's partial likelihood: against its definition in 60 digits, whole and in partitions."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distvec.losses.cox import Cox, Scaled, running_totals, total_scaled
from distvec.losses.rows import Rows
from tests.distvec.losses.exact import (
    assert_products,
    assert_sums,
    exact,
    exp,
    margins,
    mp,
    parameters,
    problems,
    weights,
)

TIMES = st.integers(0, 4).map(float)


def definition(rows):
    def value(vector):
        m, c = margins(rows, vector, intercept=False), weights(rows)
        losses = [
            c[i] * (mp.log((c * exp(m))[rows.labels >= rows.labels[i]].sum()) - m[i])
            for i in range(len(rows))
            if c[i] > 0 and (rows.events is None or rows.events[i])
        ]
        return sum(losses, mp.mpf(0))

    return value


@st.composite
def survivals(draw):
    rows, arrays, _ = draw(problems(Cox(), TIMES, intercepts=False))
    rows = replace(rows, labels=np.sort(rows.labels))
    if draw(st.booleans()):
        seen = st.lists(st.sampled_from([0.0, 1.0]), min_size=len(rows), max_size=len(rows))
        rows = replace(rows, events=np.array(draw(seen), float))
    return rows, arrays


def told_to(partitions, prepared):
    """As over Spark: each partition knows of the others what the phases tell."""
    loss, told = Cox(), [[] for _ in partitions]
    for phase in range(loss.phases):
        summaries = [
            loss.summary(phase, *each) for each in zip(partitions, prepared, told, strict=True)
        ]
        for heard, one in zip(told, loss.merge(phase, summaries), strict=True):
            heard.append(one)
    return zip(partitions, prepared, told, strict=True)


def sums_of(partitions, arrays):
    prepared = [Cox().prepare(rows, arrays, intercept=False) for rows in partitions]
    return [Cox().sums_told(*one, intercept=False) for one in told_to(partitions, prepared)]


def products_of(partitions, arrays, ways):
    prepared = [Cox().prepare(rows, arrays, ways, intercept=False) for rows in partitions]
    told = told_to(partitions, prepared)
    return [Cox().products_told(*one, intercept=False)[0] for one in told]


def split(rows, count):
    """In partitions that each have all rows of some times; some may have none."""
    ends = np.searchsorted(rows.labels, np.linspace(0, 5, count + 1))
    return [rows[start:stop] for start, stop in itertools.pairwise(ends)]


@settings(deadline=None, max_examples=60)
@given(survivals())
def test_sums_are_those_of_the_definition(case):
    rows, arrays = case
    assert_sums(Cox(), definition(rows), rows, arrays, intercept=False)


@settings(deadline=None, max_examples=60)
@given(survivals(), st.integers(1, 4))
def test_partitions_together_are_the_whole(case, count):
    rows, arrays = case
    whole = Cox().sums(rows, arrays, intercept=False)
    parts = sums_of(split(rows, count), arrays)
    scale = 1e-14 * float(1 + np.abs(margins(rows, exact(arrays[0]), intercept=False)).sum())
    assert sum(one.value for one in parts) == pytest.approx(whole.value, rel=1e-13, abs=50 * scale)
    assert sum(one.weight for one in parts) == pytest.approx(whole.weight, rel=1e-15)
    np.testing.assert_allclose(
        sum(one.gradients[0] for one in parts), whole.gradients[0], rtol=1e-13, atol=50 * scale
    )


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_products_are_those_of_the_definition(data):
    rows, arrays = data.draw(survivals())
    ways = data.draw(parameters(Cox(), rows.columns, intercept=False))
    assert_products(Cox(), definition(rows), rows, arrays, ways, intercept=False)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_products_of_partitions_together_are_those_of_the_whole(data):
    rows, arrays = data.draw(survivals())
    ways = data.draw(parameters(Cox(), rows.columns, intercept=False))
    (whole,) = Cox().products(rows, arrays, ways, intercept=False)
    parts = products_of(split(rows, data.draw(st.integers(1, 4))), arrays, ways)
    scale = 1e-12 * max(1, np.abs(ways[0]).max()) * max(1, np.abs(arrays[0]).max())
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-11, atol=100 * scale)


def many(n, seed, *, ties=1000.0):
    rng = np.random.default_rng(seed)
    return Rows(
        rng.normal(size=(n, 3)),
        np.sort(np.floor(rng.exponential(ties, n))),
        rng.choice([0.0, 1.0, 2.5], n),
        rng.normal(size=n),
        events=rng.choice([0.0, 1.0], n),
    )


@pytest.mark.parametrize("ties", [3.0, 1e3, 1e9])
def test_many_rows(ties):
    rows, w = many(1000, 0, ties=ties), np.array([0.5, -1.0, 2.0])
    m = rows.matrix @ w + rows.offsets
    risks = rows.weights * np.exp(m)
    sets = np.array([risks[first:].sum() for first in np.searchsorted(rows.labels, rows.labels)])
    seen = rows.weights * rows.events
    hazards = np.array(
        [(seen / sets)[:last].sum() for last in np.searchsorted(rows.labels, rows.labels, "right")]
    )
    found = Cox().sums(rows, (w,), intercept=False)
    assert found.value == pytest.approx(seen @ (np.log(sets) - m), rel=1e-12)
    assert found.weight == rows.weights.sum()
    np.testing.assert_allclose(
        found.gradients[0], rows.matrix.T @ (risks * hazards - seen), rtol=1e-9
    )
    four = [0, *np.searchsorted(rows.labels, rows.labels[[300, 500, 700]]), 1000]
    parts = [rows[start:stop] for start, stop in itertools.pairwise(four)]
    again = sums_of(parts, (w,))
    np.testing.assert_allclose(
        sum(one.gradients[0] for one in again), found.gradients[0], rtol=1e-11
    )
    way = np.array([1.0, 0.5, -2.0])
    (product,) = Cox().products(rows, (w,), (way,), intercept=False)
    moved = rows.matrix @ way
    sums = [(risks * moved)[first:].sum() for first in np.searchsorted(rows.labels, rows.labels)]
    bends = np.array(
        [
            (seen * sums / sets**2)[:last].sum()
            for last in np.searchsorted(rows.labels, rows.labels, "right")
        ]
    )
    expected = rows.matrix.T @ (risks * (moved * hazards - bends))
    np.testing.assert_allclose(product, expected, rtol=1e-9)
    np.testing.assert_allclose(sum(products_of(parts, (w,), (way,))), product, rtol=1e-11)


@pytest.mark.parametrize("scale", [1e3, 1e5, 1e9, 1e300])
@pytest.mark.parametrize("way", [1.0, -1.0])
def test_margins_far_out(scale, way):
    """As time goes by they grow or shrink: the largest of a set leaves at each time, or never."""
    m = way * scale * np.array([1.0, 0.75, 0.5, 0.25, 0.0, -0.25, -0.5])
    rows = Rows(m[:, None], np.arange(7.0))
    assert_sums(Cox(), definition(rows), rows, (np.array([1.0]),), intercept=False)
    assert_sums(Cox(), definition(rows), rows, (np.array([0.0]),), intercept=False)


def test_margins_too_far_out_are_not_a_number_but_no_error():
    rows = Rows(np.array([[1.0], [2.0]]), np.arange(2.0))
    for far in (np.inf, np.nan):
        assert np.isnan(Cox().sums(rows, (np.array([far]),), intercept=False).value)


def test_nothing_seen_and_nobody_left():
    rows = many(50, 1)
    none = replace(rows, events=np.zeros(50))
    found = Cox().sums(none, (np.ones(3),), intercept=False)
    assert found.value == 0.0 and found.weight == rows.weights.sum()
    assert found.gradients[0].tolist() == [0.0] * 3
    last = Rows(np.array([[2.0]]), np.array([3.0]))
    assert Cox().sums(last, (np.array([5.0]),), intercept=False).value == 0.0
    assert Cox().sums(last[:0], (np.array([5.0]),), intercept=False).weight == 0.0
    weightless = replace(rows, weights=np.zeros(50))
    assert Cox().sums(weightless, (np.ones(3),), intercept=False).value == 0.0


def test_a_weight_is_that_many_rows_at_the_same_time():
    rows = many(40, 2, ties=5.0)
    twice = np.repeat(np.arange(40), np.where(rows.weights == 2.5, 2, rows.weights).astype(int))
    whole = replace(rows, weights=np.where(rows.weights == 2.5, 2.0, rows.weights))
    repeated = Rows(
        rows.matrix[twice], rows.labels[twice], None, rows.offsets[twice], None, rows.events[twice]
    )
    w = np.array([0.5, -1.0, 2.0])
    expected = Cox().sums(whole, (w,), intercept=False)
    found = Cox().sums(repeated, (w,), intercept=False)
    assert found.value == pytest.approx(expected.value, rel=1e-13)
    np.testing.assert_allclose(found.gradients[0], expected.gradients[0], rtol=1e-11)


def test_what_cannot_be_is_refused():
    rows = Rows(np.ones((2, 1)), np.array([2.0, 1.0]))
    with pytest.raises(ValueError, match="in ascending order of time; sort them by the label"):
        Cox().sums(rows, (np.zeros(1),), intercept=False)
    assert not Cox().parameters[0].takes_intercept
    assert Cox().has_products
    assert pickle.loads(pickle.dumps(Cox())) == Cox()


HEIGHTS = st.floats(-2e3, 2e3) | st.just(-np.inf) | st.floats(-1e6, 1e6) | st.just(1e30)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0.125, 8), st.floats(-8, 8), HEIGHTS), max_size=8),
    st.tuples(st.floats(0.125, 8), st.floats(-8, 8), HEIGHTS),
    st.booleans(),
)
def test_running_sums_whatever_the_range(terms, before, backwards):
    """Of numbers, and of what goes along with them, relative to these."""
    numbers = np.array([before, *terms], float).T
    first, rest = Scaled(numbers[:2, :1], numbers[2, :1]), Scaled(numbers[:2, 1:], numbers[2, 1:])
    found = running_totals(rest, first, backwards=backwards)
    ordered = [numbers[:, 0], *(numbers[:, :0:-1] if backwards else numbers[:, 1:]).T]
    places = range(len(terms))[::-1] if backwards else range(len(terms))
    for count, place in enumerate(places, start=2):
        for row in range(2):
            right = sum(in_full(one[row], one[2]) for one in ordered[:count])
            mine = in_full(found.values[row, place], found.heights[place])
            size = sum(in_full(max(abs(one[:2])), one[2]) for one in ordered[:count])
            assert abs(mine - right) <= 1e-14 * size
        assert not size or 1e-87 < found.values[0, place] < 1e89
    everything = total_scaled(rest)
    right = sum(in_full(one[0], one[2]) for one in ordered[1:])
    assert abs(in_full(everything.values[0, 0], everything.heights[0]) - right) <= 1e-14 * right


def in_full(value, height):
    """No float is as large, but a number of any exponent is."""
    return mp.mpf(float(value)) * mp.exp(mp.mpf(float(height)))


def test_what_is_not_a_number_stays_so():
    found = running_totals(Scaled(np.ones((1, 3)), np.array([0.0, np.nan, 1.0])))
    assert found.values[0, 0] == 1.0 and np.isnan(found.values[0, 1:]).all()
