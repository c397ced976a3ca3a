"""What the client computes by itself: numbers and small arrays that it keeps, by NumPy.

Their nodes are those of the op table, applied to values that no server has, and those of the
functions here, which take further fixed arguments as the node's ``params``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.graph import matrices
from ps_backend.program import householder, ops, recurrences
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.types import NodeType

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
        "client.recurrence": recurrences.of_arrays,
        "client.sort": _sort,
        "client.statistic": statistic,
        "client.stack": lambda *args: np.stack(args[:-1], axis=args[-1]),
        "client.concatenate": lambda *args: np.concatenate(args[:-1], axis=args[-1]),
        "client.block": lambda a, b, c, d: np.block([[a, b], [c, d]]),
        "client.linalg": matrices.computed,
        "client.part": matrices.part,
        "client.triangle": householder.upright,
        "client.einsum": lambda *args: np.einsum(args[-1], *args[:-1]),
    }
)
"""By op of a node: the function of its arguments' values, then its ``params``."""


def value_of(op: str, params: Params, type: NodeType, values: Sequence[Any]) -> Any:
    """The value of such a node, of the dtype and shape of ``type``."""
    function = FUNCTIONS.get(op)
    with np.errstate(all="ignore"):
        found = ops.TABLE[op].numpy(*values) if function is None else function(*values, *params)
        return typed(found, type)


def typed(value: Any, type: NodeType) -> Any:
    """``value`` as of ``type``: a NumPy scalar, or an array that nobody may change."""
    if type.is_scalar:
        return type.dtype.type(value)
    array = np.ascontiguousarray(np.broadcast_to(value, type.shape), type.dtype)
    if array is value or array.base is not None:
        array = array.copy()
    array.flags.writeable = False
    return array
