"""``x[key]`` and ``x[key] = value``."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array.creation import filled
from distvec.array.handle import Handle, check_session
from distvec.array.operators import Arithmetic, elementwise


def get_item(x: Arithmetic, key: Any) -> Any:
    """``x[key]``: of a mask a selection, whose elements are not made; lazy."""
    if _is_all(x, key):
        return x
    mask = as_mask(x, key)
    if mask is not None:
        return x.session.select(x, mask)
    raise TypeError(
        "indexing would pull single elements; use x.pull([3, 5]) for those, "
        "distvec.where(mask, x, y) for masks"
    )


def set_item(x: Arithmetic, key: Any, value: Any) -> None:
    """``x[key] = value``, cast as it must, as in NumPy: the handle stands for another vector."""
    if _is_all(x, key):
        x.assign(_given(x, value))
        return
    mask = as_mask(x, key)
    if mask is None:
        raise TypeError(
            "item assignment is not supported; use x.push(indices, values) to add at indices, "
            "x[mask] = 0 or x = distvec.where(mask, y, x) for masks, x[:] = y for all"
        )
    with x.turn:
        x.assign(elementwise(x, "where", mask, _where_true(x, mask, value), x))


def as_mask(x: Handle, key: Any) -> Any:
    """``key`` as a boolean vector aligned with ``x``, if that is what it is meant for; else None.

    ``IndexError``, as NumPy's, for one of another length. One on the client is put on the servers.
    """
    if isinstance(key, np.ndarray | list) and np.ndim(key) == 1:
        given = np.asarray(key)
        if given.dtype != np.bool_:
            return None
        _check_length(x, len(given))
        return x.session.array(given)
    if not isinstance(key, Arithmetic) or key.dtype != np.bool_ or key.ndim != 1:
        return None
    check_session(x.session, key, "a mask")
    _check_length(x, len(key))
    return key


def _check_length(x: Handle, length: int) -> None:
    if x.ndim == 0:
        raise IndexError("too many indices for array: array is 0-dimensional, but 1 were indexed")
    if length != len(x):
        raise IndexError(
            f"boolean index did not match indexed array along axis 0; size of axis is {len(x)} "
            f"but size of corresponding boolean axis is {length}"
        )


def _where_true(x: Arithmetic, mask: Any, value: Any) -> Any:
    """What ``x[mask] = value`` puts where ``mask`` is true, in the dtype of ``x``: as long as it.

    A number, or what the same mask selects.
    """
    new = _given(x, value)
    if new.selects and new.mask.node is mask.node:
        return new.values.astype(x.dtype)
    if new.shape in ((), (1,)):
        return new
    raise TypeError(
        "x[mask] = values: the elements would have to be spread over the places of the mask; "
        "assign what the same mask selects, as in x[mask] = 2 * y[mask]"
    )


def _given(x: Arithmetic, value: Any) -> Any:
    """``value`` as an array in the dtype of ``x``; errors as NumPy's."""
    if isinstance(value, Arithmetic):
        check_session(x.session, value, "item assignment")
        return value.astype(x.dtype)
    if np.ndim(value) == 0:
        return x.like(filled(x.session.graph, (), value, x.dtype))
    return x.session.array(value, x.dtype)


def _is_all(x: Handle, key: Any) -> bool:
    """Whether ``key`` names the array as it is."""
    if key is Ellipsis or (isinstance(key, tuple) and (not key or key == (Ellipsis,))):
        return True
    return isinstance(key, slice) and key == slice(None) and x.ndim > 0
