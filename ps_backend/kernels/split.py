"""What of a sweep can run without a compilation of its own.

An inner product of two inputs, or a linear combination of many, is the same loop whatever the
number of vectors; and NumPy's exponentials are faster than what a compiler makes of theirs. This
pass takes them out of a sweep. What is left, the *rest*, is a smaller sweep that reads the results
as further inputs; its structure no longer depends on how many vectors there were, so neither does
the number of compilations.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ps_backend.program import Reduction, Step, Sweep, ValueType

LEAST_DOTS = 5
"""Fewer inner products stay in the rest, which computes them as fast."""
LEAST_LINKS = 4
"""Shorter chains stay in the rest."""

_FLOAT = ValueType("float64")
NONE = -1

APPLIED = frozenset("exp expm1 log log1p log2 log10 tanh sin cos".split())
"""Ops that NumPy has vector code for and the compiler has not."""


@dataclass(frozen=True, slots=True)
class Link:
    """One operation on the running value of a chain: ``kind`` is what ``linear.chain`` calls it.

    The coefficient is ``sign`` times the runtime scalar ``scalar``, or times one if that is
    ``NONE``; ``vector`` is an input, or ``NONE`` where the link takes none.
    """

    kind: str
    vector: int = NONE
    scalar: int = NONE
    sign: float = 1.0


@dataclass(frozen=True, slots=True)
class Call:
    """An input of the rest that something else computes, chunk by chunk.

    It starts as value ``start`` of the rest, if not ``None``; then ``op`` is done in place: an op
    of the op table, or ``"chain"``.
    """

    op: str
    start: int | None


@dataclass(frozen=True, slots=True)
class Split:
    """A sweep in parts. The last ``len(calls)`` inputs of ``rest`` are the results of ``calls``."""

    rest: Sweep
    calls: tuple[Call, ...]
    chains: tuple[tuple[Link, ...], ...]
    """The links of those calls that are chains, in order."""
    inputs: tuple[int, ...]
    """Which inputs of the whole sweep the other inputs of the rest are."""
    scalars: tuple[int, ...]
    """Which of its runtime scalars those of the rest are."""
    dots: tuple[tuple[int, int], ...]
    """Pairs of inputs whose inner products are taken."""
    dotted: tuple[int, ...]
    """Which reductions of the whole sweep these are."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """Links up to some value of the sweep, from ``start`` or, if ``None``, from an input."""

    links: tuple[Link, ...]
    start: int | None


def split(sweep: Sweep) -> Split:
    """Take inner products, chains and exponentials out of ``sweep``."""
    dots = _dots(sweep)
    chains = {value: c for value, c in _chains(sweep).items() if len(c.links) >= LEAST_LINKS}
    first = len(sweep.inputs) + len(sweep.scalars)
    starts: dict[int, int | None] = {value: chain.start for value, chain in chains.items()}
    starts |= {
        value: step.args[0]
        for value, step in enumerate(sweep.steps, first)
        if step.op in APPLIED and step.type == sweep.types[step.args[0]] == _FLOAT
    }
    kept = [r for k, r in enumerate(sweep.reductions) if k not in dots]
    used = _used(sweep, [*sweep.outputs, *(r.arg for r in kept)], starts)
    inputs = [k for k in range(len(sweep.inputs)) if k in used]
    scalars = [k for k in range(len(sweep.inputs), first) if k in used]
    called = [value for value in sorted(starts) if value in used]
    steps = [k for k in range(first, len(sweep.types)) if k in used and k not in starts]
    new = {value: k for k, value in enumerate([*inputs, *called, *scalars, *steps])}
    rest = Sweep(
        inputs=(*(sweep.inputs[k] for k in inputs), *[_FLOAT] * len(called)),
        scalars=tuple(sweep.types[k] for k in scalars),
        steps=tuple(_renumbered(sweep.steps[k - first], new) for k in steps),
        outputs=tuple(new[value] for value in sweep.outputs),
        reductions=tuple(Reduction(r.op, new[r.arg]) for r in kept),
    )
    return Split(
        rest,
        calls=tuple(
            Call(
                "chain" if value in chains else sweep.steps[value - first].op,
                None if (start := starts[value]) is None else new[start],
            )
            for value in called
        ),
        chains=tuple(chains[value].links for value in called if value in chains),
        inputs=tuple(inputs),
        scalars=tuple(k - len(sweep.inputs) for k in scalars),
        dots=tuple(dots.values()),
        dotted=tuple(dots),
    )


def _renumbered(step: Step, new: dict[int, int]) -> Step:
    return Step(step.op, tuple(new[arg] for arg in step.args), step.type)


def _used(sweep: Sweep, roots: list[int], starts: dict[int, int | None]) -> set[int]:
    """The values that ``roots`` need, where those in ``starts`` need no more than their start."""
    first = len(sweep.inputs) + len(sweep.scalars)
    used: set[int] = set()
    while roots:
        value = roots.pop()
        if value in used:
            continue
        used.add(value)
        if value in starts:
            start = starts[value]
            roots += [] if start is None else [start]
        elif value >= first:
            roots += sweep.steps[value - first].args
    return used


def _dots(sweep: Sweep) -> dict[int, tuple[int, int]]:
    """The reductions that are inner products of inputs and nothing else, if there are many."""
    first = len(sweep.inputs) + len(sweep.scalars)
    other = set(sweep.outputs) | {arg for step in sweep.steps for arg in step.args}
    other |= {r.arg for r in sweep.reductions if r.op != "sum"}
    found = {}
    for number, reduction in enumerate(sweep.reductions):
        if reduction.arg < first or reduction.arg in other:
            continue
        step = sweep.steps[reduction.arg - first]
        if step.op in ("multiply", "square") and step.type == _FLOAT:
            factors = step.args if step.op == "multiply" else step.args * 2
            if all(arg < len(sweep.inputs) and sweep.types[arg] == _FLOAT for arg in factors):
                found[number] = (factors[0], factors[1])
    return found if len(found) >= LEAST_DOTS else {}


# --- chains ---------------------------------------------------------------------------------------


def _chains(sweep: Sweep) -> dict[int, _Chain]:
    """Every maximal chain, by the value that it computes."""
    first = len(sweep.inputs) + len(sweep.scalars)
    uses = Counter(arg for step in sweep.steps for arg in step.args)
    uses.update((*sweep.outputs, *(reduction.arg for reduction in sweep.reductions)))
    leaves = _leaves(sweep)
    chains: dict[int, _Chain] = {}
    for value, step in enumerate(sweep.steps, first):
        if step.type != _FLOAT or any(sweep.types[arg] != _FLOAT for arg in step.args):
            continue
        # Of two candidates for the running value the one that goes on from a chain is taken.
        for position in sorted(range(len(step.args)), key=lambda k: step.args[k] not in chains):
            links = _links(sweep, step, position, leaves)
            if links:
                running = step.args[position]
                before = _Chain((), running)
                if running in chains and uses[running] == 1:
                    before = chains.pop(running)
                elif running in leaves:
                    before = _Chain((leaves[running],), None)
                chains[value] = _Chain(before.links + links, before.start)
                break
    return chains


def _leaves(sweep: Sweep) -> dict[int, Link]:
    """Values that are an input, perhaps times a scalar, perhaps negated: how a chain begins.

    They cost so little that a chain computes its own, also where others need the value too.
    """
    count = len(sweep.inputs)
    first = count + len(sweep.scalars)
    leaves = {k: Link("start", k) for k in range(count) if sweep.inputs[k] == _FLOAT}
    for value, step in enumerate(sweep.steps, first):
        if step.type != _FLOAT or any(sweep.types[arg] != _FLOAT for arg in step.args):
            continue
        if step.op == "negative" and step.args[0] in leaves:
            leaf = leaves[step.args[0]]
            leaves[value] = Link("start", leaf.vector, leaf.scalar, -leaf.sign)
        elif step.op == "multiply":
            for factor, scalar in (step.args, step.args[::-1]):
                if factor in leaves and count <= scalar < first and leaves[factor].scalar == NONE:
                    leaf = leaves[factor]
                    leaves[value] = Link("start", leaf.vector, scalar - count, leaf.sign)
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
        return (Link("scale", sign=-1.0),)
    if step.op not in ("add", "subtract", "multiply", "divide"):
        return ()
    other = step.args[1 - position]
    is_scalar = count <= other < count + len(sweep.scalars)
    if step.op in ("add", "subtract"):
        negated = step.op == "subtract"
        sign = -1.0 if negated and position == 0 else 1.0
        flip = (Link("scale", sign=-1.0),) if negated and position == 1 else ()
        if is_scalar:
            return (*flip, Link("shift", scalar=other - count, sign=sign))
        if other in leaves:
            leaf = leaves[other]
            return (*flip, Link("add", leaf.vector, leaf.scalar, sign * leaf.sign))
        return ()
    if not is_scalar or (step.op == "divide" and position == 1):
        return ()
    return (Link("scale" if step.op == "multiply" else "divide", scalar=other - count),)
