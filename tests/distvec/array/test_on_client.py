"""Small arrays that the client stores: NumPy's results of whole algorithms, and no request."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distvec as dv
import optim
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
        _ = ps.array(1.0, on_client=True).space
    with pytest.raises(ValueError, match="between 0 and 4194304"):
        ps.client_limit = -1
    with pytest.raises(TypeError):
        ps.client_limit = 1.5


@pytest.fixture
def small(ps):
    """The session, with new arrays of at most 12 elements on the client."""
    ps.client_limit = 12
    yield ps
    ps.client_limit = 0


CREATORS = {
    "array": lambda ps: ps.array(np.arange(12.0).reshape(3, 4)),
    "list": lambda ps: ps.array([1, 2, 3]),
    "copy": lambda ps: ps.array(ps.ones(3)),
    "zeros": lambda ps: ps.zeros((2, 3)),
    "ones": lambda ps: ps.ones(4, dtype=bool),
    "full": lambda ps: ps.full(4, 2, dtype="float32"),
    "empty": lambda ps: ps.empty(4),
    "eye": lambda ps: ps.eye(3),
    "arange": lambda ps: ps.arange(2, 12, 3),
    "linspace": lambda ps: ps.linspace(0, 1, 5),
    "geomspace": lambda ps: ps.geomspace(1, 16, 5),
    "normal": lambda ps: ps.random.normal(size=(3, 4), seed=1),
    "integers": lambda ps: ps.random.integers(0, 9, size=5, seed=1),
    "exponential": lambda ps: ps.random.exponential(2.0, size=5, seed=1),
    "permutation": lambda ps: ps.random.permutation(8, seed=1),
    "asarray": lambda ps: ps.namespace.asarray([1.0, 2.0]),
    "zeros_like": lambda ps: np.zeros_like(ps.ones(3)),
}


@pytest.mark.parametrize("name", CREATORS)
def test_few_new_elements_are_the_clients_with_the_bits_of_servers(small, name):
    small.counters.reset()
    found = CREATORS[name](small)
    assert found.node.on_client and small.counters.messages == 0
    small.client_limit = 0
    there = CREATORS[name](small)
    assert not there.node.on_client and found.dtype == there.dtype
    np.testing.assert_array_equal(found.numpy(), there.numpy(), strict=True)


def test_more_elements_are_on_the_servers(small):
    for create in (small.zeros, small.arange, lambda n: small.array(np.ones(n))):
        assert create(12).node.on_client and not create(13).node.on_client
    assert not small.zeros(0).node.on_client
    assert not small.array([1.0], on_client=False).node.on_client
    assert not small.space(3).zeros(3).node.on_client


@pytest.mark.parametrize("name", ["conjugate gradients", "k means", "newton logistic", "svrg"])
def test_algorithms_whose_arrays_are_below_and_above_the_limit(small, name):
    algorithm = ALGORITHMS[name]
    data = algorithm.data(1000)
    for limit in (50, 100, 1000):
        small.client_limit = limit
        moved = {k: v if k in algorithm.on_client else small.array(v) for k, v in data.items()}
        found = evaluated(partial(algorithm.run, **moved, steps=2))
        assert difference_of(found, arrays(algorithm.run(**data, steps=2))) < 1e-12


def test_an_array_moves_where_it_is_needed(small):
    x, y = small.arange(3.0), small.ones(3)
    there = small.array([1.0, 2.0, 3.0], on_client=False)
    np.testing.assert_array_equal((x + there).numpy(), [1, 3, 5])
    assert x.node.on_client
    assert x.space == there.space and not x.node.on_client
    np.testing.assert_array_equal((x + y).numpy(), [1, 2, 3])
    y.push([0, 0, 2], np.ones(3))
    np.testing.assert_array_equal(y.numpy(), [3, 1, 2])
    assert small.client.read(y.buffer.id, y.type).tolist() == [3, 1, 2]


def test_a_minimizer_sends_no_request(small):
    small.client_limit = 100
    x = small.zeros(50)
    small.counters.reset()
    found = optim.minimize(lambda x: (((x - 3) ** 2).sum(), 2 * (x - 3)), x, method="L-BFGS")
    assert small.counters.messages == 0
    np.testing.assert_allclose(found.x.numpy(), 3.0)


def test_creation_like_an_array_is_where_new_arrays_are(ps):
    for like in (ps.ones(3), ps.array([1.0], on_client=True)):
        for create in (np.eye, np.zeros, np.ones, np.arange):
            assert not create(5, like=like).node.on_client


def test_an_array_of_numpy_is_not_changed_by_what_is_refused(ps):
    values = np.zeros(2)
    with pytest.raises(TypeError, match=r"use numpy\.put"):
        np.put(values, [0], ps.array([1.0], on_client=True))
    assert not values.any()
    with pytest.raises(TypeError, match="needs an array"):
        dv.matmul([1.0], [2.0])
