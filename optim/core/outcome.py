"""How a run ended, as sentences."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """Why a run ended. `value` is the `status` of a result, `sentence` its `message`."""

    CONVERGED_GRADIENT = (0, "Converged: the gradient is within its tolerance.")
    CONVERGED_VALUE = (1, "Converged: an iteration gains less than the value tolerance.")
    CONVERGED_STEP = (2, "Converged: the last step is within the step tolerance.")
    STALLED = (
        3,
        "Stalled at the best point: the objective's precision shows no lower value nearby.",
    )
    LIMIT_ITERATIONS = (4, "Stopped: the limit of iterations (max_iterations) is reached.")
    LIMIT_EVALUATIONS = (5, "Stopped: the limit of evaluations (max_evaluations) is reached.")
    LIMIT_TIME = (6, "Stopped: the limit of time (max_seconds) is reached.")
    NOT_FINITE_AT_START = (7, "Failed: the objective or its gradient is not finite at x0.")
    NOT_FINITE = (8, "Failed: the objective became not finite; the best finite point is returned.")
    STOPPED_BY_CALLBACK = (9, "Stopped: the callback asked for it.")
    CONVERGED_RESIDUALS = (
        10,
        "Converged: the primal and dual residuals are within their tolerances.",
    )

    CONVERGED_PRECISION = (
        11,
        "Converged: the gradient is small, and rounding hides what could still be gained.",
    )
    UNBOUNDED = (12, "Failed: the values fall without end; the objective is unbounded below.")

    sentence: str

    def __new__(cls, status: int, sentence: str) -> Outcome:
        member = object.__new__(cls)
        member._value_ = status
        member.sentence = sentence
        return member

    @property
    def success(self) -> bool:
        """True if a tolerance is met, or precision is used up; a stall or a limit is none."""
        return self in (
            Outcome.CONVERGED_GRADIENT,
            Outcome.CONVERGED_VALUE,
            Outcome.CONVERGED_STEP,
            Outcome.CONVERGED_RESIDUALS,
            Outcome.CONVERGED_PRECISION,
        )
