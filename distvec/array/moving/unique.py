"""What elements there are, each once: ``np.unique`` and its kin.

The elements are sorted; the servers mark where another one begins, and what is marked is the
result, a selection. How many these are nobody knows before: their number is an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.creation import reshape
from distvec.array.functions import zeros_like
from distvec.array.items import get_item
from distvec.array.moving.counting import as_vector
from distvec.array.moving.scans import cumulative_sum
from distvec.array.moving.scatter import ASSIGN, scattered
from distvec.array.moving.sorting import lexsort, moved
from distvec.array.operators import elementwise
from distvec.array.reductions import any as any_of
from distvec.array.shaping.joining import concatenate
from distvec.array.statistics import as_array

_INDEX, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


class UniqueAll(NamedTuple):
    """What elements there are, where each is first, which of them each is, how often each is."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What elements there are, and how often each is."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What elements there are, and which of them each is."""

    values: Any
    inverse_indices: Any


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: Any = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """The elements in order, each once; with ``axis=0`` the rows of a table: ``numpy.unique``.

    Also where each is first, which of them each is, how often each is. Two messages to each server;
    one that counts them where their number is needed, one that puts them together. Indices take a
    sort of pairs; the inverse besides a scan and a scatter.
    """
    x = as_array("unique", ar).made()
    takes_order = return_index or return_inverse
    if axis is not None and normalize_axis_index(axis, x.ndim) + x.ndim > 1:
        if axis % x.ndim:
            raise NotImplementedError("unique: only rows, axis=0; of columns take those of x.T")
        values, order, starts = _rows_in_order(x)
    else:
        values, order, starts = _in_order(as_vector(x.session, x), takes_order, equal_nan)
    found = [get_item(values, starts)]
    if return_index:
        found.append(get_item(order, starts))
    if return_inverse:
        inverse = _inverse(order, starts)
        found.append(inverse if axis is not None else reshape(inverse, x.shape))
    if return_counts:
        found.append(_counts(starts))
    return found[0] if len(found) == 1 else tuple(found)


def _in_order(x: Any, takes_order: bool, equal_nan: bool) -> tuple[Any, Any, Any]:
    """The elements of a vector in order, their indices if wanted, and where another one begins."""
    if not len(x):
        return x, zeros_like(x, _INDEX), zeros_like(x, _BOOL)
    values, order, starts = moved(x, len(x), False, True)
    if not equal_nan and x.dtype.kind == "f":
        starts = elementwise(starts, "logical_or", starts, elementwise(values, "isnan", values))
    return values, order if takes_order else None, starts  # nobody holds what is not wanted


def _rows_in_order(x: Any) -> tuple[Any, Any, Any]:
    """The same of the rows of a table, of which the first element counts first."""
    if not len(x):
        nothing = get_item(x, (slice(None), 0))
        return x, zeros_like(nothing, _INDEX), zeros_like(nothing, _BOOL)
    order = lexsort([get_item(x, (slice(None), k)) for k in reversed(range(x.shape[1]))])
    rows = get_item(x, order)
    later, earlier = get_item(rows, slice(1, None)), get_item(rows, slice(None, -1))
    changes = any_of(elementwise(rows, "not_equal", later, earlier), axis=1)
    return rows, order, concatenate([np.ones(1, _BOOL), changes])


def _inverse(order: Any, starts: Any) -> Any:
    """Of each element the number of what it is."""
    numbers = cumulative_sum(starts.astype(_INDEX)) - 1
    return scattered(zeros_like(order), ASSIGN, order, numbers)


def _counts(starts: Any) -> Any:
    """How far it is from each start to the next one."""
    places = get_item(starts.session.arange(len(starts)), starts).made()
    after = concatenate([get_item(places, slice(1, None)), np.array([len(starts)])])
    return after - places


def unique_all(x: Any, /) -> UniqueAll:
    """As ``numpy.unique_all``; each NaN is an element of its own."""
    return UniqueAll(*unique(x, True, True, True, equal_nan=False))


def unique_counts(x: Any, /) -> UniqueCounts:
    """As ``numpy.unique_counts``; each NaN is an element of its own."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """As ``numpy.unique_inverse``; each NaN is an element of its own."""
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False))


def unique_values(x: Any, /) -> Any:
    """As ``numpy.unique_values``, in order; each NaN is an element of its own."""
    return unique(x, equal_nan=False)


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.unique: unique,
        np.unique_all: unique_all,
        np.unique_counts: unique_counts,
        np.unique_inverse: unique_inverse,
        np.unique_values: unique_values,
    }
