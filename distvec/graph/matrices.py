"""Linear algebra of what the client keeps: NumPy's functions, as operations of nodes.

What shapes and dtypes come out is asked of NumPy, by a stack of no matrices: its errors of shapes
and dtypes are found so, at once and at no cost. Others, as of a singular matrix, show where the
value is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

Keywords = tuple[tuple[str, Any], ...]
"""Further arguments of a function, by name."""

_OF_STACKS: tuple[Callable[..., Any], ...] = (
    *(np.linalg.solve, np.linalg.inv, np.linalg.pinv, np.linalg.cholesky, np.linalg.eigh),
    *(np.linalg.eigvalsh, np.linalg.svd, np.linalg.svdvals, np.linalg.qr, np.linalg.det),
    *(np.linalg.slogdet, np.linalg.matrix_rank, np.linalg.matrix_power, np.linalg.cond),
)
_OF_WHOLE: tuple[Callable[..., Any], ...] = (np.linalg.norm,)


def name_of(function: Callable[..., Any]) -> str:
    """What ``function`` is called in ``FUNCTIONS``: NumPy has some twice."""
    return f"{function.__module__}.{function.__name__}"


FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {name_of(function): function for function in (*_OF_STACKS, *_OF_WHOLE)}
)
"""Those that take small arrays, and have real results of a shape that follows from theirs."""


def results_of(
    function: Callable[..., Any], arrays: Sequence[tuple[tuple[int, ...], Any]], keywords: Keywords
) -> Any:
    """What ``function`` would return of arrays of these shapes and dtypes: arrays without values.

    Several in NumPy's own tuple. Errors of shapes and dtypes as NumPy's.
    """
    if function not in _OF_STACKS or any(len(shape) < 2 for shape, _ in arrays[:1]):
        given = [np.broadcast_to(np.zeros((), dtype), shape) for shape, dtype in arrays]
        with np.errstate(all="ignore"):
            return function(*given, **dict(keywords))
    is_vector = len(arrays) == 2 and len(arrays[1][0]) == 1  # of ``solve``: no stack of rows
    last = (1,) if is_vector else ()
    shapes = [(0, *shape, *(last if k else ())) for k, (shape, _) in enumerate(arrays)]
    given = [np.empty(shape, dtype) for shape, (_, dtype) in zip(shapes, arrays, strict=True)]
    found = function(*given, **dict(keywords))
    if isinstance(found, tuple):
        return tuple_like(found, [_first(part) for part in found])
    return _first(found[..., 0] if is_vector else found)


def _first(stack: Any) -> Any:
    """As one of the members of ``stack``."""
    return np.broadcast_to(np.zeros((), stack.dtype), stack.shape[1:])


def tuple_like(given: Any, parts: Sequence[Any]) -> Any:
    """``parts`` in a tuple of the class of ``given``."""
    return type(given)(*parts) if hasattr(given, "_fields") else tuple(parts)


def computed(*given: Any) -> Any:
    """The function that the last but one argument names, of those before; the last are keywords.

    Of several results the elements of all, one after the other.
    """
    *values, name, keywords = given
    found = FUNCTIONS[name](*values, **dict(keywords))
    if isinstance(found, tuple):
        return np.concatenate([np.ravel(part) for part in found])
    return found


def part(packed: Any, start: int, *shape: int) -> Any:
    """One of the results: the elements from ``start`` on, in ``shape``."""
    return packed[start : start + prod(shape)].reshape(shape)
