"""Statistics, functions that leave NaN out, comparisons: as NumPy's; and what they cost."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from tests.distvec.conftest import SERVER_COUNTS
from tests.distvec.oracle import DTYPES, LENGTHS, WIDE, assert_close, outcome, vectors

Call = Callable[..., Any]

# Of x, of y like it, and of a mask.
STATISTICS: dict[str, Call] = {
    "var": lambda x, y, m: np.var(x),
    "var ddof": lambda x, y, m: np.var(x, ddof=1),
    "var correction": lambda x, y, m: np.var(x, correction=2, axis=0),
    "var keepdims": lambda x, y, m: np.var(x, 0, keepdims=True),
    "var where": lambda x, y, m: np.var(x, where=m, ddof=1),
    "var mean": lambda x, y, m: np.var(x, mean=np.mean(x, keepdims=True)),
    "var dtype": lambda x, y, m: x.var(dtype=np.float32),
    "std": lambda x, y, m: np.std(x),
    "std method": lambda x, y, m: x.std(0, ddof=2),
    "amax": lambda x, y, m: np.amax(x, axis=0),
    "amin": lambda x, y, m: np.amin(x, where=m, initial=2),
    "ptp": lambda x, y, m: np.ptp(x, axis=0),
    "ptp keepdims": lambda x, y, m: np.ptp(x, keepdims=True),
    "average": lambda x, y, m: np.average(x),
    "average returned": lambda x, y, m: np.average(x, returned=True)[1],
    "average weights": lambda x, y, m: np.average(x, weights=abs(y) + 1),
    "average weights axis": lambda x, y, m: np.average(x, 0, abs(y) + 1),
    "nansum": lambda x, y, m: np.nansum(x),
    "nansum where": lambda x, y, m: np.nansum(x, where=m, initial=3, keepdims=True),
    "nanprod": lambda x, y, m: np.nanprod(np.sign(x)) if x.dtype != bool else np.nanprod(x),
    "nanmean": lambda x, y, m: np.nanmean(x),
    "nanmean where": lambda x, y, m: np.nanmean(x, where=m),
    "nanvar": lambda x, y, m: np.nanvar(x),
    "nanvar where": lambda x, y, m: np.nanvar(x, where=m, ddof=1, keepdims=True),
    "nanstd": lambda x, y, m: np.nanstd(x, axis=0, ddof=1),
    "nanmin": lambda x, y, m: np.nanmin(x),
    "nanmax": lambda x, y, m: np.nanmax(x, keepdims=True),
    "nanmax where": lambda x, y, m: np.nanmax(x, where=m, initial=3),
    "nanargmin": lambda x, y, m: np.nanargmin(x),
    "nanargmax": lambda x, y, m: np.nanargmax(x, axis=0, keepdims=True),
}


@settings(max_examples=8)
@pytest.mark.parametrize("call", STATISTICS.values(), ids=STATISTICS)
@given(data=st.data(), count=st.sampled_from(SERVER_COUNTS), dtype=st.sampled_from(WIDE))
def test_statistics(
    sessions: dict[int, dv.Session], call: Call, data: st.DataObject, count: int, dtype: str
) -> None:
    length = data.draw(st.sampled_from(LENGTHS))
    x, y = (data.draw(vectors(length, dtype, special=False, scale=100)) for _ in range(2))
    mask = data.draw(vectors(length, "bool"))
    if x.dtype.kind == "f":
        x[data.draw(st.sampled_from((slice(0), slice(1), slice(None, None, 3), slice(None))))] = (
            np.nan
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        # Floats accumulate in float64 on the servers, which NumPy is asked for as well.
        theirs, their_error = outcome(call, x, y, mask)
        wide = x.astype(np.float64) if dtype == "float32" else x
        exact, _ = outcome(call, wide, y, mask)
        ours, error = outcome(call, *map(sessions[count].array, (x, y, mask)))
    assert (error is None) == (their_error is None)
    if error is None:
        got, expected = ours.numpy(), np.asarray(theirs)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        tolerance = 1e-5 if expected.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(got, np.asarray(exact), rtol=tolerance, atol=100 * tolerance)


ELEMENTWISE: dict[str, Call] = {
    "isclose": lambda x, y: np.isclose(x, y),
    "isclose equal_nan": lambda x, y: np.isclose(x, y, 0.5, 1e-3, equal_nan=True),
    "isclose of a number": lambda x, y: np.isclose(x, 1, atol=2),
    "isclose to a number": lambda x, y: np.isclose(np.float32(0.5), y, equal_nan=True),
    "nan_to_num": lambda x, y: np.nan_to_num(x),
    "nan_to_num to given": lambda x, y: np.nan_to_num(x, nan=1.5, posinf=2, neginf=-3.0),
    "real": lambda x, y: np.real(x) + x.real,
    "imag": lambda x, y: np.imag(x) + x.imag,
    "conj": lambda x, y: np.conj(x) + x.conj() + x.conjugate(),
    "angle": lambda x, y: np.angle(x),
    "angle in degrees": lambda x, y: np.angle(x, deg=True),
    "isreal": lambda x, y: np.isreal(x),
    "iscomplex": lambda x, y: np.iscomplex(x),
    "isposinf": lambda x, y: np.isposinf(x),
    "isneginf": lambda x, y: np.isneginf(x),
    "fix": lambda x, y: np.fix(x),
    "around": lambda x, y: np.around(x),
    "clip": lambda x, y: np.clip(x, None, 1),
    "clip by min and max": lambda x, y: np.clip(x, min=-1, max=y),
    "clip by nothing": lambda x, y: np.clip(x),
    "polyval": lambda x, y: np.polyval([2, -1, 3], x),
    "polyval of halves": lambda x, y: np.polyval([0.5, 0.25], x),
    "isin": lambda x, y: np.isin(x, [1, 0, 20, 0.5]),
    "isin inverted": lambda x, y: np.isin(x, [True, 3], invert=True),
    "isin nothing": lambda x, y: np.isin(x, []),
    "real_if_close": lambda x, y: np.real_if_close(x),
}
LOOSE: dict[str, Call] = {
    "sinc": lambda x, y: np.sinc(x),
    "i0": lambda x, y: np.i0(np.clip(x, -30, 30)),
}


@settings(max_examples=8)
@pytest.mark.parametrize("name", [*ELEMENTWISE, *LOOSE])
@given(data=st.data(), count=st.sampled_from(SERVER_COUNTS), dtype=st.sampled_from(DTYPES))
def test_functions_of_real_arrays(
    sessions: dict[int, dv.Session], name: str, data: st.DataObject, count: int, dtype: str
) -> None:
    length = data.draw(st.sampled_from(LENGTHS))
    special = name not in LOOSE
    if not special and dtype == "float16":  # NumPy rounds to three digits on the way
        return
    x, y = (data.draw(vectors(length, dtype, special=special, scale=100)) for _ in range(2))
    call = ELEMENTWISE.get(name) or LOOSE[name]
    theirs, their_error = outcome(call, x, y)
    ours, error = outcome(call, *map(sessions[count].array, (x, y)))
    assert (error is None) == (their_error is None)
    if error is None:
        assert_close(ours.numpy(), np.asarray(theirs), 0 if special else 64, name)


COMPARISONS: dict[str, Call] = {
    "allclose": lambda x, y: np.allclose(x, y),
    "allclose equal_nan": lambda x, y: np.allclose(x, y, equal_nan=True),
    "allclose to a number": lambda x, y: np.allclose(x, 0.5, rtol=10),
    "array_equal": lambda x, y: np.array_equal(x, y),
    "array_equal equal_nan": lambda x, y: np.array_equal(x, y, equal_nan=True),
    "array_equiv": lambda x, y: np.array_equiv(x, y),
    "array_equiv to a number": lambda x, y: np.array_equiv(x, 1),
}


@settings(max_examples=8)
@pytest.mark.parametrize("call", COMPARISONS.values(), ids=COMPARISONS)
@given(data=st.data(), count=st.sampled_from(SERVER_COUNTS))
def test_comparisons(
    sessions: dict[int, dv.Session], call: Call, data: st.DataObject, count: int
) -> None:
    length = data.draw(st.sampled_from(LENGTHS))
    x = data.draw(vectors(length, data.draw(st.sampled_from(DTYPES))))
    y = x.copy()
    kind = data.draw(st.sampled_from(("same", "one other", "one", "another length")))
    if kind == "one other" and length:
        y[data.draw(st.integers(0, length - 1))] = 7
    elif kind == "one":
        y = data.draw(vectors(1, "float64"))
    elif kind == "another length":
        y = np.resize(x, length + 2)
    theirs, their_error = outcome(call, x, y)
    ours, error = outcome(call, *map(sessions[count].array, (x, y)))
    assert (type(ours), ours, error) == (type(theirs), theirs, their_error)


def cost_of(ps: dv.Session, *arrays: dv.DistArray) -> tuple[int, ...]:
    """Messages, sweeps, vectors read and written for ``arrays``, of which nothing has run yet."""
    assert ps.counters.messages == 0
    dv.evaluate(*arrays)
    counted = ps.counters.snapshot()
    names = ("messages", "sweeps", "vectors_read", "vectors_written")
    return tuple(counted[name] for name in names)


@pytest.mark.parametrize(
    ("call", "cost"),
    {
        "var": (np.var, (2, 2, 2, 0)),
        "std of one axis": (lambda x: np.std(x, axis=0, keepdims=False), (2, 2, 2, 0)),
        "var with a mean": (lambda x: np.var(x, mean=0.5), (1, 1, 1, 0)),
        "var with its mean": (lambda x: x.var(mean=x.mean(keepdims=True)), (2, 2, 2, 0)),
        "ptp": (np.ptp, (1, 1, 1, 0)),
        "nansum": (np.nansum, (1, 1, 1, 0)),
        "nanmean": (np.nanmean, (1, 1, 1, 0)),
        "nanvar": (np.nanvar, (2, 2, 2, 0)),
        "nanmin": (np.nanmin, (1, 1, 1, 0)),
        "isclose": (lambda x: np.isclose(x, 1.0, equal_nan=True), (1, 1, 1, 1)),
        "nan_to_num": (np.nan_to_num, (1, 1, 1, 1)),
    }.values(),
)
def test_cost(ps: dv.Session, call: Call, cost: tuple[int, ...]) -> None:
    x = ps.random.normal(5000, seed=1).persist()
    ps.counters.reset()
    assert cost_of(ps, call(x)) == cost


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.average(x, weights=x * x),
        np.nanargmin,
        lambda x: np.allclose(x, 0, equal_nan=True),
        lambda x: np.array_equal(x, x * 1.0),
    ],
)
def test_what_must_know_evaluates_once(ps: dv.Session, call: Call) -> None:
    x = ps.random.normal(5000, seed=1).persist()
    ps.counters.reset()
    result = call(x)
    assert (ps.counters.messages, ps.counters.sweeps, ps.implicit_evaluations) == (1, 1, 1)
    if isinstance(result, dv.DistArray):
        float(result)
        assert ps.counters.messages == 1
    with ps.strict(), pytest.raises(RuntimeError, match="strict"):
        call(x + 1)


def test_var_of_what_lies_far_from_zero(ps: dv.Session) -> None:
    host = 1e9 + np.random.default_rng(0).standard_normal(5000)
    np.testing.assert_allclose(float(ps.array(host).var()), host.var(), rtol=1e-10)


def test_compiled_loops_leave_nan_out(
    ps: dv.Session, small_arrays_are_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ps_backend.kernels.LINEAR_FROM_LENGTH", 1 << 17)
    host = np.random.default_rng(0).standard_normal(1 << 17)
    host[:3000], host[5000::7] = np.nan, np.nan
    for dtype in (np.float64, np.float32):
        typed = host.astype(dtype)
        x = ps.array(typed)
        for function in (np.nanmin, np.nanmax):
            assert function(x).numpy() == function(typed)
            assert np.isnan(function(x * np.nan).numpy())
        np.testing.assert_allclose(float(np.nanvar(x)), np.nanvar(typed, dtype=float), rtol=1e-6)


def test_warnings_of_nothing(ps: dv.Session) -> None:
    x = ps.zeros(0)
    for call in (np.var, np.std, np.nanmean, np.nanvar, np.mean):
        with pytest.warns(RuntimeWarning), np.errstate(all="ignore"):
            assert np.isnan(call(x.numpy()))
        with pytest.warns(RuntimeWarning, match="slice"):
            assert np.isnan(float(call(x)))
    with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        ps.ones(1).var(ddof=1)


def test_what_is_refused(ps: dv.Session) -> None:
    x = ps.array([1.0, np.nan])
    for array in (x, x.numpy()):
        zeros = array * 0 if array is not x else ps.zeros(2)
        with pytest.raises(ValueError, match="can't be provided simultaneously"):
            np.var(array, ddof=1, correction=1)
        with pytest.raises(TypeError, match="dtype must be inexact"):
            np.nanmean(array, dtype=np.int64)
        with pytest.raises(ValueError, match="All-NaN slice"):
            np.nanargmax(array * np.nan)
        with pytest.raises(np.exceptions.AxisError):
            np.var(array, axis=1)
        with pytest.raises(ZeroDivisionError, match="sum to zero"):
            np.average(array, weights=np.zeros(2) if array is not x else zeros)
    assert np.isnan(float(np.median(x)))
    with pytest.raises(AttributeError):
        x.ptp()
    with pytest.raises(TypeError, match=r"use numpy\.var"):
        dv.var([1.0, 2.0])


def test_nan_to_num_in_place(ps: dv.Session) -> None:
    x = ps.array([1.0, np.nan, np.inf])
    assert np.nan_to_num(x, copy=False, posinf=9) is x
    assert x.tolist() == [1.0, 0.0, 9.0]
    assert x.sum().tolist() == 10.0


def test_the_number_of_servers_changes_no_bit(sessions: dict[int, dv.Session]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 20_000))
    x[::7] = np.nan
    mask = y > 0
    for call in STATISTICS.values():
        found = {call(*map(ps.array, (x, y, mask))).numpy().tobytes() for ps in sessions.values()}
        assert len(found) == 1
    for call in (np.nanvar, np.nanmean, np.nanmax):
        for axis in (0, 1):
            tables = (ps.array(x.reshape(-1, 4)) for ps in sessions.values())
            assert len({call(table, axis=axis).numpy().tobytes() for table in tables}) == 1
