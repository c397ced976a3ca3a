"""What the client computes by itself: numbers and small arrays that it keeps, by NumPy.

Their nodes are those of the op table, applied to values that no server has, and those of the
functions here, which take further fixed arguments as the node's ``params``.

Of linear algebra, shapes and dtypes of results are asked of NumPy, by a stack of no matrices: its
errors of shapes and dtypes are found so, when the node is built and at no cost. Others, as of a
singular matrix, show where the value is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from ps_backend.program import collectives, householder, ops
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.types import NodeType

Keywords = tuple[tuple[str, Any], ...]
"""Further arguments of a function, by name."""

_OF_STACKS: tuple[Callable[..., Any], ...] = (
    *(np.linalg.solve, np.linalg.inv, np.linalg.pinv, np.linalg.cholesky, np.linalg.eigh),
    *(np.linalg.eigvalsh, np.linalg.svd, np.linalg.svdvals, np.linalg.qr, np.linalg.det),
    *(np.linalg.slogdet, np.linalg.matrix_rank, np.linalg.matrix_power, np.linalg.cond),
)
_OF_WHOLE: tuple[Callable[..., Any], ...] = (np.linalg.norm,)


def function_name(function: Callable[..., Any]) -> str:
    """What ``function`` is called in ``LINEAR_ALGEBRA``: NumPy has some twice."""
    return f"{function.__module__}.{function.__name__}"


LINEAR_ALGEBRA: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {function_name(function): function for function in (*_OF_STACKS, *_OF_WHOLE)}
)
"""Those that take small arrays, and have real results of a shape that follows from theirs."""


def result_shapes(
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


def apply_linear_algebra(*given: Any) -> Any:
    """The function that the last but one argument names, of those before; the last are keywords.

    Of several results the elements of all, one after the other.
    """
    *values, name, keywords = given
    found = LINEAR_ALGEBRA[name](*values, **dict(keywords))
    if isinstance(found, tuple):
        return np.concatenate([np.ravel(part) for part in found])
    return found


def part(packed: Any, start: int, *shape: int) -> Any:
    """One of the results: the elements from ``start`` on, in ``shape``."""
    return packed[start : start + prod(shape)].reshape(shape)


MOST_ELEMENTS = 1 << 22
"""Of an array that the client keeps, and that travels with programs: beyond, it is no small one."""

Params = tuple[Any, ...]


def _reduce(x: Any, op: str, axis: int | None, dtype: str) -> Any:
    """The reduction ``op``, accumulated in ``dtype`` as servers do."""
    row = REDUCERS[op]
    if row.locates:
        return row.numpy(x, axis=axis)
    values = np.not_equal(x, 0) if row.truth else x.astype(dtype, copy=False)
    return row.numpy.reduce(values, axis=axis)  # type: ignore[attr-defined]


def _sort(x: Any, op: str, axis: int, descending: bool) -> Any:
    """``sort`` or ``argsort``, stable: descending, ties stay in order, and NaN comes first."""
    if not descending:
        return getattr(np, op)(x, axis=axis, stable=True)
    if op == "sort":
        return np.flip(np.sort(x, axis=axis), axis)
    backwards = np.argsort(np.flip(x, axis), axis=axis, stable=True)
    return x.shape[axis] - 1 - np.flip(backwards, axis)


def _key(encoded: tuple[Any, ...]) -> tuple[Any, ...]:
    """An index expression of which a node's ``params`` are: slices and arrays are tuples there."""
    return tuple(
        one
        if not isinstance(one, tuple)
        else slice(*one[1:])
        if one[0] == "slice"
        else np.array(one[3], one[1]).reshape(one[2])
        for one in encoded
    )


def _put(x: Any, values: Any, *encoded: Any) -> Any:
    changed = x.copy()
    changed[_key(encoded)] = values
    return changed


def statistic(x: Any, name: str, *keywords: tuple[str, Any]) -> Any:
    """NumPy's function of that name, with ``keywords``, of which arrays are encoded."""
    given = {
        key: _key((value,))[0] if isinstance(value, tuple) and value[:1] == ("array",) else value
        for key, value in keywords
    }
    return getattr(np, name)(x, **given)


def item_shape(shape: tuple[int, ...], encoded: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape of that part of an array of ``shape``."""
    found: tuple[int, ...] = np.broadcast_to(np.empty(()), shape)[_key(encoded)].shape
    return found


FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "client.reduce": _reduce,
        "client.matmul": np.matmul,
        "client.reshape": lambda x, *shape: np.reshape(x, shape),
        "client.transpose": np.transpose,
        "client.broadcast": lambda x, *shape: np.broadcast_to(x, shape),
        "client.columns": lambda x, start, stop, step: x[..., start:stop:step],
        "client.item": lambda x, *encoded: x[_key(encoded)],
        "client.put": _put,
        "client.accumulate": lambda x, op, axis, dtype: getattr(np, op).accumulate(x, axis, dtype),
        "client.reduceat": lambda x, op, indices, axis, dtype: getattr(np, op).reduceat(
            x, indices, axis, dtype
        ),
        "client.recurrence": collectives.linear_recurrence,
        "client.sort": _sort,
        "client.statistic": statistic,
        "client.stack": lambda *args: np.stack(args[:-1], axis=args[-1]),
        "client.concatenate": lambda *args: np.concatenate(args[:-1], axis=args[-1]),
        "client.block": lambda a, b, c, d: np.block([[a, b], [c, d]]),
        "client.linalg": apply_linear_algebra,
        "client.part": part,
        "client.triangle": householder.upright,
        "client.einsum": lambda *args: np.einsum(args[-1], *args[:-1]),
    }
)
"""By op of a node: the function of its arguments' values, then its ``params``."""


QUIET = Context()
QUIET.run(partial(np.seterr, all="ignore"))


def quietly(function: Callable[..., Any], *values: Any) -> Any:
    """``function(*values)`` without warnings of floating-point errors.

    Copying a context takes a fiftieth of the time of ``np.errstate``.
    """
    return QUIET.copy().run(function, *values)


def value_of(op: str, params: Params, type: NodeType, values: Sequence[Any]) -> Any:
    """The value of such a node, of the dtype and shape of ``type``."""
    return QUIET.copy().run(compute, op, params, type, values)


def compute(op: str, params: Params, type: NodeType, values: Sequence[Any]) -> Any:
    """As ``value_of``, but floating-point errors are the caller's to ignore."""
    function = FUNCTIONS.get(op)
    if function is not None:
        return cast_value(function(*values, *params), type)
    found = ops.TABLE[op].numpy(*values)
    if _is_new(found, type) and not any(found is value for value in values):
        found.flags.writeable = False
        return found
    return cast_value(found, type)


def _is_new(found: Any, type: NodeType) -> bool:
    """Whether it is an array of its own memory, just of ``type``: it needs no copy."""
    if not isinstance(found, np.ndarray) or found.base is not None or found.dtype is not type.dtype:
        return False
    return found.shape == type.shape and found.flags.c_contiguous


def cast_value(value: Any, type: NodeType) -> Any:
    """``value`` as of ``type``: a NumPy scalar, or an array that nobody may change."""
    if type.is_scalar:
        return type.dtype.type(value)
    if not isinstance(value, np.ndarray) or value.shape != type.shape:
        value = np.broadcast_to(value, type.shape)
    array = np.ascontiguousarray(value, type.dtype)
    if array is value or array.base is not None:
        array = array.copy()
    array.flags.writeable = False
    return array
