"""What does not change between the runs of a small sweep, so that it is found once.

A program of a few microseconds of arithmetic must not take a hundred to be understood. Of a call
that names its sweep by the digest everything but ids and scalars follows from sweep and space: the
kernel, and what the buffers must be. It is noted when such a call has run the long way, which
checks all of it; later only ids are looked up. What does not fit is left to the long way, for a
result or for an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ps_backend.errors import OutOfBudget
from ps_backend.kernels import Kernel
from ps_backend.program.rules import verify_call
from ps_backend.program.spaces import Space
from ps_backend.program.sweep import Scalar, Sweep, SweepCall
from ps_backend.program.types import ValueType
from ps_backend.server.state.memory import Memory, Reservation
from ps_backend.server.state.store import Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import decode_scalars, decode_values, encode_values

MOST_ELEMENTS = 1 << 21
"""Of all values of a call on this server. They take a millisecond or two, of costly functions some
tens, as long as a piece of a long program; so nobody is asked meanwhile whether the result is still
wanted. The long way takes some 30 us more, and 100 where caches hold the data of the last run."""
_MOST_CALLS = 1024
_CALL_BYTES = 1024
_SCALAR_BYTES = 8


@dataclass(frozen=True, slots=True)
class CachedCall:
    """A sweep over a space, on this server."""

    scalars: tuple[ValueType, ...]
    inputs: Sequence[Part]
    outputs: Sequence[Part]
    kernel: Kernel
    here: Part
    length: int
    has_rows: bool
    """Whether it takes arrays along, or leaves rows: then only a client of this process may."""
    kept: Reservation


@dataclass(slots=True)
class SmallCall:
    """One of them with what it runs on this time."""

    known: CachedCall
    inputs: Sequence[int]
    scalars: Sequence[Scalar]
    outputs: Sequence[int]
    viewing: SweepCall | None = None
    """The call itself, if it reads through views."""


class CallCache:
    """The small calls of one session. Thread-safe."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._calls: dict[Any, CachedCall] = {}
        self._by_object: dict[tuple[int, int], tuple[CachedCall, Sweep, Space]] = {}
        """By ids of sweep and space, which it keeps alive: of calls in the client's process."""

    def __len__(self) -> int:
        return len(self._calls)

    def note(self, call: SweepCall, kernel: Kernel, part_of: Callable[..., Part]) -> None:
        """``call``, which ran by ``kernel``, may run the short way the next time, if it is small.

        ``part_of``: this server's part of an array, by space, dtype and row.
        """
        sweep, space = call.sweep, call.space
        here = part_of(space, "bool", sweep.row)
        length = here.high - here.low
        elements = length * sum(prod(value.row) for value in sweep.types)
        if elements > MOST_ELEMENTS:
            return
        if len(self._calls) >= _MOST_CALLS:
            self.clear()
        try:
            kept = self._memory.reserve(_CALL_BYTES, "a call")
        except OutOfBudget:
            return
        self._calls[sweep.digest, space.kind, space.length, space.id, space.details] = CachedCall(
            sweep.scalars,
            [part_of(space, value.dtype, value.row) for value in sweep.inputs],
            [part_of(space, value.dtype, value.row) for value in sweep.stored],
            kernel,
            here,
            length,
            sweep.takes_rows or sweep.leaves_rows,
            kept,
        )

    def find(self, run: pb.Run) -> list[SmallCall] | None:
        """The calls of a program if all are known, and it does nothing else; else None."""
        if not self._calls or run.before or run.after:
            return None
        found = []
        for message in run.calls:
            space = message.space
            key = message.digest, space.kind, space.length, space.id, space.details
            known = self._calls.get(key)
            if known is None or message.donors or message.views or message.HasField("sweep"):
                return None
            if known.has_rows:
                return None
            inputs, outputs, scalars = message.inputs, message.outputs, message.scalars
            if (len(inputs), len(outputs)) != (len(known.inputs), len(known.outputs)):
                return None
            if len(scalars) != _SCALAR_BYTES * len(known.scalars):
                return None
            values = decode_scalars(known.scalars, scalars) if scalars else ()
            found.append(SmallCall(known, inputs, values, outputs))
        return found

    def find_calls(self, calls: Sequence[SweepCall], *, is_alone: bool) -> list[SmallCall] | None:
        """The same of calls that no message carries, as the client is in this process.

        ``is_alone``: no other server has what they read through views.
        """
        found = []
        for call in calls:
            sweep, space = call.sweep, call.space
            entry = self._by_object.get((id(sweep), id(space)))
            if entry is None:
                key = sweep.digest, space.kind, space.length, space.id, space.details
                known = self._calls.get(key)
                if known is None:
                    return None
                entry = self._by_object[id(sweep), id(space)] = known, sweep, space
            known, values = entry[0], call.scalars
            if call.donors or (call.views and not is_alone):
                return None
            if (len(call.inputs), len(call.outputs)) != (len(known.inputs), len(known.outputs)):
                return None
            if values or known.scalars:  # of the values that would arrive, or the error
                values = decode_values(sweep, encode_values(sweep, values))
            if sweep.takes_rows or call.views:
                verify_call(call)
            viewing = call._replace(scalars=tuple(values)) if call.views else None
            found.append(SmallCall(known, call.inputs, values, call.outputs, viewing))
        if len(self._by_object) > _MOST_CALLS:
            self._by_object.clear()
        return found

    def clear(self) -> None:
        """Forget all."""
        self._calls.clear()
        self._by_object.clear()
