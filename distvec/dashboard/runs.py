"""The runs of solvers in this process, as their observer sees them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distvec.dashboard.series import Series

if TYPE_CHECKING:
    from optim import State

_MOST_RUNS = 8


@dataclass
class Run:
    """One run: its newest numbers, and those of all iterations."""

    number: int
    solver: str
    began: float
    iteration: int = 0
    evaluations: int = 0
    value: float = float("nan")
    best: float = float("inf")
    gradient_norm: float = float("nan")
    step_size: float = 0.0
    seconds: float = 0.0
    outcome: str = ""
    success: bool | None = None
    points: Series = field(
        default_factory=lambda: Series("value", "gradient_norm", "iteration", "seconds")
    )


class Runs:
    """The last runs of this process. Thread-safe."""

    def __init__(self) -> None:
        self._runs: OrderedDict[int, Run] = OrderedDict()
        self._lock = threading.Lock()
        self.iterations = 0
        """Of all runs."""

    def note(self, number: int, state: State) -> None:
        """The observer: a run has come to a state."""
        now = time.time()
        with self._lock:
            run = self._runs.get(number)
            if run is None:
                run = self._runs[number] = Run(number, state.solver, now - state.seconds)
                while len(self._runs) > _MOST_RUNS:
                    self._runs.popitem(last=False)
            self.iterations += state.iteration > run.iteration
            run.iteration, run.evaluations = state.iteration, state.evaluations
            run.value, run.gradient_norm = float(state.value), float(state.gradient_norm)
            run.best = min(run.best, run.value)
            run.step_size, run.seconds = float(state.step_size), state.seconds
            if state.outcome is not None:
                run.outcome, run.success = state.outcome.sentence, state.outcome.success
            run.points.add(now, run.value, run.gradient_norm, run.iteration, run.seconds)

    @property
    def newest(self) -> Run | None:
        """The run that began last."""
        with self._lock:
            return next(reversed(self._runs.values()), None)

    def state(self, since: float) -> list[dict[str, Any]]:
        """The runs as JSON has them, the newest first, with the points after ``since``."""
        with self._lock:
            return [_as_json(run, since) for run in reversed(self._runs.values())]


def _as_json(run: Run, since: float) -> dict[str, Any]:
    numbers = ("value", "best", "gradient_norm", "step_size")
    return {
        "number": run.number,
        "solver": run.solver,
        "began": run.began,
        "iteration": run.iteration,
        "evaluations": run.evaluations,
        "seconds": run.seconds,
        "outcome": run.outcome,
        "success": run.success,
        **{name: _number(getattr(run, name)) for name in numbers},
        "points": run.points.since(since),
    }


def _number(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
