"""Loops over rows that are compiled where numba is installed."""

from __future__ import annotations

from typing import Any

try:
    from numba import njit as njit
except ImportError:  # where numba has no wheels, the loops run in Python

    def njit(**options: bool) -> Any:  # type: ignore[no-redef]
        """Leave a function as it is."""
        return lambda function: function
