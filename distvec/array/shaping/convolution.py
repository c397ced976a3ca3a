"""Sums of products with a short kernel that moves along a vector: ``convolve``, ``correlate``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.functions import apply
from distvec.array.items import get_item
from distvec.array.operators import Arithmetic
from distvec.array.shaping.joining import as_pieces, concatenate
from distvec.array.shaping.placing import choose, index_of, shifted
from distvec.array.shaping.turning import part

MOST_TERMS = 1 << 10
"""Of so many elements is the longest kernel: each reads the vector at another place."""
_MOST_CONDITIONS = 8
"""For so many terms zeros beyond the ends are conditions, for more the vector is stored so."""

_MODES = {0: "valid", 1: "same", 2: "full"}


def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    """The products of a vector with a kernel that is turned round: ``numpy.convolve``. Lazy.

    One sweep, with a term for each element of the kernel, of ``MOST_TERMS`` at most. A kernel on
    the servers comes to the client first.
    """
    long, short, _ = _by_length(*_vectors("convolve", a, v))
    return _convolved(long, short, _mode(mode))


def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    """The products of a vector with a kernel as it is: ``numpy.correlate``. Lazy, as above."""
    if np.ndim(a) == 0 or np.ndim(v) == 0:
        raise ValueError("correlate: object of too small depth for desired array; take vectors")
    long, short, is_exchanged = _by_length(*_vectors("correlate", a, v))
    found = _convolved(long, short[::-1], _mode(mode))
    return part(found, 0, None, None, -1) if is_exchanged else found


def _vectors(name: str, a: Any, v: Any) -> tuple[Any, Any]:
    first, second = (one if one.ndim else one.reshape(1) for one in as_pieces(name, (a, v)))
    for one, of in ((first, "a"), (second, "v")):
        if one.ndim != 1:
            raise ValueError(f"{name}: object too deep for desired array; take vectors")
        if not len(one):
            raise ValueError(f"{of} cannot be empty")
    return first, second


def _mode(mode: Any) -> str:
    name = _MODES.get(mode, mode) if not isinstance(mode, str) else mode
    if name not in _MODES.values():
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    return str(name)


def _by_length(a: Any, v: Any) -> tuple[Any, Any, bool]:
    """The longer one, the shorter one, and whether that was the first."""
    return (v, a, True) if len(v) > len(a) else (a, v, False)


def _convolved(x: Any, kernel: Any, mode: str) -> Any:
    """``sum(kernel[j] * x[i - j])``: of all places where something is, of as many as ``x`` has
    elements, or of those where all of the kernel is."""
    count, length = len(kernel), len(x)
    if count > MOST_TERMS:
        raise NotImplementedError(
            f"the kernel has {count} elements, at most {MOST_TERMS}; take it apart: the sum of "
            f"what its parts give, each at its place"
        )
    like = x if isinstance(x, Arithmetic) else kernel
    dtype = np.result_type(x.dtype, kernel.dtype)
    values = (x if isinstance(x, Arithmetic) else like.session.array(x)).astype(dtype)
    weights = _weights(kernel, dtype)
    start, size = (0, length + count - 1) if mode == "full" else ((count - 1) // 2, length)
    if mode == "valid" or count == 1:
        terms = _inside(values, count, 0, length - count + 1)
    elif _has_zeros_beyond(values, kernel):
        terms = [shifted(values, size, place - start) for place in range(count)]
    elif count <= _MOST_CONDITIONS and not values.node.on_client:
        terms = [_with_zeros(values, size, place - start) for place in range(count)]
    else:
        zeros = np.zeros(count - 1, dtype)
        terms = _inside(concatenate([zeros, values, zeros]), count, start, size)
    total = None
    for weight, term in zip(weights, terms, strict=True):
        product = apply("multiply", weight, term)
        total = product if total is None else apply("add", total, product)
    return total


def _inside(x: Any, count: int, start: int, size: int) -> list[Any]:
    """``x`` as each element of the kernel meets it, where all of them meet some."""
    ends = range(start + count - 1, start - 1, -1)
    return [part(x, 0, first, first + size) for first in ends]


def _has_zeros_beyond(x: Any, kernel: Any) -> bool:
    """Whether a stored vector, read beyond its ends, makes terms of zero by itself."""
    known = isinstance(kernel, np.ndarray) and bool(np.isfinite(kernel).all())
    return known and bool(x.node.known) and not x.node.on_client


def _with_zeros(x: Any, length: int, by: int) -> Any:
    """Of ``length`` elements, the ``by + i``-th is the ``i``-th of ``x``, or zero."""
    index = index_of(x, length)
    moved = shifted(x, length, by)
    if by + len(x) < length:
        moved = choose(x, index < by + len(x), moved, x.dtype.type(0))
    if by > 0:
        moved = choose(x, index >= by, moved, x.dtype.type(0))
    return moved


def _weights(kernel: Any, dtype: np.dtype[Any]) -> list[Any]:
    """The elements of a kernel as numbers."""
    if not isinstance(kernel, Arithmetic):
        found: npt.NDArray[Any] = kernel.astype(dtype)
        return list(found)
    wide = kernel.astype(dtype)
    return [get_item(wide, k) for k in range(len(wide))]


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.convolve: convolve, np.correlate: correlate}
