"""Systems of equations whose matrix is small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distvec.array.linear_algebra import small
from distvec.array.linear_algebra.tall import is_wide
from distvec.array.transposed import transpose


def solve(a: Any, b: Any) -> Any:
    """``numpy.linalg.solve``; lazy.

    Where ``b`` is the transpose of a tall table, as ``T.T``, so is the result: each server
    multiplies its columns by the inverse of ``a``, in float64.
    """
    if not is_wide(b):
        return small.of_small(np.linalg.solve)(a, b)
    table = b.table
    left = small.collected(table, a, "solve")
    if left.shape != (len(b), len(b)):
        raise ValueError(f"solve: shapes {left.shape} and {b.shape} do not fit")
    kind = np.result_type(np.linalg.solve(np.ones((1, 1), left.dtype), np.ones(1, table.dtype)))
    inverse = small.applied(np.linalg.inv, [left.astype(np.float64)])
    return transpose((table @ inverse.T).astype(kind))


def numpy_functions() -> dict[Any, Callable[..., Any]]:
    """By NumPy's function ours, with the same parameters."""
    return {np.linalg.solve: solve}
