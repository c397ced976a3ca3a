"""``x[key]``: NumPy's index expressions, parsed axis by axis, with NumPy's errors."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from distvec.array.core.handle import Handle

_INVALID = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean "
    "arrays are valid indices"
)


@dataclass(frozen=True)
class At:
    """One index of an axis, which is gone then; ``0 <= index < length``."""

    index: int


@dataclass(frozen=True)
class Slice:
    """``start, start + step, ...`` of an axis, so many of them."""

    start: int
    step: int
    length: int

    @property
    def end(self) -> int:
        """Where the next one would be: -1 or less where they come down to the first."""
        return self.start + self.step * self.length

    @property
    def key(self) -> slice:
        """As Python writes it."""
        return slice(self.start, self.end if self.end >= 0 else None, self.step)

    def is_all(self, length: int) -> bool:
        """Whether these are all indices of an axis of ``length``, in order."""
        return self.length == length and (self.step == 1 or length < 2)


@dataclass(frozen=True, eq=False)
class Take:
    """The indices that an array names: on the client all are in range, and none is negative."""

    indices: npt.NDArray[np.int64] | Handle

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.indices.shape


@dataclass(frozen=True, eq=False)
class Mask:
    """Where an array of booleans is true; over several axes at once if that is its rank."""

    mask: npt.NDArray[np.bool_] | Handle


@dataclass(frozen=True)
class NewAxis:
    """An axis of length 1 that the array has not."""


Part = At | Slice | Take | Mask | NewAxis


def parse(shape: tuple[int, ...], key: Any) -> list[Part]:
    """Parse ``key`` for an array of ``shape``: a part for each axis, new axes between.

    ``IndexError``, ``TypeError`` and ``ValueError`` as NumPy's.
    """
    plain = _plain(key)
    return _parse(shape, key) if plain is None else list(_parse_plain(shape, plain))


def _plain(key: Any) -> tuple[Any, ...] | None:
    """A key of integers and slices of integers as one that can be looked up; else None."""
    found: list[Any] = []
    for one in key if isinstance(key, tuple) else (key,):
        if isinstance(one, slice):
            ends = one.start, one.stop, one.step
            if any(type(end) is not int and end is not None for end in ends):
                return None
            found.append(ends)
        elif type(one) is int or one is None or one is Ellipsis:
            found.append(one)
        else:
            return None
    return tuple(found)


@lru_cache(maxsize=4096)
def _parse_plain(shape: tuple[int, ...], plain: tuple[Any, ...]) -> tuple[Part, ...]:
    """``_parse`` of such a key: loops index by the same ones again and again."""
    key = tuple([slice(*one) if isinstance(one, tuple) else one for one in plain])
    return tuple(_parse(shape, key))


def _parse(shape: tuple[int, ...], key: Any) -> list[Part]:
    given = [_array_or_plain(one) for one in (key if isinstance(key, tuple) else (key,))]
    if sum(one is Ellipsis for one in given) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    named = sum(_axes_of(one) for one in given)
    if named > len(shape):
        raise IndexError(
            f"too many indices for array: array is {len(shape)}-dimensional, "
            f"but {named} were indexed"
        )
    if not any(one is Ellipsis for one in given):
        given.append(Ellipsis)
    parts: list[Part] = []
    axis = 0
    for one in given:
        if one is Ellipsis:
            for length in shape[axis : axis + len(shape) - named]:
                parts.append(Slice(0, 1, length))
            axis += len(shape) - named
        elif one is None:
            parts.append(NewAxis())
        else:
            parts.append(_part(one, shape, axis))
            axis += _axes_of(one)
    return _together(parts)


def _array_or_plain(one: Any) -> Any:
    """One index with lists as arrays, and arrays of integers of rank 0 as integers."""
    if one is Ellipsis or one is None or isinstance(one, slice):
        return one
    is_number = getattr(one, "ndim", None) == 0
    if isinstance(one, bool) or (is_number and one.dtype == np.bool_):
        raise NotImplementedError(
            "x[True] and x[False] are not supported; write x[None], or a mask as long as x"
        )
    if isinstance(one, Handle):
        if one.dtype.kind not in "biu":
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        return one if one.ndim else operator.index(one)  # type: ignore[arg-type]
    if isinstance(one, list | tuple | np.ndarray | np.generic):
        array = np.asarray(one)
        if array.size == 0 and not isinstance(one, np.ndarray):
            array = array.astype(np.int64)
        if array.dtype.kind not in "biu":
            if isinstance(one, np.ndarray):
                raise IndexError("arrays used as indices must be of integer (or boolean) type")
            raise IndexError(_INVALID)
        return array if array.ndim else operator.index(array[()])
    try:
        return operator.index(one)
    except TypeError:
        raise IndexError(_INVALID) from None


def _axes_of(one: Any) -> int:
    """How many axes one index is for."""
    if one is None or one is Ellipsis:
        return 0
    is_mask = isinstance(one, Handle | np.ndarray) and one.dtype == np.bool_
    return one.ndim if is_mask else 1


def _part(one: Any, shape: tuple[int, ...], axis: int) -> Part:
    length = shape[axis]
    if isinstance(one, slice):
        start, stop, step = one.indices(length)
        count = len(range(start, stop, step))
        return Slice(start, step, count) if count else Slice(0, 1, 0)
    if isinstance(one, int):
        return At(in_range(one, length, axis))
    if one.dtype == np.bool_:
        extents = shape[axis : axis + one.ndim]
        fits = all(n in (0, k) for n, k in zip(one.shape, extents, strict=True))
        if one.size == 0 and one.shape != extents and fits:
            is_of_rows = one.ndim == 1  # as NumPy, an empty mask selects no rows
            return Take(np.empty(0, np.int64)) if is_of_rows else Mask(np.zeros(extents, np.bool_))
        for place, extent in enumerate(one.shape, axis):
            if extent != shape[place]:
                raise IndexError(
                    f"boolean index did not match indexed array along axis {place}; size of axis "
                    f"is {shape[place]} but size of corresponding boolean axis is {extent}"
                )
        return Mask(one)
    if isinstance(one, Handle):
        return Take(one)
    return Take(positions(one, length, axis))


def in_range(index: int, length: int, axis: int) -> int:
    """``index`` of an axis as a number from 0; ``IndexError`` as NumPy's."""
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index % length


def positions(indices: npt.NDArray[Any], length: int, axis: int = 0) -> npt.NDArray[np.int64]:
    """``indices`` of an axis as numbers from 0; ``IndexError`` for one that it has not."""
    found = indices.astype(np.int64)  # a copy, which may wait for its use
    if found.size:
        least, greatest = int(found.min()), int(found.max())
        for extreme in (least, greatest):
            in_range(extreme, length, axis)
        if least < 0:
            found += length * (found < 0)
    return found


def _together(parts: list[Part]) -> list[Part]:
    """Index arrays are taken together: they must have, or broadcast to, one shape."""
    if sum(isinstance(part, Take | Mask) for part in parts) < 2:
        return parts
    found = [
        Take(np.flatnonzero(part.mask))
        if isinstance(part, Mask) and isinstance(part.mask, np.ndarray)
        else part
        for part in parts
    ]
    check_together(*(part.shape for part in found if isinstance(part, Take)))
    return found


def check_together(*shapes: tuple[int, ...]) -> None:
    """Raise ``IndexError``, as NumPy's, if index arrays of ``shapes`` do not broadcast."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        given = " ".join(map(str, shapes))
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {given}"
        ) from None
