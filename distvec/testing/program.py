"""Random programs over vectors, run alike on servers and on NumPy arrays with error bounds.

A program is a list of instructions over named variables, printed as the Python that it stands for.
What it reads is what two machines are compared by::

    @given(programs())
    def test(program):
        with distvec.local(servers=2, in_process=True) as session:
            assert_same_reads(program, program.run(server_machine(session)))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from distvec.array.functions import evaluate
from distvec.testing.bounded import Bounded
from distvec.testing.compare import REFUSALS, assert_within

if TYPE_CHECKING:
    from distvec.session import Session


@dataclass(frozen=True)
class Refused:
    """What an instruction reads that was refused: the type of the exception."""

    kind: type[Exception]


@dataclass
class Machine:
    """Where a program runs: how arrays are made, evaluated, sent off; and what was read."""

    array: Callable[[npt.NDArray[Any]], Any]
    evaluate: Callable[..., None]
    flush: Callable[[], None]
    variables: dict[str, Any] = field(default_factory=dict)
    reads: dict[str, Any] = field(default_factory=dict)
    """What was read, by where it was."""

    def value(self, operand: Any) -> Any:
        """The array that a variable stands for; what is no name stands for itself."""
        return self.variables[operand] if isinstance(operand, str) else operand

    def run(self, instruction: Instruction, line: int = 0) -> None:
        """One instruction. A refusal, such as NumPy's ``TypeError``, is read as its type."""
        try:
            with np.errstate(all="ignore"):
                read = instruction.run(self)
        except REFUSALS as error:
            read = Refused(type(error))
        if read is not None:
            self.reads[f"line {line}: {instruction}"] = read


def server_machine(session: Session) -> Machine:
    """Runs programs on the servers of ``session``."""
    return Machine(session.array, evaluate, session.flush)


def bounded_machine() -> Machine:
    """Runs programs on NumPy arrays that know how far servers may be from them."""
    return Machine(Bounded, lambda *arrays: None, lambda: None)


class Instruction(Protocol):
    """One line of a program."""

    def run(self, machine: Machine) -> Any:
        """Change the variables of ``machine``, or return what one of them holds."""


@dataclass(frozen=True)
class Program:
    """Named inputs and instructions."""

    inputs: Mapping[str, npt.NDArray[Any]]
    instructions: Sequence[Instruction]

    def run(self, machine: Machine) -> dict[str, Any]:
        """All that the program reads, by where; in the end every variable that is left is read.

        A value is a NumPy array, or a ``Bounded`` one, or ``Refused``.
        """
        for name, values in self.inputs.items():
            machine.variables[name] = machine.array(values)
        for line, instruction in enumerate(self.instructions, 1):
            machine.run(instruction, line)
        for name, array in machine.variables.items():
            machine.reads[f"{name} in the end"] = array.numpy()
        return machine.reads

    def __repr__(self) -> str:
        inputs = [
            f"{name} = np.resize({_distinct(v)!r}, {len(v)}).astype({v.dtype.name!r})"
            for name, v in self.inputs.items()
        ]
        lines = [f"{text}  # line {line}" for line, text in enumerate(self.instructions, 1)]
        return "\n".join(["", *inputs, *lines])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis prints a failing example."""
        printer.text(repr(self))


def assert_same_reads(program: Program, reads: Mapping[str, Any]) -> None:
    """What servers read is what NumPy reads, to the bit or within the bound of its error."""
    expected = program.run(bounded_machine())
    for place in {**expected, **reads}:
        ours, theirs = reads.get(place), expected.get(place)
        if isinstance(theirs, Bounded) and isinstance(ours, np.ndarray):
            assert_within(ours, theirs.value, theirs.error, place)
        elif not (isinstance(ours, Refused) and isinstance(theirs, Refused)):
            raise AssertionError(f"{place}: {ours!r} on servers, {theirs!r} on NumPy")
        elif not (issubclass(ours.kind, theirs.kind) or issubclass(theirs.kind, ours.kind)):
            raise AssertionError(f"{place}: {ours.kind} on servers, {theirs.kind} on NumPy")


def _distinct(values: npt.NDArray[Any]) -> list[Any]:
    """The elements that a drawn vector repeats: at most 17 of them."""
    for period in range(1, len(values)):
        if np.array_equal(values[period:], values[:-period], equal_nan=values.dtype.kind == "f"):
            return list(values[:period].tolist())
    return list(values.tolist())
