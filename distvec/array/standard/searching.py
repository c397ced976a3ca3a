"""Sorting, searching, sets and elements by index, as the array API standard has them; lazy."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array import elementwise
from distvec.array.collectives import sort as sorting
from distvec.array.standard.given import check_given
from distvec.array.take_put import take as _take


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The indices that sort ``x`` along ``axis``; equal elements stay in order."""
    return sorting.argsort(x, axis=axis, descending=descending, stable=stable)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements along ``axis`` in order; NaN is the largest."""
    return sorting.sort(x, axis=axis, descending=descending, stable=stable)


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """For each axis the indices of the elements that are not zero; a selection of a vector's."""
    check_given("nonzero", x)
    return tuple(np.nonzero(x))


def searchsorted(x1: Any, x2: Any, /, *, side: Any = "left", sorter: Any = None) -> Any:
    """Where to put the elements of ``x2`` into ``x1``, a vector in order, so that it stays so."""
    check_given("searchsorted", x1, x2)
    return np.searchsorted(x1, x2, side, sorter)


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """``x1`` where ``condition`` is true, ``x2`` elsewhere."""
    return elementwise.where(condition, x1, x2)


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """Elements, rows or columns at ``indices``, a vector; without an axis those of a vector."""
    if axis is None and x.ndim != 1:
        raise ValueError(f"take: say an axis of the array, which has {x.ndim}")
    return _take(x, indices, axis)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Of each vector along ``axis`` the elements at the indices that stand in its place."""
    check_given("take_along_axis", x)
    return np.take_along_axis(x, indices, axis)


def unique_all(x: Any, /) -> Any:
    """What elements there are; where each is first; where each element's is; how often each is."""
    check_given("unique_all", x)
    return np.unique_all(x)


def unique_counts(x: Any, /) -> Any:
    """What elements there are, and how often each is."""
    check_given("unique_counts", x)
    return np.unique_counts(x)


def unique_inverse(x: Any, /) -> Any:
    """What elements there are, and which of them each element is."""
    check_given("unique_inverse", x)
    return np.unique_inverse(x)


def unique_values(x: Any, /) -> Any:
    """What elements there are."""
    check_given("unique_values", x)
    return np.unique_values(x)
