"""An array of a keyed space whose rows take steps by gradients: an optimizer, and its states."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from distvec.array.core.handle import SessionBase as Session
from distvec.diagnostics.profile import measured
from distvec.rows.optimizers import STEP_SIZE, WEIGHTS, RowOptimizer
from ps_backend.client import KeyBatch, KeySpace, KeyView
from ps_backend.program.initializers import Constant, Fill
from ps_backend.program.types import Row, ValueType


class Home(Protocol):
    """A keyed space."""

    session: Session
    remote: KeySpace

    def array(self, row: Row, fill: Fill, dtype: Any) -> Any:
        """Another array of it."""


class Weights(Protocol):
    """An array of a keyed space."""

    number: int
    type: ValueType
    init: Fill


@dataclass(frozen=True, slots=True)
class KeptTraining:
    """What files say of a training: of an array that was restored it is all that is known."""

    document: Mapping[str, Any]
    """Of the optimizer."""
    states: Mapping[str, Any]
    """The arrays that it keeps, by name."""
    calls: int

    def is_of(self, other: KeptTraining) -> bool:
        """Whether both are of one training, though maybe of different moments."""
        numbers, others = (
            {name: state.number for name, state in one.states.items()} for one in (self, other)
        )
        return self.document == other.document and numbers == others


class Training:
    """Steps of the rows of one array. Its states are arrays beside it."""

    def __init__(
        self,
        space: Home,
        weights: Weights,
        optimizer: RowOptimizer,
        kept: KeptTraining | None = None,
    ) -> None:
        """Begin it, one message a server for each state; or go on from ``kept``.

        ``TypeError`` for weights that are no floats, ``ValueError`` for other states than those of
        ``optimizer``.
        """
        row, dtype = weights.type.row, weights.type.dtype
        start = float(weights.init.value) if isinstance(weights.init, Constant) else None
        self._space, self._type = space, weights.type
        self._traced = optimizer.traced(row, dtype, start)
        self.optimizer = optimizer
        wanted = {
            state.name: (state.row, Constant(state.initial), state.dtype)
            for state in optimizer.states(row, dtype, start)
        }
        if kept is not None:
            _check_same(optimizer, wanted, kept)
        self.states: Mapping[str, Any] = MappingProxyType(
            {name: space.array(*how) for name, how in wanted.items()}
            if kept is None
            else dict(kept.states)
        )
        """The arrays of the space that the optimizer keeps, by name."""
        self.calls = 0 if kept is None else kept.calls
        """How many steps were asked for: what a schedule of step sizes goes by."""
        numbers = {name: state.number for name, state in self.states.items()}
        numbers[WEIGHTS] = weights.number
        self._arrays = [numbers[name] for name in self._traced.arrays]

    @property
    def kept(self) -> KeptTraining:
        """What files say of it."""
        return KeptTraining(self.optimizer.document(), self.states, self.calls)

    def over(self, space: Home) -> Training:
        """The same, whose steps go to another face of its space."""
        other = copy.copy(self)
        other._space = space
        return other

    def step(
        self,
        batch: KeyBatch,
        view: KeyView | None,
        gradients: Any,
        step_size: float | None,
        wire: str,
    ) -> None:
        """One step of the rows of the keys; gradients go as ``wire``. One message a holder."""
        shape = (batch.count, *self._type.row)
        given = np.asarray(gradients, self._type.dtype)
        if given.shape != shape:
            raise ValueError(
                f"{batch.count} keys need gradients of shape {shape}, got {given.shape}"
            )
        numbers = self.optimizer.numbers(self.calls)
        if step_size is not None:
            numbers[STEP_SIZE] = float(step_size)
        scalars = self._traced.scalars(numbers)
        with measured(self._space.session.counters):
            self._space.remote.run(
                self._traced.program,
                self._arrays,
                batch,
                [batch.combined(given, "add")],
                scalars,
                view=view,
                wire=wire,
            )
        self.calls += 1


def _check_same(
    optimizer: RowOptimizer, wanted: Mapping[str, tuple[Row, Fill, str]], kept: KeptTraining
) -> None:
    """``ValueError`` where ``optimizer`` cannot go on from the states of ``kept``."""
    kind = kept.document["kind"]
    if optimizer.kind != kind:
        raise ValueError(
            f"this array has states of {kind}, and {optimizer.kind} cannot go on from them; give "
            f"{kind} again, or begin with new states: t.optimizer(..., restart=True)"
        )
    found = {name: (one.type.row, one.init, one.type.dtype) for name, one in kept.states.items()}
    if found != wanted:
        raise ValueError(
            f"this array has the states {_listed(found)}, but {optimizer.kind} with these "
            f"parameters needs {_listed(wanted)}; give the parameters that it had, or begin with "
            "new states: t.optimizer(..., restart=True)"
        )


def _listed(states: Mapping[str, tuple[Row, Fill, str]]) -> str:
    listed = [
        f"{name} ({dtype}, rows of shape {row}, {fill})"
        for name, (row, fill, dtype) in states.items()
    ]
    return ", ".join(listed) or "none"
