"""``softmax`` and its kin, along the rows of a table or along any axis."""

from __future__ import annotations

from typing import Any, TypeVar

from distvec.array.creation import reshape
from distvec.array.operators import Arithmetic, elementwise
from distvec.array.reductions import axis_of, max, sum

A = TypeVar("A", bound=Arithmetic)


def softmax(x: A, axis: Any = None) -> A:
    """Exponentials divided by their sum along ``axis``; lazy. One sweep along axis 1.

    The largest element is subtracted first, so nothing overflows. Source: SciPy's ``softmax``.
    """
    small = elementwise(x, "exp", elementwise(x, "subtract", x, _peak(x, axis)))
    return elementwise(x, "divide", small, sum(small, axis, keepdims=True))


def log_softmax(x: A, axis: Any = None) -> A:
    """The logarithm of ``softmax``, without its loss of digits; lazy."""
    shifted = elementwise(x, "subtract", x, _peak(x, axis))
    total = sum(elementwise(x, "exp", shifted), axis, keepdims=True)
    return elementwise(x, "subtract", shifted, elementwise(x, "log", total))


def logsumexp(x: A, axis: Any = None, *, keepdims: bool = False) -> A:
    """``log(sum(exp(x)))`` along ``axis`` without overflow; lazy."""
    peak = _peak(x, axis)
    total = sum(elementwise(x, "exp", elementwise(x, "subtract", x, peak)), axis, keepdims=True)
    result = elementwise(x, "add", elementwise(x, "log", total), peak)
    over = axis_of(x, "logsumexp", axis)
    if keepdims or isinstance(over, tuple) or x.ndim == 0:
        return result
    return reshape(result, () if over is None else result.shape[:over] + result.shape[over + 1 :])


def _peak(x: A, axis: Any) -> A:
    """The largest elements along ``axis``, 0 where that is not finite.

    The results are the same whatever is subtracted, so derivatives take it as constant.
    """
    peak = max(x, axis, keepdims=True)
    found = elementwise(x, "where", elementwise(x, "isfinite", peak), peak, 0.0)
    if not x.selects:
        x.session.graph.still.add(found.node)
    return found
