"""An array of a keyed space whose rows take steps by gradients: an optimizer, and its states."""

from __future__ import annotations

import copy
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from distvec.array.handle import Home as Session
from distvec.diagnostics.profile import measured
from distvec.rows.optimizer import STEP_SIZE, WEIGHTS, RowOptimizer
from ps_backend.client import KeyBatch, KeySpace, KeyView
from ps_backend.program.initial import Constant, Fill
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


class Training:
    """Steps of the rows of one array. Its states are arrays beside it, made with it."""

    def __init__(self, space: Home, weights: Weights, optimizer: RowOptimizer) -> None:
        """One message a server for each state. ``TypeError`` for weights that are no floats."""
        row, dtype = weights.type.row, weights.type.dtype
        start = float(weights.init.value) if isinstance(weights.init, Constant) else None
        self._space, self._type = space, weights.type
        self._traced = optimizer.traced(row, dtype, start)
        self.optimizer = optimizer
        self.states = MappingProxyType(
            {
                state.name: space.array(state.row, Constant(state.initial), state.dtype)
                for state in optimizer.states(row, dtype, start)
            }
        )
        """The arrays of the space that the optimizer keeps, by name."""
        self.calls = 0
        """How many steps were asked for: what a schedule of step sizes goes by."""
        numbers = {name: state.number for name, state in self.states.items()}
        numbers[WEIGHTS] = weights.number
        self._arrays = [numbers[name] for name in self._traced.arrays]

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
