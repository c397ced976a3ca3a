"""How a server runs programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ps_backend.errors import InvalidProgram, ProgramCancelled
from ps_backend.kernels import Kernel
from ps_backend.limits import MOST_PARTIAL_BYTES
from ps_backend.program.sweep import SweepCall, ValueType, verify_call
from ps_backend.server.commands.data import Outcome, Payload
from ps_backend.server.session import Session
from ps_backend.server.state.memory import Memory, Reservation
from ps_backend.server.state.store import Buffer, Part
from ps_backend.server.turns import Turns
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import decode_call
from ps_backend.wire.errors import Abandoned

_ANY = ValueType("bool")
_SMALL_WORKING_BYTES = 64 << 20
"""Working memory of a program that is counted, but not refused: it may run with donors, and must
not fail on one of several servers. Larger is that of long programs over blocks of 2^18 and more."""
_UNCOUNTED_BYTES = 1 << 20


@dataclass(slots=True)
class _Ready:
    """A sweep call with all that it needs."""

    call: SweepCall
    kernel: Kernel
    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    here: Part


class Runner:
    """Runs the programs of all sessions of a server; they take turns."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._stopped = False

    def stop(self) -> None:
        """End all programs as soon as they look up, and those to come."""
        self._stopped = True

    def run(self, session: Session, request: pb.Request, payload: Payload) -> Outcome:
        """Run the sweeps in order; all their outputs become visible at the end, or none.

        Raises ``Abandoned`` if the server stops, the session is closed or the sender is gone
        meanwhile, ``ProgramCancelled`` if the sender wants it; but neither for a sender whose
        repeat would miss what the program was given.
        """
        calls = [decode_call(m, session.sweep(m)) for m in request.run.calls]
        donors = _verify(calls)
        made, ready = _prepare(session, calls)
        working = _working_memory(session.store.memory, ready)
        record = session.record(request.client)

        def look() -> None:
            if self._stopped:
                raise Abandoned("the server was stopped before the program had ended")
            if session.closed:
                raise Abandoned("the session was closed before the program had ended")
            if donors:
                return
            if record.cancelled >= request.sequence:
                raise ProgramCancelled("the program was cancelled; it has changed nothing")
            if not payload.wanted():
                raise Abandoned("the client left before the program had ended")

        partials: list[bytes] = []
        with self._turns.taken(session.name, look) as turn:
            if donors:  # from here on they are lost, whatever happens
                session.store.give_up(donors)
            for one in ready:
                partials += _sweep(one, turn.pause)
        del working
        session.store.put(made)
        return Outcome(pb.Reply(partials=partials))


def _verify(calls: Sequence[SweepCall]) -> list[int]:
    """Raise ``InvalidProgram`` for calls that do not fit together; returns their donors."""
    donors: list[int] = []
    given: set[int] = set()
    written: set[int] = set()
    for call in calls:
        if call.donors:  # what the other rules say is found out anyway
            verify_call(call)
        for number in call.inputs:
            if number in given:
                raise InvalidProgram(f"buffer {number} is read after its memory was given away")
        for number in call.outputs:
            if number in written:
                raise InvalidProgram(f"buffer {number} is written twice by the program")
            written.add(number)
        for number in call.donors:
            if number in given:
                raise InvalidProgram(f"buffer {number} gives its memory away twice")
            if number in written:
                raise InvalidProgram(f"buffer {number} is made and given away by one program")
            given.add(number)
            donors.append(number)
    return donors


def _prepare(
    session: Session, calls: Sequence[SweepCall]
) -> tuple[dict[int, Buffer], list[_Ready]]:
    """All that the calls write, and all that can fail; ``OutOfBudget`` if it is too large.

    Kernels are compiled here, so that nothing fails once memory was given away.
    """
    parts: dict[int, Part] = {}
    donors: dict[int, int] = {}
    for call in calls:
        donors |= zip(call.outputs, call.donors, strict=False)
        for number, value in zip(call.outputs, call.sweep.outputs, strict=True):
            parts[number] = session.part_of(call.space.length, call.sweep.types[value])
    store = session.store
    store.refuse_taken(parts)
    _refuse_large_partials(session, calls)
    made = {number: store.get(donors[number], parts[number]) for number in donors}
    fresh = {number: part for number, part in parts.items() if number not in donors}
    made |= zip(fresh, store.new(fresh.values(), "the program"), strict=True)
    visible: dict[int, Buffer] = {}
    arguments: list[tuple[list[Buffer], list[Buffer]]] = []
    for call in calls:
        inputs = [
            store.get(number, session.part_of(call.space.length, value), visible)
            for number, value in zip(call.inputs, call.sweep.inputs, strict=True)
        ]
        outputs = [made[number] for number in call.outputs]
        arguments.append((inputs, outputs))
        visible |= zip(call.outputs, outputs, strict=True)
    ready = []
    for call, (inputs, outputs) in zip(calls, arguments, strict=True):
        kernel = session.kernel(call.sweep, call.space.length)  # compiled last: it may take long
        here = session.part_of(call.space.length, _ANY)
        ready.append(_Ready(call, kernel, inputs, outputs, here))
    return made, ready


def _refuse_large_partials(session: Session, calls: Sequence[SweepCall]) -> None:
    total = 0
    for call in calls:
        if call.sweep.reductions:
            here = session.part_of(call.space.length, _ANY)
            blocks = -(-(here.high - here.low) // here.block_size)
            total += 8 * blocks * len(call.sweep.reductions)
    if total > MOST_PARTIAL_BYTES:
        raise InvalidProgram(
            f"the program asks for {total} bytes of partial results, and a reply has room for "
            f"{MOST_PARTIAL_BYTES}: evaluate fewer reductions at once"
        )


def _working_memory(memory: Memory, ready: Sequence[_Ready]) -> Reservation | None:
    """Room for what the kernels need meanwhile, if that is worth mentioning."""
    most = 0
    for one in ready:
        length = one.here.high - one.here.low
        most = max(most, one.kernel.working_bytes(length, one.here.block_size))
    if most < _UNCOUNTED_BYTES:
        return None
    return memory.reserve(most, "computing the program", force=most <= _SMALL_WORKING_BYTES)


def _sweep(one: _Ready, pause: Callable[[], None]) -> list[bytes]:
    """Run one sweep."""
    partials = one.kernel(
        [buffer.array for buffer in one.inputs],
        one.call.scalars,
        [buffer.array for buffer in one.outputs],
        one.here.low,
        one.here.high - one.here.low,
        one.here.block_size,
        pause,
    )
    return [partial.tobytes() for partial in partials]
