"""The functions of ``distvec``: one per row of the op table, and those composed of them.

All are lazy: they cost no message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from distvec.array.by_columns import ByColumns
from distvec.array.creation import filled
from distvec.array.operators import Arithmetic, elementwise
from distvec.array.reduction_keywords import target_of
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

    def unary(x: Any, /) -> Any:
        return apply(name, x)

    def binary(x1: Any, x2: Any, /) -> Any:
        return apply(name, x1, x2)

    function: Callable[..., Any] = unary if ops.TABLE[name].arity == 1 else binary
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise ``{name}``, with the meaning of ``numpy``'s; lazy."
    return function


def of_op(name: str) -> Callable[..., Any]:
    """The function that users call by the name of an op: the row is all that one takes."""
    return round if name == "round" else _function(name)


def round(x: A, decimals: int = 0, out: Any = None) -> A:
    """Rounded half to even at ``decimals`` decimal places; integers stay as they are.

    Source: ``numpy.round``, which scales, rounds and scales back.
    """
    array_among("round", (x,))
    result = _rounded(x, operator.index(decimals))
    return result if out is None else target_of(out, "round").assign(result, "round")


def _rounded(x: A, decimals: int) -> A:
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
    return result if out is None else target_of(out, "clip").assign(result, "clip")


def full_like(x: A, fill_value: Any, dtype: Any = None) -> A:
    """``fill_value`` in the shape (and dtype, unless given) of ``x``."""
    array_among("full_like", (x,))
    kind = x.dtype if dtype is None else dtype
    return x.like(filled(x.session.graph, x.shape, fill_value, kind))


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


def evaluate(*arrays: Arithmetic | ByColumns) -> None:
    """Compute several arrays at once: what they share is computed once, in common messages."""
    by_session: dict[int, list[Arithmetic]] = {}
    for given in arrays:
        array = given.table if isinstance(given, ByColumns) else given
        if isinstance(array, Arithmetic):
            by_session.setdefault(id(array.session), []).append(array)
        elif not isinstance(array, np.generic | np.ndarray | bool | int | float):
            hint = "; write evaluate(*arrays)" if isinstance(array, list | tuple) else ""
            raise TypeError(f"evaluate: needs arrays, got {type(array).__name__}{hint}")
    for group in by_session.values():
        group[0].session.evaluate(*group)


def _clip(
    x: Any, a_min: Any = np._NoValue, a_max: Any = np._NoValue, *, min: Any = None, max: Any = None
) -> Any:
    if (a_min is np._NoValue) != (a_max is np._NoValue):
        missing = "a_min" if a_min is np._NoValue else "a_max"
        raise TypeError(f"clip: {missing} is missing; write {missing}=None, or min= and max=")
    low = min if a_min is None or a_min is np._NoValue else a_min
    high = max if a_max is None or a_max is np._NoValue else a_max
    array_among("clip", (x,))
    return clip(x, low, high)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.clip: _clip,
        np.round: round,
        np.around: round,
        np.astype: lambda x, dtype, /, **_: x.astype(dtype),
    }
