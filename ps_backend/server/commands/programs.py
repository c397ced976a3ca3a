"""Programs: sweeps over arrays of a session, in turns; what servers fetch from each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from ps_backend import limits
from ps_backend.errors import InvalidProgram, ProgramCancelled
from ps_backend.kernels import Kernel
from ps_backend.limits import MOST_PARTIAL_BYTES, check, check_name
from ps_backend.program.collectives import CollectiveCall
from ps_backend.program.partials import partial_bytes
from ps_backend.program.rules import verify_calls
from ps_backend.program.sweep import SweepCall
from ps_backend.server.bounds import program_within_bounds, verify_array
from ps_backend.server.collectives.run import ReadyPhase, parts_made, prepare
from ps_backend.server.commands.command import Payload, Response, command
from ps_backend.server.inputs import pieces_of
from ps_backend.server.peers import Neighbours, wait_for_all
from ps_backend.server.sessions import ServerSession
from ps_backend.server.staging import Staging, fetch_little, stage
from ps_backend.server.state.call_cache import SmallCall
from ps_backend.server.state.memory import Memory, MemoryBlock, Reservation
from ps_backend.server.state.store import Buffer, Part
from ps_backend.wire import ps_pb2 as pb
from ps_backend.wire.codec import decode_call, decode_collective
from ps_backend.wire.protocol import Abandoned, byte_view


def _bounds(body: pb.Fetch) -> None:
    check("spans of a fetch", len(body.pieces), 0, limits.MOST_VALUES)
    for one in body.pieces:
        verify_array(one.array)
        check("pieces", one.count, 0, limits.MOST_LENGTH)
        check("width of a piece", one.width, 1, limits.MOST_LENGTH)
        check("steps between pieces", one.step, -limits.MOST_LENGTH, limits.MOST_LENGTH)
    check("shelves of a fetch", len(body.shelves), 0, limits.MOST_VALUES)
    for shelf in body.shelves:
        check_name("name of a shelf", shelf.name)


@command(_bounds, repeatable=True)
def fetch(session: ServerSession, request: pb.Request, _: Payload) -> Response:
    """Elements of buffers and of workspaces, straight from their memory where they lie together.

    Needs no turn: a program of this server may fetch from the sender at the same time.
    """
    parts: list[memoryview] = []
    keep: list[Buffer | MemoryBlock] = []
    for one in request.fetch.pieces:
        part = session.part(one.array)
        buffer = session.store.get(one.array.buffer, part)
        flat = buffer.array.reshape(-1)
        start = one.start - part.low * part.type.width
        last = start + one.step * (one.count - 1)
        if one.count and not (0 <= min(start, last) <= max(start, last) + one.width <= flat.size):
            raise InvalidProgram(
                f"a fetch of {one.count} pieces of {one.width} elements from {one.start} by "
                f"{one.step} is outside the part of buffer {one.array.buffer} on this server"
            )
        found = pieces_of(flat, start, one.step, one.count, one.width)
        if found.flags.c_contiguous:
            keep.append(buffer)
        else:
            (block,) = session.store.memory.allocate([found.nbytes], "a fetch of another server")
            copy = block.array(found.dtype, found.shape)
            np.copyto(copy, found)
            found = copy
            keep.append(block)
        parts.append(byte_view(found))
    for shelf in request.fetch.shelves:
        held, block = session.store.workspace(shelf.workspace).held(shelf.name)
        if shelf.start + shelf.count > len(held):
            raise InvalidProgram(
                f"a fetch of rows {shelf.start} to {shelf.start + shelf.count} of "
                f"{shelf.name[:40]!r}, which has {len(held)} here"
            )
        parts.append(byte_view(held[shelf.start : shelf.start + shelf.count]))
        keep.append(block)
    return Response(pb.Reply(payload=sum(map(len, parts))), parts, keep)


_SMALL_WORKING_BYTES = 64 << 20
"""Working memory of a program that is counted, but not refused: it may run with donors, and must
not fail on one of several servers. Larger is that of long programs over blocks of 2^18 and more."""
_UNCOUNTED_BYTES = 1 << 20
_FEW_BYTES = 1 << 12
"""A program of no more bytes has no more values than are allowed; its lengths are checked where it
is decoded. (To look costs a tenth of what a small program does.)"""


Array = npt.NDArray[np.generic]


@dataclass(slots=True)
class _Ready:
    """A sweep call with all that it needs."""

    call: SweepCall
    kernel: Kernel
    inputs: Sequence[Buffer | None]
    """None for those that are read through views."""
    outputs: Sequence[Buffer]
    here: Part
    staging: Staging | None


@command(program_within_bounds, small=_FEW_BYTES)
def run(session: ServerSession, request: pb.Request, payload: Payload) -> Response:
    """Run the sweeps in order; all their outputs become visible at the end, or none.

    Raises ``Abandoned`` if the server stops, the session is closed or the sender is gone
    meanwhile, ``ProgramCancelled`` if the sender wants it; but neither for a sender whose
    repeat would miss what the program was given.
    """
    small = session.call_cache.find(request.run)
    if small is not None:
        return Response(pb.Reply(partials=[one.tobytes() for one in run_small(session, small)]))
    calls = [decode_call(m, session.sweep(m)) for m in request.run.calls]
    collectives = [
        [decode_collective(m) for m in some] for some in (request.run.before, request.run.after)
    ]
    donors = verify_calls(calls)
    if any(collectives):
        if donors:
            raise InvalidProgram("a program with collectives cannot donate memory")
        _verify_workspaces(calls, [*chain(*collectives)])
    with session.store.writing(donors) if donors else nullcontext(frozenset[int]()) as own:
        return _run(session, request, payload, calls, collectives, donors, own)


def run_small(session: ServerSession, calls: Sequence[SmallCall]) -> list[Array]:
    """The partial results of a program of which all was verified before but the ids."""
    store, turns = session.store, session.host.fair_lock
    parts: dict[int, Part] = {}
    for call in calls:
        for number, part in zip(call.outputs, call.known.outputs, strict=True):
            if number in parts:
                raise InvalidProgram(f"buffer {number} is written twice by the program")
            parts[number] = part
    store.refuse_taken(parts)
    made = dict(zip(parts, store.new(parts.values(), "the program"), strict=True))
    ready: list[tuple[SmallCall, list[Array], list[Array]]] = []
    visible: dict[int, Buffer] = {}
    stagings: dict[int, Staging] = {}
    for k, call in enumerate(calls):
        if call.viewing is not None:
            stagings[k] = _stage_alone(session, call, call.viewing, visible)
            visible |= {number: made[number] for number in call.outputs}
            ready.append((call, [], []))
            continue
        inputs = [
            store.get(number, part, visible).array
            for number, part in zip(call.inputs, call.known.inputs, strict=True)
        ]
        for number in call.outputs:
            visible[number] = made[number]
        ready.append((call, inputs, [made[number].array for number in call.outputs]))
    partials: list[Array] = []
    turns.take(session.name)
    try:
        if turns.stopped or session.closed:
            raise Abandoned("the server was stopped, or the session closed, before the program")
        for k, (call, inputs, outputs) in enumerate(ready):
            known = call.known
            if k in stagings:
                neighbours = Neighbours(session.host.peers, pb.Request())  # there are none
                written = [made[number] for number in call.outputs]
                partials += stagings[k].run(known.kernel, written, neighbours, lambda: None)
                continue
            low, size = known.here.low, known.here.block_size
            partials += known.kernel(inputs, call.scalars, outputs, low, known.length, size)
    finally:
        turns.give()
    if made:
        store.put(made)
    return partials


def _stage_alone(
    session: ServerSession, small: SmallCall, call: SweepCall, visible: dict[int, Buffer]
) -> Staging:
    """The views of a call on the only server of a session."""
    arguments = zip(call.inputs, small.known.inputs, call.views, strict=True)
    inputs = [
        session.store.get(number, part, visible) if view is None else None
        for number, part, view in arguments
    ]
    return stage(session, call, inputs)


def _run(
    session: ServerSession,
    request: pb.Request,
    payload: Payload,
    calls: Sequence[SweepCall],
    collectives: Sequence[Sequence[CollectiveCall]],
    donors: Sequence[int],
    own: Collection[int],
) -> Response:
    """The program, verified. ``own``: those donors that it may write over."""
    made, ready, phases = _prepare(session, calls, collectives[0], collectives[1], own)
    working = _working_memory(session.store.memory, ready)
    turns, log = session.host.fair_lock, session.reply_log(request.client)

    def look() -> None:
        if turns.stopped:
            raise Abandoned("the server was stopped before the program had ended")
        if session.closed:
            raise Abandoned("the session was closed before the program had ended")
        if donors:
            return
        if log.cancelled >= request.sequence:
            raise ProgramCancelled("the program was cancelled before it changed any data")
        if not payload.wanted():
            raise Abandoned("the client left before the program had ended")

    partials: list[bytes] = []
    stagings = [one.staging for one in ready if one.staging is not None]
    fetches = bool(stagings or any(phases))
    neighbours = Neighbours(session.host.peers, request) if fetches else None
    before, after = phases
    try:
        if neighbours is not None:
            asked = fetch_little(stagings, session.store.memory, neighbours)
            if donors:  # as long as the others can still fail
                wait_for_all(asked, look)
        with turns.taken(session.name, look) as turn:
            if donors:  # from here on they are lost, whatever happens
                session.store.give_up(donors)
            for phase in before:
                partials += phase.run(session, neighbours, turn.pause)  # type: ignore[arg-type]
            for call in ready:
                partials += _sweep(call, neighbours, turn.pause)
            for phase in after:
                partials += phase.run(session, neighbours, turn.pause)  # type: ignore[arg-type]
    finally:
        if neighbours is not None:
            neighbours.leave()
    if working is None:  # else it is counted each time
        for call in ready:
            session.call_cache.note(call.call, call.kernel, session.part_of)
    del working
    ran = (*before, *after)
    begun = {one.call.workspace: one.workspace for one in ran if one.begins}
    session.store.put(made, begun=begun)
    for one in ran:  # not before: a program that failed may come again, with the same phases
        one.workspace.phase = one.call.phase
    reply = pb.Reply(partials=partials)
    if neighbours is not None:
        reply.peer_messages, reply.peer_bytes = neighbours.messages, neighbours.bytes
    return Response(reply)


def _verify_workspaces(calls: Sequence[SweepCall], collectives: Sequence[CollectiveCall]) -> None:
    """Raise ``InvalidProgram`` unless each collective has one of its own, that no buffer is."""
    taken = {number for call in calls for number in call.outputs}
    taken.update(number for collective in collectives for number in collective.outputs)
    for collective in collectives:
        if collective.workspace in taken:
            raise InvalidProgram(f"workspace {collective.workspace} is used twice by the program")
        taken.add(collective.workspace)


def _prepare(
    session: ServerSession,
    calls: Sequence[SweepCall],
    before: Sequence[CollectiveCall],
    after: Sequence[CollectiveCall],
    own: Collection[int],
) -> tuple[dict[int, Buffer], list[_Ready], tuple[list[ReadyPhase], list[ReadyPhase]]]:
    """All that the calls write, and all that can fail; ``OutOfBudget`` if it is too large.

    Kernels are compiled here, so that nothing fails once memory was given away.
    """
    parts: dict[int, Part] = {}
    donors: dict[int, int] = {}
    for call in calls:
        if not call.sweep.is_flat:  # else its one row is looked at below
            for row in call.sweep.rows:
                session.part_of(call.space, "bool", row)
        if call.donors:
            pairs = zip(call.outputs, call.donors, strict=False)
            donors |= {output: donor for output, donor in pairs if donor in own}
        for number, value in zip(call.outputs, call.sweep.stored, strict=True):
            parts[number] = session.part_of(call.space, value.dtype, value.row)
    for collective in (*before, *after):
        parts |= parts_made(session, collective)
    store = session.store
    store.refuse_taken(parts)
    _refuse_large_partials(session, calls)
    made = {n: store.get(donor, parts[n]).successor() for n, donor in donors.items()}
    fresh = {number: part for number, part in parts.items() if number not in donors}
    made |= zip(fresh, store.new(fresh.values(), "the program"), strict=True)
    by_collectives = {number for collective in (*before, *after) for number in collective.made}
    visible = {number: made[number] for number in by_collectives}
    earlier = [prepare(session, collective, visible) for collective in before]
    arguments: list[tuple[list[Buffer | None], list[Buffer]]] = []
    for call in calls:
        views = call.views or (None,) * len(call.inputs)
        inputs = [
            store.get(number, session.part_of(call.space, value.dtype, value.row), visible)
            if view is None
            else None
            for number, value, view in zip(call.inputs, call.sweep.inputs, views, strict=True)
        ]
        outputs = [made[number] for number in call.outputs]
        arguments.append((inputs, outputs))
        visible |= zip(call.outputs, outputs, strict=True)
    ready = []
    for call, (inputs, outputs) in zip(calls, arguments, strict=True):
        kernel = session.kernel(call.sweep, call.space)  # compiled last: it may take long
        here = session.part_of(call.space, "bool", call.sweep.row)
        staging = stage(session, call, inputs) if call.views else None
        ready.append(_Ready(call, kernel, inputs, outputs, here, staging))
    later = [prepare(session, collective, visible) for collective in after]
    return made, ready, (earlier, later)


def _refuse_large_partials(session: ServerSession, calls: Sequence[SweepCall]) -> None:
    total = 0
    for call in calls:
        if call.sweep.reductions:
            here = session.part_of(call.space, "bool", ())
            length = here.high - here.low
            if call.sweep.leaves_rows:
                total += partial_bytes(call, here.low, length)
            else:
                total += 8 * -(-length // here.block_size) * len(call.sweep.reductions)
    if total > MOST_PARTIAL_BYTES:
        raise InvalidProgram(
            f"the program returns {total} bytes of partial results, but a reply holds "
            f"{MOST_PARTIAL_BYTES}: evaluate fewer reductions in one call"
        )


def _working_memory(memory: Memory, ready: Sequence[_Ready]) -> Reservation | None:
    """Room for what the kernels need meanwhile, if that is worth mentioning."""
    most = 0
    for one in ready:
        length = one.here.high - one.here.low if one.staging is None else one.staging.longest
        most = max(most, one.kernel.working_bytes(length, one.here.block_size))
    if most < _UNCOUNTED_BYTES:
        return None
    return memory.reserve(most, "computing the program", force=most <= _SMALL_WORKING_BYTES)


def _sweep(one: _Ready, neighbours: Neighbours | None, pause: Callable[[], None]) -> list[bytes]:
    """Run one sweep."""
    if one.staging is not None and neighbours is not None:
        partials = one.staging.run(one.kernel, one.outputs, neighbours, pause)
    else:
        partials = one.kernel(
            [buffer.array for buffer in one.inputs if buffer is not None],
            one.call.scalars,
            [buffer.array for buffer in one.outputs],
            one.here.low,
            one.here.high - one.here.low,
            one.here.block_size,
            pause,
        )
    return [partial.tobytes() for partial in partials]
