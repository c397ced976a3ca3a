"""Every dtype with every other, and with Python's numbers: NumPy's values, dtypes, refusals."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import distvec as dv
from ps_backend import kernels
from ps_backend.program.types import DTYPES
from tests.distvec.oracle import assert_close, outcome, vectors

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "less": operator.lt,
    "equal": operator.eq,
    "and": operator.and_,
    "shift": operator.lshift,
    "maximum": np.maximum,
    "where": lambda x, y: np.where(x != 0, x, y),
}
NUMBERS = (0, -1, 5, 127, 128, 300, -129, 2**31, 2**63, 2**64, -(2**63) - 1, 2.5, 1e6, True)


def few(dtype: str) -> np.ndarray:
    """Zero, ordinary values and the limits."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.resize([True, False, True], 7)
    limits: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    return np.array([0, 1, 3, 7, 100, limits.max, limits.min], kind)


def assert_same(session: dv.Session, function: Callable[..., Any], *operands: Any) -> None:
    """The servers give NumPy's result of ``operands``, or refuse them as NumPy does."""
    theirs, their_error = outcome(function, *operands)
    ours, error = outcome(
        function, *(session.array(x) if isinstance(x, np.ndarray) else x for x in operands)
    )
    what = f"{getattr(function, '__name__', '')} of {operands}"
    if their_error is not None or error is not None:
        assert error is not None and their_error is not None, f"{what}: {error}, {their_error}"
        assert issubclass(error, their_error), f"{what}: {error}, {their_error}"
        return
    assert_close(ours.numpy(), np.asarray(theirs), 0, what)


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_pairs(sessions: dict[int, dv.Session], dtype: str) -> None:
    for other, function in itertools.product(DTYPES, OPERATIONS.values()):
        assert_same(sessions[1], function, few(dtype), few(other)[::-1].copy())


@settings(max_examples=40)
@given(
    data=st.data(),
    count=st.sampled_from((1, 2, 3)),
    length=st.sampled_from((0, 1, 7, 1025)),
    pair=st.tuples(*[st.sampled_from(DTYPES)] * 2),
)
def test_pairs_on_any_servers(
    sessions: dict[int, dv.Session],
    data: st.DataObject,
    count: int,
    length: int,
    pair: tuple[str, str],
) -> None:
    x, y = (data.draw(vectors(length, dtype)) for dtype in pair)
    for function in OPERATIONS.values():
        assert_same(sessions[count], function, x, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pythons_numbers_have_no_dtype_of_their_own(
    sessions: dict[int, dv.Session], dtype: str
) -> None:
    for number, function in itertools.product(NUMBERS, OPERATIONS.values()):
        assert_same(sessions[1], function, few(dtype), number)
        assert_same(sessions[1], lambda x, y, f=function: f(y, x), few(dtype), number)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if np.dtype(name).kind in "iu"])
def test_powers(sessions: dict[int, dv.Session], dtype: str) -> None:
    for exponent in (0, 1, 2, 5, -1, 300, 0.5, np.uint8(3)):
        assert_same(sessions[2], operator.pow, few(dtype), exponent)
    for other in ("uint8", "uint64", "bool"):
        assert_same(sessions[2], operator.pow, few(dtype), few(other))


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(sessions: dict[int, dv.Session], dtype: str) -> None:
    """Of numbers whose sums and products are exact, or wrap around."""
    small = (np.arange(1025) % 3).astype(dtype)
    wide = few(dtype) if np.dtype(dtype).kind != "f" else small
    for x, name in itertools.product((small, wide), ("sum", "prod", "min", "max", "mean")):
        if name != "mean" or x is small:
            assert_same(sessions[3], getattr(np, name), x)
    for x in (small, wide):
        assert_same(sessions[3], np.argmax, x)
        assert_same(sessions[3], np.argmin, x)
        assert_same(sessions[3], operator.matmul, x, x[::-1].copy())
        for other in ("uint8", "int16", "float16"):
            assert_same(sessions[3], lambda x, o=other: np.sum(x, dtype=o), small)


@pytest.mark.parametrize("name", ["arange", "linspace", "zeros", "full"])
def test_arrays_are_made_in_all(sessions: dict[int, dv.Session], name: str) -> None:
    arguments = {"arange": (1, 100, 7), "linspace": (0, 9, 4), "zeros": (5,), "full": (5, 3)}[name]
    for dtype in DTYPES[:-1]:
        expected = getattr(np, name)(*arguments, dtype=dtype)
        assert_close(getattr(sessions[2], name)(*arguments, dtype=dtype).numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_single_elements(ps: dv.Session, dtype: str) -> None:
    x, host = ps.array(few(dtype)), few(dtype)
    x.push([0, 5, 0], few(dtype)[[1, 1, 1]])
    with np.errstate(over="ignore"):
        np.add.at(host, [0, 5, 0], host[[1, 1, 1]])
    np.testing.assert_array_equal(x.pull([0, 5, 6]), host[[0, 5, 6]])
    if np.dtype(dtype).kind in "iu":
        x.push([1], 2)
        x.push([1, 2], [1, 1])
        assert list(x.pull([1, 2])) == [4, 4]
        with pytest.raises(OverflowError):
            x.push([1], 2**70)
        with pytest.raises(OverflowError):
            x[:] = 2**70


def test_compiled_kernels_have_the_same_bits(
    sessions: dict[int, dv.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of dtypes that meet in one loop; those that are not compiled run elsewhere."""
    monkeypatch.setattr(kernels, "NUMBA_FROM_LENGTH", 1 << 17)
    n = kernels.NUMBA_FROM_LENGTH
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, n, np.uint64)
    signed, bytes_, half = words.view(np.int64), words.astype(np.uint8), rng.random(n, np.float32)
    half = (half * 100).astype(np.float16)

    def of_integers(w: Any, s: Any, b: Any) -> tuple[Any, ...]:
        return w < s, (b + 200) // 3, w**3, (b.astype("int8") * 3).astype("float32"), abs(w - 1)

    def of_halves(h: Any, b: Any) -> tuple[Any, ...]:
        return np.sqrt(b) * h + 1.5, np.maximum(h, 3), h > 2

    for function, hosts in ((of_integers, (words, signed, bytes_)), (of_halves, (half, bytes_))):
        ours = function(*map(sessions[2].array, hosts))
        sums = [x.sum() for x in ours if x.dtype.kind != "f"]
        dv.evaluate(*ours, *sums)
        with np.errstate(all="ignore"):
            theirs = function(*hosts)
        for x, host in zip(ours, theirs, strict=True):
            assert_close(x.numpy(), host)
        for total, host in zip(sums, [x for x in theirs if x.dtype.kind != "f"], strict=True):
            assert_close(total.numpy(), np.asarray(host.sum()))


TABLES: dict[str, Callable[..., Any]] = {
    "sum": lambda t, u: t.sum(axis=0),
    "row sum": lambda t, u: t.sum(axis=1),
    "prod": lambda t, u: t.prod(axis=1),
    "gram": lambda t, u: t.T @ u,
    "square": lambda t, u: u.T @ u,
    "product": lambda t, u: t @ np.ones((4, 2), t.dtype),
    "row products": lambda t, u: np.vecdot(t, u),
    "running": lambda t, u: np.cumulative_sum(t, axis=1),
    "running in int8": lambda t, u: np.cumulative_sum(t, axis=1, dtype="int8"),
    "einsum": lambda t, u: np.einsum("ij,ij->i", t, u),
    "broadcast": lambda t, u: np.maximum(t, u.max(axis=0)),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_tables(sessions: dict[int, dv.Session], dtype: str) -> None:
    """Rows of whole numbers, whose sums floats have as they are, and integers as they wrap."""
    rng = np.random.default_rng(0)
    t, u = (rng.integers(0, 2, (1025, 4)).astype(dtype) for _ in range(2))
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        t[:] = rng.integers(limits.min, limits.max, t.shape, dtype, endpoint=True)
        u[::2] = limits.max
    for function in TABLES.values():
        assert_same(sessions[3], function, t, u)
