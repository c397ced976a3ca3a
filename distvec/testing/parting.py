"""Where the paths of an iteration part, in a few words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_BEFORE, _AFTER = 2, 5
_FLOATS = (np.ndarray, np.generic, float)


def parting(ours: Sequence[Any], theirs: Sequence[Any], first: int) -> str:
    """Which iteration is the ``first`` too far apart, and how it was before and goes on."""
    last = min(len(ours), len(theirs)) - 1
    shown = [*range(max(first - _BEFORE, 0), min(first + _AFTER, last + 1))]
    shown += [last] if shown[-1] < last else []
    steps = ", ".join(f"{number}: {apart(ours[number], theirs[number]):.1e}" for number in shown)
    return (
        f"the paths part at iteration {first} of 0 to {last}; "
        f"apart, relative to the largest element: {steps}"
    )


def apart(ours: Any, theirs: Any) -> float:
    """The largest difference of floats, each relative to the largest element of its array."""
    return max(_differences(ours, theirs), default=0.0)


def _differences(ours: Any, theirs: Any) -> Iterator[float]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours.keys() & theirs.keys():
            yield from _differences(ours[key], theirs[key])
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        for pair in zip(ours, theirs, strict=False):
            yield from _differences(*pair)
    elif isinstance(ours, _FLOATS) and isinstance(theirs, _FLOATS):
        mine, other = np.asarray(ours), np.asarray(theirs)
        if mine.shape != other.shape or {mine.dtype.kind, other.dtype.kind} != {"f"}:
            return
        with np.errstate(all="ignore"):
            difference = np.abs(mine - other)
            size = np.abs(other).max(initial=0.0)
            yield float(np.where(difference == 0, 0.0, difference / size).max(initial=0.0))
