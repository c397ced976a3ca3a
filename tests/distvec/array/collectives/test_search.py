"""Places of values in sorted arrays: ``searchsorted``, ``digitize``, ``isin``, ``interp``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distvec as dv

SERVERS = st.sampled_from((1, 2, 3, 7))
DTYPES = st.sampled_from(("f8", "f4", "i8", "u1"))
LENGTHS = st.sampled_from((0, 1, 2, 1025, 4000))
SIDES: Any = st.sampled_from(("left", "right"))


def some(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """Values of which many are equal; of floats some NaN, infinite, or zero of either sign."""
    values = np.round(rng.standard_normal(count) * 3)
    if dtype.startswith("f"):
        for special in (np.nan, np.inf, -np.inf, -0.0, 0.5):
            values = np.where(rng.random(count) < 0.05, special, values)
    return np.abs(values).astype(dtype) if dtype == "u1" else values.astype(dtype)


@settings(max_examples=40)
@given(
    servers=SERVERS, dtype=DTYPES, other=DTYPES, count=LENGTHS, length=LENGTHS, side=SIDES,
    there=st.booleans(), seed=st.integers(0, 9),
)  # fmt: skip
def test_searchsorted(
    sessions: dict[int, dv.Session], servers: int, dtype: str, other: str, count: int,
    length: int, side: Any, there: bool, seed: int,
) -> None:  # fmt: skip
    rng, session = np.random.default_rng(seed), sessions[servers]
    table, values = np.sort(some(rng, dtype, length)), some(rng, other, count)
    a: Any = session.array(table) if there else table
    found = np.searchsorted(a, session.array(values), side=side)
    expected = np.searchsorted(table, values, side=side)
    assert found.dtype == np.int64
    assert found.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("there", [False, True])
def test_shapes_and_sorters(ps: dv.Session, there: bool) -> None:
    rng = np.random.default_rng(0)
    shuffled, values = rng.permutation(3000) * 0.5, rng.random((500, 3)) * 1600
    order, table = np.argsort(shuffled), np.sort(shuffled)
    a: Any = ps.array(table) if there else table
    found = np.searchsorted(a, ps.array(values))
    np.testing.assert_array_equal(found.numpy(), np.searchsorted(table, values))
    found = np.searchsorted(ps.array(shuffled), ps.array(values[:, 0]), sorter=ps.array(order))
    np.testing.assert_array_equal(found.numpy(), np.searchsorted(table, values[:, 0]))
    assert int(np.searchsorted(ps.array(table), 7.25)) == 15
    assert np.searchsorted(ps.array(table), [0.5, -1.0]).numpy().tolist() == [1, 0]


def test_four_messages_and_16_bytes_for_each_value_whose_place_is_elsewhere(ps: dv.Session) -> None:
    table, values = ps.arange(4096.0).persist(), ps.array(np.arange(4096.0)[::-1].copy())
    ps.counters.reset()
    found = np.searchsorted(table, 1 * values) + 1
    assert ps.counters.messages == 0
    found.persist()
    assert ps.counters.messages == ps.counters.phases == 4  # what is around them comes along
    moving = 4095  # all of both but the value 2048, which is equal to what server 1 begins with
    assert ps.counters.peer_bytes == 16 * moving + 2 * 8 * (1 + 3 + 2)


@settings(max_examples=20)
@given(servers=SERVERS, dtype=DTYPES, right=st.booleans(), down=st.booleans(), there=st.booleans())
def test_digitize(
    sessions: dict[int, dv.Session], servers: int, dtype: str, right: bool, down: bool, there: bool
) -> None:
    rng, session = np.random.default_rng(1), sessions[servers]
    bins = np.sort(np.round(rng.standard_normal(1500), 1))[:: -1 if down else 1].copy()
    values = some(rng, dtype, 2000)
    ours: Any = session.array(bins) if there else bins
    found = np.digitize(session.array(values), ours, right=right)
    assert found.numpy().tobytes() == np.digitize(values, bins, right=right).tobytes()


@settings(max_examples=40)
@given(
    servers=SERVERS, dtype=DTYPES, other=DTYPES, tested=st.sampled_from((0, 1, 5, 30, 3000)),
    there=st.booleans(), invert=st.booleans(), seed=st.integers(0, 9),
)  # fmt: skip
def test_isin(
    sessions: dict[int, dv.Session], servers: int, dtype: str, other: str, tested: int,
    there: bool, invert: bool, seed: int,
) -> None:  # fmt: skip
    rng, session = np.random.default_rng(seed), sessions[servers]
    values = np.arange(2000).astype(dtype) if seed % 2 else some(rng, dtype, 2000)
    those = some(rng, other, tested)
    given: Any = session.array(those) if there else those
    found = np.isin(session.array(values), given, invert=invert)
    assert found.numpy().tobytes() == np.isin(values, those, invert=invert).tobytes()


@settings(max_examples=40)
@given(
    servers=SERVERS, there=st.booleans(), ends=st.booleans(), length=st.sampled_from((1, 2, 1500)),
    period=st.sampled_from((None, 2.5)), seed=st.integers(0, 9),
)  # fmt: skip
def test_interp(
    sessions: dict[int, dv.Session], servers: int, there: bool, ends: bool, length: int,
    period: float | None, seed: int,
) -> None:  # fmt: skip
    rng, session = np.random.default_rng(seed), sessions[servers]
    points, heights = np.sort(np.round(rng.standard_normal(length), 2)), some(rng, "f8", length)
    if seed % 2:
        heights = rng.standard_normal(length)
    x = np.concatenate((some(rng, "f8", 1500), points, rng.standard_normal(500)))
    kwargs: dict[str, Any] = {"left": -7.0, "right": 9} if ends else {}
    if period is not None and not there:
        kwargs["period"] = period
    xp, fp = (session.array(one) if there else one for one in (points, heights))
    found = np.interp(session.array(x), xp, fp, **kwargs)
    with np.errstate(all="ignore"):
        expected = np.interp(x, points, heights, **kwargs)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_what_is_refused(ps: dv.Session) -> None:
    x = ps.arange(10.0)
    with pytest.raises(ValueError, match="side must be 'left' or 'right'"):
        np.searchsorted([1.0], x, side="middle")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="bins must be monotonically"):
        np.digitize(x, [1.0, 3.0, 2.0])
    with pytest.raises(ValueError, match="bins must be monotonically"):
        np.digitize(x, ps.array([1.0, 3.0, 2.0]))
    with pytest.raises(ValueError, match="fp and xp are not of the same length"):
        np.interp(x, [1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="array of sample points is empty"):
        np.interp(x, [], [])
    with pytest.raises(NotImplementedError, match="period= needs points on the client"):
        np.interp(x, x, x, period=3)
