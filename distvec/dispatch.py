"""NumPy's protocols: ``np.exp(x)`` and ``np.linalg.norm(x)`` on arrays of the servers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ps_backend import ops

_FREE_KEYWORDS = {"where": True, "casting": "same_kind", "order": "K", "subok": True}


@cache
def _ufuncs() -> dict[Any, str]:
    """Names of ops by the ufunc they stand for; the general row, not that of one dtype."""
    named: dict[Any, str] = {}
    for name, op in ops.TABLE.items():
        if name not in ops.INTERNAL and isinstance(op.numpy, np.ufunc):
            named.setdefault(op.numpy, name)
    return named


def ufunc(function: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``__array_ufunc__`` returns. ``TypeError`` for a ufunc that is not in the op table."""
    from distvec.functions import _session_of

    name = _ufuncs().get(function)
    if method == "reduce" and function in _REDUCTIONS:
        return _reduce(function, inputs, kwargs)
    if method != "__call__" or (
        name is None and function is not np.matmul and function is not np.vecdot
    ):
        call = function.__name__ + ("" if method == "__call__" else f".{method}")
        raise TypeError(
            f"numpy.{call} is not available on the servers; available are "
            f"{', '.join(sorted(_ufuncs().values()))}; or pull the values with x.numpy()"
        )
    out, dtype = kwargs.pop("out", (None,))[0], kwargs.pop("dtype", None)
    for key, value in kwargs.items():
        if key not in _FREE_KEYWORDS or (
            value is not _FREE_KEYWORDS[key] and value != _FREE_KEYWORDS[key]
        ):
            raise TypeError(f"numpy.{function.__name__}: keyword {key}={value!r} is not supported")
    from distvec import build, reductions

    if name is None:
        result = reductions.dot(*_as_arrays(inputs))
    else:
        result = build.elementwise(_session_of(name, (*inputs, out)), name, *inputs)
    if dtype is not None:
        result = result.astype(dtype)
    return result if out is None else _store(out, result, function.__name__)


def _store(out: Any, result: Any, name: str) -> Any:
    from distvec.array import DistArray

    if not isinstance(out, DistArray):
        raise TypeError(
            f"numpy.{name}: out is a {type(out).__name__} on the client; "
            f"write out[...] = numpy.{name}(...).numpy() to pull the result"
        )
    return out.assign(result, name)


def _as_arrays(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    from distvec.array import DistArray

    for operand in inputs:
        if not isinstance(operand, DistArray):
            raise TypeError(
                f"needs arrays on the servers, got {type(operand).__name__}; "
                f"put it there with session.array(...)"
            )
    return inputs


_REDUCTIONS = {np.add: "sum", np.multiply: "prod", np.minimum: "min", np.maximum: "max"}
_REDUCTIONS |= {np.logical_and: "all", np.logical_or: "any"}


def _reduce(function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    allowed = {key: kwargs[key] for key in ("axis", "dtype") if kwargs.get(key) is not None}
    return getattr(inputs[0], _REDUCTIONS[function])(**allowed)


def function(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``__array_function__`` returns. ``TypeError`` for a function without a counterpart."""
    ours = _functions().get(func)
    if ours is None:
        raise TypeError(
            f"numpy.{func.__name__} is not available on the servers; "
            f"pull the values with x.numpy() and call it on those"
        )
    out = kwargs.pop("out", None)
    given = {key: value for key, value in kwargs.items() if value is not np._NoValue}
    if given.get("keepdims") is False:
        del given["keepdims"]
    result = ours(*args, **given)
    return result if out is None else _store(out, result, func.__name__)


@cache
def _functions() -> dict[Any, Callable[..., Any]]:
    from distvec import functions, reductions

    def shape(x: Any) -> Any:
        return x.shape

    return {
        np.sum: reductions.sum,
        np.prod: reductions.prod,
        np.min: reductions.min,
        np.max: reductions.max,
        np.mean: reductions.mean,
        np.any: reductions.any,
        np.all: reductions.all,
        np.argmax: reductions.argmax,
        np.argmin: reductions.argmin,
        np.count_nonzero: reductions.count_nonzero,
        np.dot: lambda a, b: reductions.dot(*_as_arrays((a, b))),
        np.vdot: lambda a, b: reductions.dot(*_as_arrays((a, b))),
        np.inner: lambda a, b: reductions.dot(*_as_arrays((a, b))),
        np.linalg.norm: reductions.norm,
        np.where: _where,
        np.clip: _clip,
        np.round: _round,
        np.zeros_like: lambda x, dtype=None, **_: functions.zeros_like(x, dtype),
        np.ones_like: lambda x, dtype=None, **_: functions.ones_like(x, dtype),
        np.empty_like: lambda x, dtype=None, **_: functions.zeros_like(x, dtype),
        np.full_like: lambda x, value, dtype=None, **_: functions.full_like(x, value, dtype),
        np.copy: lambda x, **_: x.copy(),
        np.astype: lambda x, dtype, /, **_: x.astype(dtype),
        np.shape: shape,
        np.ndim: lambda x: x.ndim,
        np.size: lambda x, axis=None: x.size,
        np.array_equal: lambda a, b: a.shape == b.shape and bool((a == b).all()),
    }


def _where(condition: Any, *choices: Any) -> Any:
    from distvec import functions

    if len(choices) != 2:
        raise TypeError(
            "numpy.where(condition) alone gives indices, whose number is not known here; "
            "give both choices: numpy.where(condition, x, y)"
        )
    return functions.where(condition, *choices)


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    from distvec import functions

    low = min if a_min is None or a_min is np._NoValue else a_min
    high = max if a_max is None or a_max is np._NoValue else a_max
    (array,) = _as_arrays((x,))
    return functions.clip(array, low, high)


def _round(x: Any, decimals: int = 0) -> Any:
    from distvec import functions

    if decimals != 0:
        raise NotImplementedError("numpy.round: only decimals=0; scale first: round(x * 100) / 100")
    return functions.TABLE["round"](x)
