"""Operations on values that the client has: NumPy's functions of them, immediately.

The short way of small arrays and numbers, before the general one, which makes nodes of operations.
It leaves to that one, by None, the operations that it does not know, and every error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

import numpy as np

from distvec.array.core.handle import Handle
from distvec.graph.build import Operand, resolve
from distvec.graph.host_eval import QUIET, quietly, tuple_like
from ps_backend.program import ops
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.types import DTYPES, NodeType, client_type

H = TypeVar("H", bound=Handle)

_SUPPORTED = frozenset(np.dtype(name) for name in DTYPES)
_FLOAT = np.dtype(np.float64)
_EXACT = 1 << 53
"""An integer up to here has the same value as a float."""
_MOST_RANK = 2
_PLAIN = frozenset((_FLOAT, np.dtype(np.int64), np.dtype(np.bool_)))
"""Those that NumPy accumulates as we do; others we accumulate in a wider dtype."""


def elementwise_of_known(like: H, name: str, operands: Sequence[Any]) -> H | None:
    """The result of op ``name`` on values and Python numbers, where NumPy's own is ours."""
    session, kind = like.session, type(like)
    graph = session.graph
    if graph.weak:
        return None
    array: NodeType | None = None
    kinds: list[Operand] = []
    values: list[Any] = []
    for operand in operands:
        cls = type(operand)
        if cls is kind:
            node = operand.node
            if not node.on_client or node.value is None or operand.session is not session:
                return None
            kinds.append(node.dtype)
            values.append(node.value)
            if not node.is_scalar:
                array = node.type
        elif cls is float or (cls is int and -_EXACT <= operand <= _EXACT):
            kinds.append(cls)
            values.append(operand)
        elif isinstance(operand, np.generic) or cls is np.ndarray:
            kinds.append(operand.dtype)
            values.append(operand)
        else:
            return None
    function = _plain_function(name, tuple(kinds))
    if function is None:
        return None
    if array is None:  # numbers: Python's operators of them take a tenth of the time
        function = _OPERATORS.get(name, function)
    try:
        found = QUIET.copy().run(function, *values)
    except ValueError:  # the general way has our words for it
        return None
    if array is None or found.dtype is not array.dtype or found.shape != array.shape:
        if found.ndim > _MOST_RANK:
            return None
        if array is None and not found.ndim:
            found = found[()]  # where returns an array of rank 0
        array = client_type(found.dtype, found.shape)
    if array.shape:
        if not found.flags.c_contiguous:
            found = np.ascontiguousarray(found)
        found.setflags(False)  # by name it takes three times as long
    return like.like(graph.number(found, array))


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "negative": operator.neg,
}


@lru_cache(maxsize=4096)
def _plain_function(name: str, kinds: tuple[Operand, ...]) -> Callable[..., Any] | None:
    """NumPy's function for op ``name``, where that is all that is done with operands of ``kinds``.

    Not where the general way casts operands first.
    """
    op = ops.TABLE[name]
    if name == "where":
        return np.where if kinds[0] == np.bool_ and int not in kinds else None
    if op.identity or not isinstance(op.numpy, np.ufunc):
        return None
    try:
        ours, resolved = resolve(name, kinds)
    except (TypeError, ValueError):
        return None
    is_plain = resolved == op.numpy.resolve_dtypes((*kinds, None)) and ours in (name, "int_pow")
    return op.numpy if is_plain else None


def function_of_known(
    like: H, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """The result of a function of NumPy's, where all arrays are values in float64 or integers.

    One array, several, or another result.
    """
    if like.session.graph.weak or "out" in kwargs:
        return None
    try:
        given = [_value(like, one) for one in args]
        named = {key: _value(like, one) for key, one in kwargs.items()}
        return _arrays(like, quietly(partial(function, **named), *given))
    except Exception:  # noqa: BLE001 the general way finds it, too, and has our words for it
        return None


def product_of_known(like: H, x: Any, y: Any) -> H | None:
    """``x @ y`` of values in float64 or integers, ours or NumPy's."""
    if like.session.graph.weak:
        return None
    try:
        return cast(H, _arrays(like, quietly(np.matmul, _value(like, x), _value(like, y))))
    except (ValueError, TypeError, _NotKnown):  # the general way has our words for it
        return None


def item_of_known(x: H, key: Any) -> H | None:
    """``x[key]`` of a value, for integers and slices, or for one index array or mask."""
    value, cls = x.node.value, type(key)
    if value is None or not x.node.on_client:
        return None
    if isinstance(key, Handle):
        try:
            key = _value(x, key)
        except _NotKnown:
            return None
    elif cls is np.ndarray:
        if key.dtype.kind not in "iub":
            return None
    elif cls not in _BASIC and not (cls is tuple and all(type(one) in _BASIC for one in key)):
        return None
    if not isinstance(key, np.ndarray) or key.ndim:  # one truth value is another axis
        try:
            return cast(H, _arrays(x, value[key]))
        except (IndexError, _NotKnown):  # the general way has our words for it
            pass
    return None


_BASIC = frozenset((int, slice))


def set_known(x: Handle, key: Any, value: Any) -> bool:
    """Set ``x[key] = value`` of values, for integers and slices; whether that is done."""
    cls, node = type(key), x.node
    if x._defers or node.value is None or not node.on_client or node.is_scalar:
        return False
    if cls not in _BASIC and not (cls is tuple and all(type(one) in _BASIC for one in key)):
        return False
    if not isinstance(value, Handle | np.generic | np.ndarray | float | int):
        return False
    try:
        given = _value(x, value)
        with x.write_lock:
            changed = x.node.value.copy()
            quietly(changed.__setitem__, key, given)
            changed.setflags(False)
            x.rebind(x.session.graph.number(changed, node.type))
    except Exception:  # noqa: BLE001 the general way finds it, too, and has our words for it
        return False
    return True


def reduction_of_known(x: H, op: str, axis: int | None, dtype: np.dtype[Any]) -> H | None:
    """The reduction ``op`` of a value in float64, where NumPy's own is ours."""
    node, row = x.node, REDUCERS[op]
    if node.value is None or not node.on_client or node.is_scalar or dtype is not _FLOAT:
        return None
    if node.dtype is not _FLOAT or row.locates or row.truth or not isinstance(row.numpy, np.ufunc):
        return None
    return cast(H, _arrays(x, quietly(row.numpy.reduce, node.value, axis)))


class _NotKnown(Exception):
    """An argument is pending, on the servers, or of a dtype that we accumulate in another one."""


def _value(like: Handle, given: Any) -> Any:
    """The argument for NumPy: the value of an array."""
    if isinstance(given, Handle):
        if given._defers or given.session is not like.session:
            raise _NotKnown
        node = given.node
        if not node.on_client or node.value is None or node.dtype not in _PLAIN:
            raise _NotKnown
        return node.value
    if isinstance(given, list | tuple):
        return type(given)([_value(like, one) for one in given])
    return given


def _arrays(like: H, found: Any) -> Any:
    """NumPy's result, its arrays as ours, of their own memory."""
    if isinstance(found, np.ndarray | np.generic):
        dtype = found.dtype
        if dtype not in _SUPPORTED or found.ndim > _MOST_RANK:
            raise _NotKnown
        value: Any = found
        if value.ndim:
            value = np.array(value, order="C")
            value.setflags(False)
        else:
            value = value[()]
        return like.like(like.session.graph.number(value, client_type(dtype, value.shape)))
    if isinstance(found, tuple):
        return tuple_like(found, [_arrays(like, one) for one in found])
    return [_arrays(like, one) for one in found] if isinstance(found, list) else found
