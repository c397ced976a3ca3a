"""Corners where NumPy's meaning is easily missed: a call gives what NumPy gives, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv

FLOATS = np.array([1.5, -2.5, np.nan, 3.25, -0.0])
INTS = np.array([3, -1, 7, 0, 2])
BOOLS = np.array([True, False, True, True, False])
EMPTY = np.array([])

Call = Callable[[Any, Any, Any, Any], Any]

SAME: dict[str, Call] = {
    "~b": lambda f, i, b, e: ~b,
    "np.invert(b)": lambda f, i, b, e: np.invert(b),
    "np.bitwise_and": lambda f, i, b, e: np.bitwise_and(b, ~b),
    "np.bitwise_or": lambda f, i, b, e: np.bitwise_or(b, True),
    "np.bitwise_xor": lambda f, i, b, e: np.bitwise_xor(b, b),
    "bits of integers": lambda f, i, b, e: (i & 5) | (3 ^ i) | ~i,
    "shifts": lambda f, i, b, e: (i << 2) + (i >> 1) + (1 << abs(i)),
    "shifts by too many": lambda f, i, b, e: (i << 70) + (i >> 70),
    "bits of integers and booleans": lambda f, i, b, e: i & b,
    "round of integers": lambda f, i, b, e: np.round(i),
    "round to 1 decimal": lambda f, i, b, e: np.round(f, 1),
    "round to tens": lambda f, i, b, e: np.round(f * 10, -1),
    "np.around": lambda f, i, b, e: np.around(f),
    "method round": lambda f, i, b, e: f.round(),
    "method round of integers": lambda f, i, b, e: i.round(2),
    "ufunc with dtype": lambda f, i, b, e: np.add(f, 1, dtype=np.float32),
    "ufunc of integers with dtype": lambda f, i, b, e: np.add(i, i, dtype=np.float64),
    "comparison with dtype": lambda f, i, b, e: np.less(f, 1, dtype=np.bool_),
    "largest norm of nothing": lambda f, i, b, e: np.linalg.norm(e, np.inf),
    "norm with axis": lambda f, i, b, e: np.linalg.norm(i, axis=0),
    "vector_norm": lambda f, i, b, e: np.linalg.vector_norm(i),
    "linalg.vecdot": lambda f, i, b, e: np.linalg.vecdot(i, i),
    "dot with a number": lambda f, i, b, e: np.dot(f, 2),
    "a number's dot": lambda f, i, b, e: np.dot(2, f),
    "clip with a limit below all": lambda f, i, b, e: np.clip(i, -(2**70), 2),
    "clip with a limit above all": lambda f, i, b, e: np.clip(i, 0, 10**30),
    "zeros_like with shape": lambda f, i, b, e: np.zeros_like(f, shape=3),
    "full_like with shape": lambda f, i, b, e: np.full_like(i, 2, shape=(2,)),
    "array_equal": lambda f, i, b, e: np.array_equal(f, f),
    "array_equal with equal_nan": lambda f, i, b, e: np.array_equal(f, f, equal_nan=True),
    "array_equal of integers": lambda f, i, b, e: np.array_equal(i, i, equal_nan=True),
    "divmod": lambda f, i, b, e: divmod(i, 2)[1],
    "reflected divmod": lambda f, i, b, e: divmod(7, f)[0],
    "x[:]": lambda f, i, b, e: f[:],
    "result_type": lambda f, i, b, e: np.zeros(1, np.result_type(f, i)),
}

REFUSED: dict[str, Call] = {
    "~ of floats": lambda f, i, b, e: ~f,
    "smallest norm of nothing": lambda f, i, b, e: np.linalg.norm(e, -np.inf),
    "a dtype that the operands cannot be cast to": lambda f, i, b, e: np.add(f, 1, dtype=np.int64),
    "a dtype without a loop": lambda f, i, b, e: np.divide(i, 2, dtype=np.int64),
    "clip with an impossible limit": lambda f, i, b, e: np.clip(i, 10**30, None),
    "sum over a fraction": lambda f, i, b, e: np.sum(f, axis=0.5),
    "argmin over no axes": lambda f, i, b, e: np.argmin(f, axis=()),
    "norm over another axis": lambda f, i, b, e: np.linalg.norm(f, axis=1),
}


def _evaluated(value: Any) -> Any:
    return value.numpy() if isinstance(value, dv.DistArray) else np.asarray(value)


@pytest.mark.parametrize("call", SAME.values(), ids=SAME)
def test_same_as_numpy(ps: dv.Session, call: Call) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(call(FLOATS, INTS, BOOLS, EMPTY))
    got = _evaluated(call(*map(ps.array, (FLOATS, INTS, BOOLS, EMPTY))))
    np.testing.assert_array_equal(got, expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_refused_as_by_numpy(ps: dv.Session, call: Call) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)) as theirs:
        call(FLOATS, INTS, BOOLS, EMPTY)
    with pytest.raises((TypeError, ValueError, OverflowError)) as ours:
        call(*map(ps.array, (FLOATS, INTS, BOOLS, EMPTY)))
    assert issubclass(theirs.type, ours.type)


@pytest.mark.parametrize(
    ("call", "hint"),
    {
        "where=": (lambda f, i, b: np.add(f, 1, where=b), "keyword where="),
        "subtract.reduce": (lambda f, i, b: np.subtract.reduce(f), "numpy.subtract.reduce"),
        "where= of numbers": (lambda f, i, b: np.sum(f, where=i), "compare first, as in mask != 0"),
    }.values(),
)
def test_what_the_servers_lack_says_what_to_type(
    ps: dv.Session, call: Callable[[Any, Any, Any], Any], hint: str
) -> None:
    with pytest.raises(TypeError, match=hint):
        call(*map(ps.array, (FLOATS, INTS, BOOLS)))


def test_a_number_is_set_where_a_mask_says(ps: dv.Session) -> None:
    for host, value in ((FLOATS, 7), (INTS, -2.5), (BOOLS, 3)):
        ours, expected = ps.array(host), host.copy()
        before = ours.copy()
        ours[ps.array(BOOLS)] = expected[BOOLS] = value
        np.testing.assert_array_equal(ours.numpy(), expected)
        np.testing.assert_array_equal(before.numpy(), host)
        assert ours.dtype == host.dtype


def test_in_place_logic_changes_the_handle(ps: dv.Session) -> None:
    mask, ours = BOOLS.copy(), ps.array(BOOLS)
    other, theirs = ours, ps.array(INTS) > 1
    ours &= theirs
    ours |= ps.array(INTS) == 0
    ours ^= True
    mask &= INTS > 1
    mask |= INTS == 0
    mask ^= True
    assert ours is other
    np.testing.assert_array_equal(other.numpy(), mask)


def test_in_place_logic_refuses_what_numpy_refuses(ps: dv.Session) -> None:
    one = ps.array([True])
    with pytest.raises(ValueError, match="non-broadcastable output operand"):
        one &= ps.array(BOOLS)
