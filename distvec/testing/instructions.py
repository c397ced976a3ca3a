"""The instructions of random programs: all that changes, shares, frees or reads an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from distvec.testing.operations import Operation
from distvec.testing.program import Machine


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
    """Compute some arrays at once."""

    names: tuple[str, ...]

    def run(self, machine: Machine) -> None:
        """Compute them."""
        machine.evaluate(*map(machine.value, self.names))

    def __str__(self) -> str:
        return f"evaluate({', '.join(self.names)})"


@dataclass(frozen=True)
class Flush:
    """Send off all that is pending."""

    def run(self, machine: Machine) -> None:
        """Send it."""
        machine.flush()

    def __str__(self) -> str:
        return "session.flush()"
