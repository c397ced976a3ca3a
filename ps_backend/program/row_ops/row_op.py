"""What a row op is, and what it knows of the chunk that it runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ps_backend.program.types import Row, ValueType

Values = tuple[ValueType, ...]
"""The types of the arguments of a step."""
Params = tuple[int, ...]


def _none() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class Place:
    """What a row op may know besides its arguments: of one chunk after the other."""

    first: int = 0
    """The slot at which the chunk begins."""
    length: int = 0
    """Slots of the chunk."""
    block: int = 1
    """Slots of a block: the chunk is part of one, or begins where one does."""
    params: Params = ()
    row: Row = ()
    """Of the result."""
    entries: np.ndarray = field(default_factory=_none)
    """Of a list of slots: which of its entries are in the chunk, ordered by slot, then by entry."""
    slots: np.ndarray = field(default_factory=_none)
    """The slots of these entries, from the start of the chunk."""


@dataclass(frozen=True, slots=True)
class RowOp:
    """One row op, on chunks of consecutive slots.

    Its first arguments have a value in each slot: they are arrays ``(length, *row)``, whatever they
    were computed from. The last ones are what the client holds, whole.
    """

    name: str
    arity: int
    result: Callable[[Values, Params], ValueType | None]
    """The type of the result; None where the argument is repeated to any row ``(k,)``.

    ``TypeError`` for arguments or parameters that it does not take."""
    run: Callable[..., Any]
    """The result on one chunk, from ``(out, place, *args)``: written to ``out`` of its shape and
    dtype, or a view of an argument."""
    held: int = 0
    """How many of the last arguments are runtime scalars."""
    params: int = 0
    """How many parameters it has."""
    view: bool = False
    """The result is a view of the first argument, and there is no ``out``."""
    slots: int | None = None
    """Which argument is a list of slots, of which ``place`` says what concerns the chunk."""
    columns: int | None = None
    """Which argument is a list of columns of the first one."""
    whole: bool = False
    """Its one argument is a value for each slot of the space."""
    may_fail: bool = False
    """Of some values it raises an error, on one server only: no memory is given away with it."""
    over: bool = False
    """``out`` may be the memory of its first argument, most of which stays as it is."""
    products: bool = False
    """It multiplies by a matrix: worth chunks of many rows."""


def need(holds: bool, what: str) -> None:
    """Raise ``TypeError(what)`` unless it ``holds``."""
    if not holds:
        raise TypeError(what)


def width(value: ValueType) -> int:
    """Elements of a row ``(k,)``; ``TypeError`` for other rows."""
    need(len(value.row) == 1, f"needs rows of shape (k,), got {value}")
    return value.row[0]
