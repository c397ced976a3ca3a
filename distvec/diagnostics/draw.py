"""Plans as drawings, DOT or SVG, and the engines that servers run their sweeps by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distvec.diagnostics.diagram import Box, Diagram
from distvec.planner.plan import PlannedPhase, PlannedSweep, Template
from ps_backend.kernels import explained


def engines(template: Template, choice: str) -> Iterator[str]:
    """A line for each sweep, in order: the engine, and why it is that one.

    ``choice``: what the servers were told, one of ``arguments.ENGINES``.
    """
    for number, program in enumerate(template.programs, 1):
        for place, sweep in enumerate(program.sweeps, 1):
            which = f"sweep {place} of program {number}"
            yield f"{which} runs by {explained(sweep.structure, sweep.space.length, choice)}"


class Explanation(str):
    """Text that notebooks and the interpreter's prompt show line by line, or as a picture."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_svg_(self) -> str | None:
        return str(self) if self.startswith("<svg") else None


_MOST_NODES = 200
"""Of a drawing with more, the operations of each sweep are one node."""


def draw(template: Template, format: str) -> str:
    """``template`` as ``"dot"`` or ``"svg"``; ``ValueError`` for another format."""
    if format not in ("dot", "svg"):
        raise ValueError(f"format must be 'text', 'dot' or 'svg', got {format!r}")
    if format == "dot":
        return _Drawing(template, folds=False).diagram.dot()
    found = _Drawing(template, folds=False).diagram
    if len(found.boxes) > _MOST_NODES:
        found = _Drawing(template, folds=True).diagram
    return found.svg()


class _Drawing:
    """The diagram of a plan: its programs are the groups."""

    def __init__(self, template: Template, *, folds: bool) -> None:
        self.diagram = Diagram()
        self._folds = folds
        # Where a scalar comes from: by its position the drawn node that gives it.
        self._sources: dict[int, str] = {}
        self._stored: dict[int, str] = {}
        for number, program in enumerate(template.programs):
            self.diagram.groups.append(f"program {number + 1}: one message per server")
            answers: dict[int, str] = {}
            for place, phase in enumerate(program.before):
                name = f"p{number}before{place}"
                self._add_phase(phase, name, number)
                if phase.is_last:
                    self._stored |= dict.fromkeys(phase.outputs, name)
                    answers |= dict.fromkeys(phase.outputs, name)
            for place, sweep in enumerate(program.sweeps):
                prefix = f"p{number}s{place}"
                self._add_sweep(sweep, prefix, number)
                for k, position in enumerate(sweep.reductions):
                    answers[position] = f"{prefix}r{k}"
                for k, position in enumerate(sweep.stores):
                    self._stored[position] = f"{prefix}o{k}"
            for place, phase in enumerate(program.after):
                self._add_phase(phase, f"p{number}after{place}", number)
            self._sources |= answers
            if program.scalars:
                client = f"client{number}"
                text = f"{len(program.scalars)} scalar operations"
                self.diagram.boxes.append(Box(client, text, "ellipse"))
                self._connect((answer, client) for answer in answers.values())
                self._sources |= dict.fromkeys(program.scalars, client)

    def _connect(self, edges: Iterable[tuple[str, str]]) -> None:
        self.diagram.edges += edges

    def _add_phase(self, phase: PlannedPhase, name: str, group: int) -> None:
        text = f"{phase.kind}, phase {phase.phase + 1} of {phase.phases}"
        self.diagram.boxes.append(Box(name, text, "hexagon", group))
        self._connect((self._stored[k], name) for k in phase.inputs if k in self._stored)
        self._connect((self._sources[k], name) for k in phase.operands if k in self._sources)

    def _add_sweep(self, sweep: PlannedSweep, prefix: str, group: int) -> None:
        kinds = sweep.structure
        add = self.diagram.boxes.append
        inputs, first = len(kinds.inputs), len(kinds.inputs) + len(kinds.scalars)
        for k, value in enumerate(kinds.inputs):
            text = f"load {value.dtype}[{sweep.space.length}]"
            add(Box(f"{prefix}v{k}", text, "filled", group))
        for k, value in enumerate(kinds.scalars, inputs):
            add(Box(f"{prefix}v{k}", f"scalar {value.dtype}", "ellipse", group))
        names = [f"{prefix}v{k}" for k in range(first)]
        if self._folds and kinds.steps:
            whole = f"{prefix}steps"
            add(Box(whole, f"{len(kinds.steps)} operations", "box", group))
            self._connect((name, whole) for name in names)
            names += [whole] * len(kinds.steps)
        else:
            for k, step in enumerate(kinds.steps, first):
                names.append(f"{prefix}v{k}")
                add(Box(names[k], f"{step.op} {step.type.dtype}", "box", group))
                self._connect((names[arg], names[k]) for arg in step.args)
        for k, reason in enumerate(sweep.reasons):
            add(Box(f"{prefix}o{k}", f"store: {reason}", "filled", group))
        for k, reduction in enumerate(kinds.reductions):
            add(Box(f"{prefix}r{k}", reduction.op, "invtriangle", group))
            self._connect((names[arg], f"{prefix}r{k}") for arg in reduction.args)
        stored, sources = self._stored, self._sources
        self._connect((stored[p], names[k]) for k, p in enumerate(sweep.inputs) if p in stored)
        self._connect(
            (sources[p], names[k]) for k, p in enumerate(sweep.scalars, inputs) if p in sources
        )
        self._connect((names[value], f"{prefix}o{k}") for k, value in enumerate(kinds.outputs))
