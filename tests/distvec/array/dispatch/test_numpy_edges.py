"""Corners where NumPy's meaning is easily missed: a call gives what NumPy gives, or is refused."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distvec as dv
from tests.distvec.alike import assert_alike

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


TABLE = np.arange(6.0).reshape(3, 2)


def stored(call: Callable[[Any], Any], shape: Any, dtype: str, like: Any) -> Any:
    """``out=`` of ``shape`` and ``dtype`` that ``call`` has written to."""
    out = np.zeros(shape, dtype, like=like)
    assert call(out) is out
    return out


def changed(x: Any, method: str, *args: Any) -> Any:
    """A copy of ``x`` on which ``method`` was called, or which has ``args[0]`` as that."""
    x = x.copy()
    if args and not callable(getattr(type(x), method)):
        setattr(x, method, args[0])
    else:
        getattr(x, method)(*args)
    return x


def assigned(x: Any, key: Any, value: Any) -> Any:
    """A copy of ``x`` after ``x.flat[key] = value``."""
    x = x.copy()
    x.flat[key] = value
    return x


def assigned_to(x: Any, key: Any, value: Any) -> Any:
    """A copy of ``x`` after ``x[key] = value``."""
    x = x.copy()
    x[key] = value
    return x


def placed(x: Any, mask: Any, values: Any) -> Any:
    """A copy of ``x`` after ``np.place``."""
    x = x.copy()
    np.place(x, mask, values)
    return x


def copied(x: Any, value: Any, **keywords: Any) -> Any:
    """A copy of ``x`` after ``np.copyto(x, value)``."""
    x = x.copy()
    np.copyto(x, value, **keywords)
    return x


def matmul_in_place(x: Any, y: Any) -> Any:
    """Another name of ``x`` after ``x @= y``."""
    other = x = x.copy()
    x @= y
    assert x is other
    return other


# Of a table T; what is more, np.asarray(..., like=T) makes on the side where T is.
OF_TABLES: dict[str, Callable[[Any], Any]] = {
    "@=": lambda T: matmul_in_place(T, np.array([[0.0, 1.0], [1.0, 2.0]], like=T)),
    "vector @=": lambda T: matmul_in_place(T[0], T[:2]),
    "@= of a transpose": lambda T: matmul_in_place(T.T, np.eye(3, like=T)),
    "matmul out": lambda T: stored(lambda out: np.matmul(T, T[:2], out=out), (3, 2), "f8", T),
    "matmul of a transpose out": lambda T: stored(
        lambda out: np.matmul(T.T, T, out=out), (2, 2), "f8", T
    ),
    "dot out": lambda T: stored(lambda out: np.dot(T, T[:2], out=out), (3, 2), "f8", T),
    "dot of a transpose out": lambda T: stored(
        lambda out: np.dot(T.T, T, out=out), (2, 2), "f8", T
    ),
    "sum of a transpose out": lambda T: stored(
        lambda out: np.sum(T.T, axis=0, out=out, keepdims=True), (1, 3), "f8", T
    ),
    "mean of a transpose out": lambda T: stored(
        lambda out: T.T.mean(axis=1, out=out, keepdims=True), (2, 1), "f4", T
    ),
    "argmax of a transpose out": lambda T: stored(
        lambda out: np.argmax(T.T, axis=0, out=out, keepdims=True), (1, 3), "i8", T
    ),
    "max of a transpose out": lambda T: stored(
        lambda out: np.max(T.T, axis=0, out=out), 3, "f8", T
    ),
    "median of a transpose out": lambda T: stored(
        lambda out: np.median(T.T, axis=0, out=out, keepdims=True), (1, 3), "f8", T
    ),
    "bytes": lambda T: np.frombuffer(bytes(T), np.uint8),
    "bytes of a transpose": lambda T: np.frombuffer(bytes(T.T), np.uint8),
    "bytes of integers": lambda T: np.frombuffer(bytes(T[0].astype(np.int64)), np.uint8),
    "bytes of booleans": lambda T: np.frombuffer(bytes(T[0] > 0), np.uint8),
    "bytes of a number": lambda T: np.frombuffer(bytes(np.array(3, like=T)), np.uint8),
    "ravel K": lambda T: np.ravel(T.T, order="K"),
    "ravel A": lambda T: T.T.ravel("A"),
    "reshape A": lambda T: np.reshape(T.T, (3, 2), order="A"),
    "ravel of rows K": lambda T: T.ravel("K"),
    "flatten K": lambda T: T.T.flatten(order="K"),
    "argwhere of a number": lambda T: np.argwhere(T[0].sum()).shape,
    "argwhere of zero": lambda T: np.argwhere(T[0].min()).shape,
    "trim_zeros behind": lambda T: np.trim_zeros(T[0] * 0, "b"),
    "trim_zeros of zeros": lambda T: np.trim_zeros(T * 0, "b", axis=0).shape,
    "flat[True]": lambda T: T.flat[True],
    "flat[False]": lambda T: T.flat[False],
    "setxor1d": lambda T: np.setxor1d(
        np.array([1, 1, 1, 2, 3], like=T), np.array([3, 4, 4], like=T), assume_unique=True
    ),
    "intersect1d": lambda T: np.intersect1d(
        np.array([1, 1, 1, 2, 3], like=T), np.array([3, 4, 4], like=T), assume_unique=True
    ),
    "edges of histogramdd": lambda T: np.histogramdd(T.astype("f4"), 3)[1][0],
    "edges of histogramdd in a range": lambda T: np.histogramdd(
        T.astype("f4"), 3, range=((0, 1), (0, 2))
    )[1][1],
    "edges of histogram2d in a range": lambda T: np.histogram2d(
        T[:, 0].astype("f4"), T[:, 1].astype("f4"), 3, range=((0, 1), (0, 2))
    )[1],
    "edges of histogramdd that are given": lambda T: np.histogramdd(
        T.astype("f4"), (np.array([0, 3, 6]), np.array([0.0, 2.0], "f4"))
    )[1][0],
    "meshgrid": lambda T: type(np.meshgrid(T[0], T[1])) is tuple,
    "median of a list of axes": lambda T: np.median(T, axis=[0, 1]),
    "quantile of a list of axes": lambda T: np.nanquantile(T, 0.5, axis=[0, 1]),
    "arange of booleans": lambda T: np.arange(0, 2, dtype=bool, like=T),
    "arange of a boolean": lambda T: np.arange(1, 2, dtype=bool, like=T),
    "repeat True": lambda T: np.repeat(T, True),
    "polyfit of half a degree": lambda T: np.polyfit(T[:, 0], T[:, 1], 1.5).round(9),
    "astype of a transpose": lambda T: T.T.astype("f4", order="C", casting="same_kind", copy=False),
    "copy in an order": lambda T: T.copy("F") + T.copy(order="K"),
    "copy of a transpose in an order": lambda T: T.T.copy("F"),
    "bincount of nothing": lambda T: np.bincount(T[0][:0].astype(int)),
    "polymul of leading zeros": lambda T: np.polymul(
        np.array([0.0, 0.0, 1.0, 2.0], like=T), np.array([0.0, 3.0], like=T)
    ),
    "polymul of booleans": lambda T: np.polymul(T[0] > 0, T[1] > 0),
    "polymul of zeros": lambda T: np.polymul(T[0] * 0, T[1]),
    "polyval of a number": lambda T: np.polyval(T[1], 3.0),
    "polyval of a float32": lambda T: np.polyval(T[1], np.float32(3.0)),
    "unravel_index of booleans": lambda T: np.unravel_index(T[0] > 0, (2, 3), order=None)[1],
    "ravel_multi_index": lambda T: np.ravel_multi_index(
        (T[0].astype(int), T[0].astype(int)), (2, 3), order=None
    ),
    "copyto where 0": lambda T: copied(T, T * 2, where=0),
    "copyto where 1": lambda T: copied(T, T * 2, where=np.int64(1)),
    "real": lambda T: changed(T, "real", 5),
    "real of a transpose": lambda T: changed(T.T, "real", T.T * 2),
    "fill": lambda T: changed(T, "fill", T[0].max()),
    "flat of fewer": lambda T: assigned(T, slice(None), T[2]),
    "flat of more": lambda T: assigned(T, ..., np.arange(20.0, like=T)),
    "flat of a table": lambda T: assigned(T, slice(None), T[1:] * 10),
    "flat of a list": lambda T: assigned(T, slice(1, 6, 2), [7, 8]),
    "flat of nothing": lambda T: assigned(T, slice(None), []),
    "flat at indices": lambda T: assigned(T, [1, 2, 5], T[2]),
    "flat at a mask": lambda T: assigned(T, np.ravel(T) % 2 == 0, T[2]),
    "flat of a transpose": lambda T: assigned(T.T, slice(None), T[2]),
    "lexsort of rows": lambda T: np.lexsort(-T.T @ T),
    "digitize nan": lambda T: np.digitize(T[0], np.array([np.nan, np.nan])),
    "digitize up to nan": lambda T: np.digitize(T[1], np.array([0.0, 2.5, np.nan], like=T)),
    "digitize equal ones": lambda T: np.digitize(T[1], np.array([2.5, 2.5], like=T)),
    "compress by fewer": lambda T: np.compress(T[0] > 0, T, axis=0),
    "compress by more": lambda T: np.compress(np.ravel(T) == 2, T, axis=0),
    "piecewise of rows": lambda T: np.piecewise(T[:, 0], (T > 2).T, np.array([5.0, 7.0], like=T)),
    "== None": lambda T: operator.eq(T, None) | operator.eq(None, T[0]),
    "!= text": lambda T: (T != "a") & (T.T == ...).T,
    "equal to an object": lambda T: np.equal(T, object()),
    "place by a mask of another shape": lambda T: placed(T, np.ravel(T) > 2, [7.0, 8.0]),
    "values with an axis more": lambda T: assigned_to(T, slice(None), T.sum() * np.ones((1, 3, 2))),
    "a row with an axis more": lambda T: assigned_to(T[0], slice(None), T[1:2]),
    "roll by a text": lambda T: np.roll(T, "1", axis=0),
    "roll by a fraction": lambda T: np.roll(T, 1.5, axis=0),
    "cov of nothing": lambda T: np.cov(T[:0], dtype="f4"),
    "clip of nothing": lambda T: np.clip(T, max=3),
    "take nothing of nothing": lambda T: np.take(T[0][:0], np.array([], int, like=T)),
    "polymul of nothing": lambda T: np.polymul(T[0][:0], T[1]),
    "polyadd of a number": lambda T: np.polyadd(T.sum(), T[1]),
    "casting no": lambda T: np.add(T, T, casting="no"),
    "casting unsafe": lambda T: np.add(T, 0.5, dtype="i8", casting="unsafe"),
    "casting unsafe out": lambda T: stored(
        lambda out: np.add(T, 0.5, out=out, casting="unsafe"), (3, 2), "i4", T
    ),
    "matmul casting": lambda T: np.matmul(T, T[:2], casting="unsafe", dtype="f4"),
    "take out": lambda T: stored(lambda out: T.take([0, 2], 0, out), (2, 2), "i4", T),
    "compress out": lambda T: stored(
        lambda out: T.compress([True, False, True], 0, out), (2, 2), "i4", T
    ),
    "choose out": lambda T: stored(
        lambda out: np.choose(T[0].astype(int), [T[1], T[2]], out=out), 2, "i4", T
    ),
    "cumulative_sum out": lambda T: stored(
        lambda out: np.cumulative_sum(T[0] + 0.6, out=out), 2, "i4", T
    ),
    "vecdot out of rows": lambda T: stored(lambda out: np.vecdot(T, T, out=out), (2, 3), "f8", T),
    "repeat by a column of numbers": lambda T: np.repeat(T, np.array([2, 0, 1], like=T), axis=0),
}

OF_TABLES_REFUSED: dict[str, Callable[[Any], Any]] = {
    "@= of another shape": lambda T: matmul_in_place(T, np.ones((2, 3), like=T)),
    "@= of one column": lambda T: matmul_in_place(T, np.ones((2, 1), like=T)),
    "@= a vector": lambda T: matmul_in_place(T, T[0]),
    "vector @= vector": lambda T: matmul_in_place(T[0], T[0]),
    "integers @= floats": lambda T: matmul_in_place(T.astype(int), T[:2]),
    "@= of a transpose of another shape": lambda T: matmul_in_place(T.T, T),
    "dot out of another dtype": lambda T: stored(
        lambda out: np.dot(T, T[:2], out=out), (3, 2), "f4", T
    ),
    "dot out of another shape": lambda T: stored(
        lambda out: np.dot(T[:, :1].copy(), T[:1, :1], out=out), (3, 2), "f8", T
    ),
    "dot of vectors out of another dtype": lambda T: stored(
        lambda out: np.dot(T[0], T[0], out=out), (), "f4", T
    ),
    "matmul out of another shape": lambda T: stored(
        lambda out: np.matmul(T, T[:2, :1], out=out), (3, 2), "f8", T
    ),
    "sum of a transpose out": lambda T: stored(
        lambda out: np.sum(T.T, axis=0, out=out, keepdims=True), (3, 1), "f8", T
    ),
    "repeat less than not": lambda T: np.repeat(T, np.array([1, -1, 0], like=T), axis=0),
    "repeat a vector less than not": lambda T: np.repeat(T[0], np.array([1, -1], like=T)),
    "repeat half": lambda T: np.repeat(T[0], np.array([1.0, 2.5], like=T)),
    "ravel_multi_index of too many": lambda T: np.ravel_multi_index(
        (np.array([1], like=T), np.array([1], like=T)), (2**40, 2**40)
    ),
    "unravel_index of too many": lambda T: np.unravel_index(np.array([1], like=T), (2**40, 2**40)),
    "det of a number": lambda T: np.linalg.det(T[0].sum()),
    "eigh of a vector": lambda T: np.linalg.eigh(T[0]),
    "rot90 of other axes": lambda T: np.rot90(T, 1, axes=(1, 2)),
    "rot90 of one axis": lambda T: np.rot90(T, 1, axes=(1, 1)),
    "fill by a row": lambda T: T.fill(T[0]),
    "fill by a list": lambda T: T.fill([1.0]),
    "fill of a transpose by a row": lambda T: T.T.fill(T[:, 0]),
    "zeros_like in no order": lambda T: np.zeros_like(T, order="Q"),
    "zeros in no order": lambda T: np.zeros(3, order="Q", like=T),
    "copy in no order": lambda T: np.copy(T, order="Q"),
    "copy in two orders": lambda T: np.copy(T, order="CF"),
    "copy in an order without a name": lambda T: T.copy(order=""),
    "copy of a transpose in no order": lambda T: T.T.copy("Q"),
    "astype in no order": lambda T: T.astype("f4", order="Q"),
    "astype by a rule": lambda T: T.T.astype("i4", casting="safe"),
    "bincount of no floats": lambda T: np.bincount(T[0][:0]),
    "cov in integers": lambda T: np.cov(T, dtype="i1"),
    "corrcoef in integers": lambda T: np.corrcoef(T, dtype="i1"),
    "imag": lambda T: changed(T, "imag", 5),
    "compress by too many": lambda T: np.compress(T[:, 0] >= 0, T, axis=1),
    "casting no": lambda T: np.add(T, T.astype("f4"), casting="no"),
    "casting safe out": lambda T: stored(
        lambda out: np.add(T, T, out=out, casting="safe"), (3, 2), "f4", T
    ),
    "take out of another shape": lambda T: stored(
        lambda out: np.take(T, [0], axis=0, out=out), (2, 2), "f8", T
    ),
    "std out of integers": lambda T: stored(lambda out: T.std(axis=0, out=out), 2, "i8", T),
    "ptp out of integers": lambda T: stored(lambda out: np.ptp(T, 0, out=out), 2, "i8", T),
    "quantile out of integers": lambda T: stored(
        lambda out: np.quantile(T, 0.5, axis=0, out=out), 2, "i8", T
    ),
    "argmax out of floats": lambda T: stored(lambda out: np.argmax(T, axis=0, out=out), 2, "f8", T),
    "multi_dot out of another dtype": lambda T: stored(
        lambda out: np.linalg.multi_dot([T, T[:2], T[:2]], out=out), (3, 2), "f4", T
    ),
    "delete by a shorter mask": lambda T: np.delete(T, T[0] > 0, axis=0),
    "delete by no mask": lambda T: np.delete(T, (T[0] > 0)[:0], axis=0),
    "nan_to_num by a table": lambda T: np.nan_to_num(T[0], nan=T),
    "cov of other observations": lambda T: np.cov(T[:1], T[:2], False),
    "clip without an end": lambda T: np.clip(T, 3),
    "correlate numbers": lambda T: np.correlate(T.sum(), T[0]),
    "take of nothing": lambda T: np.take(T[0][:0], np.array([0], like=T)),
    "indices of nothing": lambda T: T[0][:0].copy()[np.array([0], like=T)],
    "place by another mask": lambda T: placed(T, T[0] > 0, [7.0]),
    "flat[None]": lambda T: T.flat[None],
    "flat[np.True_]": lambda T: T.flat[np.True_],
    "flat[0, 1]": lambda T: T.flat[0, 1],
    "asarray F without a copy": lambda T: np.asarray(T, order="F", copy=False, like=T),
}


def _evaluated(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


@pytest.mark.filterwarnings("ignore:Indexing flat iterators:DeprecationWarning")
@pytest.mark.parametrize("call", OF_TABLES.values(), ids=OF_TABLES)
def test_of_tables_same_as_numpy(ps: dv.Session, call: Callable[[Any], Any]) -> None:
    expected, got = np.asarray(call(TABLE.copy())), _evaluated(call(ps.array(TABLE)))
    np.testing.assert_array_equal(got, expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)


@pytest.mark.parametrize("call", OF_TABLES_REFUSED.values(), ids=OF_TABLES_REFUSED)
def test_of_tables_refused_as_by_numpy(ps: dv.Session, call: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError, IndexError)) as theirs:
        call(TABLE.copy())
    with pytest.raises((TypeError, ValueError, IndexError)) as ours:
        call(ps.array(TABLE))
    assert issubclass(theirs.type, ours.type)


@pytest.mark.parametrize("kind", ["f8", "f4", "i8", "i1", "?"])
@pytest.mark.parametrize("given", ["f8", "f4", "i8", "i1", "u1", "?"])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "cumsum", "cumprod"])
def test_out_says_in_which_dtype_is_computed(
    ps: dv.Session, name: str, given: str, kind: str
) -> None:
    host = np.full((4, 3), 0.4 if given[0] == "f" else 1 if given == "?" else 20).astype(given)
    out, ours = np.zeros((4, 3) if "cum" in name else 3, kind), None
    ours = ps.array(out)
    getattr(np, name)(host, axis=0, out=out)
    getattr(np, name)(ps.array(host), axis=0, out=ours)
    np.testing.assert_allclose(ours.numpy(), out, rtol=1e-6)
    assert ours.dtype == out.dtype
    if name == "sum":
        again = ps.array(np.zeros(3, kind))
        np.add.reduce(ps.array(host), out=again)
        np.testing.assert_array_equal(again.numpy(), ours.numpy())


@pytest.mark.parametrize("order", ["C", "F", "A", "K", None])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(3, 2), (3, 1), (3,)])
def test_as_array_is_the_array_itself_where_it_is_in_order(
    ps: dv.Session, order: Any, transposed: bool, shape: tuple[int, ...]
) -> None:
    for make in (
        lambda a, like: np.asarray(a, order=order, like=like),
        lambda a, like: np.array(a, copy=None, order=order, like=like),
        lambda a, like: np.asanyarray(a, order=order, like=like),
        lambda a, like: np.asfortranarray(a, like=like),
        lambda a, like: np.ascontiguousarray(a, like=like),
        lambda a, like: np.require(a, None, order and [order], like=like) if order != "K" else a,
    ):
        host = np.ones(shape).T if transposed else np.ones(shape)
        ours = ps.array(np.ones(shape)).T if transposed else ps.array(np.ones(shape))
        assert (make(ours, ours) is ours) == np.shares_memory(make(host, host), host)
        made = make(ours, ours)
        made += 1
        np.testing.assert_array_equal(made.numpy(), host + 1)


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


ODD_TABLE = np.arange(20.0).reshape(5, 4)
SQUARE = np.arange(16.0).reshape(4, 4) % 7

OF_SEVERAL: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    # masks of columns on the servers
    "columns of a mask": lambda t, s, m, v: t[:, m],
    "columns of a condition": lambda t, s, m, v: t[:, t[0] > 2],
    "a row's elements of a mask": lambda t, s, m, v: t[1, m],
    "rows of a slice, columns of a mask": lambda t, s, m, v: t[1:3, m],
    "pairs of masks": lambda t, s, m, v: s[m, v > 0],
    "pairs of masks that do not fit": lambda t, s, m, v: s[m, v > 3],
    "a mask and an index array": lambda t, s, m, v: t[:4][m, v[:3].astype(int)],
    "rows of T.T": lambda t, s, m, v: list(t.T),
    "T.T unpacked": lambda t, s, m, v: (lambda x, y: [y, x])(*t[:, :2].T),
    # rank 0
    "take of a number": lambda t, s, m, v: np.take(t.sum(), [0, 0]),
    "take of a number along an axis": lambda t, s, m, v: np.take(t.sum(), 0, axis=-1),
    "take of what a number has not": lambda t, s, m, v: np.take(t.sum(), 1),
    "argsort of a number": lambda t, s, m, v: np.argsort(t.sum()),
    "sort of a number": lambda t, s, m, v: np.sort(t.sum()),
    "argpartition of a number": lambda t, s, m, v: np.argpartition(t.sum(), 0),
    "squeeze of a number": lambda t, s, m, v: np.squeeze(t.sum(), axis=0),
    "squeeze of a number's axis 1": lambda t, s, m, v: np.squeeze(t.sum(), axis=1),
    "flatnonzero of a number": lambda t, s, m, v: np.flatnonzero(t.sum()),
    "norm of a number": lambda t, s, m, v: np.linalg.norm(-t.sum()),
    "matrix_rank of a number": lambda t, s, m, v: np.linalg.matrix_rank(t.sum()),
    "svd of a number": lambda t, s, m, v: np.linalg.svd(t.sum()),
    "det of a number": lambda t, s, m, v: np.linalg.det(t.sum()),
    "cholesky of a number": lambda t, s, m, v: np.linalg.cholesky(t.sum()),
    "matrix_power of a number": lambda t, s, m, v: np.linalg.matrix_power(t.sum(), 2),
    "atleast_1d of several": lambda t, s, m, v: np.atleast_1d(v, np.arange(3), 2),
    # lists
    "median over a list of axes": lambda t, s, m, v: np.median(t, axis=[0, 1]),
    "median of T.T over a list of axes": lambda t, s, m, v: np.median(t.T, axis=[0, 1]),
    "percentile over a list of axes": lambda t, s, m, v: np.percentile(t, 30, axis=[0, 1]),
    "average over a list of axes": lambda t, s, m, v: np.average(t, axis=[0, 1]),
    "sum over a list of axes": lambda t, s, m, v: np.sum(t, axis=[0, 1]),
    "sum of T.T over a list of axes": lambda t, s, m, v: np.sum(t.T, axis=[0, 1]),
    "allclose to a list": lambda t, s, m, v: np.allclose(v, [0, 1, 2, 3]),
    "a list allclose": lambda t, s, m, v: np.allclose([0, 1, 2, 4], v),
    "isclose to rows": lambda t, s, m, v: np.isclose(t, (0, 1, 2, 3), rtol=[0, 1, 2, 3]),
    "array_equal to an array of the client": lambda t, s, m, v: np.array_equal(t, ODD_TABLE),
    "array_equiv to a list": lambda t, s, m, v: np.array_equiv(v, [0, 1, 2, 3]),
    # integers to integer powers
    "integer powers": lambda t, s, m, v: (t.astype(int) - 9) ** v.astype(int),
    "powers of an integer": lambda t, s, m, v: 3 ** v.astype(int),
    "powers of booleans": lambda t, s, m, v: m ** v.astype("int8"),
    "powers that overflow": lambda t, s, m, v: np.power(t.astype("int32"), v.astype("int32") * 9),
    "a negative power among others": lambda t, s, m, v: t.astype(int) ** (1 - v.astype(int)),
    # out= of what T.T is reduced to
    "argmax of T.T, out": lambda t, s, m, v: _into(np.argmax, t.T, (1, 5), axis=-2),
    "sum of T.T, out": lambda t, s, m, v: _into(np.sum, t.T, (4, 1), axis=1),
    "sum of T.T, out of floats": lambda t, s, m, v: _into(np.sum, t.T, (4, 1), "f4", axis=1),
    "argmin of all of T.T, out": lambda t, s, m, v: _into(np.argmin, t.T, (1, 1), axis=None),
    "median of T.T, out": lambda t, s, m, v: _into(np.median, t.T, (1, 5), axis=0),
    "max of T.T, out=U.T": lambda t, s, m, v: np.max(t.T, 0, out=t[:, :1].copy().T, keepdims=True),
    "x.dot(T.T)": lambda t, s, m, v: s.dot(t.T),
    "lists beside rows": lambda t, s, m, v: t * [1, 2, 3, 4] - (4, 3, 2, 1),
    "a product with a list": lambda t, s, m, v: t @ [1, 2, 3, 4],
    "a product with a number": lambda t, s, m, v: t @ 2,
    "compress by a short condition": lambda t, s, m, v: np.compress(m[:3], t, axis=1),
    "compress by a long condition": lambda t, s, m, v: np.compress(v > 4, t[:, :2], axis=1),
    "compress by a condition beyond": lambda t, s, m, v: np.compress(m, t[:, :2], axis=1),
    "extract by a short condition": lambda t, s, m, v: np.extract(m, t),
    # einsum
    "labels in lists": lambda t, s, m, v: np.einsum(t, [0, 1], [1, 0]),
    "labels in lists, no output": lambda t, s, m, v: np.einsum(t, [1, 0], v, [0]),
    "an ellipsis in a list": lambda t, s, m, v: np.einsum(t, [..., 0], [0, ...]),
    "an ellipsis": lambda t, s, m, v: np.einsum("...i,...i", t, t),
    "an ellipsis of different ranks": lambda t, s, m, v: np.einsum("...,...", t, v),
    "an ellipsis left out": lambda t, s, m, v: np.einsum("i...->", t),
    "a trace": lambda t, s, m, v: np.einsum("ii", s),
    "a diagonal of T.T": lambda t, s, m, v: np.einsum("ii,i->i", s.T, v),
    "a diagonal of no square": lambda t, s, m, v: np.einsum("ii", t),
    "a trace of a product": lambda t, s, m, v: np.einsum("ij,ji", s, s),
    "an axis stretched": lambda t, s, m, v: np.einsum("ij,j->i", t, v[:1]),
    "einsum in a dtype": lambda t, s, m, v: np.einsum("ij->i", t.astype(int), dtype="f8"),
    "einsum in an unsafe dtype": lambda t, s, m, v: np.einsum("ij->i", t, dtype=int),
    "einsum of a label too few": lambda t, s, m, v: np.einsum("i", t),
    "einsum of a label nowhere": lambda t, s, m, v: np.einsum("ij->k", t),
}


def _into(function: Any, x: Any, shape: tuple[int, int], dtype: str = "f8", **keywords: Any) -> Any:
    """What is in ``out=`` afterwards, which is returned as well."""
    out = np.zeros(shape, dtype if function not in (np.argmax, np.argmin) else "i8", like=x)
    assert function(x, out=out, keepdims=True, **keywords) is out
    return out


@pytest.mark.parametrize("call", OF_SEVERAL.values(), ids=OF_SEVERAL)
def test_tables_and_numbers_as_numpys(ps: dv.Session, call: Callable[..., Any]) -> None:
    mask = np.array([True, False, True, True])
    assert_alike(ps, call, ODD_TABLE, SQUARE, mask, np.arange(4.0))


def test_the_transpose_is_an_array_to_users(ps: dv.Session) -> None:
    table = ps.array(ODD_TABLE)
    assert isinstance(table.T, type(table)) and isinstance(table.T, dv.DistArray)
    before = ps.implicit_transfers
    columns = list(table.T)
    assert ps.implicit_transfers == before, "they stay on the servers"
    assert float(columns[1] @ columns[2]) == ODD_TABLE[:, 1] @ ODD_TABLE[:, 2]


@pytest.mark.parametrize("given", [(2,), (0, 2), (1, 3), (0, 4, 2), (2, 0, -1), (0,), (5, 6)])
def test_a_range_of_booleans(ps: dv.Session, given: tuple[int, ...]) -> None:
    expected = np.arange(*given, dtype=bool)
    np.testing.assert_array_equal(ps.arange(*given, dtype=bool).numpy(), expected)


def test_a_range_of_three_booleans_is_refused_as_by_numpy(ps: dv.Session) -> None:
    with pytest.raises(TypeError, match="at most 2 elements"):
        ps.arange(3, dtype=bool)


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint64", "float32", "int", "float"])
def test_a_range_has_the_dtype_of_numpys(ps: dv.Session, kind: str) -> None:
    make: Any = {"int": int, "float": float}.get(kind, getattr(np, kind, None))
    for given in ((make(3),), (make(3), 13), (3, make(13), 2), (3, 13, make(2)), (make(3), 9.0)):
        expected = np.arange(*given)
        for found in (ps.arange(*given), np.arange(*given, like=ps.ones(1))):
            np.testing.assert_array_equal(found.numpy(), expected)
            assert found.dtype == expected.dtype, given


def test_the_step_of_linspace(ps: dv.Session) -> None:
    for num, endpoint in ((50, True), (7, False), (1, True)):
        found, step = ps.linspace(6, 49, num, endpoint=endpoint, retstep=True)
        expected, theirs = np.linspace(6, 49, num, endpoint=endpoint, retstep=True)
        np.testing.assert_array_equal(found.numpy(), expected)
        np.testing.assert_equal(step, theirs)


WITHOUT_COLUMNS = """
z + 1; z + z; z * v; z @ e; z.T @ z; z @ z.T; z.T; z.sum(); z.sum(0); z.sum(1); z.mean(1);
z.max(0); z.max(1); z.any(1); z.argmax(0); np.median(z, axis=1); np.sort(z, axis=0);
np.cumsum(z, axis=0); np.cumsum(z); z.reshape(0, 3); z.ravel(); z[0]; z[:2]; z[[0, 2]]; z[m];
z[:, 0]; z > 0; z[z > 0]; np.where(z > 0, z, z); np.concatenate([z, t], axis=1);
np.concatenate([z, z]); np.hstack([t, z]); np.nonzero(z); np.argwhere(z); np.flatnonzero(z);
np.unique(z); np.zeros_like(z); z.astype(int); np.array_equal(z, z); len(z); z.size;
np.linalg.norm(z, axis=1); np.einsum("ij->i", z); np.roll(z, 1); np.flip(z);
np.tile(z, (2, 1)); np.delete(t, [0, 1, 2, 3], axis=1); np.array_split(t, 6, axis=1);
np.insert(z, 0, 1.0, axis=1); np.count_nonzero(z, axis=1); np.broadcast_to(z[0], (5, 0));
np.isnan(z); v[:, None] * z; t[:, :0] + v[:, None]; np.outer(v, v[:0]);
np.column_stack([z, v]); t[:, []]; t[:, m[:0]]; np.pad(z, ((0, 0), (1, 1)));
np.prod(z, axis=1); np.dot(z.T, t); np.diag(v[:0]); np.quantile(z, 0.5, axis=0); z.T.sum(0);
np.searchsorted(v, z); np.compress(m, z, axis=0); list(z.T)
"""


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("text", [one.strip() for one in WITHOUT_COLUMNS.split(";")])
def test_tables_without_columns(ps: dv.Session, text: str) -> None:
    code = compile(text, text, "eval")

    def call(*arrays: Any) -> Any:
        return eval(code, {"np": np, **dict(zip("ztvem", arrays, strict=True))})

    shapes = ((3, 0), (3, 4), (3,), (0, 2))
    mask = np.array([True, False, True])
    assert_alike(ps, call, *(np.arange(float(np.prod(one))).reshape(one) for one in shapes), mask)


def test_tables_without_columns_are_changed_and_cost_nothing(ps: dv.Session) -> None:
    ps.counters.reset()
    x = ps.zeros((3, 0))
    x += 1
    x[0] = 2
    x[[True, False, True]] = 3
    assert x.numpy().shape == ps.random.normal(0, 1, (3, 0)).numpy().shape == (3, 0)
    assert ps.array(np.ones((9, 0), "int8")).dtype == np.int8
    assert ps.counters.messages == 0
