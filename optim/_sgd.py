"""Stochastic gradient descent with momentum and averaging.

H. Robbins, S. Monro, Ann. Math. Statist. 22 (1951); B. T. Polyak, USSR Comput. Math. Math. Phys. 4
(1964), momentum; I. Sutskever et al., ICML 2013, equations 3 and 4, Nesterov's momentum; B. T.
Polyak, A. B. Juditsky, SIAM J. Control Optim. 30 (1992), averaging.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ._arrays import Array, fetch, max_norm, quiet
from ._outcome import Outcome
from ._problem import Point, Problem
from ._schedules import Constant, Schedule
from ._solver import Solver
from ._state import State


@dataclass(frozen=True)
class Memory:
    """The velocity, the mean of the iterates if wanted, and when the value last improved."""

    velocity: Array | None
    mean: Array | None
    best_value: float
    improved_at: int = 0


@dataclass(frozen=True, kw_only=True)
class SGD(Solver):
    """Gradient descent for objectives that may be noisy: each call may use another minibatch.

    step_size           a number or a schedule k -> step size, k = 0, 1, ...
    momentum            v = momentum * v + gradient; x = x - step_size * v
    nesterov            step along gradient + momentum * v instead
    average             return the mean of all iterates after the start (Polyak-Ruppert)
    gradient_tolerance  on the max norm of the gradient; 0: off, as a minibatch may have none
    value_tolerance     with `window`: stop when the best value has improved by less than this,
    window              relative to max(|best|, 1), in so many iterations; 0: off

    All tests are off by default, as a noisy value proves nothing. The point returned is that of the
    lowest value seen, itself noisy if the objective is; with average=True it is the mean iterate,
    evaluated once more. A step costs one evaluation and one message on lazy arrays.
    """

    step_size: float | Schedule = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    average: bool = False
    gradient_tolerance: float = 0.0
    value_tolerance: float = 0.0
    window: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov=True needs momentum, for instance SGD(momentum=0.9)")

    def init(self, problem: Problem, x: Array) -> State:
        """Evaluate at the start."""
        point = problem.at(x)
        return State.start(point, Memory(None, None, point.value))

    def step(self, problem: Problem, state: State) -> State:
        """One iteration."""
        with quiet():
            x, memory = self.update(state, state.gradient)
            value, gradient = problem(x)
            also = tuple(v for v in (x, gradient, memory.velocity, memory.mean) if v is not None)
            number, norm, length, x_norm = fetch(
                value, max_norm(gradient), max_norm(x - state.x), max_norm(x), also=also
            )
        point = Point(x, number, gradient, norm)
        return state.moved(
            point,
            memory=self._watched(memory, number, state.iteration + 1),
            step_size=self.step_size_at(state.iteration),
            step_length=length / max(x_norm, 1.0),
            gain=state.value - number,
        )

    def update(self, state: State, gradient: Array) -> tuple[Array, Memory]:
        """The next x, and velocity and mean: a pure function of state and gradient, all lazy."""
        memory = state.memory
        velocity, direction = None, gradient
        if self.momentum:
            previous = memory.velocity
            velocity = gradient if previous is None else self.momentum * previous + gradient
            direction = gradient + self.momentum * velocity if self.nesterov else velocity
        x = state.x - self.step_size_at(state.iteration) * direction
        mean = None
        if self.average:
            first = memory.mean is None
            mean = x if first else memory.mean + (x - memory.mean) / (state.iteration + 1.0)
        return x, replace(memory, velocity=velocity, mean=mean)

    def step_size_at(self, k: int) -> float:
        """The step size of iteration k."""
        schedule = self.step_size if callable(self.step_size) else Constant(self.step_size)
        return schedule(k)

    def done(self, state: State) -> Outcome | None:
        """Only what the user switched on."""
        if self.gradient_tolerance and state.gradient_norm <= self.gradient_tolerance:
            return Outcome.CONVERGED_GRADIENT
        if self.window and state.iteration - state.memory.improved_at >= self.window:
            return Outcome.CONVERGED_VALUE
        return None

    def finish(self, problem: Problem, best: State, last: State) -> State:
        """The best point, or the mean if wanted and finite."""
        if not self.average or last.memory.mean is None or problem.remaining < 1:
            return best
        point = problem.at(last.memory.mean)
        mean = State.start(point, last.memory)
        return mean if point.finite else best

    def _watched(self, memory: Memory, value: float, iteration: int) -> Memory:
        """With the best value so far, once it improves by more than the tolerance."""
        allowed = self.value_tolerance * max(abs(memory.best_value), 1.0)
        if value < memory.best_value - allowed:
            return replace(memory, best_value=value, improved_at=iteration)
        return memory
