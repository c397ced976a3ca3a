"""From the structure of a sweep to the steps that engines run.

Steps are put in terms of others where an engine has no loop for them or a better one: a linear
combination becomes the additions and multiplications that it is made of, an inner product the sum
of a product, a sigmoid leaves the expensive part to NumPy's vector code. A value that would be
computed twice that way is computed once. For + - * / no bit changes.

Then ``split`` outlines the parts that need no compilation of their own. An inner product of two
inputs, or a linear combination of many, is the same loop whatever the number of vectors; and the
loops of NumPy and SciPy (exponentials, special functions) are faster than a compiler's, or cannot
be had otherwise. All these are *called*, chunk by chunk. The *rest* is a smaller sweep that reads
the results of the calls as further inputs. Its structure does not depend on the number of vectors,
so neither does the number of compilations.

A call needs whole chunks: a loop before it must have computed its operands. So loops and calls take
turns, and every step belongs to the loop of one *stage*. Each is computed as late as its users
allow: then fewer values are carried from loop to loop through scratch arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ps_backend.kernels.numpy_loops import has_loop
from ps_backend.program import ops
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import COMBINE, Combination, Link, Reduction, Step, Sweep
from ps_backend.program.types import FLOATS, ValueType

_COSTLY = 8
"""Additions that an exponential in vector code takes as long as, or a division of integers."""
_VERY_COSTLY = 64
"""And what the C library or SciPy computes element by element."""


def work_of(sweep: Sweep) -> int:
    """So many additions: of the steps, and of reading and writing."""
    first = len(sweep.inputs) + len(sweep.scalars)
    work = len(sweep.inputs) + len(sweep.outputs) + len(sweep.reductions) + 1
    for value, step in enumerate(sweep.steps, first):
        if isinstance(step, Combination) or value not in sweep.constants:
            work += cost_of(step)
    return work


def cost_of(step: Step | Combination) -> int:
    """So many additions of an element; row ops count as one."""
    if isinstance(step, Combination):
        return len(step.links)
    row = ops.TABLE.get(step.op)
    if row is None or not row.costly:
        return 1
    return _COSTLY if row.numba or row.integral else _VERY_COSTLY


LEAST_LINKS = 4
LEAST_VECTORS = 3
"""Combinations of fewer links or vectors are compiled with the steps around them."""
_SPELLED_OUT = frozenset({COMBINE, "sigmoid"})


def for_numpy(sweep: Sweep) -> Sweep:
    """``sweep`` without combinations, inner products and sigmoids."""
    if not any(step.op in _SPELLED_OUT for step in sweep.steps) and not any(
        r.op == "dot" for r in sweep.reductions
    ):
        return sweep
    steps = _Steps(sweep)
    for step in sweep.steps:
        if isinstance(step, Combination):
            steps.take(steps.spell_out(step))
        else:
            steps.take(steps.moved_or_sigmoid(step))
    return steps.sweep(
        [
            Reduction("sum", (steps.product(*r.args),)) if r.op == "dot" else steps.reduction(r)
            for r in sweep.reductions
        ]
    )


def for_loops(sweep: Sweep) -> Sweep:
    """``sweep`` without sigmoids, short combinations, and such of numbers alone.

    What is summed up or asked for its truth is converted before."""
    steps = _Steps(sweep)
    for value, step in enumerate(sweep.steps, len(sweep.inputs) + len(sweep.scalars)):
        if isinstance(step, Combination) and not (_is_long(step) and value not in sweep.constants):
            steps.take(steps.spell_out(step))
        else:
            steps.take(steps.moved_or_sigmoid(step))
    return steps.sweep([steps.converted(r) for r in sweep.reductions])


def for_numba(sweep: Sweep) -> Sweep:
    """``sweep`` without sigmoids and short combinations."""
    steps = _Steps(sweep)
    for step in sweep.steps:
        if isinstance(step, Combination) and not _is_long(step):
            steps.take(steps.spell_out(step))
        else:
            steps.take(steps.moved_or_sigmoid(step))
    return steps.sweep([steps.reduction(r) for r in sweep.reductions])


def _is_long(combination: Combination) -> bool:
    return len(combination.links) >= LEAST_LINKS and combination.vectors >= LEAST_VECTORS


class _Steps:
    """The steps of a sweep, written anew; arguments are values of the old one until ``moved``."""

    def __init__(self, sweep: Sweep) -> None:
        self._old = sweep
        self._first = len(sweep.inputs) + len(sweep.scalars)
        self._number = {k: k for k in range(self._first)}
        """Of each old value."""
        self._steps: list[Step | Combination] = []
        self._known: dict[Step, int] = {}

    def take(self, number: int) -> None:
        """The next step of the old sweep is this value of the new one."""
        self._number[len(self._number)] = number

    def sweep(self, reductions: Sequence[Reduction]) -> Sweep:
        """The new sweep, with these reductions."""
        old = self._old
        outputs = tuple(self._number[value] for value in old.outputs)
        return Sweep(old.inputs, old.scalars, tuple(self._steps), outputs, tuple(reductions))

    def reduction(self, old: Reduction) -> Reduction:
        """The same of the new values."""
        return old.renumbered(self._number)

    def converted(self, old: Reduction) -> Reduction:
        """The same, of floats as float64 and of truth values, where it accumulates such."""
        value = old.args[0]
        kind = self._old.types[value]
        if old.op == "sum" and kind.dtype in FLOATS and kind.dtype != "float64":
            return Reduction("sum", (self._widened(value),), old.axis)
        if REDUCERS[old.op].truth and kind.dtype != "bool":
            truth, false = ValueType("bool", kind.row), self._number[value]
            for _ in range(2):
                false = self._add("logical_not", false, kind=truth)
            return Reduction(old.op, (false,), old.axis)
        return self.reduction(old)

    def moved(self, step: Step | Combination) -> int:
        """The same step."""
        return self._append(step.renumbered(self._number))

    def moved_or_sigmoid(self, step: Step | Combination) -> int:
        """The same step, but sigmoids are spelled out: they have the same bits in all engines."""
        if isinstance(step, Step) and step.op == "sigmoid" and step.type.dtype in FLOATS:
            return self._sigmoid(step)
        return self.moved(step)

    def _sigmoid(self, step: Step) -> int:
        """From the exponential of ``-|x|``."""
        x, kind = self._number[step.args[0]], step.type
        small = self._add("negative", self._add("abs", x, kind=kind), kind=kind)
        return self._add("sigmoid_of_exp", x, self._add("exp", small, kind=kind), kind=kind)

    def product(self, a: int, b: int) -> int:
        """The product of two old values in float64."""
        factors = [self._widened(value) for value in (a, b)]
        row = max(self._old.types[value].row for value in (a, b))
        return self._add("multiply", *factors, kind=ValueType("float64", row))

    def spell_out(self, combination: Combination) -> int:
        """Link by link. A negation waits for the next link: ``-x + y`` is ``y - x``."""
        kind, running, waits = combination.type, -1, False
        for link in combination.links:
            if link.op == "negate":
                waits = not waits
                continue
            other = self._operand(link, kind)
            if link.op == "start":
                running, waits = other, link.negative
            elif waits and link.op in ("add", "shift") and not link.negative:
                running, waits = self._add("subtract", other, running, kind=kind), False
            else:
                if waits:
                    running, waits = self._add("negative", running, kind=kind), False
                running = self._add(_OPS[link.op, link.negative], running, other, kind=kind)
        return self._add("negative", running, kind=kind) if waits else running

    def _operand(self, link: Link, kind: ValueType) -> int:
        if link.vector is None:
            return link.scalar or 0
        vector = self._number[link.vector]
        return (
            vector if link.scalar is None else self._add("multiply", vector, link.scalar, kind=kind)
        )

    def _widened(self, value: int) -> int:
        new, kind = self._number[value], self._old.types[value]
        wide = ValueType("float64", kind.row)
        return new if kind == wide else self._add("cast", new, kind=wide)

    def _add(self, op: str, *args: int, kind: ValueType) -> int:
        """The value of this step, which may be there already."""
        step = Step(op, args, kind)
        found = self._known.get(step)
        return self._append(step) if found is None else found

    def _append(self, step: Step | Combination) -> int:
        self._steps.append(step)
        number = self._first + len(self._steps) - 1
        if isinstance(step, Step):
            self._known[step] = number
        return number


_OPS = {
    ("add", False): "add",
    ("add", True): "subtract",
    ("shift", False): "add",
    ("shift", True): "subtract",
    ("scale", False): "multiply",
    ("divide", False): "divide",
}
"""By op of a link, and whether its operand is negative."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Stage ``s`` is the calls that come before loop ``s``, then that loop."""

    last: int
    of: dict[int, int]
    """By value: the stage of a call, after the loop that computes what it starts from, or of the
    loop that computes a step."""
    carried: frozenset[int]
    """Steps that later loops need too, or calls after the next one."""

    def renumbered(self, number: Mapping[int, int]) -> Stages:
        """The same of other values."""
        of = {number[value]: stage for value, stage in self.of.items()}
        return Stages(self.last, of, frozenset(number[value] for value in self.carried))


def stages_of(sweep: Sweep, called: Mapping[int, tuple[int, ...]]) -> Stages:
    """``called``: by value of each call what it takes; all other steps are those of loops."""
    first = len(sweep.inputs) + len(sweep.scalars)
    stage = dict.fromkeys(range(first), 0)  # the first at which each value can be had
    for value, step in enumerate(sweep.steps, first):
        waits = value in called
        args = called.get(value, step.args)
        stage[value] = max((stage[arg] + waits for arg in args), default=0)
    last = max(stage.values(), default=0)
    of = {value: stage[value] if value in called else last for value in range(first, len(stage))}
    reads = [
        (value, arg)
        for value in reversed(of)
        for arg in called.get(value, sweep.steps[value - first].args)
        if arg in of and arg not in called
    ]
    for value, arg in reads:
        of[arg] = min(of[arg], of[value] - (value in called))
    carried = {arg for value, arg in reads if of[arg] < of[value] - (value in called)}
    carried |= {value for value in sweep.results & of.keys() - called.keys() if of[value] < last}
    return Stages(last, of, frozenset(carried))


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
