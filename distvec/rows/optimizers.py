"""Row optimizers: steps of ``optim``'s stochastic solvers, taken by single rows of a table; by
name, as in ``dv.rows.adagrad(0.05)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from distvec.array.core.shapes import reshape
from distvec.graph.node import topological
from distvec.rows.lowering import Traced, trace
from distvec.rows.tracer import (
    GRADIENT,
    STEP_SIZE,
    STEPS,
    WEIGHTS,
    Kind,
    Number,
    PerKey,
    RowsOf,
    Tracer,
)
from optim import SGD, AdaDelta, AdaGrad, Adam, Box, RMSProp
from optim.core.checkpoints.encode import Decoder, Encoder
from optim.stochastic.base import StochasticSolver
from optim.stochastic.ftrl import FTRL, GroupFTRL, RowwiseAdaGrad
from optim.stochastic.sgd import decay
from ps_backend.program.types import FLOATS, Row


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
            raise ValueError(f"bound must be a positive number or None, got {self.bound!r}")
        if not 0 <= self.weight_decay < np.inf:
            raise ValueError(f"weight_decay must be 0 or more, got {self.weight_decay!r}")

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

    def update(
        self, weights: Any, states: Mapping[str, Any], gradient: Any, *, step_size: Any = None
    ) -> dict[str, Any]:
        """A step within a row function: the new rows of ``"weights"`` and of the states, by name.

        ``weights`` begin with zeros if the optimizer is FTRL. ``states``: the rows of the arrays
        that ``KeyedArray.optimizer`` has returned. ``TypeError`` without ``step_size`` if the
        optimizer has a schedule, as a row function does not know how many steps there were.
        """
        if step_size is None and callable(self.solver.step_size):
            raise TypeError("the step size is a schedule; pass step_size=, a number of the call")
        size = self.solver.step_size if step_size is None else step_size
        given = {WEIGHTS: weights, **states, GRADIENT: gradient, STEP_SIZE: size}
        if STEPS not in given:  # the formula does not ask for it, but is given one
            column = weights[:, 0] if weights.ndim == 2 else weights
            given[STEPS] = (column != column).astype("int32")
        found = _Step(self, starts_anywhere=False)(given)
        return {name: found[name] for name in (WEIGHTS, *states)}

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
                f"its optimizer, {document['kind']}, cannot be restored from the file "
                f"({document['lacks']}): set it again with t.optimizer(...), and it continues "
                "from the saved states"
            )
        decode = Decoder({}).decode
        return cls(*(decode(document[name]) for name in ("solver", "bound", "weight_decay")))


@cache
def _of_table(
    optimizer: RowOptimizer, row: Row, dtype: str, start: float | None
) -> tuple[tuple[StateOf, ...], Traced]:
    if dtype not in FLOATS:
        raise TypeError(
            f"optimizers need weights of {' or '.join(FLOATS)}, got {dtype}; create the table "
            "with space.table(16, dtype='float32')"
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
        return {name: _trace_like(values, given[name]) for name, values in changed.items()}


def _as_table(x: Tracer) -> Tracer:
    return x if x.ndim == 2 else reshape(x, (x.shape[0], 1))


def _trace_like(values: Tracer, like: Tracer) -> Tracer:
    return reshape(values, like.shape) if values.ndim > like.ndim else values


def _weak(k: Tracer) -> Any:
    """``k`` as if it were the Python number that solvers expect: it does not widen float32."""
    k.session.graph.weak.add(k.node)
    return k


_BY_PLACE = inspect.Parameter.POSITIONAL_OR_KEYWORD


def of(
    solver: StochasticSolver, *, bound: float | None = None, weight_decay: float = 0.0
) -> RowOptimizer:
    """The steps of ``solver``, as ``dv.rows.of(optim.FTRL(step_size=0.1, l1=1.0))``.

    ``bound`` and ``weight_decay`` as ``RowOptimizer`` says.
    """
    return RowOptimizer(solver, bound, weight_decay)


_NAMED: Mapping[str, tuple[type[StochasticSolver], tuple[str, ...], str]] = MappingProxyType(
    {
        "sgd": (SGD, (), "``w - step_size * gradient``: no state."),
        "momentum": (SGD, ("momentum", "nesterov"), "SGD with a velocity for each element."),
        "adagrad": (
            AdaGrad,
            ("l1", "l2", "epsilon", "accumulator"),
            "A step size for each element, by its squared gradients.",
        ),
        "rowwise_adagrad": (
            RowwiseAdaGrad,
            ("epsilon", "accumulator"),
            "One step size for each row, by the mean of its squared gradients: one number kept.",
        ),
        "adam": (
            Adam,
            ("beta1", "beta2", "epsilon"),
            "Adam, its bias undone by the row's own number of steps; with ``weight_decay`` AdamW.",
        ),
        "ftrl": (
            FTRL,
            ("beta", "l1", "l2"),
            "Follow the regularised leader: exactly 0 below ``l1``.",
        ),
        "group_ftrl": (
            GroupFTRL,
            ("beta", "l1", "l2", "l21"),
            "FTRL whose rows are exactly 0 as a whole below ``l21 * sqrt(k)``.",
        ),
        "rmsprop": (
            RMSProp,
            ("decay", "momentum", "centered", "epsilon"),
            "By the running mean of squared gradients.",
        ),
        "adadelta": (AdaDelta, ("decay", "epsilon"), "Steps in the units of the weights."),
    }
)
"""By name: the solver, those of its parameters that are one's beside ``step_size``, and a line."""

NAMES = ("of", *_NAMED)
"""What ``dv.rows`` has of this module."""


def named(name: str) -> Callable[..., RowOptimizer]:
    """The function ``dv.rows.<name>``, with the defaults of its solver."""
    solver, parameters, about = _NAMED[name]
    defaults = {one.name: one.default for one in fields(solver)}
    kinds: dict[str, Any] = {one: defaults[one] for one in ("step_size", *parameters)}
    extra = {"momentum": 0.9} if name == "momentum" else {}
    kinds |= extra
    kinds["bound"] = None
    if not issubclass(solver, FTRL):  # whose weights decay by ``l2``
        kinds["weight_decay"] = 0.0
    signature = inspect.Signature(
        [
            inspect.Parameter(
                one,
                _BY_PLACE if one in ("step_size", name) else inspect.Parameter.KEYWORD_ONLY,
                default=default,
            )
            for one, default in kinds.items()
        ],
        return_annotation=RowOptimizer,
    )

    def make(*args: Any, **keywords: Any) -> RowOptimizer:
        try:
            given = signature.bind(*args, **keywords).arguments
        except TypeError as error:
            raise TypeError(f"dv.rows.{name}{signature}: {error}") from None
        own = {one: given.pop(one) for one in ("bound", "weight_decay") if one in given}
        return of(solver(**(extra | given)), **own)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{about} Formula: ``{solver.__module__}.{solver.__name__}``."
    make.__signature__ = signature  # type: ignore[attr-defined]
    return make
