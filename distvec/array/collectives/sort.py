"""Elements in order, along an axis: ``sort``, ``argsort``, ``partition``, ``top_k``, ``lexsort``.

Along axis 0 each server sorts its part, then fetches its share of the other parts and merges
them. NaN is the largest; the first of equal elements comes first. Along the rows of a table no
data is transferred.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from distvec.array.collectives.core import collective
from distvec.array.core.handle import check_not_slice, make
from distvec.array.core.operators import A, Arithmetic
from distvec.array.core.shapes import full, reshape
from distvec.array.elementwise import array_among
from distvec.array.indexing.getitem import get_item
from distvec.array.transposed import supports_column_split
from ps_backend.program.collectives import ORDER, SORT, STARTS, VALUES
from ps_backend.program.spaces import DenseSpace
from ps_backend.program.types import array_type

_INDEX, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)
_NAMES = {VALUES: "sort", ORDER: "argsort"}


def sort(x: Any, /, *, axis: Any = -1, descending: bool = False, stable: bool = True) -> Any:
    """Return the elements in order along ``axis``; lazy.

    Two requests per server along axis 0. -0.0 comes before 0.0.
    """
    return _sort_along(x, VALUES, axis, descending)


def argsort(x: Any, /, axis: Any = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """Return the int64 indices that sort along ``axis``; equal elements stay in order; lazy.

    Two requests per server along axis 0.
    """
    return _sort_along(x, ORDER, axis, descending)


def sort_in_place(
    x: Arithmetic,
    axis: int = -1,
    kind: str | None = None,
    order: None = None,
    *,
    stable: bool | None = None,
) -> None:
    """Sort the array in place, like ``numpy.ndarray.sort``.

    Parameters
    ----------
    x : DistArray
        Array that is rebound to its sorted elements.
    axis : int, default -1
        Axis to sort along.
    kind : str, optional
        Accepted for compatibility with NumPy; the sort is always stable.
    order : None, optional
        Must be None: arrays have no fields.
    stable : bool, optional
        Accepted for compatibility with NumPy; the sort is always stable.

    Raises
    ------
    ValueError
        If ``x`` is a slice of another array: the other array would not change.

    See Also
    --------
    numpy.ndarray.sort : The same method of arrays on the client.

    Notes
    -----
    Lazy. Along axis 0 the evaluation takes two requests per server. NaN comes last.

    Examples
    --------
    >>> x = ps.array([3.0, 1.0, 2.0])
    >>> x.sort()
    >>> x
    DistArray([1., 2., 3.], dtype=float64, shape=(3,))
    """
    check_not_slice(x)
    _check_kind(kind, order, stable)
    if axis is None:
        raise TypeError("'NoneType' object cannot be interpreted as an integer")
    with x.write_lock:
        x.assign(sort(x, axis=axis), "sort")


def argsort_method(
    x: A, axis: int | None = -1, kind: str | None = None, order: None = None, *, stable: bool |
    None = None, descending: bool = False,
) -> A:  # fmt: skip
    """Return the indices that sort the array.

    Parameters
    ----------
    x : DistArray
        Array to sort.
    axis : int, default -1
        Axis to sort along. None sorts the flattened array.
    kind : str, optional
        Accepted for compatibility with NumPy; the sort is always stable.
    order : None, optional
        Must be None: arrays have no fields.
    stable : bool, optional
        Accepted for compatibility with NumPy; the sort is always stable.
    descending : bool, default False
        Whether the largest element comes first.

    Returns
    -------
    DistArray
        Lazy int64 array of the shape of ``x``.

    See Also
    --------
    numpy.argsort : The same function of arrays on the client.

    Notes
    -----
    Along axis 0 the evaluation takes two requests per server. Equal elements keep their order.

    Examples
    --------
    >>> ps.array([3.0, 1.0, 2.0]).argsort()
    DistArray([1, 2, 0], dtype=int64, shape=(3,))
    """
    _check_kind(kind, order, stable)
    return argsort(at_least_vector(x), axis, descending=descending)  # type: ignore[no-any-return]


def at_least_vector(x: Any) -> Any:
    """``x``; a number as a vector of one element, as NumPy sees it here."""
    return x if x.ndim else reshape(x, (1,))


def partition(
    a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None
) -> Any:
    """As ``numpy.partition``: the elements in order are a partition at any ``kth``. As ``sort``."""
    _check_kth(a, kth, axis, order)
    return sort(a, axis=axis)


def argpartition(
    a: A,
    kth: int | Sequence[int],
    axis: int | None = -1,
    kind: str = "introselect",
    order: None = None,
) -> A:
    """Return the indices that partition the array.

    Parameters
    ----------
    a : DistArray
        Array to partition.
    kth : int or sequence of int
        Places that must hold the element of their sorted position.
    axis : int, default -1
        Axis to partition along. None uses the flattened array.
    kind : str, default "introselect"
        Accepted for compatibility with NumPy; has no effect.
    order : None, optional
        Must be None: arrays have no fields.

    Returns
    -------
    DistArray
        Lazy int64 array of the shape of ``a``: the indices that sort it.

    Raises
    ------
    ValueError
        If a place in ``kth`` is out of bounds.

    See Also
    --------
    numpy.argpartition : The same function of arrays on the client.

    Examples
    --------
    >>> ps.array([3.0, 1.0, 2.0]).argpartition(1)
    DistArray([1, 2, 0], dtype=int64, shape=(3,))
    """
    a = at_least_vector(a)
    _check_kth(a, kth, axis, order)
    return argsort(a, axis)  # type: ignore[no-any-return]


def partition_in_place(
    x: Arithmetic,
    kth: int | Sequence[int],
    axis: int = -1,
    kind: str = "introselect",
    order: None = None,
) -> None:
    """Partition the array in place, like ``numpy.ndarray.partition``.

    Parameters
    ----------
    x : DistArray
        Array that is rebound to its partitioned elements.
    kth : int or sequence of int
        Places that must hold the element of their sorted position.
    axis : int, default -1
        Axis to partition along.
    kind : str, default "introselect"
        Accepted for compatibility with NumPy; has no effect.
    order : None, optional
        Must be None: arrays have no fields.

    Raises
    ------
    ValueError
        If a place in ``kth`` is out of bounds.

    Notes
    -----
    The array is sorted, which is a partition at every place.

    Examples
    --------
    >>> x = ps.array([3.0, 1.0, 2.0])
    >>> x.partition(1)
    >>> x
    DistArray([1., 2., 3.], dtype=float64, shape=(3,))
    """
    _check_kth(x, kth, axis, order)
    sort_in_place(x, axis)


def top_k(
    x: Arithmetic | npt.ArrayLike, k: int, /, *, axis: int = -1, largest: bool = True
) -> tuple[Any, ...]:
    """Return the ``k`` largest or smallest elements, and their indices.

    Parameters
    ----------
    x : DistArray or numpy.ndarray
        Vector or table.
    k : int
        Number of elements, from 0 to the length of the axis.
    axis : int, default -1
        Axis to select along.
    largest : bool, default True
        False selects the smallest elements.

    Returns
    -------
    values : DistArray or numpy.ndarray
        The elements, in descending order; in ascending order for ``largest=False``.
    indices : DistArray or numpy.ndarray
        Their int64 indices along ``axis``.

    Raises
    ------
    ValueError
        If ``k`` is negative or exceeds the length of the axis.

    Notes
    -----
    Lazy for arrays on the servers. NaN counts as the largest element; of equal elements the first
    ones are selected. Along axis 0 the evaluation takes two requests per server, and each server
    sends at most ``k`` elements. Floats of a vector need one more request.

    Examples
    --------
    >>> values, indices = dv.top_k(ps.array([3.0, 1.0, 5.0]), 2)
    >>> values.numpy(), indices.numpy()
    (array([5., 3.]), array([2, 0]))
    """
    if not isinstance(x, Arithmetic):
        return _top_k_of_numpy(np.asarray(x), k, axis, largest)
    axis = _axis(x, axis)
    count = _checked_count(k, x.shape[axis])
    x = x.materialized()
    if not _moves(x, axis):
        first = (slice(None),) * axis + (slice(count),)
        found = (_sort_along(x, number, axis, largest) for number in (VALUES, ORDER))
        return tuple(get_item(one, first) for one in found)
    if not count:
        shape = (0, *x.shape[1:])
        return tuple(full(x, shape, 0, dtype) for dtype in (x.dtype, _INDEX))
    values, order, _ = sort_on_servers(x, count, largest, True)
    return (get_item(x, order) if x.dtype.kind == "f" and x.ndim == 1 else values), order


def lexsort(keys: Any, axis: Any = -1) -> Any:
    """As ``numpy.lexsort``: the last of the vectors ``keys`` counts first; lazy.

    A sort for each key, and as many gathers less one.
    """
    is_table = isinstance(keys, Arithmetic) and keys.ndim == 2
    given = [get_item(keys, k) for k in range(len(keys))] if is_table else list(keys)
    if not given:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    like = array_among("lexsort", tuple(given))
    arrays = [one if isinstance(one, Arithmetic) else like.session._put(one) for one in given]
    if any(one.shape != arrays[0].shape for one in arrays):
        raise ValueError("all keys need to be the same shape")
    if arrays[0].ndim != 1:
        raise NotImplementedError("lexsort: keys must be vectors; give the columns one by one")
    _axis(arrays[0], axis)
    order = argsort(arrays[0])
    for key in arrays[1:]:
        order = get_item(order, argsort(get_item(key, order)))
    return order


@supports_column_split(unnamed=NotImplemented)
def _sort_along(x: Any, number: int, axis: Any, descending: bool) -> Any:
    x = array_among(_NAMES[number], (x,)).materialized()
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    over = _axis(x, axis)
    dtype = x.dtype if number == VALUES else _INDEX
    if _moves(x, over):
        if not len(x):
            return full(x, x.shape, 0, dtype)
        return sort_on_servers(x, len(x), descending, number == ORDER)[number]
    name, type = _NAMES[number], x.node.type.of(dtype)
    if type.on_client:
        return make(x, "client.sort", (x,), type, (name, over, descending))
    return make(x, f"row_{name}", (x,), type, (int(descending), 1))


def sort_on_servers(x: Any, length: int, descending: bool, equal_zeros: bool) -> list[Any]:
    """Return the first ``length`` elements in order, their indices, and marks of first ones.

    -0.0 comes before 0.0, or they are equal, and come out as 0.0.
    """
    space = DenseSpace(length)
    dtypes = {VALUES: x.dtype, ORDER: _INDEX, STARTS: _BOOL}
    types = [array_type(space, dtype, x.node.type.row) for dtype in dtypes.values()]
    return collective(SORT, [x], [], types, (int(descending), int(equal_zeros)))


def _moves(x: Any, axis: int) -> bool:
    """Whether elements change place between servers when they are put in order along ``axis``."""
    return axis == 0 and not x.node.on_client


def _axis(x: Any, axis: Any) -> int:
    return normalize_axis_index(operator.index(axis), x.ndim)


def _checked_count(k: Any, length: int) -> int:
    count = operator.index(k)
    if not 0 <= count <= length:
        raise ValueError(
            f"top_k: k must be between 0 and {length}, the length of the axis; got {count}"
        )
    return count


def _top_k_of_numpy(x: Any, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    count = _checked_count(k, x.shape[axis])
    if largest:
        backwards = np.argsort(np.flip(x, axis), axis=axis, stable=True)
        order = x.shape[axis] - 1 - np.flip(backwards, axis)
    else:
        order = np.argsort(x, axis=axis, stable=True)
    indices = np.take(order, np.arange(count), axis=axis)
    return np.take_along_axis(x, indices, axis), indices


def _check_kind(kind: Any, order: Any, stable: Any) -> None:
    """Errors as NumPy's; a stable sort is any kind of sort."""
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")
    if kind is not None and stable is not None:
        raise ValueError("`kind` and `stable` parameters can't be provided at the same time.")
    if kind is not None and str(kind)[:1].lower() not in ("q", "h", "m", "s"):
        raise ValueError(f"sort kind must be one of 'quick', 'heap', or 'stable' (got {kind!r})")


def _check_kth(x: Any, kth: Any, axis: Any, order: Any) -> None:
    """``ValueError`` as NumPy's for places that ``x`` has not along ``axis``."""
    _check_kind(None, order, None)
    length = x.size if axis is None else x.shape[_axis(x, axis)]
    places = np.atleast_1d(np.asarray(kth))
    if places.dtype.kind not in "iu":
        raise TypeError("Partition index must be integer")
    for one in places.ravel():
        if x.size and not -length <= one < length:  # NumPy accepts any place of an empty array
            raise ValueError(f"kth(={one}) out of bounds ({length})")


def numpy_sort(
    a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    """As ``numpy.sort``."""
    _check_kind(kind, order, stable)
    return sort(a, axis=axis)
