"""What else tables that are split by columns have of NumPy's methods: mostly its functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array import error_hints
from distvec.array.exchanged import exchanged, redistributed
from distvec.array.indexing.flatiter import Flat


def _as_function(name: str) -> Callable[..., Any]:
    """The method that is NumPy's function of that name."""
    function = getattr(np, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"As ``numpy.{name}``."
    return method


class Methods:
    """Of a table that is split by columns: ``self.table`` is the one that is split by rows."""

    __slots__ = ()

    table: Any

    argsort, argpartition = _as_function("argsort"), _as_function("argpartition")
    clip, round = _as_function("clip"), _as_function("round")
    diagonal, trace = _as_function("diagonal"), _as_function("trace")
    nonzero, repeat = _as_function("nonzero"), _as_function("repeat")
    squeeze, swapaxes = _as_function("squeeze"), _as_function("swapaxes")
    choose, put, take = _as_function("choose"), _as_function("put"), _as_function("take")
    flatten = ravel = _as_function("ravel")

    @property
    def real(self) -> Any:
        """The array itself: its elements are real."""
        return self

    @real.setter
    def real(self, value: Any) -> None:
        self[...] = value

    @property
    def imag(self) -> Any:
        """Zeros."""
        return np.imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.table.imag = value

    def conj(self) -> Any:
        """The array itself: its elements are real."""
        return self

    conjugate = conj

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        size: int = self.table.itemsize
        return size

    @property
    def flat(self) -> Flat:
        """The elements row by row."""
        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        Flat(self)[:] = value

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        """As ``numpy.reshape``."""
        wanted: Any = shape[0] if len(shape) == 1 else shape
        in_order: Any = order
        return np.reshape(self, wanted, order=in_order)

    def compress(self, condition: Any, axis: Any = None, out: Any = None) -> Any:
        """As ``numpy.compress``."""
        return np.compress(condition, self, axis, out)

    def fill(self, value: Any) -> None:
        """Let every element be ``value``."""
        self.table.fill(value)

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None) -> None:
        """As ``numpy.ndarray.sort``."""
        self.table.sort(axis=exchanged(axis))

    def partition(self, kth: Any, axis: int = -1) -> None:
        """As ``numpy.ndarray.partition``."""
        self.table.partition(kth, axis=exchanged(axis))

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """The array itself: there is one device. ``ValueError`` for another."""
        self.table.to_device(device, stream=stream)
        return self

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(error_hints.array_hint(name), name=name, obj=self)


def changed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """A function that changes its first argument, of one that is split by columns.

    It changes a table of the same elements that is split by rows, which become those of ours: they
    go from server to server, and back.
    """
    target, *rest = args
    with target.table.turn:
        rows = redistributed(target.table)
        function(rows, *rest, **kwargs)
        target.table.assign(redistributed(rows), function.__name__)
