"""Evenly spaced numbers whose ends, or one of them, are rank-0 arrays; lazy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.creation import length_of
from distvec.array.functions import array_among
from distvec.array.operators import elementwise
from distvec.array.shaping.placing import index_of
from distvec.graph.build import check_dtype

_FLOAT = np.dtype(np.float64)


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    """``num`` numbers from ``start`` to ``stop``: ``numpy.linspace``; with ``retstep`` the step."""
    values, step, kind = _spaced("linspace", start, stop, num, endpoint, dtype)
    found = (elementwise(values, "floor", values) if kind.kind in "iu" else values).astype(kind)
    return (found, step) if retstep else found


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """Powers of ``base`` with evenly spaced exponents: ``numpy.logspace``."""
    exponents, _, kind = _spaced("logspace", start, stop, num, endpoint, dtype)
    return elementwise(exponents, "pow", base, exponents).astype(kind)


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """Numbers each a multiple of the one before: ``numpy.geomspace``; NaN where an end is 0."""
    like = array_among("geomspace", (start, stop))
    kind = _kind(start, stop, num) if dtype is None else check_dtype(dtype)
    sign = np.sign(1.0 * start)
    first, last = start / sign, stop / sign
    length = length_of(num, "num")
    powers, index = logspace(np.log10(first), np.log10(last), num, endpoint), index_of(like, length)
    result = elementwise(like, "where", index == 0, first, powers)
    if endpoint and length > 1:
        result = elementwise(like, "where", index == length - 1, last, result)
    return (result * sign).astype(kind)


def _spaced(
    name: str, start: Any, stop: Any, num: int, endpoint: bool, dtype: Any
) -> tuple[Any, Any, np.dtype[Any]]:
    """The numbers as floats, the step between them, and the dtype of the result."""
    like = array_among(name, (start, stop))
    if any(np.ndim(end) for end in (start, stop)):
        raise NotImplementedError(
            f"{name}: between arrays of numbers is not available on the servers; write "
            f"start + (stop - start) * numpy.{name}(0, 1, num).reshape(-1, 1)"
        )
    length = length_of(num, "num")
    natural = _kind(start, stop, num)
    gaps = length - 1 if endpoint else length
    low, high = (like.session.namespace.asarray(end).astype(natural) for end in (start, stop))
    index, width = index_of(like, length).astype(natural), high - low
    step = width / max(gaps, 1) if gaps > 0 else elementwise(like, "multiply", width, np.nan)
    values = elementwise(like, "where", step == 0, index / max(gaps, 1) * width, index * step)
    values = (values if gaps > 0 else index * width) + low
    if endpoint and length > 1:
        values = elementwise(like, "where", index == float(length - 1), high, values)
    return values, step, natural if dtype is None else check_dtype(dtype)


def _kind(start: Any, stop: Any, num: int) -> np.dtype[Any]:
    kinds = (getattr(end, "dtype", end) for end in (start, stop))
    return np.result_type(*kinds, float(num))


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.linspace: linspace, np.logspace: logspace, np.geomspace: geomspace}
