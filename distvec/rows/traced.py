"""A function that was traced: its row program, and what a call of it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distvec.rows.kinds import Kind
from distvec.rows.numbers import Numbers
from ps_backend.program.row_program import RowProgram
from ps_backend.program.sweep import Scalar


@dataclass(frozen=True, eq=False)
class Traced:
    """A row program with the names of what it takes. Of one signature: dtypes and rows."""

    name: str
    kinds: Mapping[str, Kind]
    """By argument what it is."""
    program: RowProgram
    arrays: tuple[str, ...]
    """The arguments that stand for arrays, as the program counts these."""
    given: tuple[str, ...]
    """Those that bring a row for each key, in the order of the program's inputs."""
    numbers: Numbers
    several: bool
    """Whether what it returns per key is a tuple."""

    def scalars(self, arguments: Mapping[str, Any]) -> tuple[Scalar, ...]:
        """The runtime scalars of the sweep, from the numbers among ``arguments``."""
        return self.numbers.of(arguments)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        program, sweep = self.program, self.program.sweep
        yield f"row program of {self.name}: one message to each server that holds some of the keys"
        for name, kind in self.kinds.items():
            yield f"  {name}: {kind}"
        names = [f"rows of {self.arrays[array]}" for array in program.gathers]
        names += [f"{name}, per key" for name in self.given] + ["the keys"] * program.with_keys
        first = len(sweep.inputs)
        for number, line in enumerate(str(sweep).splitlines()):
            if not line.startswith("store "):
                what = f"  <- {names[number]}" if number < first else ""
                yield f"  {line}{what}"
        verbs = {"replace": "replaces", "add": "is added to", "min": "lowers", "max": "raises"}
        for scatter in program.scatters:
            value = sweep.outputs[scatter.output]
            yield f"  %{value} {verbs[scatter.op]} the rows of {self.arrays[scatter.array]}"
        for output in program.returns:
            yield f"  %{sweep.outputs[output]} is returned"
        if not program.changes:
            yield "  it only reads: keys that are not there are not inserted"
