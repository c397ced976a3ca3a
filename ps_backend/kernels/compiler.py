"""Whether loops can be compiled here."""

from __future__ import annotations

import importlib.util
from functools import cache


@cache
def has_compiler() -> bool:
    """Whether numba is installed."""
    return importlib.util.find_spec("numba") is not None
