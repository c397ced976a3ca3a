"""What L-BFGS and OWL-QN share: how a ray is bounded and what follows an accepted step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ._history import History
from ._line_search import Ray, Trial
from ._outcome import Outcome
from ._plateau import Plateau
from ._state import State


@dataclass(frozen=True)
class Memory:
    """The pairs, and how long nothing has improved."""

    history: History
    plateau: Plateau


def first_step(slope: float, history: History, known: History) -> float:
    """The step size to try first: 1 where the pairs scale the direction.

    Without pairs, steepest descent: by the scale of the pairs that were just dropped (`known`), or
    at the very first by a vector of norm 1.
    """
    if history:
        return 1.0
    if known:
        return known.scale
    return 1.0 / math.sqrt(-slope) if slope < 0.0 else 1.0


def advanced(state: State, ray: Ray, trial: Trial, history: History) -> State:
    """The state after the accepted `trial`; its outcome is set when nothing improves any more."""
    plateau = state.memory.plateau.after(trial.point, ray.rounding)
    memory = replace(state.memory, history=history.push(trial.pair, ray.epsilon), plateau=plateau)
    moved = state.moved(
        trial.point,
        memory=memory,
        step_size=trial.step_size,
        step_length=trial.step_size * ray.d_norm / max(ray.x_norm, 1.0),
        gain=max(state.value - trial.value, -0.5 * trial.foretold),
    )
    return replace(moved, outcome=Outcome.STALLED) if plateau.stalled else moved
