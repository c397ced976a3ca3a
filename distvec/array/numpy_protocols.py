"""NumPy's protocols: ``np.exp(x)`` and ``np.linalg.norm(x)`` on arrays of the servers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from distvec.array import creation, functions, reductions
from distvec.array.operators import Arithmetic, elementwise
from distvec.graph.dtypes import check_dtype
from ps_backend.program import ops, reducers

_FREE_KEYWORDS = {"where": True, "casting": "same_kind", "order": "K", "subok": True}


def ufunc(function: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``__array_ufunc__`` returns. ``TypeError`` for a ufunc that is not in the op table."""
    if method == "reduce" and function in reducers.NAMES:
        return _reduce(function, inputs, kwargs)
    out, dtype = kwargs.pop("out", (None,))[0], kwargs.pop("dtype", None)
    run = _runner(function, (*inputs, out)) if method == "__call__" else None
    if run is None:
        call = function.__name__ + ("" if method == "__call__" else f".{method}")
        raise TypeError(
            f"numpy.{call} is not available on the servers; available are "
            f"{', '.join(sorted(ops.NAMES.values()))}; or pull the values with x.numpy()"
        )
    for key, value in kwargs.items():
        if not isinstance(value, bool | str) or value != _FREE_KEYWORDS.get(key):
            given = value if isinstance(value, bool | str) else f"<{type(value).__name__}>"
            raise TypeError(f"numpy.{function.__name__}: keyword {key}={given} is not supported")
    result = run(*inputs) if dtype is None else _run_in(dtype, run, inputs)
    return result if out is None else _store(out, result, function.__name__)


def _runner(function: Any, operands: tuple[Any, ...]) -> Callable[..., Any] | None:
    """What computes a ufunc, in the session of ``operands``; None if nothing does."""
    if function is np.matmul or function is np.vecdot:
        return lambda *inputs: reductions.dot(*_as_arrays(inputs))
    name = ops.NAMES.get(function)
    if name is None:
        return None
    return partial(elementwise, functions.array_among(name, operands), name)


def _run_in(dtype: Any, run: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """The result in ``dtype``: as in NumPy the operands are cast to it, not what comes out."""
    wanted, natural = check_dtype(dtype), run(*inputs)
    if natural.dtype == wanted:
        return natural
    for operand in (*inputs, natural):
        if hasattr(operand, "dtype") and not np.can_cast(operand.dtype, wanted, "same_kind"):
            raise TypeError(
                f"dtype={wanted}: cannot cast from {operand.dtype} by the rule 'same_kind'; "
                f"cast the operand or the result: .astype({wanted.name!r})"
            )
    return run(*(x.astype(wanted) if hasattr(x, "dtype") else x for x in inputs)).astype(wanted)


def _store(out: Any, result: Any, name: str) -> Any:
    if not isinstance(out, Arithmetic):
        raise TypeError(
            f"numpy.{name}: out is a {type(out).__name__} on the client; "
            f"write out[...] = numpy.{name}(...).numpy() to pull the result"
        )
    return out.assign(result, name)


def _as_arrays(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    for operand in inputs:
        if not isinstance(operand, Arithmetic):
            raise TypeError(
                f"needs arrays on the servers, got {type(operand).__name__}; "
                f"put it there with session.array(...)"
            )
    return inputs


def _reduce(function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = f"numpy.{function.__name__}.reduce"
    (out,) = kwargs.pop("out", (None,))
    # NumPy hands on its defaults: none of them says anything.
    unsaid = {"axis": None, "dtype": None, "initial": np._NoValue, "where": True}
    given = {key: value for key, value in kwargs.items() if value is not unsaid.get(key, False)}
    row = reducers.REDUCERS[reducers.NAMES[function]]
    known = {"axis", "keepdims", "dtype"} if row.takes_dtype else {"axis", "keepdims"}
    for key in given.keys() - known:
        raise TypeError(f"{name}: keyword {key} is not supported; reduce x.numpy() instead")
    (x,) = _as_arrays(inputs)
    result = reductions.of_table(row.name)(x, **given)
    return result if out is None else _store(out, result, name)


def function(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``__array_function__`` returns. ``TypeError`` for a function without a counterpart."""
    ours = _functions().get(func) or _of_row(func)
    if ours is None:
        raise TypeError(
            f"numpy.{func.__name__} is not available on the servers; "
            f"pull the values with x.numpy() and call it on those"
        )
    out = kwargs.pop("out", None)
    given = {key: value for key, value in kwargs.items() if value is not np._NoValue}
    if given:
        try:
            inspect.signature(ours).bind(*args, **given)
        except TypeError as error:
            raise TypeError(
                f"numpy.{func.__name__}: {error} on the servers; "
                f"pull the values with x.numpy() and call it on those"
            ) from None
    result = ours(*args, **given)
    return result if out is None else _store(out, result, func.__name__)


def _of_row(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """The reduction of the table that NumPy calls by its name as well, if ``func`` is one."""
    name = func.__name__
    is_row = name in reducers.PUBLIC and getattr(np, name, None) is func
    return reductions.of_table(name) if is_row else None


@cache
def _functions() -> dict[Any, Callable[..., Any]]:
    def shape(x: Any) -> Any:
        return x.shape

    return {
        np.mean: reductions.mean,
        np.count_nonzero: reductions.count_nonzero,
        np.dot: _dot,
        np.vdot: lambda a, b: reductions.dot(*_as_arrays((a, b))),
        np.inner: _dot,
        np.linalg.norm: reductions.norm,
        np.linalg.vector_norm: lambda x, *, axis=None, keepdims=False, ord=2: reductions.norm(
            x, ord, axis, keepdims=keepdims
        ),
        np.linalg.vecdot: reductions.vecdot,
        np.where: _where,
        np.clip: _clip,
        np.round: functions.round,
        np.around: functions.round,
        np.zeros_like: partial(_like, 0),
        np.ones_like: partial(_like, 1),
        np.empty_like: partial(_like, 0),
        np.full_like: lambda x, fill_value, *args, **kwargs: _like(fill_value, x, *args, **kwargs),
        np.copy: lambda x, **_: x.copy(),
        np.astype: lambda x, dtype, /, **_: x.astype(dtype),
        np.shape: shape,
        np.ndim: lambda x: x.ndim,
        np.size: lambda x, axis=None: x.size,
        np.array_equal: _array_equal,
        np.result_type: lambda *given: np.result_type(*(getattr(x, "dtype", x) for x in given)),
    }


def _like(
    fill_value: Any, x: Any, dtype: Any = None, order: Any = "K", subok: Any = True,
    shape: Any = None, *, device: Any = None,
) -> Any:  # fmt: skip
    kind = x.dtype if dtype is None else dtype
    extents = x.shape if shape is None else shape
    return x.like(creation.filled(x.session.graph, extents, fill_value, kind))


def _dot(a: Any, b: Any) -> Any:
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    return reductions.dot(*_as_arrays((a, b)))


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    x, y = _as_arrays((a1, a2))
    if x.shape != y.shape:
        return False
    same = x == y
    if equal_nan:
        same = same | ((x != x) & (y != y))
    return bool(same.all())


def _where(condition: Any, *choices: Any) -> Any:
    if len(choices) != 2:
        raise TypeError(
            "numpy.where(condition) alone gives indices, whose number is not known here; "
            "give both choices: numpy.where(condition, x, y)"
        )
    return functions.where(condition, *choices)


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low = min if a_min is None or a_min is np._NoValue else a_min
    high = max if a_max is None or a_max is np._NoValue else a_max
    (array,) = _as_arrays((x,))
    return functions.clip(array, low, high)
