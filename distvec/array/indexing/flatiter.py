"""``x.flat``: the elements of an array row by row, as NumPy's flat iterator has them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from distvec.array.core import conversion
from distvec.array.core.operators import Arithmetic
from distvec.array.indexing.getitem import get_item
from distvec.array.indexing.setitem import set_item


class Flat:
    """The elements of ``base`` as a vector that is read, and written into ``base``; lazy."""

    __slots__ = ("base",)

    def __init__(self, base: Any) -> None:
        self.base = base
        """The array whose elements these are."""

    def __len__(self) -> int:
        size: int = self.base.size
        return size

    def __getitem__(self, key: Any) -> Any:
        found = get_item(self._vector(), _check_key(key))
        return found.copy() if found.is_readonly_slice else found

    def __setitem__(self, key: Any, value: Any) -> None:
        with getattr(self.base, "table", self.base).write_lock:
            changed = self._vector().copy()
            _set(changed, _check_key(key), value)
            np.copyto(self.base, np.reshape(changed, self.base.shape))

    def __iter__(self) -> Iterator[Any]:
        return conversion.iterate(self._vector())

    def copy(self) -> Any:
        """The elements as a vector; lazy."""
        return self._vector()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self._vector(), dtype=dtype, copy=copy)

    def _vector(self) -> Any:
        return np.ravel(self.base)


def _check_key(key: Any) -> Any:
    """``key``, which makes no axes here. ``IndexError`` for one that would, as NumPy's."""
    if isinstance(key, tuple) and len(key) == 1:
        (key,) = key
    if isinstance(key, bool):
        warnings.warn(
            "Indexing flat iterators with a 0-dimensional boolean index is deprecated by NumPy; "
            "write x.flat[0], or x.flat[:0]",
            DeprecationWarning,
            stacklevel=3,
        )
        return 0 if key else slice(0, 0)
    if key is None or isinstance(key, tuple | np.bool_):
        raise IndexError(
            f"x.flat is a vector: it takes an integer, a slice, an ellipsis, indices or a mask, "
            f"got {key!r}"
        )
    return key


def _set(vector: Any, key: Any, value: Any) -> None:
    """``vector[key] = value``; several values one after the other, and again from the first."""
    if not np.ndim(value) or isinstance(key, int | np.integer):
        set_item(vector, key, value)
        return
    values: Any = np.ravel(value)
    if not values.size:
        return
    if key is Ellipsis or isinstance(key, slice):
        count = len(range(vector.size)[slice(None) if key is Ellipsis else key])
        set_item(vector, key, values if values.size == count else np.resize(values, count))
    elif (key if hasattr(key, "dtype") else np.asarray(key)).dtype == np.bool_:
        np.place(vector, key, values)
    else:
        np.put(vector, key, values)


def flat_of(x: Arithmetic) -> Flat:
    """Return the elements row by row as a vector that can be read and written.

    Parameters
    ----------
    x : DistArray
        Vector or table.

    Returns
    -------
    Flat
        View like ``numpy.ndarray.flat``: index it, assign to it, or iterate over it.

    Examples
    --------
    >>> x = ps.array([[1, 2], [3, 4]])
    >>> x.flat[2]
    DistArray(3, dtype=int64, shape=())
    >>> x.flat[0] = 10
    >>> x
    DistArray([[10,  2],
               [ 3,  4]], dtype=int64, shape=(2, 2))
    """
    return Flat(x)


def set_flat(x: Any, value: Any) -> None:
    """``x.flat = value``: every element, from as many or from one."""
    Flat(x)[:] = value
