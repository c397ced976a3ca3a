"""The functions of ``distvec``: one per row of the op table, and those composed of them.

All are lazy: they cost no message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.dist_array import DistArray
from distvec.graph import build
from distvec.session import Session
from ps_backend.program import ops


def _session_of(name: str, operands: tuple[Any, ...]) -> Session:
    for operand in operands:
        if isinstance(operand, DistArray):
            return operand.session
    kinds = ", ".join(type(operand).__name__ for operand in operands)
    raise TypeError(
        f"{name}: needs at least one DistArray, got ({kinds}); use numpy.{name} for those"
    )


def _function(op: ops.Op) -> Callable[..., DistArray]:
    """The function of one row, with the parameters that the array API gives it."""
    name = op.name

    def unary(x: Any, /) -> DistArray:
        return build.elementwise(_session_of(name, (x,)), name, x)

    def binary(x1: Any, x2: Any, /) -> DistArray:
        return build.elementwise(_session_of(name, (x1, x2)), name, x1, x2)

    function: Callable[..., DistArray] = unary if op.arity == 1 else binary
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise ``{name}``, with the meaning of ``numpy``'s; lazy."
    return function


TABLE: dict[str, Callable[..., DistArray]] = {
    name: _function(op) for name, op in ops.PUBLIC.items()
}
"""A function for every row of the op table that users call by name."""

cos, exp, floor, log = TABLE["cos"], TABLE["exp"], TABLE["floor"], TABLE["log"]
maximum, minimum, sqrt = TABLE["maximum"], TABLE["minimum"], TABLE["sqrt"]
_rint = TABLE["round"]


def round(x: DistArray, decimals: int = 0) -> DistArray:
    """Rounded half to even at ``decimals`` decimal places; integers stay as they are.

    Source: ``numpy.round``, which scales, rounds and scales back.
    """
    _session_of("round", (x,))
    decimals = operator.index(decimals)
    if x.dtype.kind == "i" and decimals >= 0:
        return x.copy()
    if decimals == 0:
        return _rint(x)
    if x.dtype.kind != "f":
        raise NotImplementedError(
            f"round: {x.dtype} to {decimals} decimals; cast first: x.astype('float64').round(...)"
        )
    scale = 10.0 ** abs(decimals)
    return _rint(x * scale) / scale if decimals > 0 else _rint(x / scale) * scale


TABLE["round"] = round


def where(condition: Any, x: Any, y: Any) -> DistArray:
    """``x`` where ``condition`` is true, ``y`` elsewhere."""
    return build.elementwise(_session_of("where", (condition, x, y)), "where", condition, x, y)


def clip(x: DistArray, min: Any = None, max: Any = None) -> DistArray:
    """Values of ``x`` limited to ``[min, max]``; a limit of None does not limit."""
    _session_of("clip", (x,))
    if x.dtype.kind == "i":  # as NumPy, whatever cannot be exceeded is no limit
        limits = np.iinfo(x.dtype)
        min = None if type(min) is int and min <= limits.min else min
        max = None if type(max) is int and max >= limits.max else max
    result = x
    if min is not None:
        result = maximum(result, min)
    if max is not None:
        result = minimum(result, max)
    return result if result is not x else x.copy()


def full_like(x: DistArray, fill_value: Any, dtype: Any = None) -> DistArray:
    """``fill_value`` in the shape (and dtype, unless given) of ``x``."""
    return _session_of("full_like", (x,)).full(
        x.shape, fill_value, x.dtype if dtype is None else dtype
    )


def zeros_like(x: DistArray, dtype: Any = None) -> DistArray:
    """Zeros in the shape of ``x``."""
    return full_like(x, 0, dtype)


def ones_like(x: DistArray, dtype: Any = None) -> DistArray:
    """Ones in the shape of ``x``."""
    return full_like(x, 1, dtype)


def empty_like(x: DistArray, dtype: Any = None) -> DistArray:
    """Zeros in the shape of ``x``: lazily made, they cost no more than memory without values."""
    return full_like(x, 0, dtype)


def astype(x: DistArray, dtype: Any, *, copy: bool = True) -> DistArray:
    """``x`` in another dtype."""
    _session_of("astype", (x,))
    return x.astype(dtype, copy)


def evaluate(*arrays: DistArray) -> None:
    """Compute several arrays at once: what they share is computed once, in common messages."""
    by_session: dict[int, list[DistArray]] = {}
    for array in arrays:
        if isinstance(array, DistArray):
            by_session.setdefault(id(array.session), []).append(array)
        elif not isinstance(array, np.generic | np.ndarray | bool | int | float):
            hint = "; write evaluate(*arrays)" if isinstance(array, list | tuple) else ""
            raise TypeError(f"evaluate: needs arrays, got {type(array).__name__}{hint}")
    for group in by_session.values():
        group[0].session.evaluate(*group)
