"""What the array API standard does with each element and is no row of the table of ops."""

from __future__ import annotations

from typing import Any

from distvec.array import elementwise


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Values of ``x`` limited to ``[min, max]``; a limit of None does not limit."""
    return elementwise.clip(x, min, max)


def imag(x: Any, /) -> Any:
    """Zeros: all our numbers are real."""
    return elementwise.imag(x)


def real(x: Any, /) -> Any:
    """``x``: all our numbers are real."""
    return elementwise.real(x)


def round(x: Any, /) -> Any:
    """Rounded half to even."""
    return elementwise.round(x)
