"""What of a sweep can run without a compilation of its own.

An inner product of two inputs, or a linear combination of many, is the same loop whatever the
number of vectors; and what NumPy and SciPy have loops for (exponentials, special functions) is
faster so than what a compiler makes of it, or cannot be had otherwise. All these are *called*,
chunk by chunk. What is left, the *rest*, is a smaller sweep that reads the results of the calls as
further inputs. Its structure does not depend on how many vectors there were, so neither does the
number of compilations.
"""

from __future__ import annotations

from dataclasses import dataclass

from ps_backend.kernels.lowering.stages import Stages, stages_of
from ps_backend.kernels.numpy_loops import has_loop
from ps_backend.program import ops
from ps_backend.program.sweep import Combination, Link, Step, Sweep
from ps_backend.program.types import FLOATS

LEAST_DOTS = 5
"""Fewer inner products stay in the rest, which computes them as fast."""


@dataclass(frozen=True, slots=True)
class Call:
    """An input of the rest that something else computes, chunk by chunk.

    It is ``op`` of the values ``args`` of the rest, where ``op`` is of the op table; or a
    combination, which goes on from its one argument or, if it has none, starts with an input.
    """

    op: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """A sweep in parts. The last ``len(calls)`` inputs of ``rest`` are the results of ``calls``."""

    rest: Sweep
    calls: tuple[Call, ...]
    combinations: tuple[tuple[Link, ...], ...]
    """The links of those calls that are combinations, over inputs and scalars of the whole sweep;
    without the start where that is an argument."""
    inputs: tuple[int, ...]
    """Which inputs of the whole sweep the other inputs of the rest are."""
    scalars: tuple[int, ...]
    """Which of its runtime scalars those of the rest are."""
    dots: tuple[tuple[int, int], ...]
    """Pairs of inputs, all of one dtype, whose inner products are taken in float64."""
    dot_dtype: str
    """The dtype of these inputs."""
    dotted: tuple[int, ...]
    """Which reductions of the whole sweep these are."""
    stages: Stages
    """Of the calls and the steps of the rest."""

    @property
    def steps(self) -> int:
        """What a compiler has to deal with: steps, calls of other loops, inner products."""
        others = len(self.calls) - len(self.combinations)
        return len(self.rest.steps) + others + sum(r.op == "dot" for r in self.rest.reductions)


def split(sweep: Sweep) -> Split:
    """Take inner products, combinations and exponentials out of ``sweep``."""
    first = len(sweep.inputs) + len(sweep.scalars)
    dot_dtype, dotted = _dots(sweep)
    kept = [r for k, r in enumerate(sweep.reductions) if k not in dotted]
    called: dict[int, tuple[int, ...]] = {}  # what each call takes from the rest
    links: list[tuple[Link, ...]] = []
    plain: dict[int, Step] = {}
    for value, step in enumerate(sweep.steps, first):
        if isinstance(step, Combination):
            start = step.links[0].vector or 0
            goes_on = start >= first
            called[value] = (start,) if goes_on else ()
            links.append(step.links[goes_on:])
        elif ops.TABLE[step.op].loop and has_loop(step.op, loop_types(sweep, value)):
            called[value] = step.args
        else:
            plain[value] = step
    read = {*sweep.outputs}.union(
        *(r.args for r in kept), *(step.args for step in plain.values()), *called.values()
    )
    inputs = [k for k in range(len(sweep.inputs)) if k in read]
    scalars = [k for k in range(len(sweep.inputs), first) if k in read]
    new = {value: k for k, value in enumerate([*inputs, *called, *scalars, *plain])}

    def moved(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new[value] for value in values)

    rest = Sweep(
        inputs=tuple(sweep.types[k] for k in (*inputs, *called)),
        scalars=tuple(sweep.types[k] for k in scalars),
        steps=tuple(step.renumbered(new) for step in plain.values()),
        outputs=moved(sweep.outputs),
        reductions=tuple(r.renumbered(new) for r in kept),
    )
    return Split(
        rest,
        calls=tuple(Call(sweep.steps[k - first].op, moved(args)) for k, args in called.items()),
        combinations=tuple(links),
        inputs=tuple(inputs),
        scalars=tuple(k - len(sweep.inputs) for k in scalars),
        dots=tuple((sweep.reductions[k].args[0], sweep.reductions[k].args[1]) for k in dotted),
        dot_dtype=dot_dtype,
        dotted=tuple(dotted),
        stages=stages_of(sweep, called).renumbered(new),
    )


def loop_types(sweep: Sweep, value: int) -> tuple[str, ...]:
    """The dtypes of a step's arguments, then that of its result: they choose NumPy's loop."""
    step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
    return (*(sweep.types[arg].dtype for arg in step.args), step.type.dtype)


def _dots(sweep: Sweep) -> tuple[str, list[int]]:
    """The inner products of inputs, if there are many: those of the dtype that has more of them."""
    found: dict[str, list[int]] = {name: [] for name in FLOATS}
    for number, reduction in enumerate(sweep.reductions):
        if reduction.op == "dot" and max(reduction.args) < len(sweep.inputs):
            found[sweep.inputs[reduction.args[0]].dtype].append(number)
    dtype = max(found, key=lambda name: len(found[name]))
    return dtype, found[dtype] if len(found[dtype]) >= LEAST_DOTS else []
