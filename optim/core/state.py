"""What a solver knows between two iterations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from optim.core.arrays import Array
from optim.core.outcome import Outcome
from optim.core.problem import Point


@dataclass(frozen=True)
class State:
    """One iterate. Immutable; `memory` is the solver's own part. Norms are max norms.

    value, gradient      of what is minimised (OWLQN: with the penalty, and the pseudo-gradient)
    step_size            accepted by the last step-size search; 0 at the start
    step_length          max norm of the last change of x, relative to max(max norm of x, 1)
    gain                 what the last iteration gained in value, the larger of measured and
                         foretold by the gradient: noise that hides a gain is not convergence
    evaluations, seconds since the start of the run
    outcome              set in the last state of a run only
    solver               the name of the class that made it, and that can go on from it

    A state is all that a solver needs to go on: `solver.minimize(fun, resume=state)`. On NumPy
    arrays it can be pickled.
    """

    x: Array
    value: float
    gradient: Array
    gradient_norm: float
    initial_gradient_norm: float
    initial_value: float
    memory: Any = None
    iteration: int = 0
    step_size: float = 0.0
    step_length: float = float("inf")
    gain: float = float("inf")
    evaluations: int = 0
    seconds: float = 0.0
    outcome: Outcome | None = None
    solver: str = ""

    @classmethod
    def start(cls, point: Point, memory: Any = None) -> State:
        """The state before the first iteration."""
        norm = point.gradient_norm
        return cls(point.x, point.value, point.gradient, norm, norm, point.value, memory)

    def moved(
        self, point: Point, *, memory: Any, step_size: float, step_length: float, gain: float
    ) -> State:
        """The state one iteration later, at `point`."""
        return replace(
            self,
            x=point.x,
            value=point.value,
            gradient=point.gradient,
            gradient_norm=point.gradient_norm,
            memory=memory,
            iteration=self.iteration + 1,
            step_size=step_size,
            step_length=step_length,
            gain=gain,
        )
