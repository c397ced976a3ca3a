"""Bounds on what comes from the wire, each with its reason. They are checked before any work.

An honest client meets none of them: they stop the typo and the stranger whose small request would
cost a server its memory or its time. What is bounded by the memory budget alone, such as the bytes
of an array, is not named here.
"""

from __future__ import annotations

MOST_LENGTH = 1 << 53
"""Elements of a space: up to here every index is exact in float64, and sums of them fit int64."""
MOST_DETAILS = 1 << 12
"""Bytes that a space of some kind needs besides its length: servers keep the last few thousand."""
MOST_ROW_EXTENTS = 1
"""Extents of one row of a table."""
MOST_OPERAND_EXTENTS = 2
"""Extents of what the client holds and a program takes along: a table, or a matrix."""
MOST_PARAMS = 3
"""Integers of a step: no row op has more."""
MOST_ROW_ITEMS = 1 << 31
"""Elements of one row."""
MOST_NAME = 512
"""Characters of a session, client, round, mailbox or loop, of which a server keeps many."""
MOST_SIGNATURE = 1 << 13
"""Characters of the signature of a plug-in."""
MOST_SERVERS = 1 << 16
"""Servers of one session: blocks are 1024, so more than that hold nothing anyway."""
MOST_CALLS = 1 << 12
"""Sweeps of one program."""
MOST_VALUES = 1 << 19
"""Inputs, scalars, steps, outputs and reductions of one program, each some 1 KiB when compiled: a
graph of 100,000 operations that is asked for at once fits."""
MOST_ARGUMENTS = 3
"""Arguments of a step: no row of the op table has more."""
MOST_OPERAND_BYTES = 3 << 20
"""What the client holds and a program takes along: it is part of one message."""
MOST_PARTIAL_BYTES = 60 << 20
"""Partial results of one program: they come in one message."""
MOST_FORCED_BYTES = 1 << 20
"""Pairs that are added to an array which is given away, where the budget cannot refuse them: it
might on one server only. Larger ones are staged first, and refused before anything is changed."""
MOST_TOTALS = 1 << 12
"""Arrays that one commit makes, or one tick adds to."""
MOST_CLOCK = 1 << 53
"""Clocks of a rank."""
LONGEST_SECONDS = 86_400.0
"""A wait that a client asks for; the server answers much sooner (``wire.questions``)."""


def check(field: str, value: float, least: float, most: float) -> None:
    """Raise ``ValueError`` unless ``least <= value <= most``; NaN is not."""
    if not least <= value <= most:
        raise ValueError(f"{field} must be {least} .. {most}, got {value}")


def check_name(field: str, name: str) -> None:
    """Raise ``ValueError`` for a name that is too long."""
    if len(name) > MOST_NAME:
        raise ValueError(
            f"{field} must have at most {MOST_NAME} characters, got {len(name)}: {name[:40]!r}..."
        )
