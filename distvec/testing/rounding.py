"""How far rounding alone moves NumPy's own answer: what a right implementation may differ by.

Servers sum in another order than NumPy, and what follows may magnify the difference, as the
iterations of an ill-conditioned or chaotic method do. Running NumPy a few times, each time with
other roundings, shows by how much, and needs no condition number: Monte Carlo arithmetic, Parker,
Pierce and Eggert (2000), Computing in Science & Engineering 2(4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

RUNS = 8
"""So many runs of NumPy with other roundings."""

MARGIN = 32.0
"""A right answer may be so many times further from NumPy's than the furthest of the runs."""

_SUMS = {np.matmul, np.vecdot, np.dot, np.vdot, np.inner, np.linalg.norm}


class RoundedAnew(np.ndarray[Any, Any]):
    """An array whose arithmetic is rounded up or down at random, and exact where NumPy's is.

    The nearer neighbour is the likelier one. Of sums and inner products, whose many roundings
    depend on their order, operands and result are off by one unit in the last place. Scalars that
    come out are NumPy's.
    """

    random: np.random.Generator

    def __array_finalize__(self, source: Any) -> None:
        """A view or copy goes on with the same random numbers."""
        if isinstance(source, RoundedAnew):
            self.random = source.random

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any
    ) -> Any:
        """NumPy's function, rounded anew."""
        options = {name: _plain(value) for name, value in kwargs.items()}
        sums = method != "__call__" or ufunc in _SUMS
        result = self._round(getattr(ufunc, method), inputs, options, sums)
        if out is None:
            return self._own(result)
        np.copyto(_plain(out[0]), result, casting="same_kind")
        return out[0]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's function: most consist of ufuncs, and products are rounded anew here."""
        if func in _SUMS:
            return self._own(self._round(func, args, kwargs, sums=True))
        return self._own(super().__array_function__(func, types, args, kwargs))

    def dot(self, other: Any, out: Any = None) -> Any:
        """``np.dot``, which the method of an array would pass by."""
        return np.dot(self, other, out=out)

    def _round(self, function: Any, inputs: Sequence[Any], options: Any, sums: bool) -> Any:
        given = [_plain(one) for one in inputs]
        result = function(*given, **options)
        floats = np.asarray(result)
        if isinstance(result, tuple) or floats.dtype.kind != "f":
            return result
        try:
            exact = np.asarray(function(*map(_wide, given), **options))
        except TypeError:  # no such function of more digits
            return result
        if sums and not np.array_equal(exact, floats, equal_nan=True):
            floats = np.asarray(function(*map(self._off_by_one, given), **options))
            floats = self._off_by_one(floats)
        elif not sums:
            floats = _rounded_to_either_side(floats, exact, self.random)
        return floats if floats.ndim else floats[()]

    def _off_by_one(self, value: Any) -> Any:
        """Floats one unit in the last place up or down."""
        array = np.asarray(value)
        if array.dtype.kind != "f":
            return value
        sign = np.where(self.random.random(array.shape) < 0.5, -1, 1).astype(array.dtype)
        return np.asarray(array * (1 + sign * np.finfo(array.dtype).eps))

    def _own(self, result: Any) -> Any:
        if isinstance(result, RoundedAnew) or not isinstance(result, np.ndarray):
            return result
        return rounded_anew(result, self.random)


def rounded_anew(array: npt.NDArray[Any], random: np.random.Generator) -> RoundedAnew:
    """A view of ``array`` whose arithmetic is rounded by ``random``."""
    view = array.view(RoundedAnew)
    view.random = random
    return view


def _rounded_to_either_side(
    rounded: npt.NDArray[Any], exact: npt.NDArray[Any], random: np.random.Generator
) -> npt.NDArray[Any]:
    """``rounded`` or its neighbour on the other side of ``exact``, which has more digits."""
    with np.errstate(all="ignore"):
        error = exact - rounded
        other = np.nextafter(rounded, np.where(error > 0, np.inf, -np.inf).astype(rounded.dtype))
        likely = np.abs(error) / np.abs(other - rounded)
        return np.where(random.random(rounded.shape) < likely, other, rounded)


def _wide(value: Any) -> Any:
    """Floats with more digits, where the machine has a type of them."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return value
    return array.astype(np.longdouble if array.dtype == np.float64 else np.float64)


def spread(values: Sequence[npt.NDArray[Any]], reference: npt.NDArray[Any]) -> float:
    """The largest distance of any of ``values`` from ``reference``; infinite if one overflows."""
    alike = [value for value in values if value.shape == reference.shape]
    with np.errstate(all="ignore"):
        distances = [np.abs(value - reference)[np.isfinite(reference)] for value in alike]
    largest = [float(np.max(distance, initial=0.0)) for distance in distances]
    return max((np.inf if np.isnan(one) else one for one in largest), default=0.0)


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, RoundedAnew) else value
