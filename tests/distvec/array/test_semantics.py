"""NumPy's meaning: protocols, in-place operators, out=, errors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit

import distvec as dv


def test_numpy_functions_dispatch(ps: dv.Session) -> None:
    host = np.array([-1.5, 0.0, 2.0, 7.25])
    x = ps.array(host)
    pairs = [
        (np.exp(x), np.exp(host)),
        (expit(x), expit(host)),
        (np.where(x > 0, x, 0.0), np.where(host > 0, host, 0.0)),
        (np.clip(x, 0, 2), np.clip(host, 0, 2)),
        (x.clip(max=1), host.clip(max=1)),
        (np.add.reduce(x), np.add.reduce(host)),
        (np.maximum.reduce(x), np.maximum.reduce(host)),
        (np.sum(x), np.sum(host)),
        (np.mean(x), np.mean(host)),
        (np.linalg.norm(x, 1), np.linalg.norm(host, 1)),
        (np.vdot(x, x), np.vdot(host, host)),
        (np.matmul(x, x), np.matmul(host, host)),
        (np.zeros_like(x), np.zeros_like(host)),
        (np.full_like(x, 3), np.full_like(host, 3)),
        (np.round(x), np.round(host)),
        (np.count_nonzero(x), np.asarray(np.count_nonzero(host))),
        (np.float64(2) * x, 2 * host),
        (np.array(2.0) * x, 2 * host),
        (host.dtype.type(1) - x, 1 - host),
    ]
    for ours, theirs in pairs:
        assert isinstance(ours, dv.DistArray)
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-15)
        assert ours.dtype == np.asarray(theirs).dtype
    assert np.array_equal(x, x.copy())
    assert np.shape(x) == (4,) and np.ndim(x) == 1 and np.size(x) == 4


def test_array_namespace(ps: dv.Session) -> None:
    x = ps.array([1.0, 4.0])
    xp = x.__array_namespace__()
    assert xp == ps.namespace
    total = xp.sum(xp.sqrt(xp.asarray([9.0, 16.0])) * xp.ones(2) + xp.zeros_like(x))
    assert float(total) == 7.0
    assert xp.astype(x, xp.float32).dtype == np.float32
    assert xp.isdtype(x.dtype, "real floating")
    assert xp.finfo(x.dtype).eps == np.finfo(float).eps
    assert float(xp.linalg.vector_norm(xp.asarray([3.0, 4.0]))) == 5.0
    assert float(xp.vecdot(x, x)) == 17.0
    assert xp.result_type(x, xp.float32) == np.float64


def test_in_place_operators_change_the_handle_only(ps: dv.Session) -> None:
    x = ps.array([1.0, 2.0])
    old, alias = x.copy(), x
    x += 1
    x *= x
    x -= 0.5
    x /= 2
    x **= 2
    assert alias is x
    np.testing.assert_array_equal(x.numpy(), (((np.array([1.0, 2.0]) + 1) ** 2 - 0.5) / 2) ** 2)
    np.testing.assert_array_equal(old.numpy(), [1.0, 2.0])


def test_in_place_keeps_the_dtype_or_refuses_as_numpy(ps: dv.Session) -> None:
    x = ps.array(np.array([1, 2], np.float32))
    x += np.float64(0.5)
    assert x.dtype == np.float32
    k = ps.array(np.array([1, 2]))
    with pytest.raises(TypeError, match="Cannot cast add output from dtype"):
        k += 0.5
    np.testing.assert_array_equal(k.numpy(), [1, 2])
    one, two = ps.array([1.0]), ps.array([1.0, 2.0])
    with pytest.raises(ValueError, match="non-broadcastable output"):
        one += two


def test_out(ps: dv.Session) -> None:
    x, target = ps.array([1.0, 2.0]), ps.zeros(2)
    result = np.add(x, 1, out=target)
    assert result is target
    np.testing.assert_array_equal(target.numpy(), [2.0, 3.0])
    with pytest.raises(TypeError, match="on the client"):
        np.add(x, 1, out=np.zeros(2))
    target[:] = 7
    np.testing.assert_array_equal(target.numpy(), [7.0, 7.0])
    target[...] = x
    np.testing.assert_array_equal(target.numpy(), [1.0, 2.0])


def test_sparse_pull_and_push(ps: dv.Session) -> None:
    host = np.arange(5000.0)
    x = ps.array(host)
    shared = x.copy()
    np.testing.assert_array_equal(x.pull([3, 4999, -1, 3]), [3, 4999, 4999, 3])
    assert x.push([3, 5, 3], [1.0, 10.0, 2.0]) is x
    x.push([-1], 1)
    np.testing.assert_array_equal(x.pull([3, 5, 4999]), [6, 15, 5000])
    np.testing.assert_array_equal(shared.numpy(), host)
    assert x.pull([]).shape == (0,)
    np.testing.assert_array_equal(x.pull()[:3], host[:3])


def test_a_push_without_indices_adds_to_all(ps: dv.Session) -> None:
    host = np.arange(4, dtype=np.float32)
    x = ps.array(host)
    old = x.copy()
    assert x.push(None, 1) is x
    x.push(None, host.astype(np.float64))
    np.testing.assert_array_equal(x.numpy(), 2 * host + 1)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(old.numpy(), host)
    with pytest.raises(ValueError, match=r"4 elements but values of shape \(2,\)"):
        x.push(None, [1.0, 2.0])
    with pytest.raises(TypeError, match="cannot add float64"):
        ps.zeros(3, np.int64).push(None, 0.5)


def test_a_push_reuses_the_memory_of_an_array_nobody_else_holds(ps: dv.Session) -> None:
    x = ps.array(np.zeros(2000))
    for _ in range(5):
        x.push([1], [1.0])
    assert max(status.buffers for status in ps.client.status()) == 1
    assert x.pull([1])[0] == 5.0


ERRORS: list[tuple[Callable[[dv.Session, dv.DistArray], object], type[Exception], str]] = [
    (lambda ps, x: x + ps.ones(3), ValueError, r"could not be broadcast.*\(4,\) \(3,\)"),
    (lambda ps, x: x @ ps.ones(3), ValueError, "not aligned"),
    (lambda ps, x: np.ones(3) + x, ValueError, "broadcast together"),
    (lambda ps, x: x[x > 1] + np.ones(3), ValueError, "broadcast together"),
    (lambda ps, x: x + "a", TypeError, "unsupported operand of type str"),
    (
        lambda ps, x: ps.array(np.ones(3, np.complex64)),
        TypeError,
        "complex64 is not supported.*float64",
    ),
    (lambda ps, x: ps.array(["a"]), TypeError, "is not supported on the servers"),
    (lambda ps, x: x.astype("complex128"), TypeError, "complex128 is not supported"),
    (lambda ps, x: ps.array(np.ones((2, 2, 2))), NotImplementedError, "at most 2 axes"),
    (lambda ps, x: ps.zeros((2, 2, 2)), NotImplementedError, "at most 2 axes"),
    (lambda ps, x: ps.zeros((3, 2))[:, None], NotImplementedError, "for distances to the rows"),
    (lambda ps, x: ps.zeros(-1), ValueError, "negative"),
    (lambda ps, x: x * np.complex64(1j), TypeError, "complex64 is not supported"),
    (lambda ps, x: x.astype(np.uint8) + 300, OverflowError, "300 out of bounds for uint8"),
    (lambda ps, x: x.astype(np.uint8).push([0], [-1]), OverflowError, "out of bounds for uint8"),
    (lambda ps, x: bool(x), ValueError, "ambiguous"),
    (lambda ps, x: float(x), TypeError, "0-dimensional"),
    (lambda ps, x: list(ps.arange(10_001)), TypeError, "x.numpy"),
    (lambda ps, x: hash(x), TypeError, "unhashable"),
    (lambda ps, x: pickle.dumps(x), TypeError, "cannot be pickled"),
    (lambda ps, x: x.pull([4]), IndexError, "index 4 is out of bounds.*length 4"),
    (lambda ps, x: x.pull([0.5]), IndexError, "vector of integers"),
    (lambda ps, x: x.push([0], [1.0, 2.0]), ValueError, "1 indices but values of shape"),
    (lambda ps, x: x.astype(int).push([0], [1.5]), TypeError, "cannot add float64"),
    (lambda ps, x: np.fft.fft(x), TypeError, "x.numpy"),
    (lambda ps, x: np.isnat(x), TypeError, "not available on the servers"),
    (lambda ps, x: np.divide.accumulate(x), TypeError, "accumulate of add"),
    (lambda ps, x: x.sum(axis=1), np.exceptions.AxisError, "out of bounds"),
    (lambda ps, x: ps.zeros(0).max(), ValueError, "zero-size array"),
    (lambda ps, x: ps.zeros(0).argmin(), ValueError, "empty sequence"),
    (lambda ps, x: x.astype(int) ** -1, ValueError, "negative integer powers"),
    (lambda ps, x: x.astype(int) ** (x.astype(int) - 3), ValueError, "negative integer powers"),
    (lambda ps, x: x & 1, TypeError, "bitwise_and. not supported for the input types"),
    (lambda ps, x: ps.array(np.ones(2, np.int32)) + 2**40, OverflowError, "out of bounds"),
    (lambda ps, x: dv.exp(3.0), TypeError, "at least one DistArray"),
    (lambda ps, x: dv.evaluate("x"), TypeError, "needs arrays"),
    (lambda ps, x: np.asarray(x, copy=False), ValueError, "without a copy"),
    (lambda ps, x: ps.random.uniform(3, seed="a"), TypeError, "seed must be an integer"),
    (lambda ps, x: dv.local(servers=0), ValueError, "1 or more"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_say_what_to_do_and_change_nothing(ps: dv.Session, number: int) -> None:
    action, kind, text = ERRORS[number]
    host = np.arange(4.0)
    x = ps.array(host)
    with pytest.raises(kind, match=text):
        action(ps, x)
    np.testing.assert_array_equal(x.numpy(), host)


def test_operands_of_two_sessions(ps: dv.Session) -> None:
    with (
        dv.local(servers=1, in_process=True) as other,
        pytest.raises(ValueError, match="two sessions"),
    ):
        ps.ones(3) + other.ones(3)


def test_comparison_with_integers_out_of_range_is_exact(ps: dv.Session) -> None:
    x = ps.array(np.array([1, -1], np.int32))
    assert (x < 2**40).all() and not (x > 2**70).any() and (x != -(2**80)).all()


def test_conversions_and_copies(ps: dv.Session) -> None:
    x = ps.array([1.0, 2.0, 3.0])
    assert float(x.sum()) == 6.0 and int(x.max()) == 3 and x.mean().item() == 2.0
    assert bool(x.any()) and range(5)[x.argmax()] == 2 and f"{x.sum():.1f}" == "6.0"
    np.testing.assert_array_equal(np.asarray(x), [1, 2, 3])
    np.testing.assert_array_equal(copy.deepcopy(x).numpy(), [1, 2, 3])
    assert repr(x) == "DistArray([1., 2., 3.], dtype=float64, shape=(3,))"
    assert "..." in repr(ps.arange(1001)) and str(x.sum()) == "6.0"
    assert len(x) == 3 and x.T is x and x.nbytes == 24
    assert ps.array(3).shape == () and int(ps.array(3)) == 3


@pytest.mark.parametrize(
    "arguments", [(5,), (2, 9), (2, 9, 3), (0.0, 1.0, 0.1), (9, 2, -2), (3, 3), (5, 2), (1.5,)]
)
def test_arange_as_numpy(ps: dv.Session, arguments: tuple[float, ...]) -> None:
    ours, theirs = ps.arange(*arguments), np.arange(*arguments)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours.numpy(), theirs)


@pytest.mark.parametrize("num", [0, 1, 2, 7, 2000])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_as_numpy(ps: dv.Session, num: int, endpoint: bool) -> None:
    for low, high in ((0, 1), (-3.5, 2), (1, 1), (5, -5)):
        ours = ps.linspace(low, high, num, endpoint=endpoint).numpy()
        np.testing.assert_array_equal(ours, np.linspace(low, high, num, endpoint=endpoint))


def test_random_numbers_are_distributed_as_named(ps: dv.Session) -> None:
    uniform = ps.random.uniform(100_000, low=2, high=4, seed=1).numpy()
    assert uniform.min() >= 2 and uniform.max() < 4 and abs(uniform.mean() - 3) < 0.01
    normal = ps.random.normal(100_000, loc=1.0, scale=2.0, seed=1).numpy()
    assert abs(normal.mean() - 1) < 0.03 and abs(normal.std() - 2) < 0.03
    dice = np.bincount(ps.random.integers(1, 7, 60_000, seed=3).numpy())
    assert dice[0] == 0 and (abs(dice[1:] - 10_000) < 500).all()
    again = ps.random.normal(100_000, loc=1.0, scale=2.0, seed=1).numpy()
    assert (normal == again).all()
    assert (ps.random.uniform(10).numpy() != ps.random.uniform(10).numpy()).any()
