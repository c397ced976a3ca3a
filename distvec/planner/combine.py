"""What a sweep of plain steps amounts to: linear combinations and inner products.

Additions that lean to the left, ``((x + a*y) - b*z) / c``, go on from one running value. Every
operation keeps its place in the order of rounding, so every bit is that of the steps themselves. A
*leaf* is an input, perhaps times a scalar, perhaps negated: it costs so little that a combination
computes its own, also where others need the value too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ps_backend.program.combination import Combination, Link
from ps_backend.program.sweep import Reduction, Step, Sweep
from ps_backend.program.types import FLOATS


def combine(sweep: Sweep) -> Sweep:
    """``sweep`` with its linear combinations and inner products instead of what they replace."""
    first = len(sweep.inputs) + len(sweep.scalars)
    sweep = replace(sweep, reductions=tuple(_dot(sweep, r) or r for r in sweep.reductions))
    steps = dict(enumerate(sweep.steps, first)) | _combinations(sweep)
    needed = sweep.results
    for value in reversed(steps):
        if value in needed:
            needed.update(steps[value].args)
    kept = [value for value in steps if value in needed]
    number = {k: k for k in range(first)} | {value: k for k, value in enumerate(kept, first)}
    return Sweep(
        sweep.inputs,
        sweep.scalars,
        tuple(steps[value].renumbered(number) for value in kept),
        tuple(number[value] for value in sweep.outputs),
        tuple(reduction.renumbered(number) for reduction in sweep.reductions),
    )


def _dot(sweep: Sweep, reduction: Reduction) -> Reduction | None:
    """The inner product that a sum of products in float64 is, of two factors of one dtype.

    float32 factors that were widened for the product are taken as they are: it is exact.
    """
    step = _step(sweep, reduction.args[0])
    if step is None or step.op not in ("multiply", "square") or step.type.dtype != "float64":
        return None
    if reduction.op != "sum" or reduction.axis is not None:
        return None
    factors = [_unwidened(sweep, arg) for arg in (step.args * 2)[:2]]
    first, second = (sweep.types[factor].dtype for factor in factors)
    return Reduction("dot", tuple(factors)) if first == second else None


def _unwidened(sweep: Sweep, value: int) -> int:
    step = _step(sweep, value)
    widens = step is not None and step.op == "cast" and step.type.dtype == "float64"
    narrow = step.args[0] if step is not None and widens else value
    return narrow if sweep.types[narrow].dtype == "float32" else value


def _step(sweep: Sweep, value: int) -> Step | Combination | None:
    number = value - len(sweep.inputs) - len(sweep.scalars)
    return sweep.steps[number] if number >= 0 else None


def _combinations(sweep: Sweep) -> dict[int, Combination]:
    """By value: of every maximal chain of links, if it is more than one link."""
    count, types = len(sweep.inputs), sweep.types
    scalars = range(count, count + len(sweep.scalars))
    uses = Counter(arg for one in (*sweep.steps, *sweep.reductions) for arg in one.args)
    uses.update(sweep.outputs)
    leaves = {value: Link("start", value) for value in range(count)}
    chains: dict[int, list[Link]] = {}
    for value, step in enumerate(sweep.steps, scalars.stop):
        if {step.type.dtype, *(types[arg].dtype for arg in step.args)} not in _ONE_FLOAT:
            continue
        leaf = _leaf(step, leaves, scalars)
        if leaf is not None:
            leaves[value] = leaf
            continue
        # Of two candidates for the running value the one that goes on from others is taken.
        for position in sorted(range(len(step.args)), key=lambda k: step.args[k] not in chains):
            links = _links(step, position, leaves, scalars)
            if links:
                running = step.args[position]
                before = [leaves.get(running, Link("start", running))]
                if running in chains and uses[running] == 1:
                    before = chains.pop(running)
                before += links
                chains[value] = before
                break
    # One that only goes on from a value, and reads no vector besides, is no gain.
    return {
        value: Combination(tuple(links), types[value])
        for value, links in chains.items()
        if any(link.vector in leaves for link in links)
    }


_ONE_FLOAT = [{dtype} for dtype in FLOATS]


def _leaf(step: Step | Combination, leaves: Mapping[int, Link], scalars: range) -> Link | None:
    """What ``step`` makes of a leaf, if that is one again."""
    if step.op == "negative" and step.args[0] in leaves:
        leaf = leaves[step.args[0]]
        return replace(leaf, negative=not leaf.negative)
    if step.op == "multiply":
        for factor, scalar in (step.args, step.args[::-1]):
            if factor in leaves and scalar in scalars and leaves[factor].scalar is None:
                return replace(leaves[factor], scalar=scalar)
    return None


def _links(
    step: Step | Combination, position: int, leaves: Mapping[int, Link], scalars: range
) -> list[Link]:
    """What ``step`` does to its argument ``position`` as links; none if there are no such links.

    ``x - a*y`` is ``x + (-a)*y`` to the last bit, and ``a*y - x`` is ``-x + a*y``.
    """
    if step.args[position] in scalars:
        return []
    if step.op == "negative":
        return [Link("negate")]
    if step.op not in ("add", "subtract", "multiply", "divide"):
        return []
    other = step.args[1 - position]
    if step.op in ("multiply", "divide"):
        scales = other in scalars and (step.op, position) != ("divide", 1)
        return [Link(_SCALING[step.op], scalar=other)] if scales else []
    negative = (step.op, position) == ("subtract", 0)
    flip = [Link("negate")] if (step.op, position) == ("subtract", 1) else []
    if other in scalars:
        return [*flip, Link("shift", None, other, negative)]
    if other in leaves:
        leaf = leaves[other]
        return [*flip, Link("add", leaf.vector, leaf.scalar, negative != leaf.negative)]
    return []


_SCALING = {"multiply": "scale", "divide": "divide"}
