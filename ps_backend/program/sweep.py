"""A sweep, the one definition shared by the planner, the wire and the kernels.

A *program* is a list of sweeps. A *sweep* is one traversal of the arrays of one space: it loads
inputs, computes steps in SSA form, stores outputs and accumulates reductions. Values of a sweep are
numbered: inputs first, then runtime scalars, then steps. The structure (``Sweep``) is the key of a
compiled kernel; what changes from run to run (buffer ids, scalar values, spaces) is in a
``SweepCall``.

In each slot a value is a number, or a row. To a step a value of row ``()`` is a vector ``(len,)``,
one of row ``(k,)`` a table ``(len, k)``, and they are broadcast as NumPy does it. A runtime scalar,
and what is computed of such alone, is *constant*: the same in every slot, without the first extent.

A linear *combination*, many vectors, scalars and roundings, is one step: a running value that
vectors are added to, one after the other, each with a coefficient. It says in what order the
roundings come, and every link is rounded by itself, so its bits are those of the same arithmetic in
NumPy. Kernels have one loop for any number of vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ps_backend.program import row_ops
from ps_backend.program.collectives import CollectiveCall
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.spaces import Space
from ps_backend.program.types import Row, ValueType
from ps_backend.program.views import View

COMBINE = "combine"
"""What the op table, which knows no combinations, is not asked for."""


class Link(NamedTuple):
    """One operation on the running value: ``op`` is one of ``LINK_OPERANDS``.

    ``vector`` and ``scalar`` are values of the sweep. What starts or is added is the vector, times
    the scalar if there is one; it is taken ``negative`` where that is set.
    """

    op: str
    vector: int | None = None
    scalar: int | None = None
    negative: bool = False

    def renumbered(self, number: Mapping[int, int]) -> Link:
        """The same of other values."""
        vector = None if self.vector is None else number[self.vector]
        scalar = None if self.scalar is None else number[self.scalar]
        return Link(self.op, vector, scalar, self.negative)

    def __str__(self) -> str:
        factors = [f"%{value}" for value in (self.scalar, self.vector) if value is not None]
        sign = "-" if self.negative else _LINK_SIGNS.get(self.op, self.op)
        return f"{sign}{'*'.join(factors)}"


LINK_OPERANDS: Mapping[str, tuple[bool, bool | None, bool]] = MappingProxyType(
    {
        "start": (True, None, True),
        "add": (True, None, True),
        "scale": (False, True, False),
        "divide": (False, True, False),
        "shift": (False, True, True),
        "negate": (False, False, False),
    }
)
"""By op: whether it takes a vector, whether a scalar (None: as one likes), may be ``negative``."""

_LINK_SIGNS = {"start": "", "add": "+", "scale": "*", "divide": "/", "shift": "+"}


class Combination(NamedTuple):
    """Links in order of rounding, all of the float dtype of ``type``."""

    links: tuple[Link, ...]
    type: ValueType

    @property
    def op(self) -> str:
        """As of other steps; no row of the op table."""
        return COMBINE

    @property
    def args(self) -> tuple[int, ...]:
        """All values it is computed from, in order of use."""
        pairs = ((link.vector, link.scalar) for link in self.links)
        return tuple(value for pair in pairs for value in pair if value is not None)

    def renumbered(self, number: Mapping[int, int]) -> Combination:
        """The same of other values."""
        return Combination(tuple([link.renumbered(number) for link in self.links]), self.type)

    @property
    def vectors(self) -> int:
        """How many vectors it combines."""
        return sum(link.vector is not None for link in self.links)

    def __str__(self) -> str:
        return f"{COMBINE}({', '.join(map(str, self.links))})"


def is_well_formed(combination: Combination) -> bool:
    """Whether it starts, once, and all links have the operands that their ops take."""
    starts = [link.op == "start" for link in combination.links]
    return starts == [True] + [False] * (len(starts) - 1) and all(
        map(_link_fits, combination.links)
    )


def _link_fits(link: Link) -> bool:
    if link.op not in LINK_OPERANDS:
        return False
    vector, scalar, signed = LINK_OPERANDS[link.op]
    return (
        (link.vector is not None) == vector
        and scalar in (None, link.scalar is not None)
        and (signed or not link.negative)
    )


Scalar = bool | int | float | npt.NDArray[Any]
"""What the client holds of a runtime scalar: a number, or an array where its type has a row."""


def _join_values(values: tuple[int, ...]) -> str:
    return ", ".join(f"%{value}" for value in values)


class Step(NamedTuple):
    """One operation: ``op`` is of the op table or of the row ops, ``args`` are earlier values."""

    op: str
    args: tuple[int, ...]
    type: ValueType
    params: tuple[int, ...] = ()
    """What a row op has to know besides, such as which columns."""

    def renumbered(self, number: Mapping[int, int]) -> Step:
        """The same of other values."""
        return Step(self.op, tuple([number[arg] for arg in self.args]), self.type, self.params)

    def __str__(self) -> str:
        params = f"; {', '.join(map(str, self.params))}" if self.params else ""
        return f"{self.op}({_join_values(self.args)}{params})"


class Reduction(NamedTuple):
    """A value reduced over the sweep, or a pair of them."""

    op: str
    args: tuple[int, ...]
    axis: int | None = None
    """Along what: None for all elements, 0 for the slots, which gives a row."""
    bins: int = 0
    """How many numbers are counted, of reductions that count them."""

    def renumbered(self, number: Mapping[int, int]) -> Reduction:
        """The same of other values."""
        return Reduction(self.op, tuple([number[arg] for arg in self.args]), self.axis, self.bins)


@dataclass(frozen=True)
class Sweep:
    """The structure of one traversal. Hashable: the key under which a kernel is cached."""

    inputs: tuple[ValueType, ...]
    scalars: tuple[ValueType, ...]
    steps: tuple[Step | Combination, ...]
    outputs: tuple[int, ...]
    reductions: tuple[Reduction, ...]

    @cached_property
    def types(self) -> tuple[ValueType, ...]:
        """The type of every value, in order of number."""
        return self.inputs + self.scalars + tuple(step.type for step in self.steps)

    @property
    def results(self) -> set[int]:
        """The values that are stored or reduced."""
        return {*self.outputs}.union(*(reduction.args for reduction in self.reductions))

    @property
    def combinations(self) -> Iterator[Combination]:
        """Those of its steps that are linear combinations."""
        return (step for step in self.steps if isinstance(step, Combination))

    @property
    def row_steps(self) -> Iterator[Step]:
        """Those of its steps that are row ops."""
        return (s for s in self.steps if isinstance(s, Step) and s.op in row_ops.TABLE)

    @cached_property
    def size(self) -> int:
        """Values, links of combinations and reductions: what the work of compiling grows with."""
        links = sum(len(step.links) for step in self.combinations)
        return len(self.types) + links + len(self.reductions)

    @cached_property
    def stored(self) -> tuple[ValueType, ...]:
        """The types of the outputs."""
        types = self.types
        return tuple(types[value] for value in self.outputs)

    @cached_property
    def constants(self) -> frozenset[int]:
        """The values that are the same in every slot: scalars, and steps of these alone."""
        count = len(self.inputs)
        found = set(range(count, count + len(self.scalars)))
        for number, step in enumerate(self.steps, count + len(self.scalars)):
            if step.args and found.issuperset(step.args) and step.op not in row_ops.TABLE:
                found.add(number)
        return frozenset(found)

    @cached_property
    def rows(self) -> frozenset[Row]:
        """The shapes of rows that its arrays have."""
        return frozenset(value.row for value in (*self.inputs, *(s.type for s in self.steps)))

    @cached_property
    def is_flat(self) -> bool:
        """Whether it may as well run over all elements, one after the other.

        That is what is elementwise, or reduces all, of arrays whose rows are alike.
        """
        return (
            len(self.rows) <= 1
            and not self.takes_rows
            and not any(step.op in row_ops.TABLE for step in self.steps)
            and not self.leaves_rows
        )

    @cached_property
    def is_by_slots(self) -> bool:
        """Whether a run may begin at any slot: nothing is reduced, or multiplied by blocks."""
        multiplies = any(row_ops.TABLE[step.op].products for step in self.row_steps)
        return not (self.reductions or multiplies)

    @cached_property
    def only_moves(self) -> bool:
        """Whether it stores inputs, each as it is read, and does nothing else."""
        return not (self.steps or self.reductions) and max(self.outputs) < len(self.inputs)

    @cached_property
    def may_fail(self) -> bool:
        """Whether its values alone may make it fail: what is taken of rows may not be there."""
        return any(row_ops.TABLE[step.op].may_fail for step in self.row_steps)

    @cached_property
    def takes_rows(self) -> bool:
        """Whether some of its scalars are arrays."""
        return any(value.row for value in self.scalars)

    @cached_property
    def leaves_rows(self) -> bool:
        """Whether something of its partial results is not one element a block."""
        return any(r.axis is not None or REDUCERS[r.op].layout for r in self.reductions)

    @cached_property
    def partials(self) -> tuple[np.dtype, ...]:
        """Dtypes of the partial results of a sweep that leaves no rows, in order."""
        types = self.types
        return tuple(
            dtype for r in self.reductions for dtype in partial_dtypes(r, types[r.args[0]])
        )

    @cached_property
    def flat(self) -> Sweep:
        """The same over arrays without rows: what is elementwise, or reduces all, does not care."""
        if not self.row:
            return self
        return replace(
            self,
            inputs=tuple(value.flat for value in self.inputs),
            steps=tuple(step._replace(type=step.type.flat) for step in self.steps),
        )

    @cached_property
    def row(self) -> Row:
        """The shape of one row of its arrays, if all are alike: ``()`` of vectors."""
        return next((row for row in self.rows if row), ())

    @cached_property
    def digest(self) -> str:
        """A short name of the structure, the same in every process."""
        text = repr((self.inputs, self.scalars, self.steps, self.outputs, self.reductions))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.inputs, self.scalars, self.steps, self.outputs, self.reductions))

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        first = len(self.inputs)
        for number, value in enumerate(self.inputs):
            yield f"%{number} = load {self._printed(value)}"
        for number, value in enumerate(self.scalars, first):
            yield f"%{number} = scalar {self._printed(value)}"
        for number, step in enumerate(self.steps, first + len(self.scalars)):
            yield f"%{number} = {step} {self._printed(step.type)}"
        for output in self.outputs:
            yield f"store %{output}"
        for reduction in self.reductions:
            axis = "" if reduction.axis is None else f", axis {reduction.axis}"
            bins = f", {reduction.bins} bins" if reduction.bins else ""
            yield f"reduce {reduction.op}({_join_values(reduction.args)}{axis}{bins})"

    def _printed(self, value: ValueType) -> str:
        """With the shape of its row, where not all are of one."""
        alike = len(self.rows) <= 1 and not self.takes_rows
        return value.dtype if alike else str(value)


class SweepCall(NamedTuple):
    """A sweep with what it runs on: ids of buffers in ``space`` and the values of its scalars.

    A scalar with a row is a C-contiguous array of just its shape and dtype.
    """

    sweep: Sweep
    space: Space
    inputs: tuple[int, ...]
    scalars: tuple[Scalar, ...]
    outputs: tuple[int, ...]
    donors: tuple[int, ...] = ()
    """The input whose memory each output takes over, and which then ceases to exist; or nothing.
    The sender knows that nobody else will use it."""
    views: tuple[View | None, ...] = ()
    """How the slots read each input that is not aligned to them; or nothing, if all are."""

    @property
    def sources(self) -> Iterator[int]:
        """The buffers that are read through views, and the indices of these."""
        for number, view in zip(self.inputs, self.views, strict=False):
            if view is not None:
                yield number
                if view.index:
                    yield view.index


class Program(NamedTuple):
    """Sweeps in order (a later one may read what an earlier one stored), then buffers to free.

    Phases of collectives come before the sweeps, or after them.
    """

    calls: tuple[SweepCall, ...] = ()
    frees: tuple[int, ...] = ()
    before: tuple[CollectiveCall, ...] = ()
    after: tuple[CollectiveCall, ...] = ()

    @property
    def made(self) -> list[int]:
        """The buffers that it makes."""
        calls = [number for call in self.calls for number in call.outputs]
        return calls + [number for call in (*self.before, *self.after) for number in call.made]


def partial_dtypes(reduction: Reduction, value: ValueType) -> tuple[np.dtype, ...]:
    """Dtypes of the partial results, one element a block, that a reduction of all leaves."""
    return REDUCERS[reduction.op].accumulators(value.dtype)
