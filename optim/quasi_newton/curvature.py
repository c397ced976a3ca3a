"""What the solvers with pairs share: their memory, the first step size, and a second attempt."""

from __future__ import annotations

import math
from dataclasses import dataclass

from optim.core.plateau import Plateau
from optim.quasi_newton.history import History


@dataclass(frozen=True)
class CurvatureMemory:
    """The pairs, and how long nothing has improved."""

    history: History
    plateau: Plateau


def attempts(history: History) -> tuple[History, ...]:
    """The histories to make a direction of: if the pairs mislead the search, none of them."""
    return (history, History(history.capacity)) if history else (history,)


# Iterations without progress that end a run: where the values are flat the pairs take some thirty
# to be renewed, and then gradients may get smaller again.
PATIENCE = 40
# Where a step has met no positive curvature, the next may be longer by this factor.
GROWTH = 4.0


def first_step(slope: float, history: History, known: History, last: float) -> float:
    """The step size to try first: 1 where the pairs scale the direction.

    Without pairs, steepest descent: by the scale of the pairs that were just dropped (`known`), or
    by the `last` step size where none gave a pair, or at the very first by a vector of norm 1.
    """
    if history:
        return 1.0
    if known:
        return known.scale
    if last > 0.0:
        return GROWTH * last
    return 1.0 / math.sqrt(-slope) if slope < 0.0 else 1.0
