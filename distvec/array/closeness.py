"""Whether arrays are the same, or close: ``isclose`` is lazy, the others give a Python ``bool``.

These evaluate, which counts as implicit: one message per server, and nothing is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array import reductions
from distvec.array.functions import apply, array_among
from distvec.array.operators import Arithmetic


def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """Elementwise ``|a - b| <= atol + rtol * |b|``; infinities are close to themselves alone.

    Source: ``numpy.isclose``. Lazy. Arrays and lists of the client are put on the servers.
    """
    a, b, rtol, atol = put_beside("isclose", a, b, rtol, atol)
    expected = _as_float(b)
    size = apply("abs", expected) if isinstance(b, Arithmetic) else abs(expected)
    distance = apply("abs", apply("subtract", a, expected))
    near = apply("less_equal", distance, atol + rtol * size)
    result = near & _tested("isfinite", expected) | apply("equal", a, expected)
    if equal_nan:
        result = result | apply("logical_and", _tested("isnan", a), _tested("isnan", expected))
    return result


def put_beside(name: str, *operands: Any) -> list[Any]:
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


def _tested(name: str, value: Any) -> Any:
    """Op ``name`` of an array, or of a number that stands beside one."""
    return apply(name, value) if isinstance(value, Arithmetic) else getattr(np, name)(value)


def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close, in the sense of ``isclose``."""
    return bool(reductions.all(isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether shapes and elements are equal; with ``equal_nan`` NaN is equal to NaN."""
    if np.shape(a1) != np.shape(a2):
        return False
    a1, a2 = put_beside("array_equal", a1, a2)
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
    return bool(reductions.all(apply("equal", *put_beside("array_equiv", a1, a2))))
