"""Random programs over vectors, run alike on servers and on NumPy arrays with error bounds.

Their instructions: all that changes, shares, frees or reads an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from distvec.array.elementwise import evaluate
from distvec.testing.bounded import Bounded
from distvec.testing.compare import REFUSALS, assert_within
from distvec.testing.strategies import Operation

if TYPE_CHECKING:
    from distvec.session import Session


@dataclass(frozen=True)
class Refused:
    """The result of an instruction that raised an exception.

    Parameters
    ----------
    kind : type
        Type of the exception.

    Examples
    --------
    >>> from distvec.testing import Refused
    >>> Refused(TypeError).kind
    <class 'TypeError'>
    """

    kind: type[Exception]


@dataclass
class Machine:
    """A machine that runs programs: on servers, or on NumPy arrays with error bounds.

    Parameters
    ----------
    array : callable
        Creates an array of the machine from a NumPy array.
    evaluate : callable
        Evaluates arrays.
    flush : callable
        Sends pending operations to the servers.
    variables : dict, optional
        Arrays by the names of variables. Default: empty.
    reads : dict, optional
        Values that the program read, by instruction. Default: empty.

    See Also
    --------
    server_machine : Create a machine that runs on servers.
    bounded_machine : Create a machine that runs on NumPy arrays.

    Examples
    --------
    >>> from distvec.testing import bounded_machine
    >>> machine = bounded_machine()
    >>> machine.variables["x"] = machine.array(np.ones(2))
    >>> machine.value("x").shape, machine.value(3.0)
    ((2,), 3.0)
    """

    array: Callable[[npt.NDArray[Any]], Any]
    evaluate: Callable[..., None]
    flush: Callable[[], None]
    variables: dict[str, Any] = field(default_factory=dict)
    reads: dict[str, Any] = field(default_factory=dict)

    def value(self, operand: Any) -> Any:
        """Return the array of a variable.

        Parameters
        ----------
        operand : str or object
            Name of a variable, or a value.

        Returns
        -------
        object
            The array of the variable; any other operand itself.
        """
        return self.variables[operand] if isinstance(operand, str) else operand

    def run(self, instruction: Instruction, line: int = 0) -> None:
        """Run one instruction, and store the value that it reads.

        Parameters
        ----------
        instruction : Instruction
            The instruction. If it raises an exception for unsupported operands, the value is
            ``Refused`` with its type.
        line : int, default 0
            Number of the line, for the name of the value.
        """
        try:
            with np.errstate(all="ignore"):
                read = instruction.run(self)
        except REFUSALS as error:
            read = Refused(type(error))
        if read is not None:
            self.reads[f"line {line}: {instruction}"] = read


def server_machine(session: Session) -> Machine:
    """Create a machine that runs programs on the servers of a session.

    Parameters
    ----------
    session : Session
        The session.

    Returns
    -------
    Machine
        The machine.

    Examples
    --------
    >>> from distvec.testing import server_machine
    >>> machine = server_machine(ps)
    >>> machine.array(np.ones(2))
    DistArray([1., 1.], dtype=float64, shape=(2,))
    """
    return Machine(session.array, evaluate, session.flush)


def bounded_machine() -> Machine:
    """Create a machine that runs programs on NumPy arrays with error bounds.

    Returns
    -------
    Machine
        The machine; its arrays are ``Bounded``.

    Examples
    --------
    >>> from distvec.testing import bounded_machine
    >>> bounded_machine().array(np.ones(2))
    Bounded(array([1., 1.]), error=0)
    """
    return Machine(Bounded, lambda *arrays: None, lambda: None)


class Instruction(Protocol):
    """One line of a program."""

    def run(self, machine: Machine) -> Any:
        """Change the variables of ``machine``, or return the value of one of them."""


@dataclass(frozen=True)
class Program:
    """Named input arrays, and instructions that change, share, free or read them.

    Parameters
    ----------
    inputs : mapping of str to numpy.ndarray
        Input arrays by name.
    instructions : sequence of Instruction
        The instructions in order.

    See Also
    --------
    programs : Draw random programs.

    Examples
    --------
    >>> from distvec.testing import Program, bounded_machine
    >>> program = Program({"a": np.arange(3.0)}, [])
    >>> program.run(bounded_machine())
    {'a in the end': Bounded(array([0., 1., 2.]), error=0)}
    """

    inputs: Mapping[str, npt.NDArray[Any]]
    instructions: Sequence[Instruction]

    def run(self, machine: Machine) -> dict[str, Any]:
        """Run the program, and return all values that it reads.

        Parameters
        ----------
        machine : Machine
            The machine to run on.

        Returns
        -------
        dict
            Values by the instruction that read them, and the values of all variables at the end:
            NumPy arrays, ``Bounded`` arrays, or ``Refused``.
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
    """Check that servers read the values that NumPy reads.

    Parameters
    ----------
    program : Program
        The program.
    reads : mapping of str to object
        The values that the program read on servers.

    Raises
    ------
    AssertionError
        If a value differs by more than its error bound, or an exception differs.

    Examples
    --------
    >>> from distvec.testing import Program, assert_same_reads, server_machine
    >>> program = Program({"a": np.arange(3.0)}, [])
    >>> assert_same_reads(program, program.run(server_machine(ps)))
    """
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
    """Return the elements that a drawn vector repeats: at most 17 of them."""
    for period in range(1, len(values)):
        if np.array_equal(values[period:], values[:-period], equal_nan=values.dtype.kind == "f"):
            return list(values[:period].tolist())
    return list(values.tolist())


@dataclass(frozen=True)
class Apply:
    """A new variable from others; nothing is computed yet."""

    target: str
    operation: Operation
    operands: tuple[Any, ...]

    def run(self, machine: Machine) -> None:
        """Bind the result."""
        machine.variables[self.target] = self.operation(*map(machine.value, self.operands))

    def __str__(self) -> str:
        return f"{self.target} = {self.operation}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class InPlace:
    """An in-place operator: all names of a vector see the new value, of a scalar this one alone."""

    operation: Operation
    target: str
    operand: Any

    def run(self, machine: Machine) -> None:
        """Update the array."""
        array = machine.value(self.target)
        result = self.operation(array, machine.value(self.operand))
        if array.shape == ():
            machine.variables[self.target] = result
        elif result is not array:
            raise AssertionError(f"{self} made another array")

    def __str__(self) -> str:
        return f"{self.target} = {self.operation}({self.target}, {self.operand})"


@dataclass(frozen=True)
class Into:
    """A ufunc with ``out=``."""

    function: np.ufunc
    operands: tuple[Any, ...]
    target: str

    def run(self, machine: Machine) -> None:
        """Update the array."""
        array = machine.value(self.target)
        result = self.function(*map(machine.value, self.operands), out=array)
        if result is not array:
            raise AssertionError(f"{self} returned another array")

    def __str__(self) -> str:
        operands = ", ".join(map(str, self.operands))
        return f"np.{self.function.__name__}({operands}, out={self.target})"


@dataclass(frozen=True)
class AssignAll:
    """``x[:] = y``."""

    target: str
    operand: Any

    def run(self, machine: Machine) -> None:
        """Update the array."""
        machine.value(self.target)[...] = machine.value(self.operand)

    def __str__(self) -> str:
        return f"{self.target}[...] = {self.operand}"


@dataclass(frozen=True)
class AssignSlice:
    """``x[1:] = y[:-1]`` and its like."""

    target: str
    to: slice
    operand: str
    source: slice

    def run(self, machine: Machine) -> None:
        """Update the array."""
        machine.value(self.target)[self.to] = machine.value(self.operand)[self.source]

    def __str__(self) -> str:
        return f"{self.target}[{self.to}] = {self.operand}[{self.source}]"


@dataclass(frozen=True)
class AssignMask:
    """``x[z > 0] = y[z > 0]``."""

    target: str
    operand: str
    condition: str

    def run(self, machine: Machine) -> None:
        """Update the array."""
        mask = machine.value(self.condition) > 0
        machine.value(self.target)[mask] = machine.value(self.operand)[mask]

    def __str__(self) -> str:
        mask = f"{self.condition} > 0"
        return f"{self.target}[{mask}] = {self.operand}[{mask}]"


@dataclass(frozen=True)
class Alias:
    """Another name of the same array."""

    target: str
    source: str

    def run(self, machine: Machine) -> None:
        """Bind the name."""
        machine.variables[self.target] = machine.value(self.source)

    def __str__(self) -> str:
        return f"{self.target} = {self.source}"


@dataclass(frozen=True)
class Copy:
    """An array of its own with the same values."""

    target: str
    source: str

    def run(self, machine: Machine) -> None:
        """Bind the copy."""
        machine.variables[self.target] = machine.value(self.source).copy()

    def __str__(self) -> str:
        return f"{self.target} = {self.source}.copy()"


@dataclass(frozen=True)
class Delete:
    """Forget a name; with the last one of an array, its buffer."""

    name: str

    def run(self, machine: Machine) -> None:
        """Unbind it."""
        del machine.variables[self.name]

    def __str__(self) -> str:
        return f"del {self.name}"


@dataclass(frozen=True)
class Push:
    """Add at indices, repeated ones as often as they are there."""

    target: str
    indices: tuple[int, ...]
    values: tuple[float, ...]

    def run(self, machine: Machine) -> None:
        """Update the array."""
        machine.value(self.target).push(list(self.indices), np.array(self.values))

    def __str__(self) -> str:
        return f"{self.target}.push({list(self.indices)}, {list(self.values)})"


@dataclass(frozen=True)
class Pull:
    """Read the elements at indices."""

    source: str
    indices: tuple[int, ...]

    def run(self, machine: Machine) -> Any:
        """The elements."""
        return machine.value(self.source).pull(list(self.indices))

    def __str__(self) -> str:
        return f"{self.source}.pull({list(self.indices)})"


@dataclass(frozen=True)
class Read:
    """Read a whole array, or a scalar."""

    source: str

    def run(self, machine: Machine) -> Any:
        """The values."""
        return machine.value(self.source).numpy()

    def __str__(self) -> str:
        return f"{self.source}.numpy()"


@dataclass(frozen=True)
class Evaluate:
    """Compute some arrays in one call."""

    names: tuple[str, ...]

    def run(self, machine: Machine) -> None:
        """Compute them."""
        machine.evaluate(*map(machine.value, self.names))

    def __str__(self) -> str:
        return f"evaluate({', '.join(self.names)})"


@dataclass(frozen=True)
class Flush:
    """Send all pending operations to the servers."""

    def run(self, machine: Machine) -> None:
        """Send it."""
        machine.flush()

    def __str__(self) -> str:
        return "session.flush()"
