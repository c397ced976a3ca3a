"""From a direction to the next state: the line to search along, and the state after a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from optim.core.arrays import Array, Scalar, fetch, machine_epsilon, max_norm, quiet, vdot
from optim.core.problem import Point, Problem
from optim.core.progress import rounding_of
from optim.core.result import Outcome, State
from optim.line_search import Ray, Sample, Trial
from optim.line_search.ray import CurvaturePair

Measure: TypeAlias = Callable[[Array, Array, Array], tuple[Scalar, ...]]
"""Maps the new x, the new gradient and its change to rank-0 values that are read as well."""


@dataclass(frozen=True)
class Direction:
    """A direction with its slope (the directional derivative) and max norms, read as numbers.

    first   the step size to try first
    """

    vector: Array
    slope: float
    norm: float
    x_norm: float
    first: float


def ray_along(
    problem: Problem, state: State, direction: Direction, at: Callable[[float], Trial]
) -> Ray:
    """The ray from `state` on which `at` evaluates the trials."""
    epsilon = machine_epsilon(state.x)
    return Ray(
        start=Sample(0.0, state.value, direction.slope),
        first=direction.first,
        at=at,
        rounding=rounding_of(state.value, epsilon),
        x_norm=direction.x_norm,
        d_norm=direction.norm,
        epsilon=epsilon,
        budget=problem.remaining,
    )


def straight_ray(
    problem: Problem,
    state: State,
    direction: Direction,
    *,
    where: Callable[[float], Array] | None = None,
    measure: Measure = lambda x, g, y: (),
) -> Ray:
    """The objective at x + step_size * direction; a trial costs an evaluation and a request.

    `where(step_size)` is the same point, computed in another way. The numbers of `measure` are in
    `Trial.measured`.
    """
    x, g, d = state.x, state.gradient, direction.vector

    def at(step_size: float) -> Trial:
        with quiet():
            new = x + step_size * d if where is None else where(step_size)
            value, gradient = problem(new)
            s, y = new - x, gradient - g
            number, norm, slope, sy, yy, *measured = fetch(
                value,
                max_norm(gradient),
                vdot(gradient, d),
                vdot(s, y),
                vdot(y, y),
                *measure(new, gradient, y),
                also=(new, gradient),
            )
        return Trial(
            step_size,
            number,
            slope,
            foretold=step_size * direction.slope,
            point=Point(new, number, gradient, norm),
            pair=CurvaturePair(s, y, sy, yy),
            measured=tuple(measured),
        )

    return ray_along(problem, state, direction, at)


def next_state(state: State, ray: Ray, trial: Trial, **memory: Any) -> State:
    """The state after the accepted `trial`, with the changed fields of the solver's memory.

    The `plateau` in the memory sets its outcome once there is no more improvement.
    """
    plateau = state.memory.plateau.update(trial.point, ray.rounding)
    # The gain that the first step promised: a step that the search made tiny gains little anywhere.
    natural = max(ray.first / trial.step_size, 1.0)
    moved = state.moved(
        trial.point,
        memory=replace(state.memory, plateau=plateau, **memory),
        step_size=trial.step_size,
        step_length=trial.step_size * ray.d_norm / max(ray.x_norm, 1.0),
        gain=max(state.value - trial.value, -0.5 * natural * trial.foretold),
    )
    return replace(moved, outcome=Outcome.STALLED) if plateau.has_stalled else moved
