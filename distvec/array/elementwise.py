"""Elementwise functions: one per row of the op table, and functions composed of them; comparisons.

All are lazy and send no request, except comparisons that give a Python ``bool``: these are
implicit evaluations. Functions for complex numbers are trivial, as all elements are real.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from distvec.array import docstrings, reductions
from distvec.array.core.handle import stored_table
from distvec.array.core.keywords import store
from distvec.array.core.operators import A, Arithmetic, as_array, elementwise
from distvec.array.core.shapes import full
from distvec.array.indexing.setitem import set_item
from distvec.array.transposed import supports_column_split
from ps_backend.program import ops


def apply(name: str, *operands: Any) -> Any:
    """The lazy result of the elementwise op ``name``. ``TypeError`` if no operand is an array."""
    return elementwise(array_among(name, operands), name, *operands)


def array_among(name: str, operands: tuple[Any, ...]) -> Arithmetic:
    """The first array among the operands of ``name``."""
    for operand in operands:
        if isinstance(operand, Arithmetic):
            return operand
    kinds = ", ".join(type(operand).__name__ for operand in operands)
    raise TypeError(
        f"{name}: needs at least one DistArray, got ({kinds}); use numpy.{name} for those, or put "
        f"them on the servers with session.array(...)"
    )


@cache
def _function(name: str) -> Callable[..., Any]:
    """The function of one row, with the parameters that the array API gives it."""

    def unary(x: A, /) -> A:
        return cast(A, apply(name, x))

    def binary(x1: Arithmetic | npt.ArrayLike, x2: Arithmetic | npt.ArrayLike, /) -> Any:
        return apply(name, x1, x2)

    row = ops.TABLE[name]
    function: Callable[..., Any] = unary if row.arity == 1 else binary
    function.__name__ = function.__qualname__ = name
    function.__doc__ = docstrings.of_operation(row)
    return function


def op_function(name: str) -> Callable[..., Any]:
    """The function that users call by the name of an op: the row is all that one takes."""
    return round if name == "round" else _function(name)


def round(x: A, decimals: int = 0, out: A | None = None) -> A:
    """Round each element half to even.

    Parameters
    ----------
    x : DistArray
        Input array.
    decimals : int, default 0
        Number of decimal places; a negative number rounds to tens, hundreds and so on.
    out : DistArray, optional
        Array that receives the result.

    Returns
    -------
    DistArray
        Lazy rounded array. Floats keep their dtype; integers stay unchanged for ``decimals >= 0``.

    Raises
    ------
    TypeError
        If ``x`` is not a DistArray, or booleans are rounded to other than 0 decimals.

    See Also
    --------
    numpy.round : The same function of arrays on the client.

    Notes
    -----
    Like NumPy, it multiplies by a power of ten, rounds, and divides again.

    Examples
    --------
    >>> dv.round(ps.array([0.5, 1.5, 2.25]))
    DistArray([0., 2., 2.], dtype=float64, shape=(3,))
    >>> ps.array([1.25, 3.14159]).round(1)
    DistArray([1.2, 3.1], dtype=float64, shape=(2,))
    """
    array_among("round", (x,))
    result = _round(x, operator.index(decimals))
    return store(out, result, "round")


def _round(x: A, decimals: int) -> A:
    if x.dtype.kind in "iu" and decimals >= 0:
        return x.copy()
    if decimals == 0:
        return elementwise(x, "round", x)
    scale = 10.0 ** abs(decimals)
    if x.dtype == np.bool_:
        raise TypeError(
            f"round: decimals={decimals} is not supported for booleans; convert them first: "
            "x.astype('float64')"
        )
    if x.dtype.kind != "f":
        tens: Any = elementwise(x, "round", elementwise(x, "divide", x, scale)) * scale
        return cast(A, tens.astype(x.dtype))
    enlarge, reduce = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return elementwise(x, reduce, apply("round", elementwise(x, enlarge, x, scale)), scale)


def where(
    condition: Arithmetic | npt.ArrayLike,
    x: Arithmetic | npt.ArrayLike,
    y: Arithmetic | npt.ArrayLike,
) -> Any:
    """Choose elements of ``x`` or ``y`` by a condition.

    Parameters
    ----------
    condition : DistArray or bool
        Selects ``x`` for true elements and ``y`` for false ones.
    x, y : DistArray or number
        Values to choose from, broadcast with ``condition``.

    Returns
    -------
    DistArray
        Lazy array with the broadcast shape and the common dtype of ``x`` and ``y``.

    Raises
    ------
    TypeError
        If no operand is a DistArray.

    See Also
    --------
    numpy.where : The same function of arrays on the client.

    Notes
    -----
    The call sends no request. It is evaluated in the pass over memory of the expression that uses
    it.

    Examples
    --------
    >>> x = ps.array([-1.0, 2.0, -3.0])
    >>> dv.where(x > 0, x, 0.0)
    DistArray([0., 2., 0.], dtype=float64, shape=(3,))
    """
    return apply("where", condition, x, y)


def clip(
    x: A,
    min: A | npt.ArrayLike | None = None,
    max: A | npt.ArrayLike | None = None,
    out: A | None = None,
) -> A:
    """Limit the elements to an interval.

    Parameters
    ----------
    x : DistArray
        Input array.
    min : number or DistArray, optional
        Lower limit, broadcast to ``x``. None (default) sets no limit.
    max : number or DistArray, optional
        Upper limit, broadcast to ``x``. None (default) sets no limit.
    out : DistArray, optional
        Array that receives the result.

    Returns
    -------
    DistArray
        Lazy array of the limited elements.

    Raises
    ------
    TypeError
        If ``x`` is not a DistArray.

    See Also
    --------
    numpy.clip : The same function of arrays on the client.

    Notes
    -----
    If ``min`` exceeds ``max``, the result is ``max``. A limit that an integer dtype cannot exceed
    is ignored.

    Examples
    --------
    >>> dv.clip(ps.array([-1.0, 0.5, 3.0]), 0.0, 1.0)
    DistArray([0. , 0.5, 1. ], dtype=float64, shape=(3,))
    """
    array_among("clip", (x,))
    if x.dtype.kind in "iu":  # as NumPy, whatever cannot be exceeded is no limit
        limits = np.iinfo(x.dtype)
        min = None if type(min) is int and min <= limits.min else min
        max = None if type(max) is int and max >= limits.max else max
    result = x
    if min is not None:
        result = elementwise(x, "maximum", result, min)
    if max is not None:
        result = elementwise(x, "minimum", result, max)
    result = result if result is not x else elementwise(x, "positive", x)
    return store(out, result, "clip")


@supports_column_split()
def full_like(x: A, fill_value: float, dtype: npt.DTypeLike | None = None) -> A:
    """Create an array filled with one value, in the shape of another array.

    Parameters
    ----------
    x : DistArray
        Array that gives shape, session and default dtype.
    fill_value : number
        Value of every element.
    dtype : dtype, optional
        Dtype of the result. Default: the dtype of ``x``.

    Returns
    -------
    DistArray
        Lazy array; it allocates no memory until it is stored.

    Raises
    ------
    TypeError
        If ``x`` is not a DistArray, or ``fill_value`` is not a scalar.

    Examples
    --------
    >>> dv.full_like(ps.array([1.0, 2.0]), 7)
    DistArray([7., 7.], dtype=float64, shape=(2,))
    """
    array_among("full_like", (x,))
    kind = x.dtype if dtype is None else dtype
    return full(x, x.shape, fill_value, kind)


def zeros_like(x: A, dtype: npt.DTypeLike | None = None) -> A:
    """Create an array of zeros in the shape of another array.

    Parameters
    ----------
    x : DistArray
        Array that gives shape, session and default dtype.
    dtype : dtype, optional
        Dtype of the result. Default: the dtype of ``x``.

    Returns
    -------
    DistArray
        Lazy array; it allocates no memory until it is stored.

    Examples
    --------
    >>> dv.zeros_like(ps.array([1.0, 2.0]))
    DistArray([0., 0.], dtype=float64, shape=(2,))
    """
    return full_like(x, 0, dtype)


def ones_like(x: A, dtype: npt.DTypeLike | None = None) -> A:
    """Create an array of ones in the shape of another array.

    Parameters
    ----------
    x : DistArray
        Array that gives shape, session and default dtype.
    dtype : dtype, optional
        Dtype of the result. Default: the dtype of ``x``.

    Returns
    -------
    DistArray
        Lazy array; it allocates no memory until it is stored.

    Examples
    --------
    >>> dv.ones_like(ps.array([1.0, 2.0]))
    DistArray([1., 1.], dtype=float64, shape=(2,))
    """
    return full_like(x, 1, dtype)


def empty_like(x: A, dtype: npt.DTypeLike | None = None) -> A:
    """Create an array in the shape of another one; its elements are zeros.

    Lazy zeros cost no more than uninitialised memory, so this function returns ``zeros_like``.
    """
    return full_like(x, 0, dtype)


def astype(x: A, dtype: npt.DTypeLike, *, copy: bool = True) -> A:
    """Return an array in another dtype.

    Parameters
    ----------
    x : DistArray
        Input array.
    dtype : dtype
        Boolean, integer or floating dtype of the result.
    copy : bool, default True
        Accepted for compatibility with the array API; has no effect.

    Returns
    -------
    DistArray
        Lazy array in the new dtype.

    Raises
    ------
    TypeError
        If ``x`` is not a DistArray, or servers do not support the dtype.

    Examples
    --------
    >>> dv.astype(ps.array([1.5, 2.5]), "int64")
    DistArray([1, 2], dtype=int64, shape=(2,))
    """
    array_among("astype", (x,))
    return x.astype(dtype, copy=copy)


def evaluate(*arrays: Arithmetic) -> None:
    """Evaluate several arrays together.

    Parameters
    ----------
    *arrays : DistArray
        Arrays to evaluate. Arrays of one session share requests and passes over memory; numbers
        and NumPy arrays are ignored.

    Raises
    ------
    TypeError
        If an argument is not an array or a number, such as a list.

    See Also
    --------
    distvec.DistArray.persist : Evaluate one array.

    Notes
    -----
    A common part of several expressions is computed once. The cost is one request per server and
    program, usually one.

    Examples
    --------
    >>> x = ps.array([1.0, 2.0, 3.0])
    >>> total, squares = x.sum(), (x * x).sum()
    >>> dv.evaluate(total, squares)
    >>> float(total), float(squares)
    (6.0, 14.0)
    """
    by_session: dict[int, list[Arithmetic]] = {}
    for array in arrays:
        if isinstance(array, Arithmetic):
            by_session.setdefault(id(array.session), []).append(stored_table(array))
        elif not isinstance(array, np.generic | np.ndarray | bool | int | float):
            hint = "; write evaluate(*arrays)" if isinstance(array, list | tuple) else ""
            raise TypeError(f"evaluate: needs arrays, got {type(array).__name__}{hint}")
    for group in by_session.values():
        group[0].session.evaluate(*group)


def numpy_clip(
    x: Any, a_min: Any = np._NoValue, a_max: Any = np._NoValue, *, min: Any = None, max: Any = None
) -> Any:
    """As ``numpy.clip``, which has two names for each limit."""
    if (a_min is np._NoValue) != (a_max is np._NoValue):
        missing = "a_min" if a_min is np._NoValue else "a_max"
        raise TypeError(f"clip: {missing} is missing; write {missing}=None, or min= and max=")
    low = min if a_min is None or a_min is np._NoValue else a_min
    high = max if a_max is None or a_max is np._NoValue else a_max
    array_among("clip", (x,))
    return clip(x, low, high)


def nan_to_num(
    x: A,
    copy: bool = True,
    nan: A | float = 0.0,
    posinf: A | float | None = None,
    neginf: A | float | None = None,
) -> A:
    """Replace NaN and infinities by numbers.

    Parameters
    ----------
    x : DistArray
        Input array. Arrays of integers and booleans are returned unchanged.
    copy : bool, default True
        False rebinds ``x`` to the result.
    nan : number, default 0.0
        Value for NaN.
    posinf : number, optional
        Value for infinity. Default: the largest number of the dtype.
    neginf : number, optional
        Value for minus infinity. Default: the most negative number of the dtype.

    Returns
    -------
    DistArray
        Lazy array without NaN and infinities.

    Raises
    ------
    ValueError
        If a replacement does not broadcast to the shape of ``x``.

    See Also
    --------
    numpy.nan_to_num : The same function of arrays on the client.

    Examples
    --------
    >>> dv.nan_to_num(ps.array([1.0, np.nan, np.inf]), posinf=100.0)
    DistArray([  1.,   0., 100.], dtype=float64, shape=(3,))
    """
    if as_array("nan_to_num", x).dtype.kind != "f":
        return x.copy() if copy else x
    limits = np.finfo(x.dtype)
    greatest = limits.max if posinf is None else posinf
    least = limits.min if neginf is None else neginf
    result = elementwise(x, "where", _equals(x, np.inf), greatest, x)
    result = elementwise(x, "where", _equals(x, -np.inf), least, result)
    result = elementwise(x, "where", elementwise(x, "isnan", x), nan, result).astype(x.dtype)
    if result.shape != x.shape:
        raise ValueError(
            f"nan_to_num: replacements give shape {result.shape}, but the array has shape "
            f"{x.shape}; give nan=, posinf= and neginf= that broadcast to it"
        )
    return result if copy else x.assign(result, "nan_to_num")


def real(x: A) -> A:
    """Return the array itself: its elements are real.

    Parameters
    ----------
    x : DistArray
        Input array.

    Returns
    -------
    DistArray
        The same array.

    Examples
    --------
    >>> ps.array([1.0, 2.0]).real
    DistArray([1., 2.], dtype=float64, shape=(2,))
    """
    return as_array("real", x)


def set_real(x: A, value: Any) -> None:
    """``x.real = value``: every element, from as many or from one."""
    set_item(x, Ellipsis, value)


def refuse_imag(x: A, value: Any) -> None:
    """``x.imag = value``: ``TypeError``, as NumPy's of real arrays."""
    raise TypeError(f"array does not have imaginary part to set: its elements are {x.dtype}")


def imag(x: A) -> A:
    """Return the imaginary part: zeros, as all elements are real.

    Parameters
    ----------
    x : DistArray
        Input array.

    Returns
    -------
    DistArray
        Lazy zeros of the shape and dtype of ``x``.

    Examples
    --------
    >>> ps.array([1.0, 2.0]).imag
    DistArray([0., 0.], dtype=float64, shape=(2,))
    """
    return zeros_like(as_array("imag", x))


def angle(z: A, deg: bool = False) -> A:
    """Return the angle of each real element: 0 for x >= 0, pi (180 degrees) for x < 0."""
    result = elementwise(as_array("angle", z), "atan2", 0, z)
    return result * (180 / math.pi) if deg else result


def isreal(x: A) -> A:
    """True everywhere."""
    return full_like(as_array("isreal", x), True, np.bool_)


def iscomplex(x: A) -> A:
    """False everywhere."""
    return full_like(as_array("iscomplex", x), False, np.bool_)


def isposinf(x: A, out: Any = None) -> A:
    """Test whether each element is plus infinity."""
    return store(out, _equals(as_array("isposinf", x), np.inf), "isposinf")


def isneginf(x: A, out: Any = None) -> A:
    """Test whether each element is minus infinity."""
    return store(out, _equals(as_array("isneginf", x), -np.inf), "isneginf")


def fix(x: A, out: Any = None) -> A:
    """Rounded towards zero."""
    return store(out, elementwise(as_array("fix", x), "trunc", x), "fix")


def sinc(x: A) -> A:
    """``sin(pi x) / (pi x)``, 1 at zero."""
    turned = np.pi * as_array("sinc", x)
    least = float(np.finfo(turned.dtype).eps)
    safe = elementwise(
        x, "where", elementwise(x, "not_equal", turned, 0), turned, turned.dtype.type(least)
    )
    return elementwise(x, "sin", safe) / safe


def i0(x: A) -> A:
    """Modified Bessel function of order 0: SciPy's, some units in the last place off NumPy's."""
    kind = as_array("i0", x).dtype
    kind = kind if kind.kind == "f" else np.dtype(np.float64)
    return elementwise(x, "i0", x.astype(kind)).astype(kind)


def _equals(x: A, value: float) -> A:
    return elementwise(x, "equal", x, value)


def isclose(
    a: Arithmetic | npt.ArrayLike,
    b: Arithmetic | npt.ArrayLike,
    rtol: Arithmetic | npt.ArrayLike = 1e-5,
    atol: Arithmetic | npt.ArrayLike = 1e-8,
    equal_nan: bool = False,
) -> Any:
    """Test which elements of two arrays are close.

    Elements are close if ``|a - b| <= atol + rtol * |b|``, or if they are equal.

    Parameters
    ----------
    a, b : DistArray or array_like
        Arrays to compare; at least one is a DistArray. Arrays and lists on the client are copied to
        the servers.
    rtol : float, default 1e-5
        Relative tolerance.
    atol : float, default 1e-8
        Absolute tolerance.
    equal_nan : bool, default False
        Whether two NaN are close.

    Returns
    -------
    DistArray
        Lazy boolean array of the broadcast shape.

    See Also
    --------
    distvec.allclose : Test whether all elements are close.
    numpy.isclose : The same function of arrays on the client.

    Examples
    --------
    >>> dv.isclose(ps.array([1.0, 2.0]), [1.0 + 1e-9, 2.1])
    DistArray([ True, False], dtype=bool, shape=(2,))
    """
    a, b, rtol, atol = put_operands("isclose", a, b, rtol, atol)
    expected = _as_float(b)
    size = apply("abs", expected) if isinstance(b, Arithmetic) else abs(expected)
    distance = apply("abs", apply("subtract", a, expected))
    near = apply("less_equal", distance, atol + rtol * size)
    result = near & _apply_test("isfinite", expected) | apply("equal", a, expected)
    if equal_nan:
        result = result | apply(
            "logical_and", _apply_test("isnan", a), _apply_test("isnan", expected)
        )
    return result


def put_operands(name: str, *operands: Any) -> list[Any]:
    """``operands``; of those that the client has, all but numbers and rows are put on servers."""
    like = array_among(name, operands)

    def put(given: npt.NDArray[Any]) -> Any:
        return given if given.ndim < like.ndim else like.session._put(given)

    return [
        put(np.asarray(one)) if isinstance(one, np.ndarray | list | tuple) else one
        for one in operands
    ]


def _as_float(value: Any) -> Any:
    """``value`` in a dtype of floats: the magnitude of the least integer is none of its dtype."""
    if isinstance(value, Arithmetic):
        return value.astype(np.result_type(value.dtype, 1.0))
    if isinstance(value, np.generic | np.ndarray):
        return value.astype(np.result_type(value, 1.0))
    return float(value)


def _apply_test(name: str, value: Any) -> Any:
    """Op ``name`` of an array, or of a number that stands beside one."""
    return apply(name, value) if isinstance(value, Arithmetic) else getattr(np, name)(value)


def allclose(
    a: Arithmetic | npt.ArrayLike,
    b: Arithmetic | npt.ArrayLike,
    rtol: Arithmetic | npt.ArrayLike = 1e-5,
    atol: Arithmetic | npt.ArrayLike = 1e-8,
    equal_nan: bool = False,
) -> bool:
    """Test whether all elements of two arrays are close.

    Parameters
    ----------
    a, b : DistArray or array_like
        Arrays to compare, as in ``isclose``.
    rtol : float, default 1e-5
        Relative tolerance.
    atol : float, default 1e-8
        Absolute tolerance.
    equal_nan : bool, default False
        Whether two NaN are close.

    Returns
    -------
    bool
        True if ``isclose`` is true for all elements.

    See Also
    --------
    distvec.isclose : Test element by element.

    Notes
    -----
    Evaluates the comparison; this counts as an implicit evaluation.

    Examples
    --------
    >>> dv.allclose(ps.array([1.0, 2.0]), [1.0 + 1e-9, 2.0])
    True
    """
    return bool(reductions.all(isclose(a, b, rtol, atol, equal_nan)))


def array_equal(
    a1: Arithmetic | npt.ArrayLike, a2: Arithmetic | npt.ArrayLike, equal_nan: bool = False
) -> bool:
    """Test whether two arrays have the same shape and equal elements.

    Parameters
    ----------
    a1, a2 : DistArray or array_like
        Arrays to compare; at least one is a DistArray.
    equal_nan : bool, default False
        Whether two NaN are equal.

    Returns
    -------
    bool
        True if shapes and elements are equal.

    Notes
    -----
    Evaluates the comparison; this counts as an implicit evaluation.

    Examples
    --------
    >>> dv.array_equal(ps.array([1.0, 2.0]), [1.0, 2.0])
    True
    """
    if np.shape(a1) != np.shape(a2):
        return False
    a1, a2 = put_operands("array_equal", a1, a2)
    same = apply("equal", a1, a2)
    if equal_nan:
        same = same | apply("not_equal", a1, a1) & apply("not_equal", a2, a2)
    return bool(reductions.all(same))


def array_equiv(a1: Arithmetic | npt.ArrayLike, a2: Arithmetic | npt.ArrayLike) -> bool:
    """Test whether two arrays are equal after broadcasting.

    Parameters
    ----------
    a1, a2 : DistArray or array_like
        Arrays to compare; at least one is a DistArray.

    Returns
    -------
    bool
        True if the shapes can be broadcast and the elements are then equal.

    Notes
    -----
    Evaluates the comparison; this counts as an implicit evaluation.

    Examples
    --------
    >>> dv.array_equiv(ps.array([[2.0], [2.0]]), ps.array([2.0]))
    True
    """
    try:
        np.broadcast_shapes(np.shape(a1), np.shape(a2))
    except ValueError:
        return False
    return bool(reductions.all(apply("equal", *put_operands("array_equiv", a1, a2))))
