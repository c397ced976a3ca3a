"""Parameters of solvers, sets and terms that must lie in some range."""

from __future__ import annotations

import math


def check_positive(owner: object, name: str) -> None:
    """Refuse a parameter that is not a positive finite number."""
    given = getattr(owner, name)
    if not 0.0 < given < math.inf:
        raise ValueError(
            f"{type(owner).__name__}({name}={given!r}): must be a positive finite number"
        )


def check_fraction(owner: object, name: str) -> None:
    """Refuse a parameter that is not at least 0 and below 1."""
    given = getattr(owner, name)
    if not 0.0 <= given < 1.0:
        raise ValueError(
            f"{type(owner).__name__}({name}={given!r}): must be at least 0 and below 1"
        )
