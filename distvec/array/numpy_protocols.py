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
    along_axis,
    bits,
    chains,
    choices,
    choosing,
    creation,
    einsum,
    fitting,
    functions,
    linear_algebra,
    made_like,
    multi_index,
    numpy_statistics,
    polynomials,
    products,
    properties,
    reductions,
    refusals,
    sequences,
    texts,
    transposed,
)
from distvec.array.handle import Handle
from distvec.array.moving import (
    counting,
    histograms,
    interpolation,
    joint_histograms,
    quantiles,
    scans,
    search,
    sets,
    sorting,
    unique,
)
from distvec.array.reduction_keywords import UNSAID, stored, stored_in
from distvec.array.shaping import numpy_names as shaping
from distvec.array.signatures import by_position, check_bound
from ps_backend.program import reducers

_MODULES = (
    properties,
    functions,
    texts,
    creation,
    sequences,
    transposed,
    choosing,
    choices,
    bits,
    multi_index,
    numpy_statistics,
    scans,
    sorting,
    quantiles,
    unique,
    products,
    polynomials,
    fitting,
    linear_algebra,
    counting,
    histograms,
    joint_histograms,
    search,
    interpolation,
    sets,
    shaping,
    along_axis,
    chains,
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
        raise TypeError(refusals.of_function(func))
    out = kwargs.pop("out", None)
    given = {key: value for key, value in kwargs.items() if value is not UNSAID}
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
    ours = made_like.numpy_functions().get(getattr(func, "_implementation", func))
    return None if ours is None else lambda *args, **given: ours(like, *args, **given)


@cache
def _functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours."""
    return {name: ours for one in _MODULES for name, ours in one.numpy_functions().items()}
