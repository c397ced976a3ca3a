"""Sets: which elements are among others, and what two arrays have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.creation import reshape
from distvec.array.functions import apply, full_like
from distvec.array.items import get_item
from distvec.array.moving.counting import as_vector, session_of
from distvec.array.moving.search import looked_up, searchsorted, small
from distvec.array.moving.sorting import sort
from distvec.array.operators import Arithmetic, elementwise
from distvec.graph.build import check_dtype

_FEW = 8
"""So many values are compared with one after the other: that fuses with what is around it."""
_BOOL = np.dtype(np.bool_)


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
    kind: Any = None,
) -> Any:  # fmt: skip
    """Where ``element`` is one of ``test_elements``; lazy.

    Elementwise if the client has these. On the servers they are sorted, each element finds its
    place among them, and is compared with what is there: a sort, a search and a gather.
    """
    session = session_of(element, test_elements, "isin")
    x = element.made() if isinstance(element, Arithmetic) else session.array(element)
    tested = test_elements
    if not isinstance(tested, Arithmetic):
        tested = np.asarray(list(tested) if isinstance(tested, set) else tested)
    if tested.size == 0:
        found = full_like(x, False, _BOOL)
    elif isinstance(tested, Arithmetic) and not tested.node.on_client:
        found = _in_one_dtype(x, tested, _among_sorted)
    else:
        found = _among_few(x, np.unique(small(tested)))
    return elementwise(x, "logical_not", found) if invert else found


def _among_few(x: Any, values: Any) -> Any:
    if len(values) > _FEW:
        return _in_one_dtype(x, values, _among_listed)
    found = None
    for value in values:
        equal = elementwise(x, "equal", x, value)
        found = equal if found is None else found | equal
    return found


def _in_one_dtype(x: Any, tested: Any, among: Callable[[Any, Any], Any]) -> Any:
    """``among`` of both in the dtype that they have in common.

    Of signed and unsigned integers NumPy says that this is float64, which does not tell the large
    ones apart. They are compared as unsigned ones, where ``x`` is what both dtypes have.
    """
    common = np.result_type(x.dtype, tested.dtype)
    if common.kind != "f" or x.dtype.kind + tested.dtype.kind not in ("iu", "ui"):
        kind = check_dtype(common)
        return among(x.astype(kind), tested.astype(kind))
    in_both = x >= 0 if x.dtype.kind == "i" else x <= np.iinfo(tested.dtype).max
    return in_both & among(x.astype(np.uint64), tested.astype(np.uint64))


def _among_listed(x: Any, values: Any) -> Any:
    return looked_up(x, "is_member", _BOOL, [np.sort(values)])


def _among_sorted(x: Any, tested: Any) -> Any:
    flat, ordered = as_vector(x.session, x), sort(as_vector(x.session, tested))
    place = elementwise(flat, "minimum", searchsorted(ordered, flat), len(ordered) - 1)
    found = apply("equal", get_item(ordered, place), flat)
    return found if x.ndim == 1 else reshape(found, x.shape)


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """What both have, sorted, each once; with ``return_indices`` where it is first in each."""
    ar1, ar2 = _vector(ar1, ar2), _vector(ar2, ar1)
    kind = check_dtype(np.result_type(ar1.dtype, ar2.dtype))
    if assume_unique:
        joined: Any = np.concatenate((ar1, ar2))
        order: Any = np.argsort(joined, stable=True)
        ordered = get_item(joined, order)
        twice = get_item(ordered, slice(1, None)) == get_item(ordered, slice(None, -1))
        common = get_item(get_item(ordered, slice(None, -1)), twice)
        if not return_indices:
            return common
        first, second = (get_item(order, part) for part in (slice(None, -1), slice(1, None)))
        return common, get_item(first, twice), get_item(second, twice) - ar1.size
    if not return_indices:
        first, second = _once(ar1), _once(ar2)
        return get_item(first, isin(first, second)).astype(kind)
    first, where = _once(ar1, return_index=True)
    second, there = _once(ar2, return_index=True)
    mask = isin(first, second)
    common = get_item(first, mask)
    wanted = common if common.dtype.kind == "f" else common.astype(second.dtype)
    places = get_item(there, searchsorted(second, wanted))
    return common.astype(kind), get_item(where, mask), places


def union1d(ar1: Any, ar2: Any) -> Any:
    """What one of both has, sorted, each once."""
    return np.unique(np.concatenate((_vector(ar1, ar2), _vector(ar2, ar1))))


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """What the first has and the second has not, sorted, each once."""
    session_of(ar1, ar2, "setdiff1d")
    first = _vector(ar1, ar2) if assume_unique else _once(_vector(ar1, ar2))
    return get_item(first, isin(first, ar2, invert=True))


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """What one of both alone has, sorted, each once."""
    first, second = _vector(ar1, ar2), _vector(ar2, ar1)
    if assume_unique:
        ordered: Any = np.sort(np.concatenate((first, second)))
        if not ordered.size:
            return ordered
        change = get_item(ordered, slice(1, None)) != get_item(ordered, slice(None, -1))
        end = np.ones(1, bool, like=ordered)
        return get_item(ordered, np.concatenate((end, change)) & np.concatenate((change, end)))
    first, second = _once(first), _once(second)
    alone = (get_item(one, isin(one, other, invert=True)) for one, other in
             ((first, second), (second, first)))  # fmt: skip
    return np.sort(np.concatenate([one.made() for one in alone]))


def _vector(x: Any, other: Any) -> Any:
    return as_vector(session_of(x, other, "a set"), x)


def _once(x: Any, **also: bool) -> Any:
    return np.unique(x, **also)  # type: ignore[call-overload]


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {
        np.isin: isin,
        np.intersect1d: intersect1d,
        np.union1d: union1d,
        np.setdiff1d: setdiff1d,
        np.setxor1d: setxor1d,
    }
