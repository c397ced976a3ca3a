"""What an array is: the one description of it, from a user's handle to the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.limits import MOST_LENGTH, MOST_ROW_EXTENTS
from ps_backend.program.spaces import Space, decode_space

FLOATS = ("float64", "float32")
"""Those that linear combinations and inner products are of."""
DTYPES = (
    *FLOATS,
    "float16",
    *("int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8"),
    "bool",
)
_KINDS = {name: np.dtype(name) for name in DTYPES}
_OBJECTS: dict[Any, np.dtype[Any]] = {dtype: dtype for dtype in _KINDS.values()} | _KINDS
_WIDEST = {
    "f": np.dtype(np.float64),
    "u": np.dtype(np.uint64),
    "i": np.dtype(np.int64),
    "b": np.dtype(np.int64),
}

Row = tuple[int, ...]
"""The shape of what an array has in one slot: ``()`` of vectors, ``(k,)`` of tables."""


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype called ``name``; ``TypeError`` if it is not one of ``DTYPES``."""
    found = _KINDS.get(name)
    if found is None:
        raise TypeError(f"dtype {name!r} is not supported; use one of {', '.join(DTYPES)}")
    return found


@lru_cache(maxsize=64)
def widest(name: str) -> np.dtype[Any]:
    """In what sums of values of dtype ``name`` are exact modulo 2^64, or as exact as can be."""
    return _WIDEST[dtype_of(name).kind]


def summed(name: str) -> np.dtype[Any]:
    """The dtype of NumPy's sums of values of dtype ``name``: floats stay what they are."""
    wide = widest(name)
    return dtype_of(name) if wide.kind == "f" else wide


class ValueType(NamedTuple):
    """Type of one value of a sweep, whatever the space: its dtype and the shape of one row."""

    dtype: str
    row: Row = ()

    @property
    def flat(self) -> ValueType:
        """The same of a vector."""
        return ValueType(self.dtype)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.row) * dtype_of(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {self.row}" if self.row else self.dtype


@dataclass(frozen=True, slots=True, eq=False)
class ArrayType:
    """Space, shape of one row and dtype of an array. ``array_type`` shares them; equal by value."""

    space: Space
    row: Row
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = field(init=False, repr=False)
    """Of the whole array, on all servers together: ``(space.length, *row)``."""
    width: int = field(init=False, repr=False)
    """Elements of one row: 1 of vectors."""
    value: ValueType = field(init=False, repr=False)
    """What a sweep over the space calls it."""
    _hash: int = field(init=False, repr=False)
    is_scalar: ClassVar[bool] = False
    on_client: ClassVar[bool] = False

    def __post_init__(self) -> None:
        width = prod(self.row)
        if len(self.row) > MOST_ROW_EXTENTS or width < 0:
            raise ValueError(f"rows have shape () or (k,), got {self.row}")
        if self.space.length * width > MOST_LENGTH:
            raise ValueError(
                f"{self.space} has no room for rows of shape {self.row}: an array has at most "
                f"{MOST_LENGTH} elements"
            )
        object.__setattr__(self, "shape", (self.space.length, *self.row))
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "value", ValueType(self.dtype.name, self.row))
        object.__setattr__(self, "_hash", hash((self.space, self.row, self.dtype)))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, ArrayType)
            and self.dtype == other.dtype
            and self.row == other.row
            and self.space == other.space
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[..., ArrayType], tuple[Space, str, Row]]:
        return array_type, (self.space, self.dtype.name, self.row)  # hashes differ by process

    def __str__(self) -> str:
        rows = f" rows of shape {self.row}" if self.row else ""
        return f"{self.dtype}{rows} over {self.space}"

    @property
    def nbytes(self) -> int:
        """Bytes of the elements on all servers together."""
        return self.space.length * self.width * self.dtype.itemsize

    @property
    def plain(self) -> tuple[Any, ...]:
        """Numbers and texts for ``from_plain`` of another process, as JSON has them."""
        space = self.space
        details = space.details.hex()
        return space.kind, space.length, space.id, details, self.dtype.name, self.row

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> ArrayType:
        """The type that ``plain`` describes."""
        kind, length, id, details, dtype, row = plain
        return array_type(decode_space(kind, length, id, bytes.fromhex(details)), dtype, tuple(row))

    def of(self, dtype: np.dtype[Any]) -> ArrayType:
        """The same in ``dtype``, one of ``DTYPES``."""
        return self if dtype is self.dtype else _shared(self.space, self.row, dtype)


def array_type(space: Space, dtype: npt.DTypeLike, row: Row = ()) -> ArrayType:
    """The type of arrays over ``space``, mostly the same object for the same arguments.

    ``TypeError`` for a dtype that servers do not have.
    """
    known = _OBJECTS.get(dtype)  # the name of a dtype takes longer than all else
    return _shared(space, row, known or dtype_of(np.dtype(dtype).name))


_shared = lru_cache(maxsize=4096)(ArrayType)


def stored_type(space: Space, dtype: npt.DTypeLike, row: Row = ()) -> ArrayType:
    """``array_type`` of what servers have: ``ValueError`` for rows of nothing."""
    if 0 in row:
        raise ValueError(f"rows on servers have shape () or (k,) with k of 1 or more, got {row}")
    return array_type(space, dtype, row)


@dataclass(frozen=True, slots=True)
class ClientType:
    """The type of what the client keeps: a number, or a small array of rank 1 or 2.

    It is in no space, so nothing is aligned to it. With the same attributes as ``ArrayType``, but
    for those that need a space.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    is_scalar: bool = field(init=False, repr=False, compare=False)
    """Whether it is of rank 0."""
    value: ValueType = field(init=False, repr=False, compare=False)
    """What a sweep calls it."""
    _hash: int = field(init=False, repr=False, compare=False)
    on_client: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.dtype, self.shape)))
        object.__setattr__(self, "is_scalar", not self.shape)
        object.__setattr__(self, "value", ValueType(self.dtype.name, self.shape))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[ClientType], tuple[np.dtype[Any], Row]]:
        return ClientType, (self.dtype, self.shape)  # hashes differ by process

    @property
    def space(self) -> Space:
        """None: raises ``TypeError``."""
        raise TypeError(f"an array of shape {self.shape} that the client keeps lives in no space")

    @property
    def row(self) -> Row:
        """Of any array that it is combined with, it is the same in each slot."""
        return self.shape

    @property
    def nbytes(self) -> int:
        """Bytes on the servers: none."""
        return 0

    def of(self, dtype: np.dtype[Any]) -> ClientType:
        """The same in ``dtype``."""
        return self if dtype is self.dtype else client_type(dtype, self.shape)


client_type = lru_cache(maxsize=4096)(ClientType)
"""The type of what the client keeps, mostly the same object for the same arguments."""

NodeType = ArrayType | ClientType
"""The type of any expression."""
