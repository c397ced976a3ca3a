"""Steps in terms of others, where an engine has no loop for them or a better one.

A linear combination becomes the additions and multiplications that it is made of, an inner product
the sum of a product, a sigmoid what leaves the expensive part to NumPy's vector code. What would be
computed twice that way is computed once. For + - * / no bit changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ps_backend.program.reducers import REDUCERS
from ps_backend.program.sweep import COMBINE, Combination, Link, Reduction, Step, Sweep
from ps_backend.program.types import FLOATS, ValueType

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
