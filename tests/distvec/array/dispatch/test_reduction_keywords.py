"""``where=``, ``initial=``, ``dtype=``, ``out=`` and ``keepdims=`` of reductions, as NumPy's."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from tests.distvec.conftest import SERVER_COUNTS
from tests.distvec.oracle import LENGTHS, WIDE, outcome, vectors

TAKES_INITIAL = ("sum", "prod", "min", "max")
TAKES_WHERE = (*TAKES_INITIAL, "any", "all", "mean")
UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def reduced(name: str, way: str, x: Any, keywords: dict[str, Any]) -> Any:
    """NumPy's function, the method or the ufunc's ``reduce``; warnings of nothing are dropped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if way == "method":
            return getattr(x, name)(**keywords)
        if way == "reduce" and name in UFUNCS:
            return UFUNCS[name].reduce(x, **keywords)
        return getattr(np, name)(x, **keywords)


@settings(max_examples=12)
@pytest.mark.parametrize("name", TAKES_WHERE)
@given(
    data=st.data(),
    count=st.sampled_from(SERVER_COUNTS),
    dtype=st.sampled_from(WIDE),
    way=st.sampled_from(("function", "method", "reduce")),
)
def test_keywords(
    sessions: dict[int, dv.Session],
    name: str,
    data: st.DataObject,
    count: int,
    dtype: str,
    way: str,
) -> None:
    ps, length = sessions[count], data.draw(st.sampled_from(LENGTHS))
    values = data.draw(vectors(length, dtype, special=False, scale=8))
    if name == "prod":
        values[3:] = 1
    theirs: dict[str, Any] = {"keepdims": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        theirs["where"] = data.draw(vectors(length, "bool"))
    if name in TAKES_INITIAL and data.draw(st.booleans()):
        theirs["initial"] = data.draw(st.sampled_from((3, -2.5, True, np.float32(1.5))))
    if name in ("sum", "prod", "mean") and data.draw(st.booleans()):
        theirs["dtype"] = data.draw(st.sampled_from(("float64", "float32")))
    ours = {key: ps.array(v) if key == "where" else v for key, v in theirs.items()}
    expected, their_error = outcome(lambda x: reduced(name, way, x, theirs), values)
    got, error = outcome(lambda x: reduced(name, way, x, ours), ps.array(values))
    assert error == their_error
    if error is None:
        expected = np.asarray(expected)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        tolerance = 1e-3 if expected.dtype == np.float32 else 1e-9
        np.testing.assert_allclose(got.numpy(), expected, rtol=tolerance, atol=tolerance)


def test_keywords_are_fused_into_the_reduction(ps: dv.Session) -> None:
    x, mask = ps.random.normal(5000, seed=1).persist(), (ps.arange(5000) % 3 == 0).persist()
    ps.counters.reset()
    total, mean = x.sum(where=mask, initial=5.0), x.mean(where=mask)
    assert ps.counters.messages == 0
    dv.evaluate(total, mean)
    counted = ps.counters.snapshot()
    assert (counted["messages"], counted["sweeps"]) == (1, 1)
    assert (counted["vectors_read"], counted["vectors_written"]) == (2, 0)
    assert np.isclose(float(mean), x.numpy().mean(where=mask.numpy()))


def test_reduce_of_those_that_leave_nan_out(ps: dv.Session) -> None:
    host = np.array([np.nan, 2.5, -1.0])
    for function in (np.fmin, np.fmax):
        assert float(function.reduce(ps.array(host))) == function.reduce(host)
    assert float(np.fmax.reduce(ps.array(host), initial=3)) == 3.0


def test_out(ps: dv.Session) -> None:
    x = ps.array(np.array([1.5, 2.25], np.float32))
    for name in ("sum", "prod", "min", "max", "mean"):
        out = ps.zeros(())
        assert getattr(np, name)(x, out=out) is out
        assert float(out) == getattr(np, name)(x.numpy())
        assert getattr(x, name)(out=out) is out
    kept = ps.zeros(1)
    assert np.max(x, keepdims=True, out=kept) is kept
    assert kept.numpy().tolist() == [2.25]
    place = ps.zeros((), np.int64)
    assert np.argmax(x, out=place) is place and int(place) == 1
    for name in ("sum", "max", "any"):  # whatever is lost
        assert int(getattr(np, name)(x, out=place)) == getattr(np, name)(x.numpy(), out=np.array(0))
    for array in (x, x.numpy()):
        with pytest.raises(ValueError, match="output parameter for reduction"):
            np.sum(array, out=ps.zeros(1) if array is x else np.zeros(1))
    mine = np.zeros(())
    assert np.sum(x, out=mine) is mine and mine == 3.75
    with pytest.raises(TypeError, match="on the client"):
        np.cumsum(x, out=np.zeros(2))


def test_what_numpy_refuses(ps: dv.Session) -> None:
    host, numbers = np.arange(4.0), np.arange(4)
    x, mask = ps.array(host), ps.array(host > 1)
    with pytest.raises(ValueError, match="one has to specify 'initial'"):
        np.max(x, where=mask)
    with pytest.raises(ValueError, match="cannot broadcast"):
        np.sum(x, where=ps.array(host[:2] > 0))
    with pytest.raises(TypeError, match="must be boolean, got int64"):
        np.sum(x, where=ps.array(numbers))
    with pytest.raises(OverflowError):
        np.sum(ps.array(numbers), initial=10**30)
    with pytest.raises(ValueError, match="must be a number"):
        np.sum(x, initial=x)
    with pytest.raises(TypeError, match="unexpected keyword argument 'initial'"):
        np.argmin(x, initial=3)
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert np.isnan(float(ps.zeros(0).mean()))


def test_a_mask_of_length_one_or_a_boolean_is_spread(ps: dv.Session) -> None:
    x = ps.array(np.arange(4.0))
    assert float(np.sum(x, where=ps.array([True]))) == 6.0
    assert float(np.sum(x, where=False)) == 0.0
    assert float(np.mean(x, where=np.True_)) == 1.5
    assert float(np.max(x, initial=x.sum())) == 6.0
