"""Arrays made in a session, with the parameters of the array API standard."""

from __future__ import annotations

from typing import Any

import numpy as np

from distvec.array import elementwise
from distvec.array.core.handle import SessionBase
from distvec.array.core.operators import Arithmetic
from distvec.array.standard.given import check_given
from distvec.array.standard.info import check_device


class Creation:
    """The functions that put arrays into one session. Lazy but for what takes values along."""

    def __init__(self, session: SessionBase) -> None:
        self._session: Any = session

    def arange(
        self,
        start: float,
        /,
        stop: float | None = None,
        step: float = 1,
        *,
        dtype: Any = None,
        device: Any = None,
    ) -> Any:
        """Evenly spaced values in ``[start, stop)``."""
        check_device(device)
        return self._session.arange(start, stop, step, dtype)

    def asarray(
        self, obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
    ) -> Any:
        """``obj`` as an array of this session: itself if it is one, in that dtype.

        ``ValueError`` with ``copy=False`` where it would have to be copied.
        """
        check_device(device)
        here = isinstance(obj, Arithmetic) and obj.session is self._session
        if here and copy is not True and (dtype is None or np.dtype(dtype) == obj.dtype):
            return obj
        if copy is False:
            why = f"from {obj.dtype} to {dtype}" if here else f"of a {type(obj).__name__}"
            raise ValueError(f"asarray: {why} needs a copy; leave out copy=False")
        if here and obj.is_split_by_columns:
            return obj.copy() if dtype is None else obj.astype(dtype)
        return self._session.array(obj, dtype)

    def empty(self, shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
        """Zeros: lazily made, they cost no more than memory without values."""
        check_device(device)
        return self._session.empty(shape, dtype)

    def eye(
        self,
        n_rows: int,
        n_cols: int | None = None,
        /,
        *,
        k: int = 0,
        dtype: Any = None,
        device: Any = None,
    ) -> Any:
        """A table with ones on its ``k``-th diagonal."""
        check_device(device)
        return self._session.eye(n_rows, n_cols, k=k, dtype=dtype)

    def from_dlpack(self, x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
        """What another library has on this machine, as an array of this session.

        ``BufferError`` with ``copy=False`` unless it is one: servers have memory of their own.
        """
        check_device(device)
        if isinstance(x, Arithmetic) and x.session is self._session:
            return x.copy() if copy else x
        if copy is False:
            raise BufferError("from_dlpack: the servers take a copy; leave out copy=False")
        return self._session.array(np.from_dlpack(x))

    def full(self, shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
        """``fill_value`` everywhere."""
        check_device(device)
        return self._session.full(shape, fill_value, dtype)

    def linspace(
        self,
        start: float,
        stop: float,
        /,
        num: int,
        *,
        dtype: Any = None,
        device: Any = None,
        endpoint: bool = True,
    ) -> Any:
        """``num`` evenly spaced values from ``start`` to ``stop``."""
        check_device(device)
        return self._session.linspace(start, stop, num, endpoint=endpoint, dtype=dtype)

    def ones(self, shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
        """Ones."""
        check_device(device)
        return self._session.ones(shape, dtype)

    def zeros(self, shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
        """Zeros."""
        check_device(device)
        return self._session.zeros(shape, dtype)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros in the shape of ``x``."""
    check_device(device)
    return elementwise.empty_like(x, dtype)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """``fill_value`` in the shape of ``x``."""
    check_device(device)
    return elementwise.full_like(x, fill_value, dtype)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones in the shape of ``x``."""
    check_device(device)
    return elementwise.ones_like(x, dtype)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros in the shape of ``x``."""
    check_device(device)
    return elementwise.zeros_like(x, dtype)


def tril(x: Any, /, *, k: int = 0) -> Any:
    """``x`` with zeros above its ``k``-th diagonal."""
    check_given("tril", x)
    return np.tril(x, k)


def triu(x: Any, /, *, k: int = 0) -> Any:
    """``x`` with zeros below its ``k``-th diagonal."""
    check_given("triu", x)
    return np.triu(x, k)
