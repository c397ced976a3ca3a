"""A function that was traced: its row program, and what a call of it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distvec.graph.node import Node
from distvec.rows.kinds import Keys, Kind, PerKey, RowsOf
from distvec.rows.lowering import as_node, fitted, lowered, per_key
from distvec.rows.numbers import Numbers
from distvec.rows.tracing import BATCH, NotTraceable, Trace
from distvec.rows.updates import Update, sorted_out
from ps_backend.program.row_program import RowProgram
from ps_backend.program.sweep import Scalar
from ps_backend.program.types import array_type


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


def trace(
    name: str, function: Callable[[Mapping[str, Any]], Any], kinds: Mapping[str, Kind]
) -> Traced:
    """Run ``function`` once, on tracers by the names of its arguments, and see what it returns.

    ``NotTraceable`` for what is no row program; ``TypeError`` and ``ValueError`` for what it must
    not return.
    """
    home = Trace()
    tracers = {argument: home.tracer(kind) for argument, kind in kinds.items()}
    nodes = {argument: tracer.node for argument, tracer in tracers.items()}
    returned = sorted_out(function(tracers), name)
    found = lowered(
        [nodes[argument] for argument, kind in kinds.items() if isinstance(kind, RowsOf)],
        [nodes[argument] for argument, kind in kinds.items() if isinstance(kind, PerKey)],
        next((nodes[argument] for argument, kind in kinds.items() if kind == Keys()), None),
        [
            (_new_rows(home, name, argument, update, kinds), nodes[argument], update.op)
            for argument, update in returned.updates.items()
        ],
        [per_key(home.graph, value) for value in returned.values],
    )
    names = {id(node): argument for argument, node in nodes.items()}
    return Traced(
        name,
        kinds,
        found.program,
        tuple([names[id(node)] for node in found.arrays]),
        tuple([names[id(node)] for node in found.given]),
        Numbers(found.scalars, {node: argument for argument, node in nodes.items()}),
        returned.several,
    )


def _new_rows(
    home: Trace, function: str, name: str, update: Update, kinds: Mapping[str, Kind]
) -> Node:
    """The node of new rows, as the array ``name`` takes them."""
    kind = kinds.get(name)
    if not isinstance(kind, RowsOf):
        arrays = [one for one, other in kinds.items() if isinstance(other, RowsOf)]
        raise NotTraceable(
            f"{function} returns new rows for {name!r}, which is none of the arrays that it is "
            f"called with: {', '.join(arrays) or 'there are none'}"
        )
    type = array_type(BATCH, kind.dtype, kind.row)
    return fitted(home.graph, as_node(home.graph, update.rows), type, name)
