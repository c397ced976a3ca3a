"""Linear combinations in a sweep: left-leaning chains of scaled additions.

The values of a chain are all float64 or all float32. Every operation keeps its place, so that every
bit is that of the same arithmetic in NumPy.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ps_backend.program.sweep import Step, Sweep
from ps_backend.program.types import ValueType

START, ADD, SCALE, DIVIDE, SHIFT = range(5)
"""What a link of a chain does to its running value: begin as, or add, a vector times the
coefficient; multiply by, divide by or add the coefficient."""
NONE = -1
LEAST_LINKS = 4
LEAST_VECTORS = 3
"""Chains of fewer links or vectors, the value they start from included, stay in the rest."""

_FLOATS = (ValueType("float64"), ValueType("float32"))


@dataclass(frozen=True, slots=True)
class Link:
    """One operation of kind ``START``, ``ADD``, ... on the running value of a chain.

    The coefficient is ``sign`` times the runtime scalar ``scalar``, or times one if that is
    ``NONE``; ``vector`` is an input, or ``NONE`` where the link takes none.
    """

    kind: int
    vector: int = NONE
    scalar: int = NONE
    sign: float = 1.0


@dataclass(frozen=True, slots=True)
class Chain:
    """Links up to some value of the sweep, from ``start`` or, if ``None``, from an input."""

    links: tuple[Link, ...]
    start: int | None

    @property
    def is_long(self) -> bool:
        """Whether taking it out of the sweep pays."""
        own = self.start is not None
        vectors = sum(link.vector != NONE for link in self.links) + own
        return len(self.links) + own >= LEAST_LINKS and vectors >= LEAST_VECTORS


def chains_of(sweep: Sweep) -> dict[int, Chain]:
    """Every maximal chain, by the value that it computes."""
    first = len(sweep.inputs) + len(sweep.scalars)
    uses = Counter(arg for step in sweep.steps for arg in step.args)
    uses.update((*sweep.outputs, *(reduction.arg for reduction in sweep.reductions)))
    leaves = _leaves(sweep)
    chains: dict[int, Chain] = {}
    for value, step in enumerate(sweep.steps, first):
        if value in leaves or not _is_of_one_float_dtype(sweep, step):
            continue
        # Of two candidates for the running value the one that goes on from a chain is taken.
        for position in sorted(range(len(step.args)), key=lambda k: step.args[k] not in chains):
            links = _links(sweep, step, position, leaves)
            if links:
                running = step.args[position]
                before = Chain((), running)
                if running in chains and uses[running] == 1:
                    before = chains.pop(running)
                elif running in leaves:
                    before = Chain((leaves[running],), None)
                chains[value] = Chain(before.links + links, before.start)
                break
    return chains


def _is_of_one_float_dtype(sweep: Sweep, step: Step) -> bool:
    return step.type in _FLOATS and all(sweep.types[arg] == step.type for arg in step.args)


def _leaves(sweep: Sweep) -> dict[int, Link]:
    """Values that are an input, perhaps times a scalar, perhaps negated: how a chain begins.

    They cost so little that a chain computes its own, also where others need the value too.
    """
    count = len(sweep.inputs)
    first = count + len(sweep.scalars)
    leaves = {k: Link(START, k) for k in range(count) if sweep.inputs[k] in _FLOATS}
    for value, step in enumerate(sweep.steps, first):
        if not _is_of_one_float_dtype(sweep, step):
            continue
        if step.op == "negative" and step.args[0] in leaves:
            leaf = leaves[step.args[0]]
            leaves[value] = Link(START, leaf.vector, leaf.scalar, -leaf.sign)
        elif step.op == "multiply":
            for factor, scalar in (step.args, step.args[::-1]):
                if factor in leaves and count <= scalar < first and leaves[factor].scalar == NONE:
                    leaf = leaves[factor]
                    leaves[value] = Link(START, leaf.vector, scalar - count, leaf.sign)
    return leaves


def _links(sweep: Sweep, step: Step, position: int, leaves: dict[int, Link]) -> tuple[Link, ...]:
    """What ``step`` does to its argument ``position`` as links; empty if a chain cannot do it.

    ``x - a*y`` is ``x + (-a)*y`` to the last bit, and ``a*y - x`` is ``-x + a*y``.
    """
    count = len(sweep.inputs)
    running = step.args[position]
    if count <= running < count + len(sweep.scalars):
        return ()
    if step.op == "negative":
        return (Link(SCALE, sign=-1.0),)
    if step.op not in ("add", "subtract", "multiply", "divide"):
        return ()
    other = step.args[1 - position]
    is_scalar = count <= other < count + len(sweep.scalars)
    if step.op in ("add", "subtract"):
        negated = step.op == "subtract"
        sign = -1.0 if negated and position == 0 else 1.0
        flip = (Link(SCALE, sign=-1.0),) if negated and position == 1 else ()
        if is_scalar:
            return (*flip, Link(SHIFT, scalar=other - count, sign=sign))
        if other in leaves:
            leaf = leaves[other]
            return (*flip, Link(ADD, leaf.vector, leaf.scalar, sign * leaf.sign))
        return ()
    if not is_scalar or (step.op == "divide" and position == 1):
        return ()
    return (Link(SCALE if step.op == "multiply" else DIVIDE, scalar=other - count),)
