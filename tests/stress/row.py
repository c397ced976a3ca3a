"""One line of the table."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """What was repeated how often, and how often it went wrong."""

    what: str
    trials: int
    failures: int
    detail: str = ""
