"""Values that are posted for others to wait for, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_WAIT_SECONDS = 10.0
"""A wait ends after so long at most, as does the thread of one whose sender is gone."""

MOST_VALUE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Post:
    """A value and its version."""

    version: int
    value: bytes


def check_size(value: bytes) -> None:
    """Raise ``ValueError`` for a value that is too large for a board."""
    if len(value) > MOST_VALUE_BYTES:
        raise ValueError(
            f"a value of {len(value)} bytes; a board takes up to {MOST_VALUE_BYTES}: put it into "
            "an array, and post the array's buffer"
        )
