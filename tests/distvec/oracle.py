"""Random expressions, evaluated by NumPy and on servers by the same function."""

from __future__ import annotations

from distvec.testing import ELEMENTWISE, Operation, assert_close, outcome, vectors
from distvec.testing.strategies import LENGTHS
from ps_backend.program.types import DTYPES

OPERATIONS = ELEMENTWISE

__all__ = ["DTYPES", "LENGTHS", "OPERATIONS", "Operation", "assert_close", "outcome", "vectors"]
