"""The table of movements: what servers compute in phases, as elements change place between them.

A phase is one message to each server that takes part. What it leaves in the *workspace* of the
movement on a server, the later phases fetch from there, on whichever server: the client only waits
in between, and sees no element. The functions that run the phases are in
``ps_backend.server.movements``; a program that has a movement of its own gives it to both
``register``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ps_backend.errors import InvalidProgram
from ps_backend.program.types import ArrayType, ClientType, NodeType, ValueType


@dataclass(frozen=True, slots=True)
class MovementTypes:
    """The types of what a movement takes and makes."""

    inputs: tuple[ArrayType, ...]
    operands: tuple[ValueType, ...]
    """Of small arrays that the client holds."""
    outputs: tuple[tuple[int, NodeType], ...]
    """Those that are wanted, by their numbers; what the client keeps comes with the answer."""


Params = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Movement:
    """One row of the table."""

    kind: str
    phases: int
    """Messages to each server. The first of several sees nothing but the server's own parts of the
    inputs, since these may have been computed in the same message."""
    check: Callable[[MovementTypes, Params], None]
    """Raises ``TypeError`` or ``ValueError`` for types and parameters that it does not take."""


TABLE: dict[str, Movement] = {}


def register(row: Movement) -> None:
    """Add a movement; ``ValueError`` if there is one of that kind."""
    if row.kind in TABLE:
        raise ValueError(f"there is a movement {row.kind!r} already; give it another name")
    TABLE[row.kind] = row


def row_of(kind: str) -> Movement:
    """The row of that kind; ``InvalidProgram`` if there is none."""
    row = TABLE.get(kind)
    if row is None:
        raise InvalidProgram(f"no movement {kind[:40]!r} is known here")
    return row


@dataclass(frozen=True, slots=True)
class MovementCall:
    """One phase of a movement, with what it runs on."""

    kind: str
    phase: int
    workspace: int
    """What the phases of one movement have in common: an id that no buffer has."""
    types: MovementTypes
    inputs: tuple[int, ...]
    operands: tuple[npt.NDArray[np.generic], ...]
    outputs: tuple[int, ...]
    """Buffers, as ``types.outputs``; 0 where the client keeps it."""
    params: Params
    whole: bool = False
    """Whether it stands for all phases: a single server takes part."""

    @property
    def is_last(self) -> bool:
        """Whether the outputs are made in this phase."""
        return self.whole or self.phase == row_of(self.kind).phases - 1

    @property
    def arrays(self) -> list[ArrayType]:
        """The types of what servers hold of it."""
        made = [type for _, type in self.types.outputs if isinstance(type, ArrayType)]
        return [*self.types.inputs, *made]

    @property
    def results(self) -> list[tuple[int, ClientType]]:
        """Number and type of what comes to the client."""
        return [(k, type) for k, type in self.types.outputs if isinstance(type, ClientType)]

    @property
    def made(self) -> list[int]:
        """The buffers that this phase makes."""
        return [number for number in self.outputs if number] if self.is_last else []

    def servers(self, servers: int) -> list[int]:
        """Who takes part: all that hold some of an array, in order."""
        holders = (type.space.holders(servers) for type in self.arrays)
        return sorted({0}.union(*holders) if not self.arrays else set().union(*holders))


def verify_movement(call: MovementCall) -> None:
    """Raise ``InvalidProgram`` unless there is such a movement, and it takes such arguments."""
    row = row_of(call.kind)
    if not 0 <= call.phase < row.phases:
        raise InvalidProgram(f"{call.kind} has phases 0 .. {row.phases - 1}, got {call.phase}")
    numbers = [number for number, _ in call.types.outputs]
    fits = (
        _same_length(call.inputs, call.types.inputs)
        and _same_length(call.operands, call.types.operands)
        and _same_length(call.outputs, numbers)
        and len(set(numbers)) == len(numbers)
        and all(
            bool(buffer) is isinstance(type, ArrayType)
            for buffer, (_, type) in zip(call.outputs, call.types.outputs, strict=True)
        )
    )
    if not fits:
        raise InvalidProgram(f"a call of {call.kind} names more or fewer arrays than their types")
    if set(call.inputs) & set(call.outputs) or len(set(call.made)) < len(call.made):
        raise InvalidProgram(f"a call of {call.kind} writes what it reads, or twice")
    try:
        row.check(call.types, call.params)
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidProgram(f"{call.kind} does not take such arguments: {error}") from None


def _same_length(values: Sequence[object], types: Sequence[object]) -> bool:
    return len(values) == len(types)
