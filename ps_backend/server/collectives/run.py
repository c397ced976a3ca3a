"""One phase of a collective within a program: what it needs is found first, then it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ps_backend.errors import InvalidProgram
from ps_backend.program.collectives import CollectiveCall, verify_collective
from ps_backend.program.types import ArrayType
from ps_backend.server import collectives
from ps_backend.server.collectives.phase import Phase
from ps_backend.server.peers import Neighbours
from ps_backend.server.sessions import ServerSession
from ps_backend.server.state.store import Buffer, Part, Workspace


@dataclass(slots=True)
class ReadyPhase:
    """A phase with all that it needs."""

    call: CollectiveCall
    inputs: list[Buffer]
    made: dict[int, Buffer]
    """What it makes, by output number."""
    workspace: Workspace

    def run(
        self, session: ServerSession, neighbours: Neighbours, pause: Callable[[], None]
    ) -> list[bytes]:
        """Run it; returns what the client keeps, if it is this server that says so."""
        call = self.call
        functions = collectives.PHASES[call.kind]
        some = functions if call.whole else functions[call.phase : call.phase + 1]
        for function in some:
            is_last = call.is_last and function is some[-1]
            phase = self._phase(session, neighbours, pause, self.made if is_last else {})
            with np.errstate(all="ignore"):
                function(phase)
        if not call.is_last or session.index != phase.servers[0]:
            return []
        results = [(type, phase.results[number]) for number, type in call.results]
        return [np.ascontiguousarray(values, type.dtype).tobytes() for type, values in results]

    @property
    def begins(self) -> bool:
        """Whether others will come after it, that look for the workspace."""
        return not (self.call.phase or self.call.whole)

    def _phase(
        self,
        session: ServerSession,
        neighbours: Neighbours,
        pause: Callable[[], None],
        made: Mapping[int, Buffer],
    ) -> Phase:
        return Phase(
            call=self.call,
            here=session.index,
            count=session.servers,
            buffers=self.inputs,
            outputs={number: buffer.array for number, buffer in made.items()},
            workspace=self.workspace,
            memory=session.store.memory,
            _neighbours=neighbours,
            _buffers=list(made.values()),
            pause=pause,
        )


def parts_made(session: ServerSession, call: CollectiveCall) -> dict[int, Part]:
    """By buffer what a phase makes on this server; raises ``InvalidProgram`` for no legal call."""
    verify_collective(call)
    if not call.is_last:
        return {}
    return {
        buffer: _part(session, type)
        for buffer, (_, type) in zip(call.outputs, call.types.outputs, strict=True)
        if isinstance(type, ArrayType)
    }


def prepare(
    session: ServerSession, call: CollectiveCall, visible: Mapping[int, Buffer]
) -> ReadyPhase:
    """Find what a phase needs; ``visible``: buffers that this program makes.

    Raises ``BufferLost``, ``InvalidProgram`` where phases come out of turn.
    """
    store = session.store
    if call.whole and (call.phase or call.servers(session.servers) != [session.index]):
        raise InvalidProgram(
            f"only a single server can run all phases of {call.kind} in one request"
        )
    inputs = []
    for number, type in zip(call.inputs, call.types.inputs, strict=True):
        part = _part(session, type)
        is_here = session.index in type.space.holders(session.servers)
        inputs.append(store.get(number, part, visible) if is_here else _empty_part(part, store.new))
    if call.phase:
        workspace = store.workspace(call.workspace)
    else:
        store.refuse_taken((call.workspace,))
        workspace = Workspace(store.memory, call.kind, (call.types, call.params))
    if (workspace.kind, workspace.phase) != (call.kind, call.phase - 1):
        raise InvalidProgram(
            f"phase {call.phase} of a {call.kind} came after phase {workspace.phase} of a "
            f"{workspace.kind}"
        )
    if workspace.of != (call.types, call.params):
        raise InvalidProgram(f"the phases of a {call.kind} are of different types or parameters")
    numbers = (number for number, _ in call.types.outputs)
    made = dict(zip(numbers, call.outputs, strict=True)) if call.is_last else {}
    buffers = {number: visible[buffer] for number, buffer in made.items() if buffer}
    return ReadyPhase(call, inputs, buffers, workspace)


def _empty_part(part: Part, new: Callable[..., list[Buffer]]) -> Buffer:
    """What a server has of an array of which it holds no slot."""
    (empty,) = new([part], "nothing")
    return empty


def _part(session: ServerSession, type: ArrayType) -> Part:
    return session.part_of(type.space, type.value.dtype, type.row)
