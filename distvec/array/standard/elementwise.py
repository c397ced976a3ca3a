"""What the array API standard does with each element and is no row of the table of ops."""

from __future__ import annotations

from typing import Any

from distvec.array import elementwise as functions
from distvec.array import elementwise as real_functions


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Values of ``x`` limited to ``[min, max]``; a limit of None does not limit."""
    return functions.clip(x, min, max)


def imag(x: Any, /) -> Any:
    """Zeros: all our numbers are real."""
    return real_functions.imag(x)


def real(x: Any, /) -> Any:
    """``x``: all our numbers are real."""
    return real_functions.real(x)


def round(x: Any, /) -> Any:
    """Rounded half to even."""
    return functions.round(x)
