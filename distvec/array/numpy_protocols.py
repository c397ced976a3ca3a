"""NumPy's protocols: ``np.exp(x)`` and ``np.linalg.norm(x)`` on arrays of the servers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from distvec.array import (
    add_at,
    choosing,
    creation,
    functions,
    linear_algebra,
    products,
    reductions,
    rows,
    transposed,
)
from distvec.array.einsum import einsum
from distvec.array.numpy_statistics import numpy_functions
from distvec.array.operators import Arithmetic, Deferred, elementwise
from distvec.array.reduction_keywords import UNSAID, is_everywhere, mask_for, target_of
from distvec.graph.dtypes import check_dtype
from ps_backend.program import ops, reducers

_PRODUCTS = {
    np.matmul: products.matmul,
    np.vecdot: products.vecdot,
    np.matvec: products.matmul,
    np.vecmat: products.matmul,
}
_FREE_KEYWORDS = {"casting": "same_kind", "order": "K", "subok": True}


def ufunc(function: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``__array_ufunc__`` returns. ``TypeError`` for a ufunc that is not in the op table."""
    if method == "reduce" and function in reducers.NAMES:
        return _reduce(function, inputs, kwargs)
    if method == "__call__" and function in ops.PARTS:
        return _parts(function, inputs, kwargs)
    if method == "at":
        return add_at.at(function, *inputs)
    if method == "outer":
        return _outer(function, inputs, kwargs)
    (out,) = kwargs.pop("out", (None,))
    dtype, where = kwargs.pop("dtype", None), kwargs.pop("where", True)
    run = _runner(function, (*inputs, out)) if method == "__call__" else None
    if run is None:
        raise _unavailable(function.__name__, method)
    _check_free(function, kwargs)
    try:
        result = run(*inputs) if dtype is None else _run_in(dtype, run, inputs)
    except Deferred:
        return NotImplemented
    if not is_everywhere(where):
        return _store_where(out, where, result, function.__name__)
    return result if out is None else _store(out, result, function.__name__)


def _unavailable(name: str, method: str) -> TypeError:
    """What is said of a ufunc, or of a method of one, that the servers have not."""
    if method == "__call__":
        there = "; available are " + ", ".join(sorted(ops.NAMES.values()))
    elif method == "reduce":
        known = (one.__name__ for one in reducers.NAMES if isinstance(one, np.ufunc))
        there = "; available are reduce of " + ", ".join(sorted(known))
    else:
        there = ""
    call = name if method == "__call__" else f"{name}.{method}"
    return TypeError(
        f"numpy.{call} is not available on the servers{there}; or pull the values with x.numpy()"
    )


def _outer(function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``ufunc.outer`` of vectors: a table, with a row for each element of the first one."""
    first, second = inputs
    ranks = [one.ndim if isinstance(one, Arithmetic) else np.ndim(one) for one in inputs]
    if sum(ranks) > creation.MOST_RANK:
        raise NotImplementedError(
            f"numpy.{function.__name__}.outer of arrays of rank {ranks[0]} and {ranks[1]} has more "
            f"than {creation.MOST_RANK} axes; take vectors"
        )
    if 0 not in ranks:
        (like,) = _as_arrays((first,))
        first = creation.reshape(like, (len(like), 1))
    return function(first, second, **kwargs)


def _check_free(function: Any, kwargs: dict[str, Any]) -> None:
    """``TypeError`` for a keyword that asks for what is not NumPy's default."""
    for key, value in kwargs.items():
        if not isinstance(value, bool | str) or value != _FREE_KEYWORDS.get(key):
            given = value if isinstance(value, bool | str) else f"<{type(value).__name__}>"
            raise TypeError(f"numpy.{function.__name__}: keyword {key}={given} is not supported")


def _parts(function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The results of a ufunc that has several."""
    name, rows = function.__name__, ops.PARTS[function]
    outs = kwargs.pop("out", (None,) * len(rows))
    _check_free(function, kwargs)
    like = functions.array_among(name, (*inputs, *outs))
    results = [elementwise(like, row, *inputs) for row in rows]
    return tuple(
        result if out is None else _store(out, result, name)
        for out, result in zip(outs, results, strict=True)
    )


def _store_where(out: Any, where: Any, result: Any, name: str) -> Any:
    """``out``, with ``result`` where ``where`` says so."""
    if out is None:
        raise TypeError(
            f"numpy.{name}: keyword where= leaves the other elements undefined; give out= as well, "
            f"or write distvec.where(mask, numpy.{name}(...), others)"
        )
    target = target_of(out, name)
    with target.turn:
        fits = np.can_cast(result.dtype, target.dtype, "same_kind")
        new = result.astype(target.dtype) if fits else result  # which assign then refuses
        mask = mask_for(target, where, f"numpy.{name}")
        return target.assign(elementwise(target, "where", mask, new, target), name)


def _runner(function: Any, operands: tuple[Any, ...]) -> Callable[..., Any] | None:
    """What computes a ufunc, in the session of ``operands``; None if nothing does."""
    if function in _PRODUCTS:
        return _PRODUCTS[function]
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
    return target_of(out, name).assign(result, name)


def _as_arrays(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    for operand in inputs:
        if not isinstance(operand, Arithmetic):
            raise TypeError(
                f"needs arrays on the servers, got {type(operand).__name__}; "
                f"put it there with session.array(...)"
            )
    return inputs


def _reduce(function: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``ufunc.reduce``, which takes the first axis where no other is named."""
    ours = reductions.of_table(reducers.NAMES[function])
    (x,) = _as_arrays(inputs)
    (out,) = kwargs.pop("out", (None,))
    # NumPy hands on its defaults: none of them says anything.
    unsaid = {"dtype": None, "initial": UNSAID, "where": True}
    given = {key: value for key, value in kwargs.items() if value is not unsaid.get(key, False)}
    given.setdefault("axis", 0 if x.ndim else None)
    _check_bound(f"{function.__name__}.reduce", ours, (x,), given)
    return ours(x, out=out, **given)


def function(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``__array_function__`` returns. ``TypeError`` for a function without a counterpart."""
    ours = _functions().get(func) or _of_row(func)
    if ours is None:
        raise TypeError(
            f"numpy.{func.__name__} is not available on the servers; "
            f"pull the values with x.numpy() and call it on those"
        )
    out = kwargs.pop("out", None)
    given = {key: value for key, value in kwargs.items() if value is not UNSAID}
    if out is not None and "out" in inspect.signature(ours).parameters:
        given["out"], out = out, None
    _check_bound(func.__name__, ours, args, given)
    result = ours(*args, **given)
    return result if out is None else _store(out, result, func.__name__)


def _check_bound(
    name: str, ours: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]
) -> None:
    """``TypeError`` for arguments that our counterpart of NumPy's function ``name`` has not."""
    if not given:
        return
    try:
        inspect.signature(ours).bind(*args, **given)
    except TypeError as error:
        raise TypeError(
            f"numpy.{name}: {error} on the servers; "
            f"pull the values with x.numpy() and call it on those"
        ) from None


def _of_row(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """The reduction of the table that NumPy calls by its name as well, if ``func`` is one."""
    name = func.__name__
    is_row = name in reducers.PUBLIC and getattr(np, name, None) is func
    return reductions.of_table(name) if is_row else None


@cache
def _functions() -> dict[Any, Callable[..., Any]]:
    def shape(x: Any) -> Any:
        return x.shape

    return numpy_functions() | {
        **linear_algebra.numpy_functions(),
        np.mean: reductions.mean,
        np.count_nonzero: reductions.count_nonzero,
        np.dot: products.dot,
        np.vdot: products.vdot,
        np.inner: products.inner_product,
        np.outer: products.outer,
        np.einsum: einsum,
        np.tensordot: lambda a, b, axes=2: products.tensordot(a, b, axes=axes),
        np.reshape: lambda x, shape, order="C", *, copy=None: creation.reshape(x, shape),
        np.ravel: lambda x, order="C": creation.reshape(x, -1),
        np.squeeze: creation.squeeze,
        np.expand_dims: lambda x, axis: creation.expand_dims(x, axis=axis),
        np.broadcast_to: lambda x, shape, subok=False: creation.broadcast_to(x, shape),
        np.broadcast_arrays: lambda *xs, subok=False: tuple(creation.broadcast_arrays(*xs)),
        np.transpose: lambda x, axes=None: transposed.transpose(x, axes),
        np.matrix_transpose: transposed.matrix_transpose,
        np.permute_dims: transposed.transpose,
        np.cumulative_sum: rows.cumulative_sum,
        np.cumulative_prod: rows.cumulative_prod,
        np.cumsum: lambda x, axis=None: rows.cumulative_sum(x, axis=axis),
        np.cumprod: lambda x, axis=None: rows.cumulative_prod(x, axis=axis),
        np.sort: lambda x, axis=-1, kind=None, order=None, *, stable=None: rows.sort(x, axis=axis),
        np.argsort: lambda x, axis=-1, kind=None, order=None, *, stable=None: rows.argsort(
            x, axis=axis
        ),
        np.column_stack: rows.column_stack,
        np.hstack: rows.hstack,
        np.stack: rows.stack,
        np.vstack: rows.vstack,
        np.concatenate: rows.concatenate,
        np.linalg.norm: products.norm,
        np.linalg.vector_norm: lambda x, *, axis=None, keepdims=False, ord=2: products.norm(
            x, ord, axis, keepdims=keepdims
        ),
        np.linalg.vecdot: products.vecdot,
        np.where: _where,
        np.nonzero: choosing.nonzero,
        np.flatnonzero: choosing.flatnonzero,
        np.extract: choosing.extract,
        np.compress: choosing.compress,
        np.putmask: choosing.putmask,
        np.place: choosing.place,
        np.put: choosing.put,
        np.take: lambda x, indices, axis=None, *, mode="raise": choosing.take(
            x, indices, axis, mode=mode
        ),
        np.diff: choosing.diff,
        np.copyto: choosing.copyto,
        np.select: choosing.select,
        np.piecewise: choosing.piecewise,
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
        np.result_type: lambda *given: np.result_type(*(getattr(x, "dtype", x) for x in given)),
    }


def _like(
    fill_value: Any, x: Any, dtype: Any = None, order: Any = "K", subok: Any = True,
    shape: Any = None, *, device: Any = None,
) -> Any:  # fmt: skip
    kind = x.dtype if dtype is None else dtype
    extents = x.shape if shape is None else shape
    return x.like(creation.filled(x.session.graph, extents, fill_value, kind))


def _where(condition: Any, *choices: Any) -> Any:
    if not choices:
        return choosing.nonzero(condition)
    if len(choices) == 1:
        raise ValueError("either both or neither of x and y should be given")
    return functions.where(condition, *choices)


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low = min if a_min is None or a_min is np._NoValue else a_min
    high = max if a_max is None or a_max is np._NoValue else a_max
    (array,) = _as_arrays((x,))
    return functions.clip(array, low, high)
