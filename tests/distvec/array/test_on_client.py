"""Small arrays that the client stores: NumPy's results of whole algorithms, and no request."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distvec as dv
from benchmarks.algorithms import ALGORITHMS
from benchmarks.textbook import arrays, difference_of, evaluated
from distvec.session import Session


@pytest.fixture(scope="module")
def ps() -> Iterator[Session]:
    with dv.local(2, in_process=True) as session:
        yield session


@pytest.mark.parametrize("name", ALGORITHMS)
def test_textbook_algorithms(ps, name):
    algorithm = ALGORITHMS[name]
    data = algorithm.data(200 if name == "boosted stumps" else 1000)
    steps = max(2, algorithm.steps)
    moved = {
        key: value if key in algorithm.on_client else ps.array(value, on_client=True)
        for key, value in data.items()
    }
    ps.counters.reset()
    found = evaluated(partial(algorithm.run, **moved, steps=steps))
    assert ps.counters.messages == 0
    assert difference_of(found, arrays(algorithm.run(**data, steps=steps))) < 1e-12


_FLOATS = st.floats(-1e6, 1e6, width=32)
_VALUES = st.lists(_FLOATS | st.sampled_from([0.0, -0.0, np.inf, np.nan]), min_size=3, max_size=3)
_OPS = st.sampled_from(
    ["add", "subtract", "multiply", "divide", "maximum", "floor_divide", "less", "power", "where"]
)
_DTYPES = st.sampled_from(["float64", "float32", "int64", "int32", "bool"])


@given(_OPS, _VALUES, _VALUES, _DTYPES, _DTYPES, st.sampled_from([None, 2, 0.5, 300]))
def test_operations_are_numpys(ps, op, first, second, dtype, other, number):
    """Of arrays, scalars and numbers, in any dtypes: the same bits, dtypes and errors."""
    with np.errstate(all="ignore"):
        a = (
            np.nan_to_num(np.array(first)).astype(dtype)
            if dtype[0] != "f"
            else np.array(first, dtype)
        )
        b = (
            np.nan_to_num(np.array(second)).astype(other)
            if other[0] != "f"
            else np.array(second, other)
        )
        mine = [ps.array(one, on_client=True) for one in (a, b)]
        for x, y, mx, my in (
            (a, b, *mine),
            (a, b if number is None else number, mine[0], mine[1] if number is None else number),
            (a, b[1], mine[0], mine[1][1]),
        ):
            function = getattr(np, op)
            given_, ours = (
                ((x > 0, x, y), (mx > 0, mx, my)) if op == "where" else ((x, y), (mx, my))
            )
            try:
                expected = function(*given_)
            except (TypeError, ValueError, OverflowError) as error:
                with pytest.raises(type(error)):
                    function(*ours)
                continue
            if expected.dtype.name not in ("float64", "float32", "int64", "int32", "bool"):
                continue
            found = function(*ours)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found.numpy(), expected, strict=True)


@given(st.integers(-4, 4), st.integers(-3, 3), st.sampled_from([-2, -1, 1, 2, None]), _FLOATS)
def test_parts_are_numpys_and_copies(ps, start, stop, step, value):
    a = np.arange(3.0)
    x = ps.array(a, on_client=True)
    np.testing.assert_array_equal(x[start:stop:step].numpy(), a[start:stop:step])
    before = x + 0.0
    try:
        a[start] = value
    except IndexError:
        with pytest.raises(IndexError):
            x[start] = value
        with pytest.raises(IndexError):
            _ = x[start]
    else:
        kept = x[start]
        x[start] = value
        assert float(x[start]) == value and float(kept) == float(before[start])
    a[start:stop:step] = value
    x[start:stop:step] = value
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(before.numpy(), np.arange(3.0))


def test_to_the_servers_and_back(ps):
    small = ps.array([[1, 2], [3, 4]], "float32", on_client=True)
    there = ps.array(small)
    assert there.type.row == (2,) and there.dtype == np.float32
    back = ps.array(there * 2, on_client=True)
    np.testing.assert_array_equal((back + small).numpy(), 3 * small.numpy())
    np.testing.assert_array_equal((there + small).numpy(), 2 * small.numpy())
    assert ps.array(2, on_client=True).shape == ()


def test_refused(ps):
    with pytest.raises(NotImplementedError, match="rank 0, 1 or 2"):
        ps.array(np.zeros((1, 1, 1)), on_client=True)
    with pytest.raises(NotImplementedError, match="leave out on_client=True"):
        ps.array(np.broadcast_to(1.0, 2**22 + 1), on_client=True)
    with pytest.raises(TypeError, match="not supported"):
        ps.array(np.array([1j]), on_client=True)
    with pytest.raises(TypeError, match="stored on the client"):
        _ = ps.array([1.0], on_client=True).space
