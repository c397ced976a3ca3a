"""What the arguments of a row program are, apart from their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from distvec.graph.build import check_dtype
from ps_backend.program.types import Row


@dataclass(frozen=True, slots=True)
class RowsOf:
    """The rows of an array of the space, at the keys: of shape ``(n, *row)`` together."""

    dtype: str
    row: Row = ()

    def __str__(self) -> str:
        return f"rows of an array: {_shape(self.dtype, self.row)}"


@dataclass(frozen=True, slots=True)
class PerKey:
    """What comes along, one row for each key."""

    dtype: str
    row: Row = ()

    def __str__(self) -> str:
        return f"given per key: {_shape(self.dtype, self.row)}"


@dataclass(frozen=True, slots=True)
class Number:
    """A number, or a small array, of the call: the same for all keys."""

    dtype: str = "float64"
    shape: tuple[int, ...] = ()
    weak: bool = True
    """Whether it is a Python number, which takes the dtype of the rows that it meets."""

    def __str__(self) -> str:
        kind = "a number" if self.weak else _shape(self.dtype, self.shape)
        return f"the same for all keys: {kind}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys themselves, as int64."""

    def __str__(self) -> str:
        return "the keys: int64 (n,)"


Kind = RowsOf | PerKey | Number | Keys


def _shape(dtype: str, row: Row) -> str:
    return f"{dtype} {row}" if row else dtype


def number_kind(name: str, value: Any) -> Number:
    """The kind of a number, or of an array that is the same for all keys; ``TypeError`` if none."""
    if isinstance(value, bool | np.bool_):
        return Number("bool", weak=False)
    if type(value) in (int, float):
        return Number("int64" if type(value) is int else "float64")
    if isinstance(value, np.generic | np.ndarray):
        return Number(check_dtype(value.dtype).name, np.shape(value), weak=False)
    if isinstance(value, int | float):
        return Number()
    raise TypeError(
        f"{name}: a {type(value).__name__} is no argument of a row function; give an array of a "
        f"space, a NumPy array with a row for each key, or a number"
    )
