"""Random expressions, evaluated by NumPy and on servers by the same function."""

from __future__ import annotations

from distvec.testing import ELEMENTWISE, Operation, assert_close, outcome, vectors
from distvec.testing.strategies import LENGTHS
from ps_backend.program.types import DTYPES

OPERATIONS = ELEMENTWISE

WIDE = tuple(name for name in DTYPES if name != "float16")
"""Those in which NumPy's own sums neither overflow nor lose most digits on the way."""

__all__ = [
    "DTYPES",
    "LENGTHS",
    "OPERATIONS",
    "WIDE",
    "Operation",
    "assert_close",
    "outcome",
    "vectors",
]
