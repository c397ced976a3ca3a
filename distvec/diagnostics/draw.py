"""Plans as drawings, DOT or SVG, and the engines that servers run their sweeps by."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

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


_SECONDS = 60.0


class Explanation(str):
    """Text that notebooks and the interpreter's prompt show line by line, not in quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def draw(template: Template, format: str) -> str:
    """``template`` as ``"dot"`` or ``"svg"``.

    ``ValueError`` for another format, ``RuntimeError`` where Graphviz is missing or fails.
    """
    text = "\n".join(_lines(template))
    if format == "dot":
        return text
    if format != "svg":
        raise ValueError(f"format must be 'text', 'dot' or 'svg', got {format!r}")
    command = shutil.which("dot")
    if command is None:
        raise RuntimeError(
            "format='svg' needs Graphviz: install it (Debian, Ubuntu: apt install graphviz), or "
            "use format='dot' and render it elsewhere"
        )
    done = subprocess.run(
        [command, "-Tsvg"], input=text, capture_output=True, text=True, timeout=_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"Graphviz failed: {done.stderr.strip()}")
    return done.stdout


def _lines(template: Template) -> Iterator[str]:
    yield "digraph plan {"
    yield '  node [fontname="Helvetica", fontsize=10, shape=box];'
    # Where a scalar comes from: by its position the drawn node that gives it.
    sources: dict[int, str] = {}
    stored: dict[int, str] = {}
    for number, program in enumerate(template.programs):
        yield f"  subgraph cluster_{number} {{"
        yield f'    label="program {number + 1}: one message per server";'
        answers: dict[int, str] = {}
        edges: list[str] = []
        for place, phase in enumerate(program.before):
            name = f"p{number}before{place}"
            yield f"    {_node(phase, name)}"
            edges += _arrows(phase, name, sources, stored)
            if phase.is_last:
                stored |= dict.fromkeys(phase.outputs, name)
                answers |= dict.fromkeys(phase.outputs, name)
        for place, sweep in enumerate(program.sweeps):
            prefix = f"p{number}s{place}"
            yield from (f"    {line}" for line in _nodes(sweep, prefix))
            edges += _edges(sweep, prefix, sources, stored)
            for k, position in enumerate(sweep.reductions):
                answers[position] = f"{prefix}r{k}"
            for k, position in enumerate(sweep.stores):
                stored[position] = f"{prefix}o{k}"
        for place, phase in enumerate(program.after):
            name = f"p{number}after{place}"
            yield f"    {_node(phase, name)}"
            edges += _arrows(phase, name, sources, stored)
        yield "  }"
        yield from (f"  {edge};" for edge in edges)
        sources |= answers
        if program.scalars:
            client = f"client{number}"
            yield f'  {client} [label="{len(program.scalars)} scalar operations", shape=ellipse];'
            yield from (f"  {answer} -> {client};" for answer in answers.values())
            sources |= dict.fromkeys(program.scalars, client)
    yield "}"


def _node(phase: PlannedPhase, name: str) -> str:
    text = f"{phase.kind}, phase {phase.phase + 1} of {phase.phases}"
    return f'{name} [label="{text}", shape=hexagon, style=filled];'


def _arrows(
    phase: PlannedPhase, name: str, sources: dict[int, str], stored: dict[int, str]
) -> Iterator[str]:
    yield from (f"{stored[k]} -> {name}" for k in phase.inputs if k in stored)
    yield from (f"{sources[k]} -> {name}" for k in phase.operands if k in sources)


def _nodes(sweep: PlannedSweep, prefix: str) -> Iterator[str]:
    kinds = sweep.structure
    first = len(kinds.inputs) + len(kinds.scalars)
    for k, value in enumerate(kinds.inputs):
        yield f'{prefix}v{k} [label="load {value.dtype}[{sweep.space.length}]", style=filled];'
    for k, value in enumerate(kinds.scalars, len(kinds.inputs)):
        yield f'{prefix}v{k} [label="scalar {value.dtype}", shape=ellipse];'
    for k, step in enumerate(kinds.steps, first):
        yield f'{prefix}v{k} [label="{step.op} {step.type.dtype}"];'
    for k, reason in enumerate(sweep.reasons):
        yield f'{prefix}o{k} [label="store: {reason}", style=filled];'
    for k, reduction in enumerate(kinds.reductions):
        yield f'{prefix}r{k} [label="{reduction.op}", shape=invtriangle];'


def _edges(
    sweep: PlannedSweep, prefix: str, sources: dict[int, str], stored: dict[int, str]
) -> Iterator[str]:
    kinds = sweep.structure
    first = len(kinds.inputs) + len(kinds.scalars)
    for k, position in enumerate(sweep.inputs):
        if position in stored:
            yield f"{stored[position]} -> {prefix}v{k}"
    for k, position in enumerate(sweep.scalars, len(kinds.inputs)):
        if position in sources:
            yield f"{sources[position]} -> {prefix}v{k}"
    for k, step in enumerate(kinds.steps, first):
        yield from (f"{prefix}v{arg} -> {prefix}v{k}" for arg in step.args)
    for k, value in enumerate(kinds.outputs):
        yield f"{prefix}v{value} -> {prefix}o{k}"
    for k, reduction in enumerate(kinds.reductions):
        yield from (f"{prefix}v{arg} -> {prefix}r{k}" for arg in reduction.args)
