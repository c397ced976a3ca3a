"""Elementwise functions: one per row of the op table, and those composed of them; comparisons.

All are lazy and cost no message, but for comparisons that give a Python ``bool``: these evaluate,
which counts as implicit. What a complex number would have more of is known here: nothing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from distvec.array import docstrings, reductions
from distvec.array.core.handle import stored_table
from distvec.array.core.keywords import store
from distvec.array.core.operators import Arithmetic, as_array, elementwise
from distvec.array.core.shapes import full
from distvec.array.indexing.setitem import set_item
from distvec.array.transposed import supports_column_split
from ps_backend.program import ops

A = TypeVar("A", bound=Arithmetic)


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

    def binary(x1: A | npt.ArrayLike, x2: A | npt.ArrayLike, /) -> A:
        return cast(A, apply(name, x1, x2))

    row = ops.TABLE[name]
    function: Callable[..., Any] = unary if row.arity == 1 else binary
    function.__name__ = function.__qualname__ = name
    function.__doc__ = docstrings.of_operation(row)
    return function


def op_function(name: str) -> Callable[..., Any]:
    """The function that users call by the name of an op: the row is all that one takes."""
    return round if name == "round" else _function(name)


def round(x: A, decimals: int = 0, out: Any = None) -> A:
    """Rounded half to even at ``decimals`` decimal places; integers stay as they are.

    Source: ``numpy.round``, which scales, rounds and scales back.
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
            f"round: booleans have no {decimals} decimals; convert them: x.astype('float64')"
        )
    if x.dtype.kind != "f":
        tens: Any = elementwise(x, "round", elementwise(x, "divide", x, scale)) * scale
        return cast(A, tens.astype(x.dtype))
    enlarge, reduce = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return elementwise(x, reduce, apply("round", elementwise(x, enlarge, x, scale)), scale)


def where(condition: Any, x: Any, y: Any) -> Any:
    """``x`` where ``condition`` is true, ``y`` elsewhere."""
    return apply("where", condition, x, y)


def clip(x: A, min: Any = None, max: Any = None, out: Any = None) -> A:
    """Values of ``x`` limited to ``[min, max]``; a limit of None does not limit."""
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
def full_like(x: A, fill_value: Any, dtype: Any = None) -> A:
    """``fill_value`` in the shape (and dtype, unless given) of ``x``."""
    array_among("full_like", (x,))
    kind = x.dtype if dtype is None else dtype
    return full(x, x.shape, fill_value, kind)


def zeros_like(x: A, dtype: Any = None) -> A:
    """Zeros in the shape of ``x``."""
    return full_like(x, 0, dtype)


def ones_like(x: A, dtype: Any = None) -> A:
    """Ones in the shape of ``x``."""
    return full_like(x, 1, dtype)


def empty_like(x: A, dtype: Any = None) -> A:
    """Zeros in the shape of ``x``: lazily made, they cost no more than memory without values."""
    return full_like(x, 0, dtype)


def astype(x: A, dtype: Any, *, copy: bool = True) -> A:
    """``x`` in another dtype."""
    array_among("astype", (x,))
    return x.astype(dtype, copy=copy)


def evaluate(*arrays: Arithmetic) -> None:
    """Compute several arrays at once: what they share is computed once, in common messages."""
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
    x: A, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> A:
    """``x`` with numbers for NaN and infinities: the greatest and the least, unless others are
    given. ``copy=False`` changes ``x``.
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
            f"nan_to_num: could not broadcast numbers of {result.shape} into {x.shape}; "
            f"give nan=, posinf= and neginf= that fit into it"
        )
    return result if copy else x.assign(result, "nan_to_num")


def real(x: A) -> A:
    """The real part: the array itself."""
    return as_array("real", x)


def set_real(x: A, value: Any) -> None:
    """``x.real = value``: every element, from as many or from one."""
    set_item(x, Ellipsis, value)


def refuse_imag(x: A, value: Any) -> None:
    """``x.imag = value``: ``TypeError``, as NumPy's of real arrays."""
    raise TypeError(f"array does not have imaginary part to set: its elements are {x.dtype}")


def imag(x: A) -> A:
    """The imaginary part: zeros."""
    return zeros_like(as_array("imag", x))


def angle(z: A, deg: bool = False) -> A:
    """0 of what is positive, pi (180 degrees) of what is negative."""
    result = elementwise(as_array("angle", z), "atan2", 0, z)
    return result * (180 / math.pi) if deg else result


def isreal(x: A) -> A:
    """True everywhere."""
    return full_like(as_array("isreal", x), True, np.bool_)


def iscomplex(x: A) -> A:
    """False everywhere."""
    return full_like(as_array("iscomplex", x), False, np.bool_)


def isposinf(x: A, out: Any = None) -> A:
    """Where ``x`` is infinity."""
    return store(out, _equals(as_array("isposinf", x), np.inf), "isposinf")


def isneginf(x: A, out: Any = None) -> A:
    """Where ``x`` is minus infinity."""
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


def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """Elementwise ``|a - b| <= atol + rtol * |b|``; infinities are close to themselves alone.

    Source: ``numpy.isclose``. Lazy. Arrays and lists of the client are put on the servers.
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
        return given if given.ndim < like.ndim else like.session.array(given)

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


def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close, in the sense of ``isclose``."""
    return bool(reductions.all(isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether shapes and elements are equal; with ``equal_nan`` NaN is equal to NaN."""
    if np.shape(a1) != np.shape(a2):
        return False
    a1, a2 = put_operands("array_equal", a1, a2)
    same = apply("equal", a1, a2)
    if equal_nan:
        same = same | apply("not_equal", a1, a1) & apply("not_equal", a2, a2)
    return bool(reductions.all(same))


def array_equiv(a1: Any, a2: Any) -> bool:
    """Whether elements are equal once the shapes are broadcast; False where these cannot be."""
    try:
        np.broadcast_shapes(np.shape(a1), np.shape(a2))
    except ValueError:
        return False
    return bool(reductions.all(apply("equal", *put_operands("array_equiv", a1, a2))))
