"""``__array_function__``: NumPy's functions, as ``np.linalg.norm(x)``, on arrays of the servers.

Each module that has some says so itself, in ``numpy_functions()``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from distvec.array import (
    elementwise,
    error_hints,
    polynomials,
    products,
    reductions,
    sequences,
    statistics,
    take_put,
    transposed,
)
from distvec.array import repr as texts
from distvec.array.collectives import core, histogram, quantile, scan, search, sets, sort
from distvec.array.core import shapes, type_queries
from distvec.array.core.handle import Handle
from distvec.array.core.keywords import NOT_GIVEN, by_position, check_bound, stored, stored_in
from distvec.array.linalg import einsum, host, tall
from distvec.array.manipulation import (
    diagonals,
    differences,
    grids,
    insert_delete,
    join,
    packing,
    pad,
    rearrange,
    repeat,
)
from ps_backend.program import reducers

_MODULES = (
    type_queries,
    elementwise,
    texts,
    shapes,
    sequences,
    transposed,
    take_put,
    packing,
    statistics,
    scan,
    sort,
    quantile,
    sets,
    products,
    polynomials,
    host,
    tall,
    core,
    histogram,
    search,
    diagonals,
    differences,
    grids,
    insert_delete,
    join,
    pad,
    rearrange,
    repeat,
    einsum,
)
"""Those that have some, a line each."""


_RUNNING = (np.cumulative_sum, np.cumulative_prod)
"""Those that write into ``out=`` of just their shape, whatever its dtype loses."""


def function(
    like: Handle, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What ``like.__array_function__`` returns. ``TypeError`` for what has no counterpart."""
    ours = _functions().get(func) or _of_row(func) or _making(func, like)
    if ours is None:
        raise TypeError(error_hints.missing_function(func))
    out = kwargs.pop("out", None)
    given = {key: value for key, value in kwargs.items() if value is not NOT_GIVEN}
    if given:
        args = by_position(func, ours, args, given)
    if out is not None and "out" in inspect.signature(ours).parameters:
        given["out"], out = out, None
    check_bound(func.__name__, ours, args, given)
    result = ours(*args, **given)
    if func in _RUNNING:
        return stored(out, result, func.__name__)
    return result if out is None else stored_in(out, result, func.__name__)


def _of_row(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """The reduction of the table that NumPy calls by its name as well, if ``func`` is one."""
    name = func.__name__
    is_row = name in reducers.PUBLIC and getattr(np, name, None) is func
    return reductions.of_table(name) if is_row else None


def _making(func: Callable[..., Any], like: Handle) -> Callable[..., Any] | None:
    """What makes arrays beside ``like``, if NumPy's ``func`` makes some without taking any."""
    ours = sequences.making_functions().get(getattr(func, "_implementation", func))
    return None if ours is None else lambda *args, **given: ours(like, *args, **given)


@cache
def _functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours."""
    return {name: ours for one in _MODULES for name, ours in one.numpy_functions().items()}
