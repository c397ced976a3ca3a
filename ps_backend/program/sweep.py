"""What a server runs: the one definition shared by the planner, the wire and the kernels.

A *program* is a list of sweeps. A *sweep* is one traversal of the arrays of one space: it loads
inputs, computes steps in SSA form, stores outputs and accumulates reductions. Values of a sweep are
numbered: inputs first, then runtime scalars, then steps. The structure (``Sweep``) is the key of a
compiled kernel; what changes from run to run (buffer ids, scalar values, spaces) is in a
``SweepCall``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ps_backend.program.combination import Combination
from ps_backend.program.reducers import REDUCERS
from ps_backend.program.spaces import Space
from ps_backend.program.types import Row, ValueType
from ps_backend.program.views import View

Scalar = bool | int | float


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(f"%{value}" for value in values)


@dataclass(frozen=True, slots=True)
class Step:
    """One elementwise operation: ``op`` is a row of the op table, ``args`` are earlier values."""

    op: str
    args: tuple[int, ...]
    type: ValueType

    def renumbered(self, number: Mapping[int, int]) -> Step:
        """The same of other values."""
        return Step(self.op, tuple([number[arg] for arg in self.args]), self.type)

    def __str__(self) -> str:
        return f"{self.op}({_listed(self.args)})"


@dataclass(frozen=True, slots=True)
class Reduction:
    """A value reduced over the sweep, or a pair of them."""

    op: str
    args: tuple[int, ...]
    axis: int | None = None
    """Along what: None for all elements, which leaves one partial result per block; 0 for the
    slots, which leaves one per block and column; 1 for each row, which makes an array."""

    def renumbered(self, number: Mapping[int, int]) -> Reduction:
        """The same of other values."""
        return Reduction(self.op, tuple([number[arg] for arg in self.args]), self.axis)


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

    @cached_property
    def size(self) -> int:
        """Values, links of combinations and reductions: what the work of compiling grows with."""
        links = sum(len(step.links) for step in self.combinations)
        return len(self.types) + links + len(self.reductions)

    @cached_property
    def makes(self) -> int:
        """How many arrays it makes: its outputs, and one for each reduction along the rows."""
        return len(self.outputs) + sum(r.axis == 1 for r in self.reductions)

    @cached_property
    def stored(self) -> tuple[ValueType, ...]:
        """The types of these arrays, in this order."""
        types = self.types
        rows = [r for r in self.reductions if r.axis == 1]
        return (
            *(types[value] for value in self.outputs),
            *(
                ValueType(REDUCERS[r.op].accumulators(types[r.args[0]].dtype)[-1].name)
                for r in rows
            ),
        )

    @cached_property
    def partials(self) -> tuple[np.dtype, ...]:
        """Dtypes of the partial results, in the order in which they come."""
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
            inputs=tuple(replace(value, row=()) for value in self.inputs),
            steps=tuple(replace(step, type=replace(step.type, row=())) for step in self.steps),
        )

    @cached_property
    def row(self) -> Row:
        """The shape of one row of its arrays: ``()`` of vectors."""
        return next((value.row for value in self.types if value.row), ())

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
            yield f"%{number} = load {value.dtype}"
        for number, value in enumerate(self.scalars, first):
            yield f"%{number} = scalar {value.dtype}"
        for number, step in enumerate(self.steps, first + len(self.scalars)):
            yield f"%{number} = {step} {step.type.dtype}"
        for output in self.outputs:
            yield f"store %{output}"
        for reduction in self.reductions:
            axis = "" if reduction.axis is None else f", axis {reduction.axis}"
            yield f"reduce {reduction.op}({_listed(reduction.args)}{axis})"


@dataclass(frozen=True, slots=True)
class SweepCall:
    """A sweep with what it runs on: ids of buffers in ``space`` and the values of its scalars."""

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


@dataclass(frozen=True, slots=True)
class Program:
    """Sweeps in order (a later one may read what an earlier one stored), then buffers to free."""

    calls: tuple[SweepCall, ...]
    frees: tuple[int, ...] = ()


def partial_dtypes(reduction: Reduction, value: ValueType) -> tuple[np.dtype, ...]:
    """Dtypes of the partial results that a reduction leaves: one array, or two, or none.

    Per block one element, or a row along axis 0. What is reduced along the rows is no part of
    anything: it makes an array.
    """
    return () if reduction.axis == 1 else REDUCERS[reduction.op].accumulators(value.dtype)
