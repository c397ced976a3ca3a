"""NumPy's linear algebra of the small arrays that the client keeps; lazy.

``np.linalg.solve(X.T @ X, X.T @ y)`` costs no message by itself; asked for, it takes one, for both
products.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distvec.array.core.builder import express, host_array, make
from distvec.array.core.conversion import item
from distvec.array.core.handle import as_stored, check_session, is_split_by_columns
from distvec.array.core.operators import Arithmetic
from distvec.array.transposed import transpose
from distvec.graph import build, host_eval
from distvec.graph.build import check_dtype
from distvec.graph.host_eval import MOST_ELEMENTS
from ps_backend.program.types import client_type

_ARRAYS = 2
"""At most so many arguments of these functions are arrays: the first ones."""


def on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, one of ``host_eval.LINEAR_ALGEBRA``, of arrays that the client keeps; lazy.

    What servers have comes to the client with the next answer, if it is small. Errors of shapes and
    dtypes are NumPy's, at once; others, as ``LinAlgError`` of a singular matrix, show where the
    values are computed.
    """
    parameters = list(inspect.signature(function).parameters)

    def lazily(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(parameters, args, strict=False)) | kwargs
        arrays = [
            given.pop(name)
            for place, name in enumerate(parameters[:_ARRAYS])
            if place == 0 or _is_array(given.get(name))
        ]
        return apply_on_host(function, arrays, **given)

    return lazily


def _is_array(value: Any) -> bool:
    if isinstance(value, list):
        return True
    return isinstance(value, Arithmetic | np.ndarray) and value.ndim > 0


def apply_on_host(function: Callable[..., Any], arrays: Sequence[Any], **keywords: Any) -> Any:
    """``function`` of ``arrays``, one of the session at least; several results in NumPy's tuple."""
    like = session_array(arrays)
    fixed = tuple(sorted((name, _plain(value)) for name, value in keywords.items()))
    given = [np.asarray(one) if isinstance(one, list) else one for one in arrays]
    found = host_eval.results_of(function, [(one.shape, one.dtype) for one in given], fixed)
    operands = [collected_on_host(like, array, function.__name__) for array in given]
    params = host_eval.name_of(function), fixed
    if not isinstance(found, tuple):
        type = client_type(check_dtype(found.dtype), found.shape)
        return make(like, "client.linalg", operands, type, params)
    type = client_type(check_dtype(found[0].dtype), (sum(one.size for one in found),))
    packed = make(like, "client.linalg", operands, type, params)
    return host_eval.tuple_like(found, _unpacked(packed, found))


def _unpacked(packed: Any, found: Sequence[Any]) -> list[Any]:
    """The results, of the shapes of ``found``, whose elements ``packed`` has after each other."""
    parts, start = [], 0
    for one in found:
        type, place = client_type(packed.dtype, one.shape), (start, *one.shape)
        parts.append(make(packed, "client.part", (packed,), type, place))
        start += one.size
    return parts


def session_array(arrays: Sequence[Any]) -> Any:
    """The first array of a session among ``arrays``."""
    return next(array for array in arrays if isinstance(array, Arithmetic))


def _plain(value: Any) -> Any:
    """A keyword's value, as a node remembers it: a lazy number is computed."""
    if isinstance(value, Arithmetic):
        return item(value)
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def collected_on_host(like: Any, array: Any, name: str) -> Any:
    """An argument of the function ``name`` as an array that the client keeps; lazy.

    ``NotImplementedError`` for what is too long to come to the client.
    """
    if isinstance(array, Arithmetic):
        _check_size(array, name)
    if is_split_by_columns(array):
        return transpose(collected_on_host(like, array.table, name))
    if not isinstance(array, Arithmetic):
        return host_array(like, array)
    check_session(like.session, array, name)
    return express(like, build.collect, array)


def _check_size(array: Any, name: str) -> None:
    if array.size <= MOST_ELEMENTS or as_stored(array).node.on_client:
        return
    hint = "pull the values with x.numpy() and call it on those"
    if array.ndim == 2 and array.shape[0] != array.shape[1]:
        split = "rows" if array.is_split_by_columns else "columns"
        hint = (
            f"tables that are split along their longer side are treated where they are: put it "
            f"there with session.space({len(array)}, split={split!r}).array(...)"
        )
    raise NotImplementedError(
        f"{name}: the client takes at most {MOST_ELEMENTS} elements from the servers, and this "
        f"array has shape {array.shape}; {hint}"
    )
