"""What of a sweep can run without a compilation of its own.

An inner product of two inputs, or a linear combination of many, is the same loop whatever the
number of vectors; and what NumPy and SciPy have loops for (exponentials, special functions) is
faster so than what a compiler makes of it, or cannot be had otherwise. This pass takes them out of
a sweep. What is left, the *rest*, is a smaller sweep that reads the results as further inputs; its
structure no longer depends on how many vectors there were, so neither does the number of
compilations.
"""

from __future__ import annotations

from dataclasses import dataclass

from ps_backend.kernels.lowering.chains import Link, chains_of
from ps_backend.kernels.numpy_loops import has_loop
from ps_backend.program import ops
from ps_backend.program.sweep import Reduction, Step, Sweep
from ps_backend.program.types import ValueType

LEAST_DOTS = 5
"""Fewer inner products stay in the rest, which computes them as fast."""
CHAIN = "chain"

_DOUBLE, _SINGLE = ValueType("float64"), ValueType("float32")


@dataclass(frozen=True, slots=True)
class Call:
    """An input of the rest that something else computes, chunk by chunk.

    It is ``op`` of the values ``args`` of the rest, where ``op`` is of the op table; or a
    ``CHAIN``, which goes on from its one argument or, if it has none, begins with an input.
    """

    op: str
    args: tuple[int, ...]


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
    """Pairs of inputs, all of one dtype, whose inner products are taken in float64."""
    dot_dtype: str
    """The dtype of these inputs."""
    dotted: tuple[int, ...]
    """Which reductions of the whole sweep these are."""

    @property
    def steps(self) -> int:
        """Steps that a compiler has to deal with."""
        return len(self.rest.steps) + len(self.calls) - len(self.chains)


def split(sweep: Sweep) -> Split:
    """Take inner products, chains and exponentials out of ``sweep``."""
    dot_dtype, dots = _dots(sweep)
    chains = {value: c for value, c in chains_of(sweep).items() if c.is_long}
    first = len(sweep.inputs) + len(sweep.scalars)
    starts: dict[int, tuple[int, ...]] = {
        value: () if chain.start is None else (chain.start,) for value, chain in chains.items()
    }
    starts |= {
        value: step.args
        for value, step in enumerate(sweep.steps, first)
        if ops.TABLE[step.op].loop and has_loop(step.op, loop_types(sweep, value))
    }
    kept = [r for k, r in enumerate(sweep.reductions) if k not in dots]
    used = _used(sweep, [*sweep.outputs, *(r.arg for r in kept)], starts)
    inputs = [k for k in range(len(sweep.inputs)) if k in used]
    scalars = [k for k in range(len(sweep.inputs), first) if k in used]
    called = [value for value in sorted(starts) if value in used]
    steps = [k for k in range(first, len(sweep.types)) if k in used and k not in starts]
    new = {value: k for k, value in enumerate([*inputs, *called, *scalars, *steps])}
    rest = Sweep(
        inputs=(*(sweep.inputs[k] for k in inputs), *(sweep.types[k] for k in called)),
        scalars=tuple(sweep.types[k] for k in scalars),
        steps=tuple(_renumbered(sweep.steps[k - first], new) for k in steps),
        outputs=tuple(new[value] for value in sweep.outputs),
        reductions=tuple(Reduction(r.op, new[r.arg]) for r in kept),
    )
    return Split(
        rest,
        calls=tuple(
            Call(
                CHAIN if value in chains else sweep.steps[value - first].op,
                tuple(new[arg] for arg in starts[value]),
            )
            for value in called
        ),
        chains=tuple(chains[value].links for value in called if value in chains),
        inputs=tuple(inputs),
        scalars=tuple(k - len(sweep.inputs) for k in scalars),
        dots=tuple(dots.values()),
        dot_dtype=dot_dtype,
        dotted=tuple(dots),
    )


def _renumbered(step: Step, new: dict[int, int]) -> Step:
    return Step(step.op, tuple(new[arg] for arg in step.args), step.type)


def loop_types(sweep: Sweep, value: int) -> tuple[str, ...]:
    """The dtypes of a step's arguments, then that of its result: they choose NumPy's loop."""
    step = sweep.steps[value - len(sweep.inputs) - len(sweep.scalars)]
    return (*(sweep.types[arg].dtype for arg in step.args), step.type.dtype)


def _used(sweep: Sweep, roots: list[int], starts: dict[int, tuple[int, ...]]) -> set[int]:
    """The values that ``roots`` need, where those in ``starts`` need no more than is said there."""
    first = len(sweep.inputs) + len(sweep.scalars)
    used: set[int] = set()
    while roots:
        value = roots.pop()
        if value in used:
            continue
        used.add(value)
        if value in starts:
            roots += starts[value]
        elif value >= first:
            roots += sweep.steps[value - first].args
    return used


def _dots(sweep: Sweep) -> tuple[str, dict[int, tuple[int, int]]]:
    """The reductions that are inner products of inputs and nothing else, if there are many.

    The inputs are all of one dtype, which comes first; if there are inner products of either, it is
    the one that has more.
    """
    first = len(sweep.inputs) + len(sweep.scalars)
    other = set(sweep.outputs) | {arg for step in sweep.steps for arg in step.args}
    other |= {r.arg for r in sweep.reductions if r.op != "sum"}
    found: dict[str, dict[int, tuple[int, int]]] = {_DOUBLE.dtype: {}, _SINGLE.dtype: {}}
    for number, reduction in enumerate(sweep.reductions):
        if reduction.arg < first or reduction.arg in other:
            continue
        step = sweep.steps[reduction.arg - first]
        if step.op in ("multiply", "square") and step.type == _DOUBLE:
            factors = step.args if step.op == "multiply" else step.args * 2
            a, b = (_input_of(sweep, arg) for arg in factors)
            if a is not None and b is not None and sweep.inputs[a] == sweep.inputs[b]:
                found[sweep.inputs[a].dtype][number] = (a, b)
    dtype = max(found, key=lambda name: len(found[name]))
    return dtype, found[dtype] if len(found[dtype]) >= LEAST_DOTS else {}


def _input_of(sweep: Sweep, value: int) -> int | None:
    """The input that a float64 value is, widened if it is one of float32."""
    first = len(sweep.inputs) + len(sweep.scalars)
    if value < len(sweep.inputs):
        return value if sweep.inputs[value] == _DOUBLE else None
    step = sweep.steps[value - first] if value >= first else None
    if step is None or step.op != "cast" or step.type != _DOUBLE:
        return None
    widened = step.args[0]
    return widened if widened < len(sweep.inputs) and sweep.inputs[widened] == _SINGLE else None
