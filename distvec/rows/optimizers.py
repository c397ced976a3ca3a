"""Row optimizers: steps of ``optim``'s stochastic solvers, taken by single rows of a table; by
name, as in ``dv.rows.adagrad(0.05)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from distvec.array.core.shapes import reshape
from distvec.graph.node import topological
from distvec.rows.lowering import Traced, trace
from distvec.rows.tracer import Kind, Number, PerKey, RowsOf, Tracer
from optim import SGD, AdaDelta, AdaGrad, Adam, Box, RMSProp
from optim.core.checkpoints.encode import Decoder, Encoder
from optim.stochastic.adaptive import decay
from optim.stochastic.base import StochasticSolver
from optim.stochastic.ftrl import FTRL, GroupFTRL, RowwiseAdaGrad
from optim.stochastic.schedules import Schedule
from ps_backend.program.types import FLOATS, Row

WEIGHTS, GRADIENT, STEP_SIZE, STEPS = "weights", "gradient", "step_size", "steps"


@dataclass(frozen=True, slots=True)
class StateOf:
    """An array beside the weights, aligned with them, that an optimizer keeps."""

    name: str
    dtype: str
    row: Row
    initial: float
    """What it holds for a key that had no step yet."""


@dataclass(frozen=True)
class RowOptimizer:
    """How the rows of a table take steps by gradients. A value: it holds no array.

    bound          weights are kept between -bound and bound; None: anywhere
    weight_decay   decoupled: before each step, a row is multiplied by 1 - step_size * weight_decay

    A row changes by its own gradients alone, when it gets one: what would be done in a dense step
    to a row whose gradient is 0, as momentum and decay do, is not done meanwhile.
    """

    solver: StochasticSolver
    bound: float | None = None
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.bound is not None and not self.bound > 0:
            raise ValueError(f"bound={self.bound!r}: must be a positive number, or None")
        if not 0 <= self.weight_decay < np.inf:
            raise ValueError(f"weight_decay={self.weight_decay!r}: must be 0 or more")

    def numbers(self, k: int) -> dict[str, float]:
        """The numbers of call ``k``, which is 0, 1, ...: the step size, as its schedule has it."""
        return {STEP_SIZE: self.solver.step_size_at(k)}

    def states(self, row: Row, dtype: str, start: float | None = 0.0) -> tuple[StateOf, ...]:
        """The arrays that a table of such rows needs beside it, in the order of ``traced``.

        ``start``: what the weights are before their first step; None if that differs by key.
        """
        return _of_table(self, row, dtype, start)[0]

    def traced(self, row: Row, dtype: str, start: float | None = 0.0) -> Traced:
        """The row program of a step: of the arrays ``weights`` and the states, by ``gradient``.

        ``TypeError`` for weights that are not float32 or float64.
        """
        return _of_table(self, row, dtype, start)[1]

    def explain(self, row: Row = (), dtype: str = "float32") -> str:
        """What servers run for a step."""
        return str(self.traced(row, dtype))

    # --- in files ---------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """The name of its formula, as ``"optim.AdaGrad"``."""
        cls = type(self.solver)
        public = cls.__module__.startswith("optim.")
        return f"{'optim' if public else cls.__module__}.{cls.__qualname__}"

    def document(self) -> dict[str, Any]:
        """What a file says of it, as JSON. Functions, and solvers of yours, are in no file."""
        own = {"bound": self.bound, "weight_decay": self.weight_decay}
        try:
            solver = {"solver": Encoder(local=False).encode(self.solver, "the optimizer")}
        except TypeError as error:
            solver = {"lacks": str(error).partition(";")[0]}
        encoded = {name: Encoder().encode(value, name) for name, value in own.items()}
        return {"kind": self.kind, **encoded, **solver}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> RowOptimizer:
        """The inverse. ``TypeError`` if the file lacks a part of it, ``optim.Corrupted``."""
        if "solver" not in document:
            raise TypeError(
                f"its optimizer, {document['kind']}, cannot be made again ({document['lacks']}): "
                "give it once more, t.optimizer(...), and it goes on from the states that are there"
            )
        decode = Decoder({}).decode
        return cls(*(decode(document[name]) for name in ("solver", "bound", "weight_decay")))


@cache
def _of_table(
    optimizer: RowOptimizer, row: Row, dtype: str, start: float | None
) -> tuple[tuple[StateOf, ...], Traced]:
    if dtype not in FLOATS:
        raise TypeError(
            f"optimizers are of weights of {' or '.join(FLOATS)}, not {dtype}; make the table "
            f"so: space.table(16, dtype='float32')"
        )
    solver = optimizer.solver
    states = tuple(_initial(solver, row, dtype, 0.0 if start is None else start))
    kinds: dict[str, Kind] = {WEIGHTS: RowsOf(dtype, row)}
    kinds |= {one.name: RowsOf(one.dtype, one.row) for one in states}
    kinds |= {GRADIENT: PerKey(dtype, row), STEP_SIZE: Number()}
    name = type(solver).__name__
    found = trace(name, _Step(optimizer, start is None), kinds)
    unused = {one.name for one in states} - set(found.arrays)
    kept = {name: kind for name, kind in kinds.items() if name not in unused}
    return tuple(one for one in states if one.name in kept), replace(found, kinds=kept)


def _initial(solver: StochasticSolver, row: Row, dtype: str, start: float) -> Any:
    """The states of one row, as the solver makes them; and how many steps it has had."""
    memory = solver.init_memory(np.full((1, *(row or (1,))), start, dtype))
    for name, values in zip(solver.slots, memory, strict=True):
        single = name in solver.of_rows
        yield StateOf(name, values.dtype.name, () if single else row, values.flat[0].item() + 0.0)
    yield StateOf(STEPS, "int32", (), 0)


@dataclass(frozen=True)
class _Step:
    """The function that is traced, of arguments by name."""

    optimizer: RowOptimizer
    starts_anywhere: bool

    def __call__(self, given: Mapping[str, Tracer]) -> dict[str, Any]:
        solver = self.optimizer.solver
        step_size: Any = given[STEP_SIZE]  # stands for a number
        steps, row = given[STEPS], given[WEIGHTS].shape[1:]
        if not isinstance(solver, FTRL):  # whose step size is part of what its states mean
            solver = replace(solver, step_size=lambda k: step_size)
        names = (WEIGHTS, GRADIENT, *solver.slots, STEPS)
        is_table = solver.needs_table or row
        x, gradient, *memory, k = (_as_table(given[n]) if is_table else given[n] for n in names)
        if self.starts_anywhere:
            memory = solver.started(tuple(memory), x)
        if self.optimizer.weight_decay:
            x = decay(x, step_size, self.optimizer.weight_decay)
        x, new = solver.update(tuple(memory), x, gradient, _weak(k))
        if self.optimizer.bound is not None:
            x = Box(-self.optimizer.bound, self.optimizer.bound)(x)
        changed = {WEIGHTS: x, **dict(zip(solver.slots, new, strict=True))}
        below = topological([one.node for one in changed.values()], lambda node: node.known)
        if steps.node in list(below):  # else the formula does not ask for it
            changed[STEPS] = steps + 1
        return {name: _as(values, given[name]) for name, values in changed.items()}


def _as_table(x: Tracer) -> Tracer:
    return x if x.ndim == 2 else reshape(x, (x.shape[0], 1))


def _as(values: Tracer, like: Tracer) -> Tracer:
    return reshape(values, like.shape) if values.ndim > like.ndim else values


def _weak(k: Tracer) -> Any:
    """``k`` as if it were the Python number that solvers expect: it does not widen float32."""
    k.session.graph.weak.add(k.node)
    return k


StepSize = float | Schedule


def sgd(
    step_size: StepSize = 0.1, *, bound: float | None = None, weight_decay: float = 0.0
) -> RowOptimizer:
    """``w - step_size * gradient``: no state. Formula: ``optim.SGD``."""
    return RowOptimizer(SGD(step_size=step_size), bound, weight_decay)


def momentum(
    step_size: StepSize = 0.1,
    momentum: float = 0.9,
    *,
    nesterov: bool = False,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """SGD with a velocity for each element. Formula: ``optim.SGD``."""
    solver = SGD(step_size=step_size, momentum=momentum, nesterov=nesterov)
    return RowOptimizer(solver, bound, weight_decay)


def adagrad(
    step_size: StepSize = 0.1,
    *,
    l1: float = 0.0,
    l2: float = 0.0,
    epsilon: float = 1e-10,
    accumulator: float = 0.0,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """A step size for each element, by its squared gradients. Formula: ``optim.AdaGrad``."""
    solver = AdaGrad(step_size=step_size, l1=l1, l2=l2, epsilon=epsilon, accumulator=accumulator)
    return RowOptimizer(solver, bound, weight_decay)


def rowwise_adagrad(
    step_size: StepSize = 0.1,
    *,
    epsilon: float = 1e-10,
    accumulator: float = 0.0,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """One step size for each row, by the mean of its squared gradients: one number of state.

    Formula and sources: ``optim.stochastic.ftrl.RowwiseAdaGrad``.
    """
    solver = RowwiseAdaGrad(step_size=step_size, epsilon=epsilon, accumulator=accumulator)
    return RowOptimizer(solver, bound, weight_decay)


def adam(
    step_size: StepSize = 1e-3,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """Adam; its bias is undone by how many steps the row has had. Formula: ``optim.Adam``.

    So a row does not depend on what else was in its batches. With ``weight_decay``: AdamW.
    """
    solver = Adam(step_size=step_size, beta1=beta1, beta2=beta2, epsilon=epsilon)
    return RowOptimizer(solver, bound, weight_decay)


def ftrl(
    step_size: float = 0.1,
    *,
    beta: float = 1.0,
    l1: float = 0.0,
    l2: float = 0.0,
    bound: float | None = None,
) -> RowOptimizer:
    """Follow the regularised leader: exactly 0 below ``l1``. Formula: ``optim.FTRL``."""
    return RowOptimizer(FTRL(step_size=step_size, beta=beta, l1=l1, l2=l2), bound)


def group_ftrl(
    step_size: float = 0.1,
    *,
    beta: float = 1.0,
    l1: float = 0.0,
    l2: float = 0.0,
    l21: float = 0.0,
    bound: float | None = None,
) -> RowOptimizer:
    """FTRL whose rows are exactly 0 as a whole below ``l21 * sqrt(k)``.

    Formula and source: ``optim.stochastic.ftrl.GroupFTRL``.
    """
    return RowOptimizer(GroupFTRL(step_size=step_size, beta=beta, l1=l1, l2=l2, l21=l21), bound)


def rmsprop(
    step_size: StepSize = 0.01,
    *,
    decay: float = 0.99,
    momentum: float = 0.0,
    centered: bool = False,
    epsilon: float = 1e-8,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """By the running mean of squared gradients. Formula: ``optim.RMSProp``."""
    solver = RMSProp(
        step_size=step_size, decay=decay, momentum=momentum, centered=centered, epsilon=epsilon
    )
    return RowOptimizer(solver, bound, weight_decay)


def adadelta(
    step_size: StepSize = 1.0,
    *,
    decay: float = 0.9,
    epsilon: float = 1e-6,
    bound: float | None = None,
    weight_decay: float = 0.0,
) -> RowOptimizer:
    """Steps in the units of the weights. Formula: ``optim.AdaDelta``."""
    return RowOptimizer(
        AdaDelta(step_size=step_size, decay=decay, epsilon=epsilon), bound, weight_decay
    )
