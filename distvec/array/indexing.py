"""Single elements of vectors, by index: a message to each server that holds some of them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from distvec.array.creation import put
from distvec.array.handle import Handle
from distvec.array.operators import elementwise
from distvec.array.values import buffer_of, numpy, persist
from distvec.diagnostics.profile import measured
from distvec.graph.expr import Buffer
from distvec.runtime.pending import Flight
from ps_backend.client import uninterrupted

H = TypeVar("H", bound=Handle)


def pull(x: Handle, indices: Any = None) -> npt.NDArray[Any]:
    """The elements at ``indices`` (any order, repeats allowed), or all of them.

    Evaluation if need be, then one message to each server that holds some.
    """
    if indices is None:
        return numpy(x)
    wanted = as_indices(indices, _length(x))
    held = x.copy()  # so that what is read stays, whatever becomes of x meanwhile
    source = buffer_of(held)
    with measured(x.session.counters):
        return x.session.client.gather(source.id, source.type, wanted)


def push(x: H, indices: Any, values: Any) -> H:
    """Add ``values`` at ``indices``; repeated indices add up. None: at all, as ``x += values``.

    Returns the array. One message to each server. Other arrays that share the old values keep them.
    """
    where = None if indices is None else as_indices(indices, _length(x))
    shape = (_length(x),) if where is None else where.shape
    given = np.asarray(values)
    if given.shape not in ((), shape):
        what = "elements" if where is None else "indices"
        raise ValueError(f"push: {shape[0]} {what} but values of shape {given.shape}")
    if not np.can_cast(given.dtype, x.dtype, "same_kind"):
        raise TypeError(
            f"push: cannot add {given.dtype} values to a {x.dtype} array; "
            f"cast one: values.astype({x.dtype.name!r}), x.astype('float64')"
        )
    if where is None:
        everywhere = x.like(put(x.session, given, x.dtype))
        with x.turn:
            return x.assign(elementwise(x, "add", x, everywhere), "push")
    if not len(where):
        return persist(x)
    added = np.ascontiguousarray(np.broadcast_to(given, where.shape), x.dtype)
    with x.turn:
        source = buffer_of(x)
        with measured(x.session.counters), uninterrupted():
            _add(x, source, where, added)
    return x


def _add(x: Handle, source: Buffer, where: npt.NDArray[np.int64], added: npt.NDArray[Any]) -> None:
    """Let ``x``, now ``source``, have ``added``: in the same memory if nobody else holds it."""
    session, type = x.session, source.type
    buffer, flight = session.new_buffer(type), Flight()
    with session.holders.changing(x, session.graph.leaf(buffer), flight) as is_alone:
        session.client.scatter_add(
            source.id, buffer.id, type, where, added, donate=is_alone, ended=flight.end
        )


def _length(x: Handle) -> int:
    if not x.ndim:
        raise TypeError("a scalar has no elements to name; read it with x.item(), add with x + 1")
    return len(x)


def _hint(indices: npt.NDArray[Any]) -> str:
    """What to type instead of ``indices`` that are none."""
    kind, value = indices.dtype.kind, indices.tolist()
    if kind in "iu":
        return f"; write [{value}]" if indices.ndim == 0 else "; write indices.ravel()"
    if isinstance(value, slice):
        return "; write range(start, stop), or no indices at all for all elements"
    if kind == "b":
        return (
            "; for masks: distvec.where(mask, x, y), or numpy.flatnonzero of a mask on the client"
        )
    return "; write indices.astype('int64')" if kind == "f" else ""


def as_indices(indices: Any, length: int) -> npt.NDArray[np.int64]:
    """``indices`` as int64 in ``0..length-1``; negative ones count from the end, as in NumPy."""
    given = np.asarray(indices)
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu" or given.ndim != 1:
        got = f"shape {given.shape} of dtype {given.dtype}"
        if given.ndim == 0:
            got = repr(indices)
        raise IndexError(f"indices must be a vector of integers, got {got}{_hint(given)}")
    result = given.astype(np.int64)
    low, high = int(result.min()), int(result.max())
    if low < -length or high >= length:
        bad = low if low < -length else high
        raise IndexError(f"index {bad} is out of bounds for a vector of length {length}")
    return np.where(result < 0, result + length, result) if low < 0 else result
