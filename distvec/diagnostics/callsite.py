"""Where in a user's program something happens."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).parents[1])


def call_site() -> str:
    """``file:line`` of the innermost caller outside this package.

    Helpers of other libraries that only pass a call on are skipped where they set the local
    variable ``__tracebackhide__``, as pytest's convention has it.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE) and "__tracebackhide__" not in frame.f_locals:
            return f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown line"


def is_from_outside() -> bool:
    """Whether the caller's own caller is outside this package: a method that users call as well."""
    return not sys._getframe(2).f_code.co_filename.startswith(_PACKAGE)
