"""Checks of the numbers that losses are made with."""

from __future__ import annotations

import math


def check_number(loss: object, name: str, allowed: bool, what: str) -> None:
    """ValueError unless the field is a finite number that is ``allowed``; ``what`` says which."""
    value = getattr(loss, name)
    if not (math.isfinite(value) and allowed):
        raise ValueError(f"{type(loss).__name__}({name}={value!r}): must be {what}")


def check_smoothing(loss: object) -> None:
    """The field ``smoothing``."""
    smoothing = getattr(loss, "smoothing")  # noqa: B009
    check_number(loss, "smoothing", smoothing >= 0.0, "a number of at least 0; 0 is not smooth")
