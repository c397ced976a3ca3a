"""``__array_function__``: NumPy's functions, as ``np.linalg.norm(x)``, on arrays of the servers.

Each module that has some says so itself, in ``numpy_functions()``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from distvec.array import elementwise as functions
from distvec.array import error_hints as refusals
from distvec.array import linalg as linear_algebra
from distvec.array import polynomials, products, reductions, sequences, transposed
from distvec.array import polynomials as fitting
from distvec.array import repr as texts
from distvec.array import sequences as made_like
from distvec.array import take_put as along_axis
from distvec.array import take_put as choices
from distvec.array import take_put as choosing
from distvec.array.collectives import core as counting
from distvec.array.collectives import histogram as histograms
from distvec.array.collectives import histogram as joint_histograms
from distvec.array.collectives import quantile as quantiles
from distvec.array.collectives import scan as scans
from distvec.array.collectives import search, sets
from distvec.array.collectives import search as interpolation
from distvec.array.collectives import sets as unique
from distvec.array.collectives import sort as sorting
from distvec.array.core import shapes as creation
from distvec.array.core import type_queries as properties
from distvec.array.core.handle import Handle
from distvec.array.core.keywords import NOT_GIVEN, by_position, check_bound, stored, stored_in
from distvec.array.dispatch import manipulation_names as shaping
from distvec.array.dispatch import statistics_names as numpy_statistics
from distvec.array.linalg import einsum
from distvec.array.linalg import einsum as chains
from distvec.array.manipulation import packing as bits
from distvec.array.manipulation import packing as multi_index
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
    ours = made_like.numpy_functions().get(getattr(func, "_implementation", func))
    return None if ours is None else lambda *args, **given: ours(like, *args, **given)


@cache
def _functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours."""
    return {name: ours for one in _MODULES for name, ours in one.numpy_functions().items()}
