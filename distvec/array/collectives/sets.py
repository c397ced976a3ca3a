"""Sets: the distinct elements of an array, and operations on two sets.

The elements are sorted, and the servers mark the first of equal ones; the marked elements are the
result, a boolean-mask selection. Their number is known after an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.collectives.core import as_vector, common_session, scatter
from distvec.array.collectives.scan import cumulative_sum
from distvec.array.collectives.search import look_up, read_table, searchsorted
from distvec.array.collectives.sort import lexsort, sort, sort_on_servers
from distvec.array.core.operators import Arithmetic, as_array, elementwise
from distvec.array.core.shapes import reshape
from distvec.array.elementwise import apply, full_like, zeros_like
from distvec.array.indexing.getitem import get_item
from distvec.array.manipulation.join import concatenate, row_index
from distvec.array.reductions import any as any_of
from distvec.array.transposed import supports_column_split
from distvec.graph.build import check_dtype
from ps_backend.program.collectives import ASSIGN

_INDEX, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


class UniqueAll(NamedTuple):
    """Distinct elements, their first indices, the inverse, and the counts."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct elements and their counts."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct elements and the inverse."""

    values: Any
    inverse_indices: Any


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: Any = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """Return the distinct elements in order; with ``axis=0`` the distinct rows: ``numpy.unique``.

    On request also first indices, inverse and counts. Two requests per server; one more that
    counts them if their number is needed, one that compacts them. Indices need a sort of pairs;
    the inverse needs a scan and a scatter as well.
    """
    x = as_array("unique", ar).materialized()
    takes_order = return_index or return_inverse
    if axis is not None and normalize_axis_index(axis, x.ndim) + x.ndim > 1:
        if axis % x.ndim:
            raise NotImplementedError(
                "unique: axis must be 0 or None; for columns write numpy.unique(x.T, axis=0)"
            )
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
    """Return the elements in order, on request their indices, and marks of first ones."""
    if not len(x):
        return x, zeros_like(x, _INDEX), zeros_like(x, _BOOL)
    values, order, starts = sort_on_servers(x, len(x), False, True)
    if not equal_nan and x.dtype.kind == "f":
        starts = elementwise(starts, "logical_or", starts, elementwise(values, "isnan", values))
    return values, order if takes_order else None, starts  # unwanted outputs are not computed


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
    """Return for each element the number of its distinct value."""
    numbers = cumulative_sum(starts.astype(_INDEX)) - 1
    return scatter(zeros_like(order), ASSIGN, order, numbers)


def _counts(starts: Any) -> Any:
    """How far it is from each start to the next one."""
    places = get_item(row_index(starts, len(starts)), starts).materialized()
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


_FEW = 8
"""So many values are compared with one after the other: that fuses with what is around it."""
_BOOL = np.dtype(np.bool_)


@supports_column_split()
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
    kind: Any = None,
) -> Any:  # fmt: skip
    """Test whether each element is one of ``test_elements``; lazy.

    Elementwise if these are on the client. On the servers they are sorted, and each element is
    compared with the element at its place among them: a sort, a search and a gather.
    """
    session = common_session(element, test_elements, "isin")
    x = element.materialized() if isinstance(element, Arithmetic) else session._put(element)
    tested = test_elements
    if not isinstance(tested, Arithmetic):
        tested = np.asarray(list(tested) if isinstance(tested, set) else tested)
    if tested.size == 0:
        found = full_like(x, False, _BOOL)
    elif isinstance(tested, Arithmetic) and not tested.node.on_client:
        found = _in_one_dtype(x, tested, _among_sorted)
    else:
        found = _among_few(x, np.unique(read_table(tested)))
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
    return look_up(x, "is_member", _BOOL, [np.sort(values)])


def _among_sorted(x: Any, tested: Any) -> Any:
    flat, ordered = as_vector(x.session, x), sort(as_vector(x.session, tested))
    place = elementwise(flat, "minimum", searchsorted(ordered, flat), len(ordered) - 1)
    found = apply("equal", get_item(ordered, place), flat)
    return found if x.ndim == 1 else reshape(found, x.shape)


def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """Return the sorted distinct elements of both, and on request their first places."""
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
    """Return the sorted distinct elements of at least one of both."""
    return np.unique(np.concatenate((_vector(ar1, ar2), _vector(ar2, ar1))))


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """Return the sorted distinct elements of the first that are not in the second."""
    common_session(ar1, ar2, "setdiff1d")
    first = _vector(ar1, ar2) if assume_unique else _once(_vector(ar1, ar2))
    return get_item(first, isin(first, ar2, invert=True))


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """Return the sorted distinct elements of exactly one of both."""
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
    return np.sort(np.concatenate([one.materialized() for one in alone]))


def _vector(x: Any, other: Any) -> Any:
    return as_vector(common_session(x, other, "a set"), x)


def _once(x: Any, **also: bool) -> Any:
    return np.unique(x, **also)  # type: ignore[call-overload]
