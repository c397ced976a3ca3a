"""Bounds on questions that many wait for, and on their answers."""

from __future__ import annotations

LONGEST_WAIT_SECONDS = 10.0
"""A wait ends after so long at most, as does the thread of one whose sender is gone."""

MOST_VALUE_BYTES = 1 << 16
MOST_ANSWER_BYTES = 32 << 20
"""Of the answers to one question: they go out in one message."""


def check_size(value: bytes) -> None:
    """Raise ``ValueError`` for a question or answer that is too large for a mailbox."""
    if len(value) > MOST_VALUE_BYTES:
        raise ValueError(
            f"a value of {len(value)} bytes; a mailbox takes up to {MOST_VALUE_BYTES}: put it into "
            "an array, and ask about the array"
        )
