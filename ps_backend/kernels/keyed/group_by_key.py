"""Keys that are given more than once: the different ones, and what is given for each, joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ps_backend.kernels.collectives.sorting import find_order
from ps_backend.kernels.numpy_loops import address_of

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

COMPILED_FROM = 1 << 12
"""Keys from which on compiled loops are used: for fewer a client need not wait for numba."""
_SIGN = np.uint64(1 << 63)
_UFUNCS = {"add": np.add, "min": np.minimum, "max": np.maximum}
_IN_ORDER = ("float64", "float32")
"""Sums that depend on the order: they are computed in that of the rows, by compiled loops."""


def group_rows(keys: Integers, values: Array, op: str) -> tuple[Integers, Array, Integers]:
    """The different ones of ``keys``, ascending; a row for each; and where each given one is.

    ``values``: a row for each of ``keys``. See ``join_rows``.
    """
    different, inverse = unique_keys(keys)
    return different, join_rows(inverse, len(different), values, op), inverse


def unique_keys(keys: Integers) -> tuple[Integers, Integers]:
    """The different ones of int64 ``keys``, ascending, and where among them each given one is."""
    if len(keys) < COMPILED_FROM:
        different, inverse = np.unique(keys, return_inverse=True)
        return different, inverse
    unsigned, order = keys.view(np.uint64) ^ _SIGN, np.empty(len(keys), np.uint64)
    find_order(unsigned, order)
    places = order.view(np.int64)
    ordered = keys[places]
    is_first = np.empty(len(keys), np.bool_)
    is_first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    rank = np.cumsum(is_first, dtype=np.int64) - 1
    inverse = np.empty(len(keys), np.int64)
    inverse[places] = rank
    return ordered[is_first], inverse


def join_rows(inverse: Integers, count: int, values: Array, op: str) -> Array:
    """A row for each of ``count`` keys: those of ``values`` whose ``inverse`` it is, joined.

    One after the other, as they come, so floats have the same bits each time. ``op``: "add", "min",
    "max", or "replace", of which the last row stays. Each key has one row at least.
    """
    places = np.arange(len(inverse))
    which = np.empty(count, np.int64)
    if op == "replace":
        which[inverse] = places  # of several the last one is assigned last
        return np.asarray(values[which])
    which[inverse[::-1]] = places[::-1]
    if op == "add" and values.dtype.name in _IN_ORDER and len(inverse) >= COMPILED_FROM:
        from ps_backend.kernels.keyed.compiled_rows import sum_rows

        values = np.ascontiguousarray(values)
        out = np.full((count, *values.shape[1:]), -0.0, values.dtype)  # -0.0 + x is x
        where = address_of(inverse), len(inverse), values[:1].nbytes
        sum_rows(*where, address_of(values), address_of(out), values.dtype.type(0))
        return out
    out = values[which]
    others = np.ones(len(inverse), np.bool_)
    others[which] = False
    _UFUNCS[op].at(out, inverse[others], values[others])
    return out
