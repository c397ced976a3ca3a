"""What is said of what cannot be differentiated."""

from __future__ import annotations

from typing import Any

from distvec.graph.variables import NotDifferentiable
from ps_backend.program import ops

__all__ = ["NotDifferentiable", "name_of", "why_not"]


def why_not(op: str) -> str:
    """Why the op has no derivative."""
    row = ops.TABLE.get(op)
    return f": {row.no_derivative}" if row is not None and row.no_derivative else ""


def name_of(function: Any) -> str:
    """What users call a function of NumPy's or SciPy's."""
    return getattr(function, "__name__", None) or repr(function)
