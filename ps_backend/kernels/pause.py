"""Where a kernel lets others go first."""

from __future__ import annotations

from collections.abc import Callable

Pause = Callable[[], None]
"""What a kernel calls between two pieces of its work. It may raise; then nobody needs the rest."""


def no_pause() -> None:
    """For a kernel that may run to its end."""
