"""A plan: the programs that compute what was asked, with their cost, in a form that prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from distvec.graph.node import GATHER, SPREAD, Node
from ps_backend.program.collectives import CollectiveTypes
from ps_backend.program.spaces import Space
from ps_backend.program.sweep import Sweep
from ps_backend.program.types import NodeType


class Reason(Enum):
    """Why a program was a request of its own, and a way to need fewer."""

    ASKED = "a value was asked for", "ask for several together: dv.evaluate(a, b)"
    SCALAR = "a scalar of the program before was needed", ""
    STORED = "it reads at other places what the program before stored", ""
    PHASE = "servers exchange elements", ""
    OVERDUE = "many operations were pending", "call x.persist() in each step of the loop"
    FLUSHED = "flush() was called", ""
    CANCELLED = (
        "an expanded inner product lost digits",
        "session.cancellation_limit = 0 computes each directly",
    )
    ALONE = "what came along failed", "evaluate first what raises the error, or drop it"
    TAKEN_BACK = "a program sent before failed", "ask for its arrays to see the error"

    def __init__(self, text: str, advice: str) -> None:
        self.text, self.advice = text, advice


@dataclass
class PlannedView:
    """How a sweep reads an input that is stored otherwise: see ``distvec.graph.node``."""

    source: NodeType
    op: str
    params: tuple[int, ...]
    index: int | None
    """The position of the node whose values are the slots to be read."""

    def __str__(self) -> str:
        if self.op == GATHER:
            return f"the slots that an index vector names, of {self.source.space}"
        start, step = self.params
        if self.op == SPREAD:
            return f"put at slots {start}, {start + step}, ..., from {self.source.space}"
        return f"slots {start}, {start + step}, ... of {self.source.space}"


@dataclass
class PlannedSweep:
    """One traversal. Inputs, scalars, stores and reductions are positions of nodes in a plan."""

    structure: Sweep
    space: Space
    inputs: list[int]
    views: list[PlannedView | None]
    """Per input how it is read, if not slot by slot; then its position is that of the source."""
    scalars: list[int]
    stores: list[int]
    reductions: list[int]
    products: list[tuple[int, int] | None]
    """Per reduction the two vectors whose inner product it is, if it is one."""
    reasons: list[str]
    """Per store why it is stored."""

    @property
    def bytes_read(self) -> int:
        """Bytes of the inputs, on all servers together; what several views read counts once."""
        read: dict[int, int] = {}
        for position, value, view in zip(
            self.inputs, self.structure.inputs, self.views, strict=True
        ):
            own = value.row_bytes * self.space.length
            whole = own if view is None else view.source.nbytes
            read[position] = min(read.get(position, 0) + own, whole)
        return sum(read.values())

    @property
    def vectors_read(self) -> int:
        """The arrays that are read, each counted once."""
        return len(set(self.inputs))

    @property
    def bytes_written(self) -> int:
        """Bytes of the outputs, on all servers together."""
        return sum(value.row_bytes for value in self.structure.stored) * self.space.length

    def lines(self) -> Iterator[str]:
        """The sweep in print: cost, steps, and why each store is made."""
        kinds = self.structure
        yield (
            f"sweep over {self.space.length:,} elements: reads {self.vectors_read} vectors "
            f"({self.bytes_read:,} bytes), writes {len(kinds.outputs)} "
            f"({self.bytes_written:,} bytes), {len(kinds.reductions)} reductions"
        )
        yield from (f"  {line}" for line in str(kinds).splitlines())
        for number, view in enumerate(self.views):
            if view is not None:
                yield f"  %{number} is a view: {view}"
        for value, reason in zip(kinds.outputs, self.reasons, strict=True):
            yield f"  %{value} is stored: {reason}"


@dataclass
class PlannedPhase:
    """A phase of a movement: see ``ps_backend.program.collectives``. All are positions of nodes.

    Where a single server has all of its arrays, one stands for all phases.
    """

    kind: str
    phase: int
    phases: int
    inputs: list[int]
    operands: list[int]
    outputs: list[int]
    params: tuple[int, ...]
    types: CollectiveTypes

    @property
    def is_last(self) -> bool:
        """Whether the outputs are there afterwards."""
        return self.phase == self.phases - 1

    def __str__(self) -> str:
        shapes = ", ".join(f"{one.dtype}{list(one.shape)}" for one in self.types.inputs)
        made = ", ".join(f"{one.dtype}{list(one.shape)}" for _, one in self.types.outputs)
        return f"{self.kind}, phase {self.phase + 1} of {self.phases}: {shapes} -> {made}"


@dataclass
class PlannedProgram:
    """The sweeps of one message, and the scalars that the client computes from its answer."""

    sweeps: list[PlannedSweep]
    scalars: list[int]
    before: list[PlannedPhase] = field(default_factory=list)
    """Phases of movements that run before the sweeps,"""
    after: list[PlannedPhase] = field(default_factory=list)
    """and after them."""

    @cached_property
    def is_local(self) -> bool:
        """Whether no server asks another one for anything."""
        moves = self.before or self.after
        return not moves and not any(view for sweep in self.sweeps for view in sweep.views)

    @cached_property
    def answers(self) -> bool:
        """Whether servers answer with more than that it ran."""
        return any(sweep.reductions for sweep in self.sweeps)

    @property
    def made(self) -> list[int]:
        """Positions of the arrays that movements make."""
        phases = (one for one in self.before if one.is_last)
        return [position for one in phases for position in one.outputs]


class PlannedValue(NamedTuple):
    """A value of a plan: what its node says, with positions as arguments."""

    op: str
    params: tuple[Any, ...]
    type: NodeType
    args: tuple[int, ...]
    """Of what is known before there are none."""
    is_expanded: bool
    """Whether it is an inner product expanded into others, which may cancel."""


@dataclass
class Template:
    """Programs in order, for any nodes of one shape; ``before`` are scalars that need no server."""

    programs: list[PlannedProgram]
    before: list[int]
    values: Sequence[PlannedValue] = field(default=(), repr=False)
    """By position."""
    notes: tuple[str, ...] = ()
    """What was decided beside the programs, and why."""
    _noted: dict[tuple[str, ...], Template] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def with_notes(self, notes: Sequence[str]) -> Template:
        """The same with further notes."""
        key = tuple(notes)
        noted = self._noted.get(key)
        if noted is None:
            noted = self._noted[key] = replace(self, notes=(*self.notes, *notes))
        return noted

    @cached_property
    def open(self) -> list[int]:
        """Positions of values that it computes."""
        found = set(self.before)
        for number, program in enumerate(self.programs):
            found |= self.answers(number)
            found.update(*[sweep.stores for sweep in program.sweeps])
        return sorted(found)

    @property
    def messages(self) -> int:
        """Messages to each server that holds data: one per program."""
        return len(self.programs)

    @property
    def _all(self) -> list[PlannedSweep]:
        return [sweep for program in self.programs for sweep in program.sweeps]

    @property
    def sweeps(self) -> int:
        """Traversals of memory."""
        return len(self._all)

    @property
    def phases(self) -> int:
        """Phases of movements."""
        return sum(len(program.before) + len(program.after) for program in self.programs)

    @property
    def vectors_read(self) -> int:
        """Vectors read, a vector counted once per sweep."""
        return sum(sweep.vectors_read for sweep in self._all)

    @property
    def vectors_written(self) -> int:
        """Vectors written."""
        return sum(len(sweep.structure.outputs) for sweep in self._all)

    @property
    def bytes_read(self) -> int:
        """Bytes read on all servers together."""
        return sum(sweep.bytes_read for sweep in self._all)

    @property
    def bytes_written(self) -> int:
        """Bytes written on all servers together."""
        return sum(sweep.bytes_written for sweep in self._all)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if not self.programs:
            yield "nothing to run on the servers"
            return
        yield (
            f"{self.messages} programs (messages per server), {self.sweeps} sweeps, "
            f"{self.vectors_read} vectors read ({self.bytes_read:,} bytes), "
            f"{self.vectors_written} written ({self.bytes_written:,} bytes)"
        )
        for number, program in enumerate(self.programs):
            yield f"program {number + 1}{self._why_not_before(number)}"
            yield from (f"  {phase}" for phase in program.before)
            for place, sweep in enumerate(program.sweeps):
                if place:
                    yield "  another sweep, as its arrays have another shape"
                yield from (f"  {line}" for line in sweep.lines())
            yield from (f"  {phase}" for phase in program.after)
            if program.scalars:
                yield f"  then {len(program.scalars)} scalar operations on the client"
        yield from (f"note: {note}" for note in self.notes)

    def reason(self, number: int) -> Reason:
        """Why a program could not be fused with the one before it."""
        return self._waits_for(number)[0]

    def _why_not_before(self, number: int) -> str:
        """The same in words, with numbers."""
        reason, waits, earlier = self._waits_for(number) if number else (None, 0, 0)
        if reason is Reason.SCALAR:
            return f", as {waits} of its scalars follow from program {earlier + 1}"
        if reason is Reason.PHASE:
            return ", as its phases take what others have left"
        return ", as it reads what the one before stores" if reason else ""

    def _waits_for(self, number: int) -> tuple[Reason, int, int]:
        """The reason; of scalars also how many, and of which program."""
        sweeps = self.programs[number].sweeps
        if any(one.phase for one in self.programs[number].before):
            return Reason.PHASE, 0, number - 1
        read = {position for sweep in sweeps for position in sweep.scalars}
        for earlier in range(number - 1, -1, -1):
            if waits := len(read & self.answers(earlier)):
                return Reason.SCALAR, waits, earlier
        return Reason.STORED, 0, number - 1

    def answers(self, number: int) -> set[int]:
        """Positions of the scalars that are known once a program has answered."""
        program = self.programs[number]
        reductions = {position for sweep in program.sweeps for position in sweep.reductions}
        return reductions | set(program.scalars) | set(program.made)


@dataclass(slots=True)
class Plan:
    """A template and the nodes that its positions stand for."""

    template: Template
    nodes: Sequence[Node | None]
    """None where there is no more of a node than its value."""
    values: list[Any]
    """By position, as far as known."""
    aliases: Sequence[tuple[Node, int]]
    """Nodes that get the value of another one, by its position."""
    direct: Mapping[int, Node]
    """By position of an expanded inner product the node that it stands for."""

    def __str__(self) -> str:
        return str(self.template)
