"""Arrays cut into pieces along an axis: views, which cost nothing until they are used."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.items import get_item
from distvec.array.pieces import FEW
from distvec.array.shaping.turning import part


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """``ary`` in so many pieces, the first ones longer by one, or cut before the indices."""
    along = normalize_axis_index(axis, ary.ndim)
    length = ary.shape[along]
    if np.ndim(indices_or_sections):
        cuts = [operator.index(one) for one in indices_or_sections]
        return [part(ary, along, low, high) for low, high in pairwise((0, *cuts, None))]
    count = int(indices_or_sections)
    if count <= 0:
        raise ValueError("number sections must be larger than 0.")
    size, longer = divmod(length, count)
    cuts = [k * size + min(k, longer) for k in range(count + 1)]
    return [part(ary, along, low, high) for low, high in pairwise(cuts)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """As ``array_split``, but pieces of one length; ``ValueError`` where that cannot be."""
    along = normalize_axis_index(axis, ary.ndim)
    if not np.ndim(indices_or_sections) and ary.shape[along] % int(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """A table cut between columns, a vector between elements."""
    if ary.ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, min(1, ary.ndim - 1))


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """A table cut between rows."""
    if ary.ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """``ValueError`` as NumPy's: there are no arrays of rank 3."""
    raise ValueError("dsplit only works on arrays of 3 or more dimensions")


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The columns of a table, ``axis=1``, as vectors; the rows, or elements, as lazy values that
    the client keeps, at most ``FEW``.
    """
    along = normalize_axis_index(axis, x.ndim)
    count = x.shape[along]
    if count > FEW:
        raise NotImplementedError(
            f"unstack: {count} arrays of one row each, at most {FEW}; split the array into fewer "
            f"pieces by numpy.array_split"
        )
    return tuple(get_item(x, (slice(None),) * along + (k,)) for k in range(count))


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.array_split: array_split,
        np.split: split,
        np.hsplit: hsplit,
        np.vsplit: vsplit,
        np.dsplit: dsplit,
        np.unstack: lambda x, /, *, axis=0: unstack(x, axis=axis),
    }
