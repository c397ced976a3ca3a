"""What the mixed engine does with a chunk: steps by NumPy in turns with programs of loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ps_backend.kernels.compiled.chunk_steps import Filling, filling_of
from ps_backend.kernels.compiled.loop_program import LoopProgram, reduces_by_loop, runs_by_loop
from ps_backend.kernels.lowering.stages import stages_of
from ps_backend.program.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Stage:
    """Some steps by NumPy, then a program of loops."""

    fillings: tuple[Filling, ...]
    program: LoopProgram | None
    made: tuple[int, ...]
    """The values that it fills arrays with."""
    ended: tuple[int, ...]
    """The values whose arrays nobody reads after it."""

    @property
    def steps(self) -> int:
        """How many it takes."""
        return len(self.fillings) + (len(self.program.steps) if self.program else 0)


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """All stages of a sweep."""

    stages: tuple[Stage, ...]
    direct: dict[int, int]
    """By value the output that it is written to at once."""
    stores_directly: bool
    """Whether every output is one of those."""
    reduced: frozenset[int]
    """The reductions that the last program takes along."""
    most_alive: int
    """Arrays of a chunk that are needed at once, besides inputs and outputs."""

    @property
    def is_one_program(self) -> bool:
        """Whether all that is stored is written by one program."""
        return len(self.stages) == 1 and not self.stages[0].fillings and self.stores_directly

    @property
    def registers(self) -> int:
        """Of the program that has most."""
        return max((one.program.registers for one in self.stages if one.program), default=0)


def plan_of(sweep: Sweep) -> ChunkPlan:
    """How to compute all that is not constant in ``sweep``."""
    first = len(sweep.inputs) + len(sweep.scalars)
    steps = [v for v in range(first, len(sweep.types)) if v not in sweep.constants]
    by_loop = {value for value in steps if runs_by_loop(sweep, value)}
    called = {v: sweep.steps[v - first].args for v in steps if v not in by_loop}
    turns = stages_of(sweep, called)
    numbers = range(turns.last + 1)
    reduced = [k for k, r in enumerate(sweep.reductions) if reduces_by_loop(sweep, r)]
    others = [r.args for k, r in enumerate(sweep.reductions) if k not in reduced]
    reads = {sweep.reductions[k].args[0]: turns.last for k in reduced}
    """By value the last stage that reads it; other results are read when all are done."""
    reads |= dict.fromkeys({*sweep.outputs}.union(*others), turns.last + 1)
    for value in steps:
        for arg in sweep.steps[value - first].args:
            reads[arg] = max(reads.get(arg, 0), turns.of[value])
    crossing = {v for v in steps if v in called or reads.get(v, turns.of[v]) > turns.of[v]}
    programs: list[LoopProgram | None] = []
    for number in numbers:
        members = [v for v in steps if v in by_loop and turns.of[v] == number]
        taken = reduced if number == turns.last else []
        programs.append(LoopProgram(sweep, members, crossing, taken) if members or taken else None)
    direct = _direct(sweep, programs, reads)
    stages, alive, most = [], 0, 0
    for number, program in enumerate(programs):
        fillings = [filling_of(v, sweep.steps[v - first]) for v in called if turns.of[v] == number]
        made = [*(one.value for one in fillings), *(program.writes if program else ())]
        mine = [v for v in crossing - direct.keys() if reads.get(v, turns.of[v]) == number]
        alive += sum(v not in direct for v in made)
        most = max(most, alive)
        alive -= len(mine)
        stages.append(Stage(tuple(fillings), program, tuple(made), tuple(mine)))
    stores_directly = len(direct) == len(sweep.outputs)
    return ChunkPlan(tuple(stages), direct, stores_directly, frozenset(reduced), most)


def _direct(
    sweep: Sweep, programs: Sequence[LoopProgram | None], reads: dict[int, int]
) -> dict[int, int]:
    """The values that programs may write to outputs while inputs may lie there.

    Any input of the same dtype may; so nobody may read one afterwards.
    """
    found: dict[int, int] = {}
    for number, program in enumerate(programs):
        for value in program.writes if program else ():
            if value not in sweep.outputs:
                continue
            kind = sweep.types[value].dtype
            others = [k for k, one in enumerate(sweep.inputs) if one.dtype == kind]
            at = program.steps.index(value) if program else 0
            if all(
                reads.get(k, -1) < number
                or (reads[k] == number and program and program.last_reads.get(k, -1) <= at)
                for k in others
            ):
                found[value] = sweep.outputs.index(value)
    return found
