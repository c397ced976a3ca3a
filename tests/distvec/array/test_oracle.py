"""NumPy is the oracle: values, dtypes and exceptions of random expressions agree with it."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import distvec as dv
from tests.distvec.conftest import CLIENT, SERVER_COUNTS
from tests.distvec.oracle import (
    DTYPES,
    LENGTHS,
    OPERATIONS,
    Operation,
    assert_close,
    outcome,
    vectors,
)

PLACES = (*SERVER_COUNTS, CLIENT)
NUMBERS = st.integers(-5, 5) | st.floats(-100, 100) | st.booleans()


@st.composite
def operands(draw: st.DrawFn, arity: int) -> list[Any]:
    """Vectors of one length or of length 1, and NumPy's and Python's scalars; one is a vector."""
    length = draw(st.sampled_from(LENGTHS))
    choices: list[Any] = [draw(vectors(length, draw(st.sampled_from(DTYPES))))]
    for _ in range(arity - 1):
        kind = draw(st.sampled_from(("vector", "vector", "one", "python", "numpy")))
        if kind == "vector":
            choices.append(draw(vectors(length, draw(st.sampled_from(DTYPES)))))
        elif kind == "one":
            choices.append(draw(vectors(1, draw(st.sampled_from(DTYPES)))))
        elif kind == "python":
            choices.append(draw(NUMBERS))
        else:
            choices.append(draw(vectors(1, draw(st.sampled_from(DTYPES))))[0])
    return draw(st.permutations(choices))


def _unsupported(expected: Any, operation: Operation) -> bool:
    """NumPy has dtypes that the servers have not, and checks exponents that we cannot see."""
    return (
        getattr(expected, "dtype", np.dtype(object)).name not in DTYPES or operation.name == "pow"
    )


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@given(data=st.data(), count=st.sampled_from(PLACES))
def test_one_operation(
    places: dict[int, dv.Session], operation: Operation, data: st.DataObject, count: int
) -> None:
    given_values = data.draw(operands(operation.arity))
    session = places[count]
    theirs, their_error = outcome(operation, *given_values)
    ours = [session.array(v) if isinstance(v, np.ndarray) else v for v in given_values]
    result, error = outcome(operation, *ours)
    if error is not None and their_error is None:
        assert error in (TypeError, NotImplementedError)
        assert _unsupported(theirs, operation)
        return
    if their_error is not None:
        if operation.name == "pow" and error is NotImplementedError:
            return  # a negative integer exponent, among exponents that only the servers see
        assert error is not None and issubclass(error, their_error)
        return
    assert isinstance(result, dv.DistArray)
    assert_close(result.numpy(), np.asarray(theirs), operation.ulps, operation.name)


_EXACT = [op for op in OPERATIONS if op.ulps == 0 and op.name not in ("where",)]


@given(data=st.data(), count=st.sampled_from(PLACES))
def test_nested_expressions_keep_numpys_bits(
    places: dict[int, dv.Session], data: st.DataObject, count: int
) -> None:
    """Many operations in one pass, with shared parts: fusion must not change a bit."""
    session = places[count]
    length = data.draw(st.sampled_from(LENGTHS))
    pairs: list[tuple[Any, Any]] = []
    for dtype in data.draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3)):
        values = data.draw(vectors(length, dtype))
        pairs.append((values, session.array(values)))
    for _ in range(data.draw(st.integers(1, 8))):
        operation = data.draw(st.sampled_from(_EXACT))
        chosen = [data.draw(st.sampled_from(pairs)) for _ in range(operation.arity)]
        theirs, their_error = outcome(operation, *(pair[0] for pair in chosen))
        ours, error = outcome(operation, *(pair[1] for pair in chosen))
        assert (error is None) == (their_error is None) or theirs.dtype.name not in DTYPES
        if error is None and their_error is None:
            pairs.append((theirs, ours))
    wanted = data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=3))
    dv.evaluate(*(ours for _, ours in wanted))
    for theirs, ours in wanted:
        assert_close(ours.numpy(), theirs, 0, "nested")


REDUCTIONS = ("sum", "prod", "min", "max", "mean", "any", "all", "argmax", "argmin")


@pytest.mark.parametrize("name", REDUCTIONS)
@given(data=st.data(), count=st.sampled_from(PLACES), dtype=st.sampled_from(DTYPES))
def test_reductions(
    places: dict[int, dv.Session], name: str, data: st.DataObject, count: int, dtype: str
) -> None:
    values = data.draw(vectors(data.draw(st.sampled_from(LENGTHS)), dtype))
    array = places[count].array(values)
    # Reductions accumulate in float64, so that is what NumPy is asked for as well.
    wide = values.astype(np.float64) if dtype in ("float32", "float16") else values
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing is warned of
        theirs, their_error = outcome(getattr(np, name), values)
        exact, _ = outcome(getattr(np, name), wide)
        ours, error = outcome(getattr(np, name), array)
    assert error == their_error
    if error is not None:
        return
    got, expected = ours.numpy(), np.asarray(theirs)
    assert got.dtype == expected.dtype
    assert got.shape == ()
    if name in ("sum", "mean", "prod") and expected.dtype.kind == "f":
        with np.errstate(all="ignore"):
            scale = np.abs(wide.astype(np.float64)).sum() if name != "prod" else abs(exact)
            scale = scale / max(1, len(wide)) if name == "mean" else scale
            reference = np.asarray(exact).astype(expected.dtype)
        if not np.isfinite(reference) or not np.isfinite(scale) or not np.isfinite(got):
            _check_not_finite(got, reference, wide)
            return
        unit = 2 * np.finfo(expected.dtype).eps + len(wide) * np.finfo(float).eps
        assert abs(float(got) - float(reference)) <= unit * scale + 1e-300
    else:
        np.testing.assert_array_equal(got, expected)


def _check_not_finite(got: Any, reference: Any, values: np.ndarray) -> None:
    """Sums of infinities and NaNs must agree; overflow on the way may depend on the order."""
    if np.isnan(values).any():
        assert np.isnan(got)
    elif np.isinf(values).any():
        np.testing.assert_array_equal(got, reference)


@given(data=st.data(), count=st.sampled_from(PLACES))
@pytest.mark.parametrize("ord", [None, 1, 2, np.inf, -np.inf, 0, 3])
def test_norms(places: dict[int, dv.Session], ord: Any, data: st.DataObject, count: int) -> None:
    dtype = data.draw(st.sampled_from(("float64", "float32", "int64")))
    length = data.draw(st.sampled_from([n for n in LENGTHS if n]))
    if dtype == "int64":
        values = data.draw(vectors(length, "int32")).astype(dtype)
    else:
        values = data.draw(
            st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9).map(
                lambda few: np.resize(np.array(few, dtype), length)
            )
        )
    expected = np.linalg.norm(values.astype(np.float64), ord)
    got = np.linalg.norm(places[count].array(values), ord)
    assert got.dtype == np.linalg.norm(values, ord).dtype
    np.testing.assert_allclose(float(got), expected, rtol=1e-6 if dtype == "float32" else 1e-12)


@given(data=st.data(), count=st.sampled_from(PLACES))
def test_dot(places: dict[int, dv.Session], data: st.DataObject, count: int) -> None:
    length = data.draw(st.sampled_from(LENGTHS))
    first = data.draw(vectors(length, data.draw(st.sampled_from(("int32", "int64", "bool")))))
    second = data.draw(vectors(length, data.draw(st.sampled_from(("int32", "int64", "bool")))))
    a, b = places[count].array(first), places[count].array(second)
    for got in (a @ b, np.dot(a, b), np.vdot(a, b), dv.dot(a, b), dv.vecdot(a, b)):
        assert got.dtype == (first @ second).dtype
        assert got.numpy() == first @ second


@given(
    count=st.sampled_from(PLACES),
    source=st.sampled_from(DTYPES),
    target=st.sampled_from(DTYPES),
    data=st.data(),
)
def test_astype(
    places: dict[int, dv.Session], count: int, source: str, target: str, data: st.DataObject
) -> None:
    values = data.draw(vectors(data.draw(st.sampled_from(LENGTHS)), source))
    if np.dtype(source).kind == "f" and np.dtype(target).kind in "iu":
        values = np.clip(np.nan_to_num(values), -1e9, 1e9)  # the rest is undefined in C and NumPy
    got = places[count].array(values).astype(target).numpy()
    with np.errstate(all="ignore"):
        assert_close(got, values.astype(target), 0, f"{source} to {target}")
